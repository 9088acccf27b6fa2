//! Reads fields of an untyped object. Absent and `null` are the same; a wrong type is an error that
//! names the field.

use serde_json::{Map, Value};

use crate::lua::convert::quoted;

/// A field, or the sentence that says what is wrong with it.
pub(crate) type Read<T> = Result<T, String>;

/// The value at `path`, unless absent or null. A parent that is not an object counts as absent.
pub(crate) fn field<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// The text at `path`.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> Read<Option<&'a str>> {
    typed(object, path, "a text", Value::as_str)
}

/// The entries of the list at `path`, none when absent.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> Read<&'a [Value]> {
    let entries = |value: &'a Value| value.as_array().map(Vec::as_slice);
    Ok(typed(object, path, "a list", entries)?.unwrap_or_default())
}

/// The object at `path`.
pub(crate) fn map<'a>(object: &'a Value, path: &[&str]) -> Read<Option<&'a Map<String, Value>>> {
    typed(object, path, "an object", Value::as_object)
}

fn typed<'a, T>(
    object: &'a Value,
    path: &[&str],
    expected: &str,
    convert: impl Fn(&'a Value) -> Option<T>,
) -> Read<Option<T>> {
    let wrong = |depth: usize, expected: &str, found: &Value| {
        let (path, found) = (path[..depth].join("."), quoted(found));
        format!("{path}: expected {expected}, found {found}")
    };
    let mut at = object;
    for (depth, key) in path.iter().enumerate() {
        match at {
            Value::Null => return Ok(None),
            Value::Object(map) => at = map.get(*key).unwrap_or(&Value::Null),
            other => return Err(wrong(depth, "an object", other)),
        }
    }
    if at.is_null() {
        return Ok(None);
    }
    let found = convert(at).ok_or_else(|| wrong(path.len(), expected, at))?;
    Ok(Some(found))
}
