//! Hashes of values, for comparison without storing the values.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

/// A number that differs when the values do, within one process. Its key is drawn at the start:
/// values that collide under a known one could be searched for, and a change to such a value would
/// pass for no change.
pub(crate) fn digest<T: Hash + ?Sized>(value: &T) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one(value)
}
