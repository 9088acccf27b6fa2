//! Priorities of requests: less urgent requests wait until more urgent ones are done.
//!
//! An API server handles about a thousand writes a second. When a cluster fails, each of its
//! workloads costs one write that moves it, one for the Work in the new cluster, and several for
//! conditions and events. In one queue, moving all workloads would take as long as all of these
//! writes together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Priority of requests, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Placements of workloads, and requests without a priority of their own.
    Placement,
    /// Works that carry out a placement.
    Work,
    /// Conditions and statuses.
    Status,
    /// Events.
    Event,
}

/// Number of priorities.
const PRIORITIES: usize = 4;

impl Priority {
    /// Returns the longest time that a request waits for more urgent ones, which bounds its delay
    /// when those never pause.
    const fn patience(self) -> Duration {
        match self {
            Self::Placement => Duration::ZERO,
            Self::Work => Duration::from_millis(500),
            Self::Status => Duration::from_secs(1),
            // Each single event gives way. In a rush, events must be written nearly as fast as
            // the decisions that they report, or they are lost.
            Self::Event => Duration::from_millis(50),
        }
    }
}

/// Requests to one API that are in flight. Cheap to clone: all clones count together.
#[derive(Clone, Debug)]
pub struct Traffic {
    in_flight: Arc<watch::Sender<[usize; PRIORITIES]>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            in_flight: Arc::new(watch::Sender::new([0; PRIORITIES])),
        }
    }
}

impl Traffic {
    /// Waits until no request of a higher priority is in flight, up to the longest time of this
    /// priority.
    ///
    /// Writers wait by [`Writer::when_idle`](super::Writer::when_idle).
    pub(super) async fn idle(&self, priority: Priority) {
        let mut changes = self.in_flight.subscribe();
        let is_quiet = |in_flight: &[usize; PRIORITIES]| {
            in_flight[..priority as usize]
                .iter()
                .all(|count| *count == 0)
        };
        // A time-out ends the wait as well; the sender lives as long as `self`.
        let _ = timeout(priority.patience(), changes.wait_for(is_quiet)).await;
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn enter(&self, priority: Priority) -> InFlight {
        self.in_flight
            .send_modify(|count| count[priority as usize] += 1);
        InFlight(self.clone(), priority)
    }
}

/// A request that is in flight.
#[derive(Debug)]
pub(super) struct InFlight(Traffic, Priority);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self(traffic, priority) = self;
        traffic
            .in_flight
            .send_modify(|count| count[*priority as usize] -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_writer_goes_on_when_the_last_request_is_answered() {
        let traffic = Traffic::default();
        let start = Instant::now();
        traffic.idle(Priority::Status).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing is under way");
        for (priority, answered_after) in [(Priority::Placement, 100), (Priority::Work, 300)] {
            let request = traffic.enter(priority);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(answered_after)).await;
                drop(request);
            });
        }
        traffic.idle(Priority::Placement).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing comes first");
        traffic.idle(Priority::Work).await;
        assert_eq!(start.elapsed(), Duration::from_millis(100));
        traffic.idle(Priority::Status).await;
        assert_eq!(start.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_more_urgent_requests_ends() {
        let traffic = Traffic::default();
        let _hangs = traffic.enter(Priority::Placement);
        for priority in [Priority::Work, Priority::Status, Priority::Event] {
            let start = Instant::now();
            traffic.idle(priority).await;
            assert_eq!(start.elapsed(), priority.patience());
        }
    }
}
