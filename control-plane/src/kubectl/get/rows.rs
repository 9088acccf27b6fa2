//! A cluster and a workload as a line. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::{Lease, ResourceExt as _};
use muster_shared::names::condition;
use muster_shared::self_report::AgentReport;
use serde::Serialize;

use super::Named;
use crate::eviction::any_binding::AnyBinding;
use crate::eviction::explain;
use crate::fleet::availability::concern;
use crate::kubectl::status::{SILENT, ago};
use crate::kubectl::table::{Table, shortened};
use crate::pause::Pause;

/// Letters of a reason in the table.
const LONGEST: usize = 80;

/// A cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterRow {
    name: String,
    /// Status of condition Ready.
    ready: String,
    reason: String,
    /// Condition by which a cluster that is ready needs attention.
    concern: Option<String>,
    since: Option<Timestamp>,
    /// Last renewal of its lease, by the clock of the member.
    last_heard: Option<Timestamp>,
    taints: Vec<String>,
    /// Whether movement out of it is paused, by itself or with the fleet.
    paused: bool,
    ready_nodes: Option<i32>,
    nodes: Option<i32>,
    /// Workloads placed there; `null` if they could not be read.
    workloads: Option<usize>,
    sync_mode: String,
    region: Option<String>,
    kubernetes: Option<String>,
    /// Version of Muster's agent.
    agent: Option<String>,
}

impl ClusterRow {
    /// The row of a cluster. `is_unheard`: it is silent, and no leader acts to say so. `is_paused`:
    /// all movement is paused.
    pub fn of(
        cluster: &Cluster,
        lease: Option<&Lease>,
        (is_unheard, is_paused): (bool, bool),
        counts: Option<&BTreeMap<String, usize>>,
        now: Timestamp,
    ) -> Self {
        let name = cluster.name_any();
        let ready = cluster.condition(condition::READY);
        let is_ready = ready.is_some_and(|it| it.status == conditions::TRUE);
        let is_unheard = is_ready && is_unheard;
        let concern = concern(cluster).filter(|_| is_ready && !is_unheard);
        let (told, reason) = if is_unheard {
            (conditions::UNKNOWN, SILENT)
        } else {
            ready.map_or((conditions::UNKNOWN, "NeverReported"), |it| {
                (&*it.status, &*it.reason)
            })
        };
        let since = concern.or(ready).filter(|_| !is_unheard);
        let status = cluster.status.as_ref();
        let nodes = status.and_then(|it| it.node_summary);
        let renewed = lease.and_then(|it| it.spec.as_ref()?.renew_time.as_ref());
        let version = status.and_then(|it| it.kubernetes_version.clone());
        Self {
            ready: told.to_owned(),
            reason: reason.to_owned(),
            concern: concern.map(|it| format!("{}={}", it.type_, it.status)),
            since: since.map(|it| it.last_transition_time.0),
            last_heard: renewed.map(|it| it.0),
            taints: cluster
                .spec
                .taints
                .iter()
                .map(|it| format!("{}:{}", it.key, it.effect))
                .collect(),
            paused: is_paused || Pause::of_cluster(cluster).is_some_and(|it| it.holds(now)),
            ready_nodes: nodes.map(|it| it.ready_num),
            nodes: nodes.map(|it| it.total_num),
            workloads: counts.map(|it| it.get(&name).copied().unwrap_or(0)),
            sync_mode: format!("{:?}", cluster.spec.sync_mode),
            region: cluster.spec.region.clone(),
            kubernetes: version.filter(|it: &String| !it.is_empty()),
            agent: lease.and_then(AgentReport::of).map(|it| it.version),
            name,
        }
    }
}

impl Named for ClusterRow {
    fn name(&self) -> String {
        format!("cluster.cluster.karmada.io/{}", self.name)
    }
}

/// Workloads by cluster that they are placed on.
pub(super) fn counts(bindings: &[AnyBinding]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for target in bindings.iter().flat_map(|it| &it.spec().clusters) {
        *counts.entry(target.name.clone()).or_default() += 1;
    }
    counts
}

/// The table, with the pause of the fleet, and what its marks mean.
pub(super) fn clusters(
    rows: &[ClusterRow],
    pause: Option<&Pause>,
    wide: bool,
    now: Timestamp,
) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::new([
        "NAME",
        "READY",
        "REASON",
        "SINCE",
        "HEARD",
        "NODES",
        "WORKLOADS",
        "TAINTS",
    ]);
    let mut more = Table::new([
        "NAME",
        "READY",
        "REASON",
        "SINCE",
        "HEARD",
        "NODES",
        "WORKLOADS",
        "MODE",
        "REGION",
        "KUBERNETES",
        "AGENT",
        "TAINTS",
    ]);
    for row in rows {
        let ready = if row.paused {
            format!("{},Paused", row.ready)
        } else {
            row.ready.clone()
        };
        let nodes = row.ready_nodes.zip(row.nodes);
        let mark = if row.ready == conditions::TRUE {
            ""
        } else {
            "?"
        };
        let nodes = or_none(nodes.map(|(ready, all)| format!("{ready}/{all}{mark}")));
        let workloads = or_none(row.workloads.map(|it| it.to_string()));
        let taints = if row.taints.is_empty() {
            "-".to_owned()
        } else {
            row.taints.join(",")
        };
        let (since, heard) = (ago(row.since, now), ago(row.last_heard, now));
        let reason = row.concern.as_ref().unwrap_or(&row.reason).clone();
        let name = row.name.clone();
        if wide {
            more.row([
                name,
                ready,
                reason,
                since,
                heard,
                nodes,
                workloads,
                row.sync_mode.clone(),
                or_none(row.region.clone()),
                or_none(row.kubernetes.clone()),
                or_none(row.agent.clone()),
                taints,
            ]);
        } else {
            table.row([name, ready, reason, since, heard, nodes, workloads, taints]);
        }
    }
    let mut text = if wide {
        more.to_string()
    } else {
        table.to_string()
    };
    if let Some(pause) = pause {
        let _ = write!(text, "\nPAUSED: {pause}\n");
    }
    if rows
        .iter()
        .any(|it| it.ready != conditions::TRUE && it.nodes.is_some())
    {
        text.push_str("\n?: as the cluster reported last, which is not ready now.\n");
    }
    text
}

/// A workload.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadRow {
    namespace: Option<String>,
    kind: String,
    name: String,
    clusters: Vec<String>,
    /// Clusters whose copies are being replaced.
    leaving: Vec<String>,
    /// `Placed`, `Moving`, `Unplaced`, `Unknown`, or the reason of a pending eviction.
    state: String,
    since: Option<Timestamp>,
    message: String,
    binding: String,
}

impl WorkloadRow {
    pub fn of(binding: &AnyBinding) -> Self {
        let (spec, status) = (binding.spec(), binding.status());
        let holds = |kind: &str, wanted: &str| {
            conditions::get(&status.conditions, kind).filter(|it| it.status == wanted)
        };
        let pending = holds(explain::CONDITION, conditions::TRUE);
        let unplaced = holds(condition::SCHEDULED, conditions::FALSE);
        let unknown = holds(condition::FULLY_APPLIED, conditions::UNKNOWN);
        let task = spec.graceful_eviction_tasks.first();
        let created = task.and_then(|it| it.creation_timestamp.as_ref());
        let (state, told) = match (pending, unplaced, unknown) {
            (Some(pending), ..) => (pending.reason.clone(), Some(pending)),
            (_, Some(unplaced), _) => ("Unplaced".to_owned(), Some(unplaced)),
            _ if task.is_some() => ("Moving".to_owned(), None),
            (_, _, Some(unknown)) => ("Unknown".to_owned(), Some(unknown)),
            _ if spec.clusters.is_empty() => ("Unplaced".to_owned(), None),
            _ => ("Placed".to_owned(), None),
        };
        let since = told.map(|it| it.last_transition_time.0);
        let each = |name: &str, replicas: i32| match replicas {
            0 => name.to_owned(),
            _ => format!("{name}({replicas})"),
        };
        let resource = &spec.resource;
        Self {
            namespace: resource.namespace.clone().filter(|it| !it.is_empty()),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
            clusters: spec
                .clusters
                .iter()
                .map(|it| each(&it.name, it.replicas))
                .collect(),
            leaving: spec
                .graceful_eviction_tasks
                .iter()
                .map(|it| it.from_cluster.clone())
                .collect(),
            state,
            since: since.or_else(|| created.map(|it| it.0)),
            message: told.map(|it| it.message.clone()).unwrap_or_default(),
            binding: binding.key().to_string(),
        }
    }

    /// Whether it is on a cluster or leaves it.
    pub fn concerns(&self, cluster: &str) -> bool {
        let placed = self.clusters.iter().filter_map(|it| it.split('(').next());
        let leaving = self.leaving.iter().map(String::as_str);
        placed.chain(leaving).any(|it| it == cluster)
    }
}

impl Named for WorkloadRow {
    fn name(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

pub(super) fn workloads(rows: &[WorkloadRow], wide: bool, now: Timestamp) -> String {
    let mut table = Table::new([
        "NAMESPACE",
        "WORKLOAD",
        "CLUSTERS",
        "LEAVING",
        "STATE",
        "SINCE",
    ]);
    let mut more = Table::new([
        "NAMESPACE",
        "WORKLOAD",
        "CLUSTERS",
        "LEAVING",
        "STATE",
        "SINCE",
        "WHY",
    ]);
    let list = |names: &[String]| match names {
        [] => "-".to_owned(),
        names => names.join(","),
    };
    for row in rows {
        let cells = [
            row.namespace.clone().unwrap_or_else(|| "-".to_owned()),
            row.name(),
            list(&row.clusters),
            list(&row.leaving),
            row.state.clone(),
            ago(row.since, now),
        ];
        if wide {
            let [namespace, name, clusters, leaving, state, since] = cells;
            let why = shortened(&row.message, LONGEST);
            more.row([namespace, name, clusters, leaving, state, since, why]);
        } else {
            table.row(cells);
        }
    }
    if wide {
        more.to_string()
    } else {
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::api::binding::ResourceBinding;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn binding(conditions: &Value, leaving: Option<&str>) -> AnyBinding {
        let tasks: Vec<Value> = leaving
            .iter()
            .map(|from| {
                json!({
                    "fromCluster": from, "reason": "TaintUntolerated", "producer": "TaintManager",
                    "creationTimestamp": "2026-01-01T00:09:00Z",
                })
            })
            .collect();
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": {"name": "web-deployment", "namespace": "shop"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
                "clusters": [{"name": "m1", "replicas": 2}], "gracefulEvictionTasks": tasks,
            },
            "status": {"conditions": conditions},
        }))
        .unwrap();
        AnyBinding::from(Arc::new(binding))
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!([{
            "type": kind, "status": status, "reason": reason, "message": "because",
            "lastTransitionTime": "2026-01-01T00:05:00Z",
        }])
    }

    #[test]
    fn the_state_of_a_workload_is_what_somebody_has_to_know_first() {
        for (conditions, leaving, state, since) in [
            (json!([]), None, "Placed", "-"),
            (json!([]), Some("m2"), "Moving", "60s"),
            (
                condition("EvictionPending", "True", "NowhereToGo"),
                Some("m2"),
                "NowhereToGo",
                "5m0s",
            ),
            (
                condition("EvictionPending", "False", "Evicted"),
                None,
                "Placed",
                "-",
            ),
            (
                condition("Scheduled", "False", "NoClusterFit"),
                None,
                "Unplaced",
                "5m0s",
            ),
            (
                condition("FullyApplied", "Unknown", "ClustersNotHeard"),
                None,
                "Unknown",
                "5m0s",
            ),
        ] {
            let row = WorkloadRow::of(&binding(&conditions, leaving));
            assert_eq!(row.state, state, "{conditions}");
            assert_eq!(ago(row.since, NOW.parse().unwrap()), since, "{conditions}");
            assert!(row.concerns("m1") && !row.concerns("m"));
            assert_eq!(row.concerns("m2"), leaving.is_some());
        }
    }

    #[test]
    fn a_workload_is_a_line_and_with_wide_its_reason_too() {
        let rows = [WorkloadRow::of(&binding(
            &condition("EvictionPending", "True", "NowhereToGo"),
            None,
        ))];
        assert_eq!(
            workloads(&rows, true, NOW.parse().unwrap()),
            "NAMESPACE   WORKLOAD         CLUSTERS   LEAVING   STATE         SINCE   WHY\n\
             shop        deployment/web   m1(2)      -         NowhereToGo   5m0s    because\n"
        );
    }

    #[test]
    fn a_cluster_that_is_silent_says_since_when_and_how_many_workloads_it_has() {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "m1"},
            "spec": {"syncMode": "Pull", "taints": [{"key": "a", "effect": "NoExecute"}]},
            "status": {
                "kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 3, "readyNum": 2},
                "conditions": condition("Ready", "Unknown", "ClusterStatusUnknown"),
            },
        }))
        .unwrap();
        let lease: Lease =
            serde_json::from_value(json!({"spec": {"renewTime": "2026-01-01T00:04:20.000000Z"}}))
                .unwrap();
        let counts = counts(&[binding(&json!([]), None)]);
        let now: Timestamp = NOW.parse().unwrap();
        let row = ClusterRow::of(&cluster, Some(&lease), (false, false), Some(&counts), now);
        let rows = [row];
        assert_eq!(
            clusters(&rows, None, false, now),
            "NAME   READY     REASON                 SINCE   HEARD   NODES   WORKLOADS   TAINTS\n\
             m1     Unknown   ClusterStatusUnknown   5m0s    5m40s   2/3?    1           a:NoExecute\n\n\
             ?: as the cluster reported last, which is not ready now.\n"
        );
        let wide = clusters(&rows, None, true, now);
        assert!(
            wide.contains("Pull   -        v1.36.0      -       a:NoExecute"),
            "{wide}"
        );
    }

    #[test]
    fn a_cluster_that_is_silent_while_nobody_judges_is_not_told_to_be_ready() {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
            "status": {"conditions": condition("Ready", "True", "ClusterReady")},
        }))
        .unwrap();
        for (is_unheard, expected) in [
            (true, ("Unknown", "SilentAndNotJudged", false)),
            (false, ("True", "ClusterReady", true)),
        ] {
            let now = NOW.parse().unwrap();
            let row = ClusterRow::of(&cluster, None, (is_unheard, false), None, now);
            assert_eq!((&*row.ready, &*row.reason, row.since.is_some()), expected);
        }
    }

    #[test]
    fn a_pause_of_the_fleet_marks_each_cluster_and_one_that_is_over_marks_none() {
        let now: Timestamp = NOW.parse().unwrap();
        let row = |pause: &str, is_paused| {
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": {"name": "m1", "annotations": {"failover.muster.io/paused": pause}},
                "spec": {"syncMode": "Pull"},
                "status": {"conditions": condition("Ready", "True", "ClusterReady")},
            }))
            .unwrap();
            ClusterRow::of(&cluster, None, (false, is_paused), None, now)
        };
        let over = r#"{"until": "2026-01-01T00:09:00Z"}"#;
        for (pause, is_paused, expected) in [
            ("disks", false, true),
            (over, false, false),
            (over, true, true),
        ] {
            assert_eq!(
                row(pause, is_paused).paused,
                expected,
                "{pause} {is_paused}"
            );
        }
        let pause = Pause {
            by: "ann".to_owned(),
            ..Pause::default()
        };
        let text = clusters(&[row(over, true)], Some(&pause), false, now);
        assert!(text.contains("m1     True,Paused"), "{text}");
        assert!(
            text.ends_with("\nPAUSED: all movement is paused by ann until somebody resumes it\n"),
            "{text}"
        );
    }
}
