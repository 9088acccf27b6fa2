//! Metrics of each cluster as the fleet API knows it: they are there when the cluster itself is
//! not. Shown by the leader alone, so that sums count every cluster once.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Lease, ResourceExt};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::condition::READY;
use muster_shared::quantity::Quantity;
use muster_shared::self_report::AgentReport;
use muster_shared::taints::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_EXECUTE};
use muster_shared::tasks::Tasks;
use muster_shared::telemetry::{Gauges, Series};

use crate::fleet::Fleet;

/// Interval at which the gauges are set.
const INTERVAL: Duration = Duration::from_secs(5);

/// Shows the gauges while this replica leads.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let fleet = Arc::clone(fleet);
    tasks.spawn("cluster figures", async move {
        if !fleet.ready().await {
            return;
        }
        let mut gauges = Gauges::default();
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                () = fleet.shutdown.cancelled() => return,
                _ = interval.tick() => {}
            }
            let now = fleet.clock.now();
            let clusters = fleet.clusters.list();
            let figures = clusters.iter().flat_map(|cluster| {
                let lease = fleet
                    .leases
                    .get(Some(CLUSTER_NAMESPACE), &cluster.name_any());
                figures(cluster, lease.as_deref(), now)
            });
            gauges.show(figures);
        }
    });
}

/// Returns the gauges of one cluster.
fn figures(cluster: &Cluster, lease: Option<&Lease>, now: Timestamp) -> Vec<(Series, f64)> {
    let name = cluster.name_any();
    let mut figures = Vec::new();
    let mut add = |gauge: &'static str, label: Option<(&'static str, &str)>, value: f64| {
        let own = ("cluster_name", name.clone());
        let label = label.map(|(key, value)| (key, value.to_owned()));
        figures.push(((gauge, [own].into_iter().chain(label).collect()), value));
    };
    let is_ready = u8::from(cluster.is_true(READY));
    add("muster_cluster_ready", None, f64::from(is_ready));
    for effect in [NO_SCHEDULE, PREFER_NO_EXECUTE, NO_EXECUTE] {
        let taints = cluster.spec.taints.iter();
        let count = taints.filter(|it| it.effect == effect).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        add(
            "muster_cluster_taints",
            Some(("effect", effect)),
            count.into(),
        );
    }
    let renewed = lease.and_then(|it| it.spec.as_ref()?.renew_time.as_ref());
    if let Some(renewed) = renewed {
        let seconds = renewed.0.as_duration().as_secs_f64();
        add("muster_cluster_last_heard_timestamp_seconds", None, seconds);
    }
    if let Some(life) = lease
        .and_then(AgentReport::of)
        .and_then(|it| it.credentials)
    {
        let left = life.end.duration_since(now).as_secs_f64();
        add("muster_cluster_credentials_remaining_seconds", None, left);
    }
    let Some(status) = &cluster.status else {
        return figures;
    };
    if let Some(nodes) = status.node_summary {
        let other = nodes.total_num.saturating_sub(nodes.ready_num);
        for (state, count) in [("ready", nodes.ready_num), ("other", other)] {
            add("muster_cluster_nodes", Some(("state", state)), count.into());
        }
    }
    if let Some(resources) = &status.resource_summary {
        let sums = [
            ("muster_cluster_capacity", &resources.allocatable),
            ("muster_cluster_requested", &resources.allocated),
        ];
        for (gauge, sum) in sums {
            for resource in ["cpu", "memory", "pods"] {
                let quantity = sum.get(resource).map(Quantity::from_wire);
                if let Some(Ok(quantity)) = quantity {
                    add(gauge, Some(("resource", resource)), quantity.as_f64());
                }
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use muster_shared::client::Life;
    use muster_shared::names::annotation;
    use muster_shared::telemetry::render;
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, ready: &str) -> Cluster {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
            "status": {
                "conditions": [condition],
                "nodeSummary": {"totalNum": 7, "readyNum": 2},
                "resourceSummary": {
                    "allocatable": {"cpu": "12", "memory": "1Ki", "x.com/gpu": "8"},
                    "allocated": {"cpu": "500m"},
                },
            },
        }))
        .unwrap()
    }

    fn lease() -> Lease {
        let renewed = "1970-01-01T00:01:40.000000Z";
        let report = AgentReport {
            version: "1".to_owned(),
            credentials: Some(Life {
                begin: None,
                end: Timestamp::from_second(3_700).unwrap(),
            }),
        };
        let annotations = json!({annotation::FENCES: renewed, annotation::AGENT: report.write()});
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations}, "spec": {"renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_is_shown_as_the_fleet_knows_it_and_not_any_more_when_it_has_left() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let now = Timestamp::from_second(100).unwrap();
        let lines = || {
            let text = render(&handle);
            let lines = text.lines().filter(|it| it.starts_with("muster"));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        metrics::with_local_recorder(&recorder, || {
            let mut gauges = Gauges::default();
            let lease = lease();
            let one = figures(&cluster("m1", "Unknown"), Some(&lease), now);
            let two = figures(&cluster("m2", "True"), None, now);
            gauges.show(one.into_iter().chain(two.clone()));
            let of_one: Vec<String> = lines()
                .into_iter()
                .filter(|it| it.contains("\"m1\""))
                .collect();
            assert_eq!(
                of_one,
                [
                    r#"muster_cluster_capacity{cluster_name="m1",resource="cpu"} 12"#,
                    r#"muster_cluster_capacity{cluster_name="m1",resource="memory"} 1024"#,
                    r#"muster_cluster_credentials_remaining_seconds{cluster_name="m1"} 3600"#,
                    r#"muster_cluster_last_heard_timestamp_seconds{cluster_name="m1"} 100"#,
                    r#"muster_cluster_nodes{cluster_name="m1",state="other"} 5"#,
                    r#"muster_cluster_nodes{cluster_name="m1",state="ready"} 2"#,
                    r#"muster_cluster_ready{cluster_name="m1"} 0"#,
                    r#"muster_cluster_requested{cluster_name="m1",resource="cpu"} 0.5"#,
                    r#"muster_cluster_taints{cluster_name="m1",effect="NoExecute"} 1"#,
                    r#"muster_cluster_taints{cluster_name="m1",effect="NoSchedule"} 0"#,
                    r#"muster_cluster_taints{cluster_name="m1",effect="PreferNoExecute"} 0"#,
                ]
            );
            gauges.show(two);
            let left = lines();
            assert!(left.iter().all(|it| it.contains("\"m2\"")), "{left:?}");
            assert!(!left.is_empty());
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_shows_its_clusters_from_its_start_on() {
        use crate::fleet::testing::{self, Bench};
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let mut bench = Bench::new([("clusters", testing::cluster("m1"))]);
        bench.run(start, 1).await;
        let text = render(&recorder.handle());
        let ready = r#"muster_cluster_ready{cluster_name="m1"} 1"#;
        assert!(text.lines().any(|it| it == ready), "{text}");
    }
}
