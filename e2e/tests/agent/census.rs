//! Nodes and pods as they are counted: in whatever form the server writes them, and when only one
//! of the two can be followed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::apiserver::protobuf::encode::Kind;
use muster_e2e::apiserver::{ApiServer, Options, Running};
use muster_e2e::harness::objects::create;
use muster_shared::capacity::{Census, NodeView, PodView};
use muster_shared::k8s::{Api, ObjectMeta, Pod, Resource};
use muster_shared::protobuf::{FromProtobuf, Malformed, message};
use muster_shared::watch::{Event, Freshness, Selection, compact_events};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::agent::bench::{AGENT, Bench, MEMBER, condition, until};

/// How long a list or a change may take on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn amounts() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = prop::sample::select(vec![
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "nvidia.com/gpu",
        "gadget",
    ]);
    let spelled = prop_oneof![
        "[1-9][0-9]{0,3}",
        "[1-9][0-9]{0,3}m",
        "[1-9][0-9]{0,2}(Ki|Mi|Gi)",
        "0\\.[0-9]{1,3}",
        "[1-9]e[0-9]",
    ];
    prop::collection::btree_map(names.prop_map(str::to_owned), spelled, 0..4)
}

fn container() -> impl Strategy<Value = Value> {
    let policy = prop::option::of(prop::sample::select(vec!["Always", "Never"]));
    (amounts(), amounts(), policy, any::<bool>()).prop_map(|(requests, limits, policy, asks)| {
        let mut container = json!({
            "name": "c", "image": "registry.example/i:1", "env": [{"name": "E", "value": "v"}],
            "ports": [{"containerPort": 8080}], "livenessProbe": {"httpGet": {"port": 8080}},
        });
        if asks {
            container["resources"] = json!({"limits": limits, "requests": requests});
        }
        if let Some(policy) = policy {
            container["restartPolicy"] = json!(policy);
        }
        container
    })
}

prop_compose! {
    fn pod()(
        name in "[a-z]{1,9}", uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", version in 1_u32..,
        node in prop::option::of("node-[0-9]{1,3}"),
        containers in prop::collection::vec(container(), 0..4),
        init in prop::collection::vec(container(), 0..4),
        (held, running, refused) in (amounts(), amounts(), any::<bool>()),
        overhead in amounts(), whole in prop::option::of(amounts()),
        phase in prop::option::of(prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"])),
    ) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "prod", "uid": uid, "resourceVersion": version.to_string(),
                "labels": {"app": name}, "annotations": {"checksum": "a"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}]},
            "spec": {"containers": containers, "initContainers": init, "overhead": overhead,
                "restartPolicy": "Always", "tolerations": [{"key": "k", "operator": "Exists"}]},
            "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        if refused {
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"});
            pod["status"]["conditions"] = json!([pending]);
            let container = json!({"name": "c", "allocatedResources": held, "resources": {"requests": running}});
            pod["status"]["containerStatuses"] = json!([container]);
            pod["status"]["initContainerStatuses"] = json!([container]);
        }
        if let Some(node) = node { pod["spec"]["nodeName"] = json!(node); }
        if let Some(whole) = whole { pod["spec"]["resources"] = json!({"requests": whole}); }
        if let Some(phase) = phase { pod["status"]["phase"] = json!(phase); }
        pod
    }
}

prop_compose! {
    fn node()(name in "[a-z]{1,9}", cordoned in any::<bool>(), taints in prop::collection::vec("[a-z]{1,9}", 0..3), allocatable in amounts(), capacity in amounts(),
        ready in prop::option::of(prop::sample::select(vec!["True", "False", "Unknown"]))) -> Value {
        let ready = ready.map(|status| json!({"type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}));
        let pressure = json!({"type": "MemoryPressure", "status": "False"});
        let conditions: Vec<Value> = [Some(pressure), ready].into_iter().flatten().collect();
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "value": "v", "effect": "NoSchedule"})).collect();
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "resourceVersion": "7"},
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": cordoned, "taints": taints},
            "status": {"allocatable": allocatable, "capacity": capacity, "conditions": conditions},
        })
    }
}

/// Returns the object as the embedded server writes it.
fn protobuf(kind: &str, object: &Value) -> Vec<u8> {
    let mut written = Vec::new();
    let form = Kind::of("v1", kind).unwrap();
    form.object(object.to_string().as_bytes(), &mut written);
    written
}

fn from_wire<K: FromProtobuf>(kind: &str, object: &Value) -> K {
    let written = protobuf(kind, object);
    K::from_protobuf(message(&written).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn a_pod_is_the_same_in_protobuf_and_in_json(pod in pod()) {
        let view: PodView = serde_json::from_value(pod.clone()).unwrap();
        prop_assert_eq!(from_wire::<PodView>("Pod", &pod), view);
    }

    #[test]
    fn a_node_is_the_same_in_protobuf_and_in_json(node in node()) {
        let view: NodeView = serde_json::from_value(node.clone()).unwrap();
        prop_assert_eq!(from_wire::<NodeView>("Node", &node), view);
    }

    #[test]
    fn cut_messages_are_errors_or_shorter_and_never_the_end_of_us(pod in pod(), cut in 0.0..1.0) {
        let written = protobuf("Pod", &pod);
        let whole = message(&written).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a part of a length")]
        let length = (whole.len() as f64 * cut) as usize;
        let _: Result<PodView, Malformed> = FromProtobuf::from_protobuf(&whole[..length]);
    }
}

async fn server(watch_list: bool, protobuf: bool) -> Running {
    muster_shared::tls::install_provider();
    ApiServer::start(Options {
        name: MEMBER.into(),
        watch_list,
        protobuf,
        ..Options::default()
    })
    .await
    .unwrap()
}

fn small_pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// Follows pods until so much cpu is allocated to so many of them.
async fn counted(events: impl futures::Stream<Item = Event<PodView>>, cpu: &str, pods: usize) {
    let mut events = pin!(events);
    let mut census = Census::default();
    let follow = async {
        while let Some(event) = events.next().await {
            census.fold_pod(event);
            let allocated = census.summary().allocated;
            if census.pods() == pods && allocated.get("cpu").is_some_and(|sum| sum.0 == cpu) {
                return;
            }
        }
    };
    timeout(PATIENCE, follow).await.unwrap();
}

#[tokio::test]
async fn pods_are_counted_alike_from_every_server() {
    for (watch_list, protobuf) in [(true, true), (true, false), (false, true), (false, false)] {
        let server = server(watch_list, protobuf).await;
        let pods = server.seeds("", "v1", "pods").unwrap();
        for name in ["a", "b", "c"] {
            pods.put(small_pod(name, "100m")).unwrap();
        }
        let api: Api<PodView> = Api::all(server.client().await.unwrap());
        let every = Selection::everything().page_size(2);
        let touch = Arc::new(Freshness::new(Timestamp::now()));
        let events = compact_events(&api, every, touch);
        let mut events = pin!(events.map(Result::unwrap));
        counted(&mut events, "300m", 3).await;
        // `counted` begins a census anew: these are what the watch alone shows.
        pods.put(small_pod("d", "1")).unwrap();
        pods.put(small_pod("a", "500m")).unwrap();
        counted(&mut events, "1500m", 2).await;
    }
}

/// A view that cannot be read from protobuf, as if the server wrote it differently one day.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Unreadable(PodView);

impl FromProtobuf for Unreadable {
    fn from_protobuf(_: &[u8]) -> Result<Self, Malformed> {
        Err(Malformed::Truncated)
    }
}

impl Resource for Unreadable {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[tokio::test]
async fn protobuf_that_cannot_be_read_is_read_as_json_from_then_on() {
    for watch_list in [true, false] {
        let server = server(watch_list, true).await;
        let pods = server.seeds("", "v1", "pods").unwrap();
        pods.put(small_pod("a", "100m")).unwrap();
        let api: Api<Unreadable> = Api::all(server.client().await.unwrap());
        let touch = Arc::new(Freshness::new(Timestamp::now()));
        let events = compact_events(&api, Selection::everything(), touch);
        let events = events.map(|event| match event.unwrap() {
            Event::Init => Event::Init,
            Event::InitApply(Unreadable(pod)) => Event::InitApply(pod),
            Event::InitDone => Event::InitDone,
            Event::Apply(Unreadable(pod)) => Event::Apply(pod),
            Event::Delete(Unreadable(pod)) => Event::Delete(pod),
        });
        counted(events, "100m", 1).await;
    }
}

/// Checks that numbers that do not change any more are reported: the member answers its probes, so
/// nothing else would show it.
#[tokio::test]
async fn pods_that_cannot_be_followed_are_reported_with_their_age_while_the_last_counts_stay() {
    let bench = Bench::start().await;
    let pods: Api<Pod> = Api::namespaced(bench.member_client.clone(), "default");
    let pod = |name| small_pod(name, "100m");
    create(&pods, pod("a")).await;
    let _agent = bench.agent();
    let allocated = |cluster: &muster_shared::api::cluster::Cluster| {
        let summary = cluster.status.as_ref()?.resource_summary.as_ref()?;
        Some(summary.allocated.get("cpu")?.0.clone())
    };
    until(
        &bench.clusters(),
        MEMBER,
        "everything is reported",
        |cluster| {
            condition(cluster, "StatusUpToDate") == Some(("True", "Collected"))
                && allocated(cluster).as_deref() == Some("100m")
        },
    )
    .await;
    let only_pods = Scope::user(AGENT).at("/pods");
    bench.member.faults().inject_for(only_pods, Effect::Cut);
    let stale = bench
        .has(MEMBER, &[("StatusUpToDate", "False", "CollectionFailed")])
        .await;
    let message = &stale.condition("StatusUpToDate").unwrap().message;
    assert!(
        message.starts_with("pods not collected since 20"),
        "{message}"
    );
    assert_eq!(
        condition(&stale, "Ready"),
        Some(("True", "ClusterReady")),
        "the member itself is well"
    );
    assert_eq!(allocated(&stale).as_deref(), Some("100m"));
    create(&pods, pod("b")).await;
    bench.member.faults().heal();
    until(&bench.clusters(), MEMBER, "it is caught up", |cluster| {
        condition(cluster, "StatusUpToDate") == Some(("True", "Collected"))
            && allocated(cluster).as_deref() == Some("200m")
    })
    .await;
}
