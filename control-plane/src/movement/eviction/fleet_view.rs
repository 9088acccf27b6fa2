//! State of the clusters for evictions: which have failed, which evict workloads, and which changes
//! may help a stranded workload.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::names::condition::{READY, SEEN_BY_PEERS};
use tokio::time::Instant;

use super::room::Unreported;
use crate::clusters::taint::record::{ANNOTATION, Record};
use crate::fleet::availability::{readiness, reads_works};
pub use crate::fleet::budget::failed::{evicts, has_failed, is_counted};
use crate::scheduler::core::{DataPlaces, Snapshot};

/// All clusters.
#[derive(Debug, Default)]
pub struct FleetView {
    clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// The taints that count, of clusters that have others as well.
    effective: BTreeMap<Arc<str>, Vec<Taint>>,
    /// Times at which clusters became ready, by our clock; of those that were ready before, the
    /// time at which this process saw them first.
    returned: BTreeMap<Arc<str>, Instant>,
    snapshot: Snapshot,
    unreported: Unreported,
    /// Whether taints drive nothing out.
    ignores_taints: bool,
}

/// Effect of the change of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Taints that count, or the readiness of the cluster changed (or it is new): its workloads are
    /// to be judged again.
    pub taints: bool,
    /// After this time workloads that had nowhere to go should be tried again: soon when what is
    /// allowed changed, later when there only is more or less room, which is reported all the time.
    pub helps_after: Option<Duration>,
}

/// Time within which policies have judged a cluster that became ready.
const JUDGED: Duration = Duration::from_secs(10);
/// Time in which related changes of clusters arrive.
const SOON: Duration = Duration::from_secs(1);
/// Time after which a change that may help a little is considered.
pub const LATER: Duration = Duration::from_secs(10);

impl FleetView {
    /// Returns a view with what is known of the data of workloads. Where taints are not judged,
    /// they drive nothing out.
    pub fn new(data: DataPlaces, judges_taints: bool) -> Self {
        Self {
            snapshot: Snapshot::default().with_data(data),
            ignores_taints: !judges_taints,
            ..Self::default()
        }
    }

    /// Takes a cluster in, new or changed.
    pub fn put(&mut self, cluster: &Arc<Cluster>, now: Instant) -> Effect {
        let name: Arc<str> = Arc::from(cluster.name_any());
        let old = self.clusters.insert(Arc::clone(&name), Arc::clone(cluster));
        if old.as_ref().is_none_or(|old| !is_tainted_as(old, cluster)) {
            match effective_taints(cluster) {
                Cow::Owned(taints) => self.effective.insert(Arc::clone(&name), taints),
                Cow::Borrowed(_) => self.effective.remove(&name),
            };
        }
        let is_ready = readiness(cluster) == conditions::TRUE;
        if !is_ready {
            self.returned.remove(&name);
        } else if old
            .as_ref()
            .is_none_or(|it| readiness(it) != conditions::TRUE)
        {
            self.returned.insert(name, now);
        }
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
    pub fn vacate(&mut self, spec: &ResourceBindingSpec, gains: &[TargetCluster]) {
        for name in self.unreported.give_back(spec, gains) {
            self.show_again(name);
        }
    }

    /// Gives back the room of moves that should have been reported long ago. Returns whether there
    /// were any.
    pub fn settle(&mut self, now: Instant) -> bool {
        let settled = self.unreported.settle(now);
        for name in &settled {
            self.show_again(name);
        }
        !settled.is_empty()
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

    /// Shows a cluster as it was reported last: what has moved there since is still to be reported.
    fn show_again(&mut self, name: &str) {
        match self.clusters.get(name) {
            Some(cluster) => self.snapshot.put(Arc::clone(cluster)),
            None => return self.unreported.forget(name),
        }
        self.unreported.shown_again(&mut self.snapshot, name);
    }

    /// Takes a cluster out; `left` says whether it was seen leaving the fleet, or nobody knows.
    pub fn remove(&mut self, name: &str, left: bool) {
        self.clusters.remove(name);
        self.effective.remove(name);
        self.returned.remove(name);
        self.unreported.forget(name);
        if left {
            self.snapshot.depart(name);
        } else {
            self.snapshot.remove(name);
        }
    }

    /// Returns whether a cluster was seen leaving the fleet.
    pub fn has_left(&self, name: &str) -> bool {
        self.snapshot.presence(name).is_gone()
    }

    /// Returns the taints of a cluster that count; there are none if it is unknown.
    pub fn taints(&self, name: &str) -> &[Taint] {
        let known = self.clusters.get(name).filter(|_| !self.ignores_taints);
        let Some(cluster) = known else {
            return &[];
        };
        let effective = self.effective.get(name);
        effective.map_or(&cluster.spec.taints, |it| it)
    }

    /// Returns for how much longer it is not known whether the policies let go that put a taint on
    /// a cluster, which has just become ready; `None` if it is, or if somebody else put it there.
    pub fn unjudged_for(&self, name: &str, taint: &Taint, now: Instant) -> Option<Duration> {
        let since = self.returned.get(name)?;
        let rest = JUDGED.checked_sub(now.saturating_duration_since(*since))?;
        let record = Record::on(self.clusters.get(name)?)?;
        (!rest.is_zero() && record.answers_for(taint)).then_some(rest)
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
        let names = self.clusters.keys();
        names.filter(|name| self.taints(name).iter().any(evicts))
    }

    /// Returns the fleet as the scheduler takes it.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }
}

/// Returns the taints of a cluster that move workloads: if it is back, without those of policies
/// whose conditions match no more. These go later, and what left until then would leave a sound
/// cluster. Of one that is not back, a condition may only have become unknown, or its policy
/// unreadable.
pub fn effective_taints(cluster: &Cluster) -> Cow<'_, [Taint]> {
    let taints = &cluster.spec.taints;
    let record = Record::on(cluster).filter(|_| is_back(cluster) && taints.iter().any(evicts));
    match record {
        Some(record) if taints.iter().any(|it| record.is_going(it)) => {
            let staying = taints.iter().filter(|it| !record.is_going(it));
            Cow::Owned(staying.cloned().collect())
        }
        _ => Cow::Borrowed(taints),
    }
}

/// Returns whether a cluster is ready, or a cluster that watches it reaches it.
fn is_back(cluster: &Cluster) -> bool {
    cluster.is_true(READY) || cluster.is_true(SEEN_BY_PEERS)
}

/// Returns whether the taints of a cluster count as before, which they do in nearly all of its
/// reports.
fn is_tainted_as(old: &Cluster, new: &Cluster) -> bool {
    old.spec.taints == new.spec.taints
        && written(old) == written(new)
        && is_back(old) == is_back(new)
}

fn written(cluster: &Cluster) -> Option<&str> {
    cluster.annotations().get(ANNOTATION).map(String::as_str)
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
    let apis = before.map(|it| &it.api_enablements) != after.map(|it| &it.api_enablements);
    let room = before.map(|it| &it.resource_summary) != after.map(|it| &it.resource_summary);
    let readiness = old.condition_status(READY) != new.condition_status(READY);
    let taints =
        readiness || (!is_tainted_as(old, new) && effective_taints(old) != effective_taints(new));
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
    use crate::fleet::testing::only_condition;
    use crate::scheduler::core::capacity::Demand;
    use crate::settings::grade_rule::GradeRule;

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
        for (field, value, expected) in [
            ("ready", "Unknown", Some(SOON)),
            ("works", "True", Some(SOON)),
            ("region", "us", Some(SOON)),
            ("cpu", "2", Some(LATER)),
            ("status", "False", None),
        ] {
            let mut after = before.clone();
            after[field] = json!(value);
            let (before, after) = (cluster(before.clone()), cluster(after));
            let effect = effect(Some(&before), &after);
            assert_eq!(effect.helps_after, expected, "{field}");
        }
    }

    fn cluster(taints: &serde_json::Value, labels: &serde_json::Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "m1", "labels": labels},
            "spec": {"taints": taints},
            "status": {"conditions": only_condition("Ready", "True")},
        }))
        .unwrap()
    }

    #[test]
    fn a_label_or_a_taint_that_comes_or_goes_helps_soon() {
        let with = |taints: &[&str], labels: serde_json::Value| {
            let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
            let taints: Vec<_> = taints.iter().map(taint).collect();
            cluster(&json!(taints), &labels)
        };
        let tainted = |taints| with(taints, json!({}));
        let labelled = with(&[], json!({"a": "b"}));
        for (what, old, new) in [
            ("labelled", tainted(&[]), labelled),
            ("tainted", tainted(&[]), tainted(&["a"])),
            ("freed", tainted(&["a"]), tainted(&[])),
            ("freed of one", tainted(&["a", "b"]), tainted(&["b"])),
        ] {
            assert_eq!(effect(Some(&old), &new).helps_after, Some(SOON), "{what}");
        }
    }

    #[test]
    fn what_does_not_move_after_all_gives_back_no_room_of_what_has_moved() {
        let mut roomy = cluster(&json!([]), &json!({}));
        let summary = json!({"allocatable": {"cpu": "8", "pods": "20"}});
        roomy.status.as_mut().unwrap().resource_summary = serde_json::from_value(summary).unwrap();
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        }))
        .unwrap();
        let to = |replicas: i32| {
            [TargetCluster {
                name: "m1".to_owned(),
                replicas,
                ..TargetCluster::default()
            }]
        };
        let (mut view, start) = (FleetView::default(), Instant::now());
        view.put(&Arc::new(roomy), start);
        view.occupy(&spec, &to(3), start);
        let room = |view: &FleetView| {
            let needs = spec.replica_requirements.as_ref().unwrap();
            let demand = Demand::new(&needs.resource_request);
            let snapshot = view.snapshot();
            let capacity = snapshot.get("m1").unwrap().capacity().unwrap();
            capacity.replicas(Some(&demand), GradeRule::Minimums)
        };
        // The cluster says nothing for a while, as one does whose agent reports once a minute.
        for seconds in [20, 90] {
            view.occupy(&spec, &to(2), start + Duration::from_secs(seconds));
            view.vacate(&spec, &to(2));
            assert_eq!(room(&view), 5, "the three are not reported yet");
        }
        assert!(view.settle(start + Duration::from_mins(2)));
        assert_eq!(room(&view), 8, "they never were");
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
