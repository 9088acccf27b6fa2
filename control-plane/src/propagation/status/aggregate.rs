//! Aggregates the Works of a binding into the binding's status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use muster_shared::api::binding::{
    AggregatedStatusItem, ObjectReference, ResourceBindingStatus, ResourceHealth,
};
use muster_shared::conditions;
use muster_shared::finished;
use muster_shared::k8s::{Condition, RawExtension};
use muster_shared::names::condition;
use muster_shared::work_status;
use serde_json::{Map, Value, json};

use crate::fleet::completion::says_completed;
use crate::fleet::works::{CachedWork, cluster_of, means};

const SUCCESS: (&str, &str) = (
    "FullyAppliedSuccess",
    "All works have been successfully applied",
);
const FAILED: (&str, &str) = (
    "FullyAppliedFailed",
    "Failed to apply all works, see status.aggregatedStatus for details",
);

/// The reason of `FullyApplied=Unknown`, which Karmada does not have.
const NOT_HEARD: &str = "ClustersNotHeard";

/// Bytes of JSON of the statuses that one binding carries for all clusters; the API server takes
/// 1.5 MB for everything.
const LONGEST_STATUSES: usize = 768 << 10;

/// Bytes of JSON of what is shown of a status that is left out: that its task has run to its end.
const LONGEST_BRIEF: usize = 512;

/// Returns one item per Work in an execution namespace, and one per cluster whose Work is somebody
/// else's (`taken`), sorted by cluster. Works that are going away do not count.
///
/// A status that is too long or too deep is left out, and so are the longest ones where all
/// together are too much: one cluster must not hide the others.
pub fn items<'w>(
    works: impl IntoIterator<Item = &'w CachedWork>,
    resource: &ObjectReference,
    taken: Vec<AggregatedStatusItem>,
) -> Vec<AggregatedStatusItem> {
    let mut items: Vec<_> = works
        .into_iter()
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .filter_map(|work| Some(item(cluster_of(work)?, work, resource)))
        .collect();
    items.extend(taken);
    items.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    shorten(&mut items, resource);
    items
}

/// Leaves statuses out until the rest fits, the longest first, so that as few as possible are
/// missing. That a task has run to its end stays: elsewhere it would run again.
fn shorten(items: &mut [AggregatedStatusItem], resource: &ObjectReference) {
    let length_of = |item: &AggregatedStatusItem| {
        let status = item.status.as_ref();
        status.map_or(0, |status| work_status::length(&status.0))
    };
    let mut lengths: Vec<(usize, usize)> = items.iter().map(length_of).zip(0..).collect();
    let mut sum: usize = lengths.iter().map(|(length, _)| length).sum();
    if sum <= LONGEST_STATUSES {
        return;
    }
    lengths.sort_unstable_by_key(|(length, at)| (std::cmp::Reverse(*length), *at));
    for (length, at) in lengths {
        if sum <= LONGEST_STATUSES {
            break;
        }
        let item = &mut items[at];
        let status = item.status.take();
        item.status = status.and_then(|it| brief(&it.0, resource));
        sum = sum - length + length_of(item);
        item.applied_message = Some(format!(
            "the statuses of all clusters take more than the {LONGEST_STATUSES} bytes that are carried: of this one only the health is shown, and that it has ended if it has"
        ));
    }
}

/// Returns what is shown of a status that is left out.
fn brief(status: &Value, resource: &ObjectReference) -> Option<RawExtension> {
    let brief = finished::brief(&resource.api_version, &resource.kind, status)?;
    (work_status::length(&brief) <= LONGEST_BRIEF).then_some(RawExtension(brief))
}

fn item(cluster: &str, work: &CachedWork, resource: &ObjectReference) -> AggregatedStatusItem {
    let status = work.status();
    let blank = AggregatedStatusItem {
        cluster_name: cluster.to_owned(),
        health: Some(ResourceHealth::Unknown),
        ..AggregatedStatusItem::default()
    };
    let applied = conditions::get(&status.conditions, condition::APPLIED);
    if !conditions::is_true(&status.conditions, condition::APPLIED) {
        let message = applied
            .map(|applied| applied.message.clone())
            .filter(|message| !message.is_empty());
        // That a task has completed stays true, whatever became of a later write.
        let says = |status: &RawExtension| says_completed(resource, &status.0);
        let completed = status
            .manifest_statuses
            .into_iter()
            .filter(|reported| means(&reported.identifier, resource))
            .find_map(|reported| reported.status.filter(says));
        return AggregatedStatusItem {
            applied_message: message,
            status: completed.filter(|status| work_status::check(&status.0).is_ok()),
            ..blank
        };
    }
    match status
        .manifest_statuses
        .into_iter()
        .find(|reported| means(&reported.identifier, resource))
    {
        Some(reported) => {
            let excess = reported
                .status
                .as_ref()
                .map(|status| work_status::check(&status.0));
            let left_out = work.excess().filter(|_| reported.status.is_none());
            let excess = excess.and_then(Result::err).or_else(|| left_out.cloned());
            AggregatedStatusItem {
                applied: true,
                status: reported.status.filter(|_| excess.is_none()),
                applied_message: excess.map(|excess| excess.to_string()),
                health: reported.health.or_else(|| blank.health.clone()),
                ..blank
            }
        }
        None => AggregatedStatusItem {
            applied: true,
            ..blank
        },
    }
}

/// Returns whether every cluster that should have the resource has it, and no other.
pub fn fully_applied(expected: &BTreeSet<String>, items: &[AggregatedStatusItem]) -> bool {
    !expected.is_empty()
        && items.len() == expected.len()
        && items
            .iter()
            .all(|item| item.applied && expected.contains(&item.cluster_name))
}

/// Whether a resource is applied in all its clusters, for the condition `FullyApplied`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Every cluster that should have the resource has it, and no other.
    Fully,
    /// A cluster has not applied it, or has it and should not.
    NotFully,
    /// Only the silence of clusters leaves it open; the message names them.
    Silent(String),
}

/// Returns the merge patch of a binding's status, `None` when it says all this already.
///
/// The patch carries `version`: conditions are a list that the scheduler writes to, too, and the
/// items may be those of a process that does not lead any more. It fails rather than undoes a write
/// that was not seen.
pub fn patch(
    held: &ResourceBindingStatus,
    version: Option<&str>,
    items: &[AggregatedStatusItem],
    applied: &Applied,
    fenced: Option<Condition>,
    now: Timestamp,
) -> Option<Value> {
    let mut status = Map::new();
    if held.aggregated_status != items {
        status.insert("aggregatedStatus".to_owned(), json!(items));
    }
    let (word, (reason, message)) = match applied {
        Applied::Fully => (conditions::TRUE, SUCCESS),
        Applied::NotFully => (conditions::FALSE, FAILED),
        Applied::Silent(message) => (conditions::UNKNOWN, (NOT_HEARD, message.as_str())),
    };
    let mut all = held.conditions.clone();
    let said = conditions::new(condition::FULLY_APPLIED, word, reason, message, now);
    let mut is_update = conditions::set(&mut all, said);
    if let Some(fenced) = fenced {
        is_update |= conditions::set(&mut all, fenced);
    }
    if is_update {
        status.insert("conditions".to_owned(), json!(all));
    }
    if status.is_empty() {
        return None;
    }
    Some(json!({ "metadata": { "resourceVersion": version }, "status": status }))
}

#[cfg(test)]
mod tests {
    use muster_shared::work_status::COMPLETED_MANIFEST;

    use super::*;

    fn resource() -> ObjectReference {
        ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("default".into()),
            name: "web".into(),
            ..ObjectReference::default()
        }
    }

    fn work(cluster: &str, status: &Value) -> CachedWork {
        serde_json::from_value(json!({
            "metadata": { "namespace": format!("karmada-es-{cluster}"), "name": "web" }, "status": status,
        }))
        .unwrap()
    }

    fn applied(status: &str, message: &str) -> Value {
        json!([{ "type": "Applied", "status": status, "reason": "r", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" }])
    }

    fn reported(name: &str) -> Value {
        json!([{
            "identifier": { "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "default", "name": name },
            "status": { "readyReplicas": 1 }, "health": "Healthy",
        }])
    }

    #[test]
    fn a_task_has_completed_also_where_a_later_write_failed() {
        let job =
            |condition: &str| json!({ "conditions": [{ "type": condition, "status": "True" }] });
        let pod = |phase: &str, of: Value| json!({ "phase": phase, COMPLETED_MANIFEST: of });
        for (group, kind, status, expected) in [
            ("batch", "Job", job("Complete"), true),
            ("batch", "Job", job("Suspended"), false),
            ("kubeflow.org", "TFJob", job("Succeeded"), true),
            ("kubeflow.org", "TFJob", job("Running"), false),
            ("", "Pod", pod("Succeeded", json!("a/1")), true),
            // It was stopped, and has not run to its end.
            ("", "Pod", pod("Succeeded", Value::Null), false),
            ("", "Pod", pod("Running", Value::Null), false),
        ] {
            let api_version = format!("{group}/v1");
            let task = json!({
                "apiVersion": api_version.trim_start_matches('/'), "kind": kind,
                "namespace": "default", "name": "sum",
            });
            let task: ObjectReference = serde_json::from_value(task).unwrap();
            let reported = json!([{
                "identifier": { "ordinal": 0, "group": group, "version": "v1", "kind": kind, "namespace": "default", "name": "sum" },
                "status": status, "health": "Healthy",
            }]);
            let works = [work(
                "m1",
                &json!({ "conditions": applied("False", "immutable"), "manifestStatuses": reported }),
            )];
            let found = items(&works, &task, Vec::new());
            assert!(!found[0].applied);
            assert_eq!(found[0].health, Some(ResourceHealth::Unknown));
            assert_eq!(found[0].status.is_some(), expected, "{kind}: {status}");
        }
    }

    #[test]
    fn each_cluster_says_whether_it_applied_and_how_it_is() {
        let works = [
            work("m3", &json!({ "conditions": applied("False", "no room") })),
            work(
                "m1",
                &json!({ "conditions": applied("True", ""), "manifestStatuses": reported("web") }),
            ),
            work(
                "m2",
                &json!({ "conditions": applied("True", ""), "manifestStatuses": reported("other") }),
            ),
            work("m4", &json!({})),
        ];
        let found = json!(items(&works, &resource(), Vec::new()));
        assert_eq!(
            found,
            json!([
                { "clusterName": "m1", "applied": true, "status": { "readyReplicas": 1 }, "health": "Healthy" },
                { "clusterName": "m2", "applied": true, "health": "Unknown" },
                { "clusterName": "m3", "appliedMessage": "no room", "health": "Unknown" },
                { "clusterName": "m4", "health": "Unknown" },
            ])
        );
    }

    fn long(bytes: usize) -> Value {
        let mut reported = reported("web");
        reported[0]["status"] = json!({ "note": "x".repeat(bytes) });
        json!({ "conditions": applied("True", ""), "manifestStatuses": reported })
    }

    #[test]
    fn one_long_status_does_not_hide_the_others() {
        let works = [work("m1", &long(100_000)), work("m2", &long(10))];
        let found = items(&works, &resource(), Vec::new());
        assert_eq!((found[0].applied, &found[0].status), (true, &None));
        assert_eq!(found[0].health, Some(ResourceHealth::Healthy));
        let message = found[0].applied_message.as_deref().unwrap();
        assert!(message.contains("only the health is reported"), "{message}");
        assert!(found[1].status.is_some() && found[1].applied_message.is_none());
    }

    #[test]
    fn the_statuses_of_all_clusters_stay_within_what_the_api_server_takes() {
        let clusters: Vec<String> = (0..1_000).map(|n| format!("m{n:04}")).collect();
        // The cluster in the middle says the most.
        let length = |cluster: &String| if cluster == "m0500" { 60_000 } else { 800 };
        let works: Vec<_> = clusters.iter().map(|m| work(m, &long(length(m)))).collect();
        let found = items(&works, &resource(), Vec::new());
        assert_eq!(found.len(), 1_000);
        assert!(json!(found).to_string().len() < 1_000_000);
        let without = |item: &&AggregatedStatusItem| item.status.is_none();
        let left_out: Vec<_> = found.iter().filter(without).collect();
        assert!(
            left_out.iter().any(|item| item.cluster_name == "m0500"),
            "the longest goes first"
        );
        assert!(left_out.len() < 100, "{} are left out", left_out.len());
        assert!(
            left_out
                .iter()
                .all(|item| item.applied && item.applied_message.is_some())
        );
    }

    #[test]
    fn a_task_has_completed_also_where_its_status_is_left_out() {
        let workflow = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "namespace": "default", "name": "sum",
        });
        let workflow: ObjectReference = serde_json::from_value(workflow).unwrap();
        let works = ["Succeeded", "Running"].map(|phase| {
            (0..20).map(move |n| {
                let reported = json!([{
                    "identifier": {
                        "ordinal": 0, "group": "argoproj.io", "version": "v1alpha1",
                        "kind": "Workflow", "namespace": "default", "name": "sum",
                    },
                    "status": { "phase": phase, "nodes": "x".repeat(60_000) }, "health": "Healthy",
                }]);
                let cluster = format!("{}-{n}", phase.to_lowercase());
                work(
                    &cluster,
                    &json!({ "conditions": applied("True", ""), "manifestStatuses": reported }),
                )
            })
        });
        let works: Vec<_> = works.into_iter().flatten().collect();
        let found = items(&works, &workflow, Vec::new());
        assert!(json!(found).to_string().len() < 1_000_000);
        for item in found {
            let status = item.status.map(|it| it.0).unwrap_or_default();
            let has_completed = item.cluster_name.starts_with("succeeded");
            let is_said = says_completed(&workflow, &status);
            assert_eq!(is_said, has_completed, "{}", item.cluster_name);
        }
    }

    #[test]
    fn a_work_that_is_somebody_elses_is_reported() {
        let taken = AggregatedStatusItem {
            cluster_name: "m1".to_owned(),
            applied_message: Some("it is theirs".to_owned()),
            health: Some(ResourceHealth::Unknown),
            ..AggregatedStatusItem::default()
        };
        let found = items([], &resource(), vec![taken]);
        assert_eq!(
            json!(found),
            json!([{ "clusterName": "m1", "appliedMessage": "it is theirs", "health": "Unknown" }])
        );
        assert!(!fully_applied(&BTreeSet::from(["m1".to_owned()]), &found));
    }

    #[test]
    fn works_that_are_going_away_do_not_count() {
        let mut leaving = work("m1", &json!({ "conditions": applied("True", "") }));
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(items([&leaving], &resource(), Vec::new()), []);
    }

    #[test]
    fn fully_applied_means_everywhere_and_nowhere_else() {
        let item = |cluster: &str, applied| AggregatedStatusItem {
            cluster_name: cluster.into(),
            applied,
            ..Default::default()
        };
        let expected = |clusters: &[&str]| {
            clusters
                .iter()
                .map(|cluster| (*cluster).to_owned())
                .collect()
        };
        for (clusters, items, full) in [
            (&[][..], vec![], false),
            (&["m1"], vec![item("m1", true)], true),
            (&["m1"], vec![item("m1", false)], false),
            (&["m1", "m2"], vec![item("m1", true)], false),
            (&["m1"], vec![item("m1", true), item("m2", true)], false),
            (&["m1"], vec![item("m2", true)], false),
        ] {
            assert_eq!(
                fully_applied(&expected(clusters), &items),
                full,
                "{clusters:?} {items:?}"
            );
        }
    }

    #[test]
    fn a_status_that_says_it_already_is_not_written_and_every_other_is_guarded() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let items = vec![AggregatedStatusItem {
            cluster_name: "m1".into(),
            applied: true,
            ..Default::default()
        }];
        let first = patch(
            &ResourceBindingStatus::default(),
            Some("7"),
            &items,
            &Applied::Fully,
            None,
            now,
        )
        .unwrap();
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        let held: ResourceBindingStatus = serde_json::from_value(first["status"].clone()).unwrap();
        assert_eq!(
            patch(&held, Some("8"), &items, &Applied::Fully, None, now),
            None
        );
        let more = [AggregatedStatusItem {
            health: Some(ResourceHealth::Healthy),
            ..items[0].clone()
        }];
        let second = patch(&held, Some("8"), &more, &Applied::Fully, None, now).unwrap();
        assert_eq!(second["metadata"]["resourceVersion"], "8");
        assert_eq!(second["status"].get("conditions"), None);
    }
}
