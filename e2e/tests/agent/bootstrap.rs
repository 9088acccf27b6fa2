//! An agent with a bootstrap kubeconfig whose request waits for somebody's approval. The whole way
//! with tokens and the control plane is tested by the tests of registration.

use std::time::Duration;

use jiff::Timestamp;
use muster_agent::settings::Settings;
use muster_e2e::harness::access::{self, Extra};
use muster_e2e::harness::objects::{delete, event};
use muster_shared::fleet_servers::FleetServer;
use muster_shared::k8s::{Api, Event, ResourceExt, Secret};
use muster_shared::settings::FleetServers;
use serde_json::Value;
use tokio::time::sleep;

use crate::agent::bench::{Bench, MEMBER};
use crate::agent::rotation::{asked, asked_beside, decide, number_of_requests, renewed, secrets};
use crate::support::credentials::{NAMESPACE, SECRET, make_namespace};
use muster_e2e::harness::test_bed::Task;

/// The group of agents' certificates.
const ISSUED: &str = "system:karmada:agents";
/// The group of whoever may ask, and nothing else.
const BOOTSTRAPPERS: &str = "bootstrappers";

/// Starts an agent that has nothing but a bootstrap kubeconfig.
async fn start(bench: &Bench) -> Task {
    start_with(bench, |_| {}).await
}

/// Starts such an agent with changed settings.
async fn start_with(bench: &Bench, edit: impl FnOnce(&mut Settings)) -> Task {
    let (fleet, member) = (&bench.fleet_client, &bench.member_client);
    let rights = access::admit_group(fleet, member, MEMBER, ISSUED);
    rights.await.unwrap();
    let may_ask = access::admit_to(Extra::Certificates, fleet, MEMBER, BOOTSTRAPPERS);
    may_ask.await.unwrap();
    make_namespace(member).await;
    let user = "system:bootstrap:abcdef";
    let token = bench.fleet.token_kubeconfig(user, &[BOOTSTRAPPERS]);
    let file = bench.write("bootstrap", &token.unwrap());
    bench.agent_in(&[], |settings| {
        settings.karmada_kubeconfig = None;
        settings.bootstrap_kubeconfig = Some(file);
        edit(settings);
    })
}

/// Returns the server of the kubeconfig in a Secret.
fn server(secret: &Secret) -> String {
    let text = &secret.data.as_ref().unwrap()[SECRET].0;
    let kubeconfig: Value = serde_saphyr::from_slice(text).unwrap();
    let server = &kubeconfig["clusters"][0]["cluster"]["server"];
    server.as_str().unwrap().trim_end_matches('/').to_owned()
}

/// Waits for an event of the member about the lack of credentials, and returns what it says.
async fn reported(bench: &Bench) -> String {
    let events: Api<Event> = Api::namespaced(bench.member_client.clone(), NAMESPACE);
    let event = event(&events, "reason=NoFleetCredentials", "").await;
    event.message.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_first_request_that_nobody_answers_is_reported_and_waits() {
    let bench = Bench::start().await;
    let _agent = start(&bench).await;
    let request = asked(&bench).await;
    assert_eq!(
        request.spec.username.as_deref(),
        Some("system:bootstrap:abcdef")
    );
    let words = reported(&bench).await;
    let name = request.name_any();
    assert!(
        words.contains("no credentials are stored")
            && words.contains(&format!("kubectl describe csr {name}")),
        "{words}"
    );
    sleep(Duration::from_mins(20)).await;
    assert_eq!(number_of_requests(&bench).await, 1);

    decide(&bench, &request, "Approved").await;
    renewed(&bench).await;
    bench.joined().await;
    assert_eq!(number_of_requests(&bench).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_first_request_that_is_refused_is_reported_and_made_again_later() {
    let bench = Bench::start().await;
    let _agent = start(&bench).await;
    let first = asked(&bench).await;
    let begun = tokio::time::Instant::now();
    decide(&bench, &first, "Denied").await;
    let words = reported(&bench).await;
    assert!(words.contains("Denied: Test: so be it"), "{words}");
    let second = asked_beside(&bench, &first.name_any()).await;
    // Five minutes, give or take a fifth.
    let took = begun.elapsed();
    assert!(took >= Duration::from_mins(4), "{took:?}");
    // The pauses grow from one refusal to the next.
    let begun = tokio::time::Instant::now();
    decide(&bench, &second, "Denied").await;
    let third = asked_beside(&bench, &second.name_any()).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_mins(8), "{took:?}");
    decide(&bench, &third, "Approved").await;
    renewed(&bench).await;
    bench.joined().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_that_ask_at_once_the_second_takes_what_the_first_was_given() {
    let bench = Bench::start().await;
    let first = start(&bench).await;
    let request = asked(&bench).await;
    let _second = bench.agent_in(&[], |settings| {
        settings.karmada_kubeconfig = None;
        let file = settings.kubeconfig.clone().unwrap();
        settings.bootstrap_kubeconfig = Some(file.with_file_name("bootstrap.kubeconfig"));
    });
    asked_beside(&bench, &request.name_any()).await;
    decide(&bench, &request, "Approved").await;
    renewed(&bench).await;
    bench.joined().await;
    // The other request stays without an answer, and its agent works all the same.
    first.stop().await.unwrap();
    let stopped = Timestamp::now();
    bench.beats(Some(stopped)).await;
    assert_eq!(number_of_requests(&bench).await, 2);
}

#[tokio::test]
async fn credentials_are_stored_for_the_own_server_while_another_of_the_fleet_is_used() {
    let bench = Bench::start().await;
    let own = bench.fleet.url();
    let other = own.replace("127.0.0.1", "localhost");
    let _agent = start_with(&bench, |settings| {
        let servers = [other, own.clone()].map(|server| FleetServer {
            server,
            ..FleetServer::default()
        });
        settings.fleet_servers = FleetServers(servers.into());
        settings.cert_rotation_checking_interval = "1s".parse().unwrap();
    })
    .await;
    decide(&bench, &asked(&bench).await, "Approved").await;
    assert_eq!(server(&renewed(&bench).await), own);
    bench.joined().await;
    delete(&secrets(&bench), SECRET).await;
    assert_eq!(server(&renewed(&bench).await), own);
}

#[tokio::test(start_paused = true)]
async fn an_agent_ends_when_it_is_asked_to_while_it_waits_for_its_first_certificate() {
    let bench = Bench::start().await;
    let agent = start(&bench).await;
    asked(&bench).await;
    agent.stop().await.unwrap();
    let cluster = bench.clusters().get_opt(MEMBER).await.unwrap();
    assert!(cluster.is_none());
}
