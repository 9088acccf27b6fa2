//! Status of ClusterTaintPolicies: from a typo to a tainted cluster and back, with few writes, and
//! without harm where the API takes no status.

use std::time::Instant;

use kube::api::PostParams;
use muster_e2e::harness::objects::{create, merge, merge_status};
use muster_e2e::harness::test_bed::until;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::{ClusterTaintPolicy, ClusterTaintPolicyStatus};
use muster_shared::conditions;
use muster_shared::k8s::{Api, CustomResourceDefinition};
use serde_json::{Value, json};

use crate::propagation::bench::Bench;

const CONTROLLERS: &str = "clustertaintpolicy,policyStatus";
const POLICY: &str = "failed";
const KEY: &str = "example.com/failed";
const STATUS: &str = "/clustertaintpolicies/failed/status";

fn conditions_on(kind: &str) -> Value {
    json!([{ "conditionType": kind, "operator": "NotIn", "statusValues": ["True"] }])
}

/// Makes a policy that taints clusters a second after this condition is not True.
async fn taints_on(bench: &Bench, kind: &str) {
    let policy = json!({
        "metadata": { "name": POLICY },
        "spec": { "matchConditions": conditions_on(kind), "taintsToAdd": [{
            "key": KEY, "effect": "NoExecute", "addOnMatchSeconds": 1, "removeOnMismatchSeconds": 1,
        }] },
    });
    create::<ClusterTaintPolicy>(&bench.all(), policy).await;
}

/// Writes the condition Ready of a cluster, as its agent does.
async fn is_ready(bench: &Bench, cluster: &str, status: &str) {
    let clusters: Api<Cluster> = bench.all();
    let patch = json!({ "status": { "conditions": [{
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }] } });
    merge_status(&clusters, cluster, &patch).await;
}

async fn is_tainted(bench: &Bench, cluster: &str) {
    until::<Cluster>(&bench.all(), cluster, "it is tainted", |it| {
        it.spec.taints.iter().any(|taint| taint.key == KEY)
    })
    .await;
}

fn ready(status: &ClusterTaintPolicyStatus) -> (&str, &str) {
    let ready = conditions::get(&status.conditions, "Ready");
    ready.map_or(("", ""), |it| (&it.status, &it.reason))
}

/// Waits until the policy says this, of its present generation.
async fn says(bench: &Bench, expected: (&str, &str), counts: [u32; 3]) -> ClusterTaintPolicyStatus {
    let what = format!("it says {expected:?} {counts:?}");
    let policies: Api<ClusterTaintPolicy> = bench.all();
    until(&policies, POLICY, &what, |it: &ClusterTaintPolicy| {
        it.status.as_ref().is_some_and(|status| {
            ready(status) == expected
                && [status.selected, status.matching, status.tainted] == counts
                && status.observed_generation == it.metadata.generation
        })
    })
    .await;
    policies.get(POLICY).await.unwrap().status.unwrap()
}

#[tokio::test]
async fn a_taint_policy_reports_a_typo_then_what_it_taints_and_then_that_all_is_well() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane_of(CONTROLLERS);
    taints_on(&bench, "Redy").await;
    let typo = says(&bench, ("True", "UnknownCondition"), [2, 0, 0]).await;
    let effective = conditions::get(&typo.conditions, "Effective").unwrap();
    assert_eq!(effective.status, "False");
    assert_eq!(typo.unknown_conditions[0].condition_type, "Redy");
    assert!(typo.unknown_conditions[0].since.is_some());

    // A manifest with a status changes the spec alone.
    let corrected = json!({
        "spec": { "matchConditions": conditions_on("Ready") }, "status": { "selected": 99 },
    });
    merge::<ClusterTaintPolicy>(&bench.all(), POLICY, corrected).await;
    let well = says(&bench, ("True", "NoClusterMatches"), [2, 0, 0]).await;
    assert!(well.unknown_conditions.is_empty());

    is_ready(&bench, "m1", "False").await;
    let tainted = says(&bench, ("True", "Tainting"), [2, 1, 1]).await;
    let message = &tainted.conditions[0].message;
    assert_eq!(message, "1 cluster has its taints: m1");
    assert_eq!(
        tainted.conditions[0].last_transition_time, well.conditions[0].last_transition_time,
        "it stayed True"
    );
    is_ready(&bench, "m1", "True").await;
    says(&bench, ("True", "NoClusterMatches"), [2, 0, 0]).await;
}

#[tokio::test]
async fn many_clusters_that_fail_cost_a_taint_policy_one_write_every_two_seconds_at_most() {
    let bench = Bench::start().await;
    for number in 3..=60 {
        bench.join(&format!("m{number}")).await;
    }
    let _control_plane = bench.control_plane_of(CONTROLLERS);
    taints_on(&bench, "Ready").await;
    says(&bench, ("True", "NoClusterMatches"), [60, 0, 0]).await;
    bench.audit().begin();
    let began = Instant::now();
    for number in 1..=60 {
        is_ready(&bench, &format!("m{number}"), "False").await;
    }
    says(&bench, ("True", "Tainting"), [60, 60, 60]).await;
    let most = 1 + began.elapsed().as_secs() / 2;
    let writes = bench.audit().end();
    let count = |path: &str| writes.iter().filter(|it| it.path.ends_with(path)).count() as u64;
    assert!((1..=most).contains(&count(STATUS)), "{}", count(STATUS));
    assert!(writes.iter().all(|it| !it.refused), "{writes:#?}");
}

#[tokio::test]
async fn where_the_api_takes_no_status_of_policies_it_is_tried_once_and_taints_come_all_the_same() {
    let bench = Bench::start().await;
    // Karmada's definition.
    let definitions: Api<CustomResourceDefinition> = bench.all();
    let name = "clustertaintpolicies.policy.karmada.io";
    let mut held = definitions.get(name).await.unwrap();
    held.spec.versions[0].subresources = None;
    held.metadata.managed_fields = None;
    definitions
        .replace(name, &PostParams::default(), &held)
        .await
        .unwrap();
    bench.audit().begin();
    let _control_plane = bench.control_plane_of(CONTROLLERS);
    taints_on(&bench, "Ready").await;
    bench.audit().reaches(1, STATUS).await;
    for cluster in ["m1", "m2"] {
        is_ready(&bench, cluster, "False").await;
        is_tainted(&bench, cluster).await;
    }
    let writes = bench.audit().end();
    let tries = writes.iter().filter(|it| it.path.ends_with(STATUS));
    let refused: Vec<bool> = tries.map(|it| it.refused).collect();
    assert_eq!(refused, [true]);
}
