//! Kinds of several components (gate `MultiplePodTemplatesScheduling`): placed and moved as whole
//! sets, by what one set needs.

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{merge, merge_status};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::Api;
use serde_json::{Value, json};

use crate::propagation::bench::Bench;
use crate::propagation::interpreters::{
    customize_widgets, of_widget, report, widget, with_widgets,
};

/// One manager and as many workers as the object says, each with a CPU.
const COMPONENTS: &str = "
function GetComponents(o)
  local needs = { resourceRequest = { cpu = '1' } }
  return {
    { name = 'manager', replicas = 1, replicaRequirements = needs },
    { name = 'worker', replicas = o.spec.size, replicaRequirements = needs },
  }
end";
const HEALTH: &str = "function InterpretHealth(o) return o.status.phase == 'Running' end";

async fn room(bench: &Bench, member: &str, cpu: &str) {
    let clusters: Api<Cluster> = bench.all();
    let status = json!({ "status": { "resourceSummary": { "allocatable": { "cpu": cpu } } } });
    merge_status(&clusters, member, &status).await;
}

fn in_one_cluster() -> Value {
    json!({
        "failover": { "cluster": { "purgeMode": "Gracefully", "tolerationSeconds": 0 } },
        "placement": {
            "clusterAffinity": { "clusterNames": ["m1", "m2"] },
            "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
        },
    })
}

fn placed(binding: &ResourceBinding, member: &str) -> bool {
    let [target] = binding.spec.clusters.as_slice() else {
        return false;
    };
    target.name == member
}

#[tokio::test]
async fn a_set_of_components_goes_where_all_of_it_has_room_and_nowhere_else() {
    let bench = with_widgets().await;
    let scripts = json!({
        "componentResource": { "luaScript": COMPONENTS },
        "healthInterpretation": { "luaScript": HEALTH },
    });
    customize_widgets(&bench, &scripts).await;
    // Three CPUs are needed: the larger component alone would fit into m1.
    room(&bench, "m1", "2").await;
    room(&bench, "m2", "8").await;
    let _control_plane = bench.evicting_control_plane(Settings {
        feature_gates: "MultiplePodTemplatesScheduling=true".parse().unwrap(),
        ..Settings::default()
    });
    widget(&bench, "w", 2, &in_one_cluster()).await;
    bench
        .bound("w-widget", "it is placed in m2", |it| placed(it, "m2"))
        .await;
    bench
        .sent("m2", "Widget", "w", |object| object["spec"]["size"] == 2)
        .await;
    let binding: ResourceBinding = bench.here().get("w-widget").await.unwrap();
    let components = &binding.spec.components;
    let names: Vec<_> = components
        .iter()
        .map(|it| (it.name.as_str(), it.replicas))
        .collect();
    assert_eq!(names, [("manager", 1), ("worker", 2)]);
    let running = json!({ "phase": "Running" });
    report(&bench, "m2", &of_widget("w"), "Healthy", &running).await;

    // The only other cluster has no room for the set: it stays, and says why.
    let taints = json!([{ "key": "example.com/failed", "effect": "PreferNoExecute" }]);
    let tainted = json!({ "spec": { "taints": taints } });
    merge::<Cluster>(&bench.all(), "m2", tainted).await;
    bench
        .bound("w-widget", "a condition says that it stays", |it| {
            let mut conditions = it.status().conditions.iter();
            placed(it, "m2") && conditions.any(|it| it.reason == "NowhereToGo")
        })
        .await;

    room(&bench, "m1", "3").await;
    bench
        .bound("w-widget", "it moves to m1", |it| placed(it, "m1"))
        .await;
    bench
        .sent("m1", "Widget", "w", |object| object["spec"]["size"] == 2)
        .await;
    // The old set stays until the new one runs.
    bench
        .bound("w-widget", "it is leaving m2", |it| {
            it.spec.graceful_eviction_tasks.len() == 1
        })
        .await;
    report(&bench, "m1", &of_widget("w"), "Healthy", &running).await;
    bench.withdrawn("m2", "Widget", "w").await;
}
