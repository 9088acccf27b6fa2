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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::fixtures::{
        cluster, config_map, decoded, deployment, dynamic, placed, tainted,
    };

    fn news(old: Option<&Value>, new: Option<&Value>) -> ClusterNews {
        ClusterNews::between(old.map(decoded).as_ref(), new.map(decoded).as_ref())
    }

    #[test]
    fn only_what_placements_depend_on_is_news() {
        let before = cluster("m", 10);
        let change = |path: &str, value: Value| {
            let mut after = before.clone();
            *after.pointer_mut(path).unwrap() = value;
            after
        };
        let labelled = change("/metadata", json!({ "name": "m", "labels": { "a": "b" } }));
        let deleting = change(
            "/metadata",
            json!({ "name": "m", "deletionTimestamp": "2024-01-01T00:00:00Z" }),
        );
        let blind = change("/status/apiEnablements", json!([]));
        let moved = change("/spec", json!({ "region": "r" }));
        let roomier = change("/status/resourceSummary/allocatable/cpu", json!("11"));
        let fuller = change("/status/resourceSummary/allocatable/cpu", json!("9"));
        let ready = {
            let mut after = before.clone();
            after["status"]["conditions"] = json!([{
                "type": "Ready", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]);
            after
        };
        for (after, expected) in [
            (&before, ClusterNews::None),
            (&ready, ClusterNews::None),
            (&fuller, ClusterNews::None),
            (&roomier, ClusterNews::Room),
            (&tainted("m", 10, "x", "NoSchedule"), ClusterNews::Admission),
            (&labelled, ClusterNews::Admission),
            (&deleting, ClusterNews::Admission),
            (&blind, ClusterNews::Admission),
            (&moved, ClusterNews::Admission),
        ] {
            assert_eq!(news(Some(&before), Some(after)), expected, "{after}");
        }
        assert_eq!(news(None, Some(&before)), ClusterNews::Admission);
        assert_eq!(news(Some(&before), None), ClusterNews::Admission);
    }

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
