//! What is said of the new copies of a workload that leaves a cluster: what their Works say now.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ObjectReference, ResourceBindingSpec,
    ResourceHealth,
};
use muster_shared::api::work::{ManifestStatus, WorkStatus};
use muster_shared::conditions;
use muster_shared::names::condition;

use crate::fleet::copy::WorkState;
use crate::fleet::deleted_works::DeletedWorks;
use crate::fleet::works::{CachedWork, cluster_of, means};

/// Returns whether a task ends when the workload is healthy elsewhere.
pub(super) fn asks_for_health(task: &GracefulEvictionTask) -> bool {
    task.suppress_deletion.is_none()
}

/// Returns the reports that count. Those of targets count as far as their Works say the same now,
/// and without a Work that says something they are left out. A cluster that was left and chosen
/// again still has the report of its former copy on the binding, and there may be nothing left of
/// that copy.
///
/// The status is that of the Work: the binding's is older, and not kept to the letter (a merge
/// patch leaves out fields that are null).
pub(super) fn kept_reports(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    work: impl Fn(&str) -> Option<WorkStatus>,
) -> Vec<AggregatedStatusItem> {
    let targets = spec.clusters.iter().map(|target| &*target.name);
    let targets: HashSet<&str> = targets.collect();
    let kept = |report: &AggregatedStatusItem| {
        if !targets.contains(&*report.cluster_name) {
            return Some(report.clone());
        }
        let said = work(&report.cluster_name)?;
        if !conditions::is_true(&said.conditions, condition::APPLIED) {
            return None;
        }
        let mut manifests = said.manifest_statuses.into_iter();
        let said = manifests.find(|it| means(&it.identifier, &spec.resource))?;
        let is_healthy = report.health == Some(ResourceHealth::Healthy);
        Some(AggregatedStatusItem {
            health: if is_healthy {
                said.health
            } else {
                report.health.clone()
            },
            status: said.status,
            ..report.clone()
        })
    };
    reports.iter().filter_map(kept).collect()
}

/// Returns whether a Work reports a copy of the workload: a healthy one, or the status of one.
pub(super) fn reports_copy(resource: &ObjectReference, said: &WorkStatus) -> bool {
    let healthy = Some(ResourceHealth::Healthy);
    let is_there = |it: &ManifestStatus| it.health == healthy || it.status.is_some();
    let mut manifests = said.manifest_statuses.iter();
    manifests.any(|it| means(&it.identifier, resource) && is_there(it))
}

/// Returns whether a Work has still to bring the workload to its cluster: the agent has not
/// answered it, and reports no copy of before.
pub(super) fn is_to_bring(resource: &ObjectReference, said: &WorkStatus) -> bool {
    WorkState::said(said) == WorkState::Sent && !reports_copy(resource, said)
}

/// Returns the Works that place their workload in a cluster and stay, by cluster.
pub(super) fn carrying_out<'a>(
    works: &'a [Arc<CachedWork>],
    deleted: &DeletedWorks,
) -> HashMap<&'a str, &'a CachedWork> {
    let staying = works.iter().filter(|work| !deleted.is_to_go(work));
    staying
        .filter_map(|work| Some((cluster_of(work)?, work.as_ref())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::only_condition;

    #[test]
    fn a_work_places_a_workload_in_the_cluster_whose_it_is_unless_it_goes() {
        let deleted = DeletedWorks::default();
        for (namespace, deleting, is_asked, expected) in [
            ("karmada-es-m1", false, false, true),
            ("karmada-es-m1", true, false, false),
            // The cache does not show it yet.
            ("karmada-es-m1", false, true, false),
            ("karmada-es-m2", false, false, false),
            ("data", false, false, false),
        ] {
            let deletion = deleting.then_some("2024-01-01T00:00:00Z");
            let uid = format!("{namespace} {deleting} {is_asked}");
            let work = json!({"metadata": {
                "name": "web", "uid": uid, "namespace": namespace, "deletionTimestamp": deletion,
            }});
            let works = [Arc::new(serde_json::from_value(work).unwrap())];
            if is_asked {
                deleted.add(
                    works
                        .iter()
                        .filter_map(|it: &Arc<CachedWork>| it.metadata.uid.clone()),
                );
            }
            let carries_out = carrying_out(&works, &deleted).contains_key("m1");
            assert_eq!(carries_out, expected, "{uid}");
        }
    }

    /// Returns the status that an agent writes on a Work.
    fn applied(applied: &str, manifests: &Value) -> WorkStatus {
        serde_json::from_value(json!({
            "conditions": only_condition("Applied", applied),
            "manifestStatuses": manifests,
        }))
        .unwrap()
    }

    fn manifest(name: &str, health: &str, status: &Value) -> Value {
        json!({
            "identifier": {
                "ordinal": 0, "version": "v1", "kind": "Deployment", "group": "apps",
                "namespace": "default", "name": name, "resource": "",
            },
            "health": health, "status": status,
        })
    }

    #[test]
    fn the_report_of_a_former_copy_replaces_nothing() {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web",
            },
            "clusters": [{"name": "m2", "replicas": 1}],
        }))
        .unwrap();
        let report = |cluster: &str, health: &str, status: Value| -> AggregatedStatusItem {
            serde_json::from_value(json!({
                "clusterName": cluster, "health": health, "status": status,
            }))
            .unwrap()
        };
        let said = |health: &str, status: &Value| {
            Some(applied("True", &json!([manifest("web", health, status)])))
        };
        let ready = json!({"readyReplicas": 1});
        let counted = json!({"readyReplicas": 1, "seen": 2});
        let null = json!({"readyReplicas": 1, "conditions": [{"lastProbeTime": null}]});
        let (healthy, unhealthy) = (ResourceHealth::Healthy, ResourceHealth::Unhealthy);
        let other = applied("True", &json!([manifest("other", "Healthy", &ready)]));
        let refused = applied("False", &json!([manifest("web", "Healthy", &ready)]));
        let same = said("Healthy", &ready);
        let well = |status| Some((&healthy, status));
        let ill = Some((&unhealthy, &ready));
        for (what, health, work, expected) in [
            ("there is no Work", "Healthy", None, None),
            (
                "nothing is said",
                "Healthy",
                Some(WorkStatus::default()),
                None,
            ),
            ("of another object", "Healthy", Some(other), None),
            ("it is not applied", "Healthy", Some(refused), None),
            ("the same", "Healthy", same.clone(), well(&ready)),
            // These two never come to rest, or are kept by the binding in another form.
            (
                "later",
                "Healthy",
                said("Healthy", &counted),
                well(&counted),
            ),
            ("with null", "Healthy", said("Healthy", &null), well(&null)),
            ("it has begun", "Healthy", said("Unhealthy", &ready), ill),
            // The binding says so of a cluster that is silent too.
            ("not yet reported", "Unhealthy", same, ill),
        ] {
            let reports = [
                report("m1", "Healthy", ready.clone()),
                report("m2", health, ready.clone()),
            ];
            let kept = kept_reports(&spec, &reports, |_| work.clone());
            // What is said of a cluster that is left concerns its old copy.
            assert_eq!(kept[0], reports[0], "{what}");
            let found = kept.get(1).map(|it| {
                let status = it.status.as_ref().unwrap();
                (it.health.as_ref().unwrap(), &status.0)
            });
            assert_eq!(found, expected, "{what}");
        }
    }
}
