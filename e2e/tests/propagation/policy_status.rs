//! Status of policies: what each selects, what is placed, and why the rest is not.

use muster_e2e::harness::objects::merge;
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
async fn a_policy_says_what_it_selects_what_is_placed_and_why_the_rest_is_not() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    let named =
        |name: &str| json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": name }]);
    // A slip of the pen, and a part that has no effect because failover is off.
    let asks = json!({ "resourceSelectors": named("wbe"), "failover": { "cluster": {} } });
    bench.place("web", asks).await;
    let status = reported(&bench, "web", "it selects nothing", |status, ready| {
        status.selected == 0 && ready.reason == "NothingSelected" && ready.status == "True"
    })
    .await;
    let effective = conditions::get(&status.conditions, "Effective").unwrap();
    assert_eq!(
        (&*effective.status, &*effective.reason),
        ("False", "FailoverOff")
    );
    assert!(
        effective.message.contains("spec.failover.cluster"),
        "{effective:?}"
    );

    let policies: Api<PropagationPolicy> = bench.here();
    let mended = json!({ "spec": { "resourceSelectors": named("web") } });
    merge(&policies, "web", mended).await;
    reported(
        &bench,
        "web",
        "what it selects is placed",
        |status, ready| {
            (status.selected, status.placed, status.refused) == (1, 1, 0) && ready.status == "True"
        },
    )
    .await;

    // Another policy wants the same, and reports who has it.
    bench
        .place("late", json!({ "resourceSelectors": named("web") }))
        .await;
    let status = reported(&bench, "late", "another policy has it", |status, ready| {
        status.selected == 0 && ready.reason == "ClaimedByAnotherPolicy"
    })
    .await;
    let ready = conditions::get(&status.conditions, "Ready").unwrap();
    for part in ["Deployment default/web", "PropagationPolicy default/web"] {
        assert!(ready.message.contains(part), "{}", ready.message);
    }

    // No cluster may have this one.
    bench.deploy("api").await;
    let nowhere = json!({
        "resourceSelectors": named("api"),
        "placement": { "clusterAffinity": { "clusterNames": ["nobody"] } },
    });
    bench.place("api", nowhere).await;
    let status = reported(&bench, "api", "it is refused", |status, ready| {
        status.refused == 1 && ready.reason == "NotAllPlaced"
    })
    .await;
    let reason = &status.reasons[0];
    assert_eq!(
        (reason.resources, &*reason.example),
        (1, "Deployment default/api")
    );
    let somewhere = json!({ "spec": { "placement": { "clusterAffinity": null } } });
    merge(&policies, "api", somewhere).await;
    reported(&bench, "api", "it is placed", |status, ready| {
        status.placed == 1 && ready.status == "True" && status.reasons.is_empty()
    })
    .await;
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
