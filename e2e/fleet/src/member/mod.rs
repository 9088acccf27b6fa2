//! A simulated member: what kubelets, kube-scheduler and kube-controller-manager would do to the
//! objects of an API server that has none of them.
//!
//! Everything goes through the API, as it would with the real ones, so any API server without them
//! can be a member: the embedded one, or a bare kube-apiserver. Nodes can fail ([`Machines`]).
//! Workloads have the defaults of their kinds: strategies of updates, taints of nodes and the like
//! are not played, as no scenario needs them.

pub mod lifecycle;
pub mod nodes;
pub mod place;
pub mod pods;

mod kubelet;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use muster_shared::queue::Queue;
use muster_shared::watch::{self, Change, Informer, Selection};
use tokio_util::sync::CancellationToken;

pub use lifecycle::Timing;
pub use nodes::{Machines, Shape};

use kubelet::Kubelets;
use nodes::Nodes;
use pods::{Key, Pods};
use workload::{Queues, World};

/// Pods that are worked on at a time.
const POD_WORKERS: usize = 16;
/// Objects per page when pods are listed: a page is the peak of our memory.
const POD_PAGE: u32 = 500;
/// How long the first list of an empty API may take.
const FIRST_LIST: Duration = Duration::from_secs(20);

impl Default for Shape {
    /// Returns a shape of three machines of four CPUs with quick pods.
    fn default() -> Self {
        Self {
            nodes: 3,
            cpu: "4".to_owned(),
            memory: "16Gi".to_owned(),
            pods: 110,
            timing: Timing {
                startup: Duration::from_millis(1500),
                work: Duration::from_secs(3),
            },
        }
    }
}

/// A running simulation. It ends with the token it was started with.
#[derive(Clone)]
pub struct Member {
    machines: Machines,
}

impl Member {
    /// Makes the nodes and starts playing. `clients` are one for writes and one for watches.
    pub async fn start(
        name: &str,
        clients: (Client, Client),
        shape: &Shape,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        let (client, watch_client) = clients;
        nodes::create(&client, name, shape)
            .await
            .context("making nodes")?;
        let queue: Queue<Key> = Queue::new("kubelets");
        let queues = Queues::new();
        let nodes = Arc::new(Nodes::default());
        let pods = Arc::new(Pods::new(vec![Box::new({
            let (queue, queues, nodes) = (queue.clone(), queues.clone(), Arc::clone(&nodes));
            move |change| pod_changed(&queue, &queues, &nodes, change)
        })]));
        let kubelets = Arc::new(Kubelets::new(
            client.clone(),
            Arc::clone(&pods),
            Arc::clone(&nodes),
            shape.timing,
        ));
        let world = World::new(
            client.clone(),
            &watch_client,
            Arc::clone(&pods),
            Arc::clone(&nodes),
        );

        let nodes_informer: Informer<Node> =
            Informer::new(Api::all(watch_client.clone()), Selection::everything());
        nodes_informer.on_change({
            let (queue, queues, nodes, pods) = (
                queue.clone(),
                queues.clone(),
                Arc::clone(&nodes),
                Arc::clone(&pods),
            );
            let (kubelets, world) = (Arc::clone(&kubelets), Arc::clone(&world));
            move |change| {
                let name = change.object().name_any();
                match change {
                    Change::Applied { new, .. } => nodes.admit(new),
                    Change::Deleted { .. } => nodes.remove(&name),
                }
                let concerned = pods.on_node(&name).into_iter().map(|pod| pod.key.clone());
                concerned
                    .chain(kubelets.take_waiting())
                    .for_each(|key| queue.add(key));
                world.nodes_changed(&queues);
            }
        });
        tokio::spawn(nodes_informer.clone().run(shutdown.clone()));
        let (listed, first_list) = tokio::sync::oneshot::channel();
        tokio::spawn(follow(
            Api::all(watch_client),
            Arc::clone(&pods),
            listed,
            shutdown.clone(),
        ));
        let first_list = async {
            nodes_informer.synced().await;
            // The sender is dropped only with the whole simulation.
            let _ = first_list.await;
            world.start(&queues, &shutdown).await;
        };
        tokio::time::timeout(FIRST_LIST, first_list)
            .await
            .context("seeing the member's objects for the first time")?;

        let reconcile = {
            let kubelets = Arc::clone(&kubelets);
            move |key| {
                let kubelets = Arc::clone(&kubelets);
                async move { kubelets.reconcile(key).await }
            }
        };
        tokio::spawn(queue.run(POD_WORKERS, shutdown, reconcile));
        Ok(Self {
            machines: Machines {
                api: Api::all(client),
                nodes,
            },
        })
    }

    /// Returns the handle for what can be done to the machines.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }
}

fn pod_changed(queue: &Queue<Key>, queues: &Queues, nodes: &Nodes, change: &pods::Change) {
    match (&change.old, &change.new) {
        (_, Some(new)) if new.phase <= pods::Phase::Running => nodes.take(new),
        (_, Some(ended)) => nodes.release(&ended.uid),
        (Some(old), None) => nodes.release(&old.uid),
        (None, None) => {}
    }
    // A namesake took its place: the old one is gone as well.
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.uid != new.uid
    {
        nodes.release(&old.uid);
    }
    if let Some(new) = &change.new {
        queue.add(new.key.clone());
    }
    workload::pod_changed(queues, change);
}

/// Folds what happens to pods into their records.
async fn follow(
    api: Api<Pod>,
    pods: Arc<Pods>,
    listed: tokio::sync::oneshot::Sender<()>,
    shutdown: CancellationToken,
) {
    let mut events = std::pin::pin!(watch::events(
        &api,
        Selection::everything().page_size(POD_PAGE)
    ));
    let mut listed = Some(listed);
    while let Some(Some(event)) = shutdown.run_until_cancelled(events.next()).await {
        let complete = matches!(event, kube::runtime::watcher::Event::InitDone);
        pods.follow(event);
        if complete && let Some(listed) = listed.take() {
            // Whoever waited may have given up.
            let _ = listed.send(());
        }
    }
}
