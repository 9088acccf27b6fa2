//! Reads fields of an untyped object. Absent and `null` are the same; a wrong type is an error that
//! names the field.

use serde_json::{Map, Value};

use crate::lua::convert::quoted;

/// Reason why a field cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The field has another type than expected.
    #[error("{path}: expected {expected}, found {found}")]
    Type {
        /// Dotted path of the field.
        path: String,
        /// Type that is expected.
        expected: &'static str,
        /// Value of the field, shortened.
        found: String,
    },
    /// A field that the rule requires is absent.
    #[error("{path}: the field is absent")]
    Missing {
        /// Dotted path of the field.
        path: String,
    },
    /// A quantity cannot be parsed.
    #[error("{name}: {text:?} is not a quantity")]
    Quantity {
        /// Name of the resource.
        name: String,
        /// Text of the quantity.
        text: String,
    },
}

/// A field, or what is wrong with it.
pub(crate) type Read<T> = Result<T, Unread>;

/// Returns the error for a value of another type than expected.
pub(crate) fn wrong_type(path: &[&str], expected: &'static str, found: &Value) -> Unread {
    Unread::Type {
        path: path.join("."),
        expected,
        found: quoted(found),
    }
}

/// Returns the value at `path`, unless absent or null. A parent that is not an object counts as
/// absent.
pub(crate) fn field<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// Returns the integer at `path`.
pub(crate) fn integer(object: &Value, path: &[&str]) -> Read<Option<i64>> {
    typed(object, path, "an integer", Value::as_i64)
}

/// Returns the integer at `path`, 0 when absent, as Go's zero value.
pub(crate) fn count(object: &Value, path: &[&str]) -> Read<i64> {
    Ok(integer(object, path)?.unwrap_or(0))
}

/// Returns the text at `path`.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> Read<Option<&'a str>> {
    typed(object, path, "a text", Value::as_str)
}

/// Returns the entries of the list at `path`, none when absent.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> Read<&'a [Value]> {
    let entries = |value: &'a Value| value.as_array().map(Vec::as_slice);
    Ok(typed(object, path, "a list", entries)?.unwrap_or_default())
}

/// Returns the object at `path`.
pub(crate) fn map<'a>(object: &'a Value, path: &[&str]) -> Read<Option<&'a Map<String, Value>>> {
    typed(object, path, "an object", Value::as_object)
}

/// Checks that what is at `path`, if anything, is an object of texts, such as labels.
pub(crate) fn check_texts(object: &Value, path: &[&str]) -> Read<()> {
    let mut values = map(object, path)?.into_iter().flatten();
    match values.find(|(_, value)| !value.is_string()) {
        Some((_, other)) => Err(wrong_type(path, "an object of texts", other)),
        None => Ok(()),
    }
}

/// Sets `path` inside `object`, creating parents. A parent of another type is an error.
pub(crate) fn set(object: &mut Value, path: &[&str], value: Value) -> Read<()> {
    let mut at = object;
    for (depth, key) in path.iter().enumerate() {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        if !at.is_object() {
            return Err(wrong_type(&path[..depth], "an object", at));
        }
        at = &mut at[*key];
    }
    *at = value;
    Ok(())
}

/// Removes the last key of `path`, when there is such a field.
pub(crate) fn remove(object: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents
        .iter()
        .try_fold(object, |value, key| value.get_mut(key));
    if let Some(Value::Object(parent)) = parent {
        parent.remove(*last);
    }
}

/// Returns the value at `path` as `convert` reads it. A parent of another type than an object is an
/// error, as the value itself would be.
fn typed<'a, T>(
    object: &'a Value,
    path: &[&str],
    expected: &'static str,
    convert: impl Fn(&'a Value) -> Option<T>,
) -> Read<Option<T>> {
    let mut at = object;
    for (depth, key) in path.iter().enumerate() {
        match at {
            Value::Null => return Ok(None),
            Value::Object(map) => at = map.get(*key).unwrap_or(&Value::Null),
            other => return Err(wrong_type(&path[..depth], "an object", other)),
        }
    }
    if at.is_null() {
        return Ok(None);
    }
    let found = convert(at).ok_or_else(|| wrong_type(path, expected, at))?;
    Ok(Some(found))
}
