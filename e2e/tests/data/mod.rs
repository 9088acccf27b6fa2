//! Data arrives before the workload: a StatefulSet fails over, comes back, is drained and returns,
//! and the objects of two replication engines go ahead of it each time.

mod engine;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::fleet::Fleet;
use muster_e2e::harness::observer::View;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::names::condition;

use self::engine::Engines;
use crate::support::{kubectl, pair, taint_policy, until_ready};

/// Longest time for a step.
const SOON: Duration = Duration::from_mins(2);

/// The kinds of the engines, as far as Muster uses them.
const DEFINITIONS: &str = include_str!("definitions.yaml");
/// The workload, the objects of the engines, and their policies.
const WORKLOAD: &str = include_str!("workload.yaml");

/// Waits for members that serve the kinds of the engines: a workload whose data is placed in one of
/// them, before the other one says so, is at home there.
fn serve_engines(view: &View) -> Result<(), String> {
    let clusters = view.clusters.list();
    let serves = |cluster: &Cluster, kind: &str| {
        let enabled = cluster.status.iter().flat_map(|it| &it.api_enablements);
        let mut resources = enabled.flat_map(|it| &it.resources);
        resources.any(|it| it.kind == kind)
    };
    for kind in ["VolumeReplication", "VolumeReplicationGroup"] {
        if let Some(cluster) = clusters.iter().find(|it| !serves(it, kind)) {
            return Err(format!("{} does not serve {kind}", cluster.name_any()));
        }
    }
    Ok(())
}

/// Runs a fleet with the workload in one member, and passes on the name of that member.
async fn with_data(
    name: &str,
    edit: impl Fn(&str) -> String,
    steps: impl AsyncFnOnce(&Arc<Fleet>, &Engines, &str) -> anyhow::Result<()>,
) {
    pair(&format!("data-{name}"), async |fleet| {
        for member in fleet.members.values() {
            apply(&member.api.client, DEFINITIONS).await?;
        }
        fleet.apply(DEFINITIONS).await?;
        let what = "all members serve the kinds";
        fleet.observer.await_that(what, SOON, serve_engines).await?;
        let engines = Engines::start(fleet).await;
        let taints = taint_policy(1, 5);
        fleet
            .apply(&format!("{taints}---{}", edit(WORKLOAD)))
            .await?;
        let first = engines.until_started(1, SOON).await?;
        engines.until_only_primary(&first, SOON).await?;
        steps(fleet, &engines, &first).await?;
        engines.end()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_goes_ahead_of_a_workload_that_fails_over_fails_back_and_is_drained() {
    with_data("moves", str::to_owned, async |fleet, engines, first| {
        let fenced = |view: &View| {
            let binding = view.bindings.get(Some("default"), "db-statefulset");
            let is_fenced = binding
                .is_some_and(|it| conditions::is_true(&it.status().conditions, condition::FENCED));
            is_fenced
                .then_some(())
                .ok_or_else(|| "the condition Fenced".to_owned())
        };
        let what = "its agent confirms that it fences it";
        fleet.observer.await_that(what, SOON, fenced).await?;
        fleet.cut(first)?;
        let second = engines.until_started(2, SOON).await?;
        anyhow::ensure!(second != first, "it started in {first} again");
        fleet.heal(first)?;
        // Its policy brings it back when the cluster has been healthy for a while.
        let third = engines.until_started(3, SOON).await?;
        anyhow::ensure!(third == first, "it started in {third}");
        engines.until_only_primary(first, SOON).await?;
        let kubeconfig = &fleet.api.kubeconfig;
        kubectl::answer(kubeconfig, &["drain", first]).await?;
        let fourth = engines.until_started(4, SOON).await?;
        anyhow::ensure!(fourth == second, "it started in {fourth}");
        engines.until_only_primary(&second, SOON).await?;
        kubectl::answer(kubeconfig, &["undrain", first]).await?;
        let fifth = engines.until_started(5, SOON).await?;
        anyhow::ensure!(fifth == first, "it started in {fifth}");
        engines.until_only_primary(first, SOON).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_nothing_fences_stays_with_its_data_in_a_silent_cluster_and_is_reported() {
    let unfenced = |text: &str| text.replace("      fencing:\n        afterSeconds: 15\n", "");
    with_data("unfenced", unfenced, async |fleet, engines, first| {
        fleet.cut(first)?;
        let waits = |view: &View| {
            let binding = view.bindings.get(Some("default"), "db-statefulset");
            let binding = binding
                .context("the binding")
                .map_err(|it| it.to_string())?;
            let pending = conditions::get(&binding.status().conditions, "EvictionPending");
            let reported = pending.is_some_and(|it| it.message.contains("cannot be demoted"));
            let is_there = binding.spec.clusters.iter().any(|it| it.name == first);
            (reported && is_there)
                .then_some(())
                .ok_or_else(|| format!("{pending:?}"))
        };
        fleet
            .observer
            .await_that("it is reported", SOON, waits)
            .await?;
        fleet.heal(first)?;
        until_ready(fleet).await?;
        engines.until_only_primary(first, SOON).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_fences_itself_is_promoted_while_the_old_cluster_is_silent() {
    // What the old cluster does to the data is the storage's affair there: it is not watched.
    let promoting = |text: &str| {
        text.replace("      fencing:\n        afterSeconds: 15\n", "")
            .replace("# whenUnreachable", "whenUnreachable")
    };
    with_data("promoting", promoting, async |fleet, engines, first| {
        fleet.cut(first)?;
        let second = engines.until_started(2, SOON).await?;
        anyhow::ensure!(second != first, "it started in {first} again");
        fleet.heal(first)?;
        engines.until_only_primary(&second, SOON).await?;
        engines.forgive();
        Ok(())
    })
    .await;
}
