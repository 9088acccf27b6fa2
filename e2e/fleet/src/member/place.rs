//! Where a pod goes: the part of kube-scheduler that decides whether a node has room, in exact
//! integers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use muster_shared::quantity::Quantity;

/// Amounts of resources, as kube-scheduler counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
}

impl Amounts {
    /// Reads a resource list; an amount that is no quantity counts as nothing (the API refuses
    /// those).
    pub fn read(list: &BTreeMap<String, Wire>) -> Self {
        let of = |name: &str| {
            let wire = list.get(name);
            wire.and_then(|wire| Quantity::from_wire(wire).ok())
                .unwrap_or_default()
        };
        Self {
            cpu: of("cpu").milli_value(),
            memory: of("memory").value(),
        }
    }

    /// Returns what a pod asks for: the sum of its containers.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let resources = spec.containers.iter().flat_map(|it| &it.resources);
        let requests = resources.flat_map(|it| &it.requests);
        let mut sum = Self::default();
        requests.for_each(|it| sum.add(Self::read(it)));
        sum
    }

    /// Adds amounts.
    pub const fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
    }

    /// Takes amounts away.
    pub const fn subtract(&mut self, other: Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
    }

    /// Returns whether `asked` fits beside `used` into these amounts. What is not asked for is not
    /// looked at.
    const fn holds(self, used: Self, asked: Self) -> bool {
        (asked.cpu == 0 || used.cpu + asked.cpu <= self.cpu)
            && (asked.memory == 0 || used.memory + asked.memory <= self.memory)
    }
}

/// A node and what is taken of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let spec = node.spec.as_ref();
        Self {
            allocatable: allocatable.map(Amounts::read).unwrap_or_default(),
            slots: slots
                .and_then(|wire| Quantity::from_wire(wire).ok())
                .unwrap_or_default()
                .value(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            ready,
            ..Self::default()
        }
    }

    /// Returns why a pod cannot go here; `None` if it can.
    pub const fn refusal(&self, asked: Amounts) -> Option<Refusal> {
        if self.unschedulable {
            Some(Refusal::Cordoned)
        } else if !self.ready {
            Some(Refusal::NotReady)
        } else if self.pods >= self.slots {
            Some(Refusal::TooManyPods)
        } else if !self.allocatable.holds(self.used, asked) {
            Some(Refusal::Insufficient)
        } else {
            None
        }
    }

    /// Takes a pod in.
    pub const fn take(&mut self, amounts: Amounts) {
        self.used.add(amounts);
        self.pods += 1;
    }

    /// Lets a pod go.
    pub const fn release(&mut self, amounts: Amounts) {
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
    /// It runs as many pods as it may.
    TooManyPods,
    /// It lacks CPU or memory.
    Insufficient,
}

impl Refusal {
    /// Returns the reason in the words of kube-scheduler's messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Cordoned => "node(s) were unschedulable",
            Self::NotReady => "node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
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
    asked: Amounts,
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seat(node: Value) -> Seat {
        Seat::of(&serde_json::from_value(node).unwrap())
    }

    fn ready_node(cpu: &str, pods: &str) -> Value {
        json!({
            "status": {
                "allocatable": {"cpu": cpu, "memory": "1Gi", "pods": pods},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn asked(requests: &[(&str, &str)]) -> Amounts {
        let containers = requests.iter().map(|(cpu, memory)| {
            json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
        });
        let spec = json!({"containers": containers.collect::<Vec<_>>()});
        Amounts::of_pod(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_pod_asks_for_what_its_containers_do() {
        assert_eq!(asked(&[("100m", "1Mi"), ("0.2", "1Mi")]).cpu, 300);
        assert_eq!(asked(&[("100u", "1Mi")]).cpu, 1, "fractions round up");
    }

    #[test]
    fn a_node_refuses_for_a_reason() {
        let small = asked(&[("500m", "64Mi")]);
        let mut cordoned = ready_node("1", "10");
        cordoned["spec"] = json!({"unschedulable": true});
        let mut failed = ready_node("1", "10");
        failed["status"]["conditions"][0]["status"] = json!("Unknown");
        let cases = [
            (ready_node("1", "10"), None),
            (ready_node("499m", "10"), Some(Refusal::Insufficient)),
            (ready_node("1", "0"), Some(Refusal::TooManyPods)),
            (cordoned, Some(Refusal::Cordoned)),
            (failed, Some(Refusal::NotReady)),
        ];
        for (node, expected) in cases {
            assert_eq!(seat(node.clone()).refusal(small), expected, "{node}");
        }
    }

    #[test]
    fn the_emptiest_node_is_chosen_and_refusals_are_counted() {
        let pod = asked(&[("1", "1Mi")]);
        let mut busy = seat(ready_node("4", "10"));
        busy.take(pod);
        let idle = seat(ready_node("4", "10"));
        let full = seat(ready_node("4", "0"));
        let nodes = [("a", &busy), ("b", &idle), ("c", &idle), ("d", &full)];
        assert_eq!(choose(nodes, pod), Ok("b"));
        assert_eq!(
            choose([("d", &full), ("e", &full)], pod),
            Err("0/2 nodes are available: 2 Too many pods.".to_owned())
        );
    }
}
