//! The member's credentials in the fleet API: `--report-secrets`.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::ListParams;
use muster_agent::settings::Settings;
use muster_e2e::apiserver::Options;
use muster_e2e::harness::access::{self, Extra};
use muster_e2e::harness::objects::{create, delete, list, merge};
use muster_shared::client::{Profile, connect};
use muster_shared::k8s::{Api, Client, Config, Event, Pod, ResourceExt, Secret, ServiceAccount};
use serde_json::json;
use tokio::time::sleep;

use crate::agent::bench::{AGENTS, Bench, MEMBER, condition, gone, until};
use crate::agent::meter::Meter;
use muster_e2e::harness::test_bed::Task;

const NAMESPACE: &str = "karmada-cluster";
const FAILURES: &str = "muster_credential_report_failures_total";

pub fn start(bench: &Bench, groups: &[&str], reports: &str) -> Task {
    bench.agent_in(groups, |settings| {
        settings.report_secrets = reports.parse().unwrap();
    })
}

pub async fn allow(bench: &Bench) {
    access::admit_to(Extra::Secrets, &bench.fleet_client, MEMBER, AGENTS)
        .await
        .unwrap();
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn data<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| &bytes.0[..]).unwrap_or_default()
}

/// Returns a client of the member's API by a token that was reported.
fn with_token(bench: &Bench, token: &[u8]) -> Client {
    let mut config = Config::new(bench.member.url().parse().unwrap());
    let authority = rustls::pki_types::pem::PemObject::from_pem_slice(bench.member.ca().as_bytes());
    let authority: rustls::pki_types::CertificateDer = authority.unwrap();
    config.root_cert = Some(vec![authority.to_vec()]);
    config.auth_info.token = Some(std::str::from_utf8(token).unwrap().to_owned().into());
    connect(&config, Profile::Write).unwrap()
}

async fn may_list_pods(client: Client) -> bool {
    let pods: Api<Pod> = Api::all(client);
    match pods.list(&ListParams::default()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.is_forbidden() => false,
        Err(error) => panic!("{error}"),
    }
}

async fn reported(bench: &Bench, reason: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    let found = list(&events).await;
    let is_it = |event: &&Event| event.reason.as_deref() == Some(reason);
    let messages = found
        .iter()
        .filter(is_it)
        .filter_map(|it| it.message.as_deref());
    let messages: Vec<&str> = messages.collect();
    assert!(messages.iter().any(|it| it.contains(words)), "{messages:?}");
}

#[tokio::test]
async fn both_tokens_are_reported_as_karmadas_agent_does() {
    let bench = Bench::start().await;
    allow(&bench).await;
    assert_eq!(Settings::default().report_secrets.to_string(), "None");
    let _agent = start(&bench, &[AGENTS], "KubeCredentials,KubeImpersonator");
    let fleet = secrets(&bench.fleet_client);
    let all = until(&fleet, MEMBER, "it has a token", |secret| {
        !data(secret, "token").is_empty()
    })
    .await;
    let impersonator = until(&fleet, "m1-impersonator", "it has a token", |secret| {
        !data(secret, "token").is_empty()
    })
    .await;
    assert_eq!(data(&all, "caBundle"), bench.member.ca().as_bytes());
    assert_eq!(impersonator.data.as_ref().unwrap().len(), 1);

    let cluster = until(&bench.clusters(), MEMBER, "it names them", |cluster| {
        let (one, other) = (
            &cluster.spec.secret_ref,
            &cluster.spec.impersonator_secret_ref,
        );
        let is = |reference: &Option<_>, name: &str| {
            let reference: &Option<muster_shared::api::cluster::LocalSecretReference> = reference;
            let reference = reference.as_ref();
            reference.is_some_and(|it| it.namespace == NAMESPACE && it.name == name)
        };
        is(one, MEMBER) && is(other, "m1-impersonator")
    })
    .await;
    for secret in [&all, &impersonator] {
        let [owner] = secret.owner_references() else {
            panic!("{:?}", secret.owner_references());
        };
        assert_eq!(Some(owner.uid.as_str()), cluster.uid().as_deref());
        assert_eq!(owner.controller, Some(true));
        assert_eq!(secret.labels()["karmada.io/system"], "true");
    }

    assert!(may_list_pods(with_token(&bench, data(&all, "token"))).await);
    let nobody = with_token(&bench, data(&impersonator, "token"));
    assert!(!may_list_pods(nobody).await);
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.member_client.clone(), NAMESPACE);
    for name in ["karmada-m1", "karmada-impersonator"] {
        accounts.get(name).await.unwrap();
    }
    bench.joined().await;
}

#[tokio::test]
async fn a_token_that_the_member_replaces_replaces_the_fleets() {
    let bench = Bench::start().await;
    allow(&bench).await;
    let _agent = start(&bench, &[AGENTS], "KubeCredentials");
    let fleet = secrets(&bench.fleet_client);
    let first = until(&fleet, MEMBER, "it is there", |_| true).await;
    // Its token goes with it. A Secret made anew for the same account would have the same token.
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.member_client.clone(), NAMESPACE);
    delete(&accounts, "karmada-m1").await;
    let second = until(&fleet, MEMBER, "it has another token", |secret| {
        data(secret, "token") != data(&first, "token")
    })
    .await;
    assert!(may_list_pods(with_token(&bench, data(&second, "token"))).await);
    assert_eq!(second.uid(), first.uid(), "it was changed, not made anew");
    gone(&fleet, "m1-impersonator").await;
}

#[tokio::test]
async fn a_narrowed_role_in_the_member_stays_narrow() {
    let bench = Bench::start().await;
    allow(&bench).await;
    let agent = start(&bench, &[AGENTS], "KubeCredentials");
    let fleet = secrets(&bench.fleet_client);
    until(&fleet, MEMBER, "it is there", |_| true).await;
    agent.stop().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(bench.member_client.clone());
    let name = "karmada-controller-manager:karmada-m1";
    let narrow = merge(&roles, name, &json!({"rules": []})).await;
    delete(&fleet, MEMBER).await;
    let _agent = start(&bench, &[AGENTS], "KubeCredentials");
    let secret = until(&fleet, MEMBER, "it is there again", |_| true).await;
    assert!(!may_list_pods(with_token(&bench, data(&secret, "token"))).await);
    let role = roles.get(name).await.unwrap();
    assert_eq!(role.resource_version(), narrow.resource_version());
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_reported_and_stops_nothing_else() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let _agent = start(&bench, &[AGENTS], "KubeCredentials");
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    sleep(Duration::from_mins(6)).await;
    let failures = meter.sum(FAILURES, &["secret=\"KubeCredentials\""]);
    assert!((6.0..20.0).contains(&failures), "backed off: {failures}");
    reported(&bench, "ReportSecretFailed", "forbidden").await;
    let cluster = bench.clusters().get(MEMBER).await.unwrap();
    assert_eq!(condition(&cluster, "Ready"), Some(("True", "ClusterReady")));

    allow(&bench).await;
    sleep(Duration::from_mins(2)).await;
    until(&secrets(&bench.fleet_client), MEMBER, "it is there", |_| {
        true
    })
    .await;
    reported(&bench, "ReportSecretSucceed", "karmada-cluster/m1").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_writes_no_token_is_reported_after_half_a_minute() {
    let meter = Meter::install();
    // Nobody fills Secrets with tokens there.
    let bench = Bench::start_beside(Options {
        manager: false,
        ..Options::default()
    })
    .await;
    allow(&bench).await;
    let _agent = start(&bench, &[AGENTS], "KubeImpersonator");
    bench.joined().await;
    sleep(Duration::from_secs(15)).await;
    assert!(meter.sum(FAILURES, &[]) < 1.0, "it may take a while");
    sleep(Duration::from_mins(2)).await;
    assert!(meter.sum(FAILURES, &[]) >= 1.0);
    reported(&bench, "ReportSecretFailed", "no token").await;
}

/// Checks that the Cluster names its secrets from the beginning: karmadactl's role lets an agent
/// create its Cluster and not change it afterwards.
#[tokio::test]
async fn with_karmadactls_role_the_cluster_names_its_secrets_from_the_beginning() {
    let bench = Bench::start().await;
    crate::agent::survival::grant_karmadactl_role(&bench).await;
    let _agent = start(&bench, &[], "KubeCredentials,KubeImpersonator");
    let fleet = secrets(&bench.fleet_client);
    until(&fleet, MEMBER, "it is there", |_| true).await;
    until(&fleet, "m1-impersonator", "it is there", |_| true).await;
    let cluster = bench.joined().await;
    assert_eq!(cluster.spec.secret_ref.unwrap().name, MEMBER);
}

#[tokio::test]
async fn what_is_no_longer_reported_is_taken_back_and_what_others_made_stays() {
    let bench = Bench::start().await;
    allow(&bench).await;
    let agent = start(&bench, &[AGENTS], "KubeCredentials");
    let fleet = secrets(&bench.fleet_client);
    until(&fleet, MEMBER, "it has a token", |secret| {
        !data(secret, "token").is_empty()
    })
    .await;
    until(&bench.clusters(), MEMBER, "it names it", |cluster| {
        cluster.spec.secret_ref.is_some()
    })
    .await;
    agent.stop().await.unwrap();
    // As karmada-agent makes it.
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.member_client.clone(), NAMESPACE);
    let account = json!({"metadata": {"name": "karmada-impersonator", "labels": {"karmada.io/system": "true"}}});
    create(&accounts, account).await;

    let _agent = start(&bench, &[AGENTS], "None");
    gone(&accounts, "karmada-m1").await;
    gone(&secrets(&bench.member_client), "karmada-m1").await;
    gone(&fleet, MEMBER).await;
    let roles: Api<ClusterRole> = Api::all(bench.member_client.clone());
    gone(&roles, "karmada-controller-manager:karmada-m1").await;
    until(&bench.clusters(), MEMBER, "it names no Secret", |cluster| {
        cluster.spec.secret_ref.is_none()
    })
    .await;
    accounts.get("karmada-impersonator").await.unwrap();
}
