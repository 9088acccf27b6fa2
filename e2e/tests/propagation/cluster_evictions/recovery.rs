//! Clusters that recover while a workload leaves them: the proposal's table of outcomes.

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::merge;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use serde_json::{Value, json};

use super::{asks, evict, is_kept, settled, taint, tasks};
use crate::propagation::bench::{Bench, shares};

/// Takes all taints from a cluster.
async fn recovers(bench: &Bench, cluster: &str) {
    let sound = json!({ "spec": { "taints": null } });
    merge::<Cluster>(&bench.all(), cluster, sound).await;
}

/// Clusters of the policy's choice.
async fn may_be_in(bench: &Bench, clusters: &[&str]) {
    let placement = json!({ "clusterAffinity": { "clusterNames": clusters } });
    let spec: Value = json!({ "spec": { "placement": placement } });
    merge::<PropagationPolicy>(&bench.here(), "web", spec).await;
}

/// Rows 1 to 3: a place was found, and the old copy is still there.
#[tokio::test]
async fn a_migration_goes_on_until_the_new_copy_is_healthy_although_the_old_cluster_is_back() {
    let bench = Bench::start().await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = evict(&bench, &asks("Gracefully")).await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    recovers(&bench, here).await;
    // What is placed there now shows that the recovery is known.
    settled(&bench, here).await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(shares(&binding), [(there, 4)]);
    let tasks = tasks(&bench).await;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0].from_cluster, here);
    is_kept(&bench, here).await;

    bench.report(there, "web", 4).await;
    bench.withdrawn(here, "Deployment", "web").await;
    bench
        .bound("web-deployment", "the migration is over", |binding| {
            shares(binding) == [(there, 4)] && binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
}

/// Checks row 4: a place was found, the old copy is gone, and the new one does not run yet.
#[tokio::test]
async fn a_workload_whose_old_copy_is_gone_does_not_return_when_the_old_cluster_is_back() {
    let bench = Bench::start().await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = evict(&bench, &asks("Immediately")).await;
    bench.withdrawn(here, "Deployment", "web").await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    bench
        .bound("web-deployment", "no task is left", |binding| {
            binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
    recovers(&bench, here).await;
    settled(&bench, here).await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(shares(&binding), [(there, 4)]);
    let web = muster_shared::names::work("Deployment", "web", "default");
    assert!(bench.works(here).get_opt(&web).await.unwrap().is_none());
}

/// Rows 5 and 6, as far as an eviction finds no place: no cluster is left for the workload, and the
/// first cluster recovers.
#[tokio::test]
async fn a_workload_that_has_nowhere_to_go_returns_to_its_first_cluster_when_that_recovers() {
    let bench = Bench::start().await;
    // Clusters that the policy does not choose: most of the fleet is well.
    for other in ["m3", "m4", "m5"] {
        bench.join(other).await;
    }
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = evict(&bench, &asks("Gracefully")).await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    // The second cluster fails before the new copy is healthy.
    taint(&bench, there).await;
    bench
        .bound("web-deployment", "it has nowhere to go", |binding| {
            let pending = pending(binding);
            pending == Some("NowhereToGo")
        })
        .await;
    is_kept(&bench, here).await;
    recovers(&bench, here).await;
    bench
        .bound("web-deployment", "it is placed where it was", |binding| {
            shares(binding) == [(here, 4)]
                && binding
                    .spec
                    .graceful_eviction_tasks
                    .iter()
                    .all(|task| task.from_cluster == there)
        })
        .await;
    is_kept(&bench, here).await;
    bench.report(here, "web", 4).await;
    bench
        .bound("web-deployment", "no task is left", |binding| {
            binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
    bench.withdrawn(there, "Deployment", "web").await;
    is_kept(&bench, here).await;
}

/// Rows 5 and 6 as the proposal has them: the result is empty and a task is there. An eviction does
/// not lead to that here, since it is made only with a place; an edited policy does.
#[tokio::test]
async fn a_workload_without_a_cluster_keeps_its_copy_and_is_placed_back_where_that_is() {
    let bench = Bench::start().await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = bench
        .in_one_cluster(json!({ "failover": { "cluster": asks("Gracefully") } }))
        .await;
    taint(&bench, there).await;
    may_be_in(&bench, &[there]).await;
    bench
        .bound("web-deployment", "it has no cluster, and a task", |binding| {
            let tasks = &binding.spec.graceful_eviction_tasks;
            shares(binding).is_empty()
                && matches!(&tasks[..], [task] if task.from_cluster == here && task.reason == "NoClusterFit")
        })
        .await;
    settled(&bench, here).await;
    is_kept(&bench, here).await;

    may_be_in(&bench, &[here, there]).await;
    bench
        .bound("web-deployment", "it is placed where it was", |binding| {
            shares(binding) == [(here, 4)] && binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
    is_kept(&bench, here).await;
}

/// Returns the reason why the eviction of a workload waits.
fn pending(binding: &ResourceBinding) -> Option<&str> {
    let mut conditions = binding.status().conditions.iter();
    let pending = conditions.find(|condition| condition.type_ == "EvictionPending")?;
    (pending.status == "True").then_some(pending.reason.as_str())
}
