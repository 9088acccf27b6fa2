//! Division strategy of a placement.

use muster_shared::api::policy::{
    ClusterPreferences, Placement, ReplicaDivisionPreference, ReplicaSchedulingStrategy,
    ReplicaSchedulingType, StaticClusterWeight,
};
use muster_shared::selectors::Affinity;

use super::{Claim, DivideError};
use crate::scheduler::core::bounds::{names_only, selecting_within};
use crate::scheduler::core::candidate::Candidate;
use crate::scheduler::core::snapshot::Snapshot;

/// Strategy for dividing replicas.
#[derive(Debug, Clone)]
pub enum Strategy<'a> {
    /// Every cluster gets all replicas.
    Duplicated,
    /// Replicas are divided by the weights of the placement.
    Static(Weights<'a>),
    /// Replicas are divided by the capacity of each cluster.
    Dynamic,
    /// As few clusters as possible are used.
    Aggregated,
}

impl<'a> Strategy<'a> {
    /// Reads the strategy of a placement; none means Duplicated (Karmada behaviour).
    ///
    /// # Errors
    /// When the combination means nothing, such as Divided without a preference.
    pub fn of(placement: &'a Placement) -> Result<Self, DivideError> {
        let Some(scheduling) = &placement.replica_scheduling else {
            return Ok(Self::Duplicated);
        };
        let kind = scheduling.replica_scheduling_type.as_ref();
        let preference = scheduling.replica_division_preference.as_ref();
        match (kind, preference) {
            (Some(ReplicaSchedulingType::Duplicated), _) => Ok(Self::Duplicated),
            (Some(ReplicaSchedulingType::Divided), Some(ReplicaDivisionPreference::Aggregated)) => {
                Ok(Self::Aggregated)
            }
            (Some(ReplicaSchedulingType::Divided), Some(ReplicaDivisionPreference::Weighted)) => {
                let weights = scheduling.weight_preference.as_ref();
                if weights.is_some_and(is_dynamic) {
                    Ok(Self::Dynamic)
                } else {
                    let list = weights.map_or(&[][..], |weights| &weights.static_weight_list);
                    Ok(Self::Static(Weights::new(list)))
                }
            }
            _ => Err(DivideError::Unsupported {
                kind: kind.map_or_else(String::new, ToString::to_string),
                preference: preference.map_or_else(String::new, ToString::to_string),
            }),
        }
    }

    /// Returns whether the division depends only on the clusters, not on their order of preference:
    /// each gets a share by weight.
    pub fn is_blind_to_rank(placement: &Placement) -> bool {
        weighted(placement).is_some()
    }

    /// Returns whether the division does not depend on the clusters' room either: each gets all, or
    /// a share by a weight that the placement gives.
    pub fn is_blind_to_room(placement: &Placement) -> bool {
        let is_given =
            |it: &ReplicaSchedulingStrategy| !it.weight_preference.as_ref().is_some_and(is_dynamic);
        !placement.is_divided() || weighted(placement).is_some_and(is_given)
    }

    /// Returns whether clusters are chosen by the weights alone, so that spread constraints do not
    /// apply (Karmada behaviour).
    pub fn ignores_spread(placement: &Placement) -> bool {
        let are_static =
            |it: &ClusterPreferences| !it.static_weight_list.is_empty() && !is_dynamic(it);
        weighted(placement).is_some_and(|it| it.weight_preference.as_ref().is_none_or(are_static))
    }
}

/// Returns the strategy of a placement, if that divides replicas by weights.
fn weighted(placement: &Placement) -> Option<&ReplicaSchedulingStrategy> {
    placement.replica_scheduling.as_ref().filter(|it| {
        it.replica_scheduling_type == Some(ReplicaSchedulingType::Divided)
            && it.replica_division_preference == Some(ReplicaDivisionPreference::Weighted)
    })
}

/// The static weights of a placement.
#[derive(Debug, Clone)]
pub struct Weights<'a> {
    /// Entries that name clusters and ask for nothing else: the usual case, looked up.
    named: Vec<(&'a str, i64)>,
    /// All other entries, tried one by one: as many as are compared with every cluster in one
    /// decision.
    selecting: Vec<(Affinity<'a>, i64)>,
}

impl<'a> Weights<'a> {
    fn new(entries: &'a [StaticClusterWeight]) -> Self {
        let mut named = Vec::with_capacity(entries.len());
        let mut selecting = Vec::new();
        let most = selecting_within(entries);
        for entry in entries {
            if names_only(&entry.target_cluster) {
                let listed = entry.target_cluster.cluster_names.iter();
                named.extend(listed.map(|name| (name.as_str(), entry.weight)));
            } else if selecting.len() < most {
                selecting.push((Affinity::new(&entry.target_cluster), entry.weight));
            }
        }
        Self { named, selecting }
    }

    /// Returns whether one of the candidates has a weight above zero.
    pub(in crate::scheduler) fn are_about_any(
        &self,
        candidates: &[Candidate<'_>],
        clusters: &Snapshot,
    ) -> bool {
        let weighed = self.weighed(candidates, clusters);
        weighed.iter().any(|&(_, weight)| weight > 0)
    }

    /// Returns the claims of the candidates, by name: the highest weight that matches. Candidates
    /// without a weight get nothing, unless none has one: then all weigh the same.
    pub(super) fn claims<'c, 'k>(
        &self,
        candidates: &'c [Candidate<'k>],
        clusters: &Snapshot,
    ) -> Vec<Claim<'c, 'k>> {
        let mut claims = self.weighed(candidates, clusters);
        if claims.iter().any(|&(_, weight)| weight > 0) {
            claims.retain(|&(_, weight)| weight > NO_WEIGHT);
        } else {
            for (_, weight) in &mut claims {
                *weight = 1;
            }
        }
        claims
    }

    /// Returns the candidates, by name, with the highest weight that matches each.
    fn weighed<'c, 'k>(
        &self,
        candidates: &'c [Candidate<'k>],
        clusters: &Snapshot,
    ) -> Vec<Claim<'c, 'k>> {
        let mut claims: Vec<Claim<'c, 'k>> = candidates
            .iter()
            .map(|candidate| (candidate, self.selected(candidate)))
            .collect();
        claims.sort_unstable_by_key(|(candidate, _)| candidate.order);
        for (name, weight) in &self.named {
            let Some(order) = clusters.position(name) else {
                continue;
            };
            if let Ok(place) = claims.binary_search_by_key(&order, |(candidate, _)| candidate.order)
            {
                let claim = &mut claims[place].1;
                *claim = (*claim).max(*weight);
            }
        }
        claims
    }

    fn selected(&self, candidate: &Candidate<'_>) -> i64 {
        let cluster = candidate.cluster.cluster();
        self.selecting
            .iter()
            .filter(|(affinity, _)| affinity.matches(cluster))
            .map(|&(_, weight)| weight)
            .max()
            .unwrap_or(NO_WEIGHT)
    }
}

/// Less than any weight: no entry is about the cluster.
const NO_WEIGHT: i64 = i64::MIN;

fn is_dynamic(weights: &ClusterPreferences) -> bool {
    weights
        .dynamic_weight
        .as_ref()
        .is_some_and(|factor| !factor.as_str().is_empty())
}
