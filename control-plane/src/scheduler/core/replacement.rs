//! Keeps the copies that a new placement drops until the new ones are healthy, where no edit of the
//! policy has taken them away.

use jiff::Timestamp;
use muster_shared::api::binding::{
    GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
};
use muster_shared::api::policy::PurgeMode;
use muster_shared::k8s::Time;
use muster_shared::names::eviction::{PRODUCER_SCHEDULER, REASON_PLACEMENT_CHANGED};
use muster_shared::text;
use muster_shared::watch::Presence;

use super::cycle::{is_reschedule_requested, matches};
use super::need::Need;
use super::snapshot::Snapshot;
use super::{Decision, Options};
use crate::fleet::copy::ready_replicas;
use crate::fleet::fencing;

/// Length of a task's message at most, by the schema.
const LONGEST_MESSAGE: usize = 1024;

/// Reason for which a new placement keeps the copies that it drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it.
    Requested,
    /// The affinity group in use has no room any more, or has lost a cluster, and another one takes
    /// its place.
    GroupSwitched {
        /// The group in use until now.
        from: String,
        /// The group in use from now on.
        to: String,
    },
    /// The workload asks for more replicas than its clusters have, and other clusters take them
    /// all.
    Grown,
    /// Clusters changed, by another label or region for example, and nobody edited the policy.
    ClustersChanged {
        /// The clusters that do not match the placement any more.
        unmatched: Vec<String>,
        /// Whether the others are given up by an edit that asks for fewer replicas.
        is_resized: bool,
    },
}

impl Cause {
    /// Returns the cause for which `decision` keeps what it drops; `None` if it drops at once, as
    /// an edit of the policy does (Karmada behaviour), and one of the template that asks for
    /// nothing: no other copy will ever replace what runs.
    pub fn of(
        need: Need,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        decision: &Decision,
        (snapshot, options): (&Snapshot, &Options),
    ) -> Option<Self> {
        let dropped = dropped(spec, &decision.clusters);
        if dropped.is_empty() || decision.clusters.is_empty() {
            return None;
        }
        if is_reschedule_requested(spec, status) {
            return Some(Self::Requested);
        }
        if need == Need::PlacementChanged {
            return None;
        }
        let groups = status.scheduler_observed_affinity_name.as_ref();
        let groups = groups.zip(decision.affinity_name.as_ref());
        if let Some((from, to)) = groups.filter(|(from, to)| from != to) {
            return Some(Self::GroupSwitched {
                from: from.clone(),
                to: to.clone(),
            });
        }
        let group = decision.affinity_name.as_deref().unwrap_or_default();
        let names = dropped.into_iter().map(|it| it.name.as_str());
        let unmatched = names.filter(|it| !matches(spec, status, (snapshot, options), group, it));
        let unmatched: Vec<String> = unmatched.map(str::to_owned).collect();
        // A new number of replicas does not give up copies that run without a share.
        let is_resized = need == Need::ReplicasChanged && !runs_undivided(spec, status);
        // A request for more replicas gives up none of those that run.
        let grows = is_resized && grows(spec);
        if is_resized && unmatched.is_empty() {
            return grows.then_some(Self::Grown);
        }
        Some(Self::ClustersChanged {
            unmatched,
            is_resized: is_resized && !grows,
        })
    }

    /// Returns whether the copy in a dropped cluster stays until there are others.
    pub fn keeps(&self, cluster: &str) -> bool {
        match self {
            Self::Requested | Self::GroupSwitched { .. } | Self::Grown => true,
            Self::ClustersChanged {
                unmatched,
                is_resized,
            } => !is_resized || unmatched.iter().any(|it| it == cluster),
        }
    }

    fn message(&self, cluster: &str) -> String {
        match self {
            Self::Requested => {
                format!("{cluster} is no target any more since a new placement was requested")
            }
            Self::GroupSwitched { from, to } => format!(
                "{cluster} is no target any more since affinity group {to} took the place of {from}"
            ),
            Self::Grown => format!(
                "{cluster} is no target any more since the workload asks for more replicas than it \
                 had, and others were chosen"
            ),
            Self::ClustersChanged { unmatched, .. } if unmatched.iter().any(|it| it == cluster) => {
                format!("{cluster} does not match the placement any more")
            }
            Self::ClustersChanged { .. } => format!(
                "{cluster} is no target any more since the clusters of the fleet changed, and \
                 others were chosen"
            ),
        }
    }
}

/// Returns the eviction tasks of a binding after a new placement with a [`Cause`]: those that it
/// has, and one for each cluster that the placement drops. `None` if it drops none, or if old
/// copies are not kept.
///
/// Karmada deletes the old copies at once, so that nothing runs until the new ones have started.
pub fn tasks(
    cause: &Cause,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    chosen: &[TargetCluster],
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<Vec<GracefulEvictionTask>> {
    // Where no cluster is new, no fence has to wait for the end of a copy, and it may be the last.
    let is_new = |it: &TargetCluster| spec.target(&it.name).is_none();
    let is_withdrawn = matches!(cause, Cause::ClustersChanged { .. }) && !chosen.iter().any(is_new);
    let purge_mode = purge_mode(spec).or_else(|| is_withdrawn.then_some(PurgeMode::Gracefully))?;
    let mut after = spec.clone();
    let stays = |it: &&TargetCluster| can_keep(snapshot, &it.name) && cause.keeps(&it.name);
    for old in dropped(spec, chosen).into_iter().filter(stays) {
        let from = &old.name;
        let message = cause.message(from);
        let reason = REASON_PLACEMENT_CHANGED;
        after.take_out_anew(task(from, &purge_mode, reason, &message, now));
    }
    changed(spec, status, after.graceful_eviction_tasks)
}

/// Returns the eviction task that keeps the copy in a cluster which is no target any more, as the
/// scheduler makes it.
pub fn task(
    from: &str,
    purge_mode: &PurgeMode,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> GracefulEvictionTask {
    GracefulEvictionTask {
        from_cluster: from.to_owned(),
        suppress_deletion: (*purge_mode == PurgeMode::Never).then_some(true),
        purge_mode: Some(purge_mode.clone()),
        reason: reason.to_owned(),
        producer: PRODUCER_SCHEDULER.to_owned(),
        message: Some(text::cut(message, LONGEST_MESSAGE, "")),
        creation_timestamp: Some(Time(now)),
        ..GracefulEvictionTask::default()
    }
}

/// Returns new eviction tasks of a binding; `None` if it has the same already. The one that brought
/// a state which no copy has used yet comes last: the next copy is given that of the last task
/// (Karmada's rule).
pub fn changed(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    mut tasks: Vec<GracefulEvictionTask>,
) -> Option<Vec<GracefulEvictionTask>> {
    if tasks == spec.graceful_eviction_tasks {
        return None;
    }
    let reports = &status.aggregated_status;
    let leaves = |it: &&TargetCluster| tasks.iter().any(|task| task.from_cluster == it.name);
    let mut left = spec.clusters.iter().filter(leaves);
    let is_unused = left.any(|it| spec.unused_state(&it.name, reports).is_some());
    if let Some(brought) = spec.graceful_eviction_tasks.last().filter(|_| is_unused) {
        tasks.sort_by_key(|task| task.from_cluster == brought.from_cluster);
    }
    Some(tasks)
}

/// Returns whether a workload asks for more replicas than its clusters have: together, or each
/// where they are not divided. One that is scaled from zero has none to keep.
pub(super) fn grows(spec: &ResourceBindingSpec) -> bool {
    let shares = spec.clusters.iter().map(|it| i64::from(it.replicas));
    let placed: i64 = match spec.placement.as_deref() {
        Some(placement) if placement.is_divided() => shares.sum(),
        _ => shares.max().unwrap_or(0),
    };
    placed > 0 && i64::from(spec.replicas) > placed
}

/// Returns whether pods of a workload run although its replicas are not divided yet.
fn runs_undivided(spec: &ResourceBindingSpec, status: &ResourceBindingStatus) -> bool {
    spec.is_undivided() && as_it_runs(spec, status).iter().any(|it| it.replicas > 0)
}

/// Returns the clusters of a workload whose replicas nobody has divided yet, with those that are
/// reported to be ready there.
pub fn as_it_runs(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
) -> Vec<TargetCluster> {
    let mut clusters = spec.clusters.clone();
    for report in &status.aggregated_status {
        let ready = report.status.as_ref().and_then(|it| ready_replicas(&it.0));
        let mut targets = clusters.iter_mut();
        let target = targets.find(|it| it.name == report.cluster_name);
        if let (Some(target), Some(ready)) = (target, ready) {
            target.replicas = ready.try_into().unwrap_or(i32::MAX);
        }
    }
    clusters
}

/// Returns the targets that a new placement drops.
pub fn dropped<'a>(
    spec: &'a ResourceBindingSpec,
    chosen: &[TargetCluster],
) -> Vec<&'a TargetCluster> {
    let is_chosen = |old: &TargetCluster| chosen.iter().any(|new| new.name == old.name);
    let old = spec.clusters.iter();
    old.filter(|it| !is_chosen(it)).collect()
}

/// Returns whether a copy in a cluster can be kept. One goes with a cluster that is being removed;
/// one that cannot be read may well be there.
pub(in crate::scheduler) fn can_keep(snapshot: &Snapshot, cluster: &str) -> bool {
    match snapshot.presence(cluster) {
        Presence::There(cluster) => !cluster.is_deleting(),
        Presence::Gone => false,
        Presence::Unknown(_) => true,
    }
}

/// Returns what becomes of old copies when somebody asks for a new placement: `Gracefully` or
/// `Never`, or `None` if the policy allows no old copy beside a new one. A workload that runs in
/// several clusters may run in several.
pub fn purge_mode(spec: &ResourceBindingSpec) -> Option<PurgeMode> {
    let (cluster, application) = (spec.cluster_failover(), spec.application_failover());
    let of_cluster = cluster.and_then(|it| it.purge_mode.as_ref());
    let of_application = application.and_then(|it| it.purge_mode.as_ref());
    let modes = [of_cluster, of_application].map(|mode| mode.map(PurgeMode::canonical));
    let has = |mode| modes.contains(&Some(&mode));
    let is_alone = spec.clusters.len() < 2;
    let goes_first = has(PurgeMode::Directly);
    // What is reported of clusters that are left counts for more than what is reported of an
    // application that fails: a copy that was deleted does not come back.
    let stays = modes[0] == Some(&PurgeMode::Never) || has(PurgeMode::Never) && !goes_first;
    if fencing::runs_alone(spec) {
        None
    } else if stays {
        Some(PurgeMode::Never)
    } else if goes_first && is_alone {
        None
    } else {
        Some(PurgeMode::Gracefully)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    #[test]
    fn whoever_asks_for_more_than_there_is_grows_and_each_copy_counts_that_is_not_divided() {
        let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
        let copies = json!({});
        for (placement, replicas, placed_there, expected) in [
            (&divided, 5, &[("a", 2), ("b", 2)][..], true),
            (&divided, 3, &[("a", 2), ("b", 2)], false),
            (&copies, 3, &[("a", 2), ("b", 2)], true),
            (&copies, 2, &[("a", 2), ("b", 2)], false),
            (&copies, 1, &[("a", 2)], false),
            // One that is scaled from zero has none to keep.
            (&copies, 3, &[("a", 0)], false),
            (&divided, 3, &[], false),
        ] {
            let spec = placed(deployment(replicas, placement), placed_there);
            assert_eq!(grows(&spec), expected, "{replicas} of {placed_there:?}");
        }
    }

    /// Returns the tasks after a move from `a` and `b` to `chosen`, as cluster and purge mode.
    fn kept(failover: &Value, chosen: &[&str], has_left: bool) -> String {
        kept_of(&[("a", 2), ("b", 2)], failover, chosen, has_left)
    }

    fn kept_of(old: &[(&str, i32)], failover: &Value, chosen: &[&str], has_left: bool) -> String {
        let mut spec = placed(deployment(4, &json!({})), old);
        spec.failover = serde_json::from_value(failover.clone()).unwrap();
        let chosen = placed(
            spec.clone(),
            &chosen.iter().map(|it| (*it, 1)).collect::<Vec<_>>(),
        );
        let mut clusters = snapshot(&[cluster("b", 10), cluster("c", 10)]);
        if has_left {
            clusters.depart("a");
        }
        let now = Timestamp::UNIX_EPOCH;
        let (cause, status) = (Cause::Requested, ResourceBindingStatus::default());
        let tasks = tasks(&cause, &spec, &status, &chosen.clusters, &clusters, now);
        let mut reported = Vec::new();
        for task in tasks.unwrap_or_default() {
            let mode = task.purge_mode.unwrap();
            assert_eq!(task.replicas, Some(2));
            let is_never = mode == PurgeMode::Never;
            assert_eq!(task.suppress_deletion, is_never.then_some(true));
            reported.push(format!("{}={mode}", task.from_cluster));
        }
        reported.join(" ")
    }

    #[test]
    fn a_kept_copy_is_reported_with_whom_it_gave_way_to_and_since_when() {
        let spec = placed(deployment(4, &json!({})), &[("a", 2)]);
        let chosen = placed(deployment(4, &json!({})), &[("b", 2)]).clusters;
        let clusters = snapshot(&[cluster("a", 10), cluster("b", 10)]);
        let now = Timestamp::from_second(60).unwrap();
        let status = ResourceBindingStatus::default();
        let switched = Cause::GroupSwitched {
            from: "home".to_owned(),
            to: "away".to_owned(),
        };
        for (cause, since) in [
            (Cause::Requested, "a new placement was requested"),
            (switched, "affinity group away took the place of home"),
        ] {
            let message = format!("a is no target any more since {since}");
            let reported = tasks(&cause, &spec, &status, &chosen, &clusters, now);
            let expected = json!([{
                "fromCluster": "a", "purgeMode": "Gracefully", "replicas": 2,
                "reason": "PlacementChanged", "message": message, "producer": "Scheduler",
                "creationTimestamp": "1970-01-01T00:01:00Z",
            }]);
            assert_eq!(json!(reported), expected);
        }
    }

    #[test]
    fn a_copy_that_runs_is_not_given_the_state_that_another_one_has_not_used() {
        let mut spec = placed(deployment(4, &json!({})), &[("a", 2), ("b", 2)]);
        let brought = json!([{
            "fromCluster": "m", "purgeMode": "Directly", "reason": "ApplicationFailure",
            "producer": "p", "preservedLabelState": {"job": "7f"}, "clustersBeforeFailover": ["m"],
        }]);
        spec.graceful_eviction_tasks = serde_json::from_value(brought).unwrap();
        for (health, is_given) in [("Unhealthy", true), ("Healthy", false)] {
            let status = json!({"aggregatedStatus": [{"clusterName": "a", "health": health}]});
            let status: ResourceBindingStatus = serde_json::from_value(status).unwrap();
            let mut after = spec.clone();
            after.take_out(GracefulEvictionTask {
                from_cluster: "b".to_owned(),
                purge_mode: Some(PurgeMode::Gracefully),
                ..GracefulEvictionTask::default()
            });
            let tasks = changed(&spec, &status, after.graceful_eviction_tasks);
            after.graceful_eviction_tasks = tasks.unwrap();
            assert_eq!(after.state_given("a").is_some(), is_given, "{health}");
        }
    }

    #[test]
    fn a_dropped_copy_is_kept_unless_the_policy_allows_no_two() {
        let cluster = |mode: &str| json!({"cluster": {"purgeMode": mode}});
        let failing = json!({"application": {"decisionConditions": {}, "purgeMode": "Directly"}});
        let fenced = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
        let modes = |cluster: &str, application: &str| {
            json!({
                "cluster": {"purgeMode": cluster},
                "application": {"decisionConditions": {}, "purgeMode": application},
            })
        };
        let never = modes("Never", "Directly");
        let none = Value::Null;
        let (first, both) = ("a=Gracefully", "a=Gracefully b=Gracefully");
        for (what, failover, chosen, expected) in [
            ("all move", &none, &["c"][..], both),
            ("one stays", &none, &["b", "c"], first),
            ("none is dropped", &none, &["a", "b"], ""),
            ("graceful", &cluster("Graciously"), &["b"], first),
            ("never removed", &cluster("Never"), &["b"], "a=Never"),
            ("two as before", &cluster("Immediately"), &["b"], first),
            ("two modes", &modes("Immediately", "Never"), &["c"], both),
            ("failing, two stay", &never, &["c"], "a=Never b=Never"),
            ("failing, two as before", &failing, &["c"], both),
            ("fenced", &fenced, &["b"], ""),
        ] {
            assert_eq!(kept(failover, chosen, false), expected, "{what}");
        }
        let with_its_cluster = kept(&none, &["c"], true);
        assert_eq!(with_its_cluster, "b=Gracefully", "one goes with it");
        for (what, failover, expected) in [
            ("never two", cluster("Immediately"), ""),
            ("never two of one that fails", failing, ""),
            ("it stays in spite of that", never, "a=Never"),
            ("graceful", none, first),
        ] {
            let found = kept_of(&[("a", 2)], &failover, &["b"], false);
            assert_eq!(found, expected, "{what}");
        }
    }
}
