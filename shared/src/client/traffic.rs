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
pub enum Rank {
    /// Placement of a workload.
    Decision,
    /// Works that carry out a placement.
    Order,
    /// Conditions and statuses.
    Report,
    /// Events.
    Remark,
}

/// Number of ranks.
const RANKS: usize = 4;

impl Rank {
    /// Longest time that a request waits for more urgent ones, which bounds its delay when those
    /// never pause.
    const fn patience(self) -> Duration {
        match self {
            Self::Decision => Duration::ZERO,
            Self::Order => Duration::from_millis(500),
            Self::Report => Duration::from_secs(1),
            // Each single remark gives way; in a rush they must come nearly as fast as what they
            // are about, or they are lost.
            Self::Remark => Duration::from_millis(50),
        }
    }
}

/// Requests to one API that are in flight. Cheap to clone: all clones count together.
#[derive(Clone, Debug)]
pub struct Traffic {
    under_way: Arc<watch::Sender<[usize; RANKS]>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            under_way: Arc::new(watch::Sender::new([0; RANKS])),
        }
    }
}

impl Traffic {
    /// Waits until no request of a higher rank is in flight, up to the patience of the rank.
    ///
    /// A writer waits before it reads the object that it writes, because the object would be
    /// outdated afterwards.
    pub async fn lull(&self, rank: Rank) {
        let mut changes = self.under_way.subscribe();
        let is_quiet =
            |under_way: &[usize; RANKS]| under_way[..rank as usize].iter().all(|count| *count == 0);
        // Late is as good as quiet; and the sender lives as long as we do.
        let _ = timeout(rank.patience(), changes.wait_for(is_quiet)).await;
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn enter(&self, rank: Rank) -> UnderWay {
        self.under_way
            .send_modify(|count| count[rank as usize] += 1);
        UnderWay(self.clone(), rank)
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Traffic, Rank);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self(traffic, rank) = self;
        traffic
            .under_way
            .send_modify(|count| count[*rank as usize] -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lull_comes_when_the_last_request_is_answered() {
        let traffic = Traffic::default();
        let start = Instant::now();
        traffic.lull(Rank::Report).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing is under way");
        for (rank, answered_after) in [(Rank::Decision, 100), (Rank::Order, 300)] {
            let request = traffic.enter(rank);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(answered_after)).await;
                drop(request);
            });
        }
        traffic.lull(Rank::Decision).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing comes first");
        traffic.lull(Rank::Order).await;
        assert_eq!(start.elapsed(), Duration::from_millis(100));
        traffic.lull(Rank::Report).await;
        assert_eq!(start.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let traffic = Traffic::default();
        let _hangs = traffic.enter(Rank::Decision);
        for rank in [Rank::Order, Rank::Report, Rank::Remark] {
            let start = Instant::now();
            traffic.lull(rank).await;
            assert_eq!(start.elapsed(), rank.patience());
        }
    }
}
