//! Prints values: strings as they are, everything else as compact JSON with sorted keys, as Go
//! does.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::{Error, OUTPUT};

/// Text that is being put together, of bounded length.
#[derive(Default)]
pub(super) struct Output(String);

impl Output {
    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        if self.0.len() + text.len() > OUTPUT {
            return Err(Error::TooLong);
        }
        self.0.push_str(text);
        Ok(())
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Prints a result.
pub(super) fn value(value: &Value, output: &mut Output) -> Result<(), Error> {
    match value {
        Value::String(content) => output.push(content),
        other => json(other, output),
    }
}

fn json(value: &Value, output: &mut Output) -> Result<(), Error> {
    match value {
        Value::Number(number) => output.push(&digits(number)),
        Value::String(text) => quoted(text, output),
        Value::Array(list) => {
            output.push("[")?;
            for (at, item) in list.iter().enumerate() {
                output.push(if at > 0 { "," } else { "" })?;
                json(item, output)?;
            }
            output.push("]")
        }
        Value::Object(map) => {
            output.push("{")?;
            for (at, (key, value)) in sorted(map).enumerate() {
                output.push(if at > 0 { "," } else { "" })?;
                quoted(key, output)?;
                output.push(":")?;
                json(value, output)?;
            }
            output.push("}")
        }
        other => output.push(&other.to_string()),
    }
}

/// Writes a text inside JSON. Go escapes what could mean something in HTML, and the two line ends
/// of JavaScript.
fn quoted(text: &str, output: &mut Output) -> Result<(), Error> {
    if text.len() > OUTPUT {
        return Err(Error::TooLong);
    }
    let json = Value::from(text).to_string();
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            }
            other => escaped.push(other),
        }
    }
    output.push(&escaped)
}

/// Returns the members of an object by key, so that results do not depend on the order in which
/// they were written.
pub(super) fn sorted(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members.into_iter()
}

/// Returns a number with all its digits; `2.0` is 2, and `1e21` is `1e+21`, as in Go's JSON.
fn digits(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, power)) if !power.starts_with('-') => format!("{digits}e+{power}"),
        _ => text,
    }
}

/// Returns the beginning of a foreign text, for a message.
pub(super) fn quote(text: &str) -> String {
    const LONGEST: usize = 63;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
