//! Workloads that no cluster can take.

use super::*;

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
fn a_stranded_workload_is_tried_again_when_a_cluster_does_not_refuse_it_any_more() {
    let reported = |report: &Value| {
        let mut reported = AnyBinding::clone(&binding("w", &["c0", "c1"], &json!({})));
        let status = json!({"aggregatedStatus": [report]});
        reported.status = Some(serde_json::from_value(status).unwrap());
        Arc::new(reported)
    };
    let nowhere = |_: &Eviction| Outcome::Nowhere("c1 could not apply it".into());
    for (later, tried) in [
        (json!({"clusterName": "c1", "applied": true}), 1),
        (
            json!({"clusterName": "c1", "appliedMessage": "quota", "health": "Healthy"}),
            1,
        ),
        (
            json!({"clusterName": "c1", "appliedMessage": "a webhook"}),
            0,
        ),
    ] {
        let refused = json!({"clusterName": "c1", "appliedMessage": "quota"});
        let mut world = World::pair(cluster("c0", &down(0)), [reported(&refused)]);
        assert_eq!(world.pass(100.0, nowhere).len(), 1, "{later}");
        world.put(&reported(&later));
        assert_eq!(world.pass(100.0, nowhere).len(), tried, "{later}");

        // It ends while the workload is tried by what was reported before.
        let mut world = World::pair(cluster("c0", &down(0)), [reported(&refused)]);
        world.second = 100.0;
        let eviction = world.begin_eviction();
        world.put(&reported(&later));
        let outcome = nowhere(&eviction);
        world.evictor.done(&eviction, outcome, world.now());
        assert_eq!(world.pass(100.0, nowhere).len(), tried, "{later}");
    }
}

/// Counts the workloads that are tried within some seconds after a change of room, out of
/// `stranded` ones that have nowhere to go.
fn tried_after_a_change(
    stranded: usize,
    seconds: f64,
    end: impl Fn(&Eviction) -> Outcome,
) -> usize {
    let bindings = (0..stranded).map(|n| binding(&format!("w{n}"), &["c0"], &json!({})));
    let mut world = World::pair(cluster("c0", &down(0)), bindings);
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
    let workload = binding("w", &["c0"], &json!({}));
    let mut world = World::among(&["c0"], &["a", "b"], workload);
    world.second = 100.0;
    let eviction = world.begin_eviction();
    // The eviction was planned before cluster c1 was there.
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
fn one_that_was_made_again_while_its_eviction_came_to_nothing_has_to_leave_as_well() {
    let made = |uid: &str| {
        let mut made = AnyBinding::clone(&binding("w", &["c0"], &json!({})));
        made.metadata.uid = Some(uid.to_owned());
        Arc::new(made)
    };
    for (later, expected) in [("second", &["w"][..]), ("first", &[])] {
        let mut world = World::pair(cluster("c0", &down(0)), [made("first")]);
        world.second = 100.0;
        let eviction = world.begin_eviction();
        world.put(&made(later));
        world.evictor.done(&eviction, Outcome::Gone, world.now());
        assert_eq!(world.evict(60.0), expected, "{later}");
    }
}
