//! Sets of values by key, none of which is empty.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};

/// Takes a value out of the set of a key, which goes with its last value.
pub fn take<K, Q, V, R, S: BuildHasher>(sets: &mut HashMap<K, BTreeSet<V>, S>, key: &Q, value: &R)
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
    V: Borrow<R> + Ord,
    R: Ord + ?Sized,
{
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
