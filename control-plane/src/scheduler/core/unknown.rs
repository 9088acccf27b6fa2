//! Targets whose clusters are unknown: not in the cache, and not seen being deleted.
//!
//! The replicas of such a cluster stay, and only the rest of the workload is placed. If the rest
//! cannot be separated, nothing is placed until the cluster is known again. A user gives such a
//! cluster up with a placement that excludes it by name.

use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::policy::Placement;

use super::affinity::{affinities_of, allows_name, term};
use super::candidate::Candidate;
use super::divide::Strategy;
use super::fit_error::FitError;
use super::snapshot::Snapshot;

/// The part of a workload that is placed, beside what unknown clusters hold.
#[derive(Debug)]
pub(in crate::scheduler) struct Rest {
    /// The binding without the unknown targets and their replicas.
    pub spec: ResourceBindingSpec,
    /// Its placement, without the clusters that the unknown targets take of its constraint on the
    /// number of clusters.
    pub placement: Placement,
    /// The unknown targets, as they are.
    pub kept: Vec<TargetCluster>,
}

/// Returns the targets whose clusters are unknown and which the affinity in use does not rule out
/// by name; without a group, that of the placement.
pub(in crate::scheduler) fn unknown_targets<'a>(
    spec: &'a ResourceBindingSpec,
    placement: &Placement,
    group: &str,
    snapshot: &Snapshot,
) -> Vec<&'a TargetCluster> {
    let targets = spec.clusters.iter();
    targets
        .filter(|target| {
            snapshot.presence(&target.name).is_unknown()
                && !is_ruled_out(placement, group, &target.name)
        })
        .collect()
}

/// Returns whether no cluster of this name can match, whatever its labels and fields are.
fn is_ruled_out(placement: &Placement, group: &str, name: &str) -> bool {
    if let Some(affinity) = &placement.cluster_affinity {
        return !allows_name(affinity, name);
    }
    term(placement, group)
        .is_some_and(|group| !affinities_of(group).any(|it| allows_name(it, name)))
}

/// Returns the part to place beside `kept`; nothing where that is the whole. `candidates` returns
/// the known clusters that may get some of it.
///
/// # Errors
/// Where what the unknown clusters hold decides how the others are chosen.
pub(in crate::scheduler) fn rest<'c>(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    snapshot: &Snapshot,
    kept: &[&TargetCluster],
    candidates: impl FnOnce() -> Vec<Candidate<'c>>,
) -> Result<Option<Rest>, FitError> {
    let unknown = || FitError::unknown(kept);
    let is_kept = |target: &TargetCluster| kept.iter().any(|it| it.name == target.name);
    let mut rest = Rest {
        spec: spec.clone(),
        placement: placement.clone(),
        kept: kept.iter().map(|target| (*target).clone()).collect(),
    };
    rest.spec.clusters.retain(|target| !is_kept(target));
    if spec.components.is_empty() && spec.is_workload() && placement.is_divided() {
        let held: i64 = kept.iter().map(|target| i64::from(target.replicas)).sum();
        let left = i64::from(spec.replicas) - held;
        if left == 0 && rest.spec.clusters.is_empty() {
            return Ok(None);
        }
        // To shrink below what an unknown cluster holds would leave the workload to that one alone.
        if left <= 0 {
            return Err(unknown());
        }
        rest.spec.replicas = i32::try_from(left).unwrap_or(i32::MAX);
        // Where the unknown clusters alone have weights, the others would count as having equal
        // ones.
        if let Ok(Strategy::Static(weights)) = Strategy::of(placement)
            && !weights.are_about_any(&candidates(), snapshot)
        {
            return Err(unknown());
        }
    }
    if !Strategy::ignores_spread(placement) {
        for constraint in &mut rest.placement.spread_constraints {
            let field = constraint.spread_by_field.as_ref();
            let by_label = constraint.spread_by_label.as_ref();
            let by_cluster = match field {
                Some(field) => field.as_str() == "cluster",
                None => by_label.is_none(),
            };
            // The groups of an unknown cluster are unknown, too.
            if !by_cluster {
                return Err(unknown());
            }
            let taken = i64::try_from(kept.len()).unwrap_or(i64::MAX);
            if constraint.max_groups > 0 {
                constraint.max_groups -= taken;
                if constraint.max_groups <= 0 {
                    return Err(unknown());
                }
            }
            constraint.min_groups = (constraint.min_groups - taken).max(1);
        }
    }
    Ok(Some(rest))
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceBindingStatus;
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::core::{Options, schedule};
    use crate::scheduler::tests::fixtures::{
        aggregated, cluster, config_map, deployment, dynamic, placed, snapshot, static_weights,
        tainted, text,
    };

    /// Returns the result with clusters `m2` and `m3`, where `m1` is unknown.
    fn outcome(spec: &ResourceBindingSpec) -> String {
        let clusters = snapshot(&[cluster("m2", 10), cluster("m3", 10)]);
        let status = ResourceBindingStatus::default();
        text(schedule(spec, &status, &clusters, &Options::default()))
    }

    const STAYS: &str = "cluster m1 cannot be read and was not seen leaving: what is placed stays; \
                         make it readable, or exclude it by name in the placement";

    #[test]
    fn what_an_unknown_cluster_holds_stays_and_only_the_rest_is_placed() {
        let spread = |field: &str, min: i64, max: i64| {
            let constraint = json!({ "spreadByField": field, "minGroups": min, "maxGroups": max });
            json!({ "spreadConstraints": [constraint] })
        };
        let only = |names: &[&str]| json!({ "clusterAffinity": { "clusterNames": names } });
        let without = json!({ "clusterAffinity": { "exclude": ["m1"] } });
        let groups = json!({ "clusterAffinities": [
            { "affinityName": "home", "clusterNames": ["m1"] },
            { "affinityName": "away", "clusterNames": ["m2"] },
        ]});
        let absent_first = json!({ "clusterAffinities": [
            { "affinityName": "absent", "clusterNames": ["m4"] },
            { "affinityName": "home", "clusterNames": ["m1"] },
        ]});
        let all = "m1:0 m2:0 m3:0";
        for (what, placement, expected) in [
            ("a copy on each", json!({}), all),
            ("a copy that is to be divided", dynamic(), all),
            ("the only copy", only(&["m1"]), STAYS),
            ("one of two", only(&["m1", "m2"]), "m1:0 m2:0"),
            ("as many as allowed", spread("cluster", 1, 1), STAYS),
            ("room for one more", spread("cluster", 2, 2), "m1:0 m2:0"),
            ("as many as there are", spread("cluster", 1, 0), all),
            ("three and no more", spread("cluster", 3, 3), all),
            ("its region is unknown, too", spread("region", 1, 1), STAYS),
            ("no other group is taken for it", groups, STAYS),
            ("no group before it has a cluster", absent_first, STAYS),
            // The person who made the policy gives the cluster up.
            ("it is excluded by name", without, "m2:0 m3:0"),
            ("others are named", only(&["m2"]), "m2:0"),
        ] {
            let spec = placed(config_map(&placement), &[("m1", 0)]);
            assert_eq!(outcome(&spec), expected, "{what}");
        }
        let (one, both) = ([("m1", 2)], [("m1", 2), ("m2", 2)]);
        let even = static_weights(&[("m1", 1), ("m2", 1)]);
        let alone = static_weights(&[("m1", 1)]);
        for (what, replicas, placement, held, expected) in [
            ("it grows", 6, aggregated(), &both[..], "m1:2 m2:4"),
            ("one cluster is left", 6, dynamic(), &one, "m1:2 m2:2 m3:2"),
            ("all of it is there", 2, dynamic(), &one, "m1:2"),
            ("it shrinks", 2, dynamic(), &both, STAYS),
            ("weights", 4, even, &one, "m1:2 m2:2"),
            ("it alone has a weight", 4, alone, &one, STAYS),
        ] {
            let spec = placed(deployment(replicas, &placement), held);
            assert_eq!(outcome(&spec), expected, "{what}");
        }
    }

    #[test]
    fn no_cluster_without_a_weight_takes_what_the_one_with_a_weight_refuses() {
        let weights = static_weights(&[("m1", 1), ("m2", 1)]);
        let clusters = [tainted("m2", 10, "x", "NoExecute"), cluster("m3", 10)];
        let status = ResourceBindingStatus::default();
        let decided = |clusters: &[Value]| {
            let spec = placed(deployment(4, &weights), &[("m1", 2)]);
            let clusters = snapshot(clusters);
            text(schedule(&spec, &status, &clusters, &Options::default()))
        };
        assert_eq!(decided(&clusters), STAYS);
        let known = [&clusters[..], &[cluster("m1", 10)]].concat();
        assert_eq!(decided(&known), "m1:4");
    }

    #[test]
    fn what_was_seen_leaving_is_placed_anew() {
        let mut clusters = snapshot(&[cluster("m2", 10)]);
        clusters.depart("m1");
        let status = ResourceBindingStatus::default();
        let decided = |spec| text(schedule(&spec, &status, &clusters, &Options::default()));
        let held = [("m1", 2)];
        assert_eq!(decided(placed(deployment(2, &dynamic()), &held)), "m2:2");
        assert_eq!(decided(placed(config_map(&json!({})), &held)), "m2:0");
        // A cluster of that name that joins again is there.
        clusters.put(std::sync::Arc::new(
            crate::scheduler::tests::fixtures::decoded(&cluster("m1", 10)),
        ));
        assert!(clusters.presence("m1").there().is_some());
        clusters.remove("m1");
        assert!(clusters.presence("m1").is_unknown());
    }

    #[test]
    fn an_unknown_cluster_does_not_keep_what_another_one_refuses() {
        // Of the known targets the usual rules hold.
        let spec = placed(config_map(&json!({})), &[("m1", 0), ("m2", 0)]);
        let clusters = snapshot(&[
            tainted("m2", 10, "x", "NoSchedule"),
            tainted("m3", 10, "x", "NoSchedule"),
        ]);
        let status = ResourceBindingStatus::default();
        assert_eq!(
            text(schedule(&spec, &status, &clusters, &Options::default())),
            "m1:0 m2:0"
        );
    }
}
