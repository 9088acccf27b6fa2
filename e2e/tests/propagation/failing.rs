//! Applications that fail while their clusters are well: what moves, what stays, and what is
//! reported.

use http::StatusCode;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::create;
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::rebalancer::WorkloadRebalancer;
use muster_shared::conditions;
use muster_shared::k8s::Api;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, shares};

const HISTORY: &str = "failover.muster.io/record";

async fn fails(bench: &Bench, member: &str) {
    let status = json!({ "replicas": 4, "readyReplicas": 0 });
    bench.report_that(member, "web", "Unhealthy", status).await;
}

async fn binding(
    bench: &Bench,
    what: &str,
    holds: impl Fn(&ResourceBinding) -> bool,
) -> ResourceBinding {
    until(&bench.here(), "web-deployment", what, holds).await
}

fn is_in(binding: &ResourceBinding, cluster: &str) -> bool {
    matches!(shares(binding)[..], [(name, 4)] if name == cluster)
}

/// Returns what the binding says of its failover: whether it is pending, why, and in a sentence.
fn reported(binding: &ResourceBinding) -> Option<(&str, &str, &str)> {
    let condition = conditions::get(&binding.status().conditions, "ApplicationFailoverPending")?;
    Some((&condition.status, &condition.reason, &condition.message))
}

/// Waits until the binding says so of its failover, and returns it.
async fn said(bench: &Bench, pending: &str, reason: &str) -> ResourceBinding {
    binding(bench, &format!("it says {pending} {reason}"), |binding| {
        reported(binding).is_some_and(|(status, why, _)| (status, why) == (pending, reason))
    })
    .await
}

#[tokio::test]
async fn a_restart_does_not_start_the_clock_anew() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    let application = json!({ "decisionConditions": { "tolerationSeconds": 8 } });
    let more = json!({ "propagateDeps": true, "failover": { "application": application } });
    let (here, there) = bench.in_one_cluster(more).await;
    fails(&bench, here).await;
    let since = |binding: &ResourceBinding| -> Option<String> {
        let history: Value =
            serde_json::from_str(binding.metadata.annotations.as_ref()?.get(HISTORY)?).ok()?;
        Some(history["unhealthySince"][here].as_str()?.to_owned())
    };
    let noted = binding(&bench, "the time is written down", |binding| {
        since(binding).is_some()
    })
    .await;
    let noted = since(&noted).unwrap();
    control_plane.stop().await.unwrap();
    let _control_plane = bench.control_plane();
    binding(&bench, "it leaves", |binding| is_in(binding, there)).await;
    let reported_of = said(&bench, "False", "ApplicationMoved").await;
    // To the second, as it is reported.
    let second = noted.split(['.', 'Z']).next().unwrap();
    let message = reported(&reported_of).unwrap().2;
    assert!(message.contains(second), "{message} does not say {noted}");
}

#[tokio::test]
async fn a_rebalancer_brings_an_application_home_and_goes_when_its_time_is_over() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place_at_home("web").await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    bench.report("m1", "web", 4).await;
    fails(&bench, "m1").await;
    bench.sent("m2", "Deployment", "web", |_| true).await;
    bench.report("m2", "web", 4).await;
    bench.withdrawn("m1", "Deployment", "web").await;
    binding(&bench, "the move is over and stays", |binding| {
        is_in(binding, "m2") && binding.spec.graceful_eviction_tasks.is_empty()
    })
    .await;
    let web = |name: &str| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name });
    let spec = json!({ "workloads": [web("web"), web("nosuch")], "ttlSecondsAfterFinished": 1 });
    let rebalancers: Api<WorkloadRebalancer> = bench.all();
    create(
        &rebalancers,
        json!({ "metadata": { "name": "home" }, "spec": spec }),
    )
    .await;
    let reported = bench
        .reported("WorkloadRebalancer", "home", "ReferencedBindingNotFound")
        .await;
    assert!(reported.contains("nosuch"), "{reported}");
    binding(&bench, "it is at home", |binding| is_in(binding, "m1")).await;
    gone(&rebalancers, "home").await;
}

#[tokio::test]
async fn a_rebalancer_records_what_it_could_request_while_one_binding_cannot_be_written() {
    let (bench, _control_plane) = Bench::with_web(json!({})).await;
    bench.witness().await;
    let one = Scope::path("resourcebindings/web-deployment");
    let broken = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    bench.faults().inject_for(one, broken);
    let workload = |name: &str| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name });
    let spec = json!({ "workloads": [workload("web"), workload("witness")] });
    let rebalancers: Api<WorkloadRebalancer> = bench.all();
    let rebalancer = json!({ "metadata": { "name": "both" }, "spec": spec });
    create(&rebalancers, rebalancer).await;
    let results = |it: &WorkloadRebalancer| {
        let status = it.status.clone().unwrap_or_default();
        let observed = status.observed_workloads.into_iter();
        let names: Vec<_> = observed.map(|it| it.workload.name).collect();
        (names.join(" "), status.finish_time.is_some())
    };
    let is_half = |it: &WorkloadRebalancer| results(it) == ("witness".to_owned(), false);
    until(&rebalancers, "both", "one has its result", is_half).await;
    bench.faults().heal();
    let is_whole = |it: &WorkloadRebalancer| results(it) == ("web witness".to_owned(), true);
    until(&rebalancers, "both", "both have theirs", is_whole).await;
}
