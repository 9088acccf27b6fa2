//! Fields that hold quantities, in which two different strings may be the same value.
//!
//! Only Kubernetes' own kinds have such fields: the server parses their quantities and writes them
//! in canonical form. A custom resource is stored as it was sent.

use muster_shared::quantity::Quantity;
use serde_json::Value;

use super::Path;

/// Fields of a pod's spec.
const OF_PODS: &[&str] = &[
    "containers|initContainers|ephemeralContainers.[].resources.limits|requests.*",
    "containers|initContainers|ephemeralContainers.[].env.[].valueFrom.resourceFieldRef.divisor",
    "resources.limits|requests.*",
    "overhead.*",
    "volumes.[].emptyDir.sizeLimit",
    "volumes.[].ephemeral.volumeClaimTemplate.spec.resources.limits|requests.*",
    "volumes.[].downwardAPI.items.[].resourceFieldRef.divisor",
    "volumes.[].projected.sources.[].downwardAPI.items.[].resourceFieldRef.divisor",
];

/// Paths of the spec of a pod, by kind.
const PODS: &[(&str, &str, &[&str])] = &[
    ("", "Pod", &["spec"]),
    ("", "PodTemplate", &["template", "spec"]),
    ("", "ReplicationController", &["spec", "template", "spec"]),
    ("apps", "DaemonSet", &["spec", "template", "spec"]),
    ("apps", "Deployment", &["spec", "template", "spec"]),
    ("apps", "ReplicaSet", &["spec", "template", "spec"]),
    ("apps", "StatefulSet", &["spec", "template", "spec"]),
    ("batch", "Job", &["spec", "template", "spec"]),
    (
        "batch",
        "CronJob",
        &["spec", "jobTemplate", "spec", "template", "spec"],
    ),
];

/// Other fields, by kind.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "",
        "LimitRange",
        "spec.limits.[].max|min|default|defaultRequest|maxLimitRequestRatio.*",
    ),
    ("", "PersistentVolume", "spec.capacity.*"),
    (
        "",
        "PersistentVolumeClaim",
        "spec.resources.limits|requests.*",
    ),
    ("", "ResourceQuota", "spec.hard.*"),
    (
        "apps",
        "StatefulSet",
        "spec.volumeClaimTemplates.[].spec.resources.limits|requests.*",
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        "spec.metrics.[].resource|containerResource|pods|object|external.target.value|averageValue",
    ),
    ("node.k8s.io", "RuntimeClass", "overhead.podFixed.*"),
    (
        "storage.k8s.io",
        "CSIStorageCapacity",
        "capacity|maximumVolumeSize",
    ),
];

/// Returns whether the field at this path of an object of this kind holds a quantity.
pub(super) fn is_quantity(group: &str, kind: &str, path: &[&str]) -> bool {
    let in_pod = PODS
        .iter()
        .filter(|(of, named, _)| (*of, *named) == (group, kind))
        .filter_map(|(.., spec)| path.strip_prefix(*spec))
        .any(|path| OF_PODS.iter().any(|pattern| matches(pattern, path)));
    in_pod
        || OTHERS
            .iter()
            .filter(|(of, named, _)| (*of, *named) == (group, kind))
            .any(|(.., pattern)| matches(pattern, path))
}

/// Paths are names with dots between them; `*` stands for any name, and names with bars between
/// them are alternatives.
fn matches(pattern: &str, path: &[&str]) -> bool {
    let names = pattern.split('.');
    names.clone().count() == path.len()
        && names.zip(path).all(|(allowed, name)| match allowed {
            "*" => *name != Path::ELEMENT,
            _ => allowed.split('|').any(|allowed| allowed == *name),
        })
}

/// Returns whether two values are the same quantity.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    matches!((quantity(one), quantity(other)), (Some(one), Some(other)) if one == other)
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_where_kubernetes_has_them_and_nowhere_else() {
        let is = |text: &str| {
            let (kind, path) = text.split_once(": ").unwrap();
            let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
            let path: Vec<&str> = path.split('.').collect();
            is_quantity(group, kind, &path)
        };
        for text in [
            "apps/Deployment: spec.template.spec.containers.[].resources.requests.cpu",
            "Pod: spec.containers.[].resources.limits.memory",
            "batch/CronJob: spec.jobTemplate.spec.template.spec.overhead.cpu",
            "ResourceQuota: spec.hard.requests",
            "LimitRange: spec.limits.[].max.cpu",
        ] {
            assert!(is(text), "{text}");
        }
        for text in [
            "apps/Deployment: spec.template.spec.containers.[].env.[].value",
            "apps/Deployment: spec.template.metadata.labels.version",
            "example.io/Deployment: spec.template.spec.containers.[].resources.requests.cpu",
            "Pod: spec.containers.[].resources.claims.[].name",
            "ConfigMap: data.cpu",
            "LimitRange: spec.limits.[].type",
        ] {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn two_spellings_of_one_amount_are_the_same_quantity() {
        for (one, other, expected) in [
            (json!("1000m"), json!("1"), true),
            (json!(1), json!("1"), true),
            (json!("1Gi"), json!("1G"), false),
            (json!("one"), json!("one more"), false),
            (json!(true), json!(true), false),
        ] {
            assert_eq!(same(&one, &other), expected, "{one} {other}");
        }
    }
}
