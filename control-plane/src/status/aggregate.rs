//! What the Works of a binding say together.

use std::collections::BTreeSet;

use jiff::Timestamp;
use muster_shared::api::binding::{
    AggregatedStatusItem, ObjectReference, ResourceBindingStatus, ResourceHealth,
};
use muster_shared::api::work::ResourceIdentifier;
use muster_shared::conditions;
use muster_shared::names::{self, condition};
use serde_json::{Map, Value, json};

use crate::binding::CachedWork;

const SUCCESS: (&str, &str) = (
    "FullyAppliedSuccess",
    "All works have been successfully applied",
);
const FAILED: (&str, &str) = (
    "FullyAppliedFailed",
    "Failed to apply all works, see status.aggregatedStatus for details",
);

/// One item per Work, sorted by cluster. Works that are going away do not count.
pub fn items<'w>(
    works: impl IntoIterator<Item = &'w CachedWork>,
    resource: &ObjectReference,
) -> Vec<AggregatedStatusItem> {
    let mut items: Vec<_> = works
        .into_iter()
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .filter_map(|work| {
            Some(item(
                names::cluster_of_execution_namespace(work.metadata.namespace.as_deref()?)?,
                work,
                resource,
            ))
        })
        .collect();
    items.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    items
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
        return AggregatedStatusItem {
            applied_message: message,
            ..blank
        };
    }
    match status
        .manifest_statuses
        .into_iter()
        .find(|reported| means(&reported.identifier, resource))
    {
        Some(reported) => AggregatedStatusItem {
            applied: true,
            status: reported.status,
            health: reported.health.or_else(|| blank.health.clone()),
            ..blank
        },
        None => AggregatedStatusItem {
            applied: true,
            ..blank
        },
    }
}

/// Whether an agent's report is about the resource.
fn means(reported: &ResourceIdentifier, resource: &ObjectReference) -> bool {
    let group = reported.group.as_deref().unwrap_or_default();
    let api_version = if group.is_empty() {
        reported.version.clone()
    } else {
        format!("{group}/{}", reported.version)
    };
    api_version == resource.api_version
        && reported.kind == resource.kind
        && reported.name == resource.name
        && reported.namespace.as_deref().unwrap_or_default()
            == resource.namespace.as_deref().unwrap_or_default()
}

/// Whether every cluster that should have the resource has it, and no other.
pub fn fully_applied(expected: &BTreeSet<String>, items: &[AggregatedStatusItem]) -> bool {
    !expected.is_empty()
        && items.len() == expected.len()
        && items
            .iter()
            .all(|item| item.applied && expected.contains(&item.cluster_name))
}

/// The merge patch of a binding's status, `None` when it says all this already.
///
/// Conditions are a list that the scheduler writes to, too: when ours changes, the patch carries `version`, so that it fails rather
/// than undoes a write that we did not see.
pub fn patch(
    held: &ResourceBindingStatus,
    version: Option<&str>,
    items: &[AggregatedStatusItem],
    fully_applied: bool,
    now: Timestamp,
) -> Option<Value> {
    let mut status = Map::new();
    if held.aggregated_status != items {
        status.insert("aggregatedStatus".to_owned(), json!(items));
    }
    let (word, (reason, message)) = if fully_applied {
        ("True", SUCCESS)
    } else {
        ("False", FAILED)
    };
    let mut all = held.conditions.clone();
    let mut patch = Map::new();
    if conditions::set(
        &mut all,
        conditions::new(condition::FULLY_APPLIED, word, reason, message, now),
    ) {
        status.insert("conditions".to_owned(), json!(all));
        patch.insert("metadata".to_owned(), json!({ "resourceVersion": version }));
    }
    if status.is_empty() {
        return None;
    }
    patch.insert("status".to_owned(), Value::Object(status));
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
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
    fn each_cluster_tells_whether_it_applied_and_how_it_is() {
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
        let found = json!(items(&works, &resource()));
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

    #[test]
    fn works_that_are_going_away_do_not_count() {
        let mut leaving = work("m1", &json!({ "conditions": applied("True", "") }));
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(items([&leaving], &resource()), []);
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
    fn a_status_that_says_it_already_is_not_written_and_conditions_are_guarded() {
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
            true,
            now,
        )
        .unwrap();
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        let held: ResourceBindingStatus = serde_json::from_value(first["status"].clone()).unwrap();
        assert_eq!(patch(&held, Some("8"), &items, true, now), None);
        let more = [AggregatedStatusItem {
            health: Some(ResourceHealth::Healthy),
            ..items[0].clone()
        }];
        let second = patch(&held, Some("8"), &more, true, now).unwrap();
        assert_eq!(
            (second.get("metadata"), second["status"].get("conditions")),
            (None, None)
        );
    }
}
