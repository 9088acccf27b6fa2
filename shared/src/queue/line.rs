//! The waiting keys of a queue, ordered by time and rank.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

use crate::spare::give_back;

/// When a key is due; keys of one instant keep the order in which they arrived.
type DueAt = (Instant, u64);

/// The keys that wait, each once: those to come by the time at which they are due, and those that
/// are due by rank and then by how long they have been.
pub(super) struct Line<K> {
    to_come: BTreeMap<DueAt, K>,
    due: BTreeMap<Reverse<i32>, BTreeMap<DueAt, K>>,
    places: HashMap<K, (DueAt, i32)>,
    arrivals: u64,
}

impl<K: Clone + Eq + Hash> Line<K> {
    pub fn new() -> Self {
        Self {
            to_come: BTreeMap::new(),
            due: BTreeMap::new(),
            places: HashMap::new(),
            arrivals: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Puts a key into the line. One that waits already keeps the earlier of its two places, and
    /// takes the new rank.
    pub fn add(&mut self, key: K, when: Instant, rank: i32) {
        let known = self.places.get(&key).copied();
        let at = match known {
            Some((at, _)) if at.0 <= when => at,
            _ => {
                self.arrivals += 1;
                (when, self.arrivals)
            }
        };
        if known == Some((at, rank)) {
            return;
        }
        if let Some(place) = known {
            self.leave(place);
        }
        self.to_come.insert(at, key.clone());
        self.places.insert(key, (at, rank));
    }

    /// Takes the first key that is due out of the line.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        self.arrive(now);
        let rank = *self.due.first_key_value()?.0;
        self.take_of(rank)
    }

    /// Takes the first key that is due of one rank out of the line, of the ranks below the highest
    /// that is due, or of that where it is the only one: of the lowest for 0, and of the others in
    /// order for higher numbers.
    pub fn take_lower(&mut self, now: Instant, nth: usize) -> Option<K> {
        self.arrive(now);
        let lower = self.due.len().saturating_sub(1).max(1);
        let rank = *self.due.keys().rev().nth(nth % lower)?;
        self.take_of(rank)
    }

    /// Returns when a key will be due, or was.
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.due.values().flat_map(BTreeMap::keys);
        due.chain(self.to_come.keys()).map(|at| at.0).next()
    }

    /// Sorts the keys whose time has come by their rank.
    fn arrive(&mut self, now: Instant) {
        while let Some(first) = self.to_come.first_entry()
            && first.key().0 <= now
        {
            let (at, key) = first.remove_entry();
            let rank = self.places.get(&key).map_or(0, |(_, rank)| *rank);
            self.due.entry(Reverse(rank)).or_default().insert(at, key);
        }
    }

    fn take_of(&mut self, rank: Reverse<i32>) -> Option<K> {
        let due = self.due.get_mut(&rank)?;
        let (_, key) = due.pop_first()?;
        if due.is_empty() {
            self.due.remove(&rank);
        }
        self.places.remove(&key);
        // A rush leaves room for as many keys behind, here and in every other queue.
        give_back(&mut self.places);
        Some(key)
    }

    fn leave(&mut self, (at, rank): (DueAt, i32)) {
        if self.to_come.remove(&at).is_some() {
            return;
        }
        if let Some(due) = self.due.get_mut(&Reverse(rank)) {
            due.remove(&at);
            if due.is_empty() {
                self.due.remove(&Reverse(rank));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes everything that is due after so many seconds.
    fn drain<K: Clone + Eq + Hash>(line: &mut Line<K>, start: Instant, seconds: u64) -> Vec<K> {
        let now = start + Duration::from_secs(seconds);
        std::iter::from_fn(|| line.take(now)).collect()
    }

    #[test]
    fn of_what_is_due_the_highest_rank_comes_first_and_then_the_oldest() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut line = Line::new();
        for (key, when, rank) in [
            ("plain", 0, 0),
            ("low", 0, -5),
            ("high, later", 2, 7),
            ("high", 1, 7),
            ("highest, not due", 5, 9),
            ("plain, arrived last", 0, 0),
        ] {
            line.add(key, at(when), rank);
        }
        let expected = ["high", "high, later", "plain", "plain, arrived last", "low"];
        assert_eq!(line.take_lower(at(3), 0), Some("low"));
        line.add("low", start, -5);
        assert_eq!(drain(&mut line, start, 3), expected);
        assert_eq!(line.next_due(), Some(at(5)));
        assert_eq!(drain(&mut line, start, 5), ["highest, not due"]);
        assert_eq!((line.len(), line.next_due()), (0, None));
    }

    #[test]
    fn a_rush_leaves_no_room_behind_though_some_keys_wait_on() {
        let start = Instant::now();
        let mut line = Line::new();
        line.add(0, start + Duration::from_secs(9), 0);
        for key in 1..=5000 {
            line.add(key, start, 0);
        }
        assert_eq!(drain(&mut line, start, 0).len(), 5000);
        assert!(line.places.capacity() < 200, "{}", line.places.capacity());
        assert_eq!(drain(&mut line, start, 9), [0]);
    }

    #[test]
    fn each_lower_rank_that_is_due_is_reached() {
        let start = Instant::now();
        for (ranks, expected) in [
            (&[][..], [None; 3]),
            (&[5], [Some(5); 3]),
            (&[0, 5], [Some(0); 3]),
            (&[-1, 0, 5], [Some(-1), Some(0), Some(-1)]),
            (&[-1, 0, 1, 5], [Some(-1), Some(0), Some(1)]),
        ] {
            let found = [0, 1, 2].map(|nth| {
                let mut line = Line::new();
                for rank in ranks {
                    line.add(*rank, start, *rank);
                }
                line.take_lower(start, nth)
            });
            assert_eq!(found, expected, "{ranks:?}");
        }
    }

    #[test]
    fn a_key_that_waits_takes_a_new_rank_at_once_and_keeps_its_earlier_place() {
        let start = Instant::now();
        let mut line = Line::new();
        line.add("a", start, 0);
        line.add("b", start, 0);
        line.add("c", start, 0);
        // Two are due and wait for a worker when their ranks change.
        assert_eq!(line.take(start), Some("a"));
        line.add("c", start + Duration::from_secs(9), 3);
        assert_eq!(line.len(), 2);
        assert_eq!(drain(&mut line, start, 0), ["c", "b"]);
    }
}
