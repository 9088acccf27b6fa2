//! Room of workloads that have been placed and that the clusters do not report yet, whoever placed
//! them.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;

use super::{Eviction, Evictor, Key, Now};
use crate::movement::eviction::room::gains;

impl Evictor {
    /// Takes the room of a workload whose move has been planned and is about to be written.
    pub fn take_planned_room(&mut self, eviction: &Eviction, clusters: &[TargetCluster], now: Now) {
        let spec = &eviction.binding.spec;
        let gains = gains(spec, clusters);
        self.fleet.occupy(spec, &gains, now.tick);
        let key = self.key_of(&eviction.binding);
        self.planned_gains.insert(key, gains);
    }

    /// Corrects the room of a planned move by where the workload is, as far as that is known: it
    /// may have stayed, or somebody else may have moved it meanwhile.
    pub(super) fn settle_planned_room(&mut self, eviction: &Eviction, now: Now) {
        let key = self.key_of(&eviction.binding);
        let Some(planned) = self.planned_gains.remove(&key) else {
            return;
        };
        let spec = &eviction.binding.spec;
        let known = self.bindings.get(&key);
        let taken = known.map_or_else(Vec::new, |it| gains(spec, &it.spec.clusters));
        if taken != planned {
            self.fleet.vacate(spec, &planned);
            self.fleet.occupy(spec, &taken, now.tick);
        }
    }

    /// Takes the room of a workload that somebody placed anew. The evictor has taken that of its
    /// own moves with their plans.
    pub(super) fn take_room(&mut self, key: &Key, old: &AnyBinding, new: &AnyBinding, now: Now) {
        if old.spec.clusters == new.spec.clusters || self.planned_gains.contains_key(key) {
            return;
        }
        let gains = gains(&old.spec, &new.spec.clusters);
        self.fleet.occupy(&new.spec, &gains, now.tick);
    }
}
