//! From a user's template and policy to Works and back, against a real API: the detector, the
//! binding controller, the status controller and the scheduler together, with the test in the place
//! of the agents.

mod bench;
mod cluster_evictions;
mod cluster_wide;
mod conflict;
mod definitions;
mod dependencies;
mod detector;
mod failing;
mod identity;
mod interpreter_webhooks;
mod interpreters;
mod jobs;
mod overrides;
mod policy_status;
mod taint_policy_status;

use std::collections::BTreeMap;

use bench::{Bench, POLICY_ID, shares};
use futures::StreamExt;
use kube::api::{WatchEvent, WatchParams};
use muster_e2e::harness::objects::{create, delete, list, merge};
use muster_e2e::harness::test_bed::{PATIENCE, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::k8s::{Api, ConfigMap, Deployment, ResourceExt};
use serde_json::{Value, json};
use tokio::time::timeout;

#[tokio::test]
async fn a_template_waits_for_its_policy_and_then_goes_where_that_says() {
    let bench = Bench::start().await;
    let bindings: Api<ResourceBinding> = bench.here();
    let mut seen = bindings
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    for member in ["m1", "m2"] {
        let half = |manifest: &Value| {
            manifest["spec"]["replicas"] == 2
                && manifest["metadata"]["labels"]["karmada.io/managed"] == "true"
        };
        bench.sent(member, "Deployment", "web", half).await;
    }
    let policy: PropagationPolicy = bench.here().get("web").await.unwrap();
    let id = &policy.labels()[POLICY_ID];
    until::<Deployment>(&bench.here(), "web", "the policy's claim", |it| {
        it.labels().get(POLICY_ID) == Some(id)
    })
    .await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(&binding.labels()[POLICY_ID], id);
    assert_eq!(shares(&binding), [("m1", 2), ("m2", 2)]);
    let first = timeout(PATIENCE, seen.next()).await.unwrap();
    let Some(Ok(WatchEvent::Added(first))) = first else {
        panic!("expected the new binding, got {first:?}")
    };
    assert_eq!(
        shares(&first),
        shares(&binding),
        "nobody sees it without clusters"
    );
    // The claim comes after binding and Works, which said it from the start: it costs no second
    // write of either. What would be written again is written before another workload is carried
    // out.
    bench.witness().await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(binding.metadata.generation, Some(1));
    for member in ["m1", "m2"] {
        for work in list(&bench.works(member)).await {
            let manifest = &work.spec.workload.manifests[0].0;
            assert_eq!(work.metadata.generation, Some(1), "{manifest}");
            assert!(
                manifest["metadata"]["labels"][POLICY_ID].is_string(),
                "{manifest}"
            );
        }
    }
}

#[tokio::test]
async fn a_template_is_followed_to_every_member_and_a_deleted_policy_removes_nothing() {
    let (bench, _control_plane) = Bench::with_web(json!({})).await;
    merge::<Deployment>(
        &bench.here(),
        "web",
        json!({ "spec": { "replicas": 6 }, "metadata": { "labels": { "a": "b" } } }),
    )
    .await;
    for member in ["m1", "m2"] {
        let new = |manifest: &Value| {
            manifest["spec"]["replicas"] == 3 && manifest["metadata"]["labels"]["a"] == "b"
        };
        bench.sent(member, "Deployment", "web", new).await;
    }

    let policies: Api<PropagationPolicy> = bench.here();
    delete(&policies, "web").await;
    let free = |labels: &BTreeMap<String, String>| !labels.contains_key(POLICY_ID);
    until::<Deployment>(&bench.here(), "web", "the policy let go of it", |it| {
        free(it.labels())
    })
    .await;
    bench
        .bound("web-deployment", "the policy let go of it", |it| {
            free(it.labels())
        })
        .await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let kept: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(shares(&kept), [("m1", 3), ("m2", 3)]);
}

#[tokio::test]
async fn what_a_workload_refers_to_goes_and_comes_with_it() {
    let (bench, _control_plane) = Bench::with_web(json!({ "propagateDeps": true })).await;
    let conf = json!({ "metadata": { "name": "web-conf" }, "data": { "a": "1" } });
    create::<ConfigMap>(&bench.here(), conf).await;
    for member in ["m1", "m2"] {
        bench
            .sent(member, "ConfigMap", "web-conf", |manifest| {
                manifest["data"]["a"] == "1"
            })
            .await;
    }
    merge::<ConfigMap>(&bench.here(), "web-conf", json!({ "data": { "a": "2" } })).await;
    bench
        .sent("m2", "ConfigMap", "web-conf", |manifest| {
            manifest["data"]["a"] == "2"
        })
        .await;
    let templates: Api<Deployment> = bench.here();
    delete(&templates, "web").await;
    for member in ["m1", "m2"] {
        bench.withdrawn(member, "ConfigMap", "web-conf").await;
    }
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    bench.deploy_with_map("web").await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Deployment", "web", |_| true).await;
        bench.report(member, "web", 2).await;
    }
    bench.shows_ready("web", 4).await;
    control_plane.stop().await.unwrap();
    let before = bench.versions("witness").await;
    let _control_plane = bench.control_plane();
    // Whatever else was to be written comes before this is done.
    bench.witness().await;
    assert_eq!(bench.versions("witness").await, before);
}
