//! Validation of custom objects by their structural schema, with the wording of the real API
//! server.

use serde_json::Value;

use super::expressions;
use super::format;
use super::node::{At, ListKind, Node, Shape};
use super::rules::Rules;
use super::walk::join;
use crate::wire::field_error::FieldError;

/// Returns what is wrong with `new`. Where `old` has the same value, nothing is said: objects that
/// were accepted once may be kept ("ratcheting").
pub fn validate(at: At<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    value(at, new, old, "", &mut errors);
    if !expressions::any(at) {
        return errors;
    }
    if errors.is_empty() {
        expressions::check(at, new, old, "", &mut errors);
    } else {
        errors.push(expressions::not_checked());
    }
    errors
}

fn value(at: At<'_>, new: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(new) {
        return;
    }
    let node = at.node();
    if new.is_null() && node.nullable {
        return;
    }
    if !has_type(node, new) {
        errors.push(wrong_type(node, new, path));
        return;
    }
    if let Some(rules) = &node.rules {
        check(rules, new, path, errors);
    }
    match new {
        Value::Object(fields) => {
            for (name, child) in fields {
                // Metadata has rules of its own, which do not come from the schema.
                let metadata = name == "metadata" && path.is_empty();
                if let Some(at) = at.field(name).filter(|_| !metadata) {
                    value(
                        at,
                        child,
                        old.and_then(|old| old.get(name)),
                        &join(path, name),
                        errors,
                    );
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = at.items() {
                duplicates(at, list, path, errors);
                for (index, item) in list.iter().enumerate() {
                    let old = counterpart(at, item, old);
                    value(items, item, old, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn has_type(node: &Node, value: &Value) -> bool {
    match (&node.shape, value) {
        (Shape::Any, value) => !value.is_null(),
        (Shape::Object { .. }, Value::Object(_))
        | (Shape::List { .. }, Value::Array(_))
        | (
            Shape::String
            | Shape::Bytes
            | Shape::Time
            | Shape::MicroTime
            | Shape::IntOrString
            | Shape::Quantity,
            Value::String(_),
        )
        | (Shape::Number | Shape::Quantity, Value::Number(_))
        | (Shape::Boolean, Value::Bool(_)) => true,
        (Shape::Integer(_) | Shape::IntOrString, Value::Number(n)) => {
            n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        _ => false,
    }
}

fn wrong_type(node: &Node, value: &Value, path: &str) -> FieldError {
    let wanted = match &node.shape {
        Shape::Object { .. } => "object",
        Shape::List { .. } => "array",
        Shape::Integer(_) => "integer",
        Shape::Number => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrString => "integer,string",
        _ => "string",
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let detail = format!("{} must be of type {wanted}: {found:?}", in_body(path));
    FieldError::type_invalid(root(path), &Value::from(found), detail)
}

/// Returns how the validator of the real server names a place.
fn in_body(path: &str) -> String {
    if path.is_empty() {
        "in body".to_owned()
    } else {
        format!("{path} in body")
    }
}

/// Returns a path as it is shown: that of the whole object is `<nil>`.
fn root(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

#[allow(clippy::too_many_lines)] // One demand a paragraph.
fn check(rules: &Rules, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let because = |value: &Value, detail: &str| {
        FieldError::invalid(root(path), value, format!("{} {detail}", in_body(path)))
    };
    let mut invalid = |detail: String| errors.push(because(value, &detail));
    match value {
        Value::String(text) => {
            // Of length and pattern the real server reports the first that fails.
            let length = text.chars().count() as u64;
            if let Some(most) = rules.at_most.length.filter(|most| length > *most) {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                errors.push(FieldError::too_long(root(path), most));
            } else if let Some(least) = rules.at_least.length.filter(|least| length < *least) {
                invalid(format!("should be at least {least} chars long"));
            } else if let Some((pattern, regex)) = &rules.pattern
                && !regex.is_match(text)
            {
                invalid(format!("should match '{pattern}'"));
            }
            if let Some(name) = rules
                .format
                .as_deref()
                .filter(|name| !format::matches(name, text))
            {
                let detail = format!("{} must be of type {name}: {text:?}", in_body(path));
                errors.push(FieldError::type_invalid(root(path), value, detail));
            }
        }
        Value::Number(n) => {
            let number = n.as_f64().unwrap_or_default();
            let bits = rules.format.as_deref() == Some("int32")
                && n.as_i64().is_some_and(|n| i32::try_from(n).is_err());
            if bits {
                invalid("must be of type integer with format int32".to_owned());
            }
            if let Some(most) = rules.maximum.filter(|most| number > *most) {
                invalid(format!("should be less than or equal to {most}"));
            }
            if let Some(least) = rules.minimum.filter(|least| number < *least) {
                invalid(format!("should be greater than or equal to {least}"));
            }
        }
        Value::Array(list) => {
            if let Some(least) = rules
                .at_least
                .items
                .filter(|least| (list.len() as u64) < *least)
            {
                // The real server shows how many there are.
                let detail = format!("should have at least {least} items");
                errors.push(because(&list.len().into(), &detail));
            }
            let most = rules.at_most.items;
            if let Some(most) = most
                .and_then(|most| usize::try_from(most).ok())
                .filter(|most| list.len() > *most)
            {
                errors.push(FieldError::too_many(root(path), list.len(), most));
            }
        }
        Value::Object(fields) => {
            for name in rules
                .required
                .iter()
                .filter(|name| !fields.contains_key(*name))
            {
                errors.push(FieldError::required(join(path, name), ""));
            }
        }
        _ => {}
    }
    if !rules.allowed.is_empty() && !rules.allowed.contains(value) {
        let allowed: Vec<String> = rules
            .allowed
            .iter()
            .map(|allowed| {
                allowed
                    .as_str()
                    .map_or_else(|| allowed.to_string(), str::to_owned)
            })
            .collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        errors.push(FieldError::unsupported(root(path), value, &allowed));
    }
}

/// Sets hold a value once, maps a key once.
fn duplicates(at: At<'_>, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let key = |item: &Value| match at.list() {
        Some(ListKind::Set) => Some(item.clone()),
        Some(ListKind::Map(keys)) => {
            let fields = keys
                .iter()
                .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Some(Value::Object(fields.collect()))
        }
        _ => None,
    };
    let keys: Vec<Option<Value>> = list.iter().map(key).collect();
    for (index, key) in keys.iter().enumerate() {
        let before = keys[..index]
            .iter()
            .filter(|other| other.is_some() && *other == key)
            .count();
        // Only the second of several is reported.
        if let (1, Some(key)) = (before, key) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), key));
        }
    }
}

/// Returns the element of the old list that `item` is the new form of; only keyed lists say so.
pub fn counterpart<'a>(at: At<'_>, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let Some(ListKind::Map(keys)) = at.list() else {
        return None;
    };
    old?.as_array()?
        .iter()
        .find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

#[cfg(test)]
mod tests;
