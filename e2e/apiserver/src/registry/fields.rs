//! The fields that selectors may name, kind by kind; of custom resources name and namespace.

use serde_json::Value;

use crate::registry::{Resource, Served};
use crate::wire::selectors::FieldRequirement;

/// A selectable field: its label, the path to its value, and what it is when nothing is there.
type Field = (&'static str, &'static str, &'static str);

const POD: &[Field] = &[
    ("spec.nodeName", "/spec/nodeName", ""),
    ("spec.restartPolicy", "/spec/restartPolicy", ""),
    ("spec.schedulerName", "/spec/schedulerName", ""),
    ("spec.serviceAccountName", "/spec/serviceAccountName", ""),
    ("spec.hostNetwork", "/spec/hostNetwork", "false"),
    ("status.phase", "/status/phase", ""),
    ("status.podIP", "/status/podIP", ""),
];
const EVENT: &[Field] = &[
    ("involvedObject.kind", "/involvedObject/kind", ""),
    ("involvedObject.namespace", "/involvedObject/namespace", ""),
    ("involvedObject.name", "/involvedObject/name", ""),
    ("involvedObject.uid", "/involvedObject/uid", ""),
    ("reason", "/reason", ""),
    ("reportingComponent", "/reportingComponent", ""),
    ("source", "/source/component", ""),
    ("type", "/type", ""),
];
const NODE: &[Field] = &[("spec.unschedulable", "/spec/unschedulable", "false")];
const NAMESPACE: &[Field] = &[("status.phase", "/status/phase", "")];
const SECRET: &[Field] = &[("type", "/type", "")];
const SERVICE: &[Field] = &[
    ("spec.clusterIP", "/spec/clusterIP", ""),
    ("spec.type", "/spec/type", ""),
];
const JOB: &[Field] = &[("status.successful", "/status/succeeded", "0")];
const CSR: &[Field] = &[("spec.signerName", "/spec/signerName", "")];

fn builtin(group: &str, plural: &str) -> &'static [Field] {
    match (group, plural) {
        ("", "pods") => POD,
        ("", "events") => EVENT,
        ("", "nodes") => NODE,
        ("", "namespaces") => NAMESPACE,
        ("", "secrets") => SECRET,
        ("", "services") => SERVICE,
        ("batch", "jobs") => JOB,
        ("certificates.k8s.io", "certificatesigningrequests") => CSR,
        _ => &[],
    }
}

/// Returns the values of an object's selectable fields, as the store keeps them.
pub fn of(resource: &Resource, object: &Value) -> Vec<(&'static str, String)> {
    let value = |pointer: &str, default: &str| {
        object
            .pointer(pointer)
            .map_or_else(|| default.to_owned(), text)
    };
    builtin(&resource.group, &resource.plural)
        .iter()
        .map(|&(name, pointer, default)| (name, value(pointer, default)))
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Translates field names to those of the storage version, or says which is not selectable.
pub fn known(
    served: &Served,
    requirements: Vec<FieldRequirement>,
) -> Result<Vec<FieldRequirement>, String> {
    let resource = &served.resource;
    let fields = builtin(&resource.group, &resource.plural);
    let translate = |mut requirement: FieldRequirement| {
        let field = requirement.field.as_str();
        // The API's conversions map the old name of the node to the new one.
        if resource.plural == "pods" && field == "spec.host" {
            "spec.nodeName".clone_into(&mut requirement.field);
            return Ok(requirement);
        }
        if fields.iter().any(|(name, ..)| *name == field)
            || field == "metadata.name"
            || (field == "metadata.namespace" && resource.namespaced)
        {
            return Ok(requirement);
        }
        Err(if fields.is_empty() && resource.custom.is_none() {
            format!(
                r#""{field}" is not a known field selector: only "metadata.name", "metadata.namespace""#
            )
        } else if resource.plural == "jobs" {
            format!("field label {field:?} not supported for Job")
        } else {
            format!("field label not supported: {field}")
        })
    };
    requirements.into_iter().map(translate).collect()
}
