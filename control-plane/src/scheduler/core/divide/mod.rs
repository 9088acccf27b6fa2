//! Divides the replicas of a workload among the selected clusters.
//!
//! Placed replicas stay unless there is a reason to move them. When a divided workload grows, only
//! the new replicas are placed; when it shrinks, replicas are removed in proportion; only a
//! requested reschedule starts anew. With static weights all replicas are divided again, because
//! the weights apply to the total.

mod strategy;
mod webster;

pub use strategy::Strategy;
pub use webster::{Party, TieBreak, webster};

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use muster_shared::api::binding::TargetCluster;

use super::candidate::Candidate;
use super::snapshot::Snapshot;

/// Replicas that are to be divided, and how.
#[derive(Debug, Clone)]
pub struct Division<'a> {
    /// Replicas of the workload.
    pub replicas: i64,
    /// Strategy by which the replicas are divided.
    pub strategy: Strategy<'a>,
    /// Whether a reschedule was requested, so that the previous result binds nobody.
    pub fresh: bool,
    /// Whether overflow affinities are in use: lower tiers are filled before higher ones get
    /// anything.
    pub tiered: bool,
    /// All clusters.
    pub clusters: &'a Snapshot,
    /// Rule that says which cluster gets the odd replica.
    pub tie_break: TieBreak,
}

/// Replicas of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Replicas; may be 0.
    pub replicas: i64,
}

impl<'a> Share<'a> {
    /// Returns the share of a cluster that has the workload without any count of replicas.
    pub const fn uncounted(cluster: &'a str) -> Self {
        Self {
            cluster,
            replicas: 0,
        }
    }

    /// Returns the share as the binding states it.
    pub fn target(&self) -> TargetCluster {
        TargetCluster {
            name: self.cluster.to_owned(),
            // Shares of a 31 bit total.
            replicas: i32::try_from(self.replicas).unwrap_or(i32::MAX),
            ..TargetCluster::default()
        }
    }
}

/// Reason why the replicas could not be divided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DivideError {
    /// The clusters together have too little capacity.
    #[error("failed to {change}: Clusters available replicas {room} are not enough to schedule.")]
    Shortage {
        /// Kind of the change.
        change: Change,
        /// Number of replicas that fit.
        room: i64,
        /// Number of replicas that do not fit.
        lacking: i64,
    },
    /// All tiers together have too little capacity.
    #[error("Clusters available replicas are not enough to schedule.")]
    TiersFull {
        /// Number of replicas that do not fit.
        lacking: i64,
    },
    /// The clusters with weights accept no more replicas, because of taints that are not tolerated.
    #[error("no cluster with a weight admits the other {left} replicas.")]
    Closed {
        /// Number of replicas that are left.
        left: i64,
    },
    /// There are no clusters.
    #[error("no clusters available to schedule")]
    NoClusters,
    /// The combination of type and preference is not supported.
    #[error(
        "unsupported replica scheduling: type {kind:?} with division preference {preference:?}"
    )]
    Unsupported {
        /// `replicaSchedulingType` of the placement.
        kind: String,
        /// `replicaDivisionPreference` of the placement.
        preference: String,
    },
}

impl DivideError {
    /// Returns whether more room would help.
    pub const fn is_shortage(&self) -> bool {
        matches!(
            self,
            Self::Shortage { .. } | Self::TiersFull { .. } | Self::Closed { .. }
        )
    }

    /// Replicas for which room has to appear at least before another try can do better, where that
    /// is known.
    pub const fn lacking(&self) -> Option<i64> {
        match self {
            Self::Shortage { lacking, .. } | Self::TiersFull { lacking } => Some(*lacking),
            _ => None,
        }
    }
}

/// Change of the number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// All replicas are placed anew.
    Fresh,
    /// More replicas than are placed.
    Up,
    /// Fewer replicas than are placed.
    Down,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh => "do fresh scale",
            Self::Up => "scale up",
            Self::Down => "scale down",
        })
    }
}

/// Divides the replicas over the candidates, given in order of preference.
///
/// # Errors
/// When the replicas do not fit, or there is nothing to divide over. Nothing is placed then: part
/// of a workload is never a result.
pub fn divide<'a>(
    candidates: &[Candidate<'a>],
    division: &Division<'_>,
) -> Result<Vec<Share<'a>>, DivideError> {
    if candidates.is_empty() {
        return Err(DivideError::NoClusters);
    }
    if !division.tiered {
        return divide_tier(candidates, division.replicas, division);
    }
    let mut tiers: Vec<u32> = candidates.iter().map(|candidate| candidate.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let mut left = division.replicas;
    let mut shares = Vec::with_capacity(candidates.len());
    for tier in tiers {
        let members: Vec<_> = candidates
            .iter()
            .filter(|candidate| candidate.tier == tier)
            .copied()
            .collect();
        let room: i64 = members.iter().map(Candidate::available).sum();
        let amount = left.min(room);
        shares.extend(divide_tier(&members, amount, division)?);
        left -= amount;
        if left <= 0 {
            return Ok(shares);
        }
    }
    Err(DivideError::TiersFull { lacking: left })
}

fn divide_tier<'a>(
    candidates: &[Candidate<'a>],
    replicas: i64,
    division: &Division<'_>,
) -> Result<Vec<Share<'a>>, DivideError> {
    match &division.strategy {
        Strategy::Duplicated => Ok(candidates
            .iter()
            .map(|candidate| Share {
                cluster: candidate.name(),
                replicas,
            })
            .collect()),
        Strategy::Static(weights) => {
            let claims = weights.claims(candidates, division.clusters);
            divide_by_weights(claims, replicas, division.tie_break)
        }
        Strategy::Dynamic => divide_by_room(candidates, replicas, division, false),
        Strategy::Aggregated => divide_by_room(candidates, replicas, division, true),
    }
}

/// A candidate with the weight by which it claims replicas.
type Claim<'c, 'a> = (&'c Candidate<'a>, i64);

/// Divides all replicas by given weights; a closed cluster gets at most what it holds, the others
/// the rest.
fn divide_by_weights<'a>(
    mut claims: Vec<Claim<'_, 'a>>,
    mut replicas: i64,
    tie_break: TieBreak,
) -> Result<Vec<Share<'a>>, DivideError> {
    let exceeds = |candidate: &Candidate<'_>, share: &Share<'_>| {
        candidate.closed && share.replicas > candidate.held_replicas()
    };
    let mut full: Vec<Share<'a>> = Vec::new();
    loop {
        let mut shares = distribute(&mut claims, replicas, tie_break);
        // The shares are in the order of the claims.
        let mut over = claims.iter().zip(&shares);
        if !over.any(|((candidate, _), share)| exceeds(candidate, share)) {
            shares.extend(full);
            return Ok(shares);
        }
        let mut shares = shares.into_iter();
        claims.retain(|(candidate, _)| {
            let over = shares
                .next()
                .is_some_and(|share| exceeds(candidate, &share));
            if over {
                let (cluster, held) = (candidate.name(), candidate.held_replicas());
                full.push(Share {
                    cluster,
                    replicas: held,
                });
                replicas -= held;
            }
            !over
        });
        let has_votes = claims.iter().any(|(_, weight)| *weight > 0);
        if !has_votes && replicas > 0 {
            return Err(DivideError::Closed { left: replicas });
        }
    }
}

/// Divides by the room that clusters have (or, shrinking, by what they hold), over all of them or
/// over as few as suffice.
fn divide_by_room<'a>(
    candidates: &[Candidate<'a>],
    replicas: i64,
    division: &Division<'_>,
    aggregated: bool,
) -> Result<Vec<Share<'a>>, DivideError> {
    let held: i64 = candidates.iter().map(Candidate::held_replicas).sum();
    let change = match replicas.cmp(&held) {
        _ if division.fresh => Change::Fresh,
        Ordering::Greater => Change::Up,
        Ordering::Less => Change::Down,
        Ordering::Equal => return Ok(as_held(candidates)),
    };
    let amount = if change == Change::Up {
        replicas - held
    } else {
        replicas
    };
    let claim = |candidate: &Candidate<'_>| match change {
        Change::Fresh => candidate.available(),
        Change::Up => candidate.allocatable,
        Change::Down => candidate.held_replicas(),
    };
    let room: i64 = candidates.iter().map(claim).sum();
    if room < amount {
        return Err(DivideError::Shortage {
            change,
            room,
            lacking: amount - room,
        });
    }
    let mut claims: Vec<Claim<'_, 'a>> = if aggregated {
        fewest(candidates, claim, amount, change)
    } else {
        candidates.iter().map(|it| (it, claim(it))).collect()
    };
    let mut shares = distribute(&mut claims, amount, division.tie_break);
    if change == Change::Up {
        add_held(&mut shares, candidates);
    }
    Ok(shares)
}

/// Returns the fewest claims that suffice: the largest first, but growing, those of clusters that
/// hold replicas before all others. Of equal claims the more preferred candidate comes first, or,
/// shrinking, the earlier one in the previous result.
fn fewest<'c, 'a>(
    candidates: &'c [Candidate<'a>],
    claim: impl Fn(&Candidate<'_>) -> i64,
    amount: i64,
    change: Change,
) -> Vec<Claim<'c, 'a>> {
    let ranked = candidates.iter().enumerate().map(|(index, candidate)| {
        let newcomer = change == Change::Up && candidate.held_replicas() == 0;
        let rank = match candidate.held {
            Some(held) if change == Change::Down => held.position,
            _ => index,
        };
        Reverse((newcomer, Reverse(claim(candidate)), rank, index))
    });
    // A heap, because the first few are most often enough.
    let mut ranked: BinaryHeap<_> = ranked.collect();
    let mut claims = Vec::new();
    let mut room = 0;
    while room < amount
        && let Some(Reverse((_, Reverse(claim), _, index))) = ranked.pop()
    {
        room += claim;
        claims.push((&candidates[index], claim));
    }
    claims
}

/// Returns the seats of the claims, by name.
fn distribute<'a>(
    claims: &mut [Claim<'_, 'a>],
    replicas: i64,
    tie_break: TieBreak,
) -> Vec<Share<'a>> {
    claims.sort_unstable_by_key(|(candidate, _)| candidate.order);
    let parties: Vec<Party<'a>> = claims
        .iter()
        .map(|(candidate, claim)| Party {
            name: candidate.name(),
            votes: u64::try_from(*claim).unwrap_or(0),
        })
        .collect();
    let seats = webster(&parties, u64::try_from(replicas).unwrap_or(0), tie_break);
    parties
        .iter()
        .zip(seats)
        .map(|(party, seats)| Share {
            cluster: party.name,
            replicas: i64::try_from(seats).unwrap_or(i64::MAX),
        })
        .collect()
}

/// Returns the previous result, in its order, as far as its clusters are still candidates.
fn as_held<'a>(candidates: &[Candidate<'a>]) -> Vec<Share<'a>> {
    let mut held: Vec<_> = candidates
        .iter()
        .filter_map(|candidate| candidate.held.map(|held| (held, candidate.name())))
        .collect();
    held.sort_unstable_by_key(|(held, _)| held.position);
    held.into_iter()
        .map(|(held, cluster)| Share {
            cluster,
            replicas: held.replicas,
        })
        .collect()
}

/// Adds what is placed to the new shares, which are sorted by name.
fn add_held<'a>(shares: &mut Vec<Share<'a>>, candidates: &[Candidate<'a>]) {
    let newcomers = shares.len();
    for held in as_held(candidates)
        .into_iter()
        .filter(|held| held.replicas > 0)
    {
        match shares[..newcomers].binary_search_by_key(&held.cluster, |share| share.cluster) {
            Ok(position) => shares[position].replicas += held.replicas,
            Err(_) => shares.push(held),
        }
    }
}
