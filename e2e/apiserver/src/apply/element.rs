//! One step of a path in a field set: a field, a list element by its keys, or a list element by its
//! value.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// A step in its wire form: `f:spec`, `k:{"name":"web"}`, `v:"a"`, `i:0`. Keys are sorted, so that
/// equal steps have equal text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element(String);

impl Element {
    /// Returns a field or map key.
    pub fn field(name: &str) -> Self {
        // Made for every field of every write: without the machinery of formatting.
        let mut text = String::with_capacity(name.len() + 2);
        text.push_str("f:");
        text.push_str(name);
        Self(text)
    }

    /// Returns a list element with these key fields.
    pub fn keys(keys: &BTreeMap<&str, &Value>) -> Self {
        let fields: Vec<String> = keys
            .iter()
            .map(|(k, v)| format!("{}:{v}", Value::from(*k)))
            .collect();
        Self(format!("k:{{{}}}", fields.join(",")))
    }

    /// Returns a list element with this value.
    pub fn value(value: &Value) -> Self {
        Self(format!("v:{value}"))
    }

    /// Reads the wire form; `None` where it isn't one.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self(text.to_owned())),
            "k" => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::keys(
                    &fields.iter().map(|(k, v)| (k.as_str(), v)).collect(),
                ))
            }
            "v" => serde_json::from_str(rest)
                .ok()
                .map(|value: Value| Self::value(&value)),
            "i" => rest.parse::<u64>().ok().map(|_| Self(text.to_owned())),
            _ => None,
        }
    }

    /// Returns the wire form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name, if this is a field.
    pub fn as_field(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }
}

/// As conflict messages write it: `.spec`, `[name="web"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, rest) = self.0.split_once(':').unwrap_or(("f", &self.0));
        match kind {
            "k" => {
                let fields: BTreeMap<String, Value> =
                    serde_json::from_str(rest).unwrap_or_default();
                let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            "v" => write!(f, "[={rest}]"),
            "i" => write!(f, "[{rest}]"),
            _ => write!(f, ".{rest}"),
        }
    }
}
