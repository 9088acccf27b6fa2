//! Room that is kept for more important workloads, which leave later than others.

use std::time::Duration;

use tokio::time::Instant;

use super::{Evictor, Judgement, Now};
use crate::movement::eviction::judge::purge_mode;
use crate::movement::eviction::room::{Kept, Later};
use crate::scheduler::core::Snapshot;

/// Time for which a plan of what is kept counts, and so much more for each workload in it:
/// thousands may leave meanwhile, and a plan for thousands takes a while.
const AGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(5));

/// The room that is kept for what has a higher priority.
#[derive(Debug)]
pub(super) struct Planned {
    priority: i32,
    until: Instant,
    kept: Kept,
}

impl Evictor {
    /// Returns the fleet without the room of what leaves later and has a higher priority: workloads
    /// whose taints are tolerated for longer, and such as had nowhere to go. Says how many these
    /// are, too.
    pub(super) fn beside_more_important(&mut self, priority: i32, now: Now) -> (Snapshot, usize) {
        let planned = self.planned.take();
        let planned = planned.filter(|it| it.priority == priority && now.tick < it.until);
        let planned = planned.unwrap_or_else(|| {
            let kept = self.keep_from(priority, now);
            let workloads = u32::try_from(kept.workloads()).unwrap_or(u32::MAX);
            Planned {
                priority,
                until: now.tick + AGE.0 + AGE.1.saturating_mul(workloads),
                kept,
            }
        });
        let kept = &self.planned.insert(planned).kept;
        (kept.beside(self.fleet.snapshot()), kept.workloads())
    }

    fn keep_from(&self, priority: i32, now: Now) -> Kept {
        let items = self.backlog.more_important(priority).into_iter();
        let later = items.filter_map(|(_, cluster, key)| {
            let binding = self.bindings.get(key)?;
            let Judgement::Leave { cause, .. } = self.judge(cluster, binding, now) else {
                return None;
            };
            Some(Later {
                spec: &binding.spec,
                status: binding.status(),
                cluster,
                purge_mode: purge_mode(&binding.spec, &self.switches, &cause),
                cause,
            })
        });
        Kept::of(later, self.fleet.snapshot(), &self.options, now.wall)
    }
}
