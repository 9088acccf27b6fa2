//! Reads fields of an untyped object. Absent and `null` are the same; a wrong type is an error that
//! names the field.

use serde_json::{Map, Value};

use super::Error;

/// Longest piece of a foreign value that an error message quotes.
const QUOTE: usize = 40;

/// Returns the value at `path`, unless absent or null. A parent that is not an object counts as
/// absent.
pub(super) fn field<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// Returns the integer at `path`.
pub(super) fn integer(object: &Value, path: &[&str]) -> Result<Option<i64>, Error> {
    typed(object, path, "an integer", Value::as_i64)
}

/// Returns the integer at `path`, 0 when absent, as Go's zero value.
pub(super) fn count(object: &Value, path: &[&str]) -> Result<i64, Error> {
    Ok(integer(object, path)?.unwrap_or(0))
}

/// Returns the text at `path`.
pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a str>, Error> {
    typed(object, path, "a string", Value::as_str)
}

/// Returns the elements of the list at `path`, none when absent.
pub(super) fn list<'a>(object: &'a Value, path: &[&str]) -> Result<&'a [Value], Error> {
    Ok(typed(object, path, "a list", |value| {
        value.as_array().map(Vec::as_slice)
    })?
    .unwrap_or_default())
}

/// Returns the object at `path`.
pub(super) fn map<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<&'a Map<String, Value>>, Error> {
    typed(object, path, "an object", Value::as_object)
}

/// Returns the error for a value of another type than `expected`.
pub(super) fn wrong_type(path: &[&str], expected: &'static str, found: &Value) -> Error {
    let mut quoted = found.to_string();
    if let Some((end, _)) = quoted.char_indices().nth(QUOTE) {
        quoted.truncate(end);
        quoted.push('…');
    }
    Error::WrongType {
        path: path.join("."),
        expected,
        found: quoted,
    }
}

/// Sets `path` inside `object`, creating parents. A parent of another type is an error.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) -> Result<(), Error> {
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
pub(super) fn remove(object: &mut Value, path: &[&str]) {
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
) -> Result<Option<T>, Error> {
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
    convert(at)
        .map(Some)
        .ok_or_else(|| wrong_type(path, expected, at))
}
