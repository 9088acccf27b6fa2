//! The fleet API that the chart brings along: its Secrets in a host cluster, and what the API is
//! given before anybody uses it.

use std::collections::BTreeMap;
use std::path::Path;

use muster_control_plane::fleet_api::{self, Settings};
use muster_control_plane::settings::Settings as ControlPlane;
use muster_e2e::apiserver::Running;
use muster_e2e::harness::kubeconfig;
use muster_e2e::harness::objects::{create, list, merge, merge_status};
use muster_e2e::harness::test_bed::{MemberApi, Scratch, Task, until};
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{
    Api, ApiResource, Client, ClusterRoleBinding, ConfigMap, CustomResourceDefinition,
    DynamicObject, GroupVersionKind, Namespace, ResourceExt as _, Secret, Service,
};
use muster_shared::serve::Health;
use muster_shared::settings::BindAddress;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "muster-system";

/// A host cluster.
struct Host {
    server: Running,
    client: Client,
    scratch: Scratch,
}

impl Host {
    async fn start(name: &str) -> Self {
        let MemberApi { server, client, .. } = MemberApi::start("host").await.unwrap();
        let scratch = Scratch::new(name).unwrap();
        let file = scratch.path().join("host");
        kubeconfig::write(&server.admin_kubeconfig().unwrap(), &file).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        create(&namespaces, json!({"metadata": {"name": NAMESPACE}})).await;
        Self {
            server,
            client,
            scratch,
        }
    }

    /// Runs one pass of `muster-control-plane fleet-api --once`.
    async fn pass(&self) -> anyhow::Result<()> {
        let settings = Settings {
            kubeconfig: Some(self.scratch.path().join("host")),
            once: true,
            ..Settings::default()
        };
        fleet_api::run(settings, Health::default(), CancellationToken::new()).await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn all(&self) -> BTreeMap<String, Secret> {
        let found = list(&self.secrets()).await;
        let named = found.into_iter().map(|it| (it.name_any(), it));
        named.collect()
    }
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    std::str::from_utf8(&secret.data.as_ref().unwrap()[key].0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_certificates_are_made_once_and_nothing_is_written_afterwards() {
    let host = Host::start("made-once").await;
    host.pass().await.unwrap();
    let made = host.all().await;
    let names: Vec<_> = made.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "muster-fleet-accounts",
            "muster-fleet-admin",
            "muster-fleet-api-tls",
            "muster-fleet-ca",
            "muster-fleet-control-plane",
            "muster-fleet-etcd-ca",
            "muster-fleet-etcd-client",
            "muster-fleet-etcd-tls",
            "muster-fleet-manager",
        ]
    );
    host.server.audit().begin();
    host.pass().await.unwrap();
    let writes = host.server.audit().end();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_serving_certificate_follows_the_load_balancer_and_the_authority_stays() {
    let host = Host::start("balanced").await;
    host.pass().await.unwrap();
    let before = host.all().await;
    let services: Api<Service> = Api::namespaced(host.client.clone(), NAMESPACE);
    let service = json!({
        "metadata": {"name": "muster-fleet-api"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 6443}]},
    });
    create(&services, service).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    merge_status(&services, "muster-fleet-api", status).await;
    host.pass().await.unwrap();
    let after = host.all().await;
    for name in [
        "muster-fleet-ca",
        "muster-fleet-etcd-tls",
        "muster-fleet-control-plane",
    ] {
        assert_eq!(before[name].data, after[name].data, "{name}");
    }
    let name = "muster-fleet-api-tls";
    assert_ne!(
        text(&before[name], "tls.crt"),
        text(&after[name], "tls.crt")
    );
    // An administrator and the members go through the load balancer, and the control plane does
    // not.
    assert!(text(&after["muster-fleet-admin"], "kubeconfig").contains("https://192.0.2.9:6443"));
    assert!(
        text(&after["muster-fleet-admin"], "kubeconfig").contains("https://127.0.0.1:6443"),
        "a context for port-forward"
    );
    let own = text(&after["muster-fleet-control-plane"], "kubeconfig");
    assert!(
        own.contains("https://muster-fleet-api.muster-system.svc:6443"),
        "{own}"
    );
}

/// Starts an API that knows nothing of fleets yet.
async fn bare() -> (Running, Client) {
    let MemberApi { server, client, .. } = MemberApi::start("fleet").await.unwrap();
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_api_becomes_a_fleet_api_in_which_the_control_plane_has_its_rights() {
    let (server, client) = bare().await;
    let scratch = Scratch::new("bare").unwrap();
    let address = "https://fleet.example.com:6443";
    let prepared = fleet_api::prepare(&client, address, server.ca(), None, false).await;
    prepared.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let reported = maps.get("cluster-info").await.unwrap().data.unwrap();
    assert!(reported["kubeconfig"].contains(address), "{reported:?}");

    // The user of the certificate that the chart's Secret holds.
    let file = scratch.path().join("control-plane");
    let identity = server.kubeconfig("system:muster:control-plane", &[]);
    kubeconfig::write(&identity.unwrap(), &file).unwrap();
    let settings = ControlPlane {
        kubeconfig: Some(file),
        leader_elect: true,
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        ..ControlPlane::default()
    };
    let _control_plane =
        Task::start(|shutdown| muster_control_plane::run(settings, None, shutdown));
    let clusters: Api<Cluster> = Api::all(client.clone());
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    create(&clusters, cluster).await;
    until(&clusters, "m1", "the control plane has it", |it| {
        !it.finalizers().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_writes_over_what_is_older_and_not_over_what_is_newer() {
    const VERSION: &str = "failover.muster.io/version";
    const NAME: &str = "clusters.cluster.karmada.io";
    let (server, client) = bare().await;
    let prepare = || fleet_api::prepare(&client, "https://a", server.ca(), None, false);
    prepare().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mark = async |version: &str| {
        let patch = json!({"metadata": {"annotations": {VERSION: version}}});
        merge(&definitions, NAME, patch).await;
    };
    mark("999.0.0").await;
    let reported = prepare().await.unwrap().unwrap();
    assert!(
        reported.contains(NAME) && reported.contains("999.0.0"),
        "{reported}"
    );
    let version = async || definitions.get(NAME).await.unwrap().annotations()[VERSION].clone();
    assert_eq!(version().await, "999.0.0");

    mark("0.0.1").await;
    assert_eq!(prepare().await.unwrap(), None);
    assert_eq!(version().await, env!("CARGO_PKG_VERSION"));
    let all = async || {
        let found = list(&definitions).await;
        found
            .iter()
            .map(|it| (it.name_any(), it.resource_version()))
            .collect::<Vec<_>>()
    };
    let before = all().await;
    prepare().await.unwrap();
    assert_eq!(all().await, before, "what is there is not changed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_that_is_switched_off_asks_nobody_any_more_and_that_of_others_stays() {
    const KINDS: [&str; 2] = [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    let (server, client) = bare().await;
    let scratch = Scratch::new("admission").unwrap();
    let configurations = KINDS.map(|kind| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "muster"}, "webhooks": [],
        })
    });
    let text = configurations.each_ref().map(ToString::to_string);
    let file = scratch.path().join("webhooks.yaml");
    std::fs::write(file, text.join("\n---\n")).unwrap();
    let prepare = async |directory: Option<&Path>| {
        let prepared =
            fleet_api::prepare(&client, "https://a", server.ca(), directory, false).await;
        prepared.unwrap();
    };
    let apis = KINDS.map(|kind| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    });
    let there = async || {
        let mut there = Vec::new();
        for api in &apis {
            there.push(api.get_opt("muster").await.unwrap().is_some());
        }
        there
    };
    prepare(Some(scratch.path())).await;
    assert_eq!(there().await, [true, true]);
    prepare(None).await;
    assert_eq!(there().await, [false, false]);

    create(&apis[0], &configurations[0]).await;
    prepare(None).await;
    assert_eq!(there().await, [true, false], "somebody else wrote it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_switched_off_has_no_rights_although_its_certificate_is_good() {
    let (server, client) = bare().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let page = async || {
        let found = list(&bindings).await.into_iter();
        let is_pages = |it: &ClusterRoleBinding| {
            let mut subjects = it.subjects.iter().flatten();
            subjects.any(|subject| subject.name == "system:muster:page")
        };
        found.filter(is_pages).count()
    };
    let prepare = async |has_page: bool| {
        let prepared = fleet_api::prepare(&client, "https://a", server.ca(), None, has_page).await;
        prepared.unwrap();
    };
    prepare(true).await;
    assert_eq!(page().await, 2);
    prepare(false).await;
    assert_eq!(page().await, 0);
    prepare(true).await;
    assert_eq!(page().await, 2);
}
