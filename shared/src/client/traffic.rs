//! Decisions first, explanations after: what can wait lets requests pass that cannot.
//!
//! An API server takes about a thousand writes a second from everybody. When a whole cluster fails, each of its workloads costs
//! one write to be moved and several to say so; in one queue with the others, moving would take as long as all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The longest time that a request gives way. It bounds how late an explanation comes while others never pause.
const PATIENCE: Duration = Duration::from_secs(1);

/// The requests to one API that are under way and cannot wait. Cheap to clone: all clones count together.
#[derive(Clone, Debug)]
pub struct Traffic {
    under_way: Arc<watch::Sender<usize>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            under_way: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Traffic {
    /// Waits until nothing is under way, at most [`PATIENCE`].
    ///
    /// Whoever is going to write upon what they read waits before reading: afterwards it would be out of date.
    pub async fn lull(&self) {
        let mut changes = self.under_way.subscribe();
        // Late is as good as quiet; and the sender lives as long as we do.
        let _ = timeout(PATIENCE, changes.wait_for(|under_way| *under_way == 0)).await;
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn enter(&self) -> UnderWay {
        self.under_way.send_modify(|under_way| *under_way += 1);
        UnderWay(self.clone())
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Traffic);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|under_way| *under_way -= 1);
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
        traffic.lull().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing is under way");
        for answered_after in [100, 300] {
            let request = traffic.enter();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(answered_after)).await;
                drop(request);
            });
        }
        traffic.lull().await;
        assert_eq!(start.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let traffic = Traffic::default();
        let start = Instant::now();
        let _hangs = traffic.enter();
        traffic.lull().await;
        assert_eq!(start.elapsed(), PATIENCE);
    }
}
