//! Finds the scheduled bindings that a change of a cluster affects.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::selectors::matches_affinity;

use super::need::is_divided;
use super::news::Turn;

/// Whether the turn of a cluster may change the result of a binding that is settled. Divided
/// workloads stay where they are, unless a cluster of theirs is leaving (Karmada behaviour). For
/// the others, too, a cluster that only admits more or less says nothing of what it has already.
pub fn concerns(spec: &ResourceBindingSpec, turn: &Turn<'_>) -> bool {
    let Some(placement) = &spec.placement else {
        return false;
    };
    let is_target = |cluster: &Cluster| {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        spec.target(name).is_some()
    };
    let stays = spec.is_workload() && is_divided(placement);
    match turn {
        Turn::Leaves(cluster) => is_target(cluster),
        _ if stays => false,
        Turn::Moved(cluster) => is_target(cluster) || may_choose(placement, cluster),
        Turn::AdmitsMore(cluster) => !is_target(cluster) && may_choose(placement, cluster),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::fixtures::{cluster, config_map, decoded, deployment, dynamic, placed};

    #[test]
    fn a_change_of_a_cluster_concerns_whom_it_may_move() {
        let only_m1 = json!({ "clusterAffinity": { "clusterNames": ["m1"] } });
        let (m1, m2) = (decoded(&cluster("m1", 10)), decoded(&cluster("m2", 10)));
        let divided = placed(deployment(3, &dynamic()), &[("m1", 3)]);
        let copy = config_map(&only_m1);
        let copied = placed(config_map(&only_m1), &[("m1", 0)]);
        let narrowed = placed(config_map(&only_m1), &[("m2", 0)]);
        for (what, spec, turn, expected) in [
            // Not divided: where it may be, and is not, or where that may be over.
            ("it may go there now", &copy, Turn::AdmitsMore(&m1), true),
            ("it may not go there", &copy, Turn::AdmitsMore(&m2), false),
            ("it is there", &copied, Turn::AdmitsMore(&m1), false),
            (
                "its cluster has other labels",
                &copied,
                Turn::Moved(&m1),
                true,
            ),
            (
                "its cluster has labels that it does not ask for",
                &narrowed,
                Turn::Moved(&m2),
                true,
            ),
            (
                "another one has other labels",
                &copied,
                Turn::Moved(&m2),
                false,
            ),
            ("its cluster leaves", &copied, Turn::Leaves(&m1), true),
            ("another one leaves", &copied, Turn::Leaves(&m2), false),
            // Divided: it stays, unless its cluster goes.
            ("more room to go to", &divided, Turn::AdmitsMore(&m2), false),
            ("its cluster is another", &divided, Turn::Moved(&m1), false),
            ("its cluster goes", &divided, Turn::Leaves(&m1), true),
            ("another goes", &divided, Turn::Leaves(&m2), false),
        ] {
            assert_eq!(concerns(spec, &turn), expected, "{what}");
        }
    }
}
