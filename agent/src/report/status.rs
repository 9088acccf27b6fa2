//! Computes the patch of the Cluster's status from the present status and the collected values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_shared::api::cluster::{
    APIEnablement, APIResource, Cluster, ClusterStatus, NodeSummary, ResourceSummary,
};
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::{Condition, Quantity};
use muster_shared::merge;
use muster_shared::names::condition::{COMPLETE_API_ENABLEMENTS, READY, WORKS_UP_TO_DATE};
use muster_shared::quantity;
use serde_json::{Value, json};

use crate::discovery::catalog::{Catalog, Completeness};
use crate::health::probe::Observation;

/// Condition that tells the age of the rest of the status. Karmada has none, and overwrites values
/// that it failed to collect with empty ones (defects K6 and K7).
pub const UP_TO_DATE: &str = "StatusUpToDate";

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
    for condition in &findings.conditions {
        conditions::set(&mut next.conditions, condition.clone());
    }
    next
}

/// Returns the condition `Ready` for an observation, with Karmada's reasons and messages.
pub fn ready(observation: &Observation, now: Timestamp) -> Condition {
    let (status, reason, message) = match observation {
        Observation::Ready => (
            TRUE,
            "ClusterReady",
            "cluster is healthy and ready to accept workloads",
        ),
        Observation::NotReady { .. } => (
            FALSE,
            "ClusterNotReady",
            "cluster is reachable but health endpoint responded without ok",
        ),
        Observation::Unreachable { .. } => {
            (FALSE, "ClusterNotReachable", "cluster is not reachable")
        }
    };
    conditions::new(READY, status, reason, message, now)
}

/// Returns the kinds of a catalog as the status lists them, and how complete that is, in Karmada's
/// words. A group version that did not answer keeps what `known`, the list that was reported
/// before, has of it: an agent that has just started remembers nothing else.
pub fn enablements(
    catalog: &Catalog,
    known: &[APIEnablement],
    now: Timestamp,
) -> (Vec<APIEnablement>, Condition) {
    let mut listed: Vec<APIEnablement> = catalog
        .versions()
        .map(|(group_version, served)| APIEnablement {
            group_version: group_version.to_owned(),
            resources: served
                .iter()
                .map(|served| APIResource {
                    name: served.name.clone(),
                    kind: served.kind.clone(),
                })
                .collect(),
        })
        .collect();
    for unread in catalog.unread() {
        let known = known.iter().find(|known| known.group_version == unread);
        match (
            listed.iter_mut().find(|it| it.group_version == unread),
            known,
        ) {
            (Some(listed), Some(known)) if listed.resources.is_empty() => {
                listed.resources.clone_from(&known.resources);
            }
            (None, Some(known)) => listed.push(known.clone()),
            _ => {}
        }
    }
    listed.sort_by(|one, other| one.group_version.cmp(&other.group_version));
    let (status, reason, message) = match catalog.completeness() {
        Completeness::Complete => (
            TRUE,
            "Complete",
            "collected complete APIEnablements from the cluster".to_owned(),
        ),
        Completeness::Partial => (
            FALSE,
            "Partial",
            format!(
                "might collect partial APIEnablements({}) from the cluster",
                listed.len()
            ),
        ),
        Completeness::Empty => (
            FALSE,
            "Empty",
            "collected empty APIEnablements from the cluster".to_owned(),
        ),
    };
    (
        listed,
        conditions::new(COMPLETE_API_ENABLEMENTS, status, reason, &message, now),
    )
}

/// One part of the status, and the time since when it has not been collected (`None`: it is fresh).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// Name of the part in messages.
    pub part: &'static str,
    /// The last success; the start of the process when there was none.
    pub since: Option<Timestamp>,
}

/// Returns the condition that says which parts of the status are old. The message names points in
/// time rather than ages, so that it stays the same while nothing changes.
pub fn up_to_date(ages: &[Age], now: Timestamp) -> Condition {
    let old: Vec<String> = ages
        .iter()
        .filter_map(|age| {
            Some(format!(
                "{} not collected since {:.0}",
                age.part, age.since?
            ))
        })
        .collect();
    if old.is_empty() {
        conditions::new(
            UP_TO_DATE,
            TRUE,
            "Collected",
            "every part of the status is up to date",
            now,
        )
    } else {
        conditions::new(UP_TO_DATE, FALSE, "CollectionFailed", &old.join("; "), now)
    }
}

/// Returns the condition that says whether Works are read; `lost` has the time since when they are
/// not, and the reason. A member whose agent cannot read Works looks healthy otherwise, and
/// workloads that are placed there never start: the scheduler places nothing new there.
pub fn works_up_to_date(lost: Option<(Timestamp, String)>, now: Timestamp) -> Condition {
    match lost {
        None => conditions::new(
            WORKS_UP_TO_DATE,
            TRUE,
            "Followed",
            "the agent follows the Works of the member",
            now,
        ),
        Some((since, why)) => {
            let message = format!("the Works of the member were last read at {since:.0}: {why}");
            conditions::new(WORKS_UP_TO_DATE, FALSE, "CannotFollow", &message, now)
        }
    }
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
    use muster_shared::k8s::Time;

    use super::*;

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

    #[test]
    fn a_member_that_cannot_read_its_works_says_since_when_and_why() {
        let lost = works_up_to_date(Some((T0, "works is forbidden".to_owned())), T1);
        assert_eq!(
            (lost.status.as_str(), lost.reason.as_str()),
            (FALSE, "CannotFollow")
        );
        assert!(
            lost.message.contains("forbidden") && lost.message.contains("2027"),
            "{}",
            lost.message
        );
        assert_eq!(works_up_to_date(None, T1).status, TRUE);
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
    fn a_group_that_does_not_answer_an_agent_that_has_just_started_stays_in_the_list() {
        let enablement = |version: &str, kind: &str| APIEnablement {
            group_version: version.into(),
            resources: vec![APIResource {
                name: kind.to_lowercase(),
                kind: kind.into(),
            }],
        };
        let known = [
            enablement("metrics.k8s.io/v1beta1", "PodMetrics"),
            enablement("removed.io/v1", "Thing"),
            enablement("v1", "Pod"),
        ];
        let mut catalog = Catalog::default();
        let secret = crate::discovery::catalog::Served {
            name: "secret".into(),
            kind: "Secret".into(),
            namespaced: true,
            watchable: true,
        };
        catalog.insert("v1".into(), vec![secret]);
        catalog.insert_unread("metrics.k8s.io/v1beta1".into());
        catalog.insert_unread("never.seen.io/v1".into());
        let (listed, complete) = enablements(&catalog, &known, T0);
        assert_eq!(complete.status, "False");
        let expected = [
            enablement("metrics.k8s.io/v1beta1", "PodMetrics"),
            enablement("v1", "Secret"),
        ];
        assert_eq!(listed, expected);
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

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = vec![ready(&Observation::NotReady { code: 500 }, T0)];
        let unreachable = Observation::Unreachable {
            cause: String::new(),
        };
        conditions::set(&mut conditions, ready(&unreachable, T1));
        assert_eq!(conditions[0].last_transition_time, Time(T0));
        assert_eq!(conditions[0].reason, "ClusterNotReachable");
        conditions::set(&mut conditions, ready(&Observation::Ready, T1));
        assert_eq!(conditions[0].last_transition_time, Time(T1));
    }

    #[test]
    fn an_old_part_is_named_with_the_time_of_its_last_success() {
        let ages = [
            Age {
                part: "nodes and pods",
                since: Some(T0),
            },
            Age {
                part: "Kubernetes version",
                since: None,
            },
        ];
        let condition = up_to_date(&ages, T1);
        assert_eq!(condition.status, "False");
        assert_eq!(
            condition.message,
            format!("nodes and pods not collected since {T0}")
        );
        assert_eq!(up_to_date(&ages[1..], T1).status, "True");
    }
}
