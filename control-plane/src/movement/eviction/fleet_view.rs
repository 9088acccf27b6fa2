//! State of the clusters for evictions: which have failed, which evict workloads, and which changes
//! may help a stranded workload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::cluster::{Cluster, ClusterSpec, ClusterStatus};
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::names::condition;
use muster_shared::taints::is_of_command;
use tokio::time::Instant;

use super::room::Unreported;
use crate::fleet::availability::reads_works;
pub use crate::fleet::budget::failed::{evicts, has_failed, is_counted};
use crate::scheduler::core::{DataPlaces, Snapshot};

/// All clusters.
#[derive(Debug, Default)]
pub struct FleetView {
    clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    snapshot: Snapshot,
    unreported: Unreported,
    /// Whether taints drive nothing out.
    ignores_taints: bool,
}

/// What the change of a cluster means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Its taints or its readiness changed (or it is new): its workloads are to be judged again.
    pub taints: bool,
    /// After this time workloads that had nowhere to go should be tried again: soon when what is
    /// allowed changed, later when there only is more or less room, which is reported all the time.
    pub helps_after: Option<Duration>,
}

/// Time in which related changes of clusters arrive.
pub const SOON: Duration = Duration::from_secs(1);
/// Time after which a change that may help a little is looked at.
pub const LATER: Duration = Duration::from_secs(10);

impl FleetView {
    /// Returns a view in which taints drive nothing out.
    pub fn without_taints() -> Self {
        Self {
            ignores_taints: true,
            ..Self::default()
        }
    }

    /// Returns the view with what is known of the data of workloads.
    #[must_use]
    pub fn with_data(mut self, data: DataPlaces) -> Self {
        self.snapshot = self.snapshot.with_data(data);
        self
    }

    /// Takes a cluster in, new or changed.
    pub fn put(&mut self, cluster: &Arc<Cluster>, now: Instant) -> Effect {
        let name: Arc<str> = Arc::from(cluster.name_any());
        let old = self.clusters.insert(name, Arc::clone(cluster));
        let effect = effect(old.as_deref(), cluster);
        if effect.helps_after.is_some() {
            self.show(cluster, now);
        }
        effect
    }

    /// Takes the room of a workload that moved off the clusters that it moved to, until they report
    /// it.
    pub fn occupy(&mut self, spec: &ResourceBindingSpec, gains: &[TargetCluster], now: Instant) {
        self.unreported.take(&mut self.snapshot, spec, gains, now);
    }

    /// Gives back the room of a workload that did not move.
    pub fn vacate(&mut self, spec: &ResourceBindingSpec, gains: &[TargetCluster], now: Instant) {
        for name in self.unreported.give_back(spec, gains) {
            if let Some(cluster) = self.clusters.get(name).cloned() {
                self.show(&cluster, now);
            }
        }
    }

    /// Gives back the room of moves that should have been reported long ago. Returns whether there
    /// were any.
    pub fn settle(&mut self, now: Instant) -> bool {
        let overdue = self.unreported.overdue(now);
        for name in &overdue {
            match self.clusters.get(name).cloned() {
                Some(cluster) => self.show(&cluster, now),
                None => self.unreported.forget(name),
            }
        }
        !overdue.is_empty()
    }

    /// Returns when the room of a move is given back at the latest.
    pub fn next_settlement(&self) -> Option<Instant> {
        self.unreported.next()
    }

    fn show(&mut self, cluster: &Arc<Cluster>, now: Instant) {
        self.snapshot.put(Arc::clone(cluster));
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        self.unreported.reported(&mut self.snapshot, name, now);
    }

    /// Takes a cluster out; `left` says whether it was seen leaving the fleet, or nobody knows.
    pub fn remove(&mut self, name: &str, left: bool) {
        self.clusters.remove(name);
        self.unreported.forget(name);
        if left {
            self.snapshot.depart(name);
        } else {
            self.snapshot.remove(name);
        }
    }

    /// Returns the taints of a cluster; there are none if it is unknown.
    pub fn taints(&self, name: &str) -> &[Taint] {
        self.clusters
            .get(name)
            .filter(|_| !self.ignores_taints)
            .map_or(&[], |cluster| &cluster.spec.taints)
    }

    /// Returns the cluster of a name, with the shared text of the name.
    pub fn get(&self, name: &str) -> Option<(&Arc<str>, &Arc<Cluster>)> {
        self.clusters.get_key_value(name)
    }

    /// Returns the clusters that have failed.
    pub fn failed(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        let counts = |cluster: &&Arc<Cluster>| is_counted(cluster) && has_failed(cluster);
        self.clusters.values().filter(counts)
    }

    /// Returns the names of the clusters that drive workloads out.
    pub fn evicting(&self) -> impl Iterator<Item = &Arc<str>> {
        let evicting =
            |cluster: &Cluster| !self.ignores_taints && cluster.spec.taints.iter().any(evicts);
        self.clusters
            .iter()
            .filter(move |(_, cluster)| evicting(cluster))
            .map(|(name, _)| name)
    }

    /// Returns the fleet as the scheduler takes it.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }
}

/// Returns whether after a change a cluster may take workloads that it could not take before, apart
/// from a change of its room. A cluster that fails or gets a taint takes none of them.
pub fn opens(old: Option<&Cluster>, new: &Cluster) -> bool {
    let Some(old) = old else { return true };
    let is_ready = |cluster: &Cluster| {
        let conditions = cluster.status.as_ref().map_or(&[][..], |it| &it.conditions);
        conditions::is_true(conditions, condition::READY)
    };
    let apis = |cluster: &Cluster| cluster.status.as_ref().map(|it| it.api_enablements.clone());
    let has_lost_taint = || {
        old.spec
            .taints
            .iter()
            .any(|it| !new.spec.taints.contains(it))
    };
    let is_moved = || {
        let untainted = |cluster: &Cluster| ClusterSpec {
            taints: Vec::new(),
            ..cluster.spec.clone()
        };
        untainted(old) != untainted(new)
    };
    effect(Some(old), new).helps_after == Some(SOON)
        && ((!is_ready(old) && is_ready(new))
            || has_lost_taint()
            || old.metadata.labels != new.metadata.labels
            || (!reads_works(old) && reads_works(new))
            || apis(old) != apis(new)
            || is_moved())
}

/// Time for which a cluster that is ready again keeps its workloads: beyond the default of
/// `removeOnMismatchSeconds` (180 s), after which the taints of its failure are gone.
const SETTLING: SignedDuration = SignedDuration::from_mins(5);

/// Returns until when a cluster that has become ready again keeps its workloads: the taint of its
/// failure goes only when it has been ready for a while, and what left meanwhile would leave a
/// sound cluster. `None` if the cluster is not ready, if a taint came later, or by an order.
pub fn kept_until(cluster: &Cluster) -> Option<Timestamp> {
    let ready = cluster.condition(condition::READY);
    let ready = ready.filter(|it| it.status == conditions::TRUE)?;
    let ready = ready.last_transition_time.0;
    let is_of_failure = |taint: &Taint| {
        let added = taint.time_added.as_ref();
        added.is_some_and(|added| added.0 <= ready) && !is_of_command(taint)
    };
    let evicting = cluster.spec.taints.iter().filter(|taint| evicts(taint));
    let mut evicting = evicting.peekable();
    evicting.peek()?;
    let until = ready.checked_add(SETTLING).ok()?;
    evicting.all(is_of_failure).then_some(until)
}

fn effect(old: Option<&Cluster>, new: &Cluster) -> Effect {
    let Some(old) = old else {
        return Effect {
            taints: true,
            helps_after: Some(SOON),
        };
    };
    // By reference: this is asked for every heartbeat of every cluster.
    let (before, after) = (old.status.as_ref(), new.status.as_ref());
    let status = |cluster: Option<&ClusterStatus>| {
        conditions::status(cluster.map_or(&[], |it| &it.conditions), condition::READY)
            .map(str::to_owned)
    };
    let apis = before.map(|it| &it.api_enablements) != after.map(|it| &it.api_enablements);
    let room = before.map(|it| &it.resource_summary) != after.map(|it| &it.resource_summary);
    let readiness = status(before) != status(after);
    let taints = readiness || old.spec.taints != new.spec.taints;
    let allowed = readiness
        || old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || reads_works(old) != reads_works(new)
        || apis;
    let helps_after = if allowed {
        Some(SOON)
    } else {
        room.then_some(LATER)
    };
    Effect {
        taints,
        helps_after,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_is_ready_again_keeps_its_workloads_while_the_taint_of_its_failure_goes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (what, ready, key, effect, added, expected) in [
            (
                "it is back",
                "True",
                "a",
                "NoExecute",
                Some(900),
                Some(1_300),
            ),
            (
                "it is back",
                "True",
                "a",
                "PreferNoExecute",
                Some(1_000),
                Some(1_300),
            ),
            ("it is not", "False", "a", "NoExecute", Some(900), None),
            (
                "it is not heard",
                "Unknown",
                "a",
                "NoExecute",
                Some(900),
                None,
            ),
            ("a later taint", "True", "a", "NoExecute", Some(1_001), None),
            ("a taint without time", "True", "a", "NoExecute", None, None),
            (
                "no taint drives out",
                "True",
                "a",
                "NoSchedule",
                Some(900),
                None,
            ),
            (
                "a drain",
                "True",
                "failover.muster.io/drain",
                "NoExecute",
                Some(900),
                None,
            ),
        ] {
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": { "name": "m1" },
                "spec": { "syncMode": "Pull", "taints": [
                    { "key": key, "effect": effect, "timeAdded": added.map(at) },
                ] },
                "status": { "conditions": [
                    { "type": "Ready", "status": ready, "reason": "r", "message": "", "lastTransitionTime": at(1_000) },
                ] },
            }))
            .unwrap();
            assert_eq!(kept_until(&cluster), expected.map(at), "{what}");
        }
    }

    #[test]
    fn what_may_let_a_workload_in_that_had_nowhere_to_go_helps_soon() {
        let cluster = |change: serde_json::Value| {
            let condition = |kind: &str, status: &serde_json::Value| {
                json!({"type": kind, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2024-01-01T00:00:00Z"})
            };
            let conditions = [
                condition("Ready", &change["ready"]),
                condition("WorksUpToDate", &change["works"]),
                condition("StatusUpToDate", &change["status"]),
            ];
            let cluster = json!({
                "metadata": {"name": "m1"},
                "spec": {"region": change["region"]},
                "status": {
                    "conditions": conditions,
                    "resourceSummary": {"allocatable": {"cpu": change["cpu"]}},
                },
            });
            serde_json::from_value::<Cluster>(cluster).unwrap()
        };
        let before = json!({
            "ready": "True", "works": "False", "status": "True", "region": "eu", "cpu": "1",
        });
        for (field, value, expected, is_open) in [
            ("ready", "Unknown", Some(SOON), false),
            ("works", "True", Some(SOON), true),
            ("region", "us", Some(SOON), true),
            ("cpu", "2", Some(LATER), false),
            ("status", "False", None, false),
        ] {
            let mut after = before.clone();
            after[field] = json!(value);
            let (before, after) = (cluster(before.clone()), cluster(after));
            let effect = effect(Some(&before), &after);
            assert_eq!(effect.helps_after, expected, "{field}");
            assert_eq!(opens(Some(&before), &after), is_open, "{field}");
            // The way back from Unknown opens.
            assert_eq!(
                opens(Some(&after), &before),
                field == "ready" || field == "region"
            );
        }
    }

    fn cluster(taints: &serde_json::Value, labels: &serde_json::Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "m1", "labels": labels},
            "spec": {"taints": taints},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn a_label_or_a_taint_that_goes_lets_workloads_in_and_a_taint_that_comes_lets_in_none() {
        let (none, plain) = (json!([]), json!({}));
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        for (what, old, new, is_open) in [
            (
                "labelled",
                cluster(&none, &plain),
                cluster(&none, &json!({"a": "b"})),
                true,
            ),
            (
                "tainted",
                cluster(&none, &plain),
                cluster(&json!([taint("a")]), &plain),
                false,
            ),
            (
                "freed",
                cluster(&json!([taint("a")]), &plain),
                cluster(&none, &plain),
                true,
            ),
            (
                "freed of one of two",
                cluster(&json!([taint("a"), taint("b")]), &plain),
                cluster(&json!([taint("b")]), &plain),
                true,
            ),
        ] {
            assert_eq!(effect(Some(&old), &new).helps_after, Some(SOON), "{what}");
            assert_eq!(opens(Some(&old), &new), is_open, "{what}");
        }
    }

    #[test]
    fn those_have_failed_that_count_and_that_workloads_are_to_leave() {
        for (effect, deleting, evicts_from, has_failed) in [
            (None, false, false, false),
            (Some("NoSchedule"), false, false, false),
            (Some("NoExecute"), false, true, true),
            (Some("PreferNoExecute"), false, true, true),
            (Some("NoExecute"), true, true, false),
        ] {
            let taints: Vec<_> = effect
                .iter()
                .map(|effect| json!({"key": "a", "effect": effect}))
                .collect();
            let mut one = cluster(&json!(taints), &json!({}));
            if deleting {
                one.metadata.deletion_timestamp = one
                    .status
                    .as_ref()
                    .map(|status| status.conditions[0].last_transition_time.clone());
            }
            let mut view = FleetView::default();
            view.put(&Arc::new(one), Instant::now());
            let evicting = view.evicting().count() == 1;
            let failed = view.failed().count() == 1;
            assert_eq!(
                (evicting, failed),
                (evicts_from, has_failed),
                "{effect:?} {deleting}"
            );
        }
    }
}
