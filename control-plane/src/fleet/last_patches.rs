//! The last patch of each object.
//!
//! A patch can have no effect, because the server keeps what the patch takes away; or its effect is
//! not in the cache yet. The same difference is then found again and need not be written again.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::fleet::works::fingerprint;

/// After this time a patch is written again that the server had no place for: it may have one now,
/// which nothing shows.
const REFUSED: Duration = Duration::from_mins(10);

/// The last patch of each object. Losing it costs one repeated write for each object.
#[derive(Debug)]
pub struct LastPatches<K>(Mutex<HashMap<K, Last>>);

#[derive(Debug)]
struct Last {
    /// The resource version that it was for.
    version: String,
    /// Fingerprint of the patch.
    patch: u64,
    /// Time from which on the patch counts no more; `None` for never.
    ends: Option<Instant>,
}

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
        let all = self.0.lock();
        all.get(key).is_some_and(|last| {
            version == Some(last.version.as_str())
                && last.patch == fingerprint(patch)
                && last.ends.is_none_or(|ends| Instant::now() < ends)
        })
    }

    /// Records a patch that was written for a version of an object.
    pub fn record(&self, key: K, version: Option<&str>, patch: &Value) {
        self.insert(key, version, patch, None);
    }

    /// Records a patch for which the server has no place: a kind without a status.
    pub fn record_refused(&self, key: K, version: Option<&str>, patch: &Value) {
        self.insert(key, version, patch, Some(Instant::now() + REFUSED));
    }

    fn insert(&self, key: K, version: Option<&str>, patch: &Value, ends: Option<Instant>) {
        if let Some(version) = version {
            let (version, patch) = (version.to_owned(), fingerprint(patch));
            self.0.lock().insert(
                key,
                Last {
                    version,
                    patch,
                    ends,
                },
            );
        }
    }

    /// Forgets an object that has no difference, or does not exist any more.
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_server_had_no_place_for_is_written_again_after_ten_minutes() {
        let last = LastPatches::<String>::default();
        let patch = json!({"replicas": 2});
        last.record("web".to_owned(), Some("7"), &patch);
        last.record_refused("db".to_owned(), Some("7"), &patch);
        let repeated = || ["web", "db"].map(|key| last.is_repeated(key, Some("7"), &patch));
        tokio::time::advance(Duration::from_secs(599)).await;
        assert_eq!(repeated(), [true, true]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(repeated(), [true, false]);
    }

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
        assert_eq!(last.0.lock().len(), 1, "objects that went leave nothing");
        last.forget("web");
        assert!(!last.is_repeated("web", Some("7"), &patch));
    }
}
