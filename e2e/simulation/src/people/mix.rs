//! Mixes: how often people do what.

use serde::{Deserialize, Serialize};

/// How often people do what, as shares of all steps.
///
/// The oracles excuse what may follow from a person's wish, so that scripts in which people wish
/// for little are judged most strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mix {
    /// Taints, set and taken off by hand.
    pub taints: u64,
    /// Edits of templates.
    pub edits: u64,
    /// Templates deleted, and created again.
    pub deletions: u64,
    /// Policies edited, deleted and replaced.
    pub policies: u64,
    /// ClusterTaintPolicies edited, deleted and replaced.
    pub taint_policies: u64,
    /// Override policies.
    pub overrides: u64,
    /// Clusters relabelled.
    pub labels: u64,
    /// Clusters removed from the fleet.
    pub removals: u64,
    /// Workloads placed anew by a WorkloadRebalancer.
    pub rebalances: u64,
    /// Tasks released that wait for a person.
    pub releases: u64,
    /// Objects in members deleted behind the fleet's back.
    pub drift: u64,
    /// Objects that make no sense.
    pub malformed: u64,
}

impl Mix {
    /// People taint, and do nothing else.
    pub const DRAINS: Self = Self {
        taints: 1,
        edits: 0,
        deletions: 0,
        policies: 0,
        taint_policies: 0,
        overrides: 0,
        labels: 0,
        removals: 0,
        rebalances: 0,
        releases: 0,
        drift: 0,
        malformed: 0,
    };

    /// People taint and edit templates, release what waits for them, and write nonsense.
    pub const OPERATIONS: Self = Self {
        taints: 40,
        edits: 30,
        releases: 10,
        malformed: 10,
        drift: 10,
        ..Self::DRAINS
    };

    /// People do everything.
    pub const EVERYTHING: Self = Self {
        taints: 20,
        edits: 20,
        deletions: 10,
        policies: 12,
        taint_policies: 5,
        overrides: 6,
        labels: 5,
        removals: 2,
        rebalances: 5,
        releases: 5,
        drift: 5,
        malformed: 5,
    };

    /// Returns all shares, in the order of the fields.
    pub(super) fn shares(self) -> [u64; 12] {
        [
            self.taints,
            self.edits,
            self.deletions,
            self.policies,
            self.taint_policies,
            self.overrides,
            self.labels,
            self.removals,
            self.rebalances,
            self.releases,
            self.drift,
            self.malformed,
        ]
    }
}
