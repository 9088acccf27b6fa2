//! Computes the patch that makes a Work the rendered one.

use muster_shared::finalizers;
use muster_shared::names::{annotation, finalizer, label};
use serde_json::{Map, Value, json};

use super::render::Rendered;
use crate::fleet::claim::missing;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::works::{CachedWork, fingerprint_of_manifests};

/// Annotations that name the override policies of a Work; they go with the last policy.
const OVERRIDES: [&str; 2] = [
    annotation::APPLIED_OVERRIDES,
    annotation::APPLIED_CLUSTER_OVERRIDES,
];

/// Returns the whole Work, for the case that it does not exist yet.
pub fn create(rendered: &Rendered) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "namespace": rendered.namespace,
            "name": rendered.name,
            "labels": rendered.labels,
            "annotations": rendered.annotations,
            "finalizers": [finalizer::WORK],
        },
        "spec": rendered.spec(None),
    })
}

/// Returns the merge patch for an existing Work, `None` when it is as rendered already. Labels,
/// annotations and finalizers of others stay.
pub fn patch(work: &CachedWork, rendered: &Rendered) -> Option<Value> {
    let held = &work.metadata;
    let mut metadata = Map::new();
    for (key, held, wanted) in [
        ("labels", &held.labels, &rendered.labels),
        ("annotations", &held.annotations, &rendered.annotations),
    ] {
        let value = |key: &str| held.as_ref()?.get(key).map(String::as_str);
        let mut missing = missing(value, wanted);
        if key == "annotations" {
            let ended = |key: &&str| value(key).is_some() && !wanted.contains_key(*key);
            let ended = OVERRIDES.iter().copied().filter(ended);
            missing.extend(ended.map(|key| (key.to_owned(), Value::Null)));
        }
        if !missing.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(missing));
        }
    }
    if let Some(all) = finalizers::with(held, finalizer::WORK) {
        metadata.insert("finalizers".to_owned(), json!(all));
        // The list is replaced as a whole, so nobody else may have changed it meanwhile.
        metadata.insert("resourceVersion".to_owned(), json!(held.resource_version));
    }
    let mut patch = Map::new();
    let spec = spec(work, &rendered.spec(held.label(label::WORK_ID)));
    if !spec.is_empty() {
        patch.insert("spec".to_owned(), Value::Object(spec));
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns what differs in the fields of the spec that the control plane decides.
fn spec(held: &CachedWork, wanted: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    let manifests = &wanted["workload"]["manifests"];
    if held.manifests != fingerprint_of_manifests(manifests) {
        patch.insert("workload".to_owned(), json!({ "manifests": manifests }));
    }
    for (key, held) in [
        ("suspendDispatching", held.suspend_dispatching),
        (
            "preserveResourcesOnDeletion",
            held.preserve_resources_on_deletion,
        ),
    ] {
        if wanted[key].as_bool() != held {
            patch.insert(key.to_owned(), wanted[key].clone());
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::super::render::Pairs;
    use super::*;

    fn rendered(replicas: i64, suspended: bool) -> Rendered {
        Rendered {
            namespace: "karmada-es-m1".to_owned(),
            name: "web".to_owned(),
            labels: Pairs::from([("ours".to_owned(), "1".to_owned())]),
            annotations: Pairs::new(),
            manifest: json!({
                "kind": "Deployment", "metadata": { "name": "web", "labels": {}, "annotations": {} },
                "spec": {
                    "replicas": replicas, "template": { "metadata": { "creationTimestamp": null } },
                },
            }),
            suspend_dispatching: suspended,
            preserve_resources_on_deletion: false,
            preserved: Pairs::new(),
        }
    }

    /// Returns the Work that was written for what was rendered, with fields that the server and
    /// others added.
    fn held(rendered: &Rendered, change: impl FnOnce(&mut Value)) -> CachedWork {
        let mut work = create(rendered);
        work["metadata"]["resourceVersion"] = json!("7");
        work["metadata"]["labels"]["theirs"] = json!("2");
        change(&mut work);
        serde_json::from_value(work).unwrap()
    }

    #[test]
    fn only_what_differs_is_written() {
        let now = rendered(2, false);
        let changed = |change: fn(&mut Value)| patch(&held(&now, change), &now);
        assert_eq!(changed(|_| {}), None);
        let without_null = changed(|it| {
            let manifest = &mut it["spec"]["workload"]["manifests"][0];
            manifest["spec"]["template"]["metadata"] = json!({});
        });
        assert_eq!(
            without_null, None,
            "as a server stores lists of a merge patch"
        );
        let label = changed(|it| it["metadata"]["labels"]["ours"] = json!("x"));
        let written = json!({ "metadata": { "labels": { "ours": "1" } } });
        assert_eq!(label, Some(written));
        let ended = changed(|it| it["metadata"]["annotations"][OVERRIDES[0]] = json!("[]"));
        let written = json!({ "metadata": { "annotations": { OVERRIDES[0]: null } } });
        assert_eq!(ended, Some(written), "an override that ended");
        let namesake = changed(|it| it["metadata"]["labels"][OVERRIDES[0]] = json!("x"));
        assert_eq!(namesake, None, "a label with the name of an override");
        let gone = changed(|it| it["metadata"]["finalizers"] = json!(["theirs"]));
        let written = json!({ "metadata": { "finalizers": ["theirs", finalizer::WORK], "resourceVersion": "7" } });
        assert_eq!(gone, Some(written), "the finalizer gone");
        let manifests = &now.spec(None)["workload"]["manifests"];
        let other = held(&rendered(1, false), |_| {});
        let written = json!({ "spec": { "workload": { "manifests": manifests } } });
        assert_eq!(patch(&other, &now), Some(written), "another object");
        let suspended = held(&rendered(2, true), |_| {});
        let written = json!({ "spec": { "suspendDispatching": false } });
        assert_eq!(patch(&suspended, &now), Some(written));
    }
}
