//! Plays kube-scheduler and the kubelets: places pods, reports that they run, takes them away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::Time;
use muster_shared::queue::Next;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::lifecycle::{self, Step, Timing};
use super::nodes::Nodes;
use super::pods::{Key, Phase, Pods, Record};

/// The kubelets of a member.
pub struct Kubelets {
    pub(super) client: Client,
    pub(super) pods: Arc<Pods>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) timing: Timing,
    /// Pods for which there was no room.
    pub(super) waiting: Mutex<BTreeSet<Key>>,
    addresses: AtomicU32,
}

impl Kubelets {
    /// Kubelets for the pods and nodes of a member.
    pub fn new(client: Client, pods: Arc<Pods>, nodes: Arc<Nodes>, timing: Timing) -> Self {
        Self {
            client,
            pods,
            nodes,
            timing,
            waiting: Mutex::default(),
            addresses: AtomicU32::new(1),
        }
    }

    /// Takes the pods that wait for room; they are to be tried again.
    pub fn take_waiting(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Does what is next for a pod.
    pub async fn reconcile(&self, key: Key) -> Result<Next, String> {
        let Some(pod) = self.pods.get(&key) else {
            return Ok(Next::Done);
        };
        let machine = self.nodes.machine(pod.node.as_deref());
        let done = match lifecycle::next(&pod, machine, self.timing, calendar()) {
            Step::Nothing => Ok(()),
            Step::Wait(time) => return Ok(Next::After(time)),
            Step::Place => self.place(&pod).await,
            Step::Start => {
                self.report(&pod, started(&pod, &self.address(), calendar()))
                    .await
            }
            Step::LoseReadiness => self.report(&pod, unready(calendar())).await,
            Step::Finish => self.report(&pod, finished(&pod, calendar())).await,
            Step::Remove => self.remove(&pod).await,
        };
        match done {
            Ok(()) => Ok(Next::Done),
            // It is another pod by now, or none: the watch will show it, and if it has shown it
            // already this was a ghost.
            Err(error) if client::is_not_found(&error) => {
                self.pods.remove(&pod.key, &pod.uid);
                Ok(Next::Done)
            }
            Err(error) => Err(format!(
                "pod {}/{}: {}",
                key.0,
                key.1,
                client::brief(&error)
            )),
        }
    }

    fn api(&self, pod: &Record) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.key.0)
    }

    async fn place(&self, pod: &Record) -> kube::Result<()> {
        let node = match self.nodes.reserve(&pod.uid, pod.asked) {
            Ok(node) => node,
            Err(message) => {
                self.waiting.lock().insert(pod.key.clone());
                if pod.unschedulable {
                    return Ok(());
                }
                let condition = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": message, "lastTransitionTime": Time(calendar()),
                });
                let status = json!({"phase": "Pending", "conditions": [condition]});
                return self.report(pod, status).await;
            }
        };
        let (namespace, name) = &pod.key;
        let binding: Binding = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }))
        .map_err(kube::Error::SerdeError)?;
        let bound: kube::Result<Value> = self
            .api(pod)
            .create_subresource("binding", name, &PostParams::default(), &binding)
            .await;
        match bound {
            // Somebody bound it before (an earlier attempt whose answer was lost): the watch shows
            // where.
            Err(error) if client::is_conflict(&error) => Ok(()),
            Err(error) => {
                self.nodes.release(&pod.uid);
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }

    async fn report(&self, pod: &Record, status: Value) -> kube::Result<()> {
        // The identity is a precondition: a namesake must not get this pod's status.
        let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
        let answered = self
            .api(pod)
            .patch_status(&pod.key.1, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.pods.admit(Arc::new(Record::of(&answered)));
        Ok(())
    }

    async fn remove(&self, pod: &Record) -> kube::Result<()> {
        // No grace: the containers have stopped, or their machine is gone.
        let forced = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api(pod).delete(&pod.key.1, &forced).await {
            Err(error) if client::is_conflict(&error) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn address(&self) -> String {
        let [_, a, b, c] = self.addresses.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        format!("10.{a}.{b}.{c}")
    }
}

fn condition(kind: &str, status: bool, now: &Time) -> Value {
    json!({
        "type": kind, "status": if status { "True" } else { "False" },
        "lastProbeTime": null, "lastTransitionTime": now,
    })
}

fn started(pod: &Record, address: &str, now: Timestamp) -> Value {
    let now = Time(now);
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": format!("simulated://{image}"),
                "containerID": format!("simulated://{}/{name}", pod.uid),
                "ready": true, "started": true, "restartCount": 0, "lastState": {},
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .map(|kind| condition(kind, true, &now));
    let mut status = json!({
        "phase": "Running", "conditions": conditions, "containerStatuses": containers,
        "startTime": pod.started.map_or_else(|| now.clone(), Time),
    });
    // A pod that runs again after its machine came back keeps its address.
    if pod.phase == Phase::Pending {
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
        status["hostIP"] = json!("10.0.0.1");
    }
    status
}

fn unready(now: Timestamp) -> Value {
    json!({"conditions": not_ready(true, &Time(now))})
}

fn not_ready(are_containers: bool, now: &Time) -> [Value; 4] {
    [
        condition("Initialized", true, now),
        condition("Ready", false, now),
        condition("ContainersReady", are_containers, now),
        condition("PodScheduled", true, now),
    ]
}

fn finished(pod: &Record, now: Timestamp) -> Value {
    let begun = Time(pod.started.unwrap_or(pod.created));
    let now = Time(now);
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": format!("simulated://{image}"),
                "ready": false, "started": false, "restartCount": 0, "lastState": {},
                "state": {"terminated": {
                    "exitCode": 0, "reason": "Completed", "startedAt": begun, "finishedAt": now,
                }},
            })
        })
        .collect();
    let conditions = not_ready(false, &now);
    json!({"phase": "Succeeded", "conditions": conditions, "containerStatuses": containers})
}
