//! Bindings that wait for a count to rise.

use std::collections::BTreeSet;

/// A count that only rises, and the bindings that wait for it to reach certain values.
#[derive(Debug)]
pub struct Line<K> {
    count: i64,
    waiting: BTreeSet<(i64, K)>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            count: 0,
            waiting: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord> Line<K> {
    /// Makes a binding wait until the count has risen by so much. Returns the value that the
    /// binding waits for.
    pub fn join(&mut self, key: K, lacking: i64) -> i64 {
        let due = self.count.saturating_add(lacking);
        self.waiting.insert((due, key));
        due
    }

    /// Removes a binding that waited for the value and does not wait any more.
    pub fn leave(&mut self, due: i64, key: &K) {
        self.waiting.remove(&(due, key.clone()));
    }

    /// Raises the count.
    pub fn advance(&mut self, by: i64) {
        self.count = self.count.saturating_add(by);
    }

    /// Raises the count to what the last of those who wait now waits for, and returns the count.
    pub fn release(&mut self) -> i64 {
        if let Some((last, _)) = self.waiting.last() {
            self.count = self.count.max(*last);
        }
        self.count
    }

    /// Returns whether the value has been reached that somebody waits for.
    pub fn is_due(&self) -> bool {
        self.waiting
            .first()
            .is_some_and(|(due, _)| *due <= self.count)
    }

    /// Takes the binding that waited for the least, if that has been reached.
    pub fn pop(&mut self) -> Option<(i64, K)> {
        if self.is_due() {
            self.waiting.pop_first()
        } else {
            None
        }
    }
}
