//! Composes the status of a Work from the states of its objects.

use std::collections::{HashMap, HashSet};

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, Work};
use muster_shared::k8s::RawExtension;
use muster_shared::work_status;

use crate::work::desired::ObjectKey;
use crate::work::manifests::{identifier, key_of, keys, named};
use crate::work::observed::ObjectStatus;

/// Bytes that the manifests of a Work and the statuses of its objects may have together. etcd
/// refuses an object of more than 1.5 MB; the rest is for the identifiers.
const LONGEST_WORK: usize = 1024 * 1024;

/// Report about the objects of a Work.
pub struct Report {
    /// One entry for each object that exists or existed.
    pub statuses: Vec<ManifestStatus>,
    /// Number of objects with health only, because all statuses together are too long.
    pub shortened: usize,
}

/// Composes one entry for each object that exists or existed, from its status, or else from the
/// present status. Objects that the Work no longer wants keep their entry until they are gone,
/// because the applier finds them by it.
pub fn compose(work: &Work, seen: &HashMap<ObjectKey, ObjectStatus>) -> Report {
    let known = named(work);
    let before: HashMap<_, &ManifestStatus> = known
        .iter()
        .rev()
        .map(|status| (key_of(&status.identifier).object(), status))
        .collect();
    let mut statuses = Vec::new();
    let mut settled = HashSet::new();
    for (ordinal, key, _) in keys(work) {
        let now = seen.get(&key);
        let said = before.get(&key.object());
        let said_status = || said.and_then(|said| said.status.clone());
        let entry = match now {
            Some(now) if now.lost => said.map(|_| (None, ResourceHealth::Unhealthy)),
            Some(now) if now.stays => Some((said_status(), now.health.clone())),
            Some(now) => Some((now.status().map(RawExtension), now.health.clone())),
            None => said.map(|said| {
                let health = said.health.clone().unwrap_or(ResourceHealth::Unknown);
                (said.status.clone(), health)
            }),
        };
        if let Some((status, health)) = entry {
            statuses.push(ManifestStatus {
                identifier: identifier(&key, ordinal),
                status,
                health: Some(health),
            });
        }
        settled.insert(key.object());
    }
    let no_longer_wanted = known
        .iter()
        .filter(|status| !settled.contains(&key_of(&status.identifier).object()));
    statuses.extend(no_longer_wanted.cloned());
    let shortened = shorten(work, &mut statuses);
    Report {
        statuses,
        shortened,
    }
}

/// Removes statuses beyond the limit of bytes; returns how many.
fn shorten(work: &Work, statuses: &mut [ManifestStatus]) -> usize {
    let manifests = work.spec.workload.manifests.iter();
    let manifests: usize = manifests.map(|it| work_status::length(&it.0)).sum();
    let mut room = LONGEST_WORK.saturating_sub(manifests);
    let mut shortened = 0;
    for said in statuses {
        let Some(status) = &said.status else { continue };
        let length = work_status::length(&status.0);
        if length > room {
            said.status = None;
            shortened += 1;
        } else {
            room -= length;
        }
    }
    shortened
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::work::observed::Interpretation;

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
            ObjectStatus::new(Some(&json!({"now": 1})), ResourceHealth::Unhealthy),
        )]);
        let statuses = compose(&work(&["a", "b", "c"], &["a", "b"]), &seen).statuses;
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
    fn an_object_that_is_gone_counts_nothing_and_is_unhealthy_where_it_was_reported() {
        let seen = HashMap::from([
            (key("a"), ObjectStatus::lost()),
            (key("never-made"), ObjectStatus::lost()),
        ]);
        let statuses = compose(&work(&["a", "never-made"], &["a"]), &seen).statuses;
        assert_eq!(names(&statuses), [(0, "a", None)]);
        assert_eq!(statuses[0].health, Some(ResourceHealth::Unhealthy));
    }

    #[test]
    fn an_object_whose_status_cannot_be_reflected_keeps_it_and_not_its_health() {
        let seen = ["a", "b"].map(|name| (key(name), Interpretation::unknown().status.unwrap()));
        let work = work(&["a", "b"], &["a"]);
        let statuses = compose(&work, &HashMap::from(seen)).statuses;
        let expected = [(0, "a", Some(&json!({"from": "before"}))), (1, "b", None)];
        assert_eq!(names(&statuses), expected);
        let unknown = |status: &ManifestStatus| status.health == Some(ResourceHealth::Unknown);
        assert!(statuses.iter().all(unknown));
    }

    #[test]
    fn an_object_that_is_no_longer_wanted_is_named_until_the_applier_has_removed_it() {
        let work = work(&["a"], &["a", "old"]);
        let statuses = compose(&work, &HashMap::new()).statuses;
        let names = statuses.iter().map(|it| it.identifier.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "old"]);
    }

    #[test]
    fn statuses_that_are_too_long_together_are_left_out_and_health_is_not() {
        let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let status = json!("x".repeat(60_000));
        let seen = names
            .iter()
            .map(|name| {
                let status = ObjectStatus::new(Some(&status), ResourceHealth::Healthy);
                (key(name), status)
            })
            .collect();
        let report = compose(&work(&names, &[]), &seen);
        let shown = report.statuses.iter();
        let shown = shown.filter(|status| status.status.is_some()).count();
        assert_eq!((shown, report.shortened), (17, 23));
        let healthy = |status: &ManifestStatus| status.health == Some(ResourceHealth::Healthy);
        assert!(report.statuses.iter().all(healthy));
        let bytes = serde_json::to_vec(&report.statuses).unwrap().len();
        assert!(bytes < 1_200_000, "{bytes} bytes");
    }
}
