//! Failover of clusters as a policy asks for it, from the policy to the Works: what becomes of the
//! old copy in each purge mode, in both spellings.

use http::StatusCode;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::merge;
use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::{GracefulEvictionTask, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::k8s::Deployment;
use muster_shared::names;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, shares};

mod recovery;

/// Drives the workload out of the cluster that it runs in, with a policy that says this of the
/// failover of clusters, and waits until it is placed in the other; gives the cluster that was
/// left, and the other.
async fn evict(bench: &Bench, behavior: &Value) -> (&'static str, &'static str) {
    let more = json!({ "failover": { "cluster": behavior } });
    let (here, there) = bench.in_one_cluster(more).await;
    let binding = bench.here::<ResourceBinding>().get("web-deployment").await;
    let failover = binding.unwrap().spec.failover.unwrap();
    assert_eq!(
        json!(failover.cluster),
        *behavior,
        "the binding has what the policy says"
    );
    taint(bench, here).await;
    bench
        .bound("web-deployment", "it is placed elsewhere", |binding| {
            shares(binding) == [(there, 4)]
        })
        .await;
    (here, there)
}

async fn taint(bench: &Bench, cluster: &str) {
    let taints = json!([{ "key": "example.com/failed", "effect": "PreferNoExecute" }]);
    merge::<Cluster>(
        &bench.all(),
        cluster,
        json!({ "spec": { "taints": taints } }),
    )
    .await;
}

fn asks(mode: &str) -> Value {
    json!({ "purgeMode": mode, "tolerationSeconds": 0 })
}

async fn tasks(bench: &Bench) -> Vec<GracefulEvictionTask> {
    let binding = bench.here::<ResourceBinding>().get("web-deployment").await;
    binding.unwrap().spec.graceful_eviction_tasks
}

/// Sees that the old copy is there and nothing removes it.
async fn is_kept(bench: &Bench, cluster: &str) {
    let work = names::work("Deployment", "web", "default");
    let held: Work = bench.works(cluster).get(&work).await.unwrap();
    assert!(
        held.metadata.deletion_timestamp.is_none(),
        "the old copy goes"
    );
}

/// Sends another workload to a cluster: what was to be written before has been by then.
async fn settled(bench: &Bench, cluster: &str) {
    bench.deploy("witness").await;
    bench.place("witness", json!({})).await;
    bench.sent(cluster, "Deployment", "witness", |_| true).await;
}

#[tokio::test]
async fn gracefully_the_old_copy_goes_when_the_new_one_is_healthy() {
    for (mode, gates) in [
        ("Graciously", ""),
        // The gate is for the classic mode: here the purge mode alone decides.
        ("Gracefully", "GracefulEviction=false"),
    ] {
        let bench = Bench::start().await;
        let _control_plane = bench.evicting_control_plane(Settings {
            feature_gates: gates.parse().unwrap(),
            ..Settings::default()
        });
        let (here, there) = evict(&bench, &asks(mode)).await;
        let tasks = tasks(&bench).await;
        let [task] = &tasks[..] else {
            panic!("expected one task, got {tasks:?}")
        };
        assert_eq!(
            (
                task.from_cluster.as_str(),
                task.reason.as_str(),
                task.producer.as_str(),
                task.replicas,
                task.grace_period_seconds,
                task.suppress_deletion,
            ),
            (
                here,
                "TaintUntolerated",
                "TaintManager",
                Some(4),
                None,
                None
            ),
        );
        bench.sent(there, "Deployment", "web", |_| true).await;
        // What would remove it has been done by then.
        settled(&bench, there).await;
        is_kept(&bench, here).await;
        bench.report(there, "web", 4).await;
        bench.withdrawn(here, "Deployment", "web").await;
        bench
            .bound("web-deployment", "the task is over", |binding| {
                binding.spec.graceful_eviction_tasks.is_empty()
            })
            .await;
    }
}

#[tokio::test]
async fn default_tolerations_are_not_stored_with_the_placement_of_the_policy() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane_with(Settings {
        default_not_ready_toleration_seconds: Some(300),
        default_unreachable_toleration_seconds: Some(200),
        ..Settings::default()
    });
    let own = json!([{
        "key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 7,
    }]);
    bench.deploy("own").await;
    let policy = json!({ "placement": { "clusterTolerations": own } });
    bench.place("own", policy).await;
    let placed = |binding: &ResourceBinding| !binding.spec.clusters.is_empty();
    let binding = until(&bench.here(), "own-deployment", "it is placed", placed).await;
    let placement = binding
        .spec
        .placement
        .as_deref()
        .cloned()
        .unwrap_or_default();
    assert_eq!(json!(placement.cluster_tolerations), own);
}

/// Refuses whatever is asked about the Works of a cluster.
fn refuse_works_in(bench: &Bench, cluster: &str) {
    let scope = Scope::path(format!("karmada-es-{cluster}/works/"));
    let refused = Effect::Answer(StatusCode::FORBIDDEN);
    bench.faults().inject_for(scope, refused);
}

#[tokio::test]
async fn a_rollout_goes_on_although_the_removal_of_an_old_copy_is_refused_which_is_reported() {
    let bench = Bench::start().await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = evict(&bench, &asks("Gracefully")).await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    refuse_works_in(&bench, here);
    bench.report(there, "web", 4).await;
    bench
        .bound("web-deployment", "the task is over", |binding| {
            binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
    bench
        .reported("ResourceBinding", "web-deployment", "SyncWorkFailed")
        .await;
    let change = json!({ "spec": { "minReadySeconds": 7 } });
    merge::<Deployment>(&bench.here(), "web", change).await;
    bench
        .sent(there, "Deployment", "web", |it| {
            it["spec"]["minReadySeconds"] == 7
        })
        .await;
}
