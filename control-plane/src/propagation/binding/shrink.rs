//! Keeps ready copies while those that are to take their place are not ready.
//!
//! Replicas can be divided anew so that a cluster which stays a target gets fewer than it has:
//! after an eviction (another affinity group, or weights of other clusters), when a cluster is
//! removed, when a new placement was requested, or when somebody edits the weights.

use std::collections::HashMap;

use muster_shared::api::binding::{
    AggregatedStatusItem, ResourceBindingSpec, ResourceHealth, TargetCluster,
};

use crate::fleet::copy::ready_replicas;

/// Report of the Work of a cluster about its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Replicas that the Work asks for; `None` where its kind has another field for them.
    pub given: Option<i64>,
    /// Ready replicas; none if nothing is reported.
    pub ready: i64,
    /// Whether nobody has asked for its deletion.
    pub stays: bool,
}

/// Returns the spec with as many replicas in each target as its Work is to have, where that differs
/// from what the scheduler gave it; `None` where it does not.
///
/// A target keeps ready replicas beyond its share, as far as fewer would be ready in all clusters
/// together than the template asks for (safety contract 1; Karmada lets them go at once). With each
/// report of replicas that are ready elsewhere it comes nearer to its share. What a Work does not
/// ask for neither is kept nor stands for others: the pods of a rolling update, and those that it
/// has given up a moment ago. Replicas that override policies take from a share (`taken`) are ready
/// nowhere, and nothing waits for them; those that a copy still runs of them are about to go, and
/// stand for none.
///
/// While the replicas are not divided yet, each Work asks for what it asks for; for all of them
/// where that is not known.
///
/// `copy` returns what the Work for a cluster says; `None` if there is no Work. Only these stand
/// for replicas elsewhere, and only if the Work stays and the cluster is not silent: what the
/// binding still says of a cluster may be about a copy that is gone, and a copy that is no target
/// any more goes. What a silent target reported last is kept there all the same, and is not counted
/// as going either: silence is no reason to take anything away.
pub fn kept(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    taken: impl Fn(&TargetCluster) -> i32,
    copy: impl Fn(&str) -> Option<Copy>,
) -> Option<ResourceBindingSpec> {
    if spec.is_undivided() {
        let mut kept = spec.clone();
        for target in &mut kept.clusters {
            let all = i64::from(spec.replicas);
            let given = copy(&target.name).map_or(0, |it| it.given.unwrap_or(all));
            target.replicas = i32::try_from(given.clamp(0, all)).unwrap_or(0);
        }
        return (kept.clusters != spec.clusters).then_some(kept);
    }
    let copies: Vec<Option<Copy>> = spec.clusters.iter().map(|it| copy(&it.name)).collect();
    let taken: Vec<i64> = spec
        .clusters
        .iter()
        .map(|it| i64::from(taken(it)))
        .collect();
    let reports: HashMap<&str, &AggregatedStatusItem> = reports
        .iter()
        .map(|report| (&*report.cluster_name, report))
        .collect();
    let reported = |cluster: &str| {
        let report = reports.get(cluster)?;
        let is_known = report.health != Some(ResourceHealth::Unknown);
        ready_replicas(&report.status.as_ref().filter(|_| is_known)?.0)
    };
    let wanted = spec.replicas.max(0);
    // Whatever a member reports: no cluster needs more than all replicas, and none stands for more.
    let bounded = |ready: i64, copy: &Copy| {
        let ready = ready.min(copy.given.unwrap_or(ready));
        ready.clamp(0, wanted.into())
    };
    let held = |copy: &Copy| i32::try_from(bounded(copy.ready, copy)).unwrap_or(wanted);
    let stands = |((target, copy), taken): ((&TargetCluster, &Option<Copy>), &i64)| {
        let copy = copy.as_ref().filter(|it| it.stays)?;
        let ready = bounded(reported(&target.name)?.min(copy.ready), copy);
        let rest = (*taken > 0).then(|| (i64::from(target.replicas) - *taken).max(0));
        Some(rest.map_or(ready, |rest| ready.min(rest)))
    };
    let targets = spec.clusters.iter().zip(&copies);
    let standing: Vec<Option<i64>> = targets.zip(&taken).map(stands).collect();
    let all = standing
        .iter()
        .flatten()
        .fold(0_i64, |sum, it| sum.saturating_add(*it));
    // What may go at once: ready replicas beyond those that are wanted, and that there can be.
    let needed = (i64::from(wanted) - taken.iter().sum::<i64>()).max(0);
    let mut surplus = all.saturating_sub(needed).max(0);
    let mut kept = spec.clone();
    let targets = kept.clusters.iter_mut().zip(&copies).zip(standing);
    for (((target, copy), standing), taken) in targets.zip(&taken) {
        // Whatever the share of such a copy is, the policies say how many it runs.
        if *taken > 0 {
            continue;
        }
        let held = copy.as_ref().map_or(0, held);
        let beyond = held.saturating_sub(target.replicas);
        if beyond <= 0 {
            continue;
        }
        let goes = standing.map_or(0, |_| surplus.min(beyond.into()));
        surplus -= goes;
        target.replicas += beyond - i32::try_from(goes).unwrap_or(beyond);
    }
    (kept.clusters != spec.clusters).then_some(kept)
}

/// Returns the names of the targets that keep more than their share, with commas between them.
pub fn keepers(spec: &ResourceBindingSpec, kept: &ResourceBindingSpec) -> String {
    let both = spec.clusters.iter().zip(&kept.clusters);
    let keepers = both.filter(|(share, kept)| share.replicas < kept.replicas);
    let names: Vec<&str> = keepers.map(|(share, _)| &*share.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Replicas of the targets a, b and c that are kept: the shares, and what is ready there.
    fn keep(wanted: i32, shares: [i32; 3], reports: &Value) -> Option<[i32; 3]> {
        let [a, b, c] = shares;
        let spec = spec(wanted, &[("a", a), ("b", b), ("c", c)]);
        let reports: Vec<AggregatedStatusItem> = serde_json::from_value(reports.clone()).unwrap();
        let kept = kept(&spec, &reports, |_| 0, |name| copy(&reports, name))?;
        Some([0, 1, 2].map(|n| kept.clusters[n].replicas))
    }

    /// Returns what the report about a cluster says of its copy, for a Work whose report the
    /// binding has already.
    fn copy(reports: &[AggregatedStatusItem], cluster: &str) -> Option<Copy> {
        let report = reports.iter().find(|it| it.cluster_name == cluster)?;
        let ready = ready_replicas(&report.status.as_ref()?.0)?;
        Some(Copy {
            given: None,
            ready,
            stays: true,
        })
    }

    #[test]
    fn a_target_whose_replicas_are_not_divided_yet_keeps_what_its_work_asks_for() {
        let (first, both) = (Some([8_i32, 0]), Some([8_i32, 8]));
        for (what, shares, given, ready, expected) in [
            ("nothing is ready", [0, 0], first, [0, 0], first),
            ("all are ready", [0, 0], first, [8, 0], first),
            ("each has all", [0, 0], both, [8, 8], both),
            ("its kind has another field", [0, 0], None, [0, 0], both),
            ("nothing is asked for", [0, 0], Some([0, 0]), [8, 0], None),
            ("another has a share", [0, 8], both, [8, 0], both),
            ("and nothing is ready here", [0, 8], both, [0, 8], None),
            ("and all are ready there", [0, 8], both, [8, 8], None),
            ("it has a share", [1, 7], first, [0, 0], None),
        ] {
            let names = ["a", "b"];
            let spec = spec(8, &[("a", shares[0]), ("b", shares[1])]);
            let reports = [0, 1].map(|at| {
                let report = report(names[at], ready[at], "Healthy");
                serde_json::from_value(report).unwrap()
            });
            let copy = |name: &str| {
                let at = names.iter().position(|it| *it == name)?;
                Some(Copy {
                    given: given.map(|it| it[at].into()),
                    ready: ready[at].into(),
                    stays: true,
                })
            };
            let kept = super::kept(&spec, &reports, |_| 0, copy);
            let kept = kept.map(|it| [0, 1].map(|at| it.clusters[at].replicas));
            assert_eq!(kept, expected, "{what}");
        }
    }

    fn report(cluster: &str, ready: i32, health: &str) -> Value {
        json!({"clusterName": cluster, "health": health, "status": {"readyReplicas": ready}})
    }

    #[test]
    fn a_target_keeps_the_ready_replicas_that_are_not_replaced_yet() {
        let healthy = |ready: [i32; 4]| -> Value {
            let each = ["a", "b", "c", "old"].into_iter().zip(ready);
            each.map(|(name, ready)| report(name, ready, "Healthy"))
                .collect()
        };
        // a and b give up one replica each, which c gets.
        let to_c = [1, 1, 4];
        for (what, wanted, shares, ready, expected) in [
            ("none is ready yet", 6, to_c, [2, 2, 0, 2], Some([2, 2, 4])),
            // The copy that goes does not count.
            ("a part is", 6, to_c, [2, 2, 1, 2], Some([2, 2, 4])),
            ("all but one are", 6, to_c, [2, 2, 3, 2], Some([1, 2, 4])),
            ("all are", 6, to_c, [2, 2, 4, 2], None),
            ("no share is smaller", 6, [2, 2, 2], [2, 2, 0, 2], None),
            ("fewer are wanted", 2, [1, 1, 0], [2, 2, 0, 2], None),
            ("too few then", 3, [1, 1, 1], [2, 2, 0, 2], Some([1, 2, 1])),
        ] {
            assert_eq!(keep(wanted, shares, &healthy(ready)), expected, "{what}");
        }
    }

    #[test]
    fn no_replica_waits_for_one_that_an_override_policy_takes_away() {
        let spec = spec(6, &[("a", 2), ("b", 2), ("c", 2)]);
        for (ready, taken, expected) in [
            ([1, 3, 2], 0, Some("b")),
            ([1, 3, 2], 1, None),
            ([0, 3, 2], 2, None),
            // The copy in a still runs what the policy takes from it.
            ([2, 3, 1], 1, Some("b")),
            ([2, 3, 2], 1, None),
            ([4, 2, 2], 1, None),
        ] {
            let [a, b, c] = ready;
            let reports = [("a", a), ("b", b), ("c", c)].map(|(name, ready)| {
                serde_json::from_value(report(name, ready, "Healthy")).unwrap()
            });
            let of_a = |it: &TargetCluster| if it.name == "a" { taken } else { 0 };
            let kept = super::kept(&spec, &reports, of_a, |name| copy(&reports, name));
            let keepers = kept.map(|kept| keepers(&spec, &kept));
            assert_eq!(keepers.as_deref(), expected, "{ready:?} {taken}");
        }
    }

    #[test]
    fn silence_stands_for_nothing_elsewhere_and_takes_nothing_away() {
        let reports = json!([
            report("a", 2, "Healthy"),
            report("b", 2, "Unknown"),
            report("old", 9, "Unknown"),
        ]);
        assert_eq!(keep(6, [1, 1, 4], &reports), Some([2, 2, 4]));
        // The only one that is not silent may go as far as others replace it.
        let reports = json!([
            report("a", 4, "Healthy"),
            report("b", 2, "Unknown"),
            report("c", 4, "Healthy"),
        ]);
        assert_eq!(keep(6, [1, 1, 4], &reports), Some([2, 2, 4]));
    }

    #[test]
    fn kinds_that_report_only_available_replicas_are_kept_as_others_are() {
        let available = |cluster: &str| {
            json!({
                "clusterName": cluster, "health": "Healthy", "status": {"availableReplicas": 2},
            })
        };
        let reports = json!([available("a"), available("b")]);
        assert_eq!(keep(6, [1, 1, 4], &reports), Some([2, 2, 4]));
    }

    #[test]
    fn the_report_of_a_copy_that_is_gone_stands_for_nothing() {
        // The workload left `home` a moment ago and comes back: the binding still has the report
        // of the former copy there, and the new Work has none.
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 3, "rescheduleTriggeredAt": "2026-01-01T00:00:00Z",
            "failover": {"cluster": {"purgeMode": "Gracefully"}},
            "clusters": [{"name": "home", "replicas": 1}, {"name": "away", "replicas": 2}],
        }))
        .unwrap();
        let reports = [("home", 3), ("away", 3)]
            .map(|(name, ready)| serde_json::from_value(report(name, ready, "Healthy")).unwrap());
        let copy = |ready, stays| {
            Some(Copy {
                given: None,
                ready,
                stays,
            })
        };
        for (home, expected) in [
            (None, [1, 3]),
            (copy(3, false), [3, 3]),
            (copy(0, true), [1, 3]),
            (copy(1, true), [1, 2]),
        ] {
            let copy = |name: &str| if name == "home" { home } else { copy(3, true) };
            let kept = kept(&spec, &reports, |_| 0, copy).unwrap_or_else(|| spec.clone());
            let replicas: Vec<i32> = kept.clusters.iter().map(|it| it.replicas).collect();
            assert_eq!(replicas, expected, "{home:?}");
        }
    }

    #[test]
    fn pods_beyond_what_a_work_asks_for_are_those_of_a_rolling_update() {
        let reports = json!([report("a", 3, "Healthy"), report("b", 0, "Unhealthy")]);
        let reports: Vec<AggregatedStatusItem> = serde_json::from_value(reports).unwrap();
        let spec = |share: i32| spec(4, &[("a", share), ("b", 4 - share)]);
        let copy = |name: &str| {
            let copy = copy(&reports, name)?;
            Some(Copy {
                given: Some(2),
                ..copy
            })
        };
        assert_eq!(kept(&spec(2), &reports, |_| 0, copy), None);
        let shrinking = spec(1);
        let kept = kept(&shrinking, &reports, |_| 0, copy).unwrap();
        assert_eq!(
            kept.clusters[0].replicas, 2,
            "three are ready, two were asked for"
        );
        assert_eq!(keepers(&shrinking, &kept), "a");
    }

    #[test]
    fn what_a_work_has_given_up_already_stands_for_nothing() {
        let spec = spec(8, &[("a", 2), ("c", 2), ("b", 4)]);
        let reports = [("a", 4), ("c", 4), ("b", 3)]
            .map(|(name, ready)| serde_json::from_value(report(name, ready, "Healthy")).unwrap());
        let copy = |name: &str| {
            let (given, ready) = match name {
                // It is written, and its agent has not reported since.
                "a" => (2, 4),
                "c" => (4, 4),
                _ => (4, 3),
            };
            Some(Copy {
                given: Some(given),
                ready,
                stays: true,
            })
        };
        let kept = kept(&spec, &reports, |_| 0, copy).unwrap();
        assert_eq!(kept.clusters[1].replicas, 3, "nine stand, eight are wanted");
    }

    #[test]
    fn what_a_silent_cluster_keeps_costs_the_others_nothing() {
        let reports = json!([report("a", 6, "Unknown"), report("b", 6, "Healthy")]);
        // Three in each; there were six.
        assert_eq!(
            keep(3, [3, 3, 0], &reports),
            None,
            "six are more than all that are wanted"
        );
        assert_eq!(keep(6, [3, 3, 0], &reports), Some([6, 6, 0]));
        let reports = json!([report("a", 2, "Unknown"), report("b", 6, "Healthy")]);
        // Replicas kept in the silent cluster are not counted as ready either.
        assert_eq!(keep(4, [1, 3, 0], &reports), Some([2, 4, 0]));
    }

    #[test]
    fn what_a_smaller_template_does_not_need_is_counted_once() {
        let reports = json!([report("a", 5, "Healthy"), report("b", 0, "Healthy")]);
        assert_eq!(keep(4, [2, 2, 0], &reports), Some([4, 2, 0]));
        assert_eq!(keep(2, [1, 1, 0], &reports), Some([2, 1, 0]));
        let reports = json!([
            report("a", 1_000_000, "Healthy"),
            report("b", 4, "Healthy"),
            report("c", 0, "Healthy"),
        ]);
        let kept = keep(4, [1, 1, 2], &reports);
        assert_eq!(
            kept,
            Some([1, 3, 2]),
            "a claim pays for its own copies at most"
        );
    }

    #[test]
    fn no_cluster_is_given_more_than_all_replicas_whatever_a_member_reports() {
        let spec = spec(4, &[("a", 2), ("b", 2)]);
        for (ready, given, expected) in [
            (-3_000_000_000, Some(4), None),
            (i64::MIN, None, None),
            (i64::MAX, None, Some(4)),
            (i64::MAX, Some(i64::MAX), Some(4)),
        ] {
            let copy = |name: &str| {
                (name == "a").then_some(Copy {
                    given,
                    ready,
                    stays: true,
                })
            };
            let kept = kept(&spec, &[], |_| 0, copy).map(|kept| kept.clusters[0].replicas);
            assert_eq!(kept, expected, "{ready} of {given:?}");
        }
    }

    fn spec(wanted: i32, shares: &[(&str, i32)]) -> ResourceBindingSpec {
        let each = shares.iter();
        let targets: Vec<Value> = each
            .map(|(name, share)| json!({"name": name, "replicas": share}))
            .collect();
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": wanted, "clusters": targets,
        }))
        .unwrap()
    }
}
