//! Snapshot that follows the watch of clusters.

use std::sync::Arc;

use muster_shared::watch::Fate;
use parking_lot::RwLock;

use crate::fleet::Fleet;
use crate::scheduler::core::{DataPlaces, Snapshot};

/// A [`Snapshot`] that follows the clusters. Cheap to clone: all clones see the same.
#[derive(Debug, Clone, Default)]
pub struct LiveSnapshot {
    current: Arc<RwLock<Snapshot>>,
}

impl LiveSnapshot {
    /// Follows the clusters of a fleet. Listeners that are added to their cache later find the
    /// change in the snapshot already.
    pub fn follow(fleet: &Fleet) -> Self {
        let none = Snapshot::default().with_data(DataPlaces::of(&fleet.bindings));
        let live = Self {
            current: Arc::new(RwLock::new(none)),
        };
        let current = Arc::clone(&live.current);
        fleet.clusters.on_fate(move |fate| {
            let mut snapshot = current.write();
            match fate {
                Fate::Applied(new) => snapshot.put(Arc::clone(new)),
                Fate::Gone(name) => snapshot.depart(name),
                Fate::Lost(name) => snapshot.remove(name),
            }
        });
        live
    }

    /// Returns the clusters as they are now; later changes do not touch what is returned.
    pub fn get(&self) -> Snapshot {
        self.current.read().clone()
    }
}
