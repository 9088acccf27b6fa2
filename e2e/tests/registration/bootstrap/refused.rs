//! An agent whose certificate the fleet API refuses, although it has not expired.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::Timestamp;
use muster_agent::settings::Settings;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::merge;
use muster_e2e::harness::test_bed::until;
use muster_shared::k8s::Secret;
use serde_json::json;

use super::AGENT;
use crate::registration::bench::Bench;
use crate::support::credentials::{SECRET, end, text};

/// Time after which an agent has found that its certificate is accepted.
const TRIED: Duration = Duration::from_secs(15);

impl Bench {
    /// Lets the fleet API refuse the certificate of the agent, as one that was set up anew does,
    /// which does not know the authority.
    fn refuses_the_agent(&self) {
        let refusal = Effect::Answer(StatusCode::UNAUTHORIZED);
        let faults = self.server.faults();
        faults.inject_for(Scope::user(AGENT), refusal);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_certificate_the_fleet_refuses_asks_for_another_with_a_new_token() {
    let bench = Bench::start("set-up-anew").await;
    let agent = bench.by_bootstrap(&bench.bootstrap().await, |_| {}).await;
    bench.is_ready().await;
    let before = bench.is_stored().await;
    agent.stop().await.unwrap();

    bench.refuses_the_agent();
    let again = Timestamp::now();
    let edit = |settings: &mut Settings| {
        settings.cert_rotation_checking_interval = "1s".parse().unwrap();
    };
    let _agent = bench.by_bootstrap(&bench.bootstrap().await, edit).await;
    let is_another = |secret: &Secret| text(secret) != text(&before);
    let what = "the certificate is another one";
    let after = until(&bench.secrets(), SECRET, what, is_another).await;
    bench.server.faults().heal();
    bench.is_beating_after(again).await;

    // As if the Secret could not be written.
    let former = STANDARD.encode(text(&before).unwrap());
    merge(&bench.secrets(), SECRET, json!({"data": {SECRET: former}})).await;
    let is_back = |secret: &Secret| end(secret) == end(&after);
    let what = "the other certificate is stored again";
    until(&bench.secrets(), SECRET, what, is_back).await;
    assert_eq!(bench.number_of_requests().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_that_is_refused_asks_anew_with_the_token_that_it_is_given() {
    let bench = Bench::start("given-a-token").await;
    let _agent = bench.by_bootstrap(&bench.bootstrap().await, |_| {}).await;
    bench.is_ready().await;
    let before = bench.is_stored().await;
    bench.is_beating_after(Timestamp::now() + TRIED).await;

    bench.refuses_the_agent();
    std::fs::write(bench.bootstrap_file(), bench.bootstrap().await).unwrap();
    let is_another = |secret: &Secret| end(secret) != end(&before);
    let what = "the certificate is another one";
    until(&bench.secrets(), SECRET, what, is_another).await;
    bench.server.faults().heal();
    bench.is_beating_after(Timestamp::now()).await;
    assert_eq!(bench.number_of_requests().await, 2);
}
