//! Decides whether a binding has to be scheduled.

use std::fmt;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::api::policy::{Placement, SpreadConstraint, SpreadFieldValue};
use muster_shared::k8s::Toleration;
use muster_shared::taints::NO_EXECUTE;

use super::affinity::term;
use super::cycle::is_reschedule_requested;
use super::released;
use super::replacement::can_keep;
use super::snapshot::Snapshot;

/// Reason why a binding has to be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The placement is not that of the last schedule.
    PlacementChanged,
    /// The workload has clusters, and nobody knows by which placement: its binding was made again
    /// where its copies are, for example.
    PlacementUnknown,
    /// The clusters do not add up to the replicas of the workload.
    ReplicasChanged,
    /// A reschedule was requested after the last schedule.
    RescheduleRequested,
    /// The workload is not divided: each event may change the clusters that fit (Karmada
    /// behaviour).
    NotDivided,
    /// A cluster is being deleted, or was seen being deleted.
    TargetDeleting,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PlacementChanged => "its placement is not the one that was applied last",
            Self::PlacementUnknown => "it is not known which placement was applied last",
            Self::ReplicasChanged => "its clusters do not add up to its replicas",
            Self::RescheduleRequested => "a reschedule was requested",
            Self::NotDivided => "it is not divided, so each change may concern it",
            Self::TargetDeleting => "one of its clusters is being deleted, or has left",
        })
    }
}

/// Returns the first reason to schedule a binding, or none. `applied` is the placement that was
/// applied last, as the annotation has it, and `record` the present one as the annotation would
/// have it.
pub fn need(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    applied: Option<&str>,
    record: &str,
    snapshot: &Snapshot,
) -> Option<Need> {
    let placement = spec.placement.as_ref()?;
    let applied = applied.unwrap_or_default();
    let observed = status
        .scheduler_observed_affinity_name
        .as_deref()
        .unwrap_or_default();
    // The same text is what most passes find, and it need not be parsed.
    if applied != record && is_placement_changed(placement, applied, observed) {
        let is_unknown = applied.is_empty() && !spec.clusters.is_empty();
        Some(if is_unknown {
            Need::PlacementUnknown
        } else {
            Need::PlacementChanged
        })
    } else if is_replicas_changed(spec, placement) || released::left(spec).is_some() {
        Some(Need::ReplicasChanged)
    } else if is_reschedule_requested(spec, status) {
        Some(Need::RescheduleRequested)
    } else if !spec.is_workload() || !placement.is_divided() || is_uncounted(spec) {
        Some(Need::NotDivided)
    } else if spec.clusters.iter().any(|it| !can_keep(snapshot, &it.name)) {
        Some(Need::TargetDeleting)
    } else {
        None
    }
}

/// Returns whether a part of the placement changed that the result depends on.
///
/// Of ordered affinity groups only the one in use matters: editing the others moves nothing
/// (Karmada behaviour). A record that cannot be read counts as changed, since nobody knows what was
/// applied.
fn is_placement_changed(placement: &Placement, applied: &str, observed: &str) -> bool {
    let Ok(applied) = serde_json::from_str::<Placement>(applied) else {
        return true;
    };
    if *placement == applied {
        return false;
    }
    placement.cluster_affinity != applied.cluster_affinity
        || !letting_in(placement).eq(letting_in(&applied))
        || spread(placement) != spread(&applied)
        || placement.replica_scheduling != applied.replica_scheduling
        || match (term(placement, observed), term(&applied, observed)) {
            (Some(now), Some(then)) => now != then,
            (None, None) => {
                !(placement.cluster_affinities.is_empty() && applied.cluster_affinities.is_empty())
            }
            _ => true,
        }
}

/// Returns the spread constraints as admission completes them: to switch it on after months is no
/// edit of what it completes then.
fn spread(placement: &Placement) -> Vec<SpreadConstraint> {
    let complete = |it: &SpreadConstraint| {
        let mut complete = it.clone();
        complete.min_groups = it.min_groups.max(1);
        if it.spread_by_label.is_none() {
            let field = complete.spread_by_field.take();
            complete.spread_by_field = field.or(Some(SpreadFieldValue::Cluster));
        }
        complete
    };
    placement.spread_constraints.iter().map(complete).collect()
}

/// Returns the tolerations that the result depends on. One of `NoExecute` for a limited time lets
/// nothing in: it says how long what is there stays. Former versions stored the defaults of the
/// control plane for these among the policy's own.
fn letting_in(placement: &Placement) -> impl Iterator<Item = &Toleration> {
    let all = placement.cluster_tolerations.iter();
    all.filter(|it| it.toleration_seconds.is_none() || it.effect.as_deref() != Some(NO_EXECUTE))
}

fn is_replicas_changed(spec: &ResourceBindingSpec, placement: &Placement) -> bool {
    if !spec.components.is_empty() {
        return spec.clusters.is_empty() || spec.clusters.iter().any(|it| is_outdated(spec, it));
    }
    if placement.is_divided() {
        let placed: i64 = spec
            .clusters
            .iter()
            .map(|target| i64::from(target.replicas))
            .sum();
        placed != i64::from(spec.replicas)
    } else {
        placement.replica_scheduling.is_some()
            && spec
                .clusters
                .iter()
                .any(|target| target.replicas != spec.replicas)
    }
}

/// Returns whether the workload has components, and its targets do not say how many they have: then
/// only scheduling says whether a target is missing.
fn is_uncounted(spec: &ResourceBindingSpec) -> bool {
    let mut targets = spec.clusters.iter();
    !spec.components.is_empty() && targets.all(|target| target.components.is_empty())
}

/// Returns whether a cluster has components in other numbers than the template asks for.
fn is_outdated(spec: &ResourceBindingSpec, target: &TargetCluster) -> bool {
    let pairs = || spec.components.iter().zip(&target.components);
    !target.components.is_empty()
        && (target.components.len() != spec.components.len()
            || pairs().any(|(one, it)| one.name != it.name || one.replicas != it.replicas))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::deleting;
    use crate::scheduler::tests::fixtures::{
        cluster, config_map, deployment, dynamic, placed, snapshot, static_weights,
    };

    fn judge(spec: &ResourceBindingSpec, status: Value, applied: &str) -> Option<Need> {
        let leaving = deleting(cluster("leaving", 10));
        let mut clusters = snapshot(&[cluster("m1", 10), leaving]);
        clusters.depart("left");
        need(
            spec,
            &serde_json::from_value(status).unwrap(),
            Some(applied),
            &recorded(spec),
            &clusters,
        )
    }

    fn recorded(spec: &ResourceBindingSpec) -> String {
        serde_json::to_string(&spec.placement).unwrap()
    }

    #[test]
    fn a_divided_workload_is_left_alone_until_something_about_it_changes() {
        let settled = placed(deployment(3, &dynamic()), &[("m1", 3)]);
        let applied = recorded(&settled);
        assert_eq!(judge(&settled, json!({}), &applied), None);

        let mut grown = settled.clone();
        grown.replicas = 4;
        assert_eq!(
            judge(&grown, json!({}), &applied),
            Some(Need::ReplicasChanged)
        );

        let evicted = placed(settled.clone(), &[]);
        assert_eq!(
            judge(&evicted, json!({}), &applied),
            Some(Need::ReplicasChanged)
        );

        let mut weighted = settled.clone();
        weighted.placement = serde_json::from_value(static_weights(&[("m1", 1)])).unwrap();
        assert_eq!(
            judge(&weighted, json!({}), &applied),
            Some(Need::PlacementChanged)
        );

        let going = placed(settled.clone(), &[("leaving", 3)]);
        assert_eq!(
            judge(&going, json!({}), &applied),
            Some(Need::TargetDeleting)
        );

        for (target, expected) in [("left", Some(Need::TargetDeleting)), ("unreadable", None)] {
            let there = placed(settled.clone(), &[(target, 3)]);
            assert_eq!(judge(&there, json!({}), &applied), expected, "{target}");
        }

        for (spec, applied, expected) in [
            (&settled, "", Need::PlacementUnknown),
            (&evicted, "", Need::PlacementChanged),
            (&settled, "{", Need::PlacementChanged),
            (&settled, "[]", Need::PlacementChanged),
        ] {
            assert_eq!(judge(spec, json!({}), applied), Some(expected), "{applied}");
        }
    }

    #[test]
    fn what_admission_completes_is_no_edit_of_the_spread_constraints() {
        let with = |constraint: &Value| {
            let mut placement = dynamic();
            placement["spreadConstraints"] = json!([constraint]);
            placed(deployment(3, &placement), &[("m1", 3)])
        };
        let complete = json!({ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 2 });
        let edited = Some(Need::PlacementChanged);
        for (before, expected) in [
            (json!({ "maxGroups": 2 }), None),
            (json!({ "spreadByField": "cluster", "maxGroups": 2 }), None),
            (json!({ "minGroups": 2, "maxGroups": 2 }), edited),
            (json!({ "spreadByLabel": "rack", "maxGroups": 2 }), edited),
        ] {
            let applied = recorded(&with(&before));
            let need = judge(&with(&complete), json!({}), &applied);
            assert_eq!(need, expected, "{before}");
        }
    }

    #[test]
    fn an_edit_of_each_part_of_the_placement_by_itself_is_a_change() {
        let settled = placed(deployment(3, &dynamic()), &[("m1", 3)]);
        let applied = recorded(&settled);
        for (part, value, expected) in [
            ("clusterAffinity", json!({ "clusterNames": ["m1"] }), true),
            (
                "clusterTolerations",
                json!([{ "key": "a", "operator": "Exists" }]),
                true,
            ),
            (
                "spreadConstraints",
                json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 2 }]),
                true,
            ),
            (
                "replicaScheduling",
                json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" }),
                true,
            ),
        ] {
            let mut placement = dynamic();
            // The group in use is the same, so that nothing but the edit is new.
            let groups = json!([{ "affinityName": "home", "clusterNames": ["m1"] }]);
            placement["clusterAffinities"] = groups.clone();
            let before = placed(deployment(3, &placement), &[("m1", 3)]);
            placement[part] = value;
            let after = placed(deployment(3, &placement), &[("m1", 3)]);
            let at_home = json!({ "schedulerObservingAffinityName": "home" });
            let need = judge(&after, at_home, &recorded(&before));
            assert_eq!(need == Some(Need::PlacementChanged), expected, "{part}");
        }
        assert_eq!(judge(&settled, json!({}), &applied), None);
    }

    #[test]
    fn for_how_long_a_taint_is_tolerated_does_not_place_anything_anew() {
        let tolerating = |more: Value| {
            let mut placement = dynamic();
            placement["clusterTolerations"] = more;
            placed(deployment(3, &placement), &[("m1", 3)])
        };
        let limited = |effect: &str, seconds: Value| {
            json!([{
                "key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": effect,
                "tolerationSeconds": seconds,
            }])
        };
        let five = || limited("NoExecute", json!(5));
        let edited = Some(Need::PlacementChanged);
        for (before, after, expected) in [
            (json!([]), five(), None),
            (five(), json!([]), None),
            (five(), limited("NoExecute", json!(300)), None),
            (five(), limited("NoExecute", Value::Null), edited),
            (json!([]), limited("", json!(5)), edited),
        ] {
            let (was, is) = (tolerating(before.clone()), tolerating(after.clone()));
            let need = judge(&is, json!({}), &recorded(&was));
            assert_eq!(need, expected, "{before} -> {after}");
        }
    }

    #[test]
    fn a_duplicated_workload_is_divided_anew_when_a_target_has_another_number() {
        let duplicated = json!({ "replicaScheduling": { "replicaSchedulingType": "Duplicated" } });
        for (placement, targets, expected) in [
            (&duplicated, [3, 3], Some(Need::NotDivided)),
            (&duplicated, [3, 2], Some(Need::ReplicasChanged)),
            (&json!({}), [3, 2], Some(Need::NotDivided)),
        ] {
            let targets = [("m1", targets[0]), ("m2", targets[1])];
            let spec = placed(deployment(3, placement), &targets);
            let need = judge(&spec, json!({}), &recorded(&spec));
            assert_eq!(need, expected, "{placement} {targets:?}");
        }
    }

    #[test]
    fn what_is_not_divided_is_always_decided() {
        let copies = placed(deployment(3, &json!({})), &[("m1", 3)]);
        assert_eq!(
            judge(&copies, json!({}), &recorded(&copies)),
            Some(Need::NotDivided)
        );
        let plain = placed(config_map(&dynamic()), &[("m1", 0)]);
        assert_eq!(
            judge(&plain, json!({}), &recorded(&plain)),
            Some(Need::NotDivided)
        );
    }
}
