//! The tree that a schema is: nodes in an arena, because types refer to each other and to
//! themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::rules::Rules;

/// Index of a node in its arena.
pub type Id = usize;

/// What a value at some place may be.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Type of the value.
    pub shape: Shape,
    /// Name of the type (`Container`), where it has one: decoding errors quote it.
    pub name: Option<Arc<str>>,
    /// Whether `null` is a value here.
    pub nullable: bool,
    /// Owned as a whole by one manager, never field by field (maps and structs).
    pub atomic: bool,
    /// Fields that are not known are kept.
    pub preserve_unknown: bool,
    /// What a CRD demands beyond the type.
    pub rules: Option<Box<Rules>>,
}

/// Types of values.
#[derive(Debug, Clone, Default)]
pub enum Shape {
    /// Anything at all.
    #[default]
    Any,
    /// A struct, a map, or (in CRDs) a struct without fields.
    Object {
        /// Known fields.
        fields: BTreeMap<String, Field>,
        /// What every other field must be, for maps.
        values: Option<Id>,
    },
    /// A list.
    List {
        /// Elements.
        items: Id,
        /// How elements are told apart.
        kind: ListKind,
    },
    /// Text.
    String,
    /// Text that carries bytes in base64.
    Bytes,
    /// RFC 3339 with whole seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Whole number of this many bits.
    Integer(u8),
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A whole number or text.
    IntOrString,
    /// A Kubernetes quantity, `500m`.
    Quantity,
}

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListKind {
    /// They are not: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// A field of an object.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Its type.
    pub node: Id,
    /// What replaces it when it is absent from a request.
    pub default: Option<Value>,
    /// What the real server prints when there is nothing to print (built-in kinds).
    pub absent: Absent,
    /// Scalars that vanish at their zero value (built-in kinds).
    pub drops_zero: bool,
    /// How strategic merge patches treat it.
    pub patch: Patch,
}

/// What the Go type behind a field prints for "nothing".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Absent {
    /// Nothing at all.
    #[default]
    Omitted,
    /// `null`.
    Null,
    /// The zero value of a scalar.
    Zero,
    /// A struct, with what its own fields print.
    Struct,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists merge, by `key` when it is set, else as sets of scalars.
    pub merge: bool,
    /// Merge key of a list of objects.
    pub key: Option<String>,
    /// `$retainKeys` is expected: a union, cleared of fields that the patch does not name.
    pub retain_keys: bool,
    /// Objects are replaced as a whole.
    pub replace: bool,
}

/// A node together with its arena, so that one can walk on from it.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    arena: &'a [Node],
    id: Id,
}

impl<'a> At<'a> {
    /// Returns the node at `id`.
    pub fn new(arena: &'a [Node], id: Id) -> Self {
        Self { arena, id }
    }

    /// Returns the node itself.
    pub fn node(self) -> &'a Node {
        &self.arena[self.id]
    }

    /// Returns where field, map value or unknown field `name` leads, if the schema knows anything
    /// about it.
    pub fn field(self, name: &str) -> Option<Self> {
        match &self.node().shape {
            Shape::Object { fields, values } => fields
                .get(name)
                .map(|f| f.node)
                .or(*values)
                .map(|id| self.node_at(id)),
            _ => None,
        }
    }

    /// Returns the declared field `name`, with its facts.
    pub fn declared(self, name: &str) -> Option<&'a Field> {
        match &self.node().shape {
            Shape::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// Returns all declared fields.
    pub fn fields(self) -> impl Iterator<Item = (&'a String, &'a Field, Self)> {
        let fields = match &self.node().shape {
            Shape::Object { fields, .. } => Some(fields),
            _ => None,
        };
        fields
            .into_iter()
            .flatten()
            .map(move |(name, field)| (name, field, self.node_at(field.node)))
    }

    /// Returns the type of a list's elements.
    pub fn items(self) -> Option<Self> {
        match &self.node().shape {
            Shape::List { items, .. } => Some(self.node_at(*items)),
            _ => None,
        }
    }

    /// Returns how elements are told apart, for a list.
    pub fn list(self) -> Option<&'a ListKind> {
        match &self.node().shape {
            Shape::List { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// Returns the default of key field `name` of a list's elements, for elements that leave it
    /// out.
    pub fn key_default(self, name: &str) -> Option<&'a Value> {
        self.declared(name).and_then(|field| field.default.as_ref())
    }

    /// Returns all nodes.
    pub fn arena(self) -> &'a [Node] {
        self.arena
    }

    /// Returns another node of the same arena.
    #[must_use]
    pub fn node_at(self, id: Id) -> Self {
        Self {
            arena: self.arena,
            id,
        }
    }
}
