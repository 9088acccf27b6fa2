//! Growing pauses for conditions that no watch reports.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// First and longest wait.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Wait from which on it is worth telling.
const LONG: Duration = Duration::from_secs(5);
/// Time after which a long wait that goes on is told again.
const AGAIN: Duration = Duration::from_mins(30);

/// How often in a row each key has waited. May be lost.
#[derive(Debug)]
pub struct Waits<K> {
    first: Duration,
    longest: Duration,
    waited: Mutex<HashMap<K, Waited>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    /// How often.
    count: u32,
    /// When it was told that the wait is long.
    told: Option<Instant>,
}

/// The next wait of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long to wait.
    pub time: Duration,
    /// Whether it is long and that is to be told now: once it has become so, and now and then while
    /// it goes on.
    pub is_worth_telling: bool,
    /// Whether it is long: what is waited for may never come.
    pub is_long: bool,
}

impl<K: Clone + Eq + Hash> Default for Waits<K> {
    /// Returns waits from 200 ms up to 30 s.
    fn default() -> Self {
        Self::between(FIRST, LONGEST)
    }
}

impl<K: Clone + Eq + Hash> Waits<K> {
    /// Returns waits from a first one up to a longest one.
    pub fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            waited: Mutex::default(),
        }
    }

    /// Returns the next wait of a key: each is twice as long as the one before it, up to the
    /// longest.
    pub fn next(&self, key: &K) -> Wait {
        let mut waits = self.waited.lock();
        let waited = waits.entry(key.clone()).or_default();
        let time = self.length(waited.count);
        waited.count = waited.count.saturating_add(1);
        let (is_long, now) = (time >= LONG, Instant::now());
        let is_news = waited
            .told
            .is_none_or(|told| now.duration_since(told) >= AGAIN);
        let is_worth_telling = is_long && is_news;
        if is_worth_telling {
            waited.told = Some(now);
        }
        Wait {
            time,
            is_worth_telling,
            is_long,
        }
    }

    /// Ends the wait of a key: what it waited for has come, or is not waited for any more.
    pub fn over(&self, key: &K) {
        self.waited.lock().remove(key);
    }

    fn length(&self, count: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << count.min(16));
        doubled.min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_and_are_told_of_when_they_are_long_and_every_half_hour() {
        let waits = Waits::default();
        let begun = Instant::now();
        let mut told = Vec::new();
        for _ in 0..200 {
            let wait = waits.next(&"a");
            if wait.is_worth_telling {
                told.push(begun.elapsed().as_secs() / 60);
            }
            assert!(wait.time <= LONGEST);
            assert_eq!(wait.is_long, !told.is_empty());
            tokio::time::advance(wait.time).await;
        }
        assert_eq!(told, [0, 30, 60, 90]);
        // Polling all the time would have been 200 looks in 40 s.
        assert!(begun.elapsed() > Duration::from_mins(90));
        assert_eq!(waits.next(&"b").time, FIRST, "others do not wait longer");
        waits.over(&"a");
        assert_eq!(waits.next(&"a").time, FIRST);
    }

    #[test]
    fn waits_have_bounds_of_their_own() {
        let waits = Waits::between(Duration::from_secs(15), Duration::from_secs(50));
        let seconds = [(); 4].map(|()| waits.next(&"a").time.as_secs());
        assert_eq!(seconds, [15, 30, 50, 50]);
    }
}
