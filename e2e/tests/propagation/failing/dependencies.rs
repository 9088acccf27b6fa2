//! Applications that move take along what they refer to; where that would stay behind, they stay.

use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::api::work::Work;
use muster_shared::k8s::ConfigMap;
use muster_shared::names;
use serde_json::json;

use super::{binding, fails, is_in, running, said, told};
use crate::propagation::bench::Bench;

/// Makes the map that the Deployment `web` refers to.
async fn configure(bench: &Bench) {
    let conf = json!({ "metadata": { "name": "web-conf" }, "data": { "a": "1" } });
    create::<ConfigMap>(&bench.here(), conf).await;
}

fn is_unhealthy(binding: &ResourceBinding) -> bool {
    let mut reports = binding.status().aggregated_status.iter();
    reports.any(|report| report.health == Some("Unhealthy".into()))
}

/// Sees that an object is in a member and that nothing removes it.
async fn is_kept(bench: &Bench, member: &str, kind: &str, name: &str) {
    let work = names::work(kind, name, "default");
    let held: Work = bench.works(member).get(&work).await.unwrap();
    let leaves = held.metadata.deletion_timestamp.is_some();
    assert!(!leaves, "{kind} {name} goes from {member}");
}

#[tokio::test]
async fn an_application_that_moves_takes_its_dependencies_along_and_the_old_copy_keeps_its_own() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    configure(&bench).await;
    let application = json!({ "decisionConditions": { "tolerationSeconds": 1 } });
    let (here, there) = running(&bench, application).await;
    bench.sent(here, "ConfigMap", "web-conf", |_| true).await;
    let map = names::work("ConfigMap", "web-conf", "default");
    let elsewhere = bench.works(there).get_opt(&map).await.unwrap();
    assert!(elsewhere.is_none(), "the map is where the application is");

    fails(&bench, here).await;
    bench.sent(there, "Deployment", "web", |_| true).await;
    bench
        .sent(there, "ConfigMap", "web-conf", |manifest| {
            manifest["data"]["a"] == "1"
        })
        .await;
    is_kept(&bench, here, "Deployment", "web").await;
    is_kept(&bench, here, "ConfigMap", "web-conf").await;
    // As long as both copies are there, both get what changes.
    merge::<ConfigMap>(&bench.here(), "web-conf", json!({ "data": { "a": "2" } })).await;
    for member in [here, there] {
        let is_new = |work: &Work| work.spec.workload.manifests[0].0["data"]["a"] == "2";
        until(&bench.works(member), &map, "the map is the new one", is_new).await;
    }

    bench.report(there, "web", 4).await;
    bench.withdrawn(here, "Deployment", "web").await;
    bench.applied(there, "ConfigMap", "web-conf").await;
    bench.withdrawn(here, "ConfigMap", "web-conf").await;
    is_kept(&bench, there, "ConfigMap", "web-conf").await;
}

#[tokio::test]
async fn an_application_whose_dependencies_stay_behind_is_not_moved_and_says_so() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    let (here, there) = running(
        &bench,
        json!({ "decisionConditions": { "tolerationSeconds": 0 } }),
    )
    .await;
    let alone = json!({ "spec": { "propagateDeps": false } });
    merge::<PropagationPolicy>(&bench.here(), "web", alone).await;
    binding(&bench, "the policy is followed", |binding| {
        !binding.spec.propagate_deps
    })
    .await;
    fails(&bench, here).await;
    binding(&bench, "the failure is known", is_unhealthy).await;
    let rest = said(&bench, "False", "DependenciesStayBehind").await;
    assert!(is_in(&rest, here));
    assert!(told(&rest).unwrap().2.contains("propagateDeps"));
    let dependencies_too = json!({ "spec": { "propagateDeps": true } });
    merge::<PropagationPolicy>(&bench.here(), "web", dependencies_too).await;
    binding(&bench, "it leaves", |binding| is_in(binding, there)).await;
}
