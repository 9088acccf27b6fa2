//! Keeps the copies that a requested new placement drops until the new ones are healthy.

use jiff::Timestamp;
use muster_shared::api::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use muster_shared::api::policy::PurgeMode;
use muster_shared::k8s::Time;
use muster_shared::names::eviction::{PRODUCER_SCHEDULER, REASON_PLACEMENT_CHANGED};
use muster_shared::watch::Presence;

use super::snapshot::Snapshot;
use crate::fencing;

/// Returns the eviction tasks of a binding after a new placement that somebody asked for: those
/// that it has, and one for each cluster that the placement drops. `None` if it drops none, or if
/// old copies are not kept.
///
/// Karmada deletes the old copies at once, so that nothing runs until the new ones have started.
pub fn tasks(
    spec: &ResourceBindingSpec,
    chosen: &[TargetCluster],
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<Vec<GracefulEvictionTask>> {
    let purge_mode = purge_mode(spec)?;
    let mut after = spec.clone();
    let dropped = spec
        .clusters
        .iter()
        .filter(|old| chosen.iter().all(|new| new.name != old.name));
    for old in dropped.filter(|old| can_keep(snapshot, &old.name)) {
        let from = &old.name;
        // A task for a cluster that was chosen again is over.
        after
            .graceful_eviction_tasks
            .retain(|task| task.from_cluster != *from);
        after.take_out(GracefulEvictionTask {
            from_cluster: from.clone(),
            suppress_deletion: (purge_mode == PurgeMode::Never).then_some(true),
            purge_mode: Some(purge_mode.clone()),
            reason: REASON_PLACEMENT_CHANGED.to_owned(),
            producer: PRODUCER_SCHEDULER.to_owned(),
            message: Some(format!(
                "{from} is no target any more since a new placement was requested"
            )),
            creation_timestamp: Some(Time(now)),
            ..GracefulEvictionTask::default()
        });
    }
    let changed = after.graceful_eviction_tasks != spec.graceful_eviction_tasks;
    changed.then_some(after.graceful_eviction_tasks)
}

/// Whether a copy in a cluster can be kept. One goes with a cluster that is being removed.
pub(super) fn can_keep(snapshot: &Snapshot, cluster: &str) -> bool {
    match snapshot.presence(cluster) {
        Presence::There(cluster) => !cluster.is_deleting(),
        Presence::Gone => false,
        Presence::Unknown(_) => true,
    }
}

/// Returns what becomes of old copies when somebody asks for a new placement: `Gracefully` or
/// `Never`, or `None` if the policy allows no old copy beside a new one.
pub fn purge_mode(spec: &ResourceBindingSpec) -> Option<PurgeMode> {
    let failover = spec.failover.as_ref();
    let of_cluster = failover.and_then(|it| it.cluster.as_ref()?.purge_mode.as_ref());
    let of_application = failover.and_then(|it| it.application.as_ref()?.purge_mode.as_ref());
    let modes = [of_cluster, of_application].map(|mode| mode.map(PurgeMode::canonical));
    let has = |mode| modes.contains(&Some(&mode));
    if has(PurgeMode::Directly) || fencing::asked(spec).is_some() {
        None
    } else if has(PurgeMode::Never) {
        Some(PurgeMode::Never)
    } else {
        Some(PurgeMode::Gracefully)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    /// The tasks after a move from `a` and `b` to `chosen`, as cluster and purge mode.
    fn kept(failover: &Value, chosen: &[&str], has_left: bool) -> String {
        let mut spec = placed(deployment(4, &json!({})), &[("a", 2), ("b", 2)]);
        spec.failover = serde_json::from_value(failover.clone()).unwrap();
        let chosen = placed(
            spec.clone(),
            &chosen.iter().map(|it| (*it, 1)).collect::<Vec<_>>(),
        );
        let mut clusters = snapshot(&[cluster("b", 10), cluster("c", 10)]);
        if has_left {
            clusters.depart("a");
        }
        let tasks = tasks(&spec, &chosen.clusters, &clusters, Timestamp::UNIX_EPOCH);
        let mut told = Vec::new();
        for task in tasks.unwrap_or_default() {
            let mode = task.purge_mode.unwrap();
            assert_eq!(task.replicas, Some(2));
            let is_never = mode == PurgeMode::Never;
            assert_eq!(task.suppress_deletion, is_never.then_some(true));
            told.push(format!("{}={mode}", task.from_cluster));
        }
        told.join(" ")
    }

    #[test]
    fn a_dropped_copy_is_kept_unless_the_policy_allows_no_two() {
        let cluster = |mode: &str| json!({"cluster": {"purgeMode": mode}});
        let failing = json!({"application": {"decisionConditions": {}, "purgeMode": "Directly"}});
        let fenced = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
        let none = Value::Null;
        for (what, failover, chosen, has_left, expected) in [
            (
                "all move",
                &none,
                &["c"][..],
                false,
                "a=Gracefully b=Gracefully",
            ),
            ("one stays", &none, &["b", "c"], false, "a=Gracefully"),
            ("none is dropped", &none, &["a", "b"], false, ""),
            (
                "one goes with its cluster",
                &none,
                &["c"],
                true,
                "b=Gracefully",
            ),
            (
                "graceful",
                &cluster("Graciously"),
                &["b"],
                false,
                "a=Gracefully",
            ),
            ("never removed", &cluster("Never"), &["b"], false, "a=Never"),
            ("never two", &cluster("Immediately"), &["b"], false, ""),
            ("never two of one that fails", &failing, &["b"], false, ""),
            ("fenced", &fenced, &["b"], false, ""),
        ] {
            assert_eq!(kept(failover, chosen, has_left), expected, "{what}");
        }
    }
}
