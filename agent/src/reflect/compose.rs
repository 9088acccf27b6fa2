//! The status of a Work from the reflections of its objects.

use std::collections::HashMap;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, ResourceIdentifier, Work};
use muster_shared::k8s::RawExtension;

use super::reflections::Reflection;
use crate::apply::desired::ObjectKey;
use crate::apply::work::key_of;

/// One entry for each object that is or was there: what was seen of it, else what the status said before. Objects that the Work
/// no longer wants keep their entry (by which the applier finds them) until they are gone.
pub fn compose(
    work: &Work,
    seen: &HashMap<ObjectKey, Reflection>,
    gone: &[ObjectKey],
) -> Vec<ManifestStatus> {
    let known = work
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.manifest_statuses);
    let before = |key: &ObjectKey| {
        known
            .iter()
            .find(|status| key_of(&status.identifier).same_object(key))
    };
    let mut statuses = Vec::new();
    let mut wanted = Vec::new();
    for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
        let Ok(key) = ObjectKey::of(&manifest.0, ordinal) else {
            continue;
        };
        let now = seen
            .get(&key)
            .map(|now| (now.status().map(RawExtension), now.health.clone()));
        let said = || {
            before(&key).map(|said| {
                let health = said.health.clone().unwrap_or(ResourceHealth::Unknown);
                (said.status.clone(), health)
            })
        };
        if let Some((status, health)) = now.or_else(said) {
            statuses.push(ManifestStatus {
                identifier: identifier(&key, ordinal),
                status,
                health: Some(health),
            });
        }
        wanted.push(key);
    }
    let no_longer_wanted = known.iter().filter(|status| {
        let key = key_of(&status.identifier);
        let listed = |keys: &[ObjectKey]| keys.iter().any(|other| other.same_object(&key));
        !listed(&wanted) && !listed(gone)
    });
    statuses.extend(no_longer_wanted.cloned());
    statuses
}

/// Karmada leaves `resource` empty, and so do we: its controllers compare identifiers.
fn identifier(key: &ObjectKey, ordinal: usize) -> ResourceIdentifier {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn work(manifests: &[&str], reported: &[&str]) -> Work {
        let manifests: Vec<Value> = manifests
            .iter()
            .map(
                |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
            )
            .collect();
        let reported: Vec<Value> = reported
            .iter()
            .map(|name| json!({"identifier": {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "name": name},
                "status": {"from": "before"}, "health": "Healthy"}))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "w"},
            "spec": {"workload": {"manifests": manifests}}, "status": {"manifestStatuses": reported}}))
        .unwrap()
    }

    fn key(name: &str) -> ObjectKey {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        ObjectKey::of(&manifest, 0).unwrap()
    }

    fn names(statuses: &[ManifestStatus]) -> Vec<(i64, &str, Option<&Value>)> {
        statuses
            .iter()
            .map(|status| {
                let identifier = &status.identifier;
                (
                    identifier.ordinal,
                    identifier.name.as_str(),
                    status.status.as_ref().map(|raw| &raw.0),
                )
            })
            .collect()
    }

    #[test]
    fn what_is_seen_replaces_what_was_said_and_the_rest_stays() {
        let seen = HashMap::from([(
            key("b"),
            Reflection::new(Some(&json!({"now": 1})), ResourceHealth::Unhealthy),
        )]);
        let statuses = compose(&work(&["a", "b", "c"], &["a", "b"]), &seen, &[]);
        assert_eq!(
            names(&statuses),
            [
                (0, "a", Some(&json!({"from": "before"}))),
                (1, "b", Some(&json!({"now": 1})))
            ]
        );
        assert_eq!(statuses[1].health, Some(ResourceHealth::Unhealthy));
    }

    #[test]
    fn an_object_that_is_no_longer_wanted_is_named_until_it_is_gone() {
        let work = work(&["a"], &["a", "old"]);
        let present = HashMap::new();
        assert_eq!(compose(&work, &present, &[]).len(), 2);
        assert_eq!(compose(&work, &present, &[key("old")]).len(), 1);
    }
}
