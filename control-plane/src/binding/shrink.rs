//! Keeps ready copies while the copies that are to replace an old one are not ready: an eviction
//! can leave a cluster that stays a target with fewer replicas than before, since the others are
//! divided anew (another affinity group, or weights of other clusters), and a new placement that
//! was requested brings replicas back from the targets that took them over.

use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceHealth,
};
use muster_shared::api::policy::PurgeMode;

use crate::scheduler::core::replacement::purge_mode;

/// The spec with as many replicas in each target as its Work is to have, where that differs from
/// what the scheduler gave it; `None` where it does not.
///
/// While an old copy waits for its replacement, and after a request for a new placement, a target
/// keeps ready replicas beyond its share, as far as fewer would be ready in all clusters together
/// than the template asks for (safety contract 1; Karmada lets them go at once). What a silent
/// cluster reported does not count. The end of the task, and each report of replicas that are
/// ready, changes the binding, and with it every target comes nearer to its share.
pub fn kept(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
) -> Option<ResourceBindingSpec> {
    let is_requested = spec.reschedule_triggered_at.is_some() && purge_mode(spec).is_some();
    if !is_requested && !spec.graceful_eviction_tasks.iter().any(waits) {
        return None;
    }
    let ready = |cluster: &str| {
        let report = reports.iter().find(|it| it.cluster_name == cluster)?;
        let is_heard = report.health != Some(ResourceHealth::Unknown);
        let status = report.status.as_ref().filter(|_| is_heard)?;
        i32::try_from(status.0["readyReplicas"].as_i64()?).ok()
    };
    let all: i64 = reports
        .iter()
        .filter_map(|it| ready(&it.cluster_name))
        .map(i64::from)
        .sum();
    // What may go at once: ready replicas beyond those that are wanted.
    let mut surplus = all - i64::from(spec.replicas);
    let mut kept = spec.clone();
    for target in &mut kept.clusters {
        let beyond = ready(&target.name).unwrap_or(0) - target.replicas;
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
        let kept = kept(&spec, &reports)?;
        Some(kept.clusters.iter().map(|it| it.replicas).collect())
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
            ("a part is", 6, [1, 1, 4], [2, 2, 1, 2], Some(vec![1, 2, 4])),
            ("all are", 6, [1, 1, 4], [2, 2, 4, 2], None),
            ("no share is smaller", 6, [2, 2, 2], [2, 2, 0, 2], None),
            ("a person asks for fewer", 3, [1, 1, 1], [2, 2, 0, 2], None),
            (
                "and too few are ready then",
                5,
                [1, 1, 3],
                [2, 2, 0, 2],
                Some(vec![1, 2, 3]),
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
    fn a_silent_cluster_has_no_ready_replicas() {
        let reports = json!([
            report("a", 2, "Healthy"),
            report("b", 2, "Unknown"),
            report("old", 9, "Unknown"),
        ]);
        let graceful = json!({"purgeMode": "Gracefully"});
        assert_eq!(keep(6, [1, 1, 4], &reports, &graceful), Some(vec![2, 1, 4]));
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
            let kept = kept(&spec, &reports)?;
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
