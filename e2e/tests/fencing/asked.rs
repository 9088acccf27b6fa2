//! A move of a fenced workload that a person asks for, and a kind that is deleted.

use anyhow::Context as _;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_e2e::harness::observer::View;
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::rebalancer::WorkloadRebalancer;
use muster_shared::k8s::Api;
use serde_json::json;

use crate::fencing::scene::{JOB, Scene, fenced, fenced_in, placed, policy};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_asks_for_a_new_placement_waits_for_the_fence_of_a_silent_cluster() {
    fenced("rebalancer", async |scene: &Scene| {
        let fleet = &scene.fleet;
        fleet.cut(&scene.victim)?;
        scene.until_unknown().await?;
        let rebalancers: Api<WorkloadRebalancer> = Api::all(fleet.api.client.clone());
        let ledger = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "ledger",
        });
        let asked = serde_json::from_value(json!({
            "apiVersion": "apps.karmada.io/v1alpha1",
            "kind": "WorkloadRebalancer",
            "metadata": { "name": "away" },
            "spec": { "workloads": [ledger] },
        }))?;
        rebalancers.create(&PostParams::default(), &asked).await?;
        let is_away = |view: &View| placed(view).is_some_and(|placed| placed != scene.victim);
        scene.until("it is placed elsewhere", is_away).await?;
        scene.until_moved().await?;
        scene.gap()?;
        fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_is_deleted_before_another_cluster_has_it() {
    fenced("daemon", async |scene: &Scene| {
        let fleet = &scene.fleet;
        fleet.apply(&daemon_set()).await?;
        let bindings: Api<ResourceBinding> =
            Api::namespaced(fleet.api.watch_client.clone(), "default");
        let victim = &fenced_in(fleet, "sum-daemonset").await?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"));
        let copies = |member: &str| -> anyhow::Result<Api<DynamicObject>> {
            let client = fleet.member(member)?.api.watch_client.clone();
            Ok(Api::namespaced_with(client, "default", &resource))
        };
        let others = fleet.members.keys().find(|name| *name != victim);
        let (old, new) = (
            copies(victim)?,
            copies(others.context("there is another member")?)?,
        );
        until(&old, "sum", "it is there", |_| true).await;
        fleet.cut(victim)?;
        gone(&old, "sum").await;
        anyhow::ensure!(
            new.get_opt("sum").await?.is_none(),
            "it is in another cluster already"
        );
        until(&new, "sum", "it is in another cluster", |_| true).await;
        fleet.heal(victim)?;
        let is_over = |binding: &ResourceBinding| {
            let of = &binding.status().aggregated_status;
            of.len() == 1 && of[0].cluster_name != *victim
        };
        until(&bindings, "sum-daemonset", "the move is over", is_over).await;
        anyhow::ensure!(old.get_opt("sum").await?.is_none(), "it came back");
        Ok(())
    })
    .await;
}

/// Returns a DaemonSet that is placed as the Job of [`JOB`].
fn daemon_set() -> String {
    let set = JOB
        .replace("batch/v1", "apps/v1")
        .replace("kind: Job", "kind: DaemonSet")
        .replace(
            "  completions: 1000\n",
            "  selector:\n    matchLabels: {app: sum}\n",
        )
        .replace("      restartPolicy: Never\n", "");
    format!("{set}---{}", policy("apps/v1", "DaemonSet", "sum"))
}
