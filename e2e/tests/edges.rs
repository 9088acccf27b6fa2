//! The edges of both programs against a Kubernetes API: informers that survive what networks do,
//! and leader election.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use kube::api::{Api, ObjectMeta};
use kube::config::KubeConfigOptions;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::apiserver::{ApiServer, Forget, Running};
use muster_e2e::harness::objects::{create, delete, merge};
use muster_shared::client::{self, Profile};
use muster_shared::k8s::ConfigMap;
use muster_shared::lease::{self, Annotations, Candidate, Leadership, Outcome, Timing};
use muster_shared::watch::{Change, Informer, Selection};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes; a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// The user that follows what others write.
const FOLLOWER: &str = "follower";

async fn connect(server: &Running, user: &str, profile: Profile) -> Client {
    let kubeconfig = server.kubeconfig(user, &["system:masters"]).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    client::connect(&config, profile).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// What an informer tells, as `+name=value`, `~name=value` and `-name`.
struct Told(mpsc::UnboundedReceiver<String>);

impl Told {
    fn by(informer: &Informer<ConfigMap>) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        informer.on_change(move |change| {
            let object = change.object();
            let name = object.metadata.name.clone().unwrap_or_default();
            let value = object
                .data
                .as_ref()
                .and_then(|data| data.get("value"))
                .cloned();
            tell.send(match change {
                Change::Applied { old: None, .. } => {
                    format!("+{name}={}", value.unwrap_or_default())
                }
                Change::Applied { old: Some(_), .. } => {
                    format!("~{name}={}", value.unwrap_or_default())
                }
                Change::Deleted { .. } => format!("-{name}"),
            })
            .ok();
        });
        Self(told)
    }

    async fn next(&mut self) -> String {
        timeout(DEADLINE, self.0.recv())
            .await
            .expect("the informer tells in time")
            .unwrap()
    }

    /// Waits for the next so many, and returns them sorted, as those of one list come in any order.
    async fn sorted(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..count {
            told.push(self.next().await);
        }
        told.sort();
        told
    }
}

/// Starts a server, and returns it with the collection of a namespace of the test's own, as others
/// write it, and with an informer over that.
async fn followed() -> (
    Running,
    Api<ConfigMap>,
    Informer<ConfigMap>,
    Told,
    CancellationToken,
) {
    let server = ApiServer::for_test().await;
    let api: Api<ConfigMap> =
        Api::default_namespaced(connect(&server, "writer", Profile::Write).await);
    let collection = Api::default_namespaced(connect(&server, FOLLOWER, Profile::Watch).await);
    let informer = Informer::new(
        collection,
        Selection::everything().fields("metadata.name!=kube-root-ca.crt"),
    );
    let told = Told::by(&informer);
    let shutdown = CancellationToken::new();
    (server, api, informer, told, shutdown)
}

#[tokio::test]
async fn after_a_lost_history_only_real_differences_are_told() {
    let (server, api, informer, mut told, shutdown) = followed().await;
    for name in ["same", "changed", "gone"] {
        create(&api, config_map(name, "1")).await;
    }
    tokio::spawn(informer.clone().run(shutdown.clone()));
    assert_eq!(told.sorted(3).await, ["+changed=1", "+gone=1", "+same=1"]);

    // The informer is cut off while the collection changes and the history is forgotten.
    let follower = Scope::user(FOLLOWER);
    server.faults().inject_for(follower, Effect::Cut);
    merge(&api, "changed", json!({"data": {"value": "2"}})).await;
    delete(&api, "gone").await;
    create(&api, config_map("new", "1")).await;
    server.restart(Forget::History);
    server.faults().heal();

    assert_eq!(told.sorted(3).await, ["+new=1", "-gone", "~changed=2"]);
    create(&api, config_map("end", "1")).await;
    assert_eq!(told.next().await, "+end=1", "nothing else was told");
    shutdown.cancel();
}

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

/// Starts a proxy that tunnels what it is asked to (HTTP CONNECT), and tells whereto.
async fn tunnels() -> (u16, mpsc::UnboundedReceiver<String>) {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
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
                tell.send(request.lines().next().unwrap().to_owned()).ok();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                tokio::io::copy_bidirectional(&mut stream, &mut server)
                    .await
                    .ok();
            });
        }
    });
    (port, told)
}

#[tokio::test]
async fn an_api_behind_a_proxy_is_reached_through_it() {
    let server = ApiServer::start(muster_e2e::apiserver::Options::default())
        .await
        .unwrap();
    let (port, mut told) = tunnels().await;
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
        told.recv().await.unwrap(),
        format!("CONNECT {authority} HTTP/1.1")
    );
}

#[tokio::test]
async fn metrics_tell_who_leads() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server = ApiServer::for_test().await;
    let held = connect(&server, "writer", Profile::Write).await;
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
    let client = connect(&server, "writer", Profile::Write).await;
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
