//! An agent that registers itself with a bootstrap kubeconfig, and comes back by itself.

mod refused;

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use muster_agent::settings::Settings;
use muster_e2e::harness::objects::{create, delete, event, list};
use muster_e2e::harness::test_bed::{PATIENCE, Task, until};
use muster_shared::certificate::hash::Hash;
use muster_shared::k8s::{Api, Event, ResourceExt, Secret};
use muster_shared::tls;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::registration::bench::Bench;
use crate::support::credentials::{NAMESPACE, SECRET, end, make_namespace, text};

const AGENT: &str = "system:karmada:agent:m1";
const AGENTS: &str = "system:karmada:agents";

impl Bench {
    /// Makes a token for the member, and the text of the bootstrap kubeconfig with it.
    async fn bootstrap(&self) -> String {
        let words = ["token", "create", "--print-bootstrap-kubeconfig"];
        let words = [&words[..], &["--cluster-name", "m1"]].concat();
        self.at_fleet(&words).await.unwrap()
    }

    fn bootstrap_file(&self) -> PathBuf {
        self.directory().join("bootstrap")
    }

    /// Starts an agent with this bootstrap kubeconfig and nothing else.
    async fn by_bootstrap(&self, text: &str, edit: impl FnOnce(&mut Settings)) -> Task {
        make_namespace(&self.member.client).await;
        let file = self.bootstrap_file();
        std::fs::write(&file, text).unwrap();
        self.agent_with(|settings| {
            settings.bootstrap_kubeconfig = Some(file);
            edit(settings);
        })
        .await
    }

    /// Returns a stored kubeconfig for this user that is good for so long.
    fn ending(&self, user: &str, left: Duration) -> String {
        let server = &self.test_bed.server;
        let kubeconfig = server.ending_kubeconfig(user, &[AGENTS], left).unwrap();
        serde_saphyr::to_string(&kubeconfig).unwrap()
    }

    async fn store(&self, text: &str) {
        make_namespace(&self.member.client).await;
        let secret = json!({"metadata": {"name": SECRET}, "stringData": {SECRET: text}});
        create(&self.secrets(), secret).await;
    }

    /// Waits until the Secret has a certificate that is good for a month at least.
    async fn is_stored(&self) -> Secret {
        let later = Timestamp::now() + Duration::from_hours(30 * 24);
        let is_new = |secret: &Secret| end(secret).is_some_and(|end| end > later);
        until(&self.secrets(), SECRET, "the certificate is new", is_new).await
    }

    /// Waits for an event in the member about the Secret, and gives its message.
    async fn reported(&self, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.member.client.clone(), NAMESPACE);
        let reported = event(&events, &format!("reason={reason}"), "").await;
        assert_eq!(reported.involved_object.name.as_deref(), Some(SECRET));
        reported.message.unwrap()
    }

    /// Waits until the lease is renewed after this moment.
    async fn is_beating_after(&self, moment: Timestamp) {
        let leases: Api<Lease> = Api::namespaced(self.test_bed.client.clone(), "karmada-cluster");
        let is_later = |lease: &Lease| {
            let renewed = lease.spec.as_ref().and_then(|it| it.renew_time.clone());
            renewed.is_some_and(|it| it.0 > moment)
        };
        until(&leases, "m1", "it is renewed", is_later).await;
    }

    async fn number_of_requests(&self) -> usize {
        list(&self.requests()).await.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_registers_itself_and_needs_the_token_no_more() {
    let bench = Bench::start("by-itself").await;
    let kubeconfig = bench.bootstrap().await;
    bench.server.audit().begin();
    let agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    bench.is_ready().await;
    let secret = bench.is_stored().await;
    assert!(!text(&secret).unwrap().contains("token"));
    // With the token one request is made and nothing else is written.
    let mut writes = bench.server.audit().end();
    writes.retain(|write| write.user.starts_with("system:bootstrap:"));
    let writes: Vec<_> = writes.iter().map(|it| (&*it.method, &*it.path)).collect();
    let request = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert!(
        matches!(writes[..], [("POST", path)] if path.starts_with(request)),
        "{writes:?}"
    );
    agent.stop().await.unwrap();

    // Whoever has no token any more still has the certificate; the Secret says where the fleet is.
    std::fs::remove_file(bench.bootstrap_file()).unwrap();
    let again = Timestamp::now();
    let _agent = bench
        .agent_with(|settings| settings.bootstrap_kubeconfig = Some(bench.bootstrap_file()))
        .await;
    bench.is_beating_after(again).await;
    assert_eq!(bench.number_of_requests().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_certificate_expired_while_it_was_down_comes_back_by_itself() {
    let bench = Bench::start("was-down").await;
    let kubeconfig = bench.bootstrap().await;
    let agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    bench.is_ready().await;
    agent.stop().await.unwrap();
    delete(&bench.secrets(), SECRET).await;
    let expired = bench.ending(AGENT, Duration::ZERO);
    bench.store(&expired).await;
    // As it was mounted.
    let mounted = bench.directory().join("mounted");
    std::fs::write(&mounted, &expired).unwrap();

    let again = Timestamp::now();
    let edit = |settings: &mut Settings| settings.karmada_kubeconfig = Some(mounted);
    let _agent = bench.by_bootstrap(&kubeconfig, edit).await;
    bench.is_stored().await;
    bench.is_beating_after(again).await;
    let reported = bench.reported("FleetCredentialsIssued").await;
    assert!(reported.contains("valid until"), "{reported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_certificate_expires_while_it_runs_goes_on_without_a_restart() {
    let bench = Bench::start("runs-on").await;
    let kubeconfig = bench.bootstrap().await;
    let left = Duration::from_secs(8);
    bench.store(&bench.ending(AGENT, left)).await;
    let ends = Timestamp::now() + left;
    // Without a renewal before the end, as when the rotation was refused.
    let edit = |settings: &mut Settings| settings.cert_rotation_remaining_time_threshold = 0.0;
    let _agent = bench.by_bootstrap(&kubeconfig, edit).await;
    bench.is_ready().await;
    assert!(Timestamp::now() < ends, "the first certificate was used");
    assert_eq!(bench.number_of_requests().await, 0);
    bench.is_stored().await;
    bench.is_beating_after(ends).await;
    assert_eq!(bench.number_of_requests().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_is_reported_and_its_successor_works() {
    let bench = Bench::start("successor").await;
    let good = bench.bootstrap().await;
    let kubeconfig: Value = serde_saphyr::from_str(&good).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    let (id, _) = token.split_once('.').unwrap();
    bench.at_fleet(&["token", "delete", id]).await.unwrap();
    let _agent = bench.by_bootstrap(&good, |_| {}).await;
    let reported = bench.reported("NoFleetCredentials").await;
    assert!(
        reported.contains("(401)")
            && reported.contains("kubectl muster token create --cluster-name m1"),
        "{reported}"
    );
    assert!(!reported.contains(token), "{reported}");
    assert_eq!(bench.number_of_requests().await, 0);

    std::fs::write(bench.bootstrap_file(), bench.bootstrap().await).unwrap();
    bench.is_ready().await;
    bench.is_stored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_another_cluster_is_neither_used_nor_replaced() {
    let bench = Bench::start("of-another").await;
    let kubeconfig = bench.bootstrap().await;
    let theirs = bench.ending("system:karmada:agent:m2", Duration::from_hours(1));
    bench.store(&theirs).await;
    let _agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    let reported = bench.reported("NoFleetCredentials").await;
    assert!(
        reported.contains("another user than the agent of cluster \"m1\""),
        "{reported}"
    );
    assert_eq!(bench.number_of_requests().await, 0);
    let there = bench.secrets().get(SECRET).await.unwrap();
    assert_eq!(text(&there).as_deref(), Some(theirs.as_str()));

    // Once it is out of the way.
    delete(&bench.secrets(), SECRET).await;
    bench.is_ready().await;
    assert_eq!(
        list(&bench.requests()).await[0].name_any().get(..3),
        Some("m1-")
    );
}

/// Checks an agent that runs while its fleet changes its authority, or what leads to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_follows_its_bootstrap_kubeconfig_to_a_proxy() {
    let bench = Bench::start("way").await;
    let kubeconfig = bench.bootstrap().await;
    let _agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    bench.is_ready().await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut changed: Value = serde_saphyr::from_str(&kubeconfig).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    changed["clusters"][0]["cluster"]["proxy-url"] = url.into();
    let changed = serde_saphyr::to_string(&changed).unwrap();
    std::fs::write(bench.bootstrap_file(), changed).unwrap();
    let (mut stream, _) = timeout(PATIENCE, proxy.accept()).await.unwrap().unwrap();
    let mut words = [0; 8];
    stream.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"CONNECT ");
    assert_eq!(bench.number_of_requests().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_needs_no_token_for_another_address_of_its_fleet() {
    let bench = Bench::start("address").await;
    let kubeconfig = bench.bootstrap().await;
    let agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    bench.is_ready().await;
    let before = bench.is_stored().await;
    agent.stop().await.unwrap();

    let (changed, address) = at_another_address(&kubeconfig);
    let again = Timestamp::now();
    let _agent = bench.by_bootstrap(&changed, |_| {}).await;
    bench.is_beating_after(again).await;
    let is_moved =
        |secret: &Secret| text(secret).is_some_and(|it| it.contains(address.trim_end_matches('/')));
    let after = until(&bench.secrets(), SECRET, "the address is stored", is_moved).await;
    assert_eq!(end(&before), end(&after));
    assert_eq!(bench.number_of_requests().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_is_believed_by_the_certificate_of_a_pinned_authority_alone() {
    let bench = Bench::start("address-pinned").await;
    let kubeconfig = bench.bootstrap().await;
    let agent = bench.by_bootstrap(&kubeconfig, |_| {}).await;
    bench.is_ready().await;
    let before = bench.is_stored().await;
    agent.stop().await.unwrap();

    // The other address shows a certificate of the first authority, and the second is pinned.
    let (changed, _) = at_another_address(&with_another_authority(&kubeconfig));
    let list: Value = serde_saphyr::from_str(&changed).unwrap();
    let list = &list["clusters"][0]["cluster"]["certificate-authority-data"];
    let list = STANDARD.decode(list.as_str().unwrap()).unwrap();
    let pin = Hash::of_authority(&list).unwrap().pop().unwrap();
    let _agent = bench
        .by_bootstrap(&changed, |settings| {
            settings.discovery_token_ca_cert_hash = pin.to_string().parse().unwrap();
        })
        .await;
    bench.reported("NoFleetCredentials").await;
    let after = bench.secrets().get(SECRET).await.unwrap();
    assert_eq!(text(&before), text(&after));
}

/// Returns a kubeconfig with another name of its server and no credentials, and that address.
fn at_another_address(kubeconfig: &str) -> (String, String) {
    let mut changed: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    let server = &mut changed["clusters"][0]["cluster"]["server"];
    let address = server.as_str().unwrap().replace("127.0.0.1", "localhost");
    *server = address.clone().into();
    changed["users"][0]["user"] = json!({});
    (serde_saphyr::to_string(&changed).unwrap(), address)
}

/// Returns the kubeconfig of a bench whose fleet is about to have another authority: it trusts
/// both.
fn with_another_authority(kubeconfig: &str) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let another = params.self_signed(&key).unwrap().pem();
    let mut changed: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    let cluster = &mut changed["clusters"][0]["cluster"];
    let present = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap());
    let both = String::from_utf8(present.unwrap()).unwrap() + &another;
    cluster["certificate-authority-data"] = STANDARD.encode(both).into();
    serde_saphyr::to_string(&changed).unwrap()
}

/// Returns the number of authorities in a stored kubeconfig.
fn authorities(secret: &Secret) -> usize {
    let kubeconfig: Value = serde_saphyr::from_str(&text(secret).unwrap()).unwrap();
    let list = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let list = STANDARD.decode(list.as_str().unwrap()).unwrap();
    tls::certificates(&list).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authorities_that_a_running_agent_takes_over_are_stored_for_the_next_one() {
    let bench = Bench::start("remembered").await;
    let kubeconfig = bench.bootstrap().await;
    let edit = |settings: &mut Settings| {
        settings.cert_rotation_checking_interval = "1s".parse().unwrap();
    };
    let agent = bench.by_bootstrap(&kubeconfig, edit).await;
    bench.is_ready().await;
    let before = bench.is_stored().await;
    assert_eq!(authorities(&before), 1);
    let changed = with_another_authority(&kubeconfig);
    std::fs::write(bench.bootstrap_file(), &changed).unwrap();
    let both = |secret: &Secret| authorities(secret) == 2;
    let after = until(&bench.secrets(), SECRET, "both are stored", both).await;
    assert_eq!(end(&before), end(&after));
    assert_eq!(bench.number_of_requests().await, 1);

    // The Secret of the bootstrap kubeconfig may be gone when the agent starts again.
    drop(agent);
    std::fs::remove_file(bench.bootstrap_file()).unwrap();
    let again = bench.directory().join("mounted");
    std::fs::write(&again, text(&after).unwrap()).unwrap();
    let _agent = bench
        .agent_with(|settings| {
            settings.bootstrap_kubeconfig = Some(bench.bootstrap_file());
            settings.karmada_kubeconfig = Some(again);
            edit(settings);
        })
        .await;
    bench.is_ready().await;
    let stored = bench.secrets().get(SECRET).await.unwrap();
    assert_eq!(authorities(&stored), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_another_authority_than_the_pinned_one_is_not_given_the_token() {
    let bench = Bench::start("pinned").await;
    let kubeconfig = bench.bootstrap().await;
    let wrong = format!("sha256:{}", "0".repeat(64));
    let _agent = bench
        .by_bootstrap(&kubeconfig, |settings| {
            settings.discovery_token_ca_cert_hash = wrong.parse().unwrap();
        })
        .await;
    let reported = bench.reported("NoFleetCredentials").await;
    assert!(
        reported.contains("is not the expected one") && reported.contains(&wrong),
        "{reported}"
    );
    assert!(reported.contains("fleet.caHash"), "{reported}");
    assert_eq!(bench.number_of_requests().await, 0);
    assert!(bench.secrets().get_opt(SECRET).await.unwrap().is_none());
}
