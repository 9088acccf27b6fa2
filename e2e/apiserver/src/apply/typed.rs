//! Values seen through their schema, as server-side apply sees them: what is one leaf, what is
//! keyed how.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::Element;
use super::set::FieldSet;
use crate::schema::node::{At, ListKind, Shape};

/// How a place is owned.
pub enum Form<'a> {
    /// As a whole: scalars, atomic maps and lists.
    Leaf,
    /// Field by field.
    Map,
    /// Element by element.
    List(&'a ListKind),
}

/// Returns how the place `at` is owned; where the schema is silent, objects are owned by field and
/// lists as a whole.
pub fn form<'a>(at: Option<At<'a>>, value: Option<&Value>) -> Form<'a> {
    let Some(node) = at.map(At::node) else {
        return deduced(value);
    };
    match &node.shape {
        Shape::Any if !node.atomic => deduced(value),
        Shape::Object { .. } if !node.atomic => Form::Map,
        Shape::List { kind, .. } if *kind != ListKind::Atomic => Form::List(kind),
        _ => Form::Leaf,
    }
}

fn deduced<'a>(value: Option<&Value>) -> Form<'a> {
    if value.is_some_and(Value::is_object) {
        Form::Map
    } else {
        Form::Leaf
    }
}

/// Returns the step to a list element, or why it has none.
pub fn element(at: Option<At<'_>>, kind: &ListKind, item: &Value) -> Result<Element, String> {
    match kind {
        ListKind::Map(keys) => {
            let Some(fields) = item.as_object() else {
                let what = if item.is_null() {
                    "a null element"
                } else {
                    "non-map elements"
                };
                return Err(format!("associative list with keys may not have {what}"));
            };
            let mut found = BTreeMap::new();
            for key in keys {
                let default = || at.and_then(|at| at.key_default(key));
                if let Some(value) = fields.get(key).or_else(default) {
                    found.insert(key.as_str(), value);
                }
            }
            if found.is_empty() {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
            }
            Ok(Element::keys(&found))
        }
        _ => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            scalar => Ok(Element::value(scalar)),
        },
    }
}

/// Returns the elements of a list by their steps, in order. Elements without a step are left out.
pub fn elements<'v>(
    at: Option<At<'_>>,
    kind: &ListKind,
    list: &'v [Value],
) -> Vec<(Element, &'v Value)> {
    list.iter()
        .filter_map(|item| Some((element(at, kind, item).ok()?, item)))
        .collect()
}

pub fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

/// Returns whether a map or list has nothing in it, or isn't there.
fn is_hollow(value: Option<&Value>) -> bool {
    as_map(value).is_none_or(Map::is_empty) && as_list(value).is_none_or(<[Value]>::is_empty)
}

/// Returns whether both values are empty: the place is then treated as a leaf, so that `null` and
/// `{}` stay apart.
pub fn both_hollow(left: Option<&Value>, right: Option<&Value>) -> bool {
    is_hollow(left) && is_hollow(right)
}

/// Returns all that a value says, as a set: what an apply claims.
pub fn to_set(at: At<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(Some(at), value, &mut Vec::new(), &mut set);
    set
}

fn collect(at: Option<At<'_>>, value: &Value, path: &mut Vec<Element>, set: &mut FieldSet) {
    match (form(at, Some(value)), value) {
        (Form::Map, Value::Object(fields)) => {
            for (name, child) in fields {
                path.push(Element::field(name));
                collect(at.and_then(|at| at.field(name)), child, path, set);
                let declared = at.is_some_and(|at| at.declared(name).is_some());
                if !declared || child.is_null() || child.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Form::List(kind), Value::Array(list)) => {
            let items = at.and_then(At::items);
            let elements = elements(items, kind, list);
            for (element, item) in &elements {
                // Duplicates are owned together, as one thing.
                let single = elements
                    .iter()
                    .filter(|(other, _)| other == element)
                    .count()
                    == 1;
                path.push(element.clone());
                if single {
                    collect(items, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Form::Leaf, _) => set.insert(path),
        _ => {}
    }
}

/// Returns `value` without the members of `doomed`. What is emptied stays as an empty map or list;
/// the real server makes it `null`, which would then not fit many a custom schema.
pub fn remove(at: Option<At<'_>>, value: &Value, doomed: &FieldSet) -> Value {
    match (form(at, Some(value)), value) {
        (Form::Map, Value::Object(fields)) => {
            let kept = fields.iter().filter_map(|(name, child)| {
                let element = Element::field(name);
                if doomed.has(&element) {
                    return None;
                }
                let child = match doomed.below(&element) {
                    Some(below) => remove(at.and_then(|at| at.field(name)), child, below),
                    None => child.clone(),
                };
                Some((name.clone(), child))
            });
            Value::Object(kept.collect())
        }
        (Form::List(kind), Value::Array(list)) => {
            let items = at.and_then(At::items);
            let kept = list.iter().filter_map(|item| {
                let Ok(element) = element(items, kind, item) else {
                    return Some(item.clone());
                };
                if doomed.has(&element) {
                    return None;
                }
                Some(match doomed.below(&element) {
                    Some(below) => remove(items, item, below),
                    None => item.clone(),
                })
            });
            Value::Array(kept.collect())
        }
        _ => value.clone(),
    }
}
