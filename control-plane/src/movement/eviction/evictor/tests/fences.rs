//! What keeps a workload whose time has come: fences, and an eviction that is under way.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::movement::eviction::fence::FenceGate;

/// Makes a world with the workload `w` on a cluster that failed long ago, beside a healthy cluster.
fn failed(more: &Value) -> World {
    World::pair(cluster("c0", &down(7)), [binding("w", &["c0"], more)])
}

impl World {
    fn wait(&mut self) -> Instant {
        match self.evictor.next(self.now()) {
            Step::Wait(until) => until.expect("time alone helps"),
            Step::Evict(_) => panic!("nothing is to be evicted yet"),
        }
    }
}

#[test]
fn a_workload_whose_copy_may_run_stays_until_the_copy_is_stopped() {
    let world = failed(&json!({}));
    let stopped = world.now().tick + Duration::from_secs(50);
    let fence: Fence = Box::new(move |_, _, now| {
        if now < stopped {
            FenceGate::Until(stopped, "it runs".to_owned())
        } else {
            FenceGate::Open
        }
    });
    let mut world = world.with(|evictor| evictor.fence = fence);
    assert!(world.evict(49.9).is_empty());
    let evictions = world.pass(5.0, leave);
    assert_eq!(evictions.len(), 1);
    assert_eq!(evictions[0].since(), Timestamp::from_second(7).unwrap());
}

#[test]
fn a_copy_that_nothing_stops_is_asked_about_again_later() {
    let fence: Fence = Box::new(|_, _, _| FenceGate::Shut("nothing stops it".to_owned()));
    let mut world = failed(&json!({})).with(|evictor| evictor.fence = fence);
    let now = world.now().tick;
    assert_eq!(world.wait(), now + UNFENCED);
    assert_eq!(world.evictor.backlog().depth("c0").stranded, 1);
    assert!(world.evict(1_000.0).is_empty());
    assert_eq!(world.evictor.backlog().depth("c0").stranded, 1, "and again");
}

#[test]
fn a_fence_that_closes_while_the_workload_waits_for_the_rate_keeps_it() {
    let is_open = Arc::new(AtomicBool::new(true));
    let fence: Fence = Box::new({
        let is_open = Arc::clone(&is_open);
        move |_, _, now| {
            if is_open.load(Ordering::Relaxed) {
                FenceGate::Open
            } else {
                FenceGate::Until(now + Duration::from_secs(20), "it runs again".to_owned())
            }
        }
    });
    let mut world = failed(&json!({})).with(|evictor| evictor.fence = fence);
    assert!(world.evict(1.0).is_empty(), "the rate does not permit it");
    is_open.store(false, Ordering::Relaxed);
    assert!(world.evict(100.0).is_empty());
    is_open.store(true, Ordering::Relaxed);
    assert_eq!(world.evict(21.0), ["w"]);
}

#[test]
fn a_job_that_has_completed_by_its_template_stays_though_no_cluster_reports_it_any_more() {
    let more = json!({"resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "sum"}});
    for (known, after, leaves) in [
        (Some(true), Some(true), false),
        (Some(false), Some(false), true),
        // The template is read in a moment, and says what it says.
        (None, Some(true), false),
        (None, Some(false), true),
        (None, None, false),
    ] {
        let says = Arc::new(Mutex::new(known));
        let jobs: CompletedByTemplate = Box::new({
            let says = Arc::clone(&says);
            move |_| *says.lock()
        });
        let mut world = failed(&more).with(|evictor| evictor.completed_by_template = jobs);
        let first = world.evict(10.0).len();
        assert_eq!(first == 1, known == Some(false), "{known:?}");
        let waits = world.has_reported("WaitingForTemplate");
        assert_eq!(waits, known.is_none(), "{known:?}");
        *says.lock() = after;
        let then = first + world.evict(10.0).len();
        assert_eq!(then == 1, leaves, "{known:?}, then {after:?}");
    }
    // Nobody asks about what is no Job.
    let jobs: CompletedByTemplate = Box::new(|_| None);
    let mut world = failed(&json!({})).with(|evictor| evictor.completed_by_template = jobs);
    assert_eq!(world.evict(10.0), ["w"]);
}

#[test]
fn a_workload_that_is_deleted_while_its_eviction_fails_is_forgotten() {
    let mut world = failed(&json!({}));
    world.second = 100.0;
    let eviction = world.begin_eviction();
    world
        .evictor
        .binding_gone(&BindingKey::of(&eviction.binding));
    let failure = Outcome::Failed("refused".to_owned());
    world.evictor.done(&eviction, failure, world.now());
    assert!(world.evictor.failures.is_empty());
}

#[test]
fn a_toleration_that_ends_while_evictions_are_stopped_is_reported() {
    let tolerant = json!({"placement": {"clusterTolerations": [
        {"key": "down", "operator": "Exists", "tolerationSeconds": 1_053},
    ]}});
    let mut world = failed(&tolerant);
    world.set(&cluster("c1", &down(0)));
    world.reported();
    assert!(world.evict(61.0).is_empty());
    let stopped = ("w".to_owned(), "StoppedByThreshold");
    assert_eq!(world.reported().last(), Some(&stopped));
}
