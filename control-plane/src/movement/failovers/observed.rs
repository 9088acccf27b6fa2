//! Reads from a binding what happened to its workload: moves, whether it is healthy, where old
//! copies are left, and why it could not leave.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceHealth, TargetCluster,
};
use muster_shared::api::failover_record::{FailoverWorkload, Subject};
use muster_shared::clock::whole_second;
use muster_shared::conditions;
use muster_shared::text;

use crate::fleet::binding::BindingKey;
use crate::fleet::completion::has_ended_everywhere;
use crate::movement::application_failover::history::History;
use crate::movement::eviction::explain::{CONDITION, PAUSED, STOPPED, STRANDED, names_cluster};
use crate::movement::eviction::record::Record;
use crate::movement::graceful_eviction::assess::{counts_replicas, runs_all};

/// Reasons of the condition `EvictionPending` of a workload that has somewhere to go, and is kept
/// from it until enough clusters return or somebody ends a pause.
const HELD: [&str; 2] = [STOPPED, PAUSED];
/// A message is cut at so many bytes: there are as many as workloads are stranded.
const LONGEST_MESSAGE: usize = 256;

/// A move that a binding remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Part of the cluster that failed.
    pub subject: Subject,
    /// Cluster that was left.
    pub from: String,
    /// Clusters that the workload was placed in, separated by commas.
    pub to: String,
    /// Time of the write, in whole seconds.
    pub at: Timestamp,
    /// Beginning of the cause, where the binding knows it.
    pub since: Option<Timestamp>,
    /// Explanation of the cause.
    pub cause: String,
}

/// Reason why a workload does not leave a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranding {
    /// Reason of the condition.
    pub reason: String,
    /// Beginning of its message.
    pub message: String,
}

impl Stranding {
    /// Returns whether the workload is held, as opposed to one that is stranded.
    pub fn is_held(&self) -> bool {
        HELD.contains(&self.reason.as_str())
    }
}

/// Facts about failovers that a binding shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The binding.
    pub key: BindingKey,
    /// Its workload.
    pub workload: FailoverWorkload,
    /// Clusters that it is placed in.
    pub clusters: Vec<String>,
    /// The last move by a taint and the last by application failover.
    pub moves: Vec<Moved>,
    /// Whether every cluster that it is placed in reports that it is applied. Known only with
    /// moves.
    pub is_applied: bool,
    /// Whether every cluster that it is placed in reports a healthy copy. Known only with moves.
    pub is_healthy: bool,
    /// Clusters with an eviction task.
    pub leaving: Vec<String>,
    /// Clusters with an eviction task whose copy stays until a person says otherwise (purge mode
    /// Never).
    pub kept: Vec<String>,
    /// Whether nobody waits until it is healthy: its template asks for no replicas, or it is a
    /// task, such as a Job, that has ended. One that has failed stays unhealthy.
    pub needs_no_health: bool,
    /// Why it does not leave some of its clusters: it is stranded or held there.
    pub stranding: Option<Stranding>,
}

impl Observed {
    /// Reads a binding. `least` says how many replicas a healthy copy has in a cluster at least, of
    /// its share.
    pub fn of(binding: &AnyBinding, least: &dyn Fn(&str, i32) -> i32) -> Self {
        let (spec, resource) = (&binding.spec, &binding.spec.resource);
        let moves = moves(binding);
        let tasks = spec.graceful_eviction_tasks.iter();
        let kept = tasks.clone().filter(|it| it.is_kept());
        let from = |task: &GracefulEvictionTask| task.from_cluster.clone();
        Self {
            key: BindingKey::of(binding),
            workload: FailoverWorkload {
                kind: resource.kind.clone(),
                namespace: resource.namespace.clone().filter(|it| !it.is_empty()),
                name: resource.name.clone(),
            },
            clusters: spec.clusters.iter().map(|it| it.name.clone()).collect(),
            is_applied: !moves.is_empty() && is_applied(binding),
            is_healthy: !moves.is_empty() && is_healthy(binding, least),
            kept: kept.map(from).collect(),
            leaving: tasks.map(from).collect(),
            needs_no_health: spec.is_scaled_to_zero() || has_ended(binding),
            stranding: stranding(binding),
            moves,
        }
    }

    /// Returns why the workload does not leave a cluster; `None` if nothing keeps it there.
    pub fn stranding_on(&self, cluster: &str) -> Option<&Stranding> {
        let stranding = self.stranding.as_ref()?;
        let is_there = self.clusters.iter().any(|it| it == cluster);
        (is_there && names_cluster(&stranding.message, cluster)).then_some(stranding)
    }
}

fn moves(binding: &AnyBinding) -> Vec<Moved> {
    let annotations = binding.metadata.annotations.as_ref();
    let by_taint = Record::read(annotations).map(|record| Moved {
        subject: Subject::Cluster,
        from: record.from,
        to: record.to,
        at: whole_second(record.at),
        since: None,
        cause: record.cause,
    });
    let history = History::of(binding);
    let last = history.last.zip(history.last_move);
    let by_failure = last.map(|(last, at)| Moved {
        subject: Subject::Applications,
        at: whole_second(at),
        since: Some(whole_second(last.since)),
        cause: format!(
            "applications stayed unhealthy in {}, the first since {:.0}",
            last.from, last.since
        ),
        from: last.from,
        to: last.to,
    });
    by_taint.into_iter().chain(by_failure).collect()
}

fn has_ended(binding: &AnyBinding) -> bool {
    has_ended_everywhere(&binding.spec, &binding.status().aggregated_status)
}

fn is_applied(binding: &AnyBinding) -> bool {
    all_report(binding, |_, it| it.applied)
}

fn is_healthy(binding: &AnyBinding, least: &dyn Fn(&str, i32) -> i32) -> bool {
    let counts = counts_replicas(&binding.spec, &binding.status().aggregated_status);
    all_report(binding, |target, it| {
        it.health == Some(ResourceHealth::Healthy) && runs_all(it, target.replicas, counts, least)
    })
}

/// Returns whether a workload is placed, and each of its clusters reports something of its copy.
/// One with a share of zero replicas (`--enable-empty-workload-propagation`) is not waited for.
fn all_report(
    binding: &AnyBinding,
    says: impl Fn(&TargetCluster, &AggregatedStatusItem) -> bool,
) -> bool {
    let (spec, status) = (&binding.spec, binding.status());
    let says = |it: &TargetCluster| status.report(&it.name).is_some_and(|said| says(it, said));
    !spec.clusters.is_empty() && spec.copies().all(says)
}

fn stranding(binding: &AnyBinding) -> Option<Stranding> {
    let condition = conditions::get(&binding.status().conditions, CONDITION)?;
    let reason = condition.reason.as_str();
    let stays = STRANDED.contains(&reason) || HELD.contains(&reason);
    (condition.status == conditions::TRUE && stays).then(|| Stranding {
        reason: condition.reason.clone(),
        message: text::cut(&condition.message, LONGEST_MESSAGE, "…"),
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::LAST_EVICTION;
    use serde_json::{Value, json};

    use super::*;

    fn binding(annotations: &Value, status: &Value) -> AnyBinding {
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web-deployment", "annotations": annotations },
            "spec": {
                "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web" },
                "clusters": [{ "name": "m2", "replicas": 2 }],
                "gracefulEvictionTasks": [{ "fromCluster": "m1" }],
            },
            "status": status,
        }))
        .unwrap()
    }

    fn observed(annotations: &Value, status: &Value) -> Observed {
        Observed::of(&binding(annotations, status), &|_, share| share)
    }

    #[test]
    fn the_annotations_of_both_kinds_of_eviction_report_moves() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let record = Record::new("m1", "m2", "Gracefully", "taint x:NoExecute", at);
        let history = json!({
            "moves": 1, "lastMove": at.to_string(),
            "last": { "from": "m3", "since": at.to_string(), "to": "m1", "mode": "Directly" },
        });
        let both = json!({
            LAST_EVICTION: record.write(),
            crate::movement::application_failover::history::ANNOTATION: history.to_string(),
        });
        let found = observed(&both, &json!({})).moves;
        let found: Vec<_> = found
            .iter()
            .map(|it| (&it.subject, &*it.from, &*it.to))
            .collect();
        assert_eq!(
            found,
            [
                (&Subject::Cluster, "m1", "m2"),
                (&Subject::Applications, "m3", "m1")
            ]
        );
        for odd in [json!({}), json!({ LAST_EVICTION: "{" })] {
            assert_eq!(observed(&odd, &json!({})).moves, []);
        }
    }

    #[test]
    fn a_workload_is_healthy_when_every_cluster_reports_all_replicas() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let moved = json!({ LAST_EVICTION: Record::new("m1", "m2", "", "", at).write() });
        let report = |cluster: &str, health: &str, ready: i32| {
            json!({ "aggregatedStatus": [{
                "clusterName": cluster, "applied": true, "health": health,
                "status": { "replicas": 2, "readyReplicas": ready },
            }] })
        };
        for (status, expected) in [
            (json!({}), false),
            (report("m1", "Healthy", 2), false),
            (report("m2", "Unhealthy", 2), false),
            (report("m2", "Healthy", 1), false),
            (report("m2", "Healthy", 2), true),
        ] {
            assert_eq!(observed(&moved, &status).is_healthy, expected, "{status}");
        }
    }

    #[test]
    fn nobody_waits_until_a_task_is_healthy_that_has_ended() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let moved = json!({ LAST_EVICTION: Record::new("m1", "m2", "", "", at).write() });
        let report = |cluster: &str, condition: &str| {
            json!({ "aggregatedStatus": [{
                "clusterName": cluster, "applied": true, "health": "Unhealthy",
                "status": { "conditions": [{ "type": condition, "status": "True" }] },
            }] })
        };
        for (version, kind, status, expected) in [
            ("batch/v1", "Job", report("m2", "Failed"), true),
            ("batch/v1", "Job", report("m2", "FailureTarget"), false),
            // The former copy has failed, and the new one has not reported anything.
            ("batch/v1", "Job", report("m1", "Failed"), false),
            ("batch/v1", "Job", json!({}), false),
            ("apps/v1", "Deployment", report("m2", "Failed"), false),
        ] {
            let mut binding = binding(&moved, &status);
            binding.spec.replicas = 2;
            binding.spec.resource.api_version = version.to_owned();
            binding.spec.resource.kind = kind.to_owned();
            let found = Observed::of(&binding, &|_, share| share);
            assert_eq!(found.needs_no_health, expected, "{kind} {status}");
        }
    }

    #[test]
    fn a_copy_that_a_policy_keeps_for_ever_is_told_from_one_that_is_to_go() {
        let mut leaving = json!(binding(&json!({}), &json!({})));
        leaving["spec"]["gracefulEvictionTasks"] = json!([
            { "fromCluster": "m1", "purgeMode": "Never", "suppressDeletion": true },
            { "fromCluster": "m3", "purgeMode": "Never", "suppressDeletion": false },
            { "fromCluster": "m4", "purgeMode": "Gracefully" },
        ]);
        let leaving: AnyBinding = serde_json::from_value(leaving).unwrap();
        let found = Observed::of(&leaving, &|_, share| share);
        assert_eq!(found.leaving, ["m1", "m3", "m4"]);
        assert_eq!(found.kept, ["m1"]);
    }

    #[test]
    fn a_workload_is_applied_when_every_cluster_reports_it() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let moved = json!({ LAST_EVICTION: Record::new("m1", "m2", "", "", at).write() });
        let report = |cluster: &str, applied: bool| json!({ "aggregatedStatus": [{ "clusterName": cluster, "applied": applied }] });
        for (annotations, status, expected) in [
            (&moved, json!({}), false),
            (&moved, report("m1", true), false),
            (&moved, report("m2", false), false),
            (&moved, report("m2", true), true),
            (&json!({}), report("m2", true), false),
        ] {
            assert_eq!(
                observed(annotations, &status).is_applied,
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn a_cluster_with_a_share_of_zero_replicas_need_not_report_anything() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let moved = json!({ LAST_EVICTION: Record::new("m1", "m2", "", "", at).write() });
        let status = json!({ "aggregatedStatus": [{
            "clusterName": "m2", "applied": true, "health": "Healthy",
            "status": { "replicas": 2, "readyReplicas": 2 },
        }] });
        for (share, expected) in [(0, true), (1, false)] {
            let mut binding = binding(&moved, &status);
            binding.spec.replicas = 2 + share;
            binding.spec.clusters.push(TargetCluster {
                name: "m3".to_owned(),
                replicas: share,
                ..TargetCluster::default()
            });
            let found = Observed::of(&binding, &|_, share| share);
            let found = (found.is_applied, found.is_healthy);
            assert_eq!(found, (expected, expected), "{share}");
        }
    }

    #[test]
    fn a_workload_is_stranded_where_it_has_nowhere_to_go_and_held_where_movement_is_stopped() {
        let condition = |status: &str, reason: &str, message: &str| {
            json!({ "conditions": [{
                "type": "EvictionPending", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] })
        };
        for (status, expected) in [
            (
                condition("True", "NowhereToGo", "has to leave m2 and stays"),
                Some(false),
            ),
            (
                condition("True", "NowhereToGo", "has to leave m22 and stays"),
                None,
            ),
            (
                condition("True", "StoppedByThreshold", "m2 has taint x"),
                Some(true),
            ),
            (condition("True", "Paused", "m2 has taint x"), Some(true)),
            (condition("True", "WaitingForRate", "m2 has taint x"), None),
            (condition("False", "FailoverOff", "stays on m2"), None),
            (json!({}), None),
        ] {
            let found = observed(&json!({}), &status);
            let is_held = found.stranding_on("m2").map(Stranding::is_held);
            assert_eq!(is_held, expected, "{status}");
            assert_eq!(found.stranding_on("m1"), None, "it is not there");
        }
    }
}
