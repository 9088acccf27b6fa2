//! Plans: everything that a simulation is made of. The same plan gives the same history.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::faults::Fault;
use crate::people::{Site, Step};

/// A whole simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Replicas of the control plane.
    pub replicas: u8,
    /// Flags of the control plane.
    pub flags: Vec<String>,
    /// Flags of every agent.
    #[serde(default)]
    pub agent_flags: Vec<String>,
    /// The members.
    pub sites: Vec<Site>,
    /// Objects that every API serves from the beginning: definitions of kinds.
    pub everywhere: Vec<Value>,
    /// Objects of the fleet API that are there when the busy phase begins.
    pub objects: Vec<Value>,
    /// What people do.
    pub steps: Vec<Step>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Lengths of the phases.
    pub phases: Phases,
}

/// Lengths of the phases, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phases {
    /// People act and faults happen.
    pub busy: u64,
    /// The fleet converges.
    pub calm: u64,
    /// Nothing is written but leases.
    pub rest: u64,
    /// After all processes were started anew.
    pub fresh: u64,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            busy: 600_000,
            calm: 900_000,
            rest: 120_000,
            fresh: 120_000,
        }
    }
}

/// Returns a number of milliseconds as a duration.
pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
