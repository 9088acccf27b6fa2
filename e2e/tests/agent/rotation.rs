//! The agent's own certificate, renewed by a signing request: controller `certRotation`.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use muster_e2e::harness::access::{self, Extra};
use muster_e2e::harness::objects::{create, list, merge};
use muster_shared::k8s::{Api, CertificateSigningRequest, Event, ResourceExt, Secret};
use muster_shared::watch::{self, Selection, events};
use serde_json::json;
use tokio::time::sleep;

use crate::agent::bench::{self, AGENT, AGENTS, Bench, MEMBER, until};
use crate::agent::meter::Meter;
use crate::support::credentials::{NAMESPACE, SECRET, end, make_namespace};
use muster_e2e::harness::test_bed::Task;

const ROTATIONS: &str = "muster_certificate_rotations_total";
const VALIDITY: &str = "muster_client_certificate_remaining_seconds";

/// Starts an agent that checks its certificate each second, and whose certificate has ten minutes
/// left of a day.
async fn start(bench: &Bench) -> (Task, String) {
    access::admit_to(Extra::Certificates, &bench.fleet_client, MEMBER, AGENTS)
        .await
        .unwrap();
    let left = Duration::from_mins(10);
    let kubeconfig = bench.fleet.ending_kubeconfig(AGENT, &[AGENTS], left);
    let kubeconfig = serde_saphyr::to_string(&kubeconfig.unwrap()).unwrap();
    make_namespace(&bench.member_client).await;
    let secret =
        json!({"metadata": {"name": SECRET}, "stringData": {SECRET: kubeconfig, "other": "stays"}});
    create(&secrets(bench), secret).await;
    (start_again(bench, &kubeconfig), kubeconfig)
}

fn start_again(bench: &Bench, kubeconfig: &str) -> Task {
    bench.agent_in(&[AGENTS], |settings| {
        let file = settings.karmada_kubeconfig.clone().unwrap();
        std::fs::write(file, kubeconfig).unwrap();
        settings.controllers = "*,certRotation".parse().unwrap();
        settings.cert_rotation_checking_interval = "1s".parse().unwrap();
    })
}

pub fn secrets(bench: &Bench) -> Api<Secret> {
    Api::namespaced(bench.member_client.clone(), NAMESPACE)
}

fn requests(bench: &Bench) -> Api<CertificateSigningRequest> {
    Api::all(bench.fleet_client.clone())
}

/// Waits for a signing request that nobody has answered.
pub async fn asked(bench: &Bench) -> CertificateSigningRequest {
    asked_beside(bench, "").await
}

/// Waits for another such request than the one of this name.
pub async fn asked_beside(bench: &Bench, name: &str) -> CertificateSigningRequest {
    let mut stream = Box::pin(events(&requests(bench), Selection::everything()));
    loop {
        if let Some(watch::Event::Apply(request) | watch::Event::InitApply(request)) =
            stream.next().await
            && request
                .status
                .as_ref()
                .is_none_or(|it| it.conditions.is_none())
            && request.name_any() != name
        {
            return request;
        }
    }
}

pub async fn decide(bench: &Bench, request: &CertificateSigningRequest, decision: &str) {
    let condition =
        json!({"type": decision, "status": "True", "reason": "Test", "message": "so be it"});
    let patch = json!({"status": {"conditions": [condition]}});
    requests(bench)
        .patch_approval(
            &request.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .unwrap();
}

pub async fn renewed(bench: &Bench) -> Secret {
    let soon = Timestamp::now() + Duration::from_hours(1);
    until(
        &secrets(bench),
        SECRET,
        "the certificate is a new one",
        |secret| end(secret).is_some_and(|end| end > soon),
    )
    .await
}

async fn reported(bench: &Bench, words: &str) {
    let all: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    let found = list(&all).await;
    let messages: Vec<String> = found.into_iter().filter_map(|it| it.message).collect();
    assert!(messages.iter().any(|it| it.contains(words)), "{messages:?}");
}

pub async fn number_of_requests(bench: &Bench) -> usize {
    list(&requests(bench)).await.len()
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_about_to_end_is_renewed_stored_and_used_at_once() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let (agent, old) = start(&bench).await;
    let request = asked(&bench).await;
    let spec = &request.spec;
    assert_eq!(spec.username.as_deref(), Some(AGENT));
    assert_eq!(spec.signer_name, "kubernetes.io/kube-apiserver-client");
    let usages = ["digital signature", "key encipherment", "client auth"];
    assert_eq!(spec.usages.as_deref().unwrap(), usages);
    assert_eq!(spec.expiration_seconds, Some(24 * 3600 + 600));
    assert!(meter.sum(VALIDITY, &["api=\"fleet\""]) < 600.0);

    decide(&bench, &request, "Approved").await;
    let secret = renewed(&bench).await;
    assert_eq!(secret.data.as_ref().unwrap()["other"].0, b"stays");
    sleep(Duration::from_secs(5)).await;
    // The file says nothing of it.
    assert!(meter.sum(VALIDITY, &["api=\"fleet\""]) > 80_000.0);
    assert!((meter.sum(ROTATIONS, &["result=\"renewed\""]) - 1.0).abs() < 0.1);
    reported(&bench, "valid until").await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    agent.stop().await.unwrap();

    // Where the file does not follow the Secret, as one that is mounted by subPath.
    let _agent = start_again(&bench, &old);
    bench.create_work("b", |_| {}).await;
    bench.applied("b", "True").await;
    sleep(Duration::from_secs(5)).await;
    assert!(meter.sum(VALIDITY, &["api=\"fleet\""]) > 80_000.0);
    assert_eq!(number_of_requests(&bench).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_reported_and_made_again_later_and_later() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let (_agent, _) = start(&bench).await;
    let first = asked(&bench).await;
    decide(&bench, &first, "Denied").await;
    let second = asked(&bench).await;
    assert_ne!(second.name_any(), first.name_any());
    assert!((meter.sum(ROTATIONS, &["result=\"refused\""]) - 1.0).abs() < 0.1);
    reported(&bench, "Denied: Test: so be it").await;
    bench.joined().await;
    decide(&bench, &second, "Approved").await;
    renewed(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_answers_is_reported_once_and_waits() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let (_agent, _) = start(&bench).await;
    let request = asked(&bench).await;
    bench.joined().await;
    sleep(Duration::from_mins(7)).await;
    assert_eq!(number_of_requests(&bench).await, 1);
    assert!((meter.sum(ROTATIONS, &["result=\"unanswered\""]) - 1.0).abs() < 0.1);
    reported(&bench, "has not been answered").await;
    let before = bench.leases().get(MEMBER).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let now = bench.leases().get(MEMBER).await.unwrap();
    assert!(bench::renewed(&now) > bench::renewed(&before));

    decide(&bench, &request, "Approved").await;
    renewed(&bench).await;
    assert_eq!(number_of_requests(&bench).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_without_a_certificate_has_nothing_to_renew_and_that_is_reported() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let (agent, _) = start(&bench).await;
    agent.stop().await.unwrap();
    let token = bench.fleet.token_kubeconfig(AGENT, &[AGENTS]).unwrap();
    let token = serde_saphyr::to_string(&token).unwrap();
    merge(
        &secrets(&bench),
        SECRET,
        &json!({"stringData": {SECRET: token}}),
    )
    .await;
    let before = number_of_requests(&bench).await;
    let _agent = start_again(&bench, &token);
    bench.joined().await;
    sleep(Duration::from_secs(30)).await;
    assert!(meter.sum(ROTATIONS, &["result=\"error\""]) >= 1.0);
    reported(&bench, "nothing to renew").await;
    assert_eq!(number_of_requests(&bench).await, before);
}
