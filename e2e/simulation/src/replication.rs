//! Objects of a replication engine that follow workloads.

use serde_json::{Value, json};

/// Name of the definition of their kind. Their controller is played in members that have it.
pub const DEFINITION: &str = "replications.data.example.com";

/// Their API version.
const VERSION: &str = "data.example.com/v1";
/// Their kind.
const KIND: &str = "Replication";

/// Returns what a policy says of the data of a workload: an object of its name follows it.
pub fn rules(workload: &Value) -> Value {
    let name = &workload["metadata"]["name"];
    let reference =
        |version: Value, kind: Value| json!({ "apiVersion": version, "kind": kind, "name": name });
    let object = reference(json!(VERSION), json!(KIND));
    let workload = reference(workload["apiVersion"].clone(), workload["kind"].clone());
    json!({
        "roles": [{
            "object": object, "follows": workload, "path": "spec.state",
            "primary": "primary", "secondary": "secondary",
            "promoted": { "path": "status.state", "value": "Primary" },
            "demoted": { "path": "status.state", "value": "Secondary" },
        }],
        "gates": [{
            "workload": workload, "object": object, "ready": { "condition": { "type": "Ready" } },
        }],
    })
}

/// Returns the object that follows a workload, and a policy that brings it to all members.
pub fn objects(workload: &Value) -> [Value; 2] {
    let metadata = &workload["metadata"];
    let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
    let policy = format!("data-of-{}", name.as_str().unwrap_or_default());
    [
        json!({
            "apiVersion": VERSION, "kind": KIND,
            "metadata": { "namespace": namespace, "name": name },
            "spec": { "state": "secondary" },
        }),
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "namespace": namespace, "name": policy },
            "spec": {
                "resourceSelectors": [{
                    "apiVersion": VERSION, "kind": KIND, "namespace": namespace, "name": name,
                }],
                "placement": { "clusterTolerations": [{ "operator": "Exists" }] },
            },
        }),
    ]
}

/// Returns the definition of a kind whose objects have a state, and say in their status which.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": DEFINITION },
        "spec": {
            "group": "data.example.com", "scope": "Namespaced",
            "names": {
                "kind": KIND, "listKind": "ReplicationList",
                "plural": "replications", "singular": "replication",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    })
}
