//! The objects of one API server in memory: one counter of resource versions, a sorted map and a
//! bounded history of changes for each resource.

mod collection;
mod object;
mod selection;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use collection::{Collection, Compacted, Event, Expect, Lost, Page, Scan, Since};
pub use object::{Change, Draft, FRAME_END, Head, Object};
use parking_lot::RwLock;
pub use selection::Selection;

/// How many changes a resource remembers for watches and for consistent paging.
///
/// A real server remembers five minutes of them (etcd compaction); a count bounds our memory
/// instead.
pub const HISTORY: usize = 10_000;

/// All collections of one server.
#[derive(Debug)]
pub struct Store {
    version: Arc<AtomicU64>,
    history: usize,
    collections: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    recorder: Recorder,
}

/// Sees every committed write.
type OnWrite = Box<dyn Fn(&Write<'_>) + Send + Sync>;

/// Where committed writes are sent, if somebody wants them.
#[derive(Clone, Default)]
struct Recorder(Arc<OnceLock<OnWrite>>);

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Recorder")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// One committed write.
#[derive(Debug)]
pub struct Write<'a> {
    /// The resource, as `group/plural`.
    pub resource: &'a str,
    /// What was written.
    pub event: &'a Event,
}

impl Store {
    /// Returns an empty store that remembers `history` changes for each resource.
    pub fn new(history: usize) -> Self {
        Self {
            // etcd starts at 1, and 0 means "any version" to clients.
            version: Arc::new(AtomicU64::new(1)),
            history,
            collections: RwLock::default(),
            recorder: Recorder::default(),
        }
    }

    /// Sends every write from now on, in the order of the commits and before anything else can see
    /// it. Only the first caller gets them.
    pub fn on_write(&self, listener: impl Fn(&Write<'_>) + Send + Sync + 'static) {
        // A second recorder is a mistake of the test, which sees nothing.
        let _ = self.recorder.0.set(Box::new(listener));
    }

    /// Returns the resource version of the latest write.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Returns the collection of a resource, named `group/plural`; made when first asked for.
    pub fn collection(&self, resource: &str) -> Arc<Collection> {
        let read = self.collections.read();
        if let Some(found) = read.get(resource) {
            return Arc::clone(found);
        }
        drop(read);
        let mut write = self.collections.write();
        let made = || {
            let (version, recorder) = (Arc::clone(&self.version), self.recorder.clone());
            Arc::new(Collection::new(resource, version, self.history, recorder))
        };
        Arc::clone(write.entry(resource.into()).or_insert_with(made))
    }

    /// Drops a collection, as when its CRD goes. Watches on it end.
    pub fn forget(&self, resource: &str) {
        let mut write = self.collections.write();
        if let Some(collection) = write.remove(resource) {
            collection.close();
        }
    }

    /// Forgets the history of all collections, as a restarted server does: older watches are
    /// answered 410.
    pub fn forget_history(&self) {
        for (_, collection) in self.all() {
            collection.forget_history();
        }
    }

    /// Returns every collection with its name.
    pub fn all(&self) -> Vec<(Box<str>, Arc<Collection>)> {
        let read = self.collections.read();
        read.iter()
            .map(|(name, collection)| (name.clone(), Arc::clone(collection)))
            .collect()
    }
}
