//! How many templates of one kind are written at a time.
//!
//! A webhook for one kind may take its whole deadline for each write. The templates of that kind
//! must not take all workers, so that no other status is written.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::fleet::template::Kind;

/// The places of all kinds.
#[derive(Debug)]
pub(super) struct Places {
    each: usize,
    taken: Mutex<HashMap<Kind, usize>>,
}

/// A place that is taken. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    kind: Kind,
}

impl Places {
    /// Returns places of which each kind has a quarter of the workers.
    pub(super) fn of(workers: usize) -> Self {
        Self {
            each: workers.div_ceil(4),
            taken: Mutex::default(),
        }
    }

    /// Takes a place of a kind; `None` if all are taken.
    pub(super) fn take(&self, kind: &Kind) -> Option<Place<'_>> {
        let mut taken = self.taken.lock();
        let count = taken.get(kind).copied().unwrap_or(0);
        if count >= self.each {
            return None;
        }
        taken.insert(kind.clone(), count + 1);
        Some(Place {
            places: self,
            kind: kind.clone(),
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match taken.get_mut(&self.kind) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = taken.remove(&self.kind),
        }
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
        assert!(
            places.taken.lock().is_empty(),
            "nothing is kept of kinds at rest"
        );
        assert!(Places::of(1).take(&slow).is_some());
    }
}
