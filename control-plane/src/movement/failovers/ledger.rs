//! All failovers that are kept, and which of them what is seen belongs to.

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::failover_record::{Cause, CauseType, Failover, Subject};
use muster_shared::clock::whole_second;
use muster_shared::conditions;
use muster_shared::names::condition::READY;

use super::cause::{self, trouble};
use super::episode::{Counted, Episode, start_of};
use super::observed::{Moved, Observed};
use crate::fleet::binding::BindingKey;

/// Age of a move of which there is no record and yet one is made: longer than a control plane is
/// away that was killed in between. Older ones may have had a record that was deleted.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// Bounds of the history.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Objects.
    pub objects: usize,
    /// Entries of each list of an object.
    pub entries: usize,
    /// Age after its end at which an object is deleted.
    pub age: SignedDuration,
}

/// Numbers that were counted, by cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Failovers that began.
    pub begun: BTreeMap<String, u64>,
    /// Events that were counted in them.
    pub counted: Vec<(String, Counted)>,
    /// Failovers of which no record is kept, since all that are allowed go on.
    pub refused: u64,
}

type Place = (String, Subject);

/// All failovers that are kept.
#[derive(Debug)]
pub struct Ledger {
    limits: Limits,
    episodes: BTreeMap<String, Episode>,
    /// The last failover of each cluster.
    last: BTreeMap<Place, String>,
    /// Records that are to be written.
    dirty: BTreeSet<String>,
    /// Records that are to be deleted.
    surplus: BTreeSet<String>,
    /// Records of failovers that go on, or whose cause may return.
    live: BTreeSet<String>,
    /// The failovers in which a binding moved or is stranded.
    concerns: BTreeMap<BindingKey, BTreeSet<String>>,
    /// Up to when moves out of a cluster had a record that was deleted.
    forgotten: BTreeMap<Place, Timestamp>,
    refused: BTreeSet<Place>,
    tally: Tally,
}

impl Ledger {
    /// Makes the ledger of these objects.
    pub fn new(
        limits: Limits,
        objects: impl IntoIterator<Item = Failover>,
        now: Timestamp,
    ) -> Self {
        let mut ledger = Self {
            limits,
            episodes: BTreeMap::new(),
            last: BTreeMap::new(),
            dirty: BTreeSet::new(),
            surplus: BTreeSet::new(),
            live: BTreeSet::new(),
            concerns: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            refused: BTreeSet::new(),
            tally: Tally::default(),
        };
        for object in objects {
            ledger.take_in(object, now);
        }
        ledger
    }

    /// Adds the object of another process. Of two failovers of one cluster the later one goes on:
    /// two processes may have begun one each.
    fn take_in(&mut self, object: Failover, now: Timestamp) {
        let (name, episode) = (object.name_any(), Episode::read(object));
        let place = place(&episode);
        let before = self.last.get(&place).cloned();
        self.insert(name.clone(), episode, now);
        let last = self.last.get(&place);
        let others = [Some(name), before].into_iter().flatten();
        for other in others.filter(|it| last != Some(it)) {
            if let Some(episode) = self.episodes.get_mut(&other)
                && episode.ended().is_none()
            {
                episode.close(now);
                self.dirty.insert(other);
            }
        }
    }

    fn insert(&mut self, name: String, episode: Episode, now: Timestamp) {
        let place = place(&episode);
        let last = self.last.get(&place).and_then(|it| self.episodes.get(it));
        if last.is_none_or(|last| last.position() <= episode.position()) {
            self.last.insert(place, name.clone());
        }
        if episode.is_live(now) {
            self.live.insert(name.clone());
        }
        self.episodes.insert(name, episode);
    }

    /// Notes that everything that the fleet remembers was shown.
    pub fn loaded(&mut self, now: Timestamp) {
        self.episodes.values_mut().for_each(Episode::loaded);
        self.dirty.extend(self.live.iter().cloned());
        self.prune(now);
    }

    /// Takes in a cluster, and the last renewal of its lease.
    pub fn cluster(&mut self, cluster: &Cluster, renewed: Option<Timestamp>, now: Timestamp) {
        let place = (cluster.name_any(), Subject::Cluster);
        let found = trouble(cluster, renewed, now);
        let open = self.takes_trouble(&place, now, || found.clone());
        let name = match (found, open) {
            (Some(found), Some(name)) => {
                let episode = self.episodes.get_mut(&name);
                // A taint that stays when a failover is over, without which none would have begun.
                if let Some(episode) = episode.filter(|it| found.is_failure || !it.is_over()) {
                    episode.fail(&found);
                }
                name
            }
            // A person removes it: that its agent has ended is no failure.
            (Some(_), None) if cluster.metadata.deletion_timestamp.is_some() => return,
            (Some(found), None) if found.is_failure => {
                let cause = found.cause.clone();
                let Some(name) = self.open(&place, cause, (found.since, now), now) else {
                    return;
                };
                if let Some(episode) = self.episodes.get_mut(&name) {
                    episode.fail(&found);
                }
                name
            }
            (None, Some(name)) => {
                if let Some(episode) = self.episodes.get_mut(&name) {
                    episode.recover(well_since(cluster, start_of(&episode.spec), now));
                }
                name
            }
            _ => return,
        };
        self.dirty.insert(name);
    }

    /// Notes that a cluster left the fleet.
    pub fn cluster_gone(&mut self, cluster: &str, now: Timestamp) {
        let place = (cluster.to_owned(), Subject::Cluster);
        if let Some(name) = self.takes(&place, now)
            && let Some(episode) = self.episodes.get_mut(&name)
        {
            episode.recover(now);
            self.dirty.insert(name);
        }
    }

    /// Takes in a binding. `has_copy` says whether a cluster still has a Work of it; `trouble_of`
    /// reports the trouble of a cluster of which no failover is known yet.
    pub fn binding(
        &mut self,
        observed: &Observed,
        has_copy: &dyn Fn(&str) -> bool,
        trouble_of: &dyn Fn(&str) -> Option<cause::Trouble>,
        now: Timestamp,
    ) {
        let key = &observed.key;
        for moved in &observed.moves {
            let place = (moved.from.clone(), moved.subject.clone());
            let Some(name) = self.place_of(&place, moved, trouble_of, now) else {
                continue;
            };
            let Some(episode) = self.episodes.get_mut(&name) else {
                continue;
            };
            if episode.is_closed_to(moved.at, now) {
                continue;
            }
            episode.moved(observed, moved, has_copy(&moved.from), now);
            episode.limit(self.limits.entries);
            self.concerns
                .entry(key.clone())
                .or_default()
                .insert(name.clone());
            self.live.insert(name.clone());
            self.dirty.insert(name);
        }
        self.strand(observed, trouble_of, now);
        self.recount(observed);
        // The next move of a binding overwrites what it remembers of a failover.
        for name in self.concerns.get(key).into_iter().flatten() {
            let Some(episode) = self.episodes.get_mut(name) else {
                continue;
            };
            let is_of =
                |it: &Moved| it.from == episode.spec.cluster && it.subject == episode.spec.subject;
            if !observed.moves.iter().any(is_of) && episode.forget_move(key) {
                self.dirty.insert(name.clone());
            }
        }
    }

    /// Has the failovers written anew whose cluster the workload of a binding is placed in: it may
    /// be one more that is affected.
    fn recount(&mut self, observed: &Observed) {
        if self.live.is_empty() {
            return;
        }
        for cluster in &observed.clusters {
            let place = (cluster.clone(), Subject::Cluster);
            let Some(name) = self.last.get(&place) else {
                continue;
            };
            let episode = self.episodes.get(name);
            if episode.is_some_and(|it| !it.is_over() && !it.has(&observed.key)) {
                self.dirty.insert(name.clone());
            }
        }
    }

    /// Notes in which failovers the workload of a binding is stranded.
    fn strand(
        &mut self,
        observed: &Observed,
        trouble_of: &dyn Fn(&str) -> Option<cause::Trouble>,
        now: Timestamp,
    ) {
        let mut names = self
            .concerns
            .get(&observed.key)
            .cloned()
            .unwrap_or_default();
        for cluster in &observed.clusters {
            if observed.stranding_on(cluster).is_none() {
                continue;
            }
            let place = (cluster.clone(), Subject::Cluster);
            let known = self.takes_trouble(&place, now, || trouble_of(cluster));
            self.relapse(known.as_ref(), cluster, trouble_of);
            // A taint that keeps a workload is a failover although nothing has moved.
            let found = known.is_none().then(|| trouble_of(cluster)).flatten();
            let begun = found.and_then(|found| {
                let name = self.open(&place, found.cause.clone(), (found.since, now), now)?;
                self.episodes.get_mut(&name)?.fail(&found);
                Some(name)
            });
            names.extend(known.or(begun));
        }
        for name in names {
            let Some(episode) = self.episodes.get_mut(&name) else {
                continue;
            };
            let is_open = !episode.is_over();
            if episode.spec.subject == Subject::Cluster && is_open && episode.strand(observed) {
                let concerns = self.concerns.entry(observed.key.clone()).or_default();
                concerns.insert(name.clone());
                self.dirty.insert(name);
            }
        }
    }

    /// Notes a relapse if something keeps a workload on a cluster whose failover is over, and the
    /// cluster is in trouble again: a taint alone is no relapse before it keeps something.
    fn relapse(
        &mut self,
        name: Option<&String>,
        cluster: &str,
        trouble_of: &dyn Fn(&str) -> Option<cause::Trouble>,
    ) {
        let Some(name) = name else { return };
        let Some(episode) = self.episodes.get_mut(name) else {
            return;
        };
        if episode.is_over()
            && let Some(found) = trouble_of(cluster)
        {
            episode.fail(&found);
            self.live.insert(name.clone());
            self.dirty.insert(name.clone());
        }
    }

    /// Forgets a binding that is gone.
    pub fn binding_gone(&mut self, key: &BindingKey) {
        for name in self.concerns.remove(key).into_iter().flatten() {
            if let Some(episode) = self.episodes.get_mut(&name) {
                episode.forget(key);
                self.dirty.insert(name);
            }
        }
    }

    /// Returns whether anything is known of a binding, so that its change matters.
    pub fn concerns(&self, key: &BindingKey) -> bool {
        self.concerns.contains_key(key)
    }

    /// Returns the cluster of a failover whose cause lasts.
    pub fn failed_cluster(&self, name: &str) -> Option<String> {
        let episode = self.episodes.get(name)?;
        let lasts = episode.spec.subject == Subject::Cluster && !episode.is_over();
        lasts.then(|| episode.spec.cluster.clone())
    }

    /// Notes which workloads are placed in the cluster of a failover whose cause lasts, and after
    /// which time of silence the first of them is stopped there. Returns the time until then.
    pub fn affects(
        &mut self,
        name: &str,
        here: &[BindingKey],
        fenced_after: Option<SignedDuration>,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        let episode = self.episodes.get_mut(name)?;
        episode.affects(here);
        episode.fences(fenced_after);
        episode.stops_in(now)
    }

    /// Returns the last failover of a place, if the trouble of a moment belongs to it.
    fn takes(&self, place: &Place, at: Timestamp) -> Option<String> {
        let name = self.last.get(place)?;
        let episode = self.episodes.get(name)?;
        episode.takes(at).then(|| name.clone())
    }

    /// Returns the last failover of a place, if the trouble of a moment belongs to it. If that
    /// failover is over and the trouble that is found is of another kind, the result is `None`.
    fn takes_trouble(
        &self,
        place: &Place,
        at: Timestamp,
        found: impl FnOnce() -> Option<cause::Trouble>,
    ) -> Option<String> {
        let name = self.takes(place, at)?;
        let episode = self.episodes.get(&name)?;
        let is_other =
            episode.is_over() && found().is_some_and(|it| episode.is_over_before(&it.cause));
        (!is_other).then_some(name)
    }

    /// Returns the failover that a move belongs to, and makes one where there is none.
    fn place_of(
        &mut self,
        place: &Place,
        moved: &Moved,
        trouble_of: &dyn Fn(&str) -> Option<cause::Trouble>,
        now: Timestamp,
    ) -> Option<String> {
        let begins = |it: &Episode| whole_second(start_of(&it.spec)) <= moved.at;
        let of_this_trouble = || {
            let known = Some(place).filter(|it| it.1 == Subject::Cluster);
            let found = known.and_then(|it| trouble_of(&it.0));
            found.filter(|it| it.since <= moved.at)
        };
        let last = self.last.get(place).and_then(|it| self.episodes.get(it));
        if let Some(last) = last {
            if !begins(last) {
                return None;
            }
            if let Some(name) = self.takes_trouble(place, moved.at, of_this_trouble) {
                return Some(name);
            }
        }
        let is_old = now.duration_since(moved.at) > RECENT;
        let was_deleted = self.forgotten.get(place).is_some_and(|it| moved.at <= *it);
        if is_old || was_deleted {
            return None;
        }
        let found = of_this_trouble();
        let of_move = || Cause {
            kind: match place.1 {
                Subject::Applications => CauseType::ApplicationFailure,
                _ => CauseType::Taint,
            },
            message: moved.cause.clone(),
            ..Cause::default()
        };
        let cause = found.as_ref().map_or_else(of_move, |it| it.cause.clone());
        let since = found.as_ref().map(|it| it.since).or(moved.since);
        let start = since.unwrap_or(moved.at);
        let name = self.open(place, cause, (start, moved.at), now)?;
        let episode = self.episodes.get_mut(&name)?;
        match found {
            Some(found) => episode.fail(&found),
            // The cluster recovered before the process that moved the workload reported it.
            None if place.1 == Subject::Cluster => episode.recover(now),
            None => {}
        }
        Some(name)
    }

    /// Makes a failover. It begins when its trouble did, at the latest at the given moment, and
    /// after the one before it, whatever the clock that dated the trouble said: nothing belongs to
    /// two.
    fn open(
        &mut self,
        place: &Place,
        cause: Cause,
        (mut start, latest): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Option<String> {
        self.make_room(now);
        let kept = self.episodes.len() - self.surplus.len();
        if kept >= self.limits.objects {
            if self.refused.insert(place.clone()) {
                self.tally.refused += 1;
            }
            return None;
        }
        self.refused.remove(place);
        if let Some(name) = self.last.get(place)
            && let Some(before) = self.episodes.get_mut(name)
        {
            start = start.max(before.rest_begins().min(latest));
            if before.ended().is_none() {
                before.close(now);
                self.dirty.insert(name.clone());
            }
        }
        let kind = cause.kind.to_string();
        let episode = Episode::new(&place.0, place.1.clone(), cause, start);
        let name = self.name(place, start);
        self.insert(name.clone(), episode, now);
        self.last.insert(place.clone(), name.clone());
        *self.tally.begun.entry(kind).or_default() += 1;
        self.dirty.insert(name.clone());
        Some(name)
    }

    /// Returns a readable name that no other failover has.
    fn name(&self, place: &Place, start: Timestamp) -> String {
        let time = start.strftime("%Y%m%d-%H%M%S");
        let base = match place.1 {
            Subject::Applications => format!("{}-applications-{time}", place.0),
            _ => format!("{}-{time}", place.0),
        };
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        let mut names = [base.clone()].into_iter().chain(numbered);
        let free = names.find(|it| !self.episodes.contains_key(it));
        free.unwrap_or(base)
    }

    fn make_room(&mut self, now: Timestamp) {
        let wanted = self.limits.objects.saturating_sub(1);
        self.surplus_beyond(wanted, now);
    }

    /// Clusters with a failover that goes on.
    pub fn clusters(&self) -> Vec<String> {
        let live = self
            .last
            .iter()
            .filter(|(_, name)| self.live.contains(*name));
        live.map(|((cluster, _), _)| cluster.clone()).collect()
    }
}

fn place(episode: &Episode) -> Place {
    (episode.spec.cluster.clone(), episode.spec.subject.clone())
}

/// Returns since when a cluster that is in no trouble is well, as far as the cluster says: of a
/// taint that went, no time is left.
fn well_since(cluster: &Cluster, start: Timestamp, now: Timestamp) -> Timestamp {
    let ready = cluster
        .condition(READY)
        .filter(|it| it.status == conditions::TRUE);
    let since = ready.map(|it| it.last_transition_time.0);
    since.filter(|it| start < *it && *it <= now).unwrap_or(now)
}

#[cfg(test)]
mod tests;
