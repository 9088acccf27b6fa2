//! Writes that meet a conflict.

use jiff::{SignedDuration, Timestamp};
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, merge, merge_status};
use muster_e2e::harness::test_bed::{PATIENCE, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::conditions;
use serde_json::json;
use tokio::time::timeout;

use crate::propagation::bench::Bench;

/// Lets the control plane write the status of a binding upon a version that is no longer the
/// present one, because somebody else writes it in that moment.
async fn overtaken(bench: &Bench, name: &str, written: i64, then: impl AsyncFnOnce()) {
    let scope = Scope::user("system:serviceaccount:karmada-system:muster-control-plane")
        .at(format!("/resourcebindings/{name}/status"));
    bench.faults().inject_for(scope, Effect::Hold);
    then().await;
    let held = timeout(PATIENCE, bench.faults().has_held(1)).await;
    held.expect("the control plane writes the status");
    let status = json!({ "status": { "schedulerObservedGeneration": written } });
    merge_status::<ResourceBinding>(&bench.here(), name, status).await;
    bench.faults().heal();
}

#[tokio::test]
async fn what_holds_the_new_copy_back_is_reported_although_others_write_the_status_meanwhile() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane_of("binding");
    bench.deploy("web").await;
    let binding = json!({ "metadata": { "name": "web-deployment" }, "spec": {
        "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web" },
        "clusters": [{ "name": "m1", "replicas": 1 }],
    } });
    create::<ResourceBinding>(&bench.here(), binding).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let says = |expected: &'static str| {
        move |it: &ResourceBinding| {
            let known = it.status.iter().flat_map(|it| &it.conditions).cloned();
            let known: Vec<_> = known.collect();
            conditions::status(&known, "RemovalPending") == Some(expected)
        }
    };

    overtaken(&bench, "web-deployment", 7, async || {
        let moved = json!({ "spec": {
            "clusters": [{ "name": "m2", "replicas": 1 }],
            "gracefulEvictionTasks": [{
                "fromCluster": "m1", "reason": "Test", "producer": "test", "purgeMode": "Directly",
                // Long enough ago for the removal to be reported.
                "creationTimestamp": (Timestamp::now() - SignedDuration::from_secs(60)).to_string(),
            }],
        } });
        merge::<ResourceBinding>(&bench.here(), "web-deployment", moved).await;
    })
    .await;
    let what = "the removal is reported";
    until(&bench.here(), "web-deployment", what, says("True")).await;

    overtaken(&bench, "web-deployment", 8, async || {
        bench.withdrawn("m1", "Deployment", "web").await;
    })
    .await;
    let what = "the end of the removal is reported";
    until(&bench.here(), "web-deployment", what, says("False")).await;
    bench.sent("m2", "Deployment", "web", |_| true).await;
}
