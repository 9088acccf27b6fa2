use jiff::Timestamp;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PurgeMode;
use muster_shared::names::annotation::LAST_EVICTION;
use serde_json::{Value, json};

use super::*;
use crate::eviction::record::Record;

/// A fleet and its workloads, an opened evictor, and a clock that tests move.
struct World {
    evictor: Evictor,
    start: Instant,
    second: f64,
    clusters: Vec<Arc<Cluster>>,
    bindings: Vec<Arc<ResourceBinding>>,
}

fn switches(failover: bool) -> Switches {
    Switches {
        failover,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
    }
}

fn cluster(name: &str, taints: &Value) -> Arc<Cluster> {
    let status = json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"},
    ]});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull", "taints": taints}, "status": status})).unwrap())
}

fn down(second: i64) -> Value {
    taint("NoExecute", second)
}

fn taint(effect: &str, second: i64) -> Value {
    json!([{"key": "down", "effect": effect, "timeAdded": Timestamp::from_second(second).unwrap()}])
}

/// A binding on clusters; `more` is merged into its spec.
fn binding(name: &str, on: &[&str], more: &Value) -> Arc<ResourceBinding> {
    let clusters: Vec<Value> = on.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": name}, "clusters": clusters, "placement": {}});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Arc::new(serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": "1"}, "spec": spec})).unwrap())
}

impl World {
    /// `total` clusters `c0`, `c1`, ..., of which the first `failed` drive everything out; `each`
    /// workloads on each.
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

    fn of(
        clusters: Vec<Arc<Cluster>>,
        bindings: Vec<Arc<ResourceBinding>>,
        failover: bool,
    ) -> Self {
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
        };
        world.restart(failover);
        world
    }

    fn now(&self) -> Now {
        let passed = Duration::from_secs_f64(self.second);
        let wall = Timestamp::from_second(1_000).unwrap()
            + jiff::SignedDuration::try_from(passed).unwrap();
        Now {
            wall,
            tick: self.start + passed,
        }
    }

    /// A new process: tells a new evictor of everything, in another order.
    fn restart(&mut self, failover: bool) {
        self.evictor = Evictor::new(switches(failover), Rates::default(), self.now());
        for binding in self.bindings.iter().rev() {
            self.evictor
                .binding(&Arc::clone(binding).into(), self.now());
        }
        for cluster in &self.clusters {
            self.evictor.cluster(cluster, self.now());
        }
        self.evictor.open(self.now());
    }

    fn set(&mut self, changed: &Arc<Cluster>) {
        let name = changed.name_any();
        self.clusters.retain(|cluster| cluster.name_any() != name);
        self.clusters.push(Arc::clone(changed));
        self.evictor.cluster(changed, self.now());
    }

    fn put(&mut self, changed: &Arc<ResourceBinding>) {
        let name = changed.name_any();
        self.bindings.retain(|binding| binding.name_any() != name);
        self.bindings.push(Arc::clone(changed));
        self.evictor
            .binding(&Arc::clone(changed).into(), self.now());
    }

    /// Lets time pass; every eviction comes to the end that `end` gives it. Returns the evictions.
    fn pass(&mut self, seconds: f64, end: impl Fn(&Eviction) -> Outcome) -> Vec<Eviction> {
        let (until, mut evictions) = (self.second + seconds, Vec::new());
        loop {
            match self.evictor.next(self.now()) {
                Step::Evict(eviction) => {
                    let outcome = end(&eviction);
                    if let Outcome::Evicted {
                        binding: AnyBinding::Namespaced(binding),
                        ..
                    } = &outcome
                    {
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
            .map(|eviction| eviction.binding.key().name)
            .collect()
    }

    fn told(&mut self) -> Vec<(String, &'static str)> {
        self.evictor
            .take_news()
            .bindings
            .into_iter()
            .map(|(key, note)| (key.name.clone(), note.reason()))
            .collect()
    }
}

/// The workload leaves for a cluster named `new`.
fn leave(eviction: &Eviction) -> Outcome {
    let AnyBinding::Namespaced(binding) = &eviction.binding else {
        unreachable!()
    };
    let mut binding = ResourceBinding::clone(binding);
    binding
        .spec
        .clusters
        .retain(|target| target.name != *eviction.cluster);
    Outcome::Evicted {
        binding: Arc::new(binding).into(),
        to: "new".into(),
    }
}

#[test]
fn each_band_evicts_at_its_rate() {
    for (total, failed, expected) in [
        (10, 1, 50),  // healthy
        (10, 5, 50),  // half of a small fleet
        (10, 6, 0),   // too much of a small fleet
        (11, 6, 50),  // 54.5 %
        (11, 7, 10),  // too much of a large fleet
        (20, 11, 50), // 55 % exactly
        (20, 12, 10), // beyond
        (12, 7, 10),
        (8, 5, 0),
        (1, 1, 0),
    ] {
        let evicted = World::new(total, failed, 60).evict(100.0).len();
        assert!(
            evicted.abs_diff(expected) <= 1,
            "{failed} of {total}: {evicted} in 100 s, expected {expected}"
        );
    }
}

#[test]
fn a_stopped_queue_goes_on_by_itself_when_enough_clusters_return() {
    let mut world = World::new(8, 5, 3);
    assert!(world.evict(1_000.0).is_empty());
    assert!(
        world
            .told()
            .iter()
            .all(|(_, reason)| *reason == "StoppedByThreshold")
    );
    world.set(&cluster("c0", &json!([])));
    let news = world.evictor.take_news();
    assert!(
        news.clusters
            .iter()
            .any(|note| note.reason == "EvictionResumed")
    );
    assert_eq!(
        world.evict(1_000.0).len(),
        12,
        "those of the four clusters that are still down"
    );
}

#[test]
fn the_first_of_many_failures_does_not_count_as_the_only_one() {
    let mut world = World::new(8, 0, 3);
    let unknown = |name: &str, taints: &Value| {
        let mut cluster = Cluster::clone(&cluster(name, taints));
        cluster.status.as_mut().unwrap().conditions[0].status = "Unknown".into();
        Arc::new(cluster)
    };
    for n in 0..5 {
        world.set(&unknown(&format!("c{n}"), &json!([])));
    }
    world.set(&unknown("c0", &down(900)));
    assert!(
        world.evict(100.0).is_empty(),
        "one cluster is tainted, five are silent"
    );
}

#[test]
fn taints_made_by_a_person_move_nothing_while_the_gate_is_off() {
    let failover = json!({"failover": {"cluster": {"tolerationSeconds": 0}}});
    for effect in ["NoExecute", "PreferNoExecute"] {
        let world = |gate| {
            World::of(
                vec![cluster("c0", &taint(effect, 0)), cluster("c1", &json!([]))],
                vec![binding("w", &["c0"], &failover)],
                gate,
            )
        };
        assert!(world(false).evict(10_000.0).is_empty(), "{effect}");
        assert_eq!(world(true).evict(10_000.0), ["w"], "{effect}");
    }
}

#[test]
fn each_effect_asks_the_policy_its_own_way() {
    let tolerate = |seconds: Option<i64>| json!({"placement": {"clusterTolerations": [{"key": "down", "operator": "Exists", "tolerationSeconds": seconds}]}});
    let asked = json!({"failover": {"cluster": {"tolerationSeconds": 100}}});
    for (effect, more, leaves_after) in [
        ("NoExecute", json!({}), Some(2)),
        ("NoExecute", tolerate(Some(60)), Some(60)),
        ("NoExecute", tolerate(None), None),
        ("PreferNoExecute", json!({}), None),
        ("PreferNoExecute", tolerate(None), None),
        ("PreferNoExecute", asked.clone(), Some(100)),
        ("NoSchedule", asked, None),
    ] {
        let mut world = World::of(
            vec![cluster("c0", &json!([])), cluster("c1", &json!([]))],
            vec![binding("w", &["c0"], &more)],
            true,
        );
        world.set(&cluster("c0", &taint(effect, 1_000)));
        if let Some(after) = leaves_after {
            assert!(
                world.evict(f64::from(after) - 0.5).is_empty(),
                "{effect} {more} too early"
            );
            assert_eq!(world.evict(1.0), ["w"], "{effect} {more}");
        } else {
            assert!(world.evict(100_000.0).is_empty(), "{effect} {more}");
        }
    }
}

#[test]
fn what_waits_is_dropped_when_its_cluster_recovers() {
    let mut world = World::new(10, 2, 20);
    assert_eq!(world.evict(20.5).len(), 10);
    world.told();
    world.set(&cluster("c0", &json!([])));
    let told = world.told();
    assert_eq!(
        told.len(),
        15,
        "ten were evicted in turns, five of them from c0"
    );
    assert!(
        told.iter()
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
        world.told().last().unwrap(),
        &(left.to_owned(), "Tolerated")
    );
    world.put(&binding(left, &["c0"], &json!({})));
    assert_eq!(world.evict(1_000.0), [left]);
}

#[test]
fn what_evicts_nothing_costs_nothing() {
    let mut world = World::new(10, 1, 100);
    let odd = |eviction: &Eviction| eviction.binding.key().name.ends_with('7');
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
                .filter(|eviction| eviction.binding.key().name == format!("w0-{n}"))
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
fn a_write_that_nobody_knows_the_end_of_stays_paid() {
    let mut world = World::new(10, 1, 100);
    // Every write may have been carried out: no more are tried than the rate allows.
    let tried = world.pass(20.5, |_| Outcome::Unclear("no answer in time".into()));
    assert_eq!(tried.len(), 10, "0.5 a second in 20 s");
}

#[test]
fn what_others_pay_from_the_same_budget_the_desk_does_not_spend() {
    let start = Instant::now();
    let pace = Pace::new(Rates::default(), start);
    let mut world = World::new(10, 1, 100);
    world.evictor.pace = pace.clone();
    world.start = start;
    pace.begin(start);
    let second = |s| start + Duration::from_secs(s);
    for turn in [2, 4, 6] {
        assert!(pace.pay(Payer::Applications, second(turn)).is_ok());
    }
    assert!(world.pass(7.0, leave).is_empty());
    assert_eq!(world.pass(1.5, leave).len(), 1);
}

#[test]
fn a_stranded_workload_is_tried_again_only_when_something_changes() {
    let mut world = World::new(10, 1, 1);
    let nowhere = |_: &Eviction| Outcome::Nowhere("full".into());
    assert_eq!(world.pass(10_000.0, nowhere).len(), 1);
    world.set(&cluster("c5", &taint("NoSchedule", 0)));
    assert_eq!(world.pass(10_000.0, nowhere).len(), 1);
    world.set(&cluster("c5", &taint("NoSchedule", 0)));
    assert_eq!(world.pass(10_000.0, nowhere).len(), 0, "nothing changed");
    world.put(&binding(
        "w0-0",
        &["c0"],
        &json!({"placement": {"clusterAffinity": {"clusterNames": ["c1"]}}}),
    ));
    assert_eq!(world.evict(10.0), ["w0-0"]);
}

#[test]
fn a_workload_on_two_failed_clusters_leaves_them_one_after_the_other() {
    let mut world = World::of(
        vec![
            cluster("a", &down(0)),
            cluster("b", &down(0)),
            cluster("c", &json!([])),
            cluster("d", &json!([])),
        ],
        vec![binding("w", &["a", "b"], &json!({}))],
        true,
    );
    world.second = 100.0;
    let Step::Evict(first) = world.evictor.next(world.now()) else {
        panic!("the first leaves")
    };
    world.second = 200.0;
    assert!(
        matches!(world.evictor.next(world.now()), Step::Wait(Some(_))),
        "one write at a time"
    );
    world.evictor.done(&first, leave(&first), world.now());
    assert_eq!(world.evict(10.0), ["w"]);
}

#[test]
fn what_changes_while_a_workload_is_being_evicted_is_judged_afterwards() {
    let world = |change: &dyn Fn(&mut World), end: &dyn Fn(&Eviction) -> Outcome| {
        let mut world = World::of(
            vec![
                cluster("a", &down(0)),
                cluster("b", &json!([])),
                cluster("c", &json!([])),
                cluster("d", &json!([])),
                cluster("e", &json!([])),
            ],
            vec![binding("w", &["a", "b"], &json!({}))],
            true,
        );
        world.second = 100.0;
        let Step::Evict(eviction) = world.evictor.next(world.now()) else {
            panic!("it is its turn")
        };
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
        let mut newer = ResourceBinding::clone(&binding("w", &["b", "c"], &json!({})));
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
    // The watch tells of the eviction before its answer comes, and of what the scheduler did next.
    assert_eq!(world(&moved, &leave), ["c"]);
}

#[test]
fn a_condition_left_over_from_before_a_restart_is_put_right() {
    let mut waiting = ResourceBinding::clone(&binding("w", &["c0"], &json!({})));
    waiting.status = serde_json::from_value(json!({"conditions": [
        {"type": "EvictionPending", "status": "True", "reason": "WaitingForRate", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"},
    ]}))
    .unwrap();
    let mut world = World::of(
        vec![cluster("c0", &json!([]))],
        vec![Arc::new(waiting)],
        true,
    );
    assert_eq!(world.told(), [("w".to_owned(), "AbandonedOnMove")]);
}

fn with_condition(binding: &ResourceBinding, condition: &Value) -> Arc<ResourceBinding> {
    let mut binding = binding.clone();
    binding.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    Arc::new(binding)
}

fn pending(message: &str, second: i64) -> Value {
    json!({
        "type": "EvictionPending", "status": "True", "reason": "WaitingForRate", "message": message,
        "lastTransitionTime": Timestamp::from_second(second).unwrap(),
    })
}

#[test]
fn after_a_restart_an_eviction_that_nobody_told_of_is_told_with_its_cluster_and_cause() {
    let moved = {
        let mut moved = ResourceBinding::clone(&binding("w", &["c1"], &json!({})));
        let at = Timestamp::from_second(900).unwrap();
        let cause = "taint down:NoExecute, which is not tolerated";
        let record = Record::new("c0", "c1", "Directly", cause, at);
        let annotations = [(LAST_EVICTION.to_owned(), record.write())];
        moved.metadata.annotations = Some(annotations.into());
        moved
    };
    let told = |binding: Arc<ResourceBinding>| {
        let clusters = vec![cluster("c0", &down(0)), cluster("c1", &json!([]))];
        let mut world = World::of(clusters, vec![binding], true);
        let news = world.evictor.take_news().bindings;
        news.into_iter()
            .map(|(_, note)| note.message())
            .collect::<Vec<_>>()
    };
    let before = with_condition(&moved, &pending("c0 has taint down:NoExecute", 890));
    for untold in [Arc::new(moved.clone()), before] {
        assert_eq!(
            told(untold),
            ["left c0 for c1 (Directly): c0 has taint down:NoExecute, which is not tolerated"]
        );
    }
    let known = json!({
        "type": "EvictionPending", "status": "False", "reason": "Evicted", "message": "left c0 for c1 ...",
        "lastTransitionTime": Timestamp::from_second(900).unwrap(),
    });
    assert!(told(with_condition(&moved, &known)).is_empty(), "told once");
}

#[test]
fn a_stale_condition_is_put_right_for_the_cluster_that_it_names() {
    let on_both = binding("w", &["c1", "c10"], &json!({}));
    let stale = with_condition(
        &on_both,
        &pending("c10 has taint down:NoExecute: it leaves ...", 1),
    );
    let clusters = ["c1", "c10"].map(|name| cluster(name, &json!([])));
    let mut world = World::of(clusters.to_vec(), vec![stale], true);
    let news = world.evictor.take_news().bindings;
    let told: Vec<_> = news
        .iter()
        .map(|(_, note)| (note.cluster.as_str(), note.reason()))
        .collect();
    assert_eq!(told, [("c10", "AbandonedOnRecovery")]);
}

#[test]
fn what_somebody_else_moves_while_it_waits_is_not_said_to_wait_any_more() {
    let mut world = World::new(10, 1, 1);
    world.told();
    world.put(&binding("w0-0", &["c5"], &json!({})));
    assert_eq!(world.told(), [("w0-0".to_owned(), "AbandonedOnMove")]);
    let mut world = World::new(10, 1, 1);
    world.told();
    world.evictor.cluster_gone("c0", true, world.now());
    assert_eq!(world.told(), [("w0-0".to_owned(), "AbandonedClusterGone")]);
}

#[test]
fn what_is_known_of_a_binding_goes_with_it() {
    let mut world = World::new(10, 1, 1);
    world.told();
    let mut going = ResourceBinding::clone(&binding("w0-0", &["c0"], &json!({})));
    going.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(Timestamp::UNIX_EPOCH));
    world.put(&Arc::new(going));
    let news = world.evictor.take_news();
    let gone: Vec<&str> = news.gone.iter().map(|key| key.name.as_str()).collect();
    assert_eq!((gone, news.bindings.len()), (vec!["w0-0"], 0));
    let other = BindingKey::of(binding("w1-0", &[], &json!({})).as_ref());
    world.evictor.binding_gone(&other);
    assert_eq!(world.evictor.take_news().gone.len(), 1);
}

#[test]
fn the_answer_to_our_own_write_never_replaces_what_the_watch_told_since() {
    let mut world = World::new(10, 1, 1);
    world.second = 10.0;
    let Step::Evict(eviction) = world.evictor.next(world.now()) else {
        panic!("one has to leave")
    };
    // The answer to the patch is under way; somebody else has moved the workload on, and the watch
    // is faster.
    let mut later = ResourceBinding::clone(&binding("w0-0", &["c7"], &json!({})));
    later.metadata.resource_version = Some("3".into());
    world.put(&Arc::new(later));
    world.evictor.done(&eviction, leave(&eviction), world.now());
    world.told();
    world.set(&cluster("c7", &down(0)));
    let evicted = world.evict(10.0);
    assert!(
        evicted.contains(&"w0-0".to_owned()),
        "it is known to be on c7"
    );
}

/// What happens while an eviction is under way, whether the binding bears the record of one, and
/// what is told in the end.
type End = (fn(&mut World, Arc<ResourceBinding>), bool, &'static str);

#[test]
fn whatever_ends_an_eviction_that_is_under_way_the_workload_is_not_said_to_wait_any_more() {
    let start = || {
        let mut world = World::new(10, 1, 1);
        world.second = 10.0;
        let Step::Evict(eviction) = world.evictor.next(world.now()) else {
            panic!("one has to leave")
        };
        world.told();
        (world, *eviction)
    };
    let outcomes: [fn() -> Outcome; 3] = [
        || Outcome::Conflict,
        || Outcome::Failed("no answer".into()),
        || Outcome::Nowhere("full".into()),
    ];
    let moved = |annotated: bool| {
        let mut moved = ResourceBinding::clone(&binding("w0-0", &["c5"], &json!({})));
        moved.metadata.resource_version = Some("2".into());
        if annotated {
            let at = Timestamp::from_second(1_010).unwrap();
            let record = Record::new("c0", "c5", "Directly", "taint", at);
            moved.metadata.annotations = Some([(LAST_EVICTION.to_owned(), record.write())].into());
        }
        Arc::new(moved)
    };
    for outcome in outcomes {
        // Written, and the answer was lost; moved by somebody else; recovered; gone.
        let ends: [End; 4] = [
            (|world, moved| world.put(&moved), true, "Evicted"),
            (|world, moved| world.put(&moved), false, "AbandonedOnMove"),
            (
                |world, _| world.set(&cluster("c0", &json!([]))),
                false,
                "AbandonedOnRecovery",
            ),
            (
                |world, _| world.evictor.cluster_gone("c0", true, world.now()),
                false,
                "AbandonedClusterGone",
            ),
        ];
        for (end, annotated, expected) in ends {
            let (mut world, eviction) = start();
            end(&mut world, moved(annotated));
            world.evictor.done(&eviction, outcome(), world.now());
            let told = world.told();
            let last = told.last().map(|(_, reason)| *reason);
            assert_eq!(last, Some(expected), "{:?}", outcome());
        }
    }
}

#[test]
fn long_texts_of_others_are_cut_before_they_are_kept_for_each_workload() {
    let long = "x".repeat(1_000_000);
    let taints = json!([{"key": "down", "value": long, "effect": "NoExecute"}]);
    let clusters = vec![cluster("c0", &taints), cluster("c1", &json!([]))];
    let workload = binding("w", &["c0"], &json!({}));
    let mut world = World::of(clusters, vec![workload], true);
    world.pass(10.0, |_| Outcome::Nowhere("y".repeat(1_000_000)));
    for (_, note) in world.evictor.take_news().bindings {
        let length = note.message().len();
        assert!(length < 2_000, "{} has {length} bytes", note.reason());
    }
}

/// How many of so many workloads that have nowhere to go are tried within some seconds after a
/// change of room.
fn tried_after_a_change(
    stranded: usize,
    seconds: f64,
    end: impl Fn(&Eviction) -> Outcome,
) -> usize {
    let clusters = [cluster("c0", &down(0)), cluster("c1", &json!([]))];
    let bindings = (0..stranded).map(|n| binding(&format!("w{n}"), &["c0"], &json!({})));
    let mut world = World::of(clusters.to_vec(), bindings.collect(), true);
    world.evictor.pace.set_rates(
        Rates {
            primary: 10_000.0,
            ..Rates::default()
        },
        world.now().tick,
    );
    world.pass(30.0, |_| Outcome::Nowhere("full".into()));
    let mut roomier = Cluster::clone(&cluster("c1", &json!([])));
    roomier.status.as_mut().unwrap().resource_summary =
        serde_json::from_value(json!({"allocatable": {"cpu": "8"}})).unwrap();
    world.set(&Arc::new(roomier));
    assert_eq!(world.pass(9.5, |_| Outcome::Gone).len(), 0, "not yet");
    world.pass(seconds, end).len()
}

#[test]
fn a_change_of_room_tries_what_is_stranded_in_slices_and_faster_when_that_helps() {
    let nowhere = |_: &Eviction| Outcome::Nowhere("full".into());
    let tried = tried_after_a_change(800, 3.0, nowhere);
    assert_eq!(tried, 300, "those of three seconds");
    assert_eq!(tried_after_a_change(50, 60.0, nowhere), 50, "each once");
    let tried = tried_after_a_change(800, 2.0, leave);
    assert_eq!(tried, 800, "all that can leave do");
}

#[test]
fn a_change_that_could_help_is_not_missed_by_what_is_being_evicted_meanwhile() {
    let clusters = [("c0", down(0)), ("a", json!([])), ("b", json!([]))];
    let clusters = clusters.map(|(name, taints)| cluster(name, &taints));
    let mut world = World::of(
        clusters.to_vec(),
        vec![binding("w", &["c0"], &json!({}))],
        true,
    );
    world.second = 100.0;
    let Step::Evict(eviction) = world.evictor.next(world.now()) else {
        panic!("it is to be evicted")
    };
    // It was planned without this one.
    world.set(&cluster("c1", &json!([])));
    world.second += 2.0;
    assert!(matches!(world.evictor.next(world.now()), Step::Wait(None)));
    let nowhere = Outcome::Nowhere("full".into());
    world.evictor.done(&eviction, nowhere, world.now());
    assert_eq!(world.evict(5.0), ["w"]);
    assert_eq!(
        world.pass(600.0, |_| Outcome::Nowhere("full".into())).len(),
        0
    );
}

#[test]
fn clusters_that_never_reported_or_are_being_removed_do_not_make_a_fleet_look_healthy() {
    let change = |name: &str, taints: &Value, change: fn(&mut Cluster)| {
        let mut cluster = Cluster::clone(&cluster(name, taints));
        change(&mut cluster);
        Arc::new(cluster)
    };
    let begun: fn(&mut Cluster) = |_| {};
    let new: fn(&mut Cluster) = |cluster| cluster.status = None;
    let going: fn(&mut Cluster) = |cluster| {
        cluster.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(Timestamp::UNIX_EPOCH));
    };
    let pace = Pace::new(Rates::default(), Instant::now());
    for (name, taints, how, total, failed) in [
        ("a", json!([]), begun, 1, 0),
        ("b", down(0), begun, 2, 1),
        ("c", json!([]), new, 2, 1),
        ("d", json!([]), going, 2, 1),
        ("e", down(0), going, 2, 1),
        // One that never reported and yet is tainted has failed.
        ("c", down(0), new, 3, 2),
        ("b", json!([]), begun, 3, 1),
        ("b", down(0), begun, 3, 2),
        ("b", down(0), going, 2, 1),
    ] {
        pace.hear(&change(name, &taints, how), Instant::now());
        let health = pace.health();
        assert_eq!(
            (health.total, health.failed),
            (total, failed),
            "after {name}"
        );
    }
}

#[test]
fn a_cluster_that_was_seen_leaving_is_told_from_one_that_may_be_there() {
    let mut view = FleetView::default();
    for name in ["c", "e"] {
        view.put(&cluster(name, &json!([])));
    }
    view.remove("c", true);
    view.remove("e", false);
    let snapshot = view.snapshot();
    assert!(snapshot.presence("c").is_gone(), "seen leaving");
    assert!(snapshot.presence("e").is_unknown(), "it may be there");
}

#[test]
fn a_failed_cluster_that_nobody_saw_leave_does_not_let_the_others_go() {
    let mut world = World::new(9, 5, 1);
    assert_eq!(world.evict(10.0).len(), 0, "five of nine are too many");
    world.evictor.cluster_gone("c0", false, world.now());
    assert_eq!(world.evict(100.0).len(), 0, "it may be there");
    world.evictor.cluster_gone("c0", true, world.now());
    assert_eq!(world.evict(100.0).len(), 4, "four of eight are not");
}

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

#[test]
fn the_higher_priority_leaves_first_then_what_had_to_leave_first() {
    let priority = |priority: i32| json!({"schedulePriority": {"priority": priority}});
    let tolerating = |seconds: i64| json!({"placement": {"clusterTolerations": [{"operator": "Exists", "tolerationSeconds": seconds}]}});
    let mut world = World::of(
        vec![cluster("c0", &json!([])), cluster("c1", &json!([]))],
        vec![
            binding("young", &["c0"], &tolerating(60)),
            binding("old", &["c0"], &tolerating(30)),
            binding("vital", &["c0"], &priority(100)),
            binding("idle", &["c0"], &priority(-5)),
        ],
        true,
    );
    world.second = 90.0;
    world.set(&cluster("c0", &taint("NoExecute", 1_000)));
    assert_eq!(world.evict(100.0), ["vital", "old", "young", "idle"]);
}

#[test]
fn failed_clusters_take_turns_however_much_waits_on_each() {
    let mut world = World::new(10, 3, 40);
    let mut per_cluster = std::collections::BTreeMap::<String, usize>::new();
    for eviction in world.pass(60.5, leave) {
        *per_cluster.entry(eviction.cluster.to_string()).or_default() += 1;
    }
    assert!(
        per_cluster.values().all(|count| *count == 10),
        "{per_cluster:?}"
    );
}

mod told;
