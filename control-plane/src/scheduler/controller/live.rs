//! Snapshot that follows the watch of clusters.

use std::sync::Arc;

use muster_shared::watch::Change;
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
        let clusters = &fleet.clusters;
        let none = Snapshot::default().with_data(DataPlaces::of(&fleet.bindings));
        let live = Self {
            current: Arc::new(RwLock::new(none)),
        };
        let (current, informer) = (Arc::clone(&live.current), clusters.clone());
        clusters.on_change(move |change| {
            let mut snapshot = current.write();
            match change {
                Change::Applied { new, .. } => snapshot.put(Arc::clone(new)),
                Change::Deleted { old } => {
                    let name = old.metadata.name.as_deref().unwrap_or_default();
                    if informer.presence(None, name).is_gone() {
                        snapshot.depart(name);
                    } else {
                        snapshot.remove(name);
                    }
                }
            }
        });
        let current = Arc::clone(&live.current);
        clusters.on_unread_departure(move |_, name| {
            let mut snapshot = current.write();
            snapshot.depart(name);
        });
        live
    }

    /// Returns the clusters as they are now; later changes do not touch what is returned.
    pub fn get(&self) -> Snapshot {
        self.current.read().clone()
    }
}
