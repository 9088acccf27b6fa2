//! Oracles: the promises of the README as code over a [`history`](crate::history).
//!
//! An oracle states a promise independently of the product: it knows the API's kinds and the words
//! of the README, and calls none of the code that it judges. Each has a file of its own with a
//! table of small histories, some of which violate it.
//!
//! [`Suite`] is all of them. It is shown entry after entry and keeps the state of the world
//! ([`scene`]) that they ask.

pub mod asked;
mod clocks;
pub mod copies;
pub mod data;
pub mod hosts;
pub mod last_good;
pub mod living;
mod moves;
pub mod nowhere;
pub mod objects;
pub mod orphans;
pub mod pace;
pub mod paused;
pub mod progress;
pub mod reported;
pub mod rest;
pub mod rights;
pub mod scene;
pub mod settled;
pub mod shown;
pub mod silence;
pub mod stale;
#[cfg(test)]
mod testing;
mod troubles;
mod wishes;
pub mod witnesses;
pub mod works;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::history::{Entry, Key, Phase};
use scene::Scene;

/// A check of one promise.
pub trait Oracle: Send {
    /// Returns the name of the oracle, for reports and for selecting oracles.
    fn name(&self) -> &'static str;

    /// Reads the next entry, and returns which violations it completes. The scene is that after
    /// the entry.
    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation>;

    /// Returns what is violated by the end state, where that is part of the promise.
    fn end(&mut self, _end: &End, _scene: &Scene) -> Vec<Violation> {
        Vec::new()
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that reports it.
    pub oracle: &'static str,
    /// When.
    pub at: Timestamp,
    /// The object.
    pub subject: String,
    /// What is wrong, for who reads the report.
    pub message: String,
}

/// The end of a simulation.
#[derive(Clone, Debug)]
pub struct End {
    /// Virtual time.
    pub at: Timestamp,
    /// All objects of all API servers.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// Member clusters that the fleet API can reach and that are up.
    pub reachable: BTreeSet<String>,
}

/// What the control plane is set to promise, and what the world allows itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Feature gate `Failover`.
    pub failover: bool,
    /// Evictions a second while the fleet is healthy (`--resource-eviction-rate`).
    pub primary_rate: f64,
    /// Evictions a second when too many clusters of a large fleet have failed
    /// (`--secondary-resource-eviction-rate`).
    pub secondary_rate: f64,
    /// Fraction of failed clusters that has to be exceeded (`--unhealthy-cluster-threshold`).
    pub unhealthy_threshold: f64,
    /// Number of clusters that a large fleet exceeds (`--large-cluster-num-threshold`).
    pub large_threshold: usize,
    /// Purge mode for policies that do not say (`--no-execute-taint-eviction-purge-mode`).
    pub purge_mode: String,
    /// Silence after which a cluster counts as silent (`--cluster-monitor-grace-period`).
    pub grace: SignedDuration,
    /// The longest time for which a fault may keep a process from what others committed, or a write
    /// from being carried out.
    pub lag: SignedDuration,
    /// The furthest that the clock of a process may be wrong.
    pub clock_error: SignedDuration,
    /// Time within which the product answers what a person asks, faults included.
    pub answered: SignedDuration,
    /// Time within which an undisturbed fleet does what it has to, beyond what its rates need.
    pub prompt: SignedDuration,
    /// Replicas of the control plane at each host: those of the first one have the first numbers.
    pub replicas: u8,
}

impl Default for Rules {
    /// Returns the defaults of the flags, with the gate `Failover` on, in a world with little
    /// delay.
    fn default() -> Self {
        Self {
            failover: true,
            primary_rate: 0.5,
            secondary_rate: 0.1,
            unhealthy_threshold: 0.55,
            large_threshold: 10,
            purge_mode: "Gracefully".to_owned(),
            grace: SignedDuration::from_secs(40),
            lag: SignedDuration::from_secs(10),
            clock_error: SignedDuration::ZERO,
            answered: SignedDuration::from_mins(15),
            prompt: SignedDuration::from_mins(2),
            replicas: 2,
        }
    }
}

/// All oracles.
pub struct Suite {
    scene: Scene,
    /// Judges entries of all stores; the others judge those of the store that counts.
    hosts: hosts::Hosts,
    oracles: Vec<Box<dyn Oracle>>,
}

impl Suite {
    /// Returns all oracles, for a control plane with these settings.
    pub fn new(rules: Rules) -> Self {
        Self {
            scene: Scene::new(rules),
            hosts: hosts::Hosts::default(),
            oracles: vec![
                Box::new(nowhere::Nowhere),
                Box::new(works::Works),
                Box::new(stale::Stale),
                Box::new(copies::Copies::default()),
                Box::new(data::Data::default()),
                Box::new(living::Living::default()),
                Box::new(shown::Shown::default()),
                Box::new(asked::Asked::default()),
                Box::new(paused::Paused::default()),
                Box::new(pace::Pace::default()),
                Box::new(last_good::LastGood::default()),
                Box::new(silence::Silence::default()),
                Box::new(rest::Rest::default()),
                Box::new(rights::Rights),
                Box::new(reported::Reported::default()),
                Box::new(orphans::Orphans::default()),
                Box::new(witnesses::Witnesses::default()),
                Box::new(settled::Settled),
                Box::new(progress::Progress),
            ],
        }
    }

    /// Shows the next entry to all oracles. What happens while the world is set up is not judged.
    pub fn observe(&mut self, entry: &Entry) -> Vec<Violation> {
        let Self {
            scene,
            hosts,
            oracles,
        } = self;
        scene.apply(entry);
        let mut reported = hosts.observe(entry, scene);
        if !hosts.is_of_former(entry, scene) {
            let oracles = oracles.iter_mut();
            reported.extend(oracles.flat_map(|oracle| oracle.observe(entry, scene)));
        }
        if scene.phase == Phase::Setup {
            return Vec::new();
        }
        reported
    }

    /// Asks all oracles about the end state.
    pub fn end(&mut self, end: &End) -> Vec<Violation> {
        let Self { scene, oracles, .. } = self;
        scene.now = end.at;
        let oracles = oracles.iter_mut();
        oracles.flat_map(|oracle| oracle.end(end, scene)).collect()
    }

    /// Returns the state of the world after the last entry.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.oracles.iter().map(|oracle| oracle.name()).collect();
        f.debug_struct("Suite")
            .field("oracles", &names)
            .finish_non_exhaustive()
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}: {}",
            self.at, self.oracle, self.subject, self.message
        )
    }
}
