//! Laying a configuration over an object, and comparing two objects, field by field.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::element::Element;
use super::set::FieldSet;
use super::typed::{Form, as_list, as_map, both_hollow, elements, form};
use crate::schema::node::{At, ListKind};

/// Returns `live` with `config` laid over it.
pub fn merge(at: At<'_>, live: &Value, config: &Value) -> Value {
    merged(Some(at), Some(live), Some(config)).unwrap_or(Value::Null)
}

fn merged(at: Option<At<'_>>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    match form(at, right.or(left)) {
        Form::Map if !both_hollow(left, right) && fits(left, Value::is_object) => {
            let (empty, left, right) = (Map::new(), as_map(left), as_map(right));
            let (left, right) = (left.unwrap_or(&empty), right.unwrap_or(&empty));
            let mut out = Map::new();
            for name in left
                .keys()
                .chain(right.keys().filter(|name| !left.contains_key(*name)))
            {
                let child = at.and_then(|at| at.field(name));
                if let Some(value) = merged(child, left.get(name), right.get(name)) {
                    out.insert(name.clone(), value);
                }
            }
            Some(Value::Object(out))
        }
        Form::List(kind) if !both_hollow(left, right) && fits(left, Value::is_array) => {
            let items = at.and_then(At::items);
            let left = elements(items, kind, as_list(left).unwrap_or_default());
            let right = elements(items, kind, as_list(right).unwrap_or_default());
            Some(Value::Array(merge_elements(items, &left, &right)))
        }
        _ => right.or(left).cloned(),
    }
}

fn fits(value: Option<&Value>, is: impl Fn(&Value) -> bool) -> bool {
    value.is_none_or(|value| value.is_null() || is(value))
}

/// Merges the elements of two lists in the order of the result: the configuration's elements in its
/// order, those that only the object has between them where they stood.
fn merge_elements(
    items: Option<At<'_>>,
    left: &[(Element, &Value)],
    right: &[(Element, &Value)],
) -> Vec<Value> {
    let in_left = |element: &Element| left.iter().any(|(e, _)| e == element);
    let in_right = |element: &Element| right.iter().any(|(e, _)| e == element);
    // An element that the object has twice is merged with neither.
    let counterpart = |element: &Element| {
        let mut found = left.iter().filter(|(e, _)| e == element);
        found
            .next()
            .filter(|_| found.next().is_none())
            .map(|(_, value)| *value)
    };
    let mut shared = right
        .iter()
        .map(|(e, _)| e)
        .filter(|e| in_left(e))
        .peekable();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let Some((element, value)) = left.get(l) {
            if !in_right(element) {
                out.extend(merged(items, Some(value), None));
                l += 1;
                continue;
            }
            // It comes, or came, in the order of the configuration.
            let awaited = shared.peek() == Some(&element) && !done.contains(element);
            if !awaited {
                l += 1;
                continue;
            }
        }
        if let Some((element, value)) = right.get(r) {
            out.extend(merged(items, counterpart(element), Some(value)));
            done.insert(element);
            if shared.peek() == Some(&element) {
                shared.next();
            }
            r += 1;
        }
    }
    out
}

/// How one object differs from another. No path is in two of the sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// In the first alone.
    pub removed: FieldSet,
    /// In both, with other values.
    pub modified: FieldSet,
    /// In the second alone.
    pub added: FieldSet,
}

impl Comparison {
    /// Returns the comparison with each set put through `filter`.
    pub fn map(&self, filter: impl Fn(&FieldSet) -> FieldSet) -> Self {
        Self {
            removed: filter(&self.removed),
            modified: filter(&self.modified),
            added: filter(&self.added),
        }
    }
}

/// Returns what changed from `old` to `new`.
pub fn compare(at: At<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(
        Some(at),
        Some(old),
        Some(new),
        &mut Vec::new(),
        &mut comparison,
    );
    comparison
}

fn differ(
    at: Option<At<'_>>,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<Element>,
    comparison: &mut Comparison,
) {
    // Most of an object stays as it was: what is equal is not compared further.
    if left == right {
        return;
    }
    match form(at, right.or(left)) {
        Form::Map
            if !both_hollow(left, right)
                && fits(left, Value::is_object)
                && fits(right, Value::is_object) =>
        {
            let (empty, l, r) = (Map::new(), as_map(left), as_map(right));
            let (l, r) = (l.unwrap_or(&empty), r.unwrap_or(&empty));
            for name in l
                .keys()
                .chain(r.keys().filter(|name| !l.contains_key(*name)))
            {
                path.push(Element::field(name));
                differ(
                    at.and_then(|at| at.field(name)),
                    l.get(name),
                    r.get(name),
                    path,
                    comparison,
                );
                path.pop();
            }
        }
        Form::List(kind)
            if !both_hollow(left, right)
                && fits(left, Value::is_array)
                && fits(right, Value::is_array) =>
        {
            differ_elements(at.and_then(At::items), kind, left, right, path, comparison);
        }
        _ => {
            if let (Some(left), Some(right)) = (left, right)
                && left != right
            {
                comparison.modified.insert(path);
            }
        }
    }
    match (left, right) {
        (None, Some(_)) => comparison.added.insert(path),
        (Some(_), None) => comparison.removed.insert(path),
        _ => {}
    }
}

fn differ_elements(
    items: Option<At<'_>>,
    kind: &ListKind,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<Element>,
    comparison: &mut Comparison,
) {
    let left = elements(items, kind, as_list(left).unwrap_or_default());
    let right = elements(items, kind, as_list(right).unwrap_or_default());
    let all: BTreeSet<&Element> = left
        .iter()
        .chain(&right)
        .map(|(element, _)| element)
        .collect();
    for element in all {
        let of = |side: &[(Element, &Value)]| -> Vec<Value> {
            side.iter()
                .filter(|(e, _)| e == element)
                .map(|(_, value)| (*value).clone())
                .collect()
        };
        let (old, new) = (of(&left), of(&right));
        path.push(element.clone());
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => differ(items, old.first(), new.first(), path, comparison),
            // Duplicates are one thing, changed or not.
            ([_, _, ..], [_, _, ..]) => {
                if old != new {
                    comparison.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    differ(items, None, Some(new), path, comparison);
                }
                comparison.removed.insert(path);
            }
            (_, [_, _, ..]) => {
                if let Some(old) = old.first() {
                    differ(items, Some(old), None, path, comparison);
                }
                comparison.added.insert(path);
            }
        }
        path.pop();
    }
}
