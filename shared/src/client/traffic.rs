//! First things first: requests that can wait let those pass that cannot.
//!
//! An API server takes about a thousand writes a second from everybody. When a whole cluster fails,
//! each of its workloads costs one write to be moved, one to be ordered from its new cluster, and
//! several to say so; in one queue with the others, moving them would take as long as all of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// What requests are for, first things first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Where something is to run.
    Decision,
    /// What carries a decision out.
    Order,
    /// What came of it, as conditions and statuses say.
    Report,
    /// What is told beside, as events are.
    Remark,
}

/// How many ranks there are.
const RANKS: usize = 4;

impl Rank {
    /// The longest time that a request gives way. It bounds how late it comes while others never
    /// pause.
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

/// The requests to one API that are under way. Cheap to clone: all clones count together.
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
    /// Waits until nothing is under way that comes before a rank, for as long as the rank's
    /// patience lasts.
    ///
    /// Whoever is going to write upon what they read waits before reading: afterwards it would be
    /// out of date.
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
