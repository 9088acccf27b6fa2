//! Whether the fleet API takes the status of policies, and when it is asked again after it did not.
//! Karmada's definition has no such subresource.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What the last write of a status found.
#[derive(Debug)]
pub struct Served {
    first: Duration,
    longest: Duration,
    refused: Mutex<Option<Refused>>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    at: Instant,
    wait: Duration,
}

impl Default for Served {
    /// Asks again after a minute, then ever later, up to an hour: definitions may be upgraded a
    /// little after this process.
    fn default() -> Self {
        Self::retrying(Duration::from_mins(1), Duration::from_hours(1))
    }
}

impl Served {
    /// Makes one that waits for `first` after a refusal, and twice as long after each further one,
    /// up to `longest`.
    pub const fn retrying(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            refused: Mutex::new(None),
        }
    }

    /// Returns the time until a status may be written; `None` if it may be written now.
    pub fn wait(&self) -> Option<Duration> {
        let refused = *self.refused.lock();
        let left = refused.map(|it| it.wait.saturating_sub(it.at.elapsed()));
        left.filter(|left| !left.is_zero())
    }

    /// Notes that no status is taken. Returns whether that is news.
    pub fn refuse(&self) -> bool {
        let mut refused = self.refused.lock();
        let wait = refused.map_or(self.first, |it| (it.wait * 2).min(self.longest));
        let at = Instant::now();
        refused.replace(Refused { at, wait }).is_none()
    }

    /// Notes that a status was taken. Returns whether none was taken before.
    pub fn accept(&self) -> bool {
        let mut refused = self.refused.lock();
        refused.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_api_that_takes_no_status_is_told_once_and_asked_ever_less_often() {
        let served = Served::default();
        assert_eq!(served.wait(), None);
        assert!(served.refuse(), "the first time is news");
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = Duration::from_mins(minutes);
            assert_eq!(served.wait(), Some(wait));
            tokio::time::advance(wait).await;
            assert_eq!(served.wait(), None);
            assert!(!served.refuse());
        }
        assert!(served.accept());
        assert_eq!(served.wait(), None);
        assert!(!served.accept() && served.refuse());
    }
}
