//! Removes the fields that an API server fills in and that must not be sent to another cluster.

use serde_json::Value;

use crate::read::{field, remove};

/// Metadata that only the server where the object lives may set.
const SERVER_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
    "ownerReferences",
    "finalizers",
];

/// Annotations that one kind's controllers write. Karmada compares the kind only, so every API
/// group is meant.
const ANNOTATIONS: [(&str, &str); 4] = [
    ("Deployment", "deployment.kubernetes.io/revision"),
    ("Deployment", "deployment.kubernetes.io/revision-history"),
    // The server of each cluster counts for itself and keeps its own count, so that a copy with
    // another one never becomes like its Work. Karmada sends it.
    ("DaemonSet", "deprecated.daemonset.template.generation"),
    (
        "PersistentVolumeClaim",
        "volume.kubernetes.io/selected-node",
    ),
];

/// Labels that the Job controller puts on a Job's selector and pod template.
const UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Labels that the Job controller puts on a Job's pod template alone.
const JOB_NAMES: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// Removes metadata that the server sets, and the status.
pub fn prune_server_fields(object: &mut Value) {
    for key in SERVER_METADATA {
        remove(object, &["metadata", key]);
    }
    remove(object, &["status"]);
}

/// Removes metadata that the server sets, the status, and the fields that the controllers of the
/// kind add.
pub fn prune(object: &mut Value) {
    prune_server_fields(object);
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for (_, name) in ANNOTATIONS.iter().filter(|(of, _)| *of == kind) {
        remove(object, &["metadata", "annotations", name]);
    }
    match kind.as_str() {
        "Job" if field(object, &["spec", "manualSelector"]) != Some(&Value::Bool(true)) => {
            for label in UIDS {
                remove(object, &["spec", "selector", "matchLabels", label]);
            }
            for label in UIDS.into_iter().chain(JOB_NAMES) {
                remove(object, &["spec", "template", "metadata", "labels", label]);
            }
        }
        "Service" if field(object, &["spec", "clusterIP"]).is_some_and(|ip| ip != "None") => {
            remove(object, &["spec", "clusterIP"]);
            remove(object, &["spec", "clusterIPs"]);
        }
        // Each server computes them from the class, and refuses another one's numbers.
        "Pod" => {
            remove(object, &["spec", "priority"]);
            remove(object, &["spec", "preemptionPolicy"]);
        }
        "ServiceAccount" => remove_generated_tokens(object),
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            remove(object, &["data"]);
            let uid = "kubernetes.io/service-account.uid";
            remove(object, &["metadata", "annotations", uid]);
        }
        _ => {}
    }
}

/// Removes the token secrets, which are generated in every cluster. Karmada misses the second of
/// two neighbours; we do not.
fn remove_generated_tokens(account: &mut Value) {
    let prefix = format!(
        "{}-token-",
        account["metadata"]["name"].as_str().unwrap_or_default()
    );
    if let Some(secrets) = account.get_mut("secrets").and_then(Value::as_array_mut) {
        secrets.retain(|secret| {
            !secret["name"]
                .as_str()
                .is_some_and(|name| name.starts_with(&prefix))
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_computes_from_the_class_of_a_pod_is_not_sent_to_another() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"priorityClassName": "high", "priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
        });
        prune(&mut pod);
        assert_eq!(pod["spec"], json!({"priorityClassName": "high"}));
    }

    #[test]
    fn what_each_cluster_counts_for_itself_is_not_sent_to_another() {
        for (kind, annotation) in [
            ("DaemonSet", "deprecated.daemonset.template.generation"),
            ("Deployment", "deployment.kubernetes.io/revision"),
        ] {
            let mut object = json!({
                "kind": kind,
                "metadata": {"annotations": {annotation: "2", "team": "a"}},
            });
            prune(&mut object);
            assert_eq!(
                object["metadata"]["annotations"],
                json!({"team": "a"}),
                "{kind}"
            );
        }
    }
}
