//! The objects of a server at one moment, from which another server starts: what an operator does
//! with a snapshot of etcd.

use std::sync::Arc;

use crate::auth::identity::Authority;
use crate::store::{Draft, Expect, Object, Scan, Store};

/// Objects of all resources, and the authority that signs for the server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    authority: Arc<Authority>,
    objects: Vec<(Box<str>, Arc<Object>)>,
}

impl Snapshot {
    /// Takes the objects of a store.
    pub(crate) fn take(store: &Store, authority: &Arc<Authority>) -> Self {
        let whole = || Scan {
            prefix: "",
            after: None,
            at: None,
            limit: None,
        };
        let mut objects = Vec::new();
        for (name, collection) in store.all() {
            // Only the past can be compacted.
            let page = collection.scan(whole(), |_| true).ok();
            let found = page.into_iter().flat_map(|page| page.objects);
            objects.extend(found.map(|object| (name.clone(), object)));
        }
        // Owners come first: what has none is collected.
        objects.sort_by_key(|(_, object)| !object.head.owners.is_empty());
        Self {
            authority: Arc::clone(authority),
            objects,
        }
    }

    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Writes the objects into a store that has begun, in place of those of the same names.
    pub(crate) fn restore(&self, store: &Store) -> Result<(), serde_json::Error> {
        use serde::ser::Error as _;
        for (name, object) in &self.objects {
            let collection = store.collection(name);
            loop {
                let there = collection.get(&object.head.key);
                let expected = there.map_or(Expect::Absent, |it| Expect::Version(it.version));
                let draft = Draft::new(object.head.clone(), &object.value())?;
                match collection.put(draft, expected) {
                    Ok(_) => break,
                    // A controller of the new server was faster.
                    Err(lost) if lost.0.is_some() => {}
                    Err(_) => {
                        let problem = format!("{name} is not served");
                        return Err(serde_json::Error::custom(problem));
                    }
                }
            }
        }
        Ok(())
    }
}
