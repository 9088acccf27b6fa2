//! Each fault of a route does what it says to real connections, and nothing is left of it when it
//! is healed.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use muster_e2e::apiserver::{ApiServer, Forget, Options, Running};
use muster_e2e::harness::access::{self, Account};
use muster_e2e::harness::objects::create;
use muster_e2e::harness::provider::Cluster;
use muster_e2e::harness::route::{Condition, Route};
use muster_shared::client::{self, Profile};
use muster_shared::k8s::{Api, ConfigMap, Lease, LeaseSpec, MicroTime, ObjectMeta, ServiceAccount};
use serde_json::json;
use tokio::time::timeout;

/// How long what works may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long is waited for what must not come.
const IN_VAIN: Duration = Duration::from_millis(300);

/// A server, an administrator who reaches it whatever happens, and somebody on a route.
struct Scene {
    server: Running,
    route: Route,
    /// Straight to the server.
    direct: Client,
    /// By the route.
    routed: Client,
}

impl Scene {
    async fn set() -> Self {
        muster_shared::tls::install_provider();
        let server = ApiServer::start(Options::default()).await.unwrap();
        let administrator = server.admin_kubeconfig().unwrap();
        let direct = server.client().await.unwrap();
        let account = Account {
            namespace: "kube-system",
            name: "tester".to_owned(),
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(direct.clone(), account.namespace);
        let known = json!({ "metadata": { "name": account.name } });
        create(&accounts, known).await;
        let admitted = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: tester}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
             subjects: [{{kind: ServiceAccount, name: {}, namespace: {}}}]\n",
            account.name, account.namespace
        );
        muster_e2e::harness::apply::apply(&direct, &admitted)
            .await
            .unwrap();
        let route = Route::open(&administrator).await.unwrap();
        let identity = access::kubeconfig(&direct, administrator, &account)
            .await
            .unwrap();
        let config = muster_e2e::harness::fleet::config(route.kubeconfig(identity))
            .await
            .unwrap();
        let routed = client::connect(&config, Profile::Watch).unwrap();
        Self {
            server,
            route,
            direct,
            routed,
        }
    }

    async fn ask(&self) -> Result<(), kube::Error> {
        let api: Api<ConfigMap> = Api::default_namespaced(self.routed.clone());
        api.get_opt("nothing").await.map(drop)
    }

    async fn works(&self) {
        timeout(PATIENCE, self.ask())
            .await
            .expect("an answer")
            .expect("a good one");
    }

    /// Creates a ConfigMap as somebody else who writes.
    async fn write(&self, name: &str) {
        let api: Api<ConfigMap> = Api::default_namespaced(self.direct.clone());
        let config = json!({ "metadata": { "name": name, "labels": { "of": "us" } } });
        create(&api, config).await;
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("no answer of an API: {other}"),
    }
}

#[tokio::test]
async fn a_cut_route_answers_nothing_and_delivers_when_it_is_healed() {
    let scene = Scene::set().await;
    scene.works().await;
    scene.route.set(Condition::Silent);
    assert!(timeout(IN_VAIN, scene.ask()).await.is_err());
    scene.route.heal();
    scene.works().await;
}

#[tokio::test]
async fn a_wrong_clock_is_wrong_in_what_is_written_and_right_in_what_is_read_back() {
    let scene = Scene::set().await;
    let ahead = SignedDuration::from_mins(10);
    scene.route.set_clock(ahead);
    let ours: Api<Lease> = Api::default_namespaced(scene.routed.clone());
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap();
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some("m1".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    let renewed = |lease: &Lease| lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0;
    let made = create(&ours, &lease).await;
    assert_eq!(renewed(&made), now);
    let theirs: Api<Lease> = Api::default_namespaced(scene.direct.clone());
    let seen = theirs.get("m1").await.unwrap();
    assert_eq!(renewed(&seen), now + ahead);
    let created = |lease: &Lease| lease.metadata.creation_timestamp.clone().unwrap().0;
    assert_eq!(
        created(&made),
        created(&seen) - ahead,
        "the server's clock looks behind"
    );

    let mut watch = ours
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    let event = timeout(PATIENCE, watch.try_next())
        .await
        .expect("an event")
        .unwrap();
    let Some(WatchEvent::Added(watched)) = event else {
        panic!("an unexpected event: {event:?}");
    };
    assert_eq!(renewed(&watched), now);

    scene.route.set_clock(SignedDuration::ZERO);
    let patch = json!({ "spec": { "renewTime": MicroTime(now) } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    ours.patch("m1", &params, &patch).await.unwrap();
    assert_eq!(renewed(&theirs.get("m1").await.unwrap()), now);
}

#[tokio::test]
async fn an_api_restarts_with_its_objects_and_with_or_without_its_history() {
    let scene = Scene::set().await;
    let api: Api<ConfigMap> = Api::default_namespaced(scene.routed.clone());
    scene.write("before").await;
    let before = api
        .get("before")
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    scene.write("after").await;
    for (forget, remembers) in [(Forget::Nothing, true), (Forget::History, false)] {
        let down = Duration::from_millis(50);
        Cluster::restart(&scene.server, forget, down).await.unwrap();
        // The first request may meet a connection that died with the server.
        while scene.ask().await.is_err() {
            tokio::task::yield_now().await;
        }
        api.get("before").await.unwrap();
        let first = match api.watch(&WatchParams::default(), &before).await {
            Ok(events) => timeout(PATIENCE, events.boxed().next())
                .await
                .expect("an event"),
            Err(error) => Some(Err(error)),
        };
        let gone = match &first {
            Some(Ok(WatchEvent::Error(status))) => status.code == 410,
            Some(Err(error)) => code(error) == 410,
            _ => false,
        };
        assert_eq!(!gone, remembers, "{forget:?}: {first:?}");
    }
}
