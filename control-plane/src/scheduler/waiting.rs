//! The bindings without a decision, and what would have to change for them to get one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kinds::Key;
use super::measure;
use super::news::Wish;

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<BTreeMap<Key, Wish>>);

impl Waiting {
    /// The binding waits for this, or, for `None`, waits no more.
    pub fn put(&self, key: Key, wish: Option<Wish>) {
        let mut waiting = self.lock();
        match wish {
            Some(wish) => waiting.insert(key, wish),
            None => waiting.remove(&key),
        };
        measure::waiting(waiting.len());
    }

    /// The bindings that are helped.
    pub fn helped(&self, is_helped: impl Fn(&Key, Wish) -> bool) -> Vec<Key> {
        self.lock()
            .iter()
            .filter(|(key, wish)| is_helped(key, **wish))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Wish>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
