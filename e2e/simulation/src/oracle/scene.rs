//! The state of the world at an entry, which all oracles share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::clocks::Clocks;
use super::objects::{self, Binding, Cluster};
use super::wishes::Wishes;
use super::{End, Rules, Violation};
use crate::history::{Actor, Api, Entry, Event, Key, Outcome, Phase, Process, Request, World};

/// The state of the world after the last entry, with what was true shortly before.
#[derive(Debug)]
pub struct Scene {
    /// What the control plane is set to promise.
    pub rules: Rules,
    /// Time of the last entry.
    pub now: Timestamp,
    /// The part of the simulation.
    pub phase: Phase,
    /// All objects of all API servers.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// The members that ever had an object.
    members: BTreeSet<String>,
    /// Clusters whose agents cannot reach the fleet API, with the time since when.
    pub cut_off: BTreeMap<String, Timestamp>,
    /// Clusters that are down, with the time since when.
    pub down: BTreeMap<String, Timestamp>,
    /// Processes that run, or that ended by themselves and are started again, with the time since
    /// when.
    pub running: BTreeMap<Process, Timestamp>,
    /// Faults that last, by their numbers.
    pub faults: BTreeSet<u64>,
    /// When a member last refused to have an object changed.
    refused: BTreeMap<Key, Timestamp>,
    /// When the last fault ended, or began.
    pub disturbed: Timestamp,
    /// Former states of objects, with the time at which each ended.
    recent: BTreeMap<Key, VecDeque<Former>>,
    /// Since when clusters have taints that evict.
    evicting: BTreeMap<String, Timestamp>,
    /// How wrong clocks can be.
    clocks: Clocks,
    /// When a person last changed something that placements depend on.
    pub(super) wishes: Wishes,
    /// Works that the promoted store has had; none where none was promoted.
    pub(super) works_since_promotion: Option<BTreeSet<Key>>,
}

/// A former state of an object, none if it did not exist, and when it ended.
type Former = (Timestamp, Option<Arc<Value>>);

/// Kinds of the fleet API whose former states are remembered; and all of a member but what only
/// its own controllers write.
const REMEMBERED: [&str; 10] = [
    "clusters",
    "propagationpolicies",
    "clusterpropagationpolicies",
    "works",
    "resourcebindings",
    "clusterresourcebindings",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
];
const FORGOTTEN: [&str; 4] = ["pods", "nodes", "replicasets", "events"];

impl Scene {
    /// Makes the world as it is before its first entry.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: Timestamp::UNIX_EPOCH,
            phase: Phase::Setup,
            objects: BTreeMap::new(),
            members: BTreeSet::new(),
            cut_off: BTreeMap::new(),
            down: BTreeMap::new(),
            running: BTreeMap::new(),
            faults: BTreeSet::new(),
            refused: BTreeMap::new(),
            disturbed: Timestamp::UNIX_EPOCH,
            recent: BTreeMap::new(),
            evicting: BTreeMap::new(),
            clocks: Clocks::default(),
            wishes: Wishes::default(),
            works_since_promotion: None,
        }
    }

    /// Takes note of an entry. Oracles see the state after it.
    pub fn apply(&mut self, entry: &Entry) {
        self.now = entry.at;
        self.clocks.pass(entry.at);
        match &entry.event {
            Event::Request(request) if request.api == Api::Standby => {}
            Event::Request(request) => {
                let is_refused = matches!(request.outcome, Outcome::Refused(403 | 422));
                if is_refused && request.api != Api::Fleet {
                    self.refused.insert(request.key(), self.now);
                }
                if let Actor::Process(Process::ControlPlane(number)) = request.actor
                    && request.api == Api::Fleet
                    && request.outcome != Outcome::Lost
                {
                    self.clocks.answer(number);
                }
                if let Some(request) = entry.commit() {
                    self.commit(request);
                }
            }
            Event::World(world) => self.happen(world),
        }
    }

    fn commit(&mut self, request: &Request) {
        let key = request.key();
        self.wishes.note(request, &key, self.now);
        if let Api::Member(name) = &key.api
            && !self.members.contains(name)
        {
            self.members.insert(name.clone());
        }
        let is_remembered = match key.api {
            Api::Fleet => REMEMBERED.contains(&key.plural.as_str()),
            Api::Member(_) | Api::Standby => !FORGOTTEN.contains(&key.plural.as_str()),
        };
        if is_remembered {
            let oldest = self.now - self.rules.lag;
            let states = self.recent.entry(key.clone()).or_default();
            while states.front().is_some_and(|(ended, _)| *ended < oldest) {
                states.pop_front();
            }
            states.push_back((self.now, request.before.clone()));
        }
        if key.api == Api::Fleet && key.plural == "clusters" {
            let after = request.after.as_deref();
            if after.is_some_and(|cluster| Cluster(cluster).evicts()) {
                self.evicting.entry(key.name.clone()).or_insert(self.now);
            } else {
                self.evicting.remove(&key.name);
            }
        }
        if let Some(works) = &mut self.works_since_promotion
            && key.api == Api::Fleet
            && key.plural == "works"
        {
            works.insert(key.clone());
        }
        match &request.after {
            Some(after) => self.objects.insert(key, Arc::clone(after)),
            None => self.objects.remove(&key),
        };
    }

    fn happen(&mut self, world: &World) {
        let now = self.now;
        self.clocks.happen(world);
        match world {
            World::FaultBegins { id, .. } => {
                self.faults.insert(*id);
                self.disturbed = now;
            }
            World::FaultEnds { id } => {
                self.faults.remove(id);
                self.disturbed = now;
            }
            World::Started(process) => {
                // What ends by itself is no disturbance from outside.
                if !self.running.contains_key(process) {
                    self.running.insert(process.clone(), now);
                    self.disturbed = now;
                }
            }
            World::Stopped { process, killed } => {
                if *killed {
                    self.running.remove(process);
                    self.disturbed = now;
                }
            }
            World::CutOff(cluster) => {
                self.cut_off.entry(cluster.clone()).or_insert(now);
                self.disturbed = now;
            }
            World::Healed(cluster) => {
                self.cut_off.remove(cluster);
                self.disturbed = now;
            }
            World::Down(cluster) => {
                self.down.entry(cluster.clone()).or_insert(now);
                self.disturbed = now;
            }
            World::Up(cluster) => {
                self.down.remove(cluster);
                self.disturbed = now;
            }
            World::Promoted => {
                let works = self.all(&Api::Fleet, objects::WORK, "works");
                let works = works.map(|(key, _)| key.clone()).collect();
                self.works_since_promotion = Some(works);
                self.disturbed = now;
            }
            World::Phase(phase) => self.phase = *phase,
            World::Step { .. } | World::Mark(_) => {}
        }
    }

    /// Returns the end state as it is now, where it is to be judged before a fresh start mends it;
    /// `None` when no fresh start begins.
    pub fn before_fresh_start(&self, entry: &Entry) -> Option<End> {
        let begins = matches!(entry.world(), Some(World::Phase(Phase::Fresh)));
        begins.then(|| End {
            at: self.now,
            objects: self.objects.clone(),
            reachable: self
                .clusters()
                .map(|(name, _)| name.to_owned())
                .filter(|name| self.is_reachable(name))
                .collect(),
        })
    }

    /// Returns whether a member lately refused to have an object changed: its own admission is in
    /// the way.
    pub fn is_refused(&self, key: &Key) -> bool {
        let at = self.refused.get(key);
        at.is_some_and(|at| self.now.duration_since(*at) <= self.rules.answered)
    }

    /// Returns whether what was ordered before this time may still be carried out: by a process
    /// that did not know of it yet, with a write that was late.
    pub fn is_on_its_way(&self, before: Timestamp) -> bool {
        self.now.duration_since(before) <= self.rules.lag * 2
    }

    /// Returns the furthest that any clock of the control plane was ever wrong.
    pub fn clock_error(&self) -> SignedDuration {
        self.rules.clock_error.min(self.clocks.error())
    }

    /// Makes a violation that the last entry completed.
    pub fn violation(
        &self,
        oracle: &'static str,
        subject: &impl Display,
        message: &impl Display,
    ) -> Violation {
        Violation {
            oracle,
            at: self.now,
            subject: subject.to_string(),
            message: message.to_string(),
        }
    }

    /// Returns an object of the fleet API.
    pub fn fleet(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&Arc<Value>> {
        self.objects
            .get(&objects::key(&Api::Fleet, group, plural, namespace, name))
    }

    /// Returns all objects of a kind, of all namespaces.
    pub fn all<'a>(
        &'a self,
        api: &Api,
        group: &str,
        plural: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let first = objects::key(api, group, plural, "", "");
        self.objects
            .range(first.clone()..)
            .take_while(move |(key, _)| {
                key.api == first.api && key.group == first.group && key.plural == first.plural
            })
            .map(|(key, value)| (key, &**value))
    }

    /// Returns all bindings of both kinds.
    pub fn bindings(&self) -> impl Iterator<Item = (&Key, Binding<'_>)> {
        ["clusterresourcebindings", "resourcebindings"]
            .into_iter()
            .flat_map(|plural| self.all(&Api::Fleet, objects::WORK, plural))
            .map(|(key, value)| (key, Binding(value)))
    }

    /// Returns all clusters by name.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, Cluster<'_>)> {
        self.all(&Api::Fleet, objects::CLUSTER, "clusters")
            .map(|(key, value)| (key.name.as_str(), Cluster(value)))
    }

    /// Returns the members that have any object.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(String::as_str)
    }

    /// Returns a cluster by name.
    pub fn cluster(&self, name: &str) -> Option<Cluster<'_>> {
        self.fleet(objects::CLUSTER, "clusters", "", name)
            .map(|value| Cluster(value))
    }

    /// Returns whether at most one copy of a workload is to run, as the policy of its binding says,
    /// or as the binding says that may not know of it. A control plane whose watch is behind
    /// obeys a policy as it was up to [`Rules::lag`] ago, and no longer.
    pub fn is_fenced(&self, binding: Binding<'_>) -> bool {
        let policy = objects::policy_of(binding.0);
        let mut states = policy.iter().flat_map(|key| self.recently(key)).flatten();
        binding.is_fenced() || states.any(objects::is_fenced)
    }

    /// Returns the states of an object that somebody may still believe: those of the last moments
    /// ([`Rules::lag`]). `None` where it did not exist.
    pub fn recently<'a>(&'a self, key: &Key) -> impl Iterator<Item = Option<&'a Value>> {
        let oldest = self.now - self.rules.lag;
        let former = self.recent.get(key).into_iter().flatten();
        former
            .filter(move |(ended, _)| *ended >= oldest)
            .map(|(_, state)| state.as_deref())
            .chain([self.objects.get(key).map(|value| &**value)])
    }

    /// Returns the last state that an object had before its present one.
    pub fn former(&self, key: &Key) -> Option<&Value> {
        self.recent.get(key)?.back()?.1.as_deref()
    }

    /// Returns whether any state that somebody may still believe of a cluster passes.
    pub fn cluster_recently(
        &self,
        name: &str,
        mut passes: impl FnMut(Option<Cluster<'_>>) -> bool,
    ) -> bool {
        let key = objects::key(&Api::Fleet, objects::CLUSTER, "clusters", "", name);
        self.recently(&key).any(|state| passes(state.map(Cluster)))
    }

    /// Returns whether somebody may believe that a cluster has left the fleet, or is leaving it.
    pub fn has_left(&self, cluster: &str) -> bool {
        self.cluster_recently(cluster, |state| {
            state.is_none_or(|cluster| objects::is_deleting(cluster.0))
        })
    }

    /// Returns for how long a cluster has had taints that evict; zero if it has none.
    pub fn evicts_for(&self, cluster: &str) -> SignedDuration {
        let since = self.evicting.get(cluster);
        since.map_or(SignedDuration::ZERO, |since| {
            self.now.duration_since(*since)
        })
    }

    /// Returns how long nothing has been disturbed: no fault begun or ended, no process started or
    /// stopped. Zero while a fault lasts.
    pub fn calm(&self) -> SignedDuration {
        if self.faults.is_empty() {
            self.now.duration_since(self.disturbed)
        } else {
            SignedDuration::ZERO
        }
    }

    /// Returns whether a cluster is up and its agent reaches the fleet API.
    pub fn is_reachable(&self, cluster: &str) -> bool {
        !self.cut_off.contains_key(cluster) && !self.down.contains_key(cluster)
    }
}
