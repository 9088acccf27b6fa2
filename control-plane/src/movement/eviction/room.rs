//! Room that workloads take where they move to: before the clusters report it, and before those
//! that are more important have left.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use tokio::time::Instant;

use super::judge::{Cause, Switches, purge_mode};
use super::plan::{Departure, plan, suspended};
use super::reason::EvictionReason;
use crate::scheduler::core::capacity::{Demand, Load, Part};
use crate::scheduler::core::{Options, Snapshot};

/// Age of a move from which on a report of its cluster counts what moved: the agent has applied the
/// Work, and its pods are among those that wait for a node at least.
const SETTLED: Duration = Duration::from_secs(15);
/// Age of a move from which on its room is taken to be reported, or not needed.
const LONGEST: Duration = Duration::from_mins(1);
/// Time for which moves whose room is due to be given back are gathered: each time workloads that
/// have nowhere to go are tried again.
const GATHERING: Duration = Duration::from_mins(1);
/// Moves into one cluster that are remembered at most.
const MOST: usize = 1_000;
/// Workloads for which room is kept at most, before others leave.
const MOST_KEPT: usize = 2_000;

/// Time within which a workload has to leave so that room is kept for it.
pub const HORIZON: Duration = Duration::from_hours(1);

/// Capacity that a workload takes of a cluster.
#[derive(Clone, Debug)]
struct Taken {
    at: Instant,
    load: Load,
}

/// Workloads that moved into clusters which have not reported them yet.
#[derive(Debug, Default)]
pub struct Unreported {
    by_cluster: BTreeMap<Arc<str>, Vec<Taken>>,
}

impl Unreported {
    /// Takes the room of a workload off the clusters in which it gains replicas.
    pub fn take(
        &mut self,
        snapshot: &mut Snapshot,
        spec: &ResourceBindingSpec,
        gains: &[TargetCluster],
        now: Instant,
    ) {
        for (name, load) in loads(spec, gains) {
            snapshot.occupy(name, &load);
            let taken = Taken { at: now, load };
            let all = match self.by_cluster.get_mut(name) {
                Some(all) => all,
                None => self.by_cluster.entry(Arc::from(name)).or_default(),
            };
            all.push(taken);
            if all.len() > MOST {
                all.remove(0);
            }
        }
    }

    /// Forgets what a workload was to take that does not move after all; the clusters are to be
    /// shown anew. Returns these.
    pub fn give_back<'a>(
        &mut self,
        spec: &ResourceBindingSpec,
        gains: &'a [TargetCluster],
    ) -> Vec<&'a str> {
        let mut shown = Vec::new();
        for (name, load) in loads(spec, gains) {
            let all = self.by_cluster.get_mut(name);
            if let Some(all) = all
                && let Some(last) = all.iter().rposition(|it| it.load == load)
            {
                all.remove(last);
                shown.push(name);
            }
        }
        shown
    }

    /// Takes from a cluster that has just been reported what its report cannot contain yet, and
    /// forgets the rest.
    pub fn reported(&mut self, snapshot: &mut Snapshot, cluster: &str, now: Instant) {
        let Some(all) = self.by_cluster.get_mut(cluster) else {
            return;
        };
        all.retain(|it| now.duration_since(it.at) < SETTLED);
        if all.is_empty() {
            self.by_cluster.remove(cluster);
        }
        self.shown_again(snapshot, cluster);
    }

    /// Takes from a cluster that is shown again as it was reported before what has moved there.
    pub fn shown_again(&self, snapshot: &mut Snapshot, cluster: &str) {
        for it in self.by_cluster.get(cluster).into_iter().flatten() {
            snapshot.occupy(cluster, &it.load);
        }
    }

    /// Forgets what moved into a cluster.
    pub fn forget(&mut self, cluster: &str) {
        self.by_cluster.remove(cluster);
    }

    /// Forgets the moves that should have been reported long ago, once the room of the first of
    /// them is to be given back. Returns their clusters, which are to be shown anew.
    pub fn settle(&mut self, now: Instant) -> Vec<Arc<str>> {
        if self.next().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut settled = Vec::new();
        self.by_cluster.retain(|cluster, all| {
            let known = all.len();
            all.retain(|it| now < it.at + LONGEST);
            if all.len() < known {
                settled.push(Arc::clone(cluster));
            }
            !all.is_empty()
        });
        settled
    }

    /// Returns when the room of the first move is to be given back.
    pub fn next(&self) -> Option<Instant> {
        let all = self.by_cluster.values().filter_map(|all| all.first());
        all.map(|it| it.at + LONGEST + GATHERING).min()
    }
}

/// Room that is kept for workloads which leave later.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    by_cluster: BTreeMap<String, Load>,
    workloads: usize,
}

impl Kept {
    /// Plans what workloads need that leave later, the most important ones first: each a binding,
    /// the cluster that it leaves, and why.
    pub fn of<'a, B: Deref<Target = AnyBinding>>(
        later: impl IntoIterator<Item = (B, &'a str, Cause)>,
        switches: &Switches,
        mut snapshot: Snapshot,
        options: &Options,
        now: Timestamp,
    ) -> Self {
        let mut kept = Self::default();
        for (binding, cluster, cause) in later {
            if kept.workloads == MOST_KEPT {
                break;
            }
            let (spec, status) = (&binding.spec, binding.status());
            let purge_mode = purge_mode(spec, switches, &cause);
            let reason = EvictionReason::Taint(&cause);
            let departure = Departure {
                obstacle: &|cluster| suspended(spec, cluster),
                ..Departure::new(spec, status, cluster, reason, &purge_mode)
            };
            if let Ok(plan) = plan(&departure, &snapshot, options, now) {
                for (name, load) in loads(spec, &gains(spec, &plan.clusters)) {
                    snapshot.occupy(name, &load);
                    kept.by_cluster
                        .entry(name.to_owned())
                        .or_default()
                        .add(&load);
                }
                kept.workloads += 1;
            }
        }
        kept
    }

    /// Returns a fleet without the room that is kept.
    pub fn beside(&self, mut snapshot: Snapshot) -> Snapshot {
        for (name, load) in &self.by_cluster {
            snapshot.occupy(name, load);
        }
        snapshot
    }

    /// Returns how many workloads room is kept for.
    pub fn workloads(&self) -> usize {
        self.workloads
    }
}

/// End of a sentence that says why a workload stays. It has no number, which would change with
/// each workload that leaves, for all that stay.
pub const KEPT: &str =
    "; room is kept for workloads of a higher priority, which have to leave as well";

/// Takes the room of a workload off the clusters in which it gains replicas.
pub fn occupy(snapshot: &mut Snapshot, spec: &ResourceBindingSpec, gains: &[TargetCluster]) {
    for (name, load) in loads(spec, gains) {
        snapshot.occupy(name, &load);
    }
}

/// Returns the clusters that have more than before, each with what it gains. A resource without
/// replicas counts none.
pub fn gains(spec: &ResourceBindingSpec, clusters: &[TargetCluster]) -> Vec<TargetCluster> {
    let more = |target: &TargetCluster| {
        let had = spec.target(&target.name);
        let more = target.replicas - had.map_or(0, |had| had.replicas);
        (had.is_none() || more > 0).then(|| TargetCluster {
            replicas: more.max(0),
            ..target.clone()
        })
    };
    clusters.iter().filter_map(more).collect()
}

/// Returns what a workload takes of each cluster in which it gains replicas. A workload with
/// components has no replicas of its own, and takes what all its components take.
fn loads<'a>(
    spec: &ResourceBindingSpec,
    gains: &'a [TargetCluster],
) -> impl Iterator<Item = (&'a str, Load)> + use<'a> {
    let (set, demand) = (set(spec), demand(spec));
    gains.iter().filter_map(move |gain| {
        let load = match &set {
            Some(set) => set.clone(),
            None if gain.replicas > 0 => Load::of(demand.as_ref(), gain.replicas.into()),
            None => return None,
        };
        Some((gain.name.as_str(), load))
    })
}

/// Returns what all components of a workload take together; `None` if it has none.
fn set(spec: &ResourceBindingSpec) -> Option<Load> {
    let loads = spec.components.iter().map(|it| Part::of(it).load());
    loads.reduce(|mut sum, load| {
        sum.add(&load);
        sum
    })
}

fn demand(spec: &ResourceBindingSpec) -> Option<Demand> {
    let needs = spec.replica_requirements.as_ref();
    needs.map(|needs| Demand::new(&needs.resource_request))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::grade_rule::GradeRule;

    fn cluster(cpu: &str) -> Snapshot {
        let cluster = json!({
            "metadata": {"name": "m1"},
            "status": {"resourceSummary": {"allocatable": {"cpu": cpu, "pods": "20"}}},
        });
        Snapshot::new([Arc::new(serde_json::from_value(cluster).unwrap())])
    }

    fn spec(cpu: &str) -> ResourceBindingSpec {
        let spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 2,
            "replicaRequirements": {"resourceRequest": {"cpu": cpu}},
        });
        serde_json::from_value(spec).unwrap()
    }

    fn to(replicas: i32) -> TargetCluster {
        TargetCluster {
            name: "m1".to_owned(),
            replicas,
            ..TargetCluster::default()
        }
    }

    fn room(snapshot: &Snapshot) -> i64 {
        let capacity = snapshot.get("m1").unwrap().capacity().unwrap();
        capacity.replicas(demand(&spec("1")).as_ref(), GradeRule::Minimums)
    }

    #[test]
    fn what_moved_counts_until_its_cluster_has_reported_it() {
        let (mut unreported, mut now) = (Unreported::default(), cluster("8"));
        let start = Instant::now();
        unreported.take(&mut now, &spec("1"), &[to(3)], start);
        assert_eq!(room(&now), 5);
        // (seconds later, cores that the report says are free, room)
        for (later, free, expected) in [(5, "8", 5), (14, "8", 5), (15, "5", 5), (16, "5", 5)] {
            let mut reported = cluster(free);
            let at = start + Duration::from_secs(later);
            unreported.reported(&mut reported, "m1", at);
            assert_eq!(room(&reported), expected, "{later} s later");
        }
        assert!(unreported.by_cluster.is_empty(), "nothing is left of it");
    }

    #[test]
    fn a_workload_with_components_takes_the_room_of_all_of_them() {
        let component = |name: &str, replicas: i32, cpu: &str| {
            let needs = json!({"resourceRequest": {"cpu": cpu}});
            json!({"name": name, "replicas": replicas, "replicaRequirements": needs})
        };
        let flink = json!({
            "resource": {"apiVersion": "a.example/v1", "kind": "Flink", "name": "web"},
            "components": [component("job", 1, "1"), component("task", 2, "2")],
        });
        let flink: ResourceBindingSpec = serde_json::from_value(flink).unwrap();
        let (mut unreported, mut now) = (Unreported::default(), cluster("8"));
        let moved = gains(&flink, &[to(0)]);
        unreported.take(&mut now, &flink, &moved, Instant::now());
        assert_eq!(room(&now), 3);
        assert_eq!(unreported.give_back(&flink, &moved), ["m1"]);
    }

    #[test]
    fn what_does_not_move_after_all_gives_its_room_back() {
        let (mut unreported, mut now) = (Unreported::default(), cluster("8"));
        let start = Instant::now();
        unreported.take(&mut now, &spec("1"), &[to(3)], start);
        unreported.take(&mut now, &spec("2"), &[to(1)], start);
        assert_eq!(room(&now), 3);
        assert_eq!(unreported.give_back(&spec("1"), &[to(3)]), ["m1"]);
        let mut anew = cluster("8");
        unreported.reported(&mut anew, "m1", start);
        assert_eq!(room(&anew), 6);
        assert!(unreported.give_back(&spec("1"), &[to(3)]).is_empty());
    }

    #[test]
    fn what_no_cluster_reports_is_forgotten_together_with_all_of_its_minute() {
        let (mut unreported, mut snapshot) = (Unreported::default(), cluster("8"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let other = TargetCluster {
            name: "m2".to_owned(),
            ..to(1)
        };
        for (target, seconds) in [(to(1), 0), (other, 59), (to(2), 61)] {
            unreported.take(&mut snapshot, &spec("1"), &[target], at(seconds));
        }
        assert_eq!(unreported.next(), Some(at(120)));
        let too_early = at(120) - Duration::from_millis(1);
        assert!(unreported.settle(too_early).is_empty());
        // A cluster that is shown again meanwhile gives nothing back in silence.
        let mut anew = cluster("8");
        unreported.shown_again(&mut anew, "m1");
        assert_eq!(room(&anew), 5);
        let settled = unreported.settle(at(120));
        let settled: Vec<&str> = settled.iter().map(|it| &**it).collect();
        assert_eq!(settled, ["m1", "m2"]);
        let mut anew = cluster("8");
        unreported.shown_again(&mut anew, "m1");
        assert_eq!((room(&anew), unreported.next()), (6, Some(at(181))));
    }

    #[test]
    fn a_cluster_remembers_a_bounded_number_of_moves() {
        let (mut unreported, mut snapshot) = (Unreported::default(), cluster("8"));
        for _ in 0..=MOST {
            unreported.take(&mut snapshot, &spec("1"), &[to(1)], Instant::now());
        }
        assert_eq!(unreported.by_cluster["m1"].len(), MOST);
    }

    #[test]
    fn only_more_than_before_is_a_gain() {
        for (had, has, expected) in [(0, 2, Some(2)), (2, 2, None), (3, 2, None), (1, 3, Some(2))] {
            let mut spec = spec("1");
            spec.clusters = if had > 0 { vec![to(had)] } else { Vec::new() };
            let gains = gains(&spec, &[to(has)]);
            assert_eq!(gains.first().map(|it| it.replicas), expected, "{had} {has}");
        }
    }
}
