//! Conditions and events of workloads that wait or have left.

use muster_shared::api::any_binding::AnyBinding;

use super::*;

#[test]
fn a_condition_left_over_from_before_a_restart_is_put_right() {
    let mut waiting = AnyBinding::clone(&binding("w", &["c0"], &json!({})));
    waiting.status = serde_json::from_value(json!({"conditions": [
        {"type": "EvictionPending", "status": "True", "reason": "WaitingForRate", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"},
    ]}))
    .unwrap();
    let mut world = World::of(
        vec![cluster("c0", &json!([]))],
        vec![Arc::new(waiting)],
        true,
    );
    assert_eq!(world.reported(), [("w".to_owned(), "AbandonedOnMove")]);
}

fn with_condition(binding: &AnyBinding, condition: &Value) -> Arc<AnyBinding> {
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
fn after_a_restart_an_eviction_that_nobody_reported_of_is_reported_with_its_cluster_and_cause() {
    let moved = {
        let mut moved = AnyBinding::clone(&binding("w", &["c1"], &json!({})));
        let at = Timestamp::from_second(900).unwrap();
        let cause = "taint down:NoExecute, which is not tolerated";
        let record = Record::new("c0", "c1", "Directly", cause, at);
        let annotations = [(LAST_EVICTION.to_owned(), record.write())];
        moved.metadata.annotations = Some(annotations.into());
        moved
    };
    let reported = |binding: Arc<AnyBinding>| {
        let mut world = World::pair(cluster("c0", &down(0)), [binding]);
        let reports = world.evictor.take_reports().bindings;
        reports
            .into_iter()
            .map(|(_, note)| note.message())
            .collect::<Vec<_>>()
    };
    let before = with_condition(&moved, &pending("c0 has taint down:NoExecute", 890));
    for unreported in [Arc::new(moved.clone()), before] {
        assert_eq!(
            reported(unreported),
            ["left c0 for c1 (Directly): c0 has taint down:NoExecute, which is not tolerated"]
        );
    }
    let known = json!({
        "type": "EvictionPending", "status": "False", "reason": "Evicted", "message": "left c0 for c1 ...",
        "lastTransitionTime": Timestamp::from_second(900).unwrap(),
    });
    assert!(
        reported(with_condition(&moved, &known)).is_empty(),
        "reported once"
    );
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
    let reports = world.evictor.take_reports().bindings;
    let reported: Vec<_> = reports
        .iter()
        .map(|(_, note)| (note.cluster.as_str(), note.reason()))
        .collect();
    assert_eq!(reported, [("c10", "AbandonedOnRecovery")]);
}

#[test]
fn what_somebody_else_moves_while_it_waits_is_not_said_to_wait_any_more() {
    let mut world = World::new(10, 1, 1);
    world.reported();
    world.put(&binding("w0-0", &["c5"], &json!({})));
    assert_eq!(world.reported(), [("w0-0".to_owned(), "AbandonedOnMove")]);
    for (left, expected) in [
        (true, "AbandonedClusterGone"),
        (false, "AbandonedClusterUnseen"),
    ] {
        let mut world = World::new(10, 1, 1);
        world.reported();
        world.evictor.cluster_gone("c0", left, world.now());
        assert_eq!(world.reported(), [("w0-0".to_owned(), expected)]);
    }
}

#[test]
fn whatever_ends_an_eviction_that_is_under_way_the_workload_is_not_said_to_wait_any_more() {
    let start = || {
        let mut world = World::new(10, 1, 1);
        world.second = 10.0;
        let eviction = world.begin_eviction();
        world.reported();
        (world, *eviction)
    };
    let outcomes: [fn() -> Outcome; 3] = [
        || Outcome::Conflict,
        || Outcome::Failed("no answer".into()),
        || Outcome::Nowhere("full".into()),
    ];
    let moved = |annotated: bool| {
        let mut moved = AnyBinding::clone(&binding("w0-0", &["c5"], &json!({})));
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
            let reported = world.reported();
            let last = reported.last().map(|(_, reason)| *reason);
            assert_eq!(last, Some(expected), "{:?}", outcome());
        }
    }
}

#[test]
fn long_texts_of_others_are_cut_before_they_are_kept_for_each_workload() {
    let long = "x".repeat(1_000_000);
    let taints = json!([{"key": "down", "value": long, "effect": "NoExecute"}]);
    let workload = binding("w", &["c0"], &json!({}));
    let mut world = World::pair(cluster("c0", &taints), [workload]);
    world.pass(10.0, |_| Outcome::Nowhere("y".repeat(1_000_000)));
    for (_, note) in world.evictor.take_reports().bindings {
        let length = note.message().len();
        assert!(length < 2_000, "{} has {length} bytes", note.reason());
    }
}

#[test]
fn what_is_said_of_a_workload_that_stays_is_the_same_whatever_changed_last() {
    let tolerating =
        json!({"placement": {"clusterTolerations": [{"key": "down", "operator": "Exists"}]}});
    let upkeep = json!([{"key": "upkeep", "effect": "NoExecute", "timeAdded": Timestamp::from_second(1_000).unwrap()}]);
    let clean = |name: &str| cluster(name, &json!([]));
    let mut world = World::of(
        vec![clean("c0"), clean("c1"), clean("c2")],
        vec![binding("w", &["c0", "c1", "c2"], &tolerating)],
        true,
    );
    let reported = |world: &mut World| -> Vec<(String, &'static str)> {
        let reports = world.evictor.take_reports().bindings;
        let reported = reports
            .iter()
            .map(|(_, note)| (note.cluster.clone(), note.reason()));
        reported.collect()
    };
    let stays = |name: &str| (name.to_owned(), "Tolerated");
    for name in ["c1", "c0"] {
        reported(&mut world);
        world.set(&cluster(name, &down(1_000)));
    }
    let both = [stays("c0"), stays("c1")];
    assert_eq!(reported(&mut world), both, "c0 changed last");
    world.restart(true);
    assert!(reported(&mut world).ends_with(&both), "after a restart");

    world.set(&clean("c1"));
    assert_eq!(reported(&mut world), both[..1], "c1 has no taint any more");
    world.set(&cluster("c1", &down(1_000)));

    // Nothing was said of these while the workload waited to leave another cluster.
    world.set(&cluster("c2", &upkeep));
    reported(&mut world);
    world.set(&clean("c2"));
    let recovered = ("c2".to_owned(), "AbandonedOnRecovery");
    assert_eq!(reported(&mut world), [&[recovered], &both[..]].concat());
}

#[test]
fn a_recovery_while_the_cache_lacks_the_binding_or_the_cluster_is_reported_when_it_is_back() {
    let waiting = with_condition(
        &binding("w", &["c0"], &json!({})),
        &pending("c0 has taint down:NoExecute", 1),
    );
    for lacks_binding in [true, false] {
        let mut world = World::pair(cluster("c0", &down(0)), [Arc::clone(&waiting)]);
        if lacks_binding {
            world.evictor.binding_gone(&BindingKey::of(&waiting));
        } else {
            world.evictor.cluster_gone("c0", false, world.now());
        }
        // Notes about a binding or a cluster that the cache lacks are written nowhere.
        world.reported();
        world.set(&cluster("c0", &json!([])));
        if lacks_binding {
            world.put(&waiting);
        }
        let recovered = ("w".to_owned(), "AbandonedOnRecovery");
        assert_eq!(world.reported(), [recovered], "{lacks_binding}");
    }
}

#[test]
fn a_move_out_of_a_cluster_that_the_cache_lacks_is_reported() {
    let named = |cluster: &str| {
        let binding = binding("w", &[cluster], &json!({}));
        with_condition(&binding, &pending("c0 has taint down:NoExecute", 1))
    };
    let mut world = World::of(vec![cluster("c1", &json!([]))], Vec::new(), true);
    world.put(&named("c0"));
    assert_eq!(world.reported(), []);
    world.put(&named("c1"));
    let abandoned = ("w".to_owned(), "AbandonedOnMove");
    assert_eq!(world.reported(), [abandoned]);
}

#[test]
fn a_move_while_the_cache_lacks_both_is_reported_when_the_new_cluster_is_back() {
    let moved = with_condition(
        &binding("w", &["c1"], &json!({})),
        &pending("c0 has taint down:NoExecute", 1),
    );
    let mut world = World::of(vec![cluster("c1", &json!([]))], Vec::new(), true);
    world.evictor.cluster_gone("c1", false, world.now());
    world.put(&moved);
    assert_eq!(world.reported(), []);
    world.set(&cluster("c1", &json!([])));
    let abandoned = ("w".to_owned(), "AbandonedOnMove");
    assert_eq!(world.reported(), [abandoned]);
}
