//! Where a pod goes: the part of kube-scheduler that decides whether a node has room, in exact
//! integers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use muster_shared::quantity::Quantity;

/// Amounts of resources: thousandths of CPUs, whole units (bytes) of everything else, as
/// kube-scheduler counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Everything else (`ephemeral-storage`, `nvidia.com/gpu`).
    pub others: BTreeMap<String, i64>,
}

impl Amounts {
    /// Reads a resource list; an amount that is no quantity counts as nothing (the API refuses
    /// those).
    pub fn read(list: &BTreeMap<String, Wire>) -> Self {
        let mut amounts = Self::default();
        for (name, wire) in list {
            let quantity = Quantity::from_wire(wire).unwrap_or_default();
            match name.as_str() {
                "cpu" => amounts.cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                // Counted apart: every pod takes one.
                "pods" => {}
                _ => _ = amounts.others.insert(name.clone(), quantity.value()),
            }
        }
        amounts
    }

    /// Returns what a pod asks for: the sum of its containers and sidecars, or its most demanding
    /// init container with the sidecars that run by then, whichever is more, plus overhead
    /// (Kubernetes rule, KEP-753).
    pub fn of_pod(spec: &PodSpec) -> Self {
        let mut running = Self::default();
        for container in &spec.containers {
            running.add(&Self::of_container(container));
        }
        let mut peak = Self::default();
        let mut sidecars = Self::default();
        for container in spec.init_containers.iter().flatten() {
            let mut now = Self::of_container(container);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&now);
                running.add(&now);
                now = sidecars.clone();
            } else {
                now.add(&sidecars);
            }
            peak.raise_to(&now);
        }
        running.raise_to(&peak);
        if let Some(overhead) = &spec.overhead {
            running.add(&Self::read(overhead));
        }
        running
    }

    fn of_container(container: &Container) -> Self {
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref())
            .map(Self::read)
            .unwrap_or_default()
    }

    /// Adds amounts.
    pub fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() += amount;
        }
    }

    /// Takes amounts away.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() -= amount;
        }
    }

    fn raise_to(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        for (name, amount) in &other.others {
            let mine = self.others.entry(name.clone()).or_default();
            *mine = (*mine).max(*amount);
        }
    }

    /// Returns whether `asked` fits beside `used` into these amounts. What is not asked for is not
    /// looked at.
    fn holds(&self, used: &Self, asked: &Self) -> bool {
        let of = |amounts: &Self, name: &str| amounts.others.get(name).copied().unwrap_or(0);
        (asked.cpu == 0 || used.cpu + asked.cpu <= self.cpu)
            && (asked.memory == 0 || used.memory + asked.memory <= self.memory)
            && asked
                .others
                .iter()
                .all(|(name, amount)| *amount == 0 || of(used, name) + amount <= of(self, name))
    }
}

/// What matters of a pod for its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// What it asks for.
    pub amounts: Amounts,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
}

impl Asked {
    /// Returns what a pod asks of its node.
    pub fn of(spec: &PodSpec) -> Self {
        Self {
            amounts: Amounts::of_pod(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
        }
    }
}

/// A node and what is taken of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seat {
    /// What pods may take in all.
    pub allocatable: Amounts,
    /// How many pods it may run.
    pub slots: i64,
    /// What its pods take.
    pub used: Amounts,
    /// How many pods it runs.
    pub pods: i64,
    /// Cordoned: takes no new pods.
    pub unschedulable: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
}

impl Seat {
    /// Reads a node that runs nothing yet.
    pub fn of(node: &Node) -> Self {
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        let slots = allocatable.and_then(|list| list.get("pods"));
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let spec = node.spec.clone().unwrap_or_default();
        Self {
            allocatable: allocatable.map(Amounts::read).unwrap_or_default(),
            slots: slots
                .and_then(|wire| Quantity::from_wire(wire).ok())
                .unwrap_or_default()
                .value(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            ready,
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Returns why a pod cannot go here; `None` if it can.
    pub fn refusal(&self, asked: &Asked) -> Option<Refusal> {
        let selected = asked
            .node_selector
            .iter()
            .all(|(key, value)| self.labels.get(key) == Some(value));
        if self.unschedulable {
            Some(Refusal::Cordoned)
        } else if !self.ready {
            Some(Refusal::NotReady)
        } else if !tolerated(&self.taints, &asked.tolerations) {
            Some(Refusal::Tainted)
        } else if !selected {
            Some(Refusal::NotSelected)
        } else if self.pods >= self.slots {
            Some(Refusal::TooManyPods)
        } else if !self.allocatable.holds(&self.used, &asked.amounts) {
            Some(Refusal::Insufficient)
        } else {
            None
        }
    }

    /// Takes a pod in.
    pub fn take(&mut self, amounts: &Amounts) {
        self.used.add(amounts);
        self.pods += 1;
    }

    /// Lets a pod go.
    pub fn release(&mut self, amounts: &Amounts) {
        self.used.subtract(amounts);
        self.pods -= 1;
    }
}

/// Why a node cannot take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is cordoned.
    Cordoned,
    /// It is not ready.
    NotReady,
    /// It has a taint that the pod does not tolerate.
    Tainted,
    /// It lacks a label that the pod selects by.
    NotSelected,
    /// It runs as many pods as it may.
    TooManyPods,
    /// It lacks CPU, memory or something else.
    Insufficient,
}

impl Refusal {
    /// Returns the reason in the words of kube-scheduler's messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Cordoned => "node(s) were unschedulable",
            Self::NotReady => "node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
            Self::Tainted => "node(s) had untolerated taints",
            Self::NotSelected => "node(s) didn't match Pod's node affinity/selector",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient => "Insufficient resources",
        }
    }
}

/// Returns the node for a pod: the one with the fewest pods that has room, the first by name among
/// equals, so that runs repeat.
///
/// # Errors
/// The message that kube-scheduler would put into the pod's condition.
pub fn choose<'a>(
    nodes: impl IntoIterator<Item = (&'a str, &'a Seat)>,
    asked: &Asked,
) -> Result<&'a str, String> {
    let mut best: Option<(i64, &str)> = None;
    let mut refusals: BTreeMap<Refusal, usize> = BTreeMap::new();
    let mut all = 0;
    for (name, seat) in nodes {
        all += 1;
        match seat.refusal(asked) {
            Some(refusal) => *refusals.entry(refusal).or_default() += 1,
            None => best = Some(best.map_or((seat.pods, name), |best| best.min((seat.pods, name)))),
        }
    }
    best.map(|(_, name)| name).ok_or_else(|| {
        let reasons: Vec<String> = refusals
            .iter()
            .map(|(refusal, count)| format!("{count} {}", refusal.describe()))
            .collect();
        format!("0/{all} nodes are available: {}.", reasons.join(", "))
    })
}

/// Returns whether no taint keeps a pod away. `PreferNoSchedule` only asks.
fn tolerated(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| {
            tolerations
                .iter()
                .any(|toleration| tolerates(toleration, taint))
        })
}

/// Returns whether a toleration tolerates a taint, by the rule of `k8s.io/api`
/// (`Toleration.ToleratesTaint`).
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    given(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && given(&toleration.key).is_none_or(|key| key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            Some("Equal" | "") | None => {
                given(&toleration.key).is_some() && given(&toleration.value) == given(&taint.value)
            }
            Some(_) => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seat(node: Value) -> Seat {
        Seat::of(&serde_json::from_value(node).unwrap())
    }

    fn ready_node(cpu: &str, pods: &str) -> Value {
        json!({
            "metadata": {"labels": {"zone": "a"}},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "1Gi", "pods": pods},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn asked(spec: Value) -> Asked {
        Asked::of(&serde_json::from_value(spec).unwrap())
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn a_pod_asks_for_its_containers_or_its_hungriest_start() {
        let cases = [
            (
                "containers add up",
                json!({"containers": [container("100m", "1Mi"), container("0.2", "1Mi")]}),
                300,
            ),
            (
                "an init container runs alone",
                json!({"containers": [container("100m", "1Mi")], "initContainers": [container("250m", "1Mi")]}),
                250,
            ),
            (
                "a sidecar stays, and runs beside later init containers",
                json!({
                    "containers": [container("100m", "1Mi")],
                    "initContainers": [
                        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
                        container("300m", "1Mi"),
                    ],
                }),
                350,
            ),
            (
                "overhead comes on top",
                json!({"containers": [container("100m", "1Mi")], "overhead": {"cpu": "10m"}}),
                110,
            ),
            (
                "fractions round up",
                json!({"containers": [container("100u", "1Mi")]}),
                1,
            ),
        ];
        for (what, spec, cpu) in cases {
            assert_eq!(asked(spec).amounts.cpu, cpu, "{what}");
        }
    }

    #[test]
    fn a_node_refuses_for_a_reason() {
        let small = asked(json!({"containers": [container("500m", "64Mi")]}));
        let mut tainted = ready_node("1", "10");
        tainted["spec"] =
            json!({"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]});
        let mut cordoned = ready_node("1", "10");
        cordoned["spec"] = json!({"unschedulable": true});
        let mut failed = ready_node("1", "10");
        failed["status"]["conditions"][0]["status"] = json!("Unknown");
        let cases = [
            (ready_node("1", "10"), None),
            (ready_node("499m", "10"), Some(Refusal::Insufficient)),
            (ready_node("1", "0"), Some(Refusal::TooManyPods)),
            (tainted.clone(), Some(Refusal::Tainted)),
            (cordoned, Some(Refusal::Cordoned)),
            (failed, Some(Refusal::NotReady)),
        ];
        for (node, expected) in cases {
            assert_eq!(seat(node.clone()).refusal(&small), expected, "{node}");
        }
        let bears = asked(json!({
            "containers": [],
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"}],
        }));
        assert_eq!(seat(tainted).refusal(&bears), None);
        let elsewhere = asked(json!({"containers": [], "nodeSelector": {"zone": "b"}}));
        assert_eq!(
            seat(ready_node("1", "10")).refusal(&elsewhere),
            Some(Refusal::NotSelected)
        );
    }

    #[test]
    fn a_full_node_has_room_again_when_a_pod_goes() {
        let pod = asked(json!({"containers": [container("1", "1Mi")]}));
        let mut node = seat(ready_node("1", "10"));
        node.take(&pod.amounts);
        assert_eq!(node.refusal(&pod), Some(Refusal::Insufficient));
        node.release(&pod.amounts);
        assert_eq!(node.refusal(&pod), None);
    }

    #[test]
    fn the_emptiest_node_is_chosen_and_refusals_are_counted() {
        let pod = asked(json!({"containers": [container("1", "1Mi")]}));
        let mut busy = seat(ready_node("4", "10"));
        busy.take(&pod.amounts);
        let idle = seat(ready_node("4", "10"));
        let full = seat(ready_node("4", "0"));
        let nodes = [("a", &busy), ("b", &idle), ("c", &idle), ("d", &full)];
        assert_eq!(choose(nodes, &pod), Ok("b"));
        assert_eq!(
            choose([("d", &full), ("e", &full)], &pod),
            Err("0/2 nodes are available: 2 Too many pods.".to_owned())
        );
    }
}
