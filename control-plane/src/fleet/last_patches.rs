//! The last patch of each object.
//!
//! A patch can have no effect, because the server keeps what the patch takes away; or its effect is
//! not in the cache yet. The same difference is then found again and need not be written again.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::fleet::works::fingerprint;

/// The last patch of each object (its fingerprint), and the resource version that it was for.
/// Losing it costs one repeated write for each object.
#[derive(Debug)]
pub struct LastPatches<K>(Mutex<HashMap<K, (String, u64)>>);

impl<K> Default for LastPatches<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> LastPatches<K> {
    /// Returns whether this patch was the last one of the object, for the same version of it.
    pub fn is_repeated<Q>(&self, key: &Q, version: Option<&str>, patch: &Value) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let all = self.lock();
        all.get(key).is_some_and(|(known, known_patch)| {
            version == Some(known.as_str()) && *known_patch == fingerprint(patch)
        })
    }

    /// Records a patch that was written for a version of an object.
    pub fn record(&self, key: K, version: Option<&str>, patch: &Value) {
        if let Some(version) = version {
            self.lock()
                .insert(key, (version.to_owned(), fingerprint(patch)));
        }
    }

    /// Forgets an object that has no difference, or does not exist any more.
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, (String, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_repeated_for_the_same_object_version_and_content_only() {
        let last = LastPatches::<String>::default();
        let patch = json!({"spec": {"replicas": 2}});
        last.record("web".to_owned(), Some("7"), &patch);
        last.record("unversioned".to_owned(), None, &patch);
        for (key, version, patch, repeated) in [
            ("web", Some("7"), patch.clone(), true),
            ("web", Some("8"), patch.clone(), false),
            ("web", None, patch.clone(), false),
            ("web", Some("7"), json!({"spec": {"replicas": 3}}), false),
            ("db", Some("7"), patch.clone(), false),
            ("unversioned", None, patch.clone(), false),
        ] {
            assert_eq!(
                last.is_repeated(key, version, &patch),
                repeated,
                "{key} {version:?}"
            );
        }
        for number in 0..1000 {
            let key = format!("w{number}");
            last.record(key.clone(), Some("1"), &patch);
            last.forget(&key);
        }
        assert_eq!(last.lock().len(), 1, "objects that went leave nothing");
        last.forget("web");
        assert!(!last.is_repeated("web", Some("7"), &patch));
    }
}
