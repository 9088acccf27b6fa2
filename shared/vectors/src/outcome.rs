//! How an answer differs from the recorded one.

use std::fmt;

use serde_json::Value;

/// An answer other than the recorded one.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Answer of the code under test.
    pub answer: Value,
    /// Difference in words.
    pub text: String,
}

impl Difference {
    /// Makes the difference of an answer from the recorded one.
    pub fn new(expected: &Value, answer: Value) -> Self {
        Self {
            text: format!("expected {expected}, got {answer}"),
            answer,
        }
    }

    /// Returns the same difference, with the place in a sequence where it shows.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self {
            text: format!("at {place}: {}", self.text),
            ..self
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A case that had no answer: the words count as one.
impl From<String> for Difference {
    fn from(text: String) -> Self {
        Self {
            answer: Value::String(text.clone()),
            text,
        }
    }
}

impl From<&str> for Difference {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Compares, taking `null`, absent, empty list and empty map for the same, as the vectors do.
///
/// # Errors
/// Both values, when they differ.
pub fn same(expected: &Value, answer: &Value) -> Result<(), Difference> {
    let (expected, answer) = (normal(expected), normal(answer));
    if expected == answer {
        return Ok(());
    }
    Err(Difference::new(
        &expected.unwrap_or_default(),
        answer.unwrap_or_default(),
    ))
}

/// Returns a value without whatever counts as absent; `None` when nothing is left.
pub fn normal(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => Some(
            list.iter()
                .map(|item| normal(item).unwrap_or_default())
                .collect(),
        ),
        Value::Object(map) => {
            let map: serde_json::Map<_, _> = map
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), normal(value)?)))
                .collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        other => Some(other.clone()),
    }
}
