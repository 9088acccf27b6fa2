//! What the cache does not show yet of our own writes: deciding on such a state again would repeat what is done.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_shared::api::binding::Binding;
use muster_shared::k8s::ResourceExt;

use super::kinds::Key;

/// The resource versions that our own writes replaced, until the cache shows a later one.
#[derive(Debug, Default)]
pub(super) struct Replaced(Mutex<HashMap<Key, HashSet<String>>>);

impl Replaced {
    /// A write of ours has replaced this state.
    pub fn insert<B: Binding>(&self, key: &Key, binding: &B) {
        if let Some(version) = binding.resource_version() {
            self.lock().entry(key.clone()).or_default().insert(version);
        }
    }

    /// Whether a write of ours has replaced this state.
    pub fn contains<B: Binding>(&self, key: &Key, binding: &B) -> bool {
        let version = binding.resource_version().unwrap_or_default();
        self.lock()
            .get(key)
            .is_some_and(|replaced| replaced.contains(&version))
    }

    /// The cache shows this state; if it is a later one, those before it will not be seen again.
    pub fn seen<B: Binding>(&self, key: &Key, binding: &B) {
        let version = binding.resource_version().unwrap_or_default();
        let mut replaced = self.lock();
        if replaced
            .get(key)
            .is_some_and(|replaced| !replaced.contains(&version))
        {
            replaced.remove(key);
        }
    }

    /// The binding is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
