//! Growing pauses for conditions that no watch reports.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// First and longest wait.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Wait from which on it is worth telling.
const LONG: Duration = Duration::from_secs(5);

/// How often in a row each key has waited. May be lost.
pub struct Waits<K>(Mutex<HashMap<K, u32>>);

/// The next wait of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long to wait.
    pub time: Duration,
    /// Whether it has become long with this wait, which is worth telling once.
    pub has_become_long: bool,
    /// Whether it is long: what is waited for may never come.
    pub is_long: bool,
}

impl<K: Clone + Eq + Hash> Default for Waits<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Waits<K> {
    /// The next wait of a key: 200 ms, doubled up to 30 s.
    pub fn next(&self, key: &K) -> Wait {
        let mut waits = self.lock();
        let count = waits.entry(key.clone()).or_default();
        let before = (*count > 0).then(|| length(*count - 1));
        let time = length(*count);
        *count = count.saturating_add(1);
        Wait {
            time,
            has_become_long: time >= LONG && before.is_none_or(|before| before < LONG),
            is_long: time >= LONG,
        }
    }

    /// What the key waited for has come, or is not waited for any more.
    pub fn over(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn length(count: u32) -> Duration {
    FIRST.saturating_mul(1 << count.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_told_of_once() {
        let waits = Waits::default();
        let (mut told, mut sum) = (0, Duration::ZERO);
        for _ in 0..100 {
            let wait = waits.next(&"a");
            told += u32::from(wait.has_become_long);
            sum += wait.time;
            assert!(wait.time <= LONGEST);
            assert_eq!(wait.is_long, told == 1, "{sum:?}");
        }
        assert_eq!(told, 1);
        // Polling all the time would have been 100 looks in 20 s.
        assert!(sum > Duration::from_mins(45), "{sum:?}");
        assert_eq!(waits.next(&"b").time, FIRST, "others do not wait longer");
        waits.over(&"a");
        assert_eq!(waits.next(&"a").time, FIRST);
    }
}
