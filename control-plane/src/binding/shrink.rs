//! Keeps ready copies while the copies that are to replace an old one are not ready: an eviction
//! can leave a cluster that stays a target with fewer replicas than before, since the others are
//! divided anew (another affinity group, or weights of other clusters), and a new placement that
//! was requested brings replicas back from the targets that took them over.

use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceHealth, TargetCluster,
};
use muster_shared::api::policy::PurgeMode;

use crate::graceful_eviction::assess::ready_replicas;
use crate::scheduler::core::replacement::purge_mode;

/// What the Work of a cluster says of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Ready replicas.
    pub ready: i64,
    /// Whether nobody has asked for its deletion.
    pub stays: bool,
}

/// The spec with as many replicas in each target as its Work is to have, where that differs from
/// what the scheduler gave it; `None` where it does not.
///
/// While an old copy waits for its replacement, and after a request for a new placement, a target
/// keeps ready replicas beyond its share, as far as fewer would be ready in all clusters together
/// than the template asks for (safety contract 1; Karmada lets them go at once). The end of the
/// task, and each report of replicas that are ready, changes the binding, and with it every target
/// comes nearer to its share.
///
/// `copy` returns what the Work for a cluster reports; `None` if there is no Work, or no report.
/// Only these stand for replicas elsewhere, and only if the Work stays and the cluster is heard:
/// what the binding still says of a cluster may be about a copy that is gone, and a copy that is no
/// target any more goes. What a silent target reported last is kept there all the same: silence is
/// no reason to take anything away.
pub fn kept(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    copy: impl Fn(&str) -> Option<Copy>,
) -> Option<ResourceBindingSpec> {
    let is_requested = spec.reschedule_triggered_at.is_some() && purge_mode(spec).is_some();
    if !is_requested && !spec.graceful_eviction_tasks.iter().any(waits) {
        return None;
    }
    let copies: Vec<Option<Copy>> = spec.clusters.iter().map(|it| copy(&it.name)).collect();
    let reported = |cluster: &str| {
        let report = reports.iter().find(|it| it.cluster_name == cluster)?;
        let is_heard = report.health != Some(ResourceHealth::Unknown);
        ready_replicas(&report.status.as_ref().filter(|_| is_heard)?.0)
    };
    let stands = |(target, copy): (&TargetCluster, &Option<Copy>)| {
        let copy = copy.filter(|it| it.stays)?;
        Some(reported(&target.name)?.min(copy.ready).max(0))
    };
    let targets = spec.clusters.iter().zip(&copies);
    let all = targets.filter_map(stands).fold(0_i64, i64::saturating_add);
    // What may go at once: ready replicas beyond those that are wanted.
    let mut surplus = all.saturating_sub(i64::from(spec.replicas));
    let mut kept = spec.clone();
    for (target, copy) in kept.clusters.iter_mut().zip(copies) {
        let ready = copy.map_or(0, |it| i32::try_from(it.ready).unwrap_or(i32::MAX));
        let beyond = ready.saturating_sub(target.replicas);
        if beyond <= 0 {
            continue;
        }
        let goes = i64::from(beyond).min(surplus.max(0));
        surplus -= goes;
        target.replicas += beyond - i32::try_from(goes).unwrap_or(beyond);
    }
    (kept.clusters != spec.clusters).then_some(kept)
}

/// Whether the old copy of a task is kept until the new ones are healthy.
fn waits(task: &GracefulEvictionTask) -> bool {
    let mode = task.purge_mode.as_ref().map(PurgeMode::canonical);
    let is_graceful = !matches!(mode, Some(PurgeMode::Directly | PurgeMode::Never));
    is_graceful && task.suppress_deletion.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Replicas of the targets a, b and c that are kept: the shares, and what is ready there.
    fn keep(wanted: i32, shares: [i32; 3], reports: &Value, task: &Value) -> Option<Vec<i32>> {
        let names = ["a", "b", "c"];
        let targets: Vec<Value> = names
            .iter()
            .zip(shares)
            .map(|(name, share)| json!({"name": name, "replicas": share}))
            .collect();
        let mut task = task.clone();
        task["fromCluster"] = json!("old");
        task["reason"] = json!("TaintUntolerated");
        task["producer"] = json!("TaintManager");
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": wanted, "clusters": targets, "gracefulEvictionTasks": [task],
        }))
        .unwrap();
        let reports: Vec<AggregatedStatusItem> = reports
            .as_array()
            .unwrap()
            .iter()
            .map(|it| serde_json::from_value(it.clone()).unwrap())
            .collect();
        let kept = kept(&spec, &reports, |name| copy(&reports, name))?;
        Some(kept.clusters.iter().map(|it| it.replicas).collect())
    }

    /// What a Work reports whose report the binding has already.
    fn copy(reports: &[AggregatedStatusItem], cluster: &str) -> Option<Copy> {
        let report = reports.iter().find(|it| it.cluster_name == cluster)?;
        let ready = ready_replicas(&report.status.as_ref()?.0)?;
        Some(Copy { ready, stays: true })
    }

    fn report(cluster: &str, ready: i32, health: &str) -> Value {
        json!({"clusterName": cluster, "health": health, "status": {"readyReplicas": ready}})
    }

    #[test]
    fn a_target_keeps_the_ready_replicas_that_are_not_replaced_yet() {
        let healthy = |of: [i32; 4]| {
            let names = ["a", "b", "c", "old"];
            let each = names
                .iter()
                .zip(of)
                .map(|(name, n)| report(name, n, "Healthy"));
            Value::Array(each.collect())
        };
        let graceful = json!({"purgeMode": "Gracefully"});
        for (what, wanted, shares, ready, expected) in [
            (
                "nothing is ready elsewhere",
                6,
                [1, 1, 4],
                [2, 2, 0, 2],
                Some(vec![2, 2, 4]),
            ),
            (
                "a part is, and the copy that goes does not count",
                6,
                [1, 1, 4],
                [2, 2, 1, 2],
                Some(vec![2, 2, 4]),
            ),
            (
                "more are than have to",
                6,
                [1, 1, 4],
                [2, 2, 3, 2],
                Some(vec![1, 2, 4]),
            ),
            ("all are", 6, [1, 1, 4], [2, 2, 4, 2], None),
            ("no share is smaller", 6, [2, 2, 2], [2, 2, 0, 2], None),
            ("a person asks for fewer", 2, [1, 1, 0], [2, 2, 0, 2], None),
            (
                "and too few are ready then",
                3,
                [1, 1, 1],
                [2, 2, 0, 2],
                Some(vec![1, 2, 1]),
            ),
        ] {
            assert_eq!(
                keep(wanted, shares, &healthy(ready), &graceful),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn silence_stands_for_nothing_elsewhere_and_takes_nothing_away() {
        let reports = json!([
            report("a", 2, "Healthy"),
            report("b", 2, "Unknown"),
            report("old", 9, "Unknown"),
        ]);
        let graceful = json!({"purgeMode": "Gracefully"});
        assert_eq!(keep(6, [1, 1, 4], &reports, &graceful), Some(vec![2, 2, 4]));
        // The only one that is heard may go as far as others stand in for it.
        let reports = json!([
            report("a", 4, "Healthy"),
            report("b", 2, "Unknown"),
            report("c", 4, "Healthy"),
        ]);
        assert_eq!(keep(6, [1, 1, 4], &reports, &graceful), Some(vec![2, 2, 4]));
    }

    #[test]
    fn kinds_that_report_only_available_replicas_are_kept_as_others_are() {
        let available = |cluster: &str| {
            json!({
                "clusterName": cluster, "health": "Healthy", "status": {"availableReplicas": 2},
            })
        };
        let reports = json!([available("a"), available("b")]);
        let graceful = json!({"purgeMode": "Gracefully"});
        assert_eq!(keep(6, [1, 1, 4], &reports, &graceful), Some(vec![2, 2, 4]));
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
        let copy = |ready, stays| Some(Copy { ready, stays });
        for (home, expected) in [
            (None, [1, 3]),
            (copy(3, false), [3, 3]),
            (copy(0, true), [1, 3]),
            (copy(1, true), [1, 2]),
        ] {
            let copy = |name: &str| if name == "home" { home } else { copy(3, true) };
            let kept = kept(&spec, &reports, copy).unwrap_or_else(|| spec.clone());
            let replicas: Vec<i32> = kept.clusters.iter().map(|it| it.replicas).collect();
            assert_eq!(replicas, expected, "{home:?}");
        }
    }

    #[test]
    fn replicas_come_home_as_those_at_home_become_ready() {
        let keep = |ready: [i32; 2], mode: &str| {
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "replicas": 4, "rescheduleTriggeredAt": "2026-01-01T00:00:00Z",
                "failover": {"cluster": {"purgeMode": mode}},
                "clusters": [{"name": "home", "replicas": 3}, {"name": "away", "replicas": 1}],
            }))
            .unwrap();
            let reports = [("home", ready[0]), ("away", ready[1])].map(|(name, ready)| {
                serde_json::from_value(report(name, ready, "Healthy")).unwrap()
            });
            let kept = kept(&spec, &reports, |name| copy(&reports, name))?;
            Some(
                kept.clusters
                    .iter()
                    .map(|it| it.replicas)
                    .collect::<Vec<_>>(),
            )
        };
        for (ready, mode, expected) in [
            ([0, 4], "Gracefully", Some(vec![3, 4])),
            ([1, 4], "Gracefully", Some(vec![3, 3])),
            ([3, 4], "Gracefully", None),
            ([3, 1], "Gracefully", None),
            ([0, 4], "Directly", None),
        ] {
            assert_eq!(keep(ready, mode), expected, "{ready:?} {mode}");
        }
    }

    #[test]
    fn shares_apply_at_once_where_no_old_copy_waits_for_its_replacement() {
        let reports = json!([report("a", 2, "Healthy"), report("b", 2, "Healthy")]);
        for (task, is_kept) in [
            (json!({"purgeMode": "Gracefully"}), true),
            (json!({"purgeMode": "Graciously"}), true),
            (json!({}), true),
            (json!({"purgeMode": "Directly"}), false),
            (json!({"purgeMode": "Immediately"}), false),
            (json!({"purgeMode": "Never"}), false),
            (json!({"suppressDeletion": true}), false),
            (json!({"suppressDeletion": false}), false),
        ] {
            let kept = keep(6, [1, 1, 4], &reports, &task);
            assert_eq!(kept.is_some(), is_kept, "{task}");
        }
    }
}
