//! Schemas of the Kubernetes types that ours embed.
//!
//! They are written out, because the `schemars` feature of `k8s-openapi` would double its compile time for the
//! dozen types that are needed here. Wording is kept short; the rules are those of the Kubernetes API.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::definition;

/// A label value: what `provider`, `region` and zones have to be, since schedulers select by them.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// A qualified label name, with an optional DNS prefix.
pub const LABEL_NAME: &str =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

/// Any object; unknown fields are kept.
pub fn raw_extension(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A point in time, RFC 3339.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

fn quantity_value() -> Value {
    json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": definition::QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// A quantity, as number or text.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    quantity_value()
        .try_into()
        .expect("a JSON object is a schema by invariant")
}

/// Amounts by resource name.
pub fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity_value() })
}

fn requirements(item: &str) -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "description": format!("The {item} that is compared.") },
                "operator": {
                    "type": "string",
                    "description": "Relation of the key to the values: In, NotIn, Exists or DoesNotExist; for nodes also Gt and Lt.",
                },
                "values": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string" },
                },
            },
        },
    })
}

/// A list of label values.
pub fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

/// A label selector; all of its terms must hold.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": requirements("label key"),
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
        },
    })
}

/// Requirements on the fields of a cluster (provider, region, zone).
pub fn field_requirements(_: &mut SchemaGenerator) -> Schema {
    requirements("field")
        .try_into()
        .expect("a JSON object is a schema by invariant")
}

/// A node selector; one of its terms must hold.
pub fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["nodeSelectorTerms"],
        "properties": {
            "nodeSelectorTerms": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {
                        "matchExpressions": requirements("label key"),
                        "matchFields": requirements("field"),
                    },
                },
            },
        },
    })
}

/// Tolerations, in the order in which they are tried.
pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "key": {
                    "type": "string",
                    "description": "Taint key; empty with operator Exists means every key.",
                },
                "operator": { "type": "string", "description": "Exists or Equal (the default)." },
                "value": { "type": "string" },
                "effect": {
                    "type": "string",
                    "description": "Taint effect; empty means every effect.",
                },
                "tolerationSeconds": {
                    "type": "integer",
                    "format": "int64",
                    "description": "How long a NoExecute taint is tolerated, in seconds; absent means for ever, zero and less mean not at all.",
                },
            },
        },
    })
}

/// Taints of a cluster. A pair of key and effect occurs once.
pub fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "key": { "type": "string", "minLength": 1, "maxLength": 316, "pattern": LABEL_NAME },
                "value": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
                "effect": { "type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"] },
                "timeAdded": { "type": "string", "format": "date-time" },
            },
        },
    })
}

/// Conditions, one of each type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": { "type": "string", "maxLength": 32768 },
            },
        },
    })
}
