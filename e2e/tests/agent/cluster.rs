//! Clusters as the fleet API takes them, and what the control plane does for one whatever else
//! fails.

use http::StatusCode;
use kube::api::{Patch, PatchParams, PostParams};
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::typed;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::ResourceExt;
use serde_json::{Value, json};

use crate::agent::bench::{Bench, until};
use crate::agent::twins::control_plane;

const NAME: &str = "m0";

async fn create(bench: &Bench, name: &str, more: Value) -> Result<Cluster, kube::Error> {
    let mut cluster = json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    let fields = cluster["spec"].as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    bench
        .clusters()
        .create(&PostParams::default(), &typed(cluster))
        .await
}

#[tokio::test]
async fn an_id_is_set_once() {
    let bench = Bench::start().await;
    let clusters = bench.clusters();
    create(&bench, NAME, json!({})).await.unwrap();
    for (id, taken) in [
        (json!("1"), true),
        (json!("1"), true),
        (json!("2"), false),
        (json!(""), false),
        (json!(null), false),
    ] {
        let patch = json!({"spec": {"id": id}});
        let answer = clusters
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        assert_eq!(answer.is_ok(), taken, "{id}: {answer:?}");
    }
}

#[tokio::test]
async fn an_api_endpoint_is_an_address_with_a_scheme() {
    let bench = Bench::start().await;
    for (n, (endpoint, taken)) in [
        ("https://10.0.0.1:6443", true),
        ("http://10.0.0.1", true),
        ("10.0.0.1:6443", false),
        ("10.0.0.1", false),
        ("//10.0.0.1", false),
        ("https://", false),
        ("https://user@10.0.0.1", false),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = create(&bench, &format!("c{n}"), json!({"apiEndpoint": endpoint})).await;
        assert_eq!(answer.is_ok(), taken, "{endpoint}: {answer:?}");
    }
}

#[tokio::test]
async fn a_silent_cluster_is_tainted_even_where_its_namespace_cannot_be_created() {
    let bench = Bench::start().await;
    let _control_plane = control_plane(&bench);
    create(&bench, "known", json!({})).await.unwrap();
    let in_order = |cluster: &Cluster| !cluster.finalizers().is_empty();
    until(
        &bench.clusters(),
        "known",
        "the control plane works",
        in_order,
    )
    .await;
    let scope = Scope::path("/api/v1/namespaces");
    let broken = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    bench.fleet.faults().inject_for(scope, broken);
    create(&bench, NAME, json!({})).await.unwrap();
    until(
        &bench.clusters(),
        NAME,
        "it is kept in order",
        |cluster: &Cluster| {
            let tainted = cluster
                .spec
                .taints
                .iter()
                .any(|taint| taint.key == "cluster.karmada.io/not-ready");
            tainted && in_order(cluster)
        },
    )
    .await;
}
