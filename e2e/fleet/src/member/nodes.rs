//! The machines of a member: made at its start, seen through the API, broken on demand.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::Time;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::lifecycle::Machine;
use super::place::{self, Amounts, Seat};
use super::pods::Record;

/// Machines of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many.
    pub nodes: usize,
    /// CPUs of each, as a quantity.
    pub cpu: String,
    /// Memory of each, as a quantity.
    pub memory: String,
    /// Pods that each may run.
    pub pods: u32,
    /// How long things take on them.
    pub timing: super::lifecycle::Timing,
}

/// What is known of the machines: room, and which of them are silent.
#[derive(Debug, Default)]
pub struct Nodes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seats: BTreeMap<String, Seat>,
    /// Who sits where, by the pod's identity: what was taken is released exactly once.
    taken: HashMap<String, (String, Amounts)>,
    silent: HashSet<String>,
}

impl Nodes {
    /// Takes in a node as it is now.
    pub fn admit(&self, node: &Node) {
        let mut state = self.state.lock();
        let name = node.name_any();
        let mut seat = Seat::of(node);
        for (_, amounts) in state.taken.values().filter(|(on, _)| *on == name) {
            seat.take(*amounts);
        }
        state.seats.insert(name, seat);
    }

    /// Forgets a node.
    pub fn remove(&self, name: &str) {
        self.state.lock().seats.remove(name);
    }

    /// Returns the state of the machine under a pod.
    pub fn machine(&self, node: Option<&str>) -> Machine {
        let state = self.state.lock();
        match node {
            None => Machine::Unassigned,
            Some(name) if !state.seats.contains_key(name) => Machine::Gone,
            Some(name) if state.silent.contains(name) => Machine::Down,
            Some(_) => Machine::Up,
        }
    }

    /// Chooses a node for a pod and keeps the place for it.
    pub fn reserve(&self, uid: &str, asked: Amounts) -> Result<String, String> {
        let mut state = self.state.lock();
        if let Some((node, _)) = state.taken.get(uid) {
            return Ok(node.clone());
        }
        let seats = state.seats.iter().map(|(name, seat)| (name.as_str(), seat));
        let node = place::choose(seats, asked)?.to_owned();
        state.take(uid, &node, asked);
        Ok(node)
    }

    /// Counts a pod that sits on a node.
    pub fn take(&self, pod: &Record) {
        if let Some(node) = &pod.node {
            self.state.lock().take(&pod.uid, node, pod.asked);
        }
    }

    /// Counts a pod no longer.
    pub fn release(&self, uid: &str) {
        let mut state = self.state.lock();
        if let Some((node, amounts)) = state.taken.remove(uid)
            && let Some(seat) = state.seats.get_mut(&node)
        {
            seat.release(amounts);
        }
    }

    /// Returns the names of all nodes: a pod of a DaemonSet belongs on each, on cordoned and failed
    /// ones too, and room is the scheduler's business.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().seats.keys().cloned().collect()
    }

    /// Makes a kubelet silent, or lets it speak again.
    pub fn silence(&self, name: &str, silent: bool) {
        let mut state = self.state.lock();
        if silent {
            state.silent.insert(name.to_owned());
        } else {
            state.silent.remove(name);
        }
    }
}

impl State {
    fn take(&mut self, uid: &str, node: &str, amounts: Amounts) {
        if self.taken.contains_key(uid) {
            return;
        }
        self.taken
            .insert(uid.to_owned(), (node.to_owned(), amounts));
        if let Some(seat) = self.seats.get_mut(node) {
            seat.take(amounts);
        }
    }
}

/// Makes the nodes of a member, each with the status a kubelet would report.
pub async fn create(client: &Client, member: &str, shape: &Shape) -> kube::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for number in 1..=shape.nodes {
        let name = format!("{member}-node-{number}");
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                },
            },
        }))
        .map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &node).await {
            Err(error) if !client::is_conflict(&error) => return Err(error),
            _ => {}
        }
        let resources = json!({
            "cpu": shape.cpu, "memory": shape.memory, "pods": shape.pods.to_string(),
            "ephemeral-storage": "100Gi",
        });
        let status = json!({"status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready_condition(true)],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name,
                "kernelVersion": "6.12.0", "osImage": "simulated", "containerRuntimeVersion": "simulated://1",
                "kubeletVersion": "v1.33.0", "kubeProxyVersion": "v1.33.0",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        }});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        // kube-apiserver admits a new node as not ready; the node lifecycle controller, which we
        // play, takes the taint off.
        let untainted = json!({"spec": {"taints": null}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&untainted))
            .await?;
    }
    Ok(())
}

/// Returns the condition Ready as a kubelet reports it, or as the node controller does for one that
/// is silent.
fn ready_condition(ready: bool) -> Value {
    let now = Time(calendar());
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
    };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

/// A member's machines as somebody beside them sees them.
#[derive(Clone)]
pub struct Machines {
    pub(super) api: Api<Node>,
    pub(super) nodes: Arc<Nodes>,
}

impl Machines {
    /// Stops the machine: its kubelet is silent, and the node controller says so. (It does at once,
    /// where a real one waits 40 s.)
    pub async fn fail(&self, node: &str) -> kube::Result<()> {
        self.nodes.silence(node, true);
        self.report(node, false).await
    }

    /// Makes the machine work again.
    pub async fn revive(&self, node: &str) -> kube::Result<()> {
        self.nodes.silence(node, false);
        self.report(node, true).await
    }

    async fn report(&self, node: &str, ready: bool) -> kube::Result<()> {
        let patch = json!({"status": {"conditions": [ready_condition(ready)]}});
        self.api
            .patch_status(node, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {
                "allocatable": {"cpu": cpu, "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap()
    }

    fn asked(cpu: i64) -> Amounts {
        Amounts { cpu, memory: 0 }
    }

    #[test]
    fn a_place_is_kept_until_the_pod_goes_even_if_the_node_changes() {
        let nodes = Nodes::default();
        nodes.admit(&node("a", "1"));
        assert_eq!(nodes.reserve("p1", asked(1000)), Ok("a".to_owned()));
        nodes.admit(&node("a", "1"));
        assert!(nodes.reserve("p2", asked(1)).is_err());
        nodes.release("p1");
        nodes.release("p1");
        assert_eq!(nodes.reserve("p2", asked(1000)), Ok("a".to_owned()));
    }

    #[test]
    fn a_machine_is_up_down_or_gone() {
        let nodes = Nodes::default();
        nodes.admit(&node("a", "1"));
        assert_eq!(nodes.machine(None), Machine::Unassigned);
        assert_eq!(nodes.machine(Some("a")), Machine::Up);
        nodes.silence("a", true);
        assert_eq!(nodes.machine(Some("a")), Machine::Down);
        nodes.remove("a");
        assert_eq!(nodes.machine(Some("a")), Machine::Gone);
    }
}
