//! Plays kube-controller-manager: Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs grow
//! pods and report on them.
//!
//! Each kind is a pure plan (how many pods, which go, what the status says) with a thin reconciler
//! beside it.

mod daemonset;
mod deployment;
mod job;
mod replicas;
mod replicaset;
mod rollout;
mod statefulset;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt as _};
use muster_shared::client;
use muster_shared::k8s::{ObjectMeta, OwnerReference};
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Followed, Informer, Selection};
use tokio_util::sync::CancellationToken;

use super::nodes::Nodes;
use super::pods::{Change, Key, Pods, Record};

/// What the controllers of a member share.
pub(super) struct World {
    client: Client,
    pods: Arc<Pods>,
    nodes: Arc<Nodes>,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    daemon_sets: Informer<DaemonSet>,
    jobs: Informer<Job>,
}

/// Why a reconciliation is to be tried again.
#[derive(Debug, thiserror::Error)]
#[error("{}", client::brief(.0))]
pub(super) struct Failed(#[from] kube::Error);

/// The queues of all kinds; keys are namespace and name.
#[derive(Clone)]
pub(super) struct Queues {
    deployments: Queue<Key>,
    replica_sets: Queue<Key>,
    stateful_sets: Queue<Key>,
    daemon_sets: Queue<Key>,
    jobs: Queue<Key>,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self {
            deployments: Queue::new("deployments"),
            replica_sets: Queue::new("replicasets"),
            stateful_sets: Queue::new("statefulsets"),
            daemon_sets: Queue::new("daemonsets"),
            jobs: Queue::new("jobs"),
        }
    }
}

/// Which workers run at a time for each kind.
const WORKERS: usize = 4;

impl World {
    pub(super) fn new(
        client: Client,
        watch_client: &Client,
        pods: Arc<Pods>,
        nodes: Arc<Nodes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            pods,
            nodes,
            deployments: everything(watch_client),
            replica_sets: everything(watch_client),
            stateful_sets: everything(watch_client),
            daemon_sets: everything(watch_client),
            jobs: everything(watch_client),
        })
    }

    /// Starts watching and working; returns when everything was seen once.
    pub(super) async fn start(self: &Arc<Self>, queues: &Queues, shutdown: &CancellationToken) {
        enqueue_changes(&self.deployments, &queues.deployments);
        enqueue_changes(&self.replica_sets, &queues.replica_sets);
        enqueue_changes(&self.stateful_sets, &queues.stateful_sets);
        enqueue_changes(&self.daemon_sets, &queues.daemon_sets);
        enqueue_changes(&self.jobs, &queues.jobs);
        // A set's status is a part of its Deployment's.
        let deployments = queues.deployments.clone();
        self.replica_sets.on_change(move |change| {
            let set = change.object();
            if let Some(owner) = controller(set.meta(), "Deployment") {
                deployments.add((set.namespace().unwrap_or_default(), owner.name.clone()));
            }
        });
        follow(&self.deployments, shutdown);
        follow(&self.replica_sets, shutdown);
        follow(&self.stateful_sets, shutdown);
        follow(&self.daemon_sets, shutdown);
        follow(&self.jobs, shutdown);
        self.deployments.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.daemon_sets.synced().await;
        self.jobs.synced().await;
        self.work(&queues.deployments, shutdown, |world, key| async move {
            deployment::reconcile(&world, &key).await
        });
        self.work(&queues.replica_sets, shutdown, |world, key| async move {
            replicaset::reconcile(&world, &key).await
        });
        self.work(&queues.stateful_sets, shutdown, |world, key| async move {
            statefulset::reconcile(&world, &key).await
        });
        self.work(&queues.daemon_sets, shutdown, |world, key| async move {
            daemonset::reconcile(&world, &key).await
        });
        self.work(&queues.jobs, shutdown, |world, key| async move {
            job::reconcile(&world, &key).await
        });
    }

    fn work<F, Fut>(
        self: &Arc<Self>,
        queue: &Queue<Key>,
        shutdown: &CancellationToken,
        reconcile: F,
    ) where
        F: Fn(Arc<Self>, Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failed>> + Send + 'static,
    {
        let world = Arc::clone(self);
        let run = queue.clone().run(WORKERS, shutdown.clone(), move |key| {
            let done = reconcile(Arc::clone(&world), key);
            async move { done.await.map(|()| Next::Done) }
        });
        tokio::spawn(run);
    }

    /// Reconciles again everything that makes a pod on each node.
    pub(super) fn nodes_changed(&self, queues: &Queues) {
        for set in self.daemon_sets.list() {
            queues.daemon_sets.add(key(set.meta()));
        }
    }

    /// Makes a pod from a template; one of that name that is there already is left as it is.
    async fn create_pod(
        &self,
        owner: &Owner,
        name: Name<'_>,
        mut template: PodTemplateSpec,
        node: Option<&str>,
    ) -> Result<(), Failed> {
        let mut meta = template.metadata.take().unwrap_or_default();
        match name {
            Name::Exactly(name) => meta.name = Some(name.to_owned()),
            Name::Beginning(name) => meta.generate_name = Some(format!("{name}-")),
        }
        meta.namespace = Some(owner.namespace.clone());
        meta.owner_references = Some(vec![owner.reference.clone()]);
        let mut spec = template.spec.take().unwrap_or_default();
        if let Some(node) = node {
            spec.node_name = Some(node.to_owned());
        }
        let pod = Pod {
            metadata: meta,
            spec: Some(spec),
            status: None,
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
        match api.create(&PostParams::default(), &pod).await {
            Ok(made) => self.pods.admit(Arc::new(Record::of(&made))),
            Err(error) if client::is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn delete_pod(&self, pod: &Record) -> Result<(), Failed> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.0);
        let exactly = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&pod.key.1, &exactly).await {
            Ok(either) => {
                if let Some(pod) = either.left() {
                    self.pods.admit(Arc::new(Record::of(&pod)));
                }
                Ok(())
            }
            Err(error) if client::is_not_found(&error) || client::is_conflict(&error) => {
                self.pods.remove(&pod.key, &pod.uid);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Puts the controller of a changed pod on its queue.
pub(super) fn pod_changed(queues: &Queues, change: &Change) {
    for pod in [&change.old, &change.new].into_iter().flatten() {
        let Some(owner) = &pod.owner else { continue };
        let key = (pod.key.0.clone(), owner.name.clone());
        match owner.kind.as_str() {
            "ReplicaSet" => queues.replica_sets.add(key),
            "StatefulSet" => queues.stateful_sets.add(key),
            "DaemonSet" => queues.daemon_sets.add(key),
            "Job" => queues.jobs.add(key),
            _ => {}
        }
    }
}

/// How a pod is named.
#[derive(Clone, Copy, Debug)]
enum Name<'a> {
    /// This is its name.
    Exactly(&'a str),
    /// The API server makes a name that begins so.
    Beginning(&'a str),
}

/// Whose pods are made: a namespace and the reference that ties them to their controller.
struct Owner {
    namespace: String,
    reference: OwnerReference,
}

impl Owner {
    fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let mut reference = object.controller_owner_ref(&()).unwrap_or_default();
        reference.block_owner_deletion = Some(true);
        Self {
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            reference,
        }
    }
}

/// Returns the controller of an object, if it is of that kind.
fn controller<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)
}

fn key(meta: &ObjectMeta) -> Key {
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn everything<K>(client: &Client) -> Informer<K>
where
    K: Followed + Resource<DynamicType = ()>,
{
    Informer::new(Api::all(client.clone()), Selection::everything())
}

fn enqueue_changes<K: Followed>(informer: &Informer<K>, queue: &Queue<Key>) {
    let queue = queue.clone();
    informer.on_change(move |change| queue.add(key(change.object().meta())));
}

fn follow<K: Followed>(informer: &Informer<K>, shutdown: &CancellationToken) {
    tokio::spawn(informer.clone().run(shutdown.clone()));
}

/// Returns a short name for the content of a template: stable, and without vowels, as pod names
/// have it.
fn fingerprint(content: &impl serde::Serialize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a, 64 bits: anything that differs for different templates serves.
    let text = serde_json::to_string(content).unwrap_or_default();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut name = String::new();
    for _ in 0..9 {
        let index = usize::try_from(hash % ALPHABET.len() as u64).unwrap_or(0);
        name.push(char::from(ALPHABET[index]));
        hash /= ALPHABET.len() as u64;
    }
    name
}
