//! Workloads of which some are more important than others, and room that does not suffice for all.

use super::*;
use crate::scheduler::core::capacity::Demand;
use crate::settings::grade_rule::GradeRule;

/// Returns a cluster that is free for so many cores.
fn free(name: &str, cores: u32) -> Arc<Cluster> {
    let mut cluster = Cluster::clone(&cluster(name, &json!([])));
    let status = cluster.status.as_mut().unwrap();
    let summary = json!({"allocatable": {"cpu": cores.to_string(), "pods": "100"}});
    status.resource_summary = serde_json::from_value(summary).unwrap();
    status.api_enablements = serde_json::from_value(json!([
        {"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]},
    ]))
    .unwrap();
    Arc::new(cluster)
}

/// Returns a Deployment of one replica and one core that tolerates the loss of its cluster for so
/// long.
fn web(name: &str, priority: i32, tolerates: i64) -> Arc<AnyBinding> {
    let toleration = json!({
        "key": "down", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": tolerates,
    });
    let one = json!({"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1});
    let spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name},
        "replicas": 1,
        "clusters": [{"name": "c0", "replicas": 1}],
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "schedulePriority": {"priority": priority},
        "placement": {
            "clusterTolerations": [toleration],
            "spreadConstraints": [one],
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        },
    });
    binding(name, &["c0"], &spec)
}

/// Returns the cores that were free for the eviction of this number in the last pass.
fn cores_left(world: &World, eviction: usize, cluster: &str) -> i64 {
    let core = Demand::new(&serde_json::from_value(json!({"cpu": "1"})).unwrap());
    let known = world.fleets[eviction].get(cluster).unwrap();
    let capacity = known.capacity().unwrap();
    capacity.replicas(Some(&core), GradeRule::Minimums)
}

/// Returns the world after the loss of c0, a second ago, with these workloads there and so many
/// cores free in c1.
fn lost(cores: u32, workloads: impl IntoIterator<Item = Arc<AnyBinding>>) -> World {
    let clusters = vec![cluster("c0", &down(999)), free("c1", cores)];
    World::of(clusters, workloads.into_iter().collect(), true)
}

#[test]
fn what_is_less_important_and_leaves_earlier_takes_no_room_of_what_leaves_later() {
    // (cores that are free, priority of what leaves later, for whom room is kept, cores left)
    for (cores, later, kept_for, left) in [(1, 9, 1, 0), (2, 9, 1, 1), (0, 9, 0, 0), (1, 0, 0, 1)] {
        let workloads = [web("idle", 0, 0), web("vital", later, 600)];
        let mut world = lost(cores, workloads);
        let tried = world.pass(10.0, |_| Outcome::Nowhere("full".into()));
        let what = format!("{cores} cores, priority {later}");
        assert_eq!(tried.len(), 1, "{what}");
        assert_eq!(tried[0].binding.name_any(), "idle", "{what}");
        assert_eq!(tried[0].kept.workloads(), kept_for, "{what}");
        assert_eq!(cores_left(&world, 0, "c1"), left, "{what}");
    }
}

#[test]
fn what_stays_for_the_sake_of_others_is_tried_again_although_nothing_reports_them() {
    let mut world = lost(1, [web("idle", 0, 0), web("vital", 9, 600)]);
    let tried = world.pass(5.0, |_| Outcome::Nowhere("full".into()));
    assert_eq!(tried.len(), 1);
    let notes = world.evictor.take_reports().bindings;
    let reported = notes.iter().map(|(_, note)| format!("{note:?}"));
    let why = "room is kept for workloads of a higher priority";
    assert!(
        reported.clone().any(|it| it.contains(why)),
        "{:?}",
        reported.collect::<Vec<_>>()
    );
    // Its policy tolerates the loss for ever by now, so that it needs no room.
    let mut stays = AnyBinding::clone(&web("vital", 9, 600));
    let placement = Arc::make_mut(stays.spec.placement.as_mut().unwrap());
    placement.cluster_tolerations[0].toleration_seconds = None;
    world.put(&Arc::new(stays));
    let tried = world.pass(30.0, leave);
    assert_eq!(tried.len(), 1, "it is tried again");
    assert_eq!(
        (tried[0].kept.workloads(), cores_left(&world, 0, "c1")),
        (0, 1)
    );
}

#[test]
fn what_has_moved_takes_room_until_its_cluster_reports_it() {
    let workloads = (0..4).map(|n| web(&format!("w{n}"), 0, 0));
    let mut world = lost(3, workloads);
    let place = |eviction: &Eviction| {
        let mut moved = AnyBinding::clone(&eviction.binding);
        moved.spec.clusters[0].name = "c1".to_owned();
        evicted(Arc::new(moved), "c1")
    };
    let moved = world.pass(9.0, place);
    assert_eq!(moved.len(), 4);
    let left = [0, 1, 2, 3].map(|eviction| cores_left(&world, eviction, "c1"));
    assert_eq!(left, [3, 2, 1, 0], "c1 has not said anything yet");
    // Two minutes later nobody takes them for pods that have not been seen.
    world.put(&web("late", 0, 0));
    world.pass(3.0, |_| Outcome::Nowhere("full".into()));
    assert_eq!(cores_left(&world, 0, "c1"), 0);
    let late = world.pass(120.0, |_| Outcome::Nowhere("full".into()));
    assert_eq!(cores_left(&world, late.len() - 1, "c1"), 3);
}

#[test]
fn what_cannot_leave_itself_keeps_no_room_from_others() {
    type End = fn() -> Outcome;
    let ends: [(&str, End); 4] = [
        ("refused by a webhook", || Outcome::Failed("refused".into())),
        ("its policy is paused", || Outcome::Paused("paused".into())),
        ("its state is missing", || {
            Outcome::Unpreserved("no state".into())
        }),
        ("its namespace is stuck in c1", || {
            Outcome::Nowhere("c1 removes its namespace".into())
        }),
    ];
    let mut wrong = Vec::new();
    for (what, end) in ends {
        let mut world = lost(1, [web("idle", 0, 0), web("vital", 9, 0)]);
        let tried = world.pass(3_600.0, |it| {
            if it.binding.name_any() == "vital" {
                end()
            } else {
                Outcome::Nowhere("full".into())
            }
        });
        let idle: Vec<_> = tried
            .iter()
            .enumerate()
            .filter(|(_, it)| it.binding.name_any() == "idle")
            .map(|(place, it)| (it.kept.workloads(), cores_left(&world, place, "c1")))
            .collect();
        if idle.last() != Some(&(0, 1)) {
            wrong.push(format!(
                "{what}: tried {} times in an hour, last {:?}",
                idle.len(),
                idle.last()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_waits_for_the_rate_of_its_drain_keeps_its_room() {
    let mut slow = Cluster::clone(&cluster(
        "c0",
        &json!([
            {"key": "failover.muster.io/drain", "effect": "NoExecute", "timeAdded": Timestamp::from_second(0).unwrap()},
        ]),
    ));
    slow.metadata.annotations = Some(
        [(
            muster_shared::names::annotation::DRAIN_RATE.to_owned(),
            "0.001".to_owned(),
        )]
        .into(),
    );
    let mut idle = AnyBinding::clone(&web("idle", 0, 0));
    idle.spec.clusters[0].name = "c2".to_owned();
    let vital = [web("vital1", 9, 0), web("vital2", 9, 0)];
    let full = (3..10).map(|n| free(&format!("c{n}"), 0));
    let clusters = [Arc::new(slow), free("c1", 1), cluster("c2", &down(999))]
        .into_iter()
        .chain(full)
        .collect();
    let workloads = vital.into_iter().chain([Arc::new(idle)]).collect();
    let mut world = World::of(clusters, workloads, true);
    let tried = world.pass(60.0, |_| Outcome::Nowhere("full".into()));
    let idle = tried
        .iter()
        .position(|it| it.binding.name_any() == "idle")
        .unwrap();
    assert_eq!(
        cores_left(&world, idle, "c1"),
        0,
        "the one core is for vital: kept for {}",
        tried[idle].kept.workloads()
    );
}

#[test]
fn one_more_important_workload_less_changes_nothing_for_all_that_are_stranded() {
    let idle = (0..50).map(|n| web(&format!("idle{n}"), 0, 0));
    let vital = (0..20).map(|n| web(&format!("vital{n}"), 9, 30 + 10 * n));
    let mut world = lost(20, idle.chain(vital));
    let mut texts = std::collections::BTreeSet::new();
    let mut notes = 0;
    for _ in 0..30 {
        let _ = world.pass(10.0, |it| {
            if it.binding.name_any().starts_with("vital") {
                let mut moved = AnyBinding::clone(&it.binding);
                moved.spec.clusters[0].name = "c1".to_owned();
                evicted(Arc::new(moved), "c1")
            } else {
                Outcome::Nowhere("full".into())
            }
        });
        let reported = world.evictor.take_reports().bindings;
        for (key, note) in reported
            .iter()
            .filter(|(key, _)| key.name.starts_with("idle"))
        {
            let text = format!("{note:?}");
            if text.contains("room is kept") {
                notes += 1;
                texts.insert((Arc::clone(key), text));
            }
        }
    }
    assert_eq!(texts.len(), 50, "the same is said of each");
    assert!(
        notes <= 250,
        "{notes} attempts to move 50 workloads in five minutes"
    );
}

/// Returns the next version of a binding, which is in another cluster.
fn moved(binding: &AnyBinding, cluster: &str) -> Arc<AnyBinding> {
    let mut moved = AnyBinding::clone(binding);
    moved.metadata.resource_version = Some("2".to_owned());
    moved.spec.clusters[0].name = cluster.to_owned();
    Arc::new(moved)
}

#[test]
fn what_somebody_else_placed_takes_room_as_well_and_so_does_what_is_being_moved() {
    let mut world = lost(3, [web("w0", 0, 0), web("w1", 0, 0)]);
    // The scheduler, a rebalance, or another process.
    world.put(&web("other", 0, 9_000));
    world.put(&moved(&web("other", 0, 9_000), "c1"));
    let now = world.now();
    let left = |world: &mut World, eviction: &Eviction| {
        let fleet = world.evictor.fleet_for(eviction);
        world.fleets = vec![fleet];
        cores_left(world, 0, "c1")
    };
    world.second = 10.0;
    let mut next = || {
        let eviction = world.begin_eviction();
        world.second += 10.0;
        let before = left(&mut world, &eviction);
        let planned = moved(&eviction.binding, "c1").spec.clusters.clone();
        world.evictor.take_planned_room(&eviction, &planned, now);
        (eviction, before)
    };
    let (first, before) = next();
    assert_eq!(before, 2, "the other one is there");
    let (second, before) = next();
    assert_eq!(before, 1, "the first is being moved");
    assert_eq!(left(&mut world, &second), 0);
    // One is moved, and the watch shows it before the answer; the other one stays.
    let there = moved(&first.binding, "c1");
    world.put(&there);
    world.evictor.done(&first, evicted(there, "c1"), now);
    assert_eq!(left(&mut world, &second), 0, "it takes its room once");
    world
        .evictor
        .done(&second, Outcome::Failed("no".into()), now);
    assert_eq!(left(&mut world, &second), 1);
}

#[test]
fn what_somebody_else_moves_while_it_is_being_moved_takes_the_room_where_it_is() {
    let mut world = lost(3, [web("w0", 0, 0)]);
    world.set(&free("c2", 3));
    world.second = 10.0;
    let now = world.now();
    let eviction = world.begin_eviction();
    let left = |world: &mut World| {
        world.fleets = vec![world.evictor.fleet_for(&eviction)];
        ["c1", "c2"].map(|it| cores_left(world, 0, it))
    };
    let planned = moved(&eviction.binding, "c1").spec.clusters.clone();
    world.evictor.take_planned_room(&eviction, &planned, now);
    assert_eq!(left(&mut world), [2, 3]);
    world.put(&moved(&eviction.binding, "c2"));
    world.evictor.done(&eviction, Outcome::Conflict, now);
    assert_eq!(left(&mut world), [3, 2]);
}
