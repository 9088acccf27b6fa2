//! What controllers remember of each key besides the objects: how often it has waited, since when
//! something is so, and what was done a moment ago. All of it may be lost.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use muster_shared::queue::doubled;
use muster_shared::spare::give_back;
use parking_lot::Mutex;
use tokio::time::Instant;

/// First and longest wait.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Wait from which on it is reported.
const LONG: Duration = Duration::from_secs(5);
/// Time after which a long wait that goes on is reported again.
const AGAIN: Duration = Duration::from_mins(30);

/// Growing pauses for conditions that no watch reports: how often in a row each key has waited.
#[derive(Debug)]
pub struct Backoff<K> {
    first: Duration,
    longest: Duration,
    waited: Mutex<HashMap<K, Waited>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    /// Number of waits.
    count: u32,
    /// Time at which it was reported that the wait is long.
    reported: Option<Instant>,
    /// Time at which the last wait ends.
    until: Option<Instant>,
}

/// The next wait of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Length of the wait.
    pub time: Duration,
    /// Whether it is long and that is to be reported now: once it has become so, and now and then
    /// while it goes on.
    pub is_worth_reporting: bool,
    /// Whether it is long: what is waited for may never come.
    pub is_long: bool,
}

impl<K: Clone + Eq + Hash> Default for Backoff<K> {
    /// Returns pauses from 200 ms up to 30 s.
    fn default() -> Self {
        Self::between(FIRST, LONGEST)
    }
}

impl<K: Clone + Eq + Hash> Backoff<K> {
    /// Returns pauses from a first one up to a longest one.
    pub fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            waited: Mutex::default(),
        }
    }

    /// Returns the next wait of a key: each is twice as long as the one before it, up to the
    /// longest. Before the last one is over it is what is left of that: many events of a moment
    /// make no wait long.
    pub fn next(&self, key: &K) -> Wait {
        let mut waits = self.waited.lock();
        let waited = waits.entry(key.clone()).or_default();
        let now = Instant::now();
        if let Some(rest) = waited.rest(now) {
            return Wait {
                time: rest,
                is_worth_reporting: false,
                is_long: waited.is_long(self),
            };
        }
        waited.count = waited.count.saturating_add(1);
        let (time, is_long) = (self.length(waited.count), waited.is_long(self));
        waited.until = Some(now + time);
        let is_due = waited
            .reported
            .is_none_or(|reported| now.duration_since(reported) >= AGAIN);
        let is_worth_reporting = is_long && is_due;
        if is_worth_reporting {
            waited.reported = Some(now);
        }
        Wait {
            time,
            is_worth_reporting,
            is_long,
        }
    }

    /// Returns what is left of the last wait of a key.
    pub fn rest(&self, key: &K) -> Option<Duration> {
        self.waited.lock().get(key)?.rest(Instant::now())
    }

    /// Returns whether a key waits.
    pub fn has(&self, key: &K) -> bool {
        self.waited.lock().contains_key(key)
    }

    /// Ends the wait of a key: what it waited for has come, or is not waited for any more.
    pub fn forget(&self, key: &K) {
        let mut waited = self.waited.lock();
        waited.remove(key);
        give_back(&mut waited);
    }

    /// Ends the waits of all keys but some.
    pub fn retain(&self, keep: impl Fn(&K) -> bool) {
        self.waited.lock().retain(|key, _| keep(key));
    }

    /// Returns how long the wait of a number is; the first has number 1.
    fn length(&self, number: u32) -> Duration {
        doubled((self.first, self.longest), number.saturating_sub(1))
    }
}

impl Waited {
    fn rest(&self, now: Instant) -> Option<Duration> {
        let rest = self.until?.saturating_duration_since(now);
        (!rest.is_zero()).then_some(rest)
    }

    fn is_long<K: Clone + Eq + Hash>(&self, waits: &Backoff<K>) -> bool {
        self.count > 0 && waits.length(self.count) >= LONG
    }
}

/// Remembers since when something has been so of each key.
#[derive(Debug)]
pub struct Since<K, V = ()>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Since<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V: PartialEq> Since<K, V> {
    /// Returns for how long `what` has been so of a key: not at all if it is new.
    pub fn lasts(&self, key: &K, what: V) -> Duration {
        let now = Instant::now();
        let mut all = self.0.lock();
        let known = all.get(key).filter(|(known, _)| *known == what);
        let since = known.map_or(now, |(_, since)| *since);
        all.insert(key.clone(), (what, since));
        now.duration_since(since)
    }

    /// Returns the rest of the time for which `what` has to be so of a key; `None` once it has been
    /// so for all of it.
    pub fn rest(&self, key: &K, what: V, time: Duration) -> Option<Duration> {
        let rest = time.saturating_sub(self.lasts(key, what));
        (!rest.is_zero()).then_some(rest)
    }

    /// Returns whether something is so of a key.
    pub fn has(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Notes that it is so no more.
    pub fn forget<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.0.lock().remove(key);
    }
}

/// Remembers for a while what was noted of each key.
#[derive(Debug)]
pub struct Recent<K, V = ()> {
    lasts: Duration,
    noted: Mutex<HashMap<K, (V, Instant)>>,
    /// When that was forgotten last which is too old: very much may be noted at once.
    pruned: Mutex<Instant>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// Returns a memory of as long as is said.
    pub fn lasting(lasts: Duration) -> Self {
        Self {
            lasts,
            noted: Mutex::default(),
            pruned: Mutex::new(Instant::now()),
        }
    }

    /// Notes something of a key.
    pub fn note(&self, key: K, what: V) {
        let (mut noted, mut pruned) = (self.noted.lock(), self.pruned.lock());
        if pruned.elapsed() >= self.lasts {
            noted.retain(|_, (_, at)| at.elapsed() < self.lasts);
            noted.shrink_to_fit();
            *pruned = Instant::now();
        }
        noted.insert(key, (what, Instant::now()));
    }

    /// Returns what was noted of a key, unless that is too long ago.
    pub fn get(&self, key: &K) -> Option<V> {
        let noted = self.noted.lock();
        let (what, at) = noted.get(key)?;
        (at.elapsed() < self.lasts).then(|| what.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_and_are_reported_of_when_they_are_long_and_every_half_hour() {
        let waits = Backoff::default();
        let begun = Instant::now();
        let mut reported = Vec::new();
        for _ in 0..200 {
            let wait = waits.next(&"a");
            if wait.is_worth_reporting {
                reported.push(begun.elapsed().as_secs() / 60);
            }
            assert!(wait.time <= LONGEST);
            assert_eq!(wait.is_long, !reported.is_empty());
            tokio::time::advance(wait.time).await;
        }
        assert_eq!(reported, [0, 30, 60, 90]);
        // Polling all the time would have been 200 rounds in 40 s.
        assert!(begun.elapsed() > Duration::from_mins(90));
        assert_eq!(waits.next(&"b").time, FIRST, "others do not wait longer");
        waits.forget(&"a");
        assert_eq!(waits.next(&"a").time, FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_have_bounds_of_their_own_and_are_not_made_longer_by_who_asks_often() {
        let waits = Backoff::between(Duration::from_secs(15), Duration::from_secs(50));
        for expected in [15, 30, 50, 50] {
            for _ in 0..3 {
                assert_eq!(waits.next(&"a").time.as_secs(), expected);
            }
            tokio::time::advance(Duration::from_secs(expected)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_wait_becomes_less_and_each_wait_begins_anew() {
        let minute = Duration::from_mins(1);
        let waits = Backoff::between(minute, 60 * minute);
        assert_eq!(waits.rest(&"a"), None);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = waits.next(&"a");
            assert_eq!(wait.time, expected * minute);
            tokio::time::advance(wait.time).await;
        }
        waits.next(&"a");
        tokio::time::advance(minute).await;
        assert_eq!(waits.rest(&"a"), Some(59 * minute));
        tokio::time::advance(59 * minute).await;
        assert_eq!(waits.rest(&"a"), None);
        waits.forget(&"a");
        assert_eq!(waits.next(&"a").time, minute);
    }

    #[tokio::test(start_paused = true)]
    async fn something_lasts_until_it_is_forgotten_or_something_else_is_so() {
        let (since, second) = (Since::default(), Duration::from_secs(1));
        assert_eq!(since.lasts(&"a", 1), Duration::ZERO);
        tokio::time::advance(second).await;
        assert_eq!(since.lasts(&"a", 1), second);
        assert_eq!(since.lasts(&"b", 1), Duration::ZERO, "of another one");
        assert_eq!(since.lasts(&"a", 2), Duration::ZERO, "it is another thing");
        tokio::time::advance(second).await;
        assert_eq!(since.lasts(&"a", 2), second);
        assert_eq!(since.rest(&"a", 2, 3 * second), Some(2 * second));
        assert_eq!(since.rest(&"a", 2, second), None);
        since.forget(&"a");
        assert!(!since.has(&"a") && since.has(&"b"));
        assert_eq!(since.lasts(&"a", 2), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_noted_is_known_for_a_while() {
        let recent = Recent::lasting(Duration::from_secs(10));
        assert_eq!(recent.get(&"a"), None);
        recent.note("a", 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(recent.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(recent.get(&"a"), None);
        recent.note("b", 2);
        assert_eq!(recent.noted.lock().len(), 1, "what is too old is dropped");
    }
}
