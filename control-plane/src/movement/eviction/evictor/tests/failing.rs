//! Failing applications, which leave by the queue of taints.

use super::pauses::paused;
use super::*;
use crate::movement::eviction::backlog::Rank;
use crate::movement::eviction::explain::Note;
use crate::movement::eviction::fence::FenceGate;
use crate::scheduler::core::DataPlaces;

fn key(name: &str) -> BindingKey {
    BindingKey {
        namespace: Some("default".to_owned()),
        name: name.to_owned(),
    }
}

fn rank(priority: i32, since: i64) -> Rank {
    Rank::new(priority, Timestamp::from_second(since).unwrap())
}

impl World {
    fn fails(&mut self, name: &str, cluster: &str, rank: Rank) -> Option<EvictionState> {
        let now = self.now();
        self.evictor.fails(&key(name), cluster, rank, now)
    }

    /// Returns the failing applications of which there is something to report.
    fn changed(&mut self) -> Vec<String> {
        let changed = self.evictor.take_reports().applications;
        changed.into_iter().map(|key| key.name.clone()).collect()
    }
}

#[test]
fn however_many_fail_each_payment_is_for_one_and_they_leave_in_order() {
    let mut world = World::new(3, 0, 100);
    for n in 0..100_i64 {
        world.fails(&format!("w1-{n}"), "c1", rank(0, 1_000 - n));
    }
    world.fails("w2-7", "c2", rank(9, 5_000));
    assert_eq!(world.evict(9.0), ["w2-7", "w1-99", "w1-98", "w1-97"]);
    assert_eq!(world.changed(), ["w2-7", "w1-99", "w1-98", "w1-97"]);
}

#[test]
fn those_that_fail_and_those_that_leave_because_of_taints_take_turns_unless_one_is_more_important()
{
    for (priority, expected) in [
        (0, ["fails", "tainted", "fails", "tainted"]),
        (9, ["fails", "fails", "fails", "fails"]),
        (-9, ["tainted", "tainted", "tainted", "tainted"]),
    ] {
        let mut world = World::new(10, 3, 10);
        for n in 0..10 {
            world.fails(&format!("w9-{n}"), "c9", rank(priority, 1));
        }
        let left = world.evict(9.0);
        let kinds: Vec<&str> = left
            .iter()
            .map(|name| {
                if name.starts_with("w9") {
                    "fails"
                } else {
                    "tainted"
                }
            })
            .collect();
        assert_eq!(kinds, expected, "{priority}");
    }
}

#[test]
fn asking_again_keeps_the_place_in_the_queue_and_a_higher_priority_moves_forward() {
    let mut world = World::new(3, 0, 3);
    let queued = Some("WaitingForRate");
    let reason = |state: Option<EvictionState>| {
        let cluster = "c1".to_owned();
        state.map(|state| Note { cluster, state }.reason())
    };
    for again in [None, queued, queued] {
        let states = ["w1-0", "w1-1"].map(|name| reason(world.fails(name, "c1", rank(0, 1))));
        assert_eq!(states, [again, again]);
    }
    assert_eq!(world.fails("w1-1", "c1", rank(9, 1)), None, "it is new");
    assert_eq!(world.evict(5.0), ["w1-1", "w1-0"], "each once");
    // It is not there, or nowhere.
    assert_eq!(world.fails("w1-2", "c2", rank(0, 1)), None);
    assert_eq!(world.fails("other", "c1", rank(0, 1)), None);
    assert!(world.evict(5.0).is_empty());
}

#[test]
fn one_that_recovers_leaves_its_place_to_the_next() {
    let mut world = World::new(3, 0, 3);
    for name in ["w1-0", "w1-1", "w1-2"] {
        world.fails(name, "c1", rank(0, 1));
    }
    world.evictor.fails_no_more(&key("w1-0"));
    let tried = world.pass(2.5, |eviction| {
        assert_eq!(eviction.reason, QueueReason::Failure);
        match &*eviction.binding.name_any() {
            "w1-1" => Outcome::Conflict,
            _ => leave(eviction),
        }
    });
    assert_eq!(tried.len(), 2, "what is not used is not spent");
    assert_eq!(world.changed(), ["w1-1", "w1-2"], "it is to be judged anew");
    world.evictor.fails_no_more(&key("w1-1"));
    assert!(world.evict(60.0).is_empty());
}

#[test]
fn one_that_was_made_again_while_the_former_one_was_to_leave_leaves_where_it_fails_too() {
    let mut world = World::new(3, 0, 1);
    world.fails("w1-0", "c1", rank(0, 1));
    world.second = 100.0;
    let Step::Evict(eviction) = world.evictor.next(world.now()) else {
        panic!("it is to be evicted")
    };
    let mut made = AnyBinding::clone(&eviction.binding);
    made.metadata.uid = Some("second".to_owned());
    world.put(&Arc::new(made));
    assert_eq!(world.fails("w1-0", "c1", rank(0, 1)), None, "it is leaving");
    world.evictor.done(&eviction, Outcome::Gone, world.now());
    assert_eq!(world.changed(), ["w1-0"], "it is to be judged anew");
    world.fails("w1-0", "c1", rank(0, 1));
    assert_eq!(world.evict(60.0), ["w1-0"]);
}

#[test]
fn one_that_finds_no_place_says_so_and_is_tried_again_once_a_cluster_changes() {
    let mut world = World::new(3, 0, 1);
    let nowhere = |_: &Eviction| Outcome::Nowhere("full".to_owned());
    world.fails("w1-0", "c1", rank(0, 1));
    assert_eq!(world.pass(60.0, nowhere).len(), 1);
    assert_eq!(world.changed(), ["w1-0"]);
    let state = world.fails("w1-0", "c1", rank(0, 1));
    let Some(EvictionState::Nowhere { why, .. }) = state else {
        panic!("{state:?}");
    };
    assert_eq!(why, "full");
    assert!(world.evict(600.0).is_empty(), "nothing changed");
    world.set(&cluster("new", &json!([])));
    assert_eq!(world.evict(5.0), ["w1-0"]);
}

#[test]
fn one_that_changes_while_no_place_is_found_for_it_is_tried_again() {
    let mut world = World::new(3, 0, 1);
    world.fails("w1-0", "c1", rank(0, 1));
    world.second = 100.0;
    let eviction = world.begin_eviction();
    let elsewhere = json!({"placement": {"clusterAffinity": {"clusterNames": ["c1", "c2"]}}});
    world.put(&binding("w1-0", &["c1"], &elsewhere));
    let nowhere = Outcome::Nowhere("full".to_owned());
    world.evictor.done(&eviction, nowhere, world.now());
    assert_eq!(world.evict(5.0), ["w1-0"]);
}

#[test]
fn a_failed_write_is_tried_again_and_reported() {
    let mut world = World::new(3, 0, 1);
    world.fails("w1-0", "c1", rank(0, 1));
    let tried = world.pass(2.5, |_| Outcome::Failed("no".to_owned()));
    assert_eq!(tried.len(), 1);
    assert_eq!(world.changed(), ["w1-0"]);
    let state = world.fails("w1-0", "c1", rank(0, 1));
    assert_eq!(state, Some(EvictionState::Failed { why: "no".into() }));
    assert_eq!(world.evict(5.0), ["w1-0"]);
}

#[test]
fn one_whose_cluster_or_binding_goes_leaves_nothing_behind() {
    let mut world = World::new(4, 0, 1);
    for n in 1..4 {
        world.fails(&format!("w{n}-0"), &format!("c{n}"), rank(0, 1));
    }
    let now = world.now();
    world.evictor.cluster_gone("c1", true, now);
    world.evictor.binding_gone(&key("w2-0"));
    world.put(&binding("w3-0", &["c1"], &json!({})));
    assert!(world.evict(60.0).is_empty());
    assert!(world.evictor.failing.keys().next().is_none());
}

#[test]
fn nothing_fails_out_of_a_cluster_while_movement_is_paused() {
    let mut world = World::new(3, 0, 1);
    world.fails("w1-0", "c1", rank(0, 1));
    world.pause(Some("c1"), paused(None));
    assert_eq!(world.changed(), ["w1-0"]);
    let state = world.fails("w1-0", "c1", rank(0, 1));
    assert!(
        matches!(state, Some(EvictionState::Paused { .. })),
        "{state:?}"
    );
    assert!(world.evict(60.0).is_empty());
    world.pause(Some("c1"), None);
    assert_eq!(world.evict(5.0), ["w1-0"]);
}

#[test]
fn without_the_judge_of_taints_only_those_that_fail_leave() {
    let view = FleetView::new(DataPlaces::default(), false);
    let mut world = World::new(10, 1, 3).with(|evictor| evictor.fleet = view);
    world.fails("w9-0", "c9", rank(0, 1));
    assert_eq!(world.evict(60.0), ["w9-0"]);
    assert!(world.reported().is_empty());
}

#[test]
fn a_fenced_one_stays_while_nothing_stops_its_copy() {
    let fence: Fence = Box::new(|_, _, _| FenceGate::Shut("kept".to_owned()));
    let mut world = World::new(3, 0, 1).with(|evictor| evictor.fence = fence);
    world.fails("w1-0", "c1", rank(0, 1));
    assert!(world.evict(60.0).is_empty());
    assert_eq!(world.changed().first().map(String::as_str), Some("w1-0"));
    let state = world.fails("w1-0", "c1", rank(0, 1));
    let Some(EvictionState::Unfenced { why, .. }) = state else {
        panic!("{state:?}");
    };
    assert_eq!(why, "kept");
}
