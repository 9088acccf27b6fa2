//! Room that is kept for more important workloads, which leave later than others.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use tokio::time::Instant;

use super::{Eviction, Evictor, Key, Now};
use crate::movement::eviction::backlog::Slot;
use crate::movement::eviction::fleet_view::LATER;
use crate::movement::eviction::judge::{Cause, Judgement};
use crate::movement::eviction::room::{HORIZON, Kept};
use crate::scheduler::core::Snapshot;

/// Time for which a plan of what is kept counts, and so much more for each workload in it:
/// thousands may leave meanwhile, and a plan for thousands takes a while.
const AGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(5));

/// The room that is kept for what has a higher priority.
#[derive(Debug)]
pub(super) struct Planned {
    until: Instant,
    kept: Arc<Kept>,
}

impl Evictor {
    /// Returns the room that is kept for what leaves later and has a higher priority.
    pub(super) fn keep(&mut self, priority: i32, now: Now) -> Arc<Kept> {
        self.planned.retain(|_, planned| now.tick < planned.until);
        if let Some(planned) = self.planned.get(&priority) {
            return Arc::clone(&planned.kept);
        }
        let later = self.later(priority, now);
        let clusters = self.fleet.snapshot();
        let kept = Kept::of(later, &self.switches, clusters, &self.options, now.wall);
        let kept = Arc::new(kept);
        let workloads = u32::try_from(kept.workloads()).unwrap_or(u32::MAX);
        let until = now.tick + AGE.0 + AGE.1.saturating_mul(workloads);
        let planned = Planned {
            until,
            kept: Arc::clone(&kept),
        };
        self.planned.insert(priority, planned);
        kept
    }

    /// Returns the fleet in which a workload is placed: as it is now, without the room that is kept
    /// for others.
    pub fn fleet_for(&self, eviction: &Eviction) -> Snapshot {
        eviction.kept.beside(self.fleet.snapshot())
    }

    /// Returns what leaves later and has a higher priority: it is not due yet, or waits for the
    /// rate of its cluster. What is due and waits for something else may never leave.
    fn later(
        &self,
        priority: i32,
        now: Now,
    ) -> impl Iterator<Item = (Arc<AnyBinding>, &str, Cause)> {
        let items = self.backlog.more_important(priority, now.tick + HORIZON);
        items.into_iter().filter_map(move |(_, cluster, key)| {
            let binding = self.bindings.peek(key)?;
            let Judgement::Leave { cause, due } = self.judge(cluster, &binding, now) else {
                return None;
            };
            let is_ready = matches!(self.backlog.place(cluster, key), Some(Slot::Ready(_)));
            let is_held = self.pauses.of(cluster, now.wall).is_some()
                || self.returned(cluster, &cause.taint, now).is_some();
            let leaves = !is_held && (is_ready || due > now.wall);
            leaves.then_some((binding, &**cluster, cause))
        })
    }

    /// Remembers a workload that stays because room is kept from it.
    pub(super) fn hold_back(&mut self, cluster: &Arc<str>, key: &Key, priority: i32, now: Now) {
        let held_back = self.held_back.entry(priority).or_default();
        held_back.insert((Arc::clone(cluster), Arc::clone(key)));
        self.look.get_or_insert(now.tick + LATER);
    }

    /// Wakes the workloads that room was kept from, once there is nobody any more to keep it for.
    pub(super) fn retry_held_back(&mut self, now: Now) {
        if self.look.is_none_or(|look| look > now.tick) {
            return;
        }
        let priorities: Vec<i32> = self.held_back.keys().copied().collect();
        for priority in priorities {
            if self.later(priority, now).next().is_some() {
                continue;
            }
            for (cluster, key) in self.held_back.remove(&priority).into_iter().flatten() {
                self.backlog.wake(&cluster, &key);
                self.retry_failing(&key, now);
                self.retry.get_or_insert(now.tick);
            }
        }
        self.look = (!self.held_back.is_empty()).then(|| now.tick + LATER);
    }
}
