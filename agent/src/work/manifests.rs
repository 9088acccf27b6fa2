//! Reads a Work: its objects, their order, and the objects of earlier versions.

use std::collections::HashSet;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, ResourceIdentifier, Work};
use muster_shared::finalizers;
use muster_shared::k8s::{Condition, GroupVersionKind, ResourceExt};
use muster_shared::names::annotation;
use serde_json::{Value, json};

use super::desired::{self, ObjectKey};
use super::ownership::{self, Origin};

pub use muster_shared::names::finalizer::WORK as FINALIZER;

/// Returns the desired object for a manifest of a Work, marked with the id of the fleet if that is
/// known.
pub fn desired_for(work: &Work, manifest: &Value, fleet: Option<&str>) -> Value {
    let mut wanted = desired::desired(manifest, origin(work), fleet);
    // Karmada copies the annotation into each manifest; a Work made by hand may have it once.
    if let Some(resolution) = work.annotations().get(annotation::CONFLICT_RESOLUTION)
        && ownership::annotation(&wanted, annotation::CONFLICT_RESOLUTION).is_none()
    {
        wanted["metadata"]["annotations"][annotation::CONFLICT_RESOLUTION] = json!(resolution);
    }
    wanted
}

/// Returns the key of an object in a Work's status.
pub fn key_of(identifier: &ResourceIdentifier) -> ObjectKey {
    ObjectKey {
        kind: GroupVersionKind::gvk(
            identifier.group.as_deref().unwrap_or_default(),
            &identifier.version,
            &identifier.kind,
        ),
        namespace: identifier.namespace.clone().unwrap_or_default(),
        name: identifier.name.clone(),
    }
}

/// Returns the identifier of an object. `resource` is empty as in Karmada, whose controllers
/// compare identifiers.
pub fn identifier(key: &ObjectKey, ordinal: usize) -> ResourceIdentifier {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ResourceIdentifier {
        ordinal: i64::try_from(ordinal).unwrap_or(i64::MAX),
        group: given(&key.kind.group),
        version: key.kind.version.clone(),
        kind: key.kind.kind.clone(),
        resource: String::new(),
        namespace: given(&key.namespace),
        name: key.name.clone(),
    }
}

/// Returns whether the Work has the agent's finalizer.
pub fn has_finalizer(work: &Work) -> bool {
    finalizers::has(&work.metadata, FINALIZER)
}

/// Returns the manifests with their ordinals, in the order in which they are applied.
pub fn in_order(work: &Work) -> Vec<(usize, &Value)> {
    let manifests = work
        .spec
        .workload
        .manifests
        .iter()
        .map(|manifest| &manifest.0);
    let mut manifests: Vec<_> = manifests.enumerate().collect();
    manifests.sort_by_key(|(ordinal, manifest)| {
        ObjectKey::of(manifest, *ordinal).map_or(u8::MAX, |key| desired::rank(&key.kind))
    });
    manifests
}

/// Returns the manifests with their ordinals and keys, without unreadable ones, which the applier
/// reports.
pub fn keys(work: &Work) -> impl Iterator<Item = (usize, ObjectKey, &Value)> {
    let manifests = work.spec.workload.manifests.iter().enumerate();
    manifests
        .filter_map(|(n, manifest)| Some((n, ObjectKey::of(&manifest.0, n).ok()?, &manifest.0)))
}

/// Returns an entry for each object that the Work's spec names and its status does not. Nothing is
/// known of those but that they may exist from now on.
pub fn unnamed(work: &Work) -> Vec<ManifestStatus> {
    let named = named(work).iter();
    let mut named: HashSet<_> = named.map(|it| key_of(&it.identifier).object()).collect();
    keys(work)
        .filter(|(_, key, _)| named.insert(key.object()))
        .map(|(ordinal, key, _)| ManifestStatus {
            identifier: identifier(&key, ordinal),
            status: None,
            health: Some(ResourceHealth::Unknown),
        })
        .collect()
}

/// Returns the objects that the Work's spec or its status names, without those of manifests that
/// cannot be read.
pub fn known(work: &Work) -> Vec<ObjectKey> {
    let mut known: Vec<_> = keys(work).map(|(_, key, _)| key).collect();
    let wanted: HashSet<_> = known.iter().map(ObjectKey::object).collect();
    let named = named(work).iter().map(|it| key_of(&it.identifier));
    known.extend(named.filter(|key| !wanted.contains(&key.object())));
    known
}

/// Returns the objects that the Work's status names and its spec does not.
pub fn dropped(work: &Work) -> Vec<ObjectKey> {
    let manifests = work.spec.workload.manifests.iter().enumerate();
    let wanted: Result<HashSet<_>, _> = manifests
        .map(|(ordinal, manifest)| Ok(ObjectKey::of(&manifest.0, ordinal)?.object()))
        .collect::<Result<_, desired::Error>>();
    // A manifest that cannot be read may be any of the known objects, so none of them counts as
    // dropped.
    let Ok(wanted) = wanted else {
        return Vec::new();
    };
    named(work)
        .iter()
        .map(|status| key_of(&status.identifier))
        .filter(|key| !wanted.contains(&key.object()))
        .collect()
}

/// Returns the objects that the Work's status names.
pub fn named(work: &Work) -> &[ManifestStatus] {
    let status = work.status.as_ref();
    status.map_or(&[], |status| &status.manifest_statuses)
}

/// Returns the conditions of the Work.
pub fn conditions_of(work: &Work) -> &[Condition] {
    let status = work.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

/// Returns the Work as its objects name it.
pub fn origin(work: &Work) -> Origin<'_> {
    Origin {
        namespace: work.metadata.namespace.as_deref().unwrap_or_default(),
        name: work.metadata.name.as_deref().unwrap_or_default(),
    }
}

/// Returns the namespace and name of the Work.
pub fn path(work: &Work) -> String {
    let Origin { namespace, name } = origin(work);
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(manifests: &Value, reported: &Value) -> Work {
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": "karmada-es-m1", "uid": "1"},
            "spec": {"workload": {"manifests": manifests}},
            "status": {"manifestStatuses": reported},
        }))
        .unwrap()
    }

    fn manifest(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}})
    }

    fn reported(group: &str, version: &str, kind: &str, name: &str) -> Value {
        json!({"identifier": {"ordinal": 0, "group": group, "version": version, "kind": kind,
            "namespace": "default", "name": name}})
    }

    #[test]
    fn namespaces_and_definitions_are_applied_before_what_lives_in_them() {
        let work = work(
            &json!([
                manifest("apps/v1", "Deployment", "web"),
                manifest(
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                    "things"
                ),
                manifest("v1", "Namespace", "prod"),
                manifest("v1", "Secret", "key"),
                manifest("example.io/v1", "Namespace", "other"),
            ]),
            &json!([]),
        );
        let order: Vec<usize> = in_order(&work)
            .into_iter()
            .map(|(ordinal, _)| ordinal)
            .collect();
        assert_eq!(order, [2, 1, 0, 3, 4]);
    }

    #[test]
    fn an_object_that_was_reported_and_is_no_longer_wanted_is_dropped() {
        let before = json!([
            reported("", "v1", "ConfigMap", "a"),
            reported("apps", "v1beta1", "Deployment", "web")
        ]);
        let names = |manifests: &Value| -> Vec<String> {
            dropped(&work(manifests, &before))
                .into_iter()
                .map(|key| key.name)
                .collect()
        };
        let (map, deployment) = (
            manifest("v1", "ConfigMap", "a"),
            manifest("apps/v1", "Deployment", "web"),
        );
        assert_eq!(names(&json!([map, deployment])), Vec::<String>::new());
        assert_eq!(names(&json!([deployment])), ["a"]);
        assert_eq!(names(&json!([])), ["a", "web"]);
        assert_eq!(
            names(&json!([{"kind": "ConfigMap"}])),
            Vec::<String>::new(),
            "unreadable manifest"
        );
    }

    #[test]
    fn the_works_word_on_conflicts_counts_unless_the_manifest_has_its_own() {
        let mut work = work(&json!([]), &json!([]));
        work.annotations_mut()
            .insert(annotation::CONFLICT_RESOLUTION.into(), "overwrite".into());
        let resolution = |manifest: &Value| {
            ownership::annotation(
                &desired_for(&work, manifest, None),
                annotation::CONFLICT_RESOLUTION,
            )
            .map(str::to_owned)
        };
        let plain = manifest("v1", "ConfigMap", "a");
        assert_eq!(resolution(&plain).as_deref(), Some("overwrite"));
        let mut own = plain;
        own["metadata"]["annotations"] = json!({annotation::CONFLICT_RESOLUTION: "abort"});
        assert_eq!(resolution(&own).as_deref(), Some("abort"));
    }
}
