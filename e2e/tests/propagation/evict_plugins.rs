//! What ends a graceful eviction where `--evict-plugins` names one plugin.

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::merge;
use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::work::Work;
use muster_shared::names;
use serde_json::json;

use crate::propagation::bench::{Bench, shares};

/// Places a Deployment in one cluster, and makes it leave that for the other while the old copy
/// stays; returns the cluster that is left, and the other.
async fn leaving(bench: &Bench) -> (&'static str, &'static str) {
    let (here, there) = bench.in_one_cluster(json!({})).await;
    place(bench, there, here).await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    (here, there)
}

/// Places the workload in a cluster, with a task of leaving `from`.
async fn place(bench: &Bench, cluster: &str, from: &str) {
    let spec = json!({ "spec": {
        "clusters": [{ "name": cluster, "replicas": 4 }],
        "gracefulEvictionTasks": [{
            "fromCluster": from, "purgeMode": "Gracefully", "reason": "Test", "producer": "test", "replicas": 4,
        }],
    } });
    merge::<ResourceBinding>(&bench.here(), "web-deployment", spec).await;
}

/// Sees that a cluster is still being left, when all that was to be done has been.
async fn is_still_left(bench: &Bench, cluster: &str) {
    bench.witness().await;
    let bindings = bench.here::<ResourceBinding>();
    let binding = bindings.get("web-deployment").await.unwrap();
    let tasks = &binding.spec.graceful_eviction_tasks;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0].from_cluster, cluster);
    is_there(bench, cluster).await;
}

async fn is_there(bench: &Bench, cluster: &str) {
    let work = names::work("Deployment", "web", "default");
    let held: Work = bench.works(cluster).get(&work).await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_none(), "the copy goes");
}

#[tokio::test]
async fn with_back_in_result_alone_a_healthy_new_copy_ends_nothing_and_a_return_does() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane_with(Settings {
        evict_plugins: "BackInResult".parse().unwrap(),
        ..Settings::default()
    });
    let (here, there) = leaving(&bench).await;
    bench.report(there, "web", 4).await;
    bench
        .bound("web-deployment", "the report is known", |binding| {
            let mut reports = binding.status().aggregated_status.iter();
            reports.any(|report| {
                let health = report.health.as_ref();
                report.cluster_name == there && health.is_some_and(|it| it.as_str() == "Healthy")
            })
        })
        .await;
    is_still_left(&bench, here).await;
    place(&bench, here, here).await;
    let is_over = |binding: &ResourceBinding| binding.spec.graceful_eviction_tasks.is_empty();
    let bindings = bench.here::<ResourceBinding>();
    let back = until(&bindings, "web-deployment", "the task is over", is_over).await;
    assert_eq!(shares(&back), [(here, 4)]);
    is_there(&bench, here).await;
}
