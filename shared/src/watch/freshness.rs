//! Records since when a watch has been out of contact with its server.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Whether a watch is current. Shared between the watch and the code that reports how old its data
/// is.
#[derive(Debug)]
pub struct Freshness {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// When the server last said something while we were up to date; at first, when following
    /// began.
    last_contact: Timestamp,
    /// Time of the same moment by the monotonic clock, by which its age is measured.
    tick: Instant,
    /// Whether something failed since.
    lost: bool,
}

impl Freshness {
    /// Makes a record without any contact or failure.
    pub fn new(now: Timestamp) -> Self {
        let state = State {
            last_contact: now,
            tick: Instant::now(),
            lost: false,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Returns when the server last responded, if the watch fails at present and that was longer
    /// ago than `grace`; `None` otherwise. An open watch without events does not fail.
    pub fn lost_since(&self, grace: Duration) -> Option<Timestamp> {
        let state = self.state.lock();
        let is_lost = state.lost && state.tick.elapsed() > grace;
        is_lost.then_some(state.last_contact)
    }

    /// Returns when the server last responded while the watch was current. On a quiet watch that is
    /// once a minute.
    pub fn last_contact(&self) -> Timestamp {
        let state = self.state.lock();
        state.last_contact
    }

    /// Returns how long ago that was, by the monotonic clock.
    pub fn silence(&self) -> Duration {
        self.state.lock().tick.elapsed()
    }

    pub(super) fn observe(&self, now: Timestamp) {
        let mut state = self.state.lock();
        *state = State {
            last_contact: now,
            tick: Instant::now(),
            lost: false,
        };
    }

    pub(super) fn lose(&self) {
        let mut state = self.state.lock();
        state.lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_age_is_that_of_the_last_word_and_not_of_the_failure() {
        let at = |second| Timestamp::new(second, 0).unwrap();
        let grace = Duration::from_secs(30);
        let touch = Freshness::new(at(0));
        assert_eq!(touch.lost_since(Duration::ZERO), None);
        touch.observe(at(10));
        tokio::time::advance(Duration::from_secs(20)).await;
        touch.lose();
        touch.lose();
        assert_eq!(touch.lost_since(Duration::from_secs(19)), Some(at(10)));
        // What calendars say does not count.
        assert_eq!(touch.lost_since(grace), None);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(touch.lost_since(grace), Some(at(10)));
        touch.observe(at(30));
        assert_eq!(touch.lost_since(Duration::ZERO), None);
    }
}
