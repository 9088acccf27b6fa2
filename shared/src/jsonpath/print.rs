//! Printing values: texts as they are, everything else as compact JSON with sorted keys.

use serde_json::{Map, Number, Value};

/// Prints a result.
pub(super) fn value(value: &Value, text: &mut String) {
    match value {
        Value::String(content) => text.push_str(content),
        other => json(other, text),
    }
}

fn json(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => text.push_str(&digits(number)),
        Value::Array(list) => {
            text.push('[');
            separated(list.iter(), text, json);
            text.push(']');
        }
        Value::Object(map) => {
            text.push('{');
            separated(sorted(map), text, |(key, value), text| {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                json(value, text);
            });
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}

fn separated<T>(items: impl Iterator<Item = T>, text: &mut String, print: impl Fn(T, &mut String)) {
    for (at, item) in items.enumerate() {
        if at > 0 {
            text.push(',');
        }
        print(item, text);
    }
}

/// The members of an object by key, so that results do not depend on the order in which they were written.
pub(super) fn sorted(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members.into_iter()
}

/// A number with all its digits; `2.0` is 2, as in Go.
fn digits(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}
