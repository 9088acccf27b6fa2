mod conditions;
mod drains;
mod failing;
mod fences;
mod important;
mod pace;
mod pauses;
mod reports;
mod returned;
mod stranded;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::PurgeMode;
use muster_shared::names::annotation::LAST_EVICTION;
use serde_json::{Value, json};

use super::*;
use crate::clusters::taint::default_tolerations::DefaultTolerations;
use crate::fleet::binding::BindingKey;
use crate::movement::eviction::record::Record;
use crate::scheduler::core::Snapshot;

/// A fleet and its workloads, an opened evictor, and a clock that tests move.
pub struct World {
    pub evictor: Evictor,
    pub start: Instant,
    pub second: f64,
    clusters: Vec<Arc<Cluster>>,
    bindings: Vec<Arc<AnyBinding>>,
    /// The fleets in which the evictions of the last [`pass`](Self::pass) were placed.
    fleets: Vec<Snapshot>,
}

fn switches(failover: bool) -> Switches {
    Switches {
        failover,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    }
}

pub fn cluster(name: &str, taints: &Value) -> Arc<Cluster> {
    let status = json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"},
    ]});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull", "taints": taints}, "status": status})).unwrap())
}

/// Returns a cluster whose readiness is that since a second, as it fails and returns.
fn since(name: &str, ready: &str, second: i64, taints: &Value) -> Arc<Cluster> {
    let mut cluster = Cluster::clone(&cluster(name, taints));
    let conditions = &mut cluster.status.as_mut().unwrap().conditions;
    conditions[0].status = ready.to_owned();
    conditions[0].last_transition_time.0 = Timestamp::from_second(second).unwrap();
    Arc::new(cluster)
}

pub fn down(second: i64) -> Value {
    taint("NoExecute", second)
}

fn taint(effect: &str, second: i64) -> Value {
    json!([{"key": "down", "effect": effect, "timeAdded": Timestamp::from_second(second).unwrap()}])
}

/// Returns a binding on clusters; `more` is merged into its spec.
pub fn binding(name: &str, on: &[&str], more: &Value) -> Arc<AnyBinding> {
    let clusters: Vec<Value> = on.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": name}, "clusters": clusters, "placement": {}});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Arc::new(serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": "1"}, "spec": spec})).unwrap())
}

impl World {
    /// Makes a world of `total` clusters `c0`, `c1`, ..., of which the first `failed` drive
    /// everything out, with `each` workloads on each.
    fn new(total: usize, failed: usize, each: usize) -> Self {
        let clusters = (0..total)
            .map(|n| {
                cluster(
                    &format!("c{n}"),
                    &if n < failed { down(0) } else { json!([]) },
                )
            })
            .collect();
        let bindings = (0..total)
            .flat_map(|n| {
                (0..each)
                    .map(move |m| binding(&format!("w{n}-{m}"), &[&format!("c{n}")], &json!({})))
            })
            .collect();
        Self::of(clusters, bindings, true)
    }

    /// Makes a world of the cluster `c0` and of `c1`, which is well, in which failover is on.
    fn pair(c0: Arc<Cluster>, bindings: impl IntoIterator<Item = Arc<AnyBinding>>) -> Self {
        let clusters = vec![c0, cluster("c1", &json!([]))];
        Self::of(clusters, bindings.into_iter().collect(), true)
    }

    /// Makes a world of clusters that drive everything out and of others, which are well, in which
    /// failover is on.
    fn among(failed: &[&str], well: &[&str], binding: Arc<AnyBinding>) -> Self {
        let failed = failed.iter().map(|name| cluster(name, &down(0)));
        let well = well.iter().map(|name| cluster(name, &json!([])));
        Self::of(failed.chain(well).collect(), vec![binding], true)
    }

    pub fn of(clusters: Vec<Arc<Cluster>>, bindings: Vec<Arc<AnyBinding>>, failover: bool) -> Self {
        let start = Instant::now();
        let now = Now {
            wall: Timestamp::from_second(1_000).unwrap(),
            tick: start,
        };
        let evictor = Evictor::new(switches(failover), Rates::default(), now);
        let mut world = Self {
            evictor,
            start,
            second: 0.0,
            clusters,
            bindings,
            fleets: Vec::new(),
        };
        world.restart(failover);
        world
    }

    pub fn now(&self) -> Now {
        let passed = Duration::from_secs_f64(self.second);
        let wall = Timestamp::from_second(1_000).unwrap()
            + jiff::SignedDuration::try_from(passed).unwrap();
        Now {
            wall,
            tick: self.start + passed,
        }
    }

    /// Restarts the process: passes everything to a new evictor, in another order.
    fn restart(&mut self, failover: bool) {
        self.begin(Evictor::new(
            switches(failover),
            Rates::default(),
            self.now(),
        ));
        self.evictor.open(self.now());
    }

    /// Goes on with an evictor that knows everything and is not opened yet.
    fn begin(&mut self, evictor: Evictor) {
        self.evictor = evictor;
        for binding in self.bindings.iter().rev() {
            self.evictor.binding(binding, self.now());
        }
        for cluster in &self.clusters {
            self.evictor.cluster(cluster, self.now());
        }
    }

    /// Goes on with another evictor, made of a new one.
    fn with(mut self, change: impl FnOnce(&mut Evictor)) -> Self {
        let mut new = Evictor::new(switches(true), Rates::default(), self.now());
        change(&mut new);
        self.begin(new);
        self.evictor.open(self.now());
        self
    }

    /// Begins the next eviction and returns it; it has not come to an end yet.
    fn begin_eviction(&mut self) -> Box<Eviction> {
        match self.evictor.next(self.now()) {
            Step::Evict(eviction) => eviction,
            Step::Wait(_) => panic!("it is to be evicted"),
        }
    }

    fn set(&mut self, changed: &Arc<Cluster>) {
        let name = changed.name_any();
        self.clusters.retain(|cluster| cluster.name_any() != name);
        self.clusters.push(Arc::clone(changed));
        self.evictor.cluster(changed, self.now());
    }

    fn put(&mut self, changed: &Arc<AnyBinding>) {
        let name = changed.name_any();
        self.bindings.retain(|binding| binding.name_any() != name);
        self.bindings.push(Arc::clone(changed));
        self.evictor.binding(changed, self.now());
    }

    /// Lets time pass; every eviction comes to the end that `end` gives it. Returns the evictions.
    fn pass(&mut self, seconds: f64, end: impl Fn(&Eviction) -> Outcome) -> Vec<Eviction> {
        let (until, mut evictions) = (self.second + seconds, Vec::new());
        self.fleets.clear();
        loop {
            match self.evictor.next(self.now()) {
                Step::Evict(eviction) => {
                    self.fleets.push(self.evictor.fleet_for(&eviction));
                    let outcome = end(&eviction);
                    if let Outcome::Evicted { binding, .. } = &outcome {
                        let name = binding.name_any();
                        self.bindings.retain(|other| other.name_any() != name);
                        self.bindings.push(Arc::clone(binding));
                    }
                    self.evictor.done(&eviction, outcome, self.now());
                    evictions.push(*eviction);
                    assert!(evictions.len() < 100_000, "the queue spins");
                }
                Step::Wait(next) => {
                    let next = next.map_or(f64::MAX, |at| {
                        at.duration_since(self.start).as_secs_f64() + 1e-6
                    });
                    self.second = next.min(until).max(self.second);
                    if next > until {
                        return evictions;
                    }
                }
            }
        }
    }

    fn evict(&mut self, seconds: f64) -> Vec<String> {
        self.pass(seconds, leave)
            .iter()
            .map(|eviction| BindingKey::of(&eviction.binding).name)
            .collect()
    }

    fn reported(&mut self) -> Vec<(String, &'static str)> {
        self.evictor
            .take_reports()
            .bindings
            .into_iter()
            .map(|(key, note)| (key.name.clone(), note.reason()))
            .collect()
    }

    /// Returns whether this is reported of some workload.
    fn has_reported(&mut self, reason: &str) -> bool {
        self.reported()
            .iter()
            .any(|(_, reported)| *reported == reason)
    }

    /// Returns the reasons in the notes about workloads and clusters.
    fn reasons(&mut self) -> [Vec<&'static str>; 2] {
        let reports = self.evictor.take_reports();
        let bindings = reports.bindings.iter().map(|(_, note)| note.reason());
        let clusters = reports.clusters.iter().map(|note| note.reason);
        [bindings.collect(), clusters.collect()]
    }
}

/// Returns the outcome in which the workload leaves for a cluster named `new`.
fn leave(eviction: &Eviction) -> Outcome {
    let mut binding = AnyBinding::clone(&eviction.binding);
    binding
        .spec
        .clusters
        .retain(|target| target.name != *eviction.cluster);
    evicted(Arc::new(binding), "new")
}

/// Returns the outcome in which a binding is as it is now.
fn evicted(binding: Arc<AnyBinding>, to: &str) -> Outcome {
    Outcome::Evicted {
        binding,
        to: to.to_owned(),
        mode: PurgeMode::Gracefully,
    }
}

#[test]
fn what_waits_is_dropped_when_its_cluster_recovers() {
    let mut world = World::new(10, 2, 20);
    assert_eq!(world.evict(20.5).len(), 10);
    world.reported();
    world.set(&cluster("c0", &json!([])));
    let reported = world.reported();
    assert_eq!(
        reported.len(),
        15,
        "ten were evicted in turns, five of them from c0"
    );
    assert!(
        reported
            .iter()
            .all(|(name, reason)| name.starts_with("w0-") && *reason == "AbandonedOnRecovery")
    );
    let rest = world.evict(1_000.0);
    assert_eq!(rest.len(), 15);
    assert!(rest.iter().all(|name| name.starts_with("w1-")));
}

#[test]
fn a_restart_loses_nothing_and_repeats_nothing() {
    let run = |restart_after: Option<f64>| {
        let mut world = World::new(10, 3, 10);
        let mut evicted = world.evict(restart_after.unwrap_or(10.0));
        if restart_after.is_some() {
            world.restart(true);
        }
        evicted.extend(world.evict(10_000.0));
        evicted.sort();
        evicted
    };
    let whole = run(None);
    assert_eq!(whole.len(), 30);
    for after in [0.0, 1.0, 2.1, 17.0, 59.0] {
        assert_eq!(run(Some(after)), whole, "restart after {after} s");
    }
}

#[test]
fn a_policy_edited_while_the_item_waits_counts() {
    let mut world = World::new(10, 1, 2);
    assert_eq!(world.evict(2.5).len(), 1);
    let left = if world.bindings.last().unwrap().name_any() == "w0-0" {
        "w0-1"
    } else {
        "w0-0"
    };
    world.put(&binding(
        left,
        &["c0"],
        &json!({"placement": {"clusterTolerations": [{"operator": "Exists"}]}}),
    ));
    assert!(world.evict(1_000.0).is_empty());
    assert_eq!(
        world.reported().last().unwrap(),
        &(left.to_owned(), "Tolerated")
    );
    world.put(&binding(left, &["c0"], &json!({})));
    assert_eq!(world.evict(1_000.0), [left]);
}

#[test]
fn what_evicts_nothing_costs_nothing() {
    let mut world = World::new(10, 1, 100);
    let odd = |eviction: &Eviction| BindingKey::of(&eviction.binding).name.ends_with('7');
    let evictions = world.pass(20.5, |eviction| {
        if odd(eviction) {
            leave(eviction)
        } else {
            Outcome::Nowhere("full".into())
        }
    });
    assert_eq!(
        evictions.iter().filter(|eviction| odd(eviction)).count(),
        10,
        "all that can leave do at the full rate"
    );

    let mut failing = World::new(10, 1, 100);
    let tried = failing.pass(20.5, |eviction| {
        if odd(eviction) {
            leave(eviction)
        } else {
            Outcome::Failed("500".into())
        }
    });
    assert_eq!(tried.iter().filter(|eviction| odd(eviction)).count(), 10);
    let most = (0..100)
        .map(|n| {
            tried
                .iter()
                .filter(|eviction| BindingKey::of(&eviction.binding).name == format!("w0-{n}"))
                .count()
        })
        .max();
    assert!(most <= Some(5), "a failing one backs off: {most:?}");
}

#[test]
fn a_cache_that_is_behind_is_not_answered_by_a_storm_of_writes() {
    let mut world = World::new(10, 1, 1);
    world.second = 10.0;
    let tried = world.pass(60.0, |_| Outcome::Conflict);
    assert!((5..20).contains(&tried.len()), "{}", tried.len());
    // What it waited for is tried at once.
    world.put(&binding(
        "w0-0",
        &["c0"],
        &json!({"schedulePriority": {"priority": 1}}),
    ));
    assert_eq!(world.evict(0.1), ["w0-0"]);
}

#[test]
fn a_workload_on_two_failed_clusters_leaves_them_one_after_the_other() {
    let workload = binding("w", &["a", "b"], &json!({}));
    let mut world = World::among(&["a", "b"], &["c", "d"], workload);
    world.second = 100.0;
    let first = world.begin_eviction();
    world.second = 200.0;
    assert!(
        matches!(world.evictor.next(world.now()), Step::Wait(Some(at)) if at > world.now().tick),
        "one write at a time"
    );
    world.evictor.done(&first, leave(&first), world.now());
    assert_eq!(world.evict(10.0), ["w"]);
}

#[test]
fn what_changes_while_a_workload_is_being_evicted_is_judged_afterwards() {
    let world = |change: &dyn Fn(&mut World), end: &dyn Fn(&Eviction) -> Outcome| {
        let workload = binding("w", &["a", "b"], &json!({}));
        let mut world = World::among(&["a"], &["b", "c", "d", "e"], workload);
        world.second = 100.0;
        let eviction = world.begin_eviction();
        change(&mut world);
        world.evictor.done(&eviction, end(&eviction), world.now());
        let evictions = world.pass(50.0, leave);
        let from: Vec<String> = evictions.iter().map(|it| it.cluster.to_string()).collect();
        from
    };
    let taint_b = |world: &mut World| world.set(&cluster("b", &down(0)));
    // The scheduler chose another cluster, which has to be left as well.
    let moved = |world: &mut World| {
        world.set(&cluster("c", &down(0)));
        let mut newer = AnyBinding::clone(&binding("w", &["b", "c"], &json!({})));
        newer.metadata.resource_version = Some("2".to_owned());
        world.put(&Arc::new(newer));
    };
    let nowhere = |_: &Eviction| Outcome::Nowhere("full".into());
    let conflict = |_: &Eviction| Outcome::Conflict;
    let failed = |_: &Eviction| Outcome::Failed("refused".into());
    let unclear = |_: &Eviction| Outcome::Unclear("no answer".into());
    assert_eq!(world(&taint_b, &nowhere).len(), 2);
    for end in [
        &conflict as &dyn Fn(&Eviction) -> Outcome,
        &failed,
        &unclear,
    ] {
        let mut left = world(&taint_b, end);
        left.sort();
        assert_eq!(left, ["a", "b"]);
        assert_eq!(world(&moved, end), ["c"]);
    }
    // The watch reports the eviction before its answer comes, and what the scheduler did next.
    assert_eq!(world(&moved, &leave), ["c"]);
}

#[test]
fn what_is_known_of_a_binding_goes_with_it() {
    let mut world = World::new(10, 1, 1);
    world.reported();
    let mut going = AnyBinding::clone(&binding("w0-0", &["c0"], &json!({})));
    going.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(Timestamp::UNIX_EPOCH));
    world.put(&Arc::new(going));
    let reports = world.evictor.take_reports();
    let gone: Vec<&str> = reports.gone.iter().map(|key| key.name.as_str()).collect();
    assert_eq!((gone, reports.bindings.len()), (vec!["w0-0"], 0));
    let other = BindingKey::of(binding("w1-0", &[], &json!({})).as_ref());
    world.evictor.binding_gone(&other);
    assert_eq!(world.evictor.take_reports().gone.len(), 1);
}

#[test]
fn the_answer_to_our_own_write_never_replaces_what_the_watch_reported_since() {
    let mut world = World::new(10, 1, 1);
    world.second = 10.0;
    let eviction = world.begin_eviction();
    // The answer to the patch is under way; somebody else has moved the workload on, and the watch
    // is faster.
    let mut later = AnyBinding::clone(&binding("w0-0", &["c7"], &json!({})));
    later.metadata.resource_version = Some("3".into());
    world.put(&Arc::new(later));
    world.evictor.done(&eviction, leave(&eviction), world.now());
    world.reported();
    world.set(&cluster("c7", &down(0)));
    let evicted = world.evict(10.0);
    assert!(
        evicted.contains(&"w0-0".to_owned()),
        "it is known to be on c7"
    );
}

/// What happens while an eviction is under way, whether the binding bears the record of one, and
/// what is reported in the end.
type End = (fn(&mut World, Arc<AnyBinding>), bool, &'static str);

#[test]
fn however_often_a_cluster_changes_each_of_its_workloads_is_queued_once() {
    let count = 5_000;
    let bindings = (0..count)
        .map(|n| binding(&format!("w{n}"), &["c0"], &json!({})))
        .collect();
    let clusters = ["c0", "c1", "c2"].map(|name| cluster(name, &json!([])));
    let mut world = World::of(clusters.to_vec(), bindings, true);
    for second in [900, 901, 902] {
        world.set(&cluster("c0", &down(second)));
    }
    let depths: Vec<_> = world.evictor.backlog().depths().collect();
    assert_eq!(depths.len(), 1);
    assert_eq!((depths[0].1.ready, depths[0].1.waiting), (count, 0));
    assert_eq!(world.evict(101.0).len(), 50);
}
