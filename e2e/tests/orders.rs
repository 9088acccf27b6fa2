//! Orders of people: drains with the gate off, across restarts, at their own rate, and what has
//! nowhere to go; pauses in the middle of a failover.

use std::time::Duration;

use crate::heartbeats::{self, Setting, left, placed, says};
use crate::support::kubectl;
use kube::runtime::wait::await_condition;
use muster_e2e::harness::heartbeat_fleet::{HeartbeatFleet, name};
use muster_e2e::harness::observer::View;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::Api;
use serde_json::{Value, json};

/// Runs a command of `kubectl muster`, and returns what it prints, whatever its exit code.
async fn muster(fleet: &HeartbeatFleet, words: &[&str]) -> String {
    kubectl::reported(&fleet.kubeconfig, words).await
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
            |view| exactly(0, view),
        )
        .await?;
        // The command is gone at once; the order stays, with its rate.
        let reported = muster(fleet, &["drain", "member1", "--rate=3"]).await;
        has(&reported, "Cluster member1 is being drained")?;
        heartbeats::until(fleet, "it begins", |view| at_least(2, view)).await?;
        fleet.control_plane.kill().await;
        let before = left(&fleet.observer.view);
        anyhow::ensure!(before < 12, "the rate of 3 a second does not hold");
        fleet.control_plane.resume();
        heartbeats::until(fleet, "it goes on", |view| at_least(12, view)).await?;
        let reported = muster(fleet, &["drain", "member1", "--wait", "--timeout=1s"]).await;
        has(&reported, "12 being replaced")?;
        let end = ["undrain", "member1", "--reason=it is done"];
        let reported = muster(fleet, &end).await;
        has(&reported, "nothing moves back by itself")?;
        let clusters: Api<Cluster> = Api::all(fleet.client.clone());
        let is_reported = |cluster: Option<&Cluster>| {
            let reported = cluster.and_then(|it| it.condition("LastOrder"));
            reported.is_some_and(|it| it.message.ends_with(": it is done"))
        };
        await_condition(clusters, "member1", is_reported).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_nowhere_to_go_is_reported_before_and_stays_and_undrain_ends_it() {
    let setting = Setting::named("nowhere", 3)
        .without_failover()
        .flag("--resource-eviction-rate=50");
    heartbeats::run(setting, async |fleet| {
        place(fleet, 1, 2)?;
        let pinned = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        fleet.place("pinned", "member1", &pinned)?;
        let reported = muster(fleet, &["drain", "member1"]).await;
        has(&reported, "member1: 2 workloads can leave")?;
        has(
            &reported,
            "Deployment default/pinned in member1: no other cluster could take it",
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
        for words in [
            &["drain", "membr1"][..],
            &["get", "clusters", "membr1"],
            &["get", "workloads", "--cluster=membr1"],
            &["history", "--cluster=membr1"],
            &["simulate", "--lost=membr1"],
        ] {
            has(&muster(fleet, words).await, "is it member1")?;
        }
        let nowhere = ["get", "workloads", "--namespace=defualt"];
        has(&muster(fleet, &nowhere).await, "is it default")?;
        Ok(())
    })
    .await;
}

fn exactly(expected: usize, view: &View) -> Result<(), String> {
    heartbeats::exactly(expected, "have left", left(view))
}

/// Workloads that have left, and do not become more for a second after the second in which a
/// pause takes effect.
async fn standstill(fleet: &HeartbeatFleet) -> anyhow::Result<usize> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = left(&fleet.observer.view);
    heartbeats::holds(fleet, "nothing moves", Duration::from_secs(1), |view| {
        exactly(before, view)
    })
    .await?;
    Ok(before)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_in_the_middle_stops_within_a_second_outlives_a_restart_and_resume_goes_on() {
    let setting = Setting::named("pause", 4)
        .without_failover()
        .flag("--resource-eviction-rate=4");
    heartbeats::run(setting, async |fleet| {
        place(fleet, 1, 40)?;
        muster(fleet, &["drain", "member1"]).await;
        heartbeats::until(fleet, "it begins", |view| at_least(2, view)).await?;
        let reported = muster(fleet, &["pause", "--reason=change freeze"]).await;
        has(&reported, "all movement is paused by")?;
        let before = standstill(fleet).await?;
        anyhow::ensure!(before < 40, "all had left");
        // It says so, in the cluster and in the binding of one that waits.
        heartbeats::reported(fleet, "member1", &["MovementPaused"]).await?;
        let waits = (0..40).map(|n| format!("web-{n}"));
        let waits = waits
            .into_iter()
            .find(|name| placed(&fleet.observer.view, name) == ["member1"])
            .unwrap();
        let why = says(fleet, &waits, "True", "Paused").await?;
        has(&why, "change freeze")?;
        let reported = muster(fleet, &["explain", "rb", &waits, "-n", "default"]).await;
        has(&reported, "Stays where it is: all movement is paused")?;
        heartbeats::until(fleet, "the condition", |view| {
            let cluster = view.clusters.get(None, "member1");
            let condition = cluster.and_then(|it| it.condition("MovementPaused").cloned());
            match condition {
                Some(condition) if condition.status == "True" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        inspected(fleet, &waits).await?;
        fleet.control_plane.kill().await;
        fleet.control_plane.resume();
        // Beyond the lease of the former process.
        let time = Duration::from_secs(9);
        heartbeats::holds(fleet, "a restart moves nothing", time, |view| {
            exactly(before, view)
        })
        .await?;
        has(&muster(fleet, &["resume"]).await, "Movement goes on")?;
        heartbeats::until(fleet, "it goes on", |view| at_least(before + 4, view)).await?;
        // One cluster by itself.
        has(
            &muster(fleet, &["pause", "member1"]).await,
            "out of member1 is paused",
        )?;
        standstill(fleet).await?;
        has(&muster(fleet, &["resume", "member1"]).await, "goes on")?;
        heartbeats::until(fleet, "the rest leaves", |view| at_least(40, view)).await
    })
    .await;
}

/// Checks what the other commands print in the middle of a drain that is paused.
async fn inspected(fleet: &HeartbeatFleet, waits: &str) -> anyhow::Result<()> {
    let drain = ["drain", "member1", "--wait", "--timeout=1s"];
    let reported = muster(fleet, &drain).await;
    has(&reported, " that were still there, ")?;
    has(&reported, "Nothing moves: all movement is paused by")?;
    has(&reported, "kubectl muster resume ends that")?;
    let reported = muster(fleet, &["drain", "member2", "--dry-run"]).await;
    has(
        &reported,
        "Warning: nothing moves now: all movement is paused by",
    )?;
    let clusters = muster(fleet, &["get", "clusters"]).await;
    has(&clusters, "True,Paused")?;
    has(&clusters, "PAUSED: all movement is paused by")?;
    let status = muster(fleet, &["status"]).await;
    for part in [
        "PAUSED:     all movement is paused by",
        // By the settings that the leader publishes, and not by the defaults.
        "Failover:   OFF",
        "Pace:       0 a second (paused); without the pause 4 workloads a second (primary rate)",
    ] {
        has(&status, part)?;
    }
    let workloads = muster(fleet, &["get", "workloads", "-A", "-o", "wide"]).await;
    let line = workloads
        .lines()
        .find(|it| it.contains(&format!("/{waits} ")));
    has(line.unwrap_or(&workloads), "member1(2)")?;
    has(line.unwrap_or(&workloads), "Paused")?;
    let clusters = muster(fleet, &["get", "clusters"]).await;
    has(&clusters, "failover.muster.io/drain:NoExecute")?;
    has(
        &muster(fleet, &["get", "clusters", "-o", "name"]).await,
        "cluster.cluster.karmada.io/member1",
    )?;
    has(&muster(fleet, &["top", "--sort", "cpu"]).await, "(sum)")?;
    has(&muster(fleet, &["version"]).await, "Control plane:")?;
    let template = format!("deployment/{waits}");
    let why = muster(fleet, &["explain", &template, "-n", "default"]).await;
    has(&why, "Stays where it is: all movement is paused")?;
    let typo = muster(fleet, &["explain", "deployment/web-", "-n", "default"]).await;
    has(&typo, "is it web-0 or web-1")?;
    let gone = fleet.observer.view.bindings.list();
    let moved = gone
        .iter()
        .find(|it| !it.spec.graceful_eviction_tasks.is_empty());
    let moved = moved.map(|it| it.spec.resource.name.clone()).unwrap();
    let why = muster(fleet, &["explain", "deploy", &moved, "-n", "default"]).await;
    has(&why, "its copy there waits: ")?;
    has(&why, "has not reported its copy yet")?;
    has(
        &muster(fleet, &["simulate", "--lost=member2"]).await,
        "Failover is OFF",
    )
}
