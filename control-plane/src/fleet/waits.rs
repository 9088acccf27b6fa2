//! Growing pauses for conditions that no watch reports.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// First and longest wait.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Wait from which on it is worth telling.
const LONG: Duration = Duration::from_secs(5);
/// Time after which a long wait that goes on is told again.
const AGAIN: Duration = Duration::from_mins(30);

/// How often in a row each key has waited. May be lost.
pub struct Waits<K>(Mutex<HashMap<K, Waited>>);

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
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Waits<K> {
    /// Returns the next wait of a key: the first is 200 ms, and each one is twice as long up to 30
    /// s.
    pub fn next(&self, key: &K) -> Wait {
        let mut waits = self.lock();
        let waited = waits.entry(key.clone()).or_default();
        let time = length(waited.count);
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
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Waited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn length(count: u32) -> Duration {
    FIRST.saturating_mul(1 << count.min(16)).min(LONGEST)
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
}
