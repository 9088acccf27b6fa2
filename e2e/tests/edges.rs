//! The edges of both programs against a Kubernetes API: a proxy on the way, and leader election.

use std::time::Duration;

use http::StatusCode;
use kube::config::KubeConfigOptions;
use muster_e2e::apiserver::ApiServer;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_shared::client::{self, Profile};
use muster_shared::lease::{self, Annotations, Candidate, Leadership, Outcome, Timing};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes; a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(30);

fn candidate(identity: &str) -> Candidate {
    Candidate {
        namespace: "default".to_owned(),
        name: "election".to_owned(),
        identity: identity.to_owned(),
        timing: Timing {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1200),
            retry_period: Duration::from_millis(100),
        },
        annotations: Annotations::default(),
    }
}

/// Starts a proxy that tunnels what it is asked to (HTTP CONNECT), and says whereto.
async fn tunnels() -> (u16, mpsc::UnboundedReceiver<String>) {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut request = String::new();
                while !request.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let target = request.split(' ').nth(1).unwrap().to_owned();
                let mut server = tokio::net::TcpStream::connect(&target).await.unwrap();
                sender.send(request.lines().next().unwrap().to_owned()).ok();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                tokio::io::copy_bidirectional(&mut stream, &mut server)
                    .await
                    .ok();
            });
        }
    });
    (port, reported)
}

#[tokio::test]
async fn an_api_behind_a_proxy_is_reached_through_it() {
    let server = ApiServer::start(muster_e2e::apiserver::Options::default())
        .await
        .unwrap();
    let (port, mut reported) = tunnels().await;
    let kubeconfig = server.admin_kubeconfig().unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
    config.proxy_url = Some(format!("http://127.0.0.1:{port}").parse().unwrap());
    let client = client::connect(&config, Profile::Write).unwrap();
    let version = timeout(DEADLINE, client.apiserver_version()).await.unwrap();
    assert_eq!(version.unwrap().major, "1");
    let authority = config.cluster_url.authority().unwrap();
    assert_eq!(
        reported.recv().await.unwrap(),
        format!("CONNECT {authority} HTTP/1.1")
    );
}

#[tokio::test]
async fn metrics_say_who_leads() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server = ApiServer::for_test().await;
    let held = server.client().await.unwrap();
    let leadership = Leadership::elected();
    let stop = CancellationToken::new();
    let says = |value: u8| {
        let line = format!(
            "muster_leader{{lease=\"{}\"}} {value}\n",
            candidate("first").name
        );
        shown.render().contains(&line)
    };
    let campaign = tokio::spawn(lease::campaign(
        held,
        candidate("first"),
        leadership.clone(),
        stop.clone(),
    ));
    tokio::task::yield_now().await;
    assert!(says(0), "{}", shown.render());
    timeout(DEADLINE, leadership.acquired()).await.unwrap();
    assert!(says(1), "{}", shown.render());
    stop.cancel();
    assert_eq!(campaign.await.unwrap(), Outcome::Stopped);
    assert!(says(0), "{}", shown.render());
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_acting_before_another_may_begin() {
    let server = ApiServer::for_test().await;
    let (first, second) = (Leadership::elected(), Leadership::elected());
    let shutdown = CancellationToken::new();
    let lonely = server
        .client_as("first", &["system:masters"])
        .await
        .unwrap();
    let campaign = tokio::spawn(lease::campaign(
        lonely,
        candidate("first"),
        first.clone(),
        shutdown.clone(),
    ));
    timeout(DEADLINE, first.acquired()).await.unwrap();

    let scope = Scope::user("first");
    server
        .faults()
        .inject_for(scope, Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR));
    let client = server.client().await.unwrap();
    tokio::spawn(lease::campaign(
        client,
        candidate("second"),
        second.clone(),
        shutdown.clone(),
    ));
    timeout(DEADLINE, second.acquired()).await.unwrap();
    assert!(!first.is_current(), "two leaders at once");
    assert_eq!(
        timeout(DEADLINE, campaign).await.unwrap().unwrap(),
        Outcome::Lost
    );
    shutdown.cancel();
}
