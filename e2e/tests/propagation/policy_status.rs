//! Status of policies: how often it is written.

use muster_e2e::harness::test_bed::until;
use muster_shared::api::policy::{PropagationPolicy, PropagationStatus};
use muster_shared::conditions;
use muster_shared::k8s::{Api, Condition};
use serde_json::json;

use crate::propagation::bench::Bench;

/// Returns the path at which the status of a policy is written.
fn path(name: &str) -> String {
    format!("/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies/{name}/status")
}

/// Waits until the status of a policy is as it should be.
async fn reported(
    bench: &Bench,
    policy: &str,
    what: &str,
    holds: impl Fn(&PropagationStatus, &Condition) -> bool,
) -> PropagationStatus {
    let holds = |policy: &PropagationPolicy| {
        policy.status.as_ref().is_some_and(|status| {
            let ready = conditions::get(&status.conditions, "Ready");
            status.observed_generation == policy.metadata.generation
                && ready.is_some_and(|ready| holds(status, ready))
        })
    };
    let api: Api<PropagationPolicy> = bench.here();
    until(&api, policy, what, holds).await.status.unwrap()
}

#[tokio::test]
async fn a_hundred_workloads_cost_their_policy_a_few_writes() {
    const WORKLOADS: u32 = 100;
    let bench = Bench::start().await;
    bench.audit().begin();
    let _control_plane = bench.control_plane();
    let all = json!({ "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment" }] });
    bench.place("all", all).await;
    for number in 0..WORKLOADS {
        bench.deploy(&format!("web-{number}")).await;
    }
    reported(&bench, "all", "all are placed", |status, ready| {
        status.placed == WORKLOADS && ready.status == "True"
    })
    .await;
    let writes = bench.audit().end();
    let own = writes.iter().filter(|it| it.path == path("all")).count();
    println!("{own} writes of the status for {WORKLOADS} workloads");
    assert!(
        (1..=WORKLOADS as usize / 5).contains(&own),
        "{own} writes of the status"
    );
}
