//! Workloads that are placed where something they refer to is not.

use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::conditions;
use muster_shared::k8s::{Api, ConfigMap};
use serde_json::json;

use crate::propagation::bench::Bench;

/// Waits until the binding of `web` says whether it lacks something; returns the message.
async fn reported(bench: &Bench, what: &str, status: &str) -> String {
    const KIND: &str = "DependenciesMissing";
    let bindings: Api<ResourceBinding> = bench.here();
    let condition = |it: &ResourceBinding| {
        let all = &it.status.as_ref()?.conditions;
        conditions::get(all, KIND).cloned()
    };
    let holds = |it: &ResourceBinding| condition(it).is_some_and(|it| it.status == status);
    let binding = until(&bindings, "web-deployment", what, holds).await;
    condition(&binding).unwrap().message
}

#[tokio::test]
async fn a_workload_says_what_it_lacks_where_its_config_map_is_placed_by_itself_elsewhere() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.serve(&[("v1", "configmaps", "ConfigMap")]).await;
    let settings = json!({ "metadata": { "name": "web-conf" }, "data": { "a": "1" } });
    create::<ConfigMap>(&bench.here(), settings).await;
    bench.deploy("web").await;
    bench
        .place(
            "settings",
            json!({
                "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "web-conf" }],
                "placement": { "clusterAffinity": { "clusterNames": ["m1"] } },
            }),
        )
        .await;
    bench.sent("m1", "ConfigMap", "web-conf", |_| true).await;
    bench.place("web", json!({})).await;
    let message = reported(&bench, "it lacks its ConfigMap", "True").await;
    let lacks = "ConfigMap web-conf is not placed in m2; the workload is";
    assert!(message.contains(lacks), "{message}");
    let policies: Api<PropagationPolicy> = bench.here();
    let along = json!({ "spec": { "propagateDeps": true } });
    merge(&policies, "web", along).await;
    bench.sent("m2", "ConfigMap", "web-conf", |_| true).await;
    reported(&bench, "it takes its ConfigMap along", "False").await;
    // By itself again: what it refers to leaves the cluster, and comes back by its own policy.
    let by_itself = json!({ "spec": { "propagateDeps": false } });
    merge(&policies, "web", by_itself).await;
    reported(&bench, "it lacks its ConfigMap again", "True").await;
    let everywhere = json!({ "spec": { "placement": { "clusterAffinity": null } } });
    merge(&policies, "settings", everywhere).await;
    reported(&bench, "its ConfigMap is placed where it is", "False").await;
}
