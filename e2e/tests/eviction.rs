//! When nothing leaves failed clusters, and what leaves them without any policy.

use std::time::Duration;

use crate::heartbeats::{self, Setting, exactly, left, says, tainted};
use crate::support;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::heartbeat_fleet::{HeartbeatFleet, name};
use serde_json::Value;

/// Taints what is not ready, and lets go of what is ready again.
async fn taint_policy(fleet: &HeartbeatFleet) -> anyhow::Result<()> {
    let policy = support::taint_policy(1, 1);
    apply(&fleet.client, &policy).await
}

/// Places so many workloads on each of the first clusters.
fn place(fleet: &HeartbeatFleet, clusters: usize, each: usize) -> anyhow::Result<()> {
    for number in 1..=clusters {
        for n in 0..each {
            fleet.place(&format!("web-{number}-{n}"), &name(number), &Value::Null)?;
        }
    }
    Ok(())
}

fn names(numbers: std::ops::RangeInclusive<usize>) -> Vec<String> {
    numbers.map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn when_five_of_eight_clusters_fail_nothing_leaves_until_enough_are_back() {
    let setting = Setting::named("eight", 8).flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        taint_policy(fleet).await?;
        place(fleet, 5, 2)?;
        let victims = names(1..=5);
        fleet.cut(victims.iter().map(String::as_str));
        heartbeats::until(fleet, "five are declared failed", |view| {
            exactly(5, "tainted", tainted(view))
        })
        .await?;
        says(fleet, "web-3-0", "True", "StoppedByThreshold").await?;
        heartbeats::holds(fleet, "nothing leaves", Duration::from_secs(1), |view| {
            exactly(0, "left", left(view))
        })
        .await?;
        let events = fleet.events("member3").await?;
        assert!(events.contains("EvictionStopped"), "{events:?}");

        // One is enough: four of eight are no more than 55 %. Its own workloads stay, those of the
        // others leave.
        fleet.heal(["member1"]);
        heartbeats::until(fleet, "the rest leaves", |view| {
            exactly(8, "left", left(view))
        })
        .await?;
        says(fleet, "web-1-0", "False", "AbandonedOnRecovery").await?;
        heartbeats::holds(fleet, "they stay", Duration::from_secs(1), |view| {
            exactly(8, "left", left(view))
        })
        .await?;
        let events = fleet.events("member3").await?;
        assert!(events.contains("EvictionResumed"), "{events:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_classic_mode_a_silent_cluster_is_evicted_from_without_any_policy() {
    let setting = Setting::named("classic", 3)
        .flag("--failover-eviction-timeout=1s")
        .flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        fleet.place("web", "member1", &Value::Null)?;
        fleet.cut(["member1"]);
        heartbeats::until(fleet, "the workload leaves", |view| {
            exactly(1, "left", left(view))
        })
        .await?;
        // The watches of bindings and of clusters are two.
        heartbeats::until(fleet, "the cluster is tainted", |view| {
            let cluster = view.clusters.get(None, "member1");
            let mut taints = cluster.iter().flat_map(|it| &it.spec.taints);
            let is_tainted = taints.any(|taint| taint.effect == "NoExecute");
            exactly(1, "tainted", usize::from(is_tainted))
        })
        .await?;
        let cluster = fleet.observer.view.clusters.get(None, "member1").unwrap();
        let since = cluster.condition("Ready").unwrap().last_transition_time.0;
        let mut taints = cluster.spec.taints.iter();
        let taint = taints.find(|taint| taint.effect == "NoExecute").unwrap();
        assert_eq!(taint.key, "cluster.karmada.io/unreachable");
        let waited = taint.time_added.as_ref().unwrap().0.duration_since(since);
        assert!(waited.as_secs() >= 1, "tainted after {waited}");
        Ok(())
    })
    .await;
}
