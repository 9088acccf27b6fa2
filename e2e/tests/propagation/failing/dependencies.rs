//! Applications that move take along what they refer to.

use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::until;
use muster_shared::api::work::Work;
use muster_shared::k8s::ConfigMap;
use muster_shared::names;
use serde_json::json;

use super::{fails, running};
use crate::propagation::bench::Bench;

/// Makes the map that the Deployment `web` refers to.
async fn configure(bench: &Bench) {
    let conf = json!({ "metadata": { "name": "web-conf" }, "data": { "a": "1" } });
    create::<ConfigMap>(&bench.here(), conf).await;
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
