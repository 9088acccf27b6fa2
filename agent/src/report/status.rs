//! Computes the patch of the Cluster's status from the present status and the collected values.

use std::collections::BTreeMap;

use muster_shared::api::cluster::{
    APIEnablement, Cluster, ClusterStatus, NodeSummary, ResourceSummary,
};
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Quantity};
use muster_shared::merge;
use muster_shared::quantity;
use serde_json::{Value, json};

/// Share of the allocatable resources by which a sum has to change for an immediate report.
const NOTABLE_PERCENT: i128 = 5;

/// Values for the status. The status keeps its value for each that is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Version of the member's API server.
    pub version: Option<String>,
    /// The kinds that it serves.
    pub enablements: Vec<APIEnablement>,
    /// Counts of nodes.
    pub nodes: Option<NodeSummary>,
    /// Sums of resources and counts of grades.
    pub resources: Option<ResourceSummary>,
    /// Conditions of the agent, by type.
    pub conditions: Vec<Condition>,
    /// Types of the conditions that the agent takes back.
    pub retired: Vec<String>,
}

/// Returns the merge patch that brings a Cluster's status up to date; `None` when there is nothing
/// to write.
///
/// A merge patch replaces the whole list of conditions. The patch therefore repeats those of other
/// writers, and has the resourceVersion at which they were read, so that none is lost.
pub fn patch(cluster: &Cluster, findings: &Findings) -> Option<Value> {
    let current = cluster.status.clone().unwrap_or_default();
    let next = merged(&current, findings);
    let mut patch = json!({ "status": merge::difference(&ours(&current), &ours(&next))? });
    if let Some(version) = &cluster.metadata.resource_version {
        patch["metadata"] = json!({ "resourceVersion": version });
    }
    Some(patch)
}

/// Returns the part of a status that the agent writes.
fn ours(status: &ClusterStatus) -> Value {
    let ours = ClusterStatus {
        remedy_actions: Vec::new(),
        ..status.clone()
    };
    serde_json::to_value(ours).unwrap_or_default()
}

fn merged(current: &ClusterStatus, findings: &Findings) -> ClusterStatus {
    let mut next = current.clone();
    if findings.version.is_some() {
        next.kubernetes_version.clone_from(&findings.version);
    }
    if !findings.enablements.is_empty() {
        next.api_enablements.clone_from(&findings.enablements);
    }
    if findings.nodes.is_some() {
        next.node_summary = findings.nodes;
    }
    if findings.resources.is_some() {
        next.resource_summary.clone_from(&findings.resources);
    }
    for kind in &findings.retired {
        conditions::remove(&mut next.conditions, kind);
    }
    for condition in &findings.conditions {
        conditions::set(&mut next.conditions, condition.clone());
    }
    next
}

/// Returns whether sums of nodes and pods differ from those in the status so much that a scheduler
/// would decide otherwise. Small differences, which are frequent, wait for the next report.
pub fn is_notable(
    current: &ClusterStatus,
    nodes: NodeSummary,
    resources: &ResourceSummary,
) -> bool {
    let Some(known) = &current.resource_summary else {
        return true;
    };
    if current.node_summary != Some(nodes) || known.allocatable != resources.allocatable {
        return true;
    }
    let amount = |of: &BTreeMap<String, Quantity>, name: &str| -> i128 {
        let found = of
            .get(name)
            .and_then(|it| it.0.parse::<quantity::Quantity>().ok());
        found.map_or(0, |it| it.milli_value().into())
    };
    let differs = |before: &BTreeMap<String, Quantity>, after: &BTreeMap<String, Quantity>| {
        before.keys().chain(after.keys()).any(|name| {
            let change = (amount(before, name) - amount(after, name)).abs();
            change * 100 > amount(&resources.allocatable, name) * NOTABLE_PERCENT
        })
    };
    differs(&known.allocated, &resources.allocated)
        || differs(&known.allocating, &resources.allocating)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_shared::names::condition::READY;

    use super::super::conditions::ready;
    use super::*;
    use crate::health::probe::Observation;

    #[test]
    fn only_what_changes_a_decision_is_reported_before_its_time() {
        let summary = |allocatable: &str, allocated: &str, allocating: &str| -> ResourceSummary {
            serde_json::from_value(json!({
                "allocatable": {"cpu": allocatable}, "allocated": {"cpu": allocated}, "allocating": {"cpu": allocating},
            }))
            .unwrap()
        };
        let nodes = |ready_num| NodeSummary {
            total_num: 2,
            ready_num,
        };
        let current = ClusterStatus {
            node_summary: Some(nodes(2)),
            resource_summary: Some(summary("100", "50", "0")),
            ..ClusterStatus::default()
        };
        for (what, ready, found, notable) in [
            ("nothing", 2, summary("100", "50", "0"), false),
            ("a little", 2, summary("100", "54900m", "5"), false),
            ("much is taken", 2, summary("100", "55100m", "0"), true),
            ("much is free", 2, summary("100", "44", "0"), true),
            ("much waits", 2, summary("100", "50", "6"), true),
            ("a node is not ready", 1, summary("100", "50", "0"), true),
            ("a node came", 2, summary("104", "50", "0"), true),
        ] {
            assert_eq!(
                is_notable(&current, nodes(ready), &found),
                notable,
                "{what}"
            );
        }
        let never = ClusterStatus::default();
        assert!(is_notable(&never, nodes(2), &summary("1", "0", "0")));
    }

    const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const T1: Timestamp = Timestamp::constant(1_800_000_060, 0);

    fn cluster(status: &Value) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "resourceVersion": "7"},
            "spec": {"syncMode": "Pull"}, "status": status,
        }))
        .unwrap()
    }

    fn found() -> Findings {
        Findings {
            version: Some("v1.33.0".into()),
            nodes: Some(NodeSummary {
                total_num: 2,
                ready_num: 1,
            }),
            conditions: vec![ready(&Observation::Ready, T0)],
            ..Findings::default()
        }
    }

    /// Returns the cluster after its first report.
    fn reported() -> Cluster {
        let first = patch(&cluster(&json!({})), &found()).unwrap();
        cluster(&first["status"])
    }

    #[test]
    fn what_is_there_already_is_not_written_again() {
        let later = Findings {
            conditions: vec![ready(&Observation::Ready, T1)],
            ..found()
        };
        assert_eq!(patch(&reported(), &later), None);
    }

    #[test]
    fn only_the_changed_part_is_sent_and_only_if_nobody_wrote_in_between() {
        let nodes = Some(NodeSummary {
            total_num: 2,
            ready_num: 2,
        });
        assert_eq!(
            patch(&reported(), &Findings { nodes, ..found() }),
            Some(json!({
                "metadata": {"resourceVersion": "7"},
                "status": {"nodeSummary": {"readyNum": 2}},
            }))
        );
    }

    #[test]
    fn a_failed_collection_clears_nothing() {
        let full = cluster(&json!({
            "kubernetesVersion": "v1.33.0",
            "apiEnablements": [{"groupVersion": "v1", "resources": []}],
            "nodeSummary": {"totalNum": 3, "readyNum": 3},
            "resourceSummary": {"allocatable": {"cpu": "4"}},
        }));
        assert_eq!(patch(&full, &Findings::default()), None);
    }

    #[test]
    fn conditions_and_fields_of_others_survive() {
        let theirs = json!({"type": "Drained", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let shared = cluster(&json!({"conditions": [theirs], "remedyActions": ["TrafficControl"]}));
        let patch = patch(&shared, &found()).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["type"], "Drained");
        assert_eq!(patch["status"]["conditions"][1]["type"], READY);
        assert!(patch["status"].get("remedyActions").is_none());
    }

    #[test]
    fn a_condition_that_is_taken_back_is_removed_and_the_others_stay() {
        let findings = Findings {
            retired: vec![READY.to_owned(), "Missing".to_owned()],
            ..Findings::default()
        };
        let other = json!({"type": "Drained", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut before = reported();
        let listed = &mut before.status.as_mut().unwrap().conditions;
        listed.push(serde_json::from_value(other).unwrap());
        let patch = patch(&before, &findings).unwrap();
        let left = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0]["type"], "Drained");
    }

    #[test]
    fn a_resource_that_no_node_offers_any_more_is_taken_out_of_the_sum() {
        let before =
            cluster(&json!({"resourceSummary": {"allocatable": {"cpu": "4", "gpu": "1"}}}));
        let resources = serde_json::from_value(json!({"allocatable": {"cpu": "4"}})).unwrap();
        let patch = patch(
            &before,
            &Findings {
                resources,
                ..Findings::default()
            },
        )
        .unwrap();
        let expected = json!({"resourceSummary": {"allocatable": {"gpu": null}}});
        assert_eq!(patch["status"], expected);
    }
}
