//! Schemas of the Kubernetes types that the kinds of this crate embed.
//!
//! They are written out, because the `schemars` feature of `k8s-openapi` would double its compile
//! time for the dozen types that are needed here. The rules are those of the Kubernetes API; the
//! descriptions say what Muster does with the fields.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::definition;

/// Pattern of label values. `provider`, `region` and zones must match it, since selectors compare
/// them with label values.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Pattern of qualified names: a name with an optional DNS prefix, as of label and taint keys.
pub const LABEL_NAME: &str =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

/// Returns the schema of any object; unknown fields are kept.
pub fn raw_extension(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of any JSON value.
pub fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of a time in RFC 3339.
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

/// Returns the schema of a quantity, written as a number or a string.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    quantity_value()
        .try_into()
        .expect("a JSON object is a schema by invariant")
}

/// Returns the schema of quantities by resource name.
pub fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity_value() })
}

/// Requirements that compare the value of a key with a list. `item` names what the key is of,
/// `operators` lists the operators.
fn requirements(item: &str, operators: &str) -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": format!("Requirement on one {item}."),
            "required": ["key", "operator"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": format!("Name of the {item} that is compared."),
                },
                "operator": {
                    "type": "string",
                    "description": format!("Relation of the {item} to the values: {operators}."),
                },
                "values": {
                    "type": "array",
                    "description": "Values to compare with. `In` and `NotIn` need at least one; \
                                    `Exists` and `DoesNotExist` take none.",
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string" },
                },
            },
        },
    })
}

const LABEL_OPERATORS: &str = "`In`, `NotIn`, `Exists` or `DoesNotExist`";
const FIELD_OPERATORS: &str = "`In` or `NotIn`";
const NODE_OPERATORS: &str = "`In`, `NotIn`, `Exists`, `DoesNotExist`, or `Gt` and `Lt` with one \
                              integer as value";

/// Returns the requirements with a description of the list.
fn described(mut requirements: Value, description: &str) -> Value {
    requirements["description"] = description.into();
    requirements
}

/// Returns the schema of a list of label values.
pub fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

/// Returns the schema of a label selector.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": described(
                requirements("label", LABEL_OPERATORS),
                "Requirements on labels; all must be met.",
            ),
            "matchLabels": {
                "type": "object",
                "description": "Labels that must be present with exactly these values.",
                "additionalProperties": { "type": "string" },
            },
        },
    })
}

/// Returns the schema of requirements on the fields of a cluster (provider, region, zone).
pub fn field_requirements(_: &mut SchemaGenerator) -> Schema {
    requirements("field", FIELD_OPERATORS)
        .try_into()
        .expect("a JSON object is a schema by invariant")
}

/// Returns the schema of a node selector.
pub fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["nodeSelectorTerms"],
        "properties": {
            "nodeSelectorTerms": {
                "type": "array",
                "description": "Terms of which at least one must match the node.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "description": "Requirements on a node; all must be met. An empty term matches \
                                    no node.",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {
                        "matchExpressions": described(
                            requirements("node label", NODE_OPERATORS),
                            "Requirements on the labels of the node.",
                        ),
                        "matchFields": described(
                            requirements("node field", NODE_OPERATORS),
                            "Requirements on the fields of the node, such as `metadata.name`.",
                        ),
                    },
                },
            },
        },
    })
}

/// Returns the schema of tolerations, in the order in which they are tried.
pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "Toleration of the taints that match all of its fields.",
            "properties": {
                "key": {
                    "type": "string",
                    "description": "Key of the tolerated taints. Empty, together with operator \
                                    `Exists`, matches every key.",
                },
                "operator": {
                    "type": "string",
                    "description": "Relation of the taint to the toleration: `Exists` matches \
                                    every value, `Equal` (the default) only `value`.",
                },
                "value": {
                    "type": "string",
                    "description": "Value of the tolerated taints, for operator `Equal`.",
                },
                "effect": {
                    "type": "string",
                    "description": "Effect of the tolerated taints, such as `NoSchedule`. Empty \
                                    matches every effect.",
                },
                "tolerationSeconds": {
                    "type": "integer",
                    "format": "int64",
                    "description": "Seconds for which a `NoExecute` taint is tolerated after it \
                                    was added. If absent, without limit; 0 and less, not at all.",
                },
            },
        },
    })
}

/// Returns the schema of the taints of a cluster. At most one taint has a given key and effect.
pub fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
        "items": {
            "type": "object",
            "description": "Taint of the cluster.",
            "required": ["effect", "key"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "Key of the taint, a qualified name such as \
                                    `example.com/maintenance`.",
                    "minLength": 1,
                    "maxLength": 316,
                    "pattern": LABEL_NAME,
                },
                "value": {
                    "type": "string",
                    "description": "Value of the taint, which tolerations can match.",
                    "maxLength": 63,
                    "pattern": LABEL_VALUE,
                },
                "effect": {
                    "type": "string",
                    "description": "Effect of the taint on resources that do not tolerate it.",
                    "enum": ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"],
                },
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Time at which the taint was added, from which tolerations \
                                    count. If absent on a taint that evicts, the control plane \
                                    sets it.",
                },
            },
        },
    })
}

/// Returns the schema of conditions, one of each type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the object's state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "Type of the condition, in CamelCase; unique in the list.",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "Whether the condition holds: `True`, `False` or `Unknown`.",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "The `metadata.generation` that the condition was set for. \
                                    Set on policies only.",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Time at which `status` last changed.",
                },
                "reason": {
                    "type": "string",
                    "description": "Machine-readable reason for the status, in CamelCase.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "Human-readable explanation of the status.",
                    "maxLength": 32768,
                },
            },
        },
    })
}
