//! Cluster that passed the filters, with the values that selection and division need.

use super::snapshot::ClusterInfo;

/// Score of a cluster that holds the workload already; any other cluster scores 0.
///
/// Karmada behaviour (cluster locality): it ties the workload to where it runs.
pub const LOCALITY_SCORE: i64 = 100;

/// What a cluster loses of its score by a taint of effect `PreferNoSchedule` that is not tolerated:
/// too little to move what it holds.
pub const SOFT_TAINT_SCORE: i64 = 50;

/// Part of the workload that a cluster has before this decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Place in the previous result.
    pub position: usize,
    /// Replicas; 0 for what is not counted in replicas.
    pub replicas: i64,
}

/// One feasible cluster.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The cluster.
    pub cluster: &'a ClusterInfo,
    /// Its place among all clusters by name: compared instead of the name.
    pub order: usize,
    /// How much the cluster is preferred: [`LOCALITY_SCORE`], less [`SOFT_TAINT_SCORE`].
    pub score: i64,
    /// 0 for the primary affinity, n for the n-th overflow affinity: lower tiers are filled first.
    pub tier: u32,
    /// Replicas that fit besides what the cluster holds.
    pub allocatable: i64,
    /// Part of the workload that the cluster has already.
    pub held: Option<Held>,
    /// Whether the cluster may not get more than it holds.
    pub closed: bool,
}

impl<'a> Candidate<'a> {
    /// Returns the name of the cluster.
    pub fn name(&self) -> &'a str {
        self.cluster.name()
    }

    /// Returns the candidate as it would be if it held nothing.
    #[must_use]
    pub fn unheld(&self) -> Self {
        Self {
            score: 0,
            held: None,
            ..*self
        }
    }

    /// Replicas that the cluster holds already.
    pub fn held_replicas(&self) -> i64 {
        self.held.map_or(0, |held| held.replicas)
    }

    /// Replicas that the cluster can hold in all.
    pub fn available(&self) -> i64 {
        self.allocatable + self.held_replicas()
    }
}

/// Puts the best first: the lower tier, then the higher score, then more available replicas, then
/// the name.
pub fn rank(candidates: &mut Vec<Candidate<'_>>) {
    // One number for each is compared and moved much faster than the candidates themselves.
    let mut keys: Vec<(u128, usize)> = candidates.iter().map(Candidate::rank).zip(0..).collect();
    if !keys.is_sorted() {
        keys.sort_unstable();
        *candidates = keys.iter().map(|&(_, at)| candidates[at]).collect();
    }
}

impl Candidate<'_> {
    /// Returns what the candidate is ranked by, in one number: the lower the better.
    fn rank(&self) -> u128 {
        // Of scores and available replicas more is better. The latter are two counts of 31 bits
        // added up.
        let less = |value: i64| (1 << 33) - value.clamp(-(1 << 32), 1 << 33);
        let parts = [
            (32, i64::from(self.tier)),
            (34, less(self.score)),
            (34, less(self.available())),
            (28, i64::try_from(self.order).unwrap_or(i64::MAX)),
        ];
        parts.into_iter().fold(0, |rank, (bits, part)| {
            rank << bits | u128::from(part.unsigned_abs())
        })
    }
}
