//! Simulated members do what kubelets and kube-controller-manager do, seen through the API alone.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::objects::{self, delete, list};
use muster_e2e::member::{Member, Shape, Timing};
use muster_shared::watch::{Informer, Selection};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

const DEADLINE: Duration = Duration::from_secs(20);

struct Cluster {
    client: Client,
    _member: Member,
    _server: Running,
    _running: DropGuard,
}

/// Starts a member with two nodes of two CPUs and quick pods.
async fn cluster() -> Cluster {
    muster_shared::tls::install_provider();
    let server = ApiServer::for_test().await;
    let client = server.client().await.unwrap();
    let running = CancellationToken::new();
    let shape = Shape {
        nodes: 2,
        cpu: "2".to_owned(),
        timing: Timing {
            startup: Duration::from_millis(50),
            work: Duration::from_millis(50),
        },
        ..Shape::default()
    };
    let clients = (client.clone(), client.clone());
    let member = Member::start("m", clients, &shape, running.clone())
        .await
        .unwrap();
    Cluster {
        client,
        _member: member,
        _server: server,
        _running: running.drop_guard(),
    }
}

fn template(cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

fn deployment(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    if spec["template"].is_null() {
        spec["template"] = template("100m");
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

impl Cluster {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, deployment: Value) {
        objects::create(&self.api::<Deployment>(), deployment).await;
    }
}

/// Waits, change by change, until a collection is as expected.
async fn until<K>(client: &Client, what: &str, mut reached: impl FnMut(&[K]) -> bool)
where
    K: kube::Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + Send
        + Sync
        + std::fmt::Debug
        + 'static,
{
    let informer: Informer<K> = Informer::new(Api::all(client.clone()), Selection::everything());
    let (tell, mut changes) = tokio::sync::watch::channel(());
    informer.on_change(move |_| {
        tell.send_replace(());
    });
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(informer.clone().run(stop));
    informer.synced().await;
    let there = || -> Vec<K> {
        informer
            .list()
            .iter()
            .map(|object| (**object).clone())
            .collect()
    };
    let waited = tokio::time::timeout(DEADLINE, async {
        while !reached(&there()) {
            changes.changed().await.unwrap();
        }
    });
    assert!(waited.await.is_ok(), "{what}; there is {:#?}", there());
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_grows_rolls_and_shrinks() {
    let cluster = cluster().await;
    cluster
        .create(deployment("web", &json!({"replicas": 3})))
        .await;
    until(
        &cluster.client,
        "three replicas serve",
        |all: &[Deployment]| {
            all.iter()
                .filter_map(|one| Some((one.status.as_ref()?, one.metadata.generation)))
                .any(|(status, generation)| {
                    status.ready_replicas == Some(3)
                        && status.updated_replicas == Some(3)
                        && status.available_replicas == Some(3)
                        && status.unavailable_replicas.is_none()
                        // Not 1: the controller's own revision annotation makes a new generation of
                        // a Deployment.
                        && status.observed_generation == generation
                        && status
                            .conditions
                            .as_ref()
                            .is_some_and(|all| all.iter().all(|one| one.status == "True"))
                })
        },
    )
    .await;
    until(
        &cluster.client,
        "pods run on nodes and have addresses",
        |pods: &[Pod]| {
            pods.len() == 3
                && pods.iter().all(|pod| {
                    let status = pod.status.clone().unwrap_or_default();
                    is_ready(pod)
                        && status.pod_ip.is_some()
                        && status.phase.as_deref() == Some("Running")
                        && pod
                            .spec
                            .as_ref()
                            .is_some_and(|spec| spec.node_name.is_some())
                })
        },
    )
    .await;

    let image = json!({"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    let api = cluster.api::<Deployment>();
    api.patch("web", &PatchParams::default(), &Patch::Strategic(&image))
        .await
        .unwrap();
    until(
        &cluster.client,
        "two replicas of the new image serve",
        |pods: &[Pod]| {
            pods.len() == 2
                && pods.iter().all(|pod| {
                    is_ready(pod)
                        && pod
                            .spec
                            .as_ref()
                            .is_some_and(|spec| spec.containers[0].image.as_deref() == Some("i:2"))
                })
        },
    )
    .await;
    until(
        &cluster.client,
        "the old set is kept, empty",
        |sets: &[ReplicaSet]| {
            let replicas = |set: &ReplicaSet| {
                set.spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(1)
            };
            let mut counts: Vec<i32> = sets.iter().map(replicas).collect();
            counts.sort_unstable();
            counts == [0, 2]
        },
    )
    .await;

    api.delete("web", &DeleteParams::background())
        .await
        .unwrap();
    until(
        &cluster.client,
        "everything is collected",
        <[Pod]>::is_empty,
    )
    .await;
    until(
        &cluster.client,
        "everything is collected",
        <[ReplicaSet]>::is_empty,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_room_and_take_it_when_it_comes() {
    let cluster = cluster().await;
    let spec = json!({"replicas": 3, "template": template("2")});
    cluster.create(deployment("big", &spec)).await;
    until(
        &cluster.client,
        "two run, one has no room and says so",
        |pods: &[Pod]| {
            let homeless = |pod: &&Pod| {
                let conditions = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.conditions.clone());
                conditions.into_iter().flatten().any(|condition| {
                    condition.type_ == "PodScheduled"
                        && condition.reason.as_deref() == Some("Unschedulable")
                        && condition.message.as_deref()
                            == Some("0/2 nodes are available: 2 Insufficient resources.")
                })
            };
            pods.iter().filter(|pod| is_ready(pod)).count() == 2
                && pods.iter().filter(homeless).count() == 1
        },
    )
    .await;
    let pods = list(&cluster.api::<Pod>()).await;
    let running = pods.iter().find(|pod| is_ready(pod)).unwrap().name_any();
    delete(&cluster.api::<Pod>(), &running).await;
    until(
        &cluster.client,
        "one that waited runs in its place",
        |pods: &[Pod]| {
            pods.len() == 3
                && pods.iter().filter(|pod| is_ready(pod)).count() == 2
                && pods.iter().all(|pod| pod.name_any() != running)
        },
    )
    .await;
}
