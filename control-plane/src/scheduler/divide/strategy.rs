//! Which way of dividing a placement asks for.

use muster_shared::api::policy::{
    ClusterAffinity, ClusterPreferences, Placement, ReplicaDivisionPreference,
    ReplicaSchedulingType, StaticClusterWeight,
};

use super::{Claim, DivideError};
use crate::scheduler::affinity::Matcher;
use crate::scheduler::candidate::Candidate;

/// How replicas are divided.
#[derive(Debug, Clone)]
pub enum Strategy<'a> {
    /// Every cluster gets all of them.
    Duplicated,
    /// By weights that the placement gives.
    Static(Weights<'a>),
    /// By the room that each cluster has.
    Dynamic,
    /// On as few clusters as possible.
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

    /// Whether clusters are chosen by the weights alone, so that spread constraints do not apply (Karmada
    /// behaviour).
    pub fn ignores_spread(placement: &Placement) -> bool {
        let Some(scheduling) = &placement.replica_scheduling else {
            return false;
        };
        scheduling.replica_scheduling_type == Some(ReplicaSchedulingType::Divided)
            && scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Weighted)
            && scheduling.weight_preference.as_ref().is_none_or(|weights| {
                !weights.static_weight_list.is_empty() && !is_dynamic(weights)
            })
    }
}

/// The static weights of a placement.
#[derive(Debug, Clone)]
pub struct Weights<'a> {
    /// Entries that name clusters and ask for nothing else, sorted by name: the usual case, looked up.
    by_name: Vec<(&'a str, i64)>,
    /// All other entries, tried one by one.
    selecting: Vec<(Matcher<'a>, i64)>,
}

impl<'a> Weights<'a> {
    fn new(entries: &'a [StaticClusterWeight]) -> Self {
        let mut by_name = Vec::new();
        let mut selecting = Vec::new();
        for entry in entries {
            if names_only(&entry.target_cluster) {
                let names = entry.target_cluster.cluster_names.iter();
                by_name.extend(names.map(|name| (name.as_str(), entry.weight)));
            } else {
                selecting.push((Matcher::new(&entry.target_cluster), entry.weight));
            }
        }
        by_name.sort_unstable();
        Self { by_name, selecting }
    }

    /// The claims of the candidates: the highest weight that matches. Candidates without a weight get nothing,
    /// unless none has one: then all weigh the same.
    pub(super) fn claims<'c>(&self, candidates: &[Candidate<'c>]) -> Vec<Claim<'c>> {
        let claims: Vec<Claim<'c>> = candidates
            .iter()
            .filter_map(|candidate| Some((*candidate, self.weight(candidate)?)))
            .collect();
        if claims.iter().any(|&(_, weight)| weight > 0) {
            claims
        } else {
            candidates.iter().map(|candidate| (*candidate, 1)).collect()
        }
    }

    fn weight(&self, candidate: &Candidate<'_>) -> Option<i64> {
        // Sorted by name, then weight: the last entry of a name is its heaviest.
        let end = self
            .by_name
            .partition_point(|&(name, _)| name <= candidate.name());
        let named = self.by_name[..end]
            .last()
            .filter(|&&(name, _)| name == candidate.name())
            .map(|&(_, weight)| weight);
        let selected = self
            .selecting
            .iter()
            .filter(|(matcher, _)| matcher.matches(candidate.cluster))
            .map(|&(_, weight)| weight);
        named.into_iter().chain(selected).max()
    }
}

fn names_only(affinity: &ClusterAffinity) -> bool {
    !affinity.cluster_names.is_empty()
        && affinity.exclude.is_empty()
        && affinity.label_selector.is_none()
        && affinity.field_selector.is_none()
}

fn is_dynamic(weights: &ClusterPreferences) -> bool {
    weights
        .dynamic_weight
        .as_ref()
        .is_some_and(|factor| !factor.as_str().is_empty())
}
