//! What people look at while clusters are silent, and when they are heard again.

use muster_e2e::harness::objects::merge_status;
use muster_shared::api::binding::{ResourceBinding, ResourceHealth};
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::{Api, Deployment};
use serde_json::{Value, json};

use crate::propagation::bench::Bench;

/// Writes the condition Ready of a cluster, as the monitor does and as the agent does.
async fn is_ready(bench: &Bench, cluster: &str, status: &str, reason: &str) {
    let clusters: Api<Cluster> = bench.all();
    let patch = json!({ "status": { "conditions": [{
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }] } });
    merge_status(&clusters, cluster, &patch).await;
}

/// Deploys a workload to both clusters, which report two copies each as running.
async fn runs(bench: &Bench, name: &str) {
    bench.deploy(name).await;
    bench.place(name, json!({})).await;
    for cluster in ["m1", "m2"] {
        bench.sent(cluster, "Deployment", name, |_| true).await;
        reports(bench, cluster, name, 2).await;
    }
    counts(bench, name, [4, 4, 4, 4]).await;
}

async fn reports(bench: &Bench, cluster: &str, name: &str, updated: i64) {
    let status = json!({
        "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": updated,
        "generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 1,
    });
    bench.report_that(cluster, name, "Healthy", status).await;
}

/// Waits until a template counts copies: all, updated, ready and available ones.
async fn counts(bench: &Bench, name: &str, expected: [i32; 4]) {
    let api: Api<Deployment> = bench.here();
    let what = format!("it counts {expected:?}");
    muster_e2e::harness::test_bed::until(&api, name, &what, |it: &Deployment| {
        let status = it.status.clone().unwrap_or_default();
        let found = [
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
        ];
        found.map(Option::unwrap_or_default) == expected
    })
    .await;
}

fn applied(binding: &ResourceBinding) -> Option<&str> {
    conditions::status(&binding.status().conditions, "FullyApplied")
}

/// Returns the health of each cluster's copy, whether it is applied, and the message about it.
fn told(binding: &ResourceBinding) -> Vec<(Option<ResourceHealth>, bool, Option<&str>)> {
    let items = binding.status().aggregated_status.iter();
    items
        .map(|it| (it.health.clone(), it.applied, it.applied_message.as_deref()))
        .collect()
}

#[tokio::test]
async fn a_total_loss_shows_unknown_and_a_recovery_shows_green_again() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    for name in ["web", "other"] {
        runs(&bench, name).await;
    }
    for cluster in ["m1", "m2"] {
        is_ready(&bench, cluster, "Unknown", "ClusterStatusUnknown").await;
    }
    counts(&bench, "web", [4, 4, 0, 0]).await;
    let message = "unknown since 2026-01-02T03:04:05Z (ClusterStatusUnknown): the cluster is silent; it last reported: Healthy";
    let silent = (Some(ResourceHealth::Unknown), false, Some(message));
    bench
        .bound("web-deployment", "both are unknown", |binding| {
            told(binding) == [silent.clone(), silent.clone()] && applied(binding) == Some("Unknown")
        })
        .await;
    // What a cluster reported last stays: state is preserved from it.
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    let items = &binding.status().aggregated_status;
    let last = items[0].status.as_ref().map(|status| &status.0);
    assert_eq!(last.map(|it| &it["readyReplicas"]), Some(&Value::from(2)));

    // A restart takes nothing back and writes nothing.
    counts(&bench, "other", [4, 4, 0, 0]).await;
    let before = bench.versions("other").await;
    drop(control_plane);
    let _control_plane = bench.control_plane();
    // What it has to say about another workload comes after what it found at its start.
    reports(&bench, "m1", "other", 1).await;
    counts(&bench, "other", [4, 3, 0, 0]).await;
    assert_eq!(bench.versions("other").await, before);

    for cluster in ["m1", "m2"] {
        is_ready(&bench, cluster, "True", "ClusterReady").await;
    }
    counts(&bench, "web", [4, 4, 4, 4]).await;
    let heard = (Some(ResourceHealth::Healthy), true, None);
    bench
        .bound("web-deployment", "both are healthy again", |binding| {
            told(binding) == [heard.clone(), heard.clone()] && applied(binding) == Some("True")
        })
        .await;
}
