//! Cluster affinity: the clusters that a placement allows, in tiers, and the order of its affinity
//! groups.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{ClusterAffinity, ClusterAffinityTerm, Placement};
use muster_shared::selectors::Affinity as Matcher;

use super::Behaviour;
use super::bounds::{groups_within, overflow_within};
use super::snapshot::ClusterInfo;

/// The affinity in use in one attempt.
#[derive(Debug)]
pub struct Affinity<'a> {
    /// By tier; an empty list allows every cluster.
    tiers: Vec<Matcher<'a>>,
    overflows: bool,
}

impl<'a> Affinity<'a> {
    /// Returns the affinity of a placement, of whose groups the one named `observed` is tried.
    /// Overflow affinities count only for workloads. A group that does not exist allows every
    /// cluster (Karmada behaviour).
    pub fn new(spec: &ResourceBindingSpec, placement: &'a Placement, observed: &str) -> Self {
        if let Some(affinity) = &placement.cluster_affinity {
            return Self {
                tiers: vec![Matcher::new(affinity)],
                overflows: false,
            };
        }
        let Some(term) = term(placement, observed) else {
            return Self {
                tiers: Vec::new(),
                overflows: false,
            };
        };
        let overflow = overflow_within(term).iter().filter(|_| spec.is_workload());
        Self {
            tiers: std::iter::once(&term.cluster_affinity)
                .chain(overflow.map(|overflow| &overflow.cluster_affinity))
                .map(Matcher::new)
                .collect(),
            overflows: !term.overflow_affinities.is_empty(),
        }
    }

    /// Returns the first tier that allows the cluster: 0 for the primary affinity, n for the n-th
    /// overflow affinity.
    pub fn tier(&self, cluster: &ClusterInfo) -> Option<u32> {
        if self.tiers.is_empty() {
            return Some(0);
        }
        let position = self
            .tiers
            .iter()
            .position(|matcher| matcher.matches(cluster.cluster()))?;
        u32::try_from(position).ok()
    }

    /// Returns whether the group in use has overflow affinities.
    pub fn overflows(&self) -> bool {
        self.overflows
    }
}

/// Returns all affinities of a placement; none where any cluster may be chosen.
pub fn affinities(placement: &Placement) -> impl Iterator<Item = &ClusterAffinity> {
    let one = placement.cluster_affinity.as_ref();
    let groups = placement.cluster_affinities.iter();
    let groups = groups.filter(move |_| one.is_none());
    one.into_iter().chain(groups.flat_map(affinities_of))
}

/// Returns the affinities of a group: its own, and those of what overflows.
pub fn affinities_of(group: &ClusterAffinityTerm) -> impl Iterator<Item = &ClusterAffinity> {
    let overflow = group.overflow_affinities.iter();
    std::iter::once(&group.cluster_affinity).chain(overflow.map(|it| &it.cluster_affinity))
}

/// Returns whether a cluster of this name can match, with some labels and fields.
pub fn allows_name(affinity: &ClusterAffinity, name: &str) -> bool {
    let has = |names: &[String]| names.iter().any(|it| it == name);
    !has(&affinity.exclude) && (affinity.cluster_names.is_empty() || has(&affinity.cluster_names))
}

/// Returns the affinity group of this name.
pub fn term<'a>(placement: &'a Placement, name: &str) -> Option<&'a ClusterAffinityTerm> {
    placement
        .cluster_affinities
        .iter()
        .find(|term| term.affinity_name == name)
}

/// Returns the affinity groups to try, in order: from the one in use onwards, so that a fallback
/// sticks, and then those before it; from the first one if a reschedule is requested or the group
/// in use is gone. Karmada does not try those before it. As many as are compared with every cluster
/// in one decision.
pub fn groups<'a>(
    placement: &'a Placement,
    observed: &str,
    fresh: bool,
    behaviour: Behaviour,
) -> impl Iterator<Item = &'a ClusterAffinityTerm> + use<'a> {
    let groups = &placement.cluster_affinities;
    let start = groups
        .iter()
        .position(|group| group.affinity_name == observed)
        .filter(|_| !fresh)
        .unwrap_or(0);
    let before = match behaviour {
        Behaviour::Muster => &groups[..start],
        Behaviour::Karmada => &[],
    };
    groups_within(groups[start..].iter().chain(before))
}
