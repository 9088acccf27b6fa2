//! Rates, bands and the order in which workloads leave.

use super::*;

#[test]
fn a_stopped_queue_goes_on_by_itself_when_enough_clusters_return() {
    let mut world = World::new(8, 5, 3);
    assert!(world.evict(1_000.0).is_empty());
    assert!(
        world
            .reported()
            .iter()
            .all(|(_, reason)| *reason == "StoppedByThreshold")
    );
    world.set(&cluster("c0", &json!([])));
    let reports = world.evictor.take_reports();
    assert!(
        reports
            .clusters
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
fn writes_upon_one_version_of_a_binding_are_paid_once_however_often_their_end_is_unknown() {
    let mut world = World::new(10, 1, 250);
    // The API gives an error of its own for some, for as long as they are tried.
    let is_odd = |eviction: &Eviction| {
        let key = BindingKey::of(&eviction.binding);
        let number = key.name.rsplit('-').next().map(str::parse::<u32>);
        number.unwrap().unwrap() < 20
    };
    let tried = world.pass(600.5, |eviction| {
        if is_odd(eviction) {
            Outcome::Unclear("request is too large".into())
        } else {
            leave(eviction)
        }
    });
    let odd = tried.iter().filter(|it| is_odd(it)).count();
    assert!(odd > 100, "{odd}");
    // 0.5 a second in 600 s are 300: enough for the others and for one attempt of each of these.
    assert_eq!(tried.len() - odd, 230);
}

#[test]
fn what_others_pay_from_the_same_budget_the_evictor_does_not_spend() {
    let start = Instant::now();
    let pace = Pace::new(Rates::default(), start);
    let mut world = World::new(10, 1, 100);
    for cluster in &world.clusters {
        pace.observe(cluster, start);
    }
    world.evictor.pace = pace.clone();
    world.start = start;
    pace.begin(start);
    let second = |s| start + Duration::from_secs(s);
    for time in [2, 4, 6] {
        pace.pay(second(time)).unwrap().keep();
    }
    assert!(world.pass(7.0, leave).is_empty());
    assert_eq!(world.pass(1.5, leave).len(), 1);
}

#[test]
fn clusters_that_never_reported_or_are_being_removed_do_not_make_a_fleet_seem_healthy() {
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
        pace.observe(&change(name, &taints, how), Instant::now());
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
        view.put(&cluster(name, &json!([])), Instant::now());
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
fn a_rate_that_rises_because_a_cluster_is_back_evicts_nothing_from_it() {
    let mut world = World::new(8, 5, 1);
    assert_eq!(world.evict(10.0).len(), 0, "five of eight are too many");
    // The budget knows of a cluster before the evictor does.
    world.evictor.pace.put("c0", false, world.now().tick);
    let mut left = world.evict(100.0);
    left.sort();
    assert_eq!(left, ["w1-0", "w2-0", "w3-0", "w4-0"]);
    world.set(&cluster("c0", &json!([])));
    assert_eq!(world.evict(100.0).len(), 0, "it is back");
}

#[test]
fn a_failed_cluster_of_which_the_budget_knows_nothing_is_emptied() {
    let mut world = World::new(8, 1, 3);
    world.evictor.pace.gone("c0", world.now().tick);
    assert_eq!(world.evict(100.0).len(), 3);
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
