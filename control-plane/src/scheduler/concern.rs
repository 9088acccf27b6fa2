//! Which bindings have to be looked at again when a cluster changes.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::selectors::matches_affinity;

use super::capacity::Capacity;
use super::need::is_divided;

/// What changed about a cluster, as far as placements depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterNews {
    /// Nothing.
    None,
    /// It has more room than before.
    Room,
    /// It may be chosen where it was not, or not where it was: it joined or leaves, or its labels, taints, location or
    /// kinds changed.
    Admission,
}

impl ClusterNews {
    /// Compares two states of a cluster; an absent one does not exist (yet, or any more).
    pub fn between(old: Option<&Cluster>, new: Option<&Cluster>) -> Self {
        match (old, new) {
            (Some(old), Some(new)) if !admits_alike(old, new) => Self::Admission,
            (Some(old), Some(new)) if has_more_room(old, new) => Self::Room,
            (Some(_), Some(_)) | (None, None) => Self::None,
            (None, Some(_)) | (Some(_), None) => Self::Admission,
        }
    }
}

fn admits_alike(old: &Cluster, new: &Cluster) -> bool {
    let taints = |cluster: &Cluster| -> Vec<_> {
        let taints = cluster.spec.taints.iter();
        taints
            .map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone()))
            .collect()
    };
    let kinds = |cluster: &'_ Cluster| {
        cluster
            .status
            .as_ref()
            .map(|status| status.api_enablements.clone())
            .unwrap_or_default()
    };
    old.metadata.labels == new.metadata.labels
        && old.metadata.deletion_timestamp.is_some() == new.metadata.deletion_timestamp.is_some()
        && old.spec.provider == new.spec.provider
        && old.spec.region == new.spec.region
        && old.zones().eq(new.zones())
        && taints(old) == taints(new)
        && kinds(old) == kinds(new)
}

fn has_more_room(old: &Cluster, new: &Cluster) -> bool {
    let summary = |cluster: &'_ Cluster| {
        cluster
            .status
            .as_ref()
            .and_then(|status| status.resource_summary.clone())
    };
    if summary(old) == summary(new) && old.spec.resource_models == new.spec.resource_models {
        return false;
    }
    match (Capacity::of(old), Capacity::of(new)) {
        (Some(old), Some(new)) => new.exceeds(&old),
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// Whether a change in what a cluster admits may change the result of a binding that is settled. Divided workloads stay
/// where they are, unless a cluster of theirs is being deleted (Karmada behaviour).
pub fn concerns(spec: &ResourceBindingSpec, old: Option<&Cluster>, new: Option<&Cluster>) -> bool {
    let Some(placement) = &spec.placement else {
        return false;
    };
    let name = new
        .or(old)
        .and_then(|cluster| cluster.metadata.name.as_deref())
        .unwrap_or_default();
    let is_target = spec.target(name).is_some();
    if spec.is_workload() && is_divided(placement) {
        return is_target
            && new.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
    }
    is_target
        || [old, new]
            .into_iter()
            .flatten()
            .any(|cluster| may_choose(placement, cluster))
}

/// Whether a placement can choose the cluster at all, in any of its affinity groups.
pub fn may_choose(placement: &Placement, cluster: &Cluster) -> bool {
    if let Some(affinity) = &placement.cluster_affinity {
        return matches_affinity(affinity, cluster);
    }
    placement.cluster_affinities.is_empty()
        || placement.cluster_affinities.iter().any(|group| {
            matches_affinity(&group.cluster_affinity, cluster)
                || group
                    .overflow_affinities
                    .iter()
                    .any(|overflow| matches_affinity(&overflow.cluster_affinity, cluster))
        })
}
