//! Drains: with the gate off, at a rate of their own, and across restarts.

use muster_shared::names::annotation::DRAIN_RATE;

use super::*;

fn drained(name: &str, rate: Option<&str>, more: &Value) -> Arc<Cluster> {
    let since = Timestamp::from_second(0).unwrap();
    let mut taints = json!([
        {"key": "failover.muster.io/drain", "effect": "NoSchedule", "timeAdded": since},
        {"key": "failover.muster.io/drain", "effect": "NoExecute", "timeAdded": since},
    ]);
    let all = taints.as_array_mut().unwrap();
    all.extend(more.as_array().into_iter().flatten().cloned());
    let mut cluster = Cluster::clone(&cluster(name, &taints));
    let annotations = rate.map(|rate| [(DRAIN_RATE.to_owned(), rate.to_owned())].into());
    cluster.metadata.annotations = annotations;
    Arc::new(cluster)
}

/// Makes a world of four clusters with sixty workloads each. Nothing is wrong in it, and the gate
/// may be off.
fn fleet(failover: bool) -> World {
    let world = World::new(4, 0, 60);
    World::of(world.clusters, world.bindings, failover)
}

#[test]
fn a_drain_goes_on_whatever_the_gate_says_at_the_rate_of_the_fleet_or_its_own() {
    for (rate, expected) in [
        (None, 50),
        (Some("0.2"), 20),
        (Some("0.01"), 1),
        (Some("9"), 50),
    ] {
        for failover in [true, false] {
            let mut world = fleet(failover);
            world.set(&drained("c0", rate, &json!([])));
            let evicted = world.evict(100.0);
            assert!(
                evicted.len().abs_diff(expected) <= 1,
                "{rate:?}: {}",
                evicted.len()
            );
            assert!(evicted.iter().all(|it| it.starts_with("w0-")));
        }
    }
}

#[test]
fn a_slow_drain_does_not_delay_another_cluster() {
    let mut world = fleet(true);
    world.set(&drained("c0", Some("0.01"), &json!([])));
    world.set(&cluster("c1", &down(0)));
    let evicted = world.evict(100.0);
    let from = |number: &str| evicted.iter().filter(|it| it.starts_with(number)).count();
    assert!(
        from("w0-") <= 1 && from("w1-").abs_diff(49) <= 1,
        "{} {}",
        from("w0-"),
        from("w1-")
    );
}

#[test]
fn a_drained_cluster_that_fails_is_left_at_the_rate_of_the_fleet() {
    let mut world = fleet(true);
    world.set(&drained("c0", Some("0.01"), &json!([])));
    assert!(world.evict(50.0).is_empty());
    world.set(&drained("c0", Some("0.01"), &down(0)));
    assert!(world.evict(100.0).len().abs_diff(50) <= 1);
}

#[test]
fn a_rate_that_cannot_be_read_stops_the_drain_and_is_reported() {
    let mut world = fleet(false);
    world.set(&drained("c0", Some("fast"), &json!([])));
    let reported = |world: &mut World| {
        let reports = world.evictor.take_reports();
        let clusters = reports.clusters.into_iter();
        let about = |note: &ClusterNote| {
            note.reason == "DrainRateUnreadable" && note.message.contains("fast")
        };
        clusters.filter(about).count()
    };
    assert_eq!(reported(&mut world), 1);
    world.set(&drained("c0", Some("as fast as you can"), &json!([])));
    assert_eq!(reported(&mut world), 0, "it is nothing new");
    assert!(world.evict(100.0).is_empty());
    world.restart(false);
    assert_eq!(reported(&mut world), 1, "by each process");
    world.set(&drained("c0", Some("0.2"), &json!([])));
    assert!(world.evict(100.0).len().abs_diff(20) <= 1);
    world.set(&drained("c0", Some("fast"), &json!([])));
    assert_eq!(reported(&mut world), 1, "it could be read before");
    assert!(world.evict(100.0).is_empty());
}

#[test]
fn a_drain_that_is_known_before_evictions_begin_saves_nothing_up() {
    let mut world = fleet(false);
    world.set(&drained("c0", Some("0.2"), &json!([])));
    world.begin(Evictor::new(switches(false), Rates::default(), world.now()));
    world.second += 100.0;
    world.evictor.open(world.now());
    assert!(world.evict(4.9).is_empty());
    assert_eq!(world.evict(0.2).len(), 1);
}

#[test]
fn a_cluster_that_joins_again_has_saved_nothing_up() {
    let mut world = fleet(false);
    world.set(&drained("c0", Some("0.2"), &json!([])));
    assert!(world.evict(4.9).is_empty());
    world.evictor.cluster_gone("c0", true, world.now());
    world.set(&drained("c0", Some("0.2"), &json!([])));
    assert!(world.evict(4.9).is_empty());
    assert_eq!(world.evict(0.2).len(), 1);
}

#[test]
fn an_eviction_that_did_not_take_place_costs_the_drain_nothing() {
    let mut world = fleet(false);
    world.set(&drained("c0", Some("0.01"), &json!([])));
    let failed = world.pass(100.1, |_| Outcome::Conflict);
    assert!(!failed.is_empty());
    assert_eq!(world.evict(10.0).len(), 1, "it need not wait another 100 s");
}

#[test]
fn a_taint_that_moves_nothing_any_more_makes_no_slow_drain_a_fast_one() {
    let mut world = fleet(true);
    let mut back = Cluster::clone(&drained("c0", Some("0.01"), &down(0)));
    let record = json!({
        "taints": [{"key": "down", "effect": "NoExecute", "heldBy": ["dead"]}],
        "windows": {
            "dead": {"generation": 1, "matched": false, "since": Timestamp::UNIX_EPOCH},
        },
    });
    let annotations = back.metadata.annotations.get_or_insert_default();
    annotations.insert("taints.muster.io/record".to_owned(), record.to_string());
    world.set(&Arc::new(back));
    let left = world.evict(100.0).len();
    assert!(left <= 1, "{left} in 100 s at 0.01 a second");
}
