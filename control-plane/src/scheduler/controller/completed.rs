//! Jobs that have completed stay where they are placed.

use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingSpec};

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::completion::{self, has_completed_by_template, is_task, leaves_undone};

/// A Job whose template cannot be read is reconciled again after this time.
pub(crate) const UNREAD: Duration = Duration::from_secs(5);

/// Returns whether a binding is that of a Job which has completed in each of its clusters. Wherever
/// it were placed instead, it would run again. `None`: that cannot be read yet.
pub(crate) fn has_completed_everywhere(fleet: &Fleet, binding: &AnyBinding) -> Option<bool> {
    let (spec, status) = (&binding.spec, binding.status());
    let was_placed = !spec.clusters.is_empty() || status.last_scheduled_time.is_some();
    let completed = completed(spec, &status.aggregated_status, was_placed, || {
        has_completed_by_template(fleet, spec)
    });
    // What runs nowhere may be placed in another cluster, although each has completed its own part.
    let works = || fleet.work_index.of(&BindingKey::of(binding));
    let reports = &status.aggregated_status;
    let undone = || leaves_undone(fleet, spec, works().iter().map(AsRef::as_ref), reports);
    completed.map(|it| it && undone() != Some(true))
}

/// Returns whether a Job has completed in each of its clusters. The template says so when a cluster
/// has left the fleet, and its report with it; also when all have. It is not asked about a Job that
/// was never placed.
fn completed(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    was_placed: bool,
    by_template: impl Fn() -> Option<bool>,
) -> Option<bool> {
    if !is_task(&spec.resource) || !was_placed {
        return Some(false);
    }
    let clusters = spec.clusters.iter();
    let reported = clusters.map(|it| completion::completed(&spec.resource, reports, &it.name));
    let reported: Vec<Option<bool>> = reported.collect();
    // A cluster that reports something else runs it anew.
    if reported.contains(&Some(false)) {
        Some(false)
    } else if reported.is_empty() || reported.contains(&None) {
        by_template()
    } else {
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_job_is_asked_of_its_clusters_and_then_of_its_template() {
        let report =
            |cluster: &str, status: Value| json!({"clusterName": cluster, "status": status});
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let done = |cluster| report(cluster, complete.clone());
        let runs = |cluster| report(cluster, json!({"active": 1}));
        let spec = |clusters: &[&str]| -> ResourceBindingSpec {
            let targets: Vec<Value> = clusters.iter().map(|it| json!({"name": it})).collect();
            serde_json::from_value(json!({
                "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "sum"},
                "clusters": targets,
            }))
            .unwrap()
        };
        let new = completed(&spec(&[]), &[], false, || None);
        assert_eq!(new, Some(false));
        for (what, clusters, reports, template, expected) in [
            ("left by all, unread", &[][..], vec![], None, None),
            ("left by all, done", &[], vec![], Some(true), Some(true)),
            ("and not done", &[], vec![], Some(false), Some(false)),
            ("reported", &["a"], vec![done("a")], None, Some(true)),
            ("runs", &["a"], vec![runs("a")], Some(true), Some(false)),
            ("one silent", &["a", "b"], vec![done("a")], None, None),
            ("one runs", &["a", "b"], vec![runs("b")], None, Some(false)),
        ] {
            let reports: Vec<AggregatedStatusItem> =
                serde_json::from_value(Value::Array(reports)).unwrap();
            let found = completed(&spec(clusters), &reports, true, || template);
            assert_eq!(found, expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_divided_job_has_not_completed_while_a_part_of_it_runs_nowhere() {
        use crate::fleet::testing::{Bench, binding, cluster, work};

        let job = |completions: u64| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"namespace": "shop", "name": "web"},
                "spec": {"parallelism": 3, "completions": completions},
            })
        };
        // The cluster that was to do the other 27 of 40 was lost, and there was no third one.
        for (share, expected) in [(13, false), (40, true)] {
            let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
            let mut bound = binding();
            bound["spec"]["resource"]["apiVersion"] = json!("batch/v1");
            bound["spec"]["resource"]["kind"] = json!("Job");
            bound["spec"]["replicas"] = json!(3);
            bound["spec"]["clusters"] = json!([{"name": "m2", "replicas": 3}]);
            bound["spec"]["placement"] = json!({"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            }});
            bound["status"] = json!({"aggregatedStatus": [{"clusterName": "m2", "status": done}]});
            let mut made = work("m2", "Healthy");
            made["spec"] = json!({"workload": {"manifests": [job(share)]}});
            let mut bench = Bench::new([
                ("clusters", cluster("m2")),
                ("clusters", cluster("m3")),
                ("jobs", job(40)),
                ("resourcebindings", bound),
                ("works", made),
            ]);
            bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
            bench.fleet.follow_templates();
            bench.follow_for(5).await;
            let bound = bench.binding("web-deployment").unwrap();
            let found = has_completed_everywhere(&bench.fleet, &bound);
            assert_eq!(found, Some(expected), "{share} of 40");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bare_pod_that_has_succeeded_stays_so_when_its_cluster_has_left_the_fleet() {
        use crate::fleet::testing::{Bench, binding, cluster};

        for (policy, expected) in [("Never", true), ("OnFailure", true), ("Always", false)] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "shop", "name": "web", "uid": "t"},
                "spec": {"restartPolicy": policy, "containers": []},
                "status": {"phase": "Succeeded"},
            });
            // Its cluster was taken out of the fleet, and the report with it.
            let mut bound = binding();
            bound["spec"]["resource"]["apiVersion"] = json!("v1");
            bound["spec"]["resource"]["kind"] = json!("Pod");
            bound["spec"]["resource"]["uid"] = json!("t");
            bound["spec"]["clusters"] = json!([]);
            bound["status"] = json!({"lastScheduledTime": "2026-01-01T00:00:00Z"});
            let mut bench = Bench::new([
                ("clusters", cluster("m2")),
                ("pods", pod),
                ("resourcebindings", bound),
            ]);
            bench.api.serve("/api/v1", "v1", "pods", "Pod");
            bench.fleet.follow_templates();
            bench.follow_for(5).await;
            let bound = bench.binding("web-deployment").unwrap();
            let found = has_completed_everywhere(&bench.fleet, &bound);
            assert_eq!(found, Some(expected), "{policy}");
        }
    }
}
