//! The rules that CRDs state in CEL, checked once the shape of an object is right.

use serde_json::Value;

use super::cel::{Failure, Scope};
use super::node::{At, Shape};
use super::rules::Expression;
use super::validate::counterpart;
use super::walk::join;
use crate::wire::field_error::FieldError;

/// Returns whether any rule is stated in the schema.
pub fn any(at: At<'_>) -> bool {
    at.arena().iter().any(|node| {
        node.rules
            .as_ref()
            .is_some_and(|rules| !rules.expressions.is_empty())
    })
}

/// Returns what the server adds when the shape of an object is wrong already.
pub fn not_checked() -> FieldError {
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    FieldError::invalid("<nil>", &Value::Null, detail)
}

/// Reports what breaks the rules of the schema. Where nothing changed, nothing is said.
pub fn check(
    at: At<'_>,
    new: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(new) || (new.is_null() && at.node().nullable) {
        return;
    }
    if let Some(rules) = at.node().rules.as_ref()
        && !rules.expressions.is_empty()
    {
        let scope = Scope::new(
            [("self", new)]
                .into_iter()
                .chain(old.map(|old| ("oldSelf", old))),
        );
        for rule in &rules.expressions {
            if rule.applies(old) {
                errors.extend(broken(rule, new, &scope, path));
            }
        }
    }
    match (&at.node().shape, new) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            for (name, child) in fields {
                if let Some(at) = at.field(name) {
                    check(
                        at,
                        child,
                        old.and_then(|old| old.get(name)),
                        &join(path, name),
                        errors,
                    );
                }
            }
        }
        (Shape::List { .. }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                if let Some(items) = at.items() {
                    let old = counterpart(at, item, old);
                    check(items, item, old, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn broken(rule: &Expression, new: &Value, scope: &Scope<'_>, path: &str) -> Option<FieldError> {
    let detail = match scope.holds(rule.parsed.as_ref()?) {
        Ok(true) | Err(Failure::Unsupported) => return None,
        Ok(false) => match &rule.message {
            Some(text) => text.clone(),
            None => format!("failed rule: {}", rule.rule.trim()),
        },
        Err(Failure::Wrong(error)) => {
            let shown = rule.message.as_deref().unwrap_or(&rule.rule);
            format!("{error} evaluating rule: {shown}")
        }
    };
    let field = if path.is_empty() { "<nil>" } else { path };
    // Of objects and lists the value is left out.
    Some(if new.is_object() || new.is_array() {
        FieldError::omitted(field, detail)
    } else {
        FieldError::invalid(field, new, detail)
    })
}
