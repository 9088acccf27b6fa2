//! Reads `wire.facts`: field numbers, JSON names and types of the built-in kinds.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What is in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Another message, by its place in [`FACTS`]; `None` if it is newer than the facts.
    Message(Option<usize>),
}

/// The name of a field whose own fields JSON shows in its place.
pub const INLINED: &str = "~";

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its number on the wire.
    pub number: u64,
    /// Its name in JSON; [`INLINED`] if its own fields are in its place.
    pub name: &'static str,
    /// Whether it is a list.
    pub repeated: bool,
    /// Whether it is a map from strings.
    pub map: bool,
    /// What it (or an element of it) holds.
    pub shape: Shape,
}

/// A message of the wire form.
#[derive(Debug)]
pub struct Message {
    /// Its fields, in the order of the facts.
    pub fields: Vec<Field>,
    /// The field whose own fields JSON shows among those of this message.
    pub inlined: Option<u64>,
    /// Whether JSON has a plain list in its place.
    pub is_list: bool,
    /// The fields that JSON shows, sorted by name.
    members: Vec<Member>,
}

/// A field as JSON shows it.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// The field.
    pub field: Field,
    /// Whether it is one of the inlined message.
    pub inlined: bool,
}

impl Message {
    /// Returns the field that JSON has under a name. `from` is where it is sought first and becomes
    /// where the next one is likely: names come sorted, too.
    pub fn member(&self, name: &[u8], from: &mut usize) -> Option<&Member> {
        let is = |m: &Member| m.field.name.as_bytes() == name;
        let (before, after) = self.members.split_at(*from);
        let at = after.iter().position(is).map(|at| before.len() + at);
        let at = at.or_else(|| before.iter().position(is))?;
        *from = at + 1;
        Some(&self.members[at])
    }
}

/// All messages.
#[derive(Debug, Default)]
pub struct Facts {
    messages: Vec<Message>,
    names: HashMap<String, usize>,
}

/// What `wire.facts` says.
pub static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts::read(include_str!("wire.facts")));

impl Facts {
    /// Returns the message of a full name such as `core.v1.Pod`.
    pub fn named(&self, name: &str) -> Option<&Message> {
        self.names.get(name).map(|&at| &self.messages[at])
    }

    /// Returns the message that a field holds.
    pub fn message(&self, at: Option<usize>) -> Option<&Message> {
        at.map(|at| &self.messages[at])
    }

    fn read(text: &'static str) -> Self {
        let mut lines = Vec::new();
        let mut names = HashMap::new();
        let mut package = "";
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                package = name;
            } else if let Some((message, fields)) = line.split_once(':') {
                names.insert(format!("{package}.{message}"), lines.len());
                lines.push((package, message, fields));
            }
        }
        let parsed = lines.iter().map(|&(package, message, fields)| Message {
            fields: fields
                .split(';')
                .filter_map(|f| field(&names, package, f))
                .collect(),
            inlined: None,
            is_list: message == "ExtraValue",
            members: Vec::new(),
        });
        let mut messages: Vec<Message> = parsed.collect();
        for at in 0..messages.len() {
            let (mut members, mut inlined) = (Vec::new(), None);
            for field in &messages[at].fields {
                let Shape::Message(Some(inner)) = field.shape else {
                    members.push(Member {
                        field: *field,
                        inlined: false,
                    });
                    continue;
                };
                if field.name == INLINED {
                    inlined = Some(field.number);
                    let inner = messages[inner].fields.iter();
                    members.extend(inner.map(|f| Member {
                        field: *f,
                        inlined: true,
                    }));
                } else {
                    members.push(Member {
                        field: *field,
                        inlined: false,
                    });
                }
            }
            members.sort_by_key(|m| m.field.name);
            messages[at].members = members;
            messages[at].inlined = inlined;
        }
        Self { messages, names }
    }
}

fn field(names: &HashMap<String, usize>, package: &str, text: &'static str) -> Option<Field> {
    let message = |name: &str| Shape::Message(names.get(name).copied());
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
        name if name.contains('.') => message(name),
        name => message(&format!("{package}.{name}")),
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
    use crate::catalog;

    #[test]
    fn kinds_that_go_clients_write_have_a_wire_form() {
        // Two live outside the API definitions and are written as JSON by everybody; policies and
        // flow schemas are written by kubectl, as JSON.
        let json_only = [
            "CustomResourceDefinition",
            "APIService",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "FlowSchema",
        ];
        for kind in catalog::all()
            .iter()
            .filter(|k| !json_only.contains(&k.kind))
        {
            let name = super::super::message_name(&kind.api_version(), kind.kind);
            assert!(FACTS.named(&name).is_some(), "{name}");
        }
    }
}
