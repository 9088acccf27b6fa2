//! Hashes of values, for comparison without storing the values.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

/// Returns a number that differs if the values differ, within one process. Its key is random: with
/// a known key one could search for colliding values, and a change between them would go unnoticed.
pub(crate) fn digest<T: Hash + ?Sized>(value: &T) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one(value)
}
