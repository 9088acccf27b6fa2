//! Versions that the agent wrote, until its informer shows them. A decision on an older version
//! would repeat the agent's last write, or take it for another writer's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use muster_shared::k8s::{ObjectMeta, Resource};

/// The answers to the agent's last writes, by object name.
#[derive(Debug)]
pub struct Written<K> {
    entries: Mutex<HashMap<String, Entry<K>>>,
}

#[derive(Debug)]
struct Entry<K> {
    /// The version that the write replaced.
    before: String,
    after: Arc<K>,
}

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<K: Resource> Written<K> {
    /// Remembers the answer to a write that named the version it replaces.
    pub fn remember(&self, before: &ObjectMeta, after: impl Into<Arc<K>>) -> Arc<K> {
        let after = after.into();
        let (name, before) = (&before.name, &before.resource_version);
        if let (Some(name), Some(before)) = (name, before) {
            let entry = Entry {
                before: before.clone(),
                after: Arc::clone(&after),
            };
            self.lock().insert(name.clone(), entry);
        }
        after
    }

    /// Returns the newer of the informer's version and the written one. Versions cannot be ordered,
    /// but the replaced one is known: while the informer shows that, the written version is newer;
    /// any other version came later.
    pub fn newest(&self, cached: Arc<K>) -> Arc<K> {
        let Some(name) = &cached.meta().name else {
            return cached;
        };
        let mut entries = self.lock();
        match entries.get(name) {
            Some(entry) if cached.meta().resource_version.as_ref() == Some(&entry.before) => {
                Arc::clone(&entry.after)
            }
            Some(_) => {
                entries.remove(name);
                cached
            }
            None => cached,
        }
    }

    /// Compares the written version with the informer's present one, which may be newer. An object
    /// that is gone is forgotten, because no later event would do that.
    pub fn settle(&self, name: &str, cached: Option<Arc<K>>) {
        match cached {
            Some(cached) => _ = self.newest(cached),
            None => self.forget(name),
        }
    }

    /// Returns whether this version is the answer to the agent's last write.
    pub fn wrote(&self, seen: &K) -> bool {
        let meta = seen.meta();
        let entries = self.lock();
        let entry = meta.name.as_ref().and_then(|name| entries.get(name));
        let version = &meta.resource_version;
        entry.is_some_and(|entry| {
            version.is_some() && entry.after.meta().resource_version == *version
        })
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Entry<K>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::ConfigMap;

    use super::*;

    fn version(version: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some("a".into()),
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn our_own_write_counts_until_the_informer_has_moved_on() {
        let written = Written::default();
        let newest = |cached: &str| {
            written
                .newest(Arc::new(version(cached)))
                .metadata
                .resource_version
                .clone()
                .unwrap()
        };
        assert_eq!(newest("1"), "1");
        written.remember(&version("1").metadata, version("2"));
        assert_eq!(newest("1"), "2");
        assert_eq!(newest("3"), "3");
        assert_eq!(newest("1"), "1", "an entry that was passed is forgotten");
    }

    #[test]
    fn nothing_is_remembered_of_objects_that_came_and_went() {
        let written = Written::default();
        for number in 0..100_000 {
            let mut object = version("1");
            let name = format!("w{number}");
            object.metadata.name = Some(name.clone());
            // The deletion is seen before the answer to the write that allowed it.
            written.forget(&name);
            written.remember(&object.metadata, object.clone());
            written.settle(&name, None);
        }
        assert_eq!(written.lock().len(), 0);
        written.remember(&version("1").metadata, version("2"));
        written.settle("a", Some(Arc::new(version("1"))));
        assert!(written.wrote(&version("2")), "the informer is behind");
        written.settle("a", Some(Arc::new(version("2"))));
        assert_eq!(written.lock().len(), 0, "the informer has seen it");
    }

    #[test]
    fn the_answer_to_our_write_is_told_from_a_write_of_somebody_else() {
        let written = Written::default();
        assert!(!written.wrote(&version("2")));
        written.remember(&version("1").metadata, version("2"));
        assert!(written.wrote(&version("2")));
        assert!(!written.wrote(&version("3")));
    }
}
