//! Orders of people about clusters: drains with the gate off, across restarts, at their own rate,
//! and what has nowhere to go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test says that it failed

mod heartbeats;

use std::time::Duration;

use heartbeats::{Setting, left, placed, says};
use muster_e2e::harness::heartbeat_fleet::{HeartbeatFleet, name};
use muster_e2e::harness::observer::View;
use serde_json::{Value, json};

/// What a command of `kubectl muster` prints, whatever its exit code.
async fn muster(fleet: &HeartbeatFleet, words: &[&str]) -> String {
    let kubeconfig = fleet.kubeconfig.display().to_string();
    let mut line = vec!["kubectl-muster", "--kubeconfig", kubeconfig.as_str()];
    line.extend(words);
    match muster_control_plane::kubectl::answer(line).await {
        Ok(text) => text,
        Err(error) => error.to_string(),
    }
}

fn place(fleet: &HeartbeatFleet, cluster: usize, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        fleet.place(&format!("web-{n}"), &name(cluster), &Value::Null)?;
    }
    Ok(())
}

fn at_least(expected: usize, view: &View) -> Result<(), String> {
    let count = left(view);
    if count >= expected {
        Ok(())
    } else {
        Err(format!("{count} left, not {expected}"))
    }
}

fn has(text: &str, part: &str) -> anyhow::Result<()> {
    anyhow::ensure!(text.contains(part), "{part:?} is not in {text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_goes_on_with_the_gate_off_when_its_command_and_the_control_plane_are_killed() {
    let setting = Setting::named("drain", 4)
        .without_failover()
        .flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        place(fleet, 1, 12)?;
        let preview = muster(fleet, &["drain", "member1", "--dry-run"]).await;
        has(&preview, "member1: 12 workloads can leave")?;
        heartbeats::holds(
            fleet,
            "a dry run moves nothing",
            Duration::from_secs(1),
            |view| {
                if left(view) == 0 {
                    Ok(())
                } else {
                    Err("it moved".to_owned())
                }
            },
        )
        .await?;
        // The command is gone at once; the order stays, with its rate.
        let told = muster(fleet, &["drain", "member1", "--rate=3"]).await;
        has(&told, "Cluster member1 is being drained")?;
        heartbeats::until(fleet, "it begins", |view| at_least(2, view)).await?;
        fleet.control_plane.kill().await;
        let before = left(&fleet.observer.view);
        anyhow::ensure!(before < 12, "the rate of 3 a second does not hold");
        fleet.control_plane.resume();
        heartbeats::until(fleet, "it goes on", |view| at_least(12, view)).await?;
        let told = muster(fleet, &["drain", "member1", "--wait", "--timeout=1s"]).await;
        has(&told, "12 being replaced")?;
        let told = muster(fleet, &["undrain", "member1"]).await;
        has(&told, "nothing moves back by itself")?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_nowhere_to_go_is_told_before_and_stays_and_undrain_ends_it() {
    let setting = Setting::named("nowhere", 3)
        .without_failover()
        .flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        place(fleet, 1, 2)?;
        let pinned = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        fleet.place("pinned", "member1", &pinned)?;
        let told = muster(fleet, &["drain", "member1"]).await;
        has(&told, "member1: 2 workloads can leave")?;
        has(
            &told,
            "Deployment default/pinned: no other cluster could take it",
        )?;
        heartbeats::until(fleet, "the others leave", |view| at_least(2, view)).await?;
        let why = says(fleet, "pinned", "True", "NowhereToGo").await?;
        has(&why, "failover.muster.io/drain:NoExecute")?;
        anyhow::ensure!(placed(&fleet.observer.view, "pinned") == ["member1"]);
        // A cordon, and a taint of the same cluster, neither end the drain nor are ended with it.
        has(&muster(fleet, &["cordon", "member1"]).await, "cordoned")?;
        has(
            &muster(fleet, &["taint", "member1", "a=b:NoSchedule"]).await,
            "tainted a=b:NoSchedule",
        )?;
        has(
            &muster(fleet, &["taint", "member1", "failover.muster.io/drain-"]).await,
            "undrain",
        )?;
        has(
            &muster(fleet, &["undrain", "member1"]).await,
            "not drained any more",
        )?;
        says(fleet, "pinned", "False", "AbandonedOnRecovery").await?;
        let taints: Vec<String> = fleet
            .observer
            .view
            .clusters
            .get(None, "member1")
            .into_iter()
            .flat_map(|it| it.spec.taints.clone())
            .map(|it| it.key)
            .collect();
        anyhow::ensure!(taints == ["failover.muster.io/cordon", "a"], "{taints:?}");
        has(&muster(fleet, &["drain", "membr1"]).await, "is it member1")?;
        Ok(())
    })
    .await;
}
