//! Which settled bindings have to be looked at again when a cluster changes.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::selectors::matches_affinity;

use super::need::is_divided;

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::fixtures::{cluster, config_map, decoded, deployment, dynamic, placed};

    #[test]
    fn a_change_of_a_cluster_concerns_whom_it_may_move() {
        let only_m1 = json!({ "clusterAffinity": { "clusterNames": ["m1"] } });
        let (m1, m2) = (decoded(&cluster("m1", 10)), decoded(&cluster("m2", 10)));
        let mut going = m1.clone();
        going.metadata.deletion_timestamp =
            serde_json::from_value(json!("2024-01-01T00:00:00Z")).unwrap();
        let divided = placed(deployment(3, &dynamic()), &[("m1", 3)]);

        for (spec, old, new, expected) in [
            // Not divided: where it matches, or is.
            (&config_map(&only_m1), &m1, &m1, true),
            (&config_map(&only_m1), &m2, &m2, false),
            (&placed(config_map(&only_m1), &[("m2", 0)]), &m2, &m2, true),
            // Divided: it stays, unless its cluster goes.
            (&divided, &m1, &m1, false),
            (&divided, &m1, &going, true),
            (&divided, &m2, &m2, false),
        ] {
            assert_eq!(concerns(spec, Some(old), Some(new)), expected);
        }
        assert!(concerns(&divided, Some(&m1), None));
    }
}
