//! Sets of fields: what a manager owns, and what a change touched.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::element::Element;
use crate::schema::node::At;

/// A set of paths. A path's parents are members only if they were added themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, Self>,
}

impl FieldSet {
    /// Adds a path; the empty path stands for the whole object and is never a member.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Returns whether the path of this one step is a member.
    pub fn has(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// Returns what is below a step.
    pub fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|set| !set.is_empty())
    }

    /// Paths in either.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.members.extend(other.members.iter().cloned());
        for (element, set) in &other.children {
            let merged = union
                .children
                .get(element)
                .map_or_else(|| set.clone(), |mine| mine.union(set));
            union.children.insert(element.clone(), merged);
        }
        union
    }

    /// Paths in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self
                .children
                .iter()
                .filter_map(|(element, set)| {
                    let both = set.intersection(other.children.get(element)?);
                    (!both.is_empty()).then(|| (element.clone(), both))
                })
                .collect(),
        }
    }

    /// Paths in this set alone. A member of `other` takes away itself, not what is below it.
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Paths in this set, without the members of `other` and all that is below them.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self
                .children
                .iter()
                .filter(|(element, _)| !(recursive && other.has(element)))
                .filter_map(|(element, set)| {
                    let left = match other.children.get(element) {
                        Some(other) => set.without(other, recursive),
                        None => set.clone(),
                    };
                    (!left.is_empty()).then(|| (element.clone(), left))
                })
                .collect(),
        }
    }

    /// Returns the set with every declared field that leads to a member made a member too. Owning
    /// something below a struct's field means caring for the field; a map's keys and a list's
    /// elements are not implied.
    pub fn with_named_fields(&self, at: Option<At<'_>>) -> Self {
        let mut named = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (element, set) in &self.children {
            let (declared, below) = match (element.as_field(), at) {
                (Some(name), Some(at)) => (at.declared(name).is_some(), at.field(name)),
                (None, Some(at)) => (false, at.items()),
                (_, None) => (false, None),
            };
            if declared {
                named.members.insert(element.clone());
            }
            named
                .children
                .insert(element.clone(), set.with_named_fields(below));
        }
        named
    }

    /// Returns all paths, parents before what is below them.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths: Vec<Vec<Element>> = self.members.iter().map(|m| vec![m.clone()]).collect();
        for (element, set) in &self.children {
            for mut path in set.paths() {
                path.insert(0, element.clone());
                paths.push(path);
            }
        }
        paths
    }

    /// Reads `fieldsV1`; `None` where it is malformed.
    pub fn from_json(fields: &Value) -> Option<Self> {
        Self::from_map(fields.as_object()?)
    }

    fn from_map(fields: &Map<String, Value>) -> Option<Self> {
        let mut set = Self::default();
        for (name, below) in fields {
            if name == "." {
                continue;
            }
            let element = Element::parse(name)?;
            let below = below.as_object()?;
            if below.is_empty() || below.contains_key(".") {
                set.members.insert(element.clone());
            }
            if below.keys().any(|name| name != ".") {
                set.children.insert(element, Self::from_map(below)?);
            }
        }
        Some(set)
    }

    /// Writes `fieldsV1`.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.as_str().to_owned(), json!({}));
        }
        for (element, set) in self.children.iter().filter(|(_, set)| !set.is_empty()) {
            let mut below = set.to_json();
            if self.members.contains(element) {
                below["."] = json!({});
            }
            fields.insert(element.as_str().to_owned(), below);
        }
        Value::Object(fields)
    }
}
