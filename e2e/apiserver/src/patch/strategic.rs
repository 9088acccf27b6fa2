//! Strategic merge patch: a merge patch that knows which lists are keyed, and has directives of its
//! own.
//!
//! The rules are those of Kubernetes' API conventions ("Strategic Merge Patch") and of its
//! directives `$patch`, `$retainKeys`, `$setElementOrder/LIST` and `$deleteFromPrimitiveList/LIST`.

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::Schema;
use crate::schema::node::{At, Patch, Shape};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// Returns `live` with `patch` laid over it and lists merged by the keys of `schema`.
pub fn strategic(live: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
        return Err(PatchError::Malformed(
            "cannot patch anything but an object".to_owned(),
        ));
    };
    merge_objects(live.clone(), patch, Some(schema.root()), false).map(Value::Object)
}

fn malformed(message: String) -> PatchError {
    PatchError::Malformed(message)
}

/// Merges `patch` into `live`. `replaced` says that the surroundings are being replaced: what has
/// no counterpart is taken over without its `null`s.
fn merge_objects(
    live: Map<String, Value>,
    patch: &Map<String, Value>,
    at: Option<At<'_>>,
    retain: bool,
) -> Result<Map<String, Value>, PatchError> {
    let mut merged = live;
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => return Ok(without_directives(patch)),
            Some("delete") => return Ok(Map::new()),
            Some("merge") => {}
            _ => return Err(unknown_directive(directive, patch)),
        }
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut merged, patch, keys)?;
    } else if retain && patch.contains_key(DIRECTIVE) {
        return Err(malformed(
            "retainKeys lists must be used with the retainKeys strategy".to_owned(),
        ));
    }
    for (name, change) in patch {
        if name == DIRECTIVE || name == RETAIN_KEYS {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut merged, list, change)?;
            continue;
        }
        if let Some(list) = name.strip_prefix(ELEMENT_ORDER) {
            // With changes to the list itself, the order is applied after them, below.
            if !patch.contains_key(list) {
                let field = field_of(at, list);
                order_elements(&mut merged, list, change, field)?;
            }
            continue;
        }
        if change.is_null() {
            merged.remove(name);
            continue;
        }
        let child = at.and_then(|at| at.field(name));
        let strategy = field_of(at, name);
        let before = merged.remove(name);
        let after = merge_values(before, change, child, &strategy)?;
        merged.insert(name.clone(), after);
        if let Some(order) = patch.get(&format!("{ELEMENT_ORDER}{name}")) {
            order_elements(&mut merged, name, order, strategy)?;
        }
    }
    Ok(merged)
}

fn merge_values(
    before: Option<Value>,
    change: &Value,
    at: Option<At<'_>>,
    strategy: &Patch,
) -> Result<Value, PatchError> {
    match (before, change) {
        (Some(Value::Object(_)), Value::Object(change)) if strategy.replace => {
            Ok(Value::Object(without_directives(change)))
        }
        (Some(Value::Object(before)), Value::Object(change)) => {
            merge_objects(before, change, at, strategy.retain_keys).map(Value::Object)
        }
        (_, Value::Object(change)) => {
            merge_objects(Map::new(), change, at, strategy.retain_keys).map(Value::Object)
        }
        (Some(Value::Array(before)), Value::Array(change)) => {
            merge_lists(before, change, at, strategy)
        }
        (_, Value::Array(change)) => merge_lists(Vec::new(), change, at, strategy),
        (_, other) => Ok(other.clone()),
    }
}

fn merge_lists(
    before: Vec<Value>,
    change: &[Value],
    at: Option<At<'_>>,
    strategy: &Patch,
) -> Result<Value, PatchError> {
    if !strategy.merge {
        return Ok(Value::Array(
            change
                .iter()
                .filter(|item| !is_directive(item))
                .cloned()
                .collect(),
        ));
    }
    let items = at.and_then(At::items);
    match &strategy.key {
        Some(key) if !is_scalar_list(items) => merge_keyed(before, change, items, key),
        _ => Ok(merge_primitives(&before, change)),
    }
}

/// Lists of scalars merge as sets.
fn merge_primitives(before: &[Value], change: &[Value]) -> Value {
    let mut merged = before.to_vec();
    for item in change {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    let (listed, others) = merged.into_iter().partition(|item| change.contains(item));
    let rank = |item: &Value| change.iter().position(|c| c == item);
    let origin = |item: &Value| before.iter().position(|b| b == item);
    Value::Array(interleaved(listed, others, rank, origin))
}

/// Merges two lists: what a patch lists comes in its order, and what it doesn't list comes before a
/// listed element only if it did so originally.
fn interleaved(
    mut listed: Vec<Value>,
    others: Vec<Value>,
    rank: impl Fn(&Value) -> Option<usize>,
    origin: impl Fn(&Value) -> Option<usize>,
) -> Vec<Value> {
    listed.sort_by_key(&rank);
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    let mut merged = Vec::new();
    while let (Some(a), Some(b)) = (listed.peek(), others.peek()) {
        let first = matches!((origin(a), origin(b)), (Some(a), Some(b)) if b < a);
        merged.extend(if first { others.next() } else { listed.next() });
    }
    merged.extend(listed.chain(others));
    merged
}

fn merge_keyed(
    before: Vec<Value>,
    change: &[Value],
    items: Option<At<'_>>,
    key: &str,
) -> Result<Value, PatchError> {
    let replaces = change
        .iter()
        .any(|item| item[DIRECTIVE] == "replace" && item.get(key).is_none());
    let order: Vec<Value> = before.iter().map(|item| item[key].clone()).collect();
    let mut merged = if replaces { Vec::new() } else { before };
    for item in change {
        let Value::Object(fields) = item else {
            return Err(malformed(format!(
                "the list is keyed by {key:?}, but holds {item}"
            )));
        };
        let Some(id) = fields.get(key) else {
            if fields.contains_key(DIRECTIVE) {
                continue;
            }
            return Err(PatchError::Unprocessable(format!(
                "{item} does not contain declared merge key: {key}"
            )));
        };
        let place = merged
            .iter()
            .position(|existing| existing.get(key) == Some(id));
        match fields.get(DIRECTIVE).and_then(Value::as_str) {
            Some("delete") => merged.retain(|existing| existing.get(key) != Some(id)),
            Some("replace") => {
                let whole = Value::Object(without_directives(fields));
                match place {
                    Some(place) => merged[place] = whole,
                    None => merged.push(whole),
                }
            }
            None | Some("merge") => {
                let existing = place
                    .and_then(|place| merged[place].as_object().cloned())
                    .unwrap_or_default();
                let after = Value::Object(merge_objects(existing, fields, items, false)?);
                match place {
                    Some(place) => merged[place] = after,
                    None => merged.push(after),
                }
            }
            Some(_) => return Err(unknown_directive(&fields[DIRECTIVE], fields)),
        }
    }
    let rank = |item: &Value| {
        change
            .iter()
            .position(|c| c[DIRECTIVE] != "delete" && c.get(key).is_some() && c[key] == item[key])
    };
    let origin = |item: &Value| order.iter().position(|id| *id == item[key]);
    let (listed, others) = merged.into_iter().partition(|item| rank(item).is_some());
    Ok(Value::Array(interleaved(listed, others, rank, origin)))
}

/// Carries out `$retainKeys`: fields that the patch does not list are cleared first.
fn retain_keys(
    merged: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: &Value,
) -> Result<(), PatchError> {
    let Some(keys) = keys.as_array() else {
        return Err(malformed(
            "the value of $retainKeys must be a list".to_owned(),
        ));
    };
    for (name, change) in patch {
        let directive = name == RETAIN_KEYS || name.starts_with(DIRECTIVE);
        if !directive && !change.is_null() && !keys.iter().any(|key| key == name.as_str()) {
            return Err(malformed(format!(
                "retainKeys is not a superset of the keys in the patch: {name:?} is missing"
            )));
        }
    }
    merged.retain(|name, _| keys.iter().any(|key| key == name.as_str()));
    Ok(())
}

fn delete_primitives(
    merged: &mut Map<String, Value>,
    list: &str,
    doomed: &Value,
) -> Result<(), PatchError> {
    let Some(doomed) = doomed.as_array() else {
        return Err(malformed(format!(
            "the value of {DELETE_PRIMITIVES}{list} must be a list"
        )));
    };
    if let Some(Value::Array(items)) = merged.get_mut(list) {
        items.retain(|item| !doomed.contains(item));
    }
    Ok(())
}

/// Carries out `$setElementOrder`: listed elements take the order of the list; others stay where
/// they were relative to the listed elements around them.
fn order_elements(
    merged: &mut Map<String, Value>,
    list: &str,
    order: &Value,
    strategy: Patch,
) -> Result<(), PatchError> {
    let Some(order) = order.as_array() else {
        return Err(malformed(format!(
            "the value of {ELEMENT_ORDER}{list} must be a list"
        )));
    };
    let Some(Value::Array(items)) = merged.get_mut(list) else {
        return Ok(());
    };
    let key = strategy.key;
    let identity = |item: &Value| match &key {
        Some(key) if item.is_object() => item.get(key).cloned().unwrap_or(Value::Null),
        _ => item.clone(),
    };
    let rank: Vec<Value> = order.iter().map(identity).collect();
    let position = |item: &Value| rank.iter().position(|id| *id == identity(item));
    let placed = std::mem::take(items).into_iter().enumerate();
    let (mut listed, others): (Vec<_>, Vec<_>) =
        placed.partition(|(_, item)| position(item).is_some());
    listed.sort_by_key(|(_, item)| position(item));
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    while let (Some((listed_at, _)), Some((other_at, _))) = (listed.peek(), others.peek()) {
        let next = if other_at < listed_at {
            others.next()
        } else {
            listed.next()
        };
        items.extend(next.map(|(_, item)| item));
    }
    items.extend(listed.chain(others).map(|(_, item)| item));
    Ok(())
}

fn field_of(at: Option<At<'_>>, name: &str) -> Patch {
    at.and_then(|at| at.declared(name))
        .map(|field| field.patch.clone())
        .unwrap_or_default()
}

fn is_scalar_list(items: Option<At<'_>>) -> bool {
    items.is_some_and(|items| !matches!(items.node().shape, Shape::Object { .. } | Shape::Any))
}

fn is_directive(item: &Value) -> bool {
    item.as_object()
        .is_some_and(|fields| fields.len() == 1 && fields.contains_key(DIRECTIVE))
}

/// Returns the object as it would be written: directives and `null`s are instructions, not content.
fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
        .map(|(name, value)| {
            let value = match value {
                Value::Object(fields) => Value::Object(without_directives(fields)),
                other => other.clone(),
            };
            (name.clone(), value)
        })
        .collect()
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let shown = Value::Object(patch.clone());
    malformed(format!("Unknown patch type {directive} found in: {shown}"))
}
