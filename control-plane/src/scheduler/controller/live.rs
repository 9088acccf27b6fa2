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
    /// Returns the snapshot that follows the clusters of a fleet, the same for all: each report of
    /// a cluster is parsed once. Listeners that are added to their cache later find the change in
    /// the snapshot already.
    pub fn follow(fleet: &Fleet) -> Self {
        let shared = fleet
            .live_snapshot
            .get_or_init(|| Box::new(Self::new(fleet)));
        let shared = shared.downcast_ref::<Self>().cloned();
        shared.unwrap_or_else(|| Self::new(fleet))
    }

    fn new(fleet: &Fleet) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{Bench, cluster};

    #[tokio::test(start_paused = true)]
    async fn all_who_follow_the_clusters_share_one_snapshot() {
        let mut bench = Bench::new([("clusters", cluster("m1"))]);
        let [one, other] = [(), ()].map(|()| LiveSnapshot::follow(&bench.fleet));
        bench.follow().await;
        assert!(other.get().get("m1").is_some());
        assert!(Arc::ptr_eq(&one.current, &other.current));
    }
}
