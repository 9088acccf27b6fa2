//! Reads `builtin.facts`: list types, patch strategies and zero values of the built-in types.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::node::{Absent, ListKind, Patch};

/// What is known of one field beyond its type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fact {
    /// What is printed for "nothing".
    pub absent: Absent,
    /// Vanishes at its zero value.
    pub drops_zero: bool,
    /// List type.
    pub list: ListKind,
    /// Owned as a whole.
    pub atomic: bool,
    /// Patch strategy.
    pub patch: Patch,
}

/// What is known of one type.
#[derive(Debug, Default)]
pub struct TypeFacts {
    /// Owned as a whole wherever the type is used.
    pub atomic: bool,
    fields: HashMap<&'static str, Fact>,
}

impl TypeFacts {
    /// Returns what is known of field `name`.
    pub fn field(&self, name: &str) -> Fact {
        self.fields.get(name).cloned().unwrap_or_default()
    }
}

/// Facts by the full name of the type (`io.k8s.api.core.v1.Container`).
pub static FACTS: LazyLock<HashMap<String, TypeFacts>> =
    LazyLock::new(|| parse(include_str!("builtin.facts")));

fn parse(text: &'static str) -> HashMap<String, TypeFacts> {
    let mut package = "";
    let mut types = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            package = name;
        } else if let Some((name, fields)) = line.split_once(": ") {
            let mut facts = TypeFacts::default();
            for field in fields.split("; ") {
                let (field, words) = field.split_once(' ').unwrap_or((field, ""));
                if field == "*" {
                    facts.atomic = true;
                } else {
                    facts.fields.insert(field, fact(words));
                }
            }
            types.insert(format!("{package}.{name}"), facts);
        }
    }
    types
}

fn fact(words: &str) -> Fact {
    let mut fact = Fact::default();
    for word in words.split(' ') {
        let (word, argument) = word.split_once(':').unwrap_or((word, ""));
        match word {
            "zero" => fact.drops_zero = true,
            "always" => fact.absent = Absent::Zero,
            "null" => fact.absent = Absent::Null,
            "{}" => fact.absent = Absent::Struct,
            "set" => fact.list = ListKind::Set,
            "map" => fact.list = ListKind::Map(argument.split(',').map(str::to_owned).collect()),
            "atomic" => fact.atomic = true,
            "merge" => {
                fact.patch.merge = true;
                fact.patch.key = (!argument.is_empty()).then(|| argument.to_owned());
            }
            "retainKeys" => fact.patch.retain_keys = true,
            "replace" => fact.patch.replace = true,
            _ => {}
        }
    }
    fact
}
