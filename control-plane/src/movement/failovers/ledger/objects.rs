//! The objects of the failovers: which are to be written or deleted, and what others did to them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::failover_record::Failover;

use super::super::episode::Counted;
use super::super::prune;
use super::{Ledger, RECENT, Tally, place};

impl Ledger {
    /// Finds what is to be deleted.
    pub fn prune(&mut self, now: Timestamp) {
        self.surplus_beyond(self.limits.objects, now);
        let episodes = &mut self.episodes;
        let is_live = |name: &String| match episodes.get_mut(name) {
            Some(episode) if episode.is_live(now) => true,
            Some(episode) => {
                episode.rest();
                false
            }
            None => false,
        };
        self.live.retain(is_live);
        let live = &self.live;
        self.concerns.retain(|_, names| {
            names.retain(|name| live.contains(name));
            !names.is_empty()
        });
    }

    pub(super) fn surplus_beyond(&mut self, objects: usize, now: Timestamp) {
        let ended = self.episodes.iter();
        let ended = ended.map(|(name, it)| (name.as_str(), it.ended()));
        let surplus = prune::surplus(ended, objects, self.limits.age, now);
        self.surplus.extend(surplus);
    }

    /// Failovers that are to be deleted.
    pub fn surplus(&self) -> Vec<String> {
        self.surplus.iter().cloned().collect()
    }

    /// Failovers that are to be written.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }

    /// Returns what was counted since this was last called.
    pub fn take_tally(&mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        for name in &self.live {
            let Some(episode) = self.episodes.get_mut(name) else {
                continue;
            };
            if episode.counted != Counted::default() {
                let counted = std::mem::take(&mut episode.counted);
                tally
                    .counted
                    .push((episode.status.cause.kind.to_string(), counted));
            }
        }
        tally
    }

    /// Returns the object that a failover is to have, if that differs from the one that it has.
    pub fn wanted(&mut self, name: &str, now: Timestamp) -> Option<Failover> {
        if self.surplus.contains(name) {
            return None;
        }
        let episode = self.episodes.get_mut(name)?;
        episode.settle(self.limits.entries, now);
        if !episode.is_explained() {
            return None;
        }
        let known = episode
            .object
            .clone()
            .unwrap_or_else(|| Failover::new(name, episode.spec.clone()));
        let is_same = known.status.as_ref() == Some(&episode.status) && episode.object.is_some();
        let status = Some(episode.status.clone());
        (!is_same).then_some(Failover { status, ..known })
    }

    /// Returns the object of a failover as it was last seen or written.
    pub fn object(&self, name: &str) -> Option<&Failover> {
        self.episodes.get(name)?.object.as_ref()
    }

    /// Notes that this process wrote an object.
    pub fn written(&mut self, object: Failover) {
        if let Some(episode) = self.episodes.get_mut(&object.name_any()) {
            episode.object = Some(object);
        }
    }

    /// Takes in an object as the watch shows it: what other processes wrote is written over.
    /// Returns whether the failover was not known: then the bindings are to be shown again, and
    /// [`loaded`](Self::loaded) is to be called.
    pub fn seen(&mut self, object: &Failover, now: Timestamp) -> bool {
        let name = object.name_any();
        let Some(episode) = self.episodes.get_mut(&name) else {
            self.take_in(object.clone(), now);
            return true;
        };
        let version = |it: &Failover| it.resource_version();
        if episode.object.as_ref().map(version) != Some(object.resource_version()) {
            episode.object = Some(object.clone());
            self.dirty.insert(name);
        }
        false
    }

    /// Notes that an object was deleted. A failover that goes on is written again.
    pub fn deleted(&mut self, name: &str, now: Timestamp) {
        let was_surplus = self.surplus.remove(name);
        let Some(episode) = self.episodes.get_mut(name) else {
            return;
        };
        episode.object = None;
        if episode.ended().is_none() && !was_surplus {
            self.dirty.insert(name.to_owned());
            return;
        }
        let place = place(episode);
        self.episodes.remove(name);
        if self.last.get(&place).is_some_and(|it| it == name) {
            self.last.remove(&place);
            self.forgotten.insert(place, now);
        }
        // Moves of failovers that were deleted longer ago are too old to be recorded anyway.
        self.forgotten
            .retain(|_, at| now.duration_since(*at) <= RECENT);
    }
}
