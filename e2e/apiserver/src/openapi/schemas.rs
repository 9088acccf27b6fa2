//! The schemas of a document: built-in definitions, and those of CRDs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::catalog::Kind;
use crate::schema::builtin::{DEFINITIONS, definition_name};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const API_VERSION: &str =
    "APIVersion defines the versioned schema of this representation of an object.";
const KIND: &str = "Kind is the REST resource that this object represents, in CamelCase.";

/// Schemas under construction.
#[derive(Default)]
pub struct Schemas {
    made: Map<String, Value>,
    wanted: BTreeSet<String>,
}

impl Schemas {
    /// Adds a built-in kind, and all it refers to.
    pub fn builtin(&mut self, kind: &Kind) {
        let name = definition_name(kind);
        self.wanted.insert(name.clone());
        self.complete();
        if let Some(schema) = self.made.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        }
    }

    /// Adds one version of a CRD.
    pub fn custom(&mut self, crd: &Value, version: &Value) {
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
        let version_name = text(&version["name"]);
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        self.embed(&mut schema);
        self.describe_embedded(&mut schema);
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version_name, "kind": kind}]);
        self.made
            .insert(component_name(&group, &version_name, &kind), schema);
        self.complete();
    }

    /// Returns all schemas by name.
    pub fn finish(self) -> Map<String, Value> {
        self.made
    }

    /// Adds what is referred to until nothing is missing.
    fn complete(&mut self) {
        while let Some(name) = self.wanted.pop_first() {
            if self.made.contains_key(&name) {
                continue;
            }
            let mut schema = DEFINITIONS.get(&name).cloned().unwrap_or_else(|| json!({}));
            self.dress(&mut schema);
            self.made.insert(name, schema);
        }
    }

    /// Turns references into those of OpenAPI 3.
    fn dress(&mut self, schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                fields.values_mut().for_each(|value| self.dress(value));
                let reference = fields.get("$ref").and_then(Value::as_str);
                if let Some(name) = reference
                    .and_then(|r| r.strip_prefix("#/$defs/"))
                    .map(str::to_owned)
                {
                    let target = json!(format!("#/components/schemas/{name}"));
                    if fields.len() > 1 {
                        // Siblings of a reference are ignored in 3.0, hence the detour.
                        fields.remove("$ref");
                        fields.insert("allOf".to_owned(), json!([{"$ref": target}]));
                    } else {
                        fields.insert("$ref".to_owned(), target);
                    }
                    self.wanted.insert(name);
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.dress(value)),
            _ => {}
        }
    }

    /// Adds a type and metadata to a schema: every object has them, whatever its schema says.
    fn embed(&mut self, schema: &mut Value) {
        let mut metadata = json!({
            "description": "Standard object's metadata.",
            "$ref": format!("#/$defs/{OBJECT_META}"),
        });
        self.dress(&mut metadata);
        if !schema.is_object() {
            *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        for (name, property) in [
            (
                "apiVersion",
                json!({"type": "string", "description": API_VERSION}),
            ),
            ("kind", json!({"type": "string", "description": KIND})),
            ("metadata", metadata),
        ] {
            schema["properties"][name] = property;
        }
    }

    fn describe_embedded(&mut self, schema: &mut Value) {
        let Value::Object(children) = schema else {
            return;
        };
        for (name, child) in children.iter_mut() {
            match (name.as_str(), child) {
                ("properties", Value::Object(properties)) => {
                    for property in properties.values_mut() {
                        self.describe_embedded(property);
                    }
                }
                ("items" | "additionalProperties", child) => self.describe_embedded(child),
                _ => {}
            }
        }
        if schema["x-kubernetes-embedded-resource"] == true {
            self.embed(schema);
        }
    }
}

/// Returns the name of a schema, such as `io.karmada.cluster.v1alpha1.Cluster`: the group
/// backwards, then version and kind.
fn component_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}
