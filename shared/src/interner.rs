//! Stores equal values of many objects once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Serialize;

/// Values in use, by content. A value without users is removed.
#[derive(Debug)]
pub struct Interner<T>(Mutex<HashMap<u64, Weak<T>>>);

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PartialEq + Serialize> Interner<T> {
    /// Replaces a value by an equal one that is already in use, if there is one.
    pub fn share(&self, value: &mut Arc<T>) {
        // What cannot be written as JSON cannot have been read from it, either; it stays as it is.
        let Ok(text) = serde_json::to_vec(value.as_ref()) else {
            return;
        };
        let mut hash = DefaultHasher::new();
        hash.write(&text);
        let hash = hash.finish();
        let mut known = self.0.lock();
        let same = known.get(&hash).and_then(Weak::upgrade);
        // Two different values of one hash are not worth more than a comparison.
        if let Some(same) = same.filter(|same| same == value) {
            *value = same;
            return;
        }
        if known.len() == known.capacity() {
            known.retain(|_, value| value.strong_count() > 0);
            // Values that are nearly all in use are looked through again when as many more came.
            let length = known.len();
            known.reserve(length);
        }
        known.insert(hash, Arc::downgrade(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_different_ones_are_not() {
        let pool = Interner::default();
        let first = Arc::new("a".to_owned());
        let (mut one, mut two, mut other) = (
            Arc::clone(&first),
            Arc::new("a".into()),
            Arc::new("b".into()),
        );
        for value in [&mut one, &mut two, &mut other] {
            pool.share(value);
        }
        assert!(Arc::ptr_eq(&first, &one) && Arc::ptr_eq(&first, &two));
        assert_eq!(*other, "b");
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let pool = Interner::default();
        let mut kept = Arc::new(0);
        pool.share(&mut kept);
        for number in 1..1000 {
            pool.share(&mut Arc::new(number));
        }
        let known = pool.0.lock();
        assert!(known.len() <= 4, "{} are known", known.len());
        assert!(
            known
                .values()
                .any(|value| value.upgrade() == Some(Arc::new(0)))
        );
    }
}
