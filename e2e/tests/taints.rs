//! What taints of each effect do, who puts them on, which switch keeps them from evicting, and what
//! the metrics say of it.

use std::time::Duration;

use crate::heartbeats::{self, Setting, holds, is_on, placed, reported, says, until};
use futures::StreamExt;
use kube::api::{Api, DeleteParams, WatchEvent, WatchParams};
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::heartbeat_fleet::HeartbeatFleet;
use muster_e2e::harness::metrics::scrape;
use muster_e2e::harness::objects::merge_status;
use muster_e2e::harness::observer::View;
use muster_e2e::harness::process::free_ports;
use muster_e2e::harness::test_bed::eventually;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Creates a policy that adds the taint `example.com/failed` of this effect to clusters of which
/// all these conditions hold: type, operator, status.
async fn policy(
    fleet: &HeartbeatFleet,
    effect: &str,
    conditions: &[(&str, &str, &str)],
) -> anyhow::Result<()> {
    let conditions = conditions.iter().map(|(condition, operator, status)| {
        json!({"conditionType": condition, "operator": operator, "statusValues": [status]})
    });
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
        "metadata": {"name": "failed-clusters"},
        "spec": {
            "matchConditions": conditions.collect::<Vec<_>>(),
            "taintsToAdd": [{
                "key": "example.com/failed", "effect": effect,
                "addOnMatchSeconds": 1, "removeOnMismatchSeconds": 1,
            }],
        },
    });
    apply(&fleet.client, &policy.to_string()).await
}

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

const NOT_READY: (&str, &str, &str) = ("Ready", "NotIn", "True");

/// Taints a cluster by hand.
async fn taint(fleet: &HeartbeatFleet, cluster: &str, effect: &str) {
    let taints = json!([{"key": "example.com/mine", "effect": effect}]);
    heartbeats::taint(fleet, cluster, &taints).await;
}

/// Returns the clusters that have the taint of the policy.
fn tainted(view: &View) -> Vec<String> {
    let has_it = |cluster: &Cluster| {
        let mut taints = cluster.spec.taints.iter();
        taints.any(|taint| taint.key == "example.com/failed")
    };
    let all = view.clusters.list();
    let tainted = all.iter().filter(|cluster| has_it(cluster));
    let mut names: Vec<String> = tainted
        .filter_map(|cluster| cluster.metadata.name.clone())
        .collect();
    names.sort_unstable();
    names
}

fn tainted_are(expected: &'static [&str]) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let found = tainted(view);
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?} are tainted, not {expected:?}"))
        }
    }
}

fn stays_on_member1(workload: &'static str) -> impl Fn(&View) -> Result<(), String> {
    move |view| is_on(view, workload, &["member1"])
}

#[tokio::test(flavor = "multi_thread")]
async fn prefer_no_execute_moves_what_asks_for_it_whatever_it_tolerates_and_nothing_else() {
    let setting = Setting::named("preferred", 3).flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        let behavior = json!({"cluster": {"tolerationSeconds": 1}});
        let tolerant = tolerating(&json!([{"operator": "Exists"}]));
        fleet.place("asks", "member1", &json!({"failover": behavior}))?;
        fleet.place(
            "tolerant",
            "member1",
            &json!({"failover": behavior, "placement": tolerant}),
        )?;
        fleet.place(
            "later",
            "member1",
            &json!({"failover": {"cluster": {"tolerationSeconds": 600}}}),
        )?;
        fleet.place("stays", "member1", &Value::Null)?;
        policy(fleet, "PreferNoExecute", &[NOT_READY]).await?;
        fleet.cut(["member1"]);
        for (workload, status, reason) in [
            ("asks", "False", "Evicted"),
            ("tolerant", "False", "Evicted"),
            ("later", "True", "WaitingForToleration"),
            ("stays", "False", "FailoverNotRequested"),
        ] {
            let message = says(fleet, workload, status, reason).await?;
            let taint = "example.com/failed:PreferNoExecute";
            assert!(message.contains(taint), "{workload}: {message}");
            reported(fleet, workload, &[reason]).await?;
        }
        for workload in ["asks", "tolerant"] {
            let on = placed(&fleet.observer.view, workload);
            assert!(on.len() == 1 && on[0] != "member1", "{workload}: {on:?}");
        }
        holds(
            fleet,
            "what does not ask stays",
            Duration::from_secs(3),
            stays_on_member1("stays"),
        )
        .await?;
        stays_on_member1("later")(&fleet.observer.view).map_err(anyhow::Error::msg)
    })
    .await;
}

/// Adds a condition to those that a cluster has.
async fn report(fleet: &HeartbeatFleet, cluster: &str, condition: &str, status: &str) {
    let clusters = Api::<Cluster>::all(fleet.client.clone());
    let held = clusters.get(cluster).await.unwrap();
    let mut conditions = json!(held.status.unwrap_or_default().conditions);
    let all = conditions.as_array_mut().unwrap();
    all.retain(|it| it["type"] != condition);
    all.push(json!({
        "type": condition, "status": status, "reason": "Observed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let status = json!({"status": {"conditions": conditions}});
    merge_status(&clusters, cluster, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_taints_of_a_policy_go_with_it_whether_or_not_its_deletion_was_seen() {
    heartbeats::run(Setting::named("deleted-policy", 3), async |fleet| {
        let policies: Api<ClusterTaintPolicy> = Api::all(fleet.client.clone());
        let delete = || async {
            let options = DeleteParams::default();
            policies.delete("failed-clusters", &options).await
        };
        report(fleet, "member1", "DiskFailed", "True").await;
        for is_seen in [true, false] {
            policy(fleet, "NoExecute", &[("DiskFailed", "In", "True")]).await?;
            until(fleet, "it is tainted", tainted_are(&["member1"])).await?;
            if is_seen {
                delete().await?;
            } else {
                fleet.control_plane.kill().await;
                delete().await?;
                fleet.control_plane.resume();
            }
            until(fleet, "its taint goes", tainted_are(&[])).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_taint_manager_no_taint_moves_anything() {
    for flag in [
        "--enable-taint-manager=false",
        "--no-execute-taint-eviction-purge-mode=Directly",
    ] {
        let is_on = flag.starts_with("--no-execute");
        let setting = Setting::named("no-taint-manager", 3)
            .flag("--resource-eviction-rate=50")
            .flag(flag);
        heartbeats::run(setting, async |fleet| {
            fleet.place("web", "member1", &Value::Null)?;
            taint(fleet, "member1", "NoExecute").await;
            if is_on {
                // What the other half waits for in vain.
                return says(fleet, "web", "False", "Evicted").await.map(drop);
            }
            until(fleet, "it is seen", stays_on_member1("web")).await?;
            let time = Duration::from_secs(3);
            holds(fleet, "it stays", time, stays_on_member1("web")).await
        })
        .await;
    }
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
        policy(fleet, "NoExecute", &[NOT_READY]).await?;
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
