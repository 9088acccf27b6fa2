//! Builds the arena of nodes from OpenAPI: definitions of built-in types, and the inline schemas of
//! CRDs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::facts::FACTS;
use super::node::{Absent, Field, Id, ListKind, Node, Shape};
use super::rules::Rules;

/// Where object metadata is defined; CRDs borrow it.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Types that stand for "any JSON", whatever their OpenAPI says.
const OPAQUE: &[&str] = &[
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// An arena under construction.
pub struct Builder<'a> {
    definitions: &'a Map<String, Value>,
    made: HashMap<String, Id>,
    nodes: Vec<Node>,
}

impl<'a> Builder<'a> {
    /// Starts with no node; `definitions` are what `$ref`s and object metadata are looked up in.
    pub fn new(definitions: &'a Map<String, Value>) -> Self {
        Self {
            definitions,
            made: HashMap::new(),
            nodes: Vec::new(),
        }
    }

    /// Returns the finished arena, and where the named types are in it.
    pub fn finish(self) -> (Arc<[Node]>, HashMap<String, Id>) {
        (self.nodes.into(), self.made)
    }

    /// Returns the node of definition `name`, built once.
    pub fn definition(&mut self, name: &str) -> Id {
        if let Some(id) = self.made.get(name) {
            return *id;
        }
        // Reserved before it is read: types may contain themselves.
        let id = self.reserve();
        self.made.insert(name.to_owned(), id);
        let definition = self.definitions.get(name).cloned().unwrap_or(Value::Null);
        let mut node = self.read(&definition);
        node.name = name.rsplit('.').next().map(Arc::from);
        if OPAQUE.contains(&name) {
            node.shape = Shape::Any;
            node.preserve_unknown = true;
        }
        match name.rsplit('.').next() {
            Some("Quantity") => node.shape = Shape::Quantity,
            Some("IntOrString") => node.shape = Shape::IntOrString,
            Some("MicroTime") => node.shape = Shape::MicroTime,
            _ => {}
        }
        self.overlay(name, &mut node);
        self.nodes[id] = node;
        id
    }

    /// Returns the node of an inline schema.
    pub fn node(&mut self, schema: &Value) -> Id {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|r| r.strip_prefix("#/$defs/"))
        {
            return self.definition(name);
        }
        let id = self.reserve();
        self.nodes[id] = self.read(schema);
        id
    }

    /// Returns the node of a CRD version's `openAPIV3Schema`, with type and metadata added as for
    /// every object.
    pub fn custom_root(&mut self, schema: &Value) -> Id {
        let id = self.node(schema);
        self.embed(id);
        id
    }

    fn reserve(&mut self) -> Id {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    fn read(&mut self, schema: &Value) -> Node {
        let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
        let mut node = Node {
            nullable: flag("nullable"),
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            rules: Rules::read(schema),
            ..Node::default()
        };
        node.shape = self.shape(schema);
        node
    }

    fn shape(&mut self, schema: &Value) -> Shape {
        if schema["x-kubernetes-int-or-string"] == true {
            return Shape::IntOrString;
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("string"), Some("byte")) => Shape::Bytes,
            (Some("string"), Some("date-time")) => Shape::Time,
            (Some("string"), _) => Shape::String,
            (Some("integer"), Some("int32")) => Shape::Integer(32),
            (Some("integer"), _) => Shape::Integer(64),
            (Some("number"), _) => Shape::Number,
            (Some("boolean"), _) => Shape::Boolean,
            (Some("array"), _) => self.list(schema),
            (Some("object"), _) => self.object(schema),
            _ if schema.get("properties").is_some() => self.object(schema),
            _ if schema.get("items").is_some() => self.list(schema),
            _ => Shape::Any,
        }
    }

    fn list(&mut self, schema: &Value) -> Shape {
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let kind = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => ListKind::Map(
                keys.into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            ),
            Some("set") => ListKind::Set,
            _ => ListKind::Atomic,
        };
        let items = self.node(&schema["items"]);
        Shape::List { items, kind }
    }

    fn object(&mut self, schema: &Value) -> Shape {
        let mut fields = BTreeMap::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let default = property.get("default").cloned();
            let field = Field {
                node: self.node(property),
                default,
                ..Field::default()
            };
            fields.insert(name.clone(), field);
        }
        let values = match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => Some(self.node(values)),
            Some(Value::Bool(true)) => Some(self.reserve()),
            _ => None,
        };
        Shape::Object { fields, values }
    }

    /// Makes the node a whole object: type and metadata are known whatever its own schema says.
    fn embed(&mut self, id: Id) {
        let text = self.node(&serde_json::json!({"type": "string"}));
        let metadata = self.definition(OBJECT_META);
        let node = &mut self.nodes[id];
        if !matches!(node.shape, Shape::Object { .. }) {
            node.shape = Shape::Object {
                fields: BTreeMap::new(),
                values: None,
            };
        }
        if let Shape::Object { fields, .. } = &mut node.shape {
            for (name, node) in [("apiVersion", text), ("kind", text), ("metadata", metadata)] {
                fields.insert(
                    name.to_owned(),
                    Field {
                        node,
                        ..Field::default()
                    },
                );
            }
        }
    }

    fn overlay(&mut self, name: &str, node: &mut Node) {
        let facts = FACTS.get(name);
        let metadata = self.made.get(OBJECT_META).copied();
        node.atomic |= facts.is_some_and(|facts| facts.atomic);
        let Shape::Object { fields, .. } = &mut node.shape else {
            return;
        };
        for (field_name, field) in fields {
            let fact = facts
                .map(|facts| facts.field(field_name))
                .unwrap_or_default();
            if field_name == "metadata" && Some(field.node) == metadata {
                field.absent = Absent::Struct;
            } else {
                field.absent = fact.absent;
            }
            field.drops_zero = fact.drops_zero;
            field.patch = fact.patch;
            if fact.atomic {
                self.nodes[field.node].atomic = true;
            }
            if let Shape::List { kind, .. } = &mut self.nodes[field.node].shape {
                *kind = fact.list;
            }
            // The facts leave out the two fields that every kind inlines.
            if field.absent == Absent::Omitted && matches!(&**field_name, "apiVersion" | "kind") {
                field.drops_zero = true;
            }
        }
    }
}
