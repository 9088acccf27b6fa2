//! Reads `wire.facts`: field numbers, JSON names and types of the built-in kinds.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What is in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    Text,
    /// Bytes, base64 in JSON.
    Bytes,
    /// An integer.
    Integer,
    /// A boolean.
    Boolean,
    /// A floating point number.
    Double,
    /// A quantity, a string in JSON.
    Quantity,
    /// A point in time, with microseconds or without.
    Time {
        /// With microseconds.
        micro: bool,
    },
    /// An integer or a string.
    IntOrString,
    /// JSON within.
    Raw,
    /// Another message, by its full name.
    Message(String),
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Its number on the wire.
    pub number: u64,
    /// Its name in JSON; `~` if its own fields stand in its place.
    pub name: &'static str,
    /// Whether it is a list.
    pub repeated: bool,
    /// Whether it is a map from strings.
    pub map: bool,
    /// What it (or an element of it) holds.
    pub shape: Shape,
}

/// The fields of every message by its full name.
pub static FACTS: LazyLock<HashMap<String, Vec<Field>>> = LazyLock::new(|| {
    let mut facts = HashMap::new();
    let mut package = "";
    for line in include_str!("wire.facts")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            package = name;
        } else if let Some((message, fields)) = line.split_once(':') {
            let fields = fields
                .split(';')
                .filter_map(|f| field(package, f))
                .collect();
            facts.insert(format!("{package}.{message}"), fields);
        }
    }
    facts
});

fn field(package: &str, text: &'static str) -> Option<Field> {
    let mut parts = text.split_whitespace();
    let number = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let shape = parts.next()?;
    let (repeated, map) = (shape.starts_with('*'), shape.starts_with('%'));
    let shape = match shape.trim_start_matches(['*', '%']) {
        "s" => Shape::Text,
        "b" => Shape::Bytes,
        "i" => Shape::Integer,
        "?" => Shape::Boolean,
        "d" => Shape::Double,
        "quantity" => Shape::Quantity,
        "time" => Shape::Time { micro: false },
        "micro" => Shape::Time { micro: true },
        "intstr" => Shape::IntOrString,
        "raw" => Shape::Raw,
        message if message.contains('.') => Shape::Message(message.to_owned()),
        message => Shape::Message(format!("{package}.{message}")),
    };
    Some(Field {
        number,
        name,
        repeated,
        map,
        shape,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn every_message_that_is_referred_to_is_there_or_too_new() {
        let unknown: Vec<&str> = FACTS
            .values()
            .flatten()
            .filter_map(|f| match &f.shape {
                Shape::Message(name) if !FACTS.contains_key(name) => Some(name.as_str()),
                _ => None,
            })
            .filter(|name| !name.contains("alpha"))
            .collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn kinds_that_go_clients_write_have_a_wire_form() {
        // Two live outside the API definitions and are written as JSON by everybody; policies are
        // written by kubectl, as JSON.
        let json_only = [
            "CustomResourceDefinition",
            "APIService",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ];
        for kind in kinds::all().iter().filter(|k| !json_only.contains(&k.kind)) {
            let name = super::super::message_name(&kind.api_version(), kind.kind);
            assert!(FACTS.contains_key(&name), "{name}");
        }
    }
}
