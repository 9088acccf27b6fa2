//! Pauses of the fleet and of clusters.

use super::*;
use crate::fleet::pause::Pause;

#[expect(clippy::unnecessary_wraps)] // there may be none
pub(super) fn paused(until: Option<i64>) -> Option<Pause> {
    Some(Pause {
        by: "alice".to_owned(),
        until: until.map(|second| Timestamp::from_second(1_000 + second).unwrap()),
        ..Pause::default()
    })
}

impl World {
    pub(super) fn pause(&mut self, cluster: Option<&str>, pause: Option<Pause>) {
        match cluster {
            Some(cluster) => self.evictor.pauses.set_cluster(cluster, pause),
            None => self.evictor.pauses.set_fleet(pause),
        }
        let now = self.now();
        self.evictor.pauses_changed(now);
    }
}

#[test]
fn a_pause_stops_every_eviction_and_says_so_and_its_end_lets_them_go_on() {
    let mut world = World::new(4, 2, 60);
    assert!(!world.evict(20.0).is_empty());
    world.reported();
    world.pause(None, paused(None));
    let news = world.evictor.take_reports();
    assert!(!news.bindings.is_empty());
    for (_, note) in &news.bindings {
        assert!(note.reason() == "Paused" && note.is_pending(), "{note:?}");
        assert!(note.message().contains("by alice"), "{}", note.message());
    }
    // Each Cluster is told once, with its condition, whether or not something has to leave it.
    assert!(news.clusters.is_empty(), "{:?}", news.clusters);
    assert!(world.evict(1_000.0).is_empty());
    world.pause(None, None);
    let reported = world.reported();
    assert!(
        reported
            .iter()
            .all(|(_, reason)| *reason == "WaitingForRate")
    );
    // Nothing was saved up beyond what always is.
    assert!(world.evict(100.0).len().abs_diff(50) <= 2);
}

#[test]
fn a_paused_cluster_keeps_its_workloads_and_the_others_have_the_rate_for_themselves() {
    let mut world = World::new(4, 2, 60);
    world.pause(Some("c0"), paused(None));
    let evicted = world.evict(100.0);
    assert!(evicted.iter().all(|name| name.starts_with("w1-")));
    assert!(evicted.len().abs_diff(50) <= 1);
    world.pause(Some("c0"), None);
    let evicted = world.evict(20.0);
    assert!(evicted.iter().any(|name| name.starts_with("w0-")));
}

#[test]
fn a_pause_for_a_time_ends_by_itself() {
    let mut world = World::new(4, 1, 60);
    world.pause(None, paused(Some(50)));
    assert!(world.evict(49.0).is_empty());
    assert!(world.evict(51.0).len().abs_diff(25) <= 1);
}

#[test]
fn a_pause_of_a_queue_in_which_nothing_is_ready_wakes_nobody() {
    let tolerant = json!({"placement": {"clusterTolerations": [
        {"key": "down", "operator": "Exists", "tolerationSeconds": 1_300},
    ]}});
    let workload = binding("w", &["c0"], &tolerant);
    let mut world = World::pair(cluster("c0", &down(0)), [workload]);
    world.pause(None, paused(Some(50)));
    let Step::Wait(Some(when)) = world.evictor.next(world.now()) else {
        unreachable!("it is tolerated for another 300 s");
    };
    assert_eq!(when.duration_since(world.start).as_secs(), 300);
}

#[test]
fn what_waits_for_the_pause_of_another_cluster_is_tried_again_when_that_ends() {
    let mut world = World::new(4, 1, 1);
    world.pause(Some("c1"), paused(None));
    let held = |_: &Eviction| Outcome::Paused("movement out of c1 is paused".into());
    assert_eq!(world.pass(30.0, held).len(), 1);
    assert!(world.evict(1_000.0).is_empty());
    world.pause(Some("c1"), None);
    assert_eq!(world.evict(20.0), ["w0-0"]);
}
