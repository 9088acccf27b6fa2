//! Failover that a ClusterPropagationPolicy asks for: of resources without a namespace, which have
//! a ClusterResourceBinding.

use k8s_openapi::api::rbac::v1::ClusterRole;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBindingSpec};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterPropagationPolicy;
use muster_shared::api::work::Work;
use muster_shared::k8s::Api;
use muster_shared::names;
use serde_json::{Value, json};

use crate::propagation::bench::Bench;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Creates a policy that places one object in one of both clusters.
async fn place(bench: &Bench, selector: Value, failover: Value) {
    let policy = json!({
        "metadata": { "name": "wide" },
        "spec": {
            "resourceSelectors": [selector],
            "propagateDeps": true,
            "failover": failover,
            "placement": {
                "clusterAffinity": { "clusterNames": ["m1", "m2"] },
                "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
            },
        },
    });
    create::<ClusterPropagationPolicy>(&bench.all(), policy).await;
}

/// Returns the cluster that a binding is in, and the other.
fn clusters(spec: &ResourceBindingSpec) -> (&'static str, &'static str) {
    match spec.clusters[0].name.as_str() {
        "m1" => ("m1", "m2"),
        _ => ("m2", "m1"),
    }
}

fn is_in(spec: &ResourceBindingSpec, cluster: &str) -> bool {
    let clusters = &spec.clusters;
    matches!(&clusters[..], [target] if target.name == cluster)
}

/// Reports a ClusterRole as an agent would: applied, and without a status.
async fn report_role(bench: &Bench, member: &str) {
    let identifier = json!({
        "ordinal": 0, "group": RBAC, "version": "v1", "kind": "ClusterRole",
        "resource": "clusterroles", "name": "reader",
    });
    let reported = json!({ "health": "Healthy" });
    bench.report_object(member, &identifier, reported).await;
}

fn role_work() -> String {
    names::work("ClusterRole", "reader", "")
}

#[tokio::test]
async fn a_resource_without_a_namespace_leaves_a_failed_cluster_once_it_is_replaced() {
    let bench = Bench::start().await;
    let version = format!("{RBAC}/v1");
    bench
        .serve(&[(&version, "clusterroles", "ClusterRole")])
        .await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let role = json!({ "metadata": { "name": "reader" }, "rules": [] });
    create::<ClusterRole>(&bench.all(), role).await;
    let selector = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "name": "reader",
    });
    let behavior = json!({ "purgeMode": "Gracefully", "tolerationSeconds": 0 });
    place(&bench, selector, json!({ "cluster": behavior })).await;
    let bindings: Api<ClusterResourceBinding> = bench.all();
    let name = "reader-clusterrole";
    let placed = until(&bindings, name, "it is placed", |binding| {
        binding.spec.clusters.len() == 1
    })
    .await;
    let (here, there) = clusters(&placed.spec);
    let (old, new) = (bench.works(here), bench.works(there));
    until(&old, &role_work(), "it arrives", |_: &Work| true).await;
    report_role(&bench, here).await;

    let taints = json!([{ "key": "example.com/failed", "effect": "PreferNoExecute" }]);
    merge::<Cluster>(&bench.all(), here, json!({ "spec": { "taints": taints } })).await;
    let moved = until(&bindings, name, "it is placed elsewhere", |binding| {
        is_in(&binding.spec, there)
    })
    .await;
    let tasks = &moved.spec.graceful_eviction_tasks;
    assert!(
        matches!(&tasks[..], [task] if task.from_cluster == here && task.producer == "TaintManager"),
        "{tasks:?}"
    );
    until(&new, &role_work(), "it arrives", |_: &Work| true).await;
    // What would remove the old copy has been done by then.
    let namespace = json!({ "metadata": { "name": "shop" } });
    create::<muster_shared::k8s::Namespace>(&bench.all(), namespace).await;
    let shop = names::work("Namespace", "shop", "");
    until(&new, &shop, "it arrives", |_: &Work| true).await;
    let kept = old.get(&role_work()).await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none());

    report_role(&bench, there).await;
    let leaving = |work: &Work| work.metadata.deletion_timestamp.is_some();
    until(&old, &role_work(), "it is being removed", leaving).await;
    until(&bindings, name, "the task is over", |binding| {
        is_in(&binding.spec, there) && binding.spec.graceful_eviction_tasks.is_empty()
    })
    .await;
}
