//! How many templates of one kind are written at a time.
//!
//! A webhook for one kind may take its whole deadline for each write. The templates of that kind
//! must not take all workers, so that no other status is written.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fleet::template::Kind;

/// The places of all kinds.
#[derive(Debug)]
pub(super) struct Places {
    each: usize,
    kinds: Mutex<HashMap<Kind, Arc<Semaphore>>>,
}

impl Places {
    /// Returns places of which each kind has a quarter of the workers.
    pub(super) fn of(workers: usize) -> Self {
        Self {
            each: workers.div_ceil(4),
            kinds: Mutex::default(),
        }
    }

    /// Takes a place of a kind; `None` if all are taken.
    pub(super) fn take(&self, kind: &Kind) -> Option<OwnedSemaphorePermit> {
        let mut kinds = self.kinds.lock();
        let places = kinds
            .entry(kind.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        Arc::clone(places).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_takes_no_more_than_its_places_and_gives_them_back() {
        let places = Places::of(8);
        let [slow, other] = ["Slow", "Other"].map(|kind| Kind::new("example.com/v1", kind));
        let taken = [places.take(&slow), places.take(&slow)];
        assert!(taken.iter().all(Option::is_some));
        assert!(places.take(&slow).is_none());
        assert!(places.take(&other).is_some());
        let [first, second] = taken;
        drop(first);
        let again = places.take(&slow);
        assert!(again.is_some() && places.take(&slow).is_none());
        drop((second, again));
        assert!(places.take(&slow).is_some());
        assert!(Places::of(1).take(&slow).is_some());
    }
}
