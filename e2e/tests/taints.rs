//! Taints of a cluster that is removed, and what the metrics say of workloads that leave a tainted
//! one.

use std::time::Duration;

use crate::heartbeats::{self, Setting, says};
use crate::support;
use futures::StreamExt;
use kube::api::{Api, DeleteParams, WatchEvent, WatchParams};
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::metrics::scrape;
use muster_e2e::harness::process::free_ports;
use muster_e2e::harness::test_bed::eventually;
use muster_shared::api::cluster::Cluster;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Returns a placement on one cluster that tolerates this.
fn tolerating(tolerations: &Value) -> Value {
    json!({
        "clusterAffinity": {},
        "clusterTolerations": tolerations,
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        },
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_removed_gets_no_taint() {
    heartbeats::run(Setting::named("removed", 3), async |fleet| {
        fleet.place("web", "member1", &Value::Null)?;
        let clusters = Api::<Cluster>::all(fleet.client.clone());
        let member1 = WatchParams::default().fields("metadata.name=member1");
        let mut changes = clusters.watch(&member1, "0").await?.boxed();
        clusters.delete("member1", &DeleteParams::default()).await?;
        loop {
            let change = timeout(Duration::from_mins(1), changes.next()).await?;
            let (cluster, is_gone) = match change {
                Some(Ok(WatchEvent::Added(it) | WatchEvent::Modified(it))) => (it, false),
                Some(Ok(WatchEvent::Deleted(it))) => (it, true),
                other => anyhow::bail!("expected a change of the cluster, got {other:?}"),
            };
            anyhow::ensure!(cluster.spec.taints.is_empty(), "{:?}", cluster.spec.taints);
            if is_gone {
                return Ok(());
            }
        }
    })
    .await;
}

/// A series that has to be there: its name, labels of it, and whether its value is right.
type Series<'a> = (&'a str, &'a [&'a str], fn(&str) -> bool);

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_of_a_running_control_plane_have_the_seven_names_of_the_proposal() {
    let [port] = free_ports().unwrap();
    let setting = Setting::named("metrics", 4)
        .flag("--resource-eviction-rate=50")
        .with_metrics(port);
    heartbeats::run(setting, async |fleet| {
        let long = json!([{"operator": "Exists", "tolerationSeconds": 600}]);
        let waits = json!({"placement": tolerating(&long)});
        let nowhere = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        fleet.place("leaves", "member1", &Value::Null)?;
        fleet.place("waits", "member1", &waits)?;
        fleet.place("nowhere", "member1", &nowhere)?;
        apply(&fleet.client, &support::taint_policy(1, 1)).await?;
        fleet.cut(["member1"]);
        says(fleet, "leaves", "False", "Evicted").await?;
        says(fleet, "waits", "True", "WaitingForToleration").await?;
        says(fleet, "nowhere", "True", "NowhereToGo").await?;
        let on_member1 = r#"cluster_name="member1""#;
        let expected: [Series; 7] = [
            // One waits, and one has nowhere to go.
            ("evict_total", &[on_member1], |it| it == "2"),
            (
                "evict_kind_total",
                &[on_member1, r#"resource_kind="apps/v1/Deployment""#],
                |it| it == "2",
            ),
            ("evict_rate", &[on_member1], |it| !it.is_empty()),
            (
                "evict_processing_latency_seconds_count",
                &[on_member1],
                |it| it == "1",
            ),
            // One of those tried left, and one did not.
            ("evict_success_rate", &[on_member1], |it| {
                it.starts_with("0.")
            }),
            ("cluster_fault_num", &[], |it| it == "1"),
            ("cluster_fault_rate", &[], |it| it == "0.25"),
        ];
        eventually("the gauges are set", async || {
            let text = scrape(port).map_err(|error| error.to_string())?;
            let shows = |(name, labels, is_right): &Series| {
                text.lines().any(|line| {
                    let Some((series, value)) = line.rsplit_once(' ') else {
                        return false;
                    };
                    let (found, of) = series.split_once('{').unwrap_or((series, ""));
                    found == *name
                        && labels.iter().all(|label| of.contains(label))
                        && is_right(value)
                })
            };
            let wrong: Vec<&str> = expected
                .iter()
                .filter(|it| !shows(it))
                .map(|(name, ..)| *name)
                .collect();
            if wrong.is_empty() {
                Ok(())
            } else {
                Err(format!("{wrong:?} are not as expected in\n{text}"))
            }
        })
        .await;
        Ok(())
    })
    .await;
}
