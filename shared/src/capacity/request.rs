//! Resources that a pod requests, computed as by Kubernetes' scheduler.
//!
//! The requests of containers and sidecars add up. Init containers run before, one at a time,
//! beside the sidecars that have been started. The pod requests the larger of the two, plus the
//! overhead of its runtime.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

use super::{
    amounts::{Amounts, Names, PODS, is_counted},
    view::{ContainerStatusView, ContainerView, PodView, ResourcesView},
};
use crate::quantity::Quantity;

/// Resources that the parts of a pod request.
#[derive(Debug, Default)]
pub struct Parts {
    /// The containers that run side by side.
    pub containers: Vec<Amounts>,
    /// Those that run before, in their order, each with whether it is a sidecar, which goes on
    /// running.
    pub init_containers: Vec<(Amounts, bool)>,
    /// The pod as a whole, where that was said.
    pub whole: Amounts,
    /// The runtime.
    pub overhead: Amounts,
}

impl Parts {
    /// Returns what the pod asks for.
    pub fn total(&self) -> Amounts {
        let mut running = Amounts::default();
        for asked in &self.containers {
            running.add(asked);
        }
        let mut sidecars = Amounts::default();
        let mut peak = Amounts::default();
        for (asked, is_sidecar) in &self.init_containers {
            let mut starting = sidecars.clone();
            starting.add(asked);
            peak.raise_to(&starting);
            if *is_sidecar {
                sidecars = starting;
            }
        }
        running.add(&sidecars);
        running.raise_to(&peak);

        // A request for the pod as a whole takes the place of its containers'.
        for (id, amount) in &self.whole.0 {
            *running.entry(*id) = *amount;
        }
        running.add(&self.overhead);
        running
    }
}

/// Restart policy of an init container that makes it a sidecar.
pub const SIDECAR: &str = "Always";

/// Returns what a pod asks for, one place for itself included.
pub(super) fn of(pod: &PodView, names: &mut Names) -> Amounts {
    let infeasible = pod.is_resize_infeasible();
    let mut held = |container: &ContainerView, statuses: &[ContainerStatusView]| {
        let asked = requests(container.resources.as_ref(), names);
        let status = statuses.iter().find(|status| status.name == container.name);
        let Some(status) = status else { return asked };
        resized(asked, status, infeasible, names)
    };
    let running = pod.spec.containers.iter();
    let first = pod.spec.init_containers.iter();
    let parts = Parts {
        containers: running
            .map(|container| held(container, &pod.status.container_statuses))
            .collect(),
        init_containers: first
            .map(|container| {
                let is_sidecar = container.restart_policy.as_deref() == Some(SIDECAR);
                let held = held(container, &pod.status.init_container_statuses);
                (held, is_sidecar)
            })
            .collect(),
        whole: requests(pod.spec.resources.as_ref(), names),
        overhead: amounts(&pod.spec.overhead, names),
    };
    let mut total = parts.total();
    let places = total.entry(PODS);
    *places = places.saturating_add(1);
    total.0.retain(|(_, amount)| *amount != 0);
    total
}

/// Returns what a container counts for while it is resized: the most of what it asks for, what was
/// set aside for it and what it runs with. A wish that its node cannot fulfil does not count. The
/// rule is that of Kubernetes' scheduler.
fn resized(
    asked: Amounts,
    status: &ContainerStatusView,
    infeasible: bool,
    names: &mut Names,
) -> Amounts {
    let Some(resources) = &status.resources else {
        return asked;
    };
    let mut held = amounts(&resources.requests, names);
    held.raise_to(&amounts(&status.allocated_resources, names));
    if !infeasible {
        held.raise_to(&asked);
    }
    held
}

fn requests(resources: Option<&ResourcesView>, names: &mut Names) -> Amounts {
    resources
        .map(|resources| amounts(&resources.requests, names))
        .unwrap_or_default()
}

/// Amounts that count. A quantity that cannot be read is left out: the API server would have
/// refused it.
fn amounts(quantities: &BTreeMap<String, Wire>, names: &mut Names) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, quantity) in quantities.iter().filter(|(name, _)| is_counted(name)) {
        if let Ok(quantity) = Quantity::from_wire(quantity) {
            amounts.set(names, name, quantity);
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::capacity::amounts::{CPU, MEMORY};

    fn cpu(spec: &Value) -> i64 {
        let pod: PodView = serde_json::from_value(json!({ "spec": spec })).unwrap();
        *of(&pod, &mut Names::default()).entry(CPU)
    }

    fn container(cpu: &str) -> Value {
        json!({ "resources": { "requests": { "cpu": cpu } } })
    }

    fn sidecar(cpu: &str) -> Value {
        json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } })
    }

    #[test]
    fn a_pod_needs_what_its_worst_moment_needs() {
        for (name, spec, milli) in [
            (
                "a sidecar runs beside the containers",
                json!({ "containers": [container("1")], "initContainers": [sidecar("2")] }),
                3000,
            ),
            (
                "an init container runs beside the sidecars before it",
                json!({ "containers": [container("1")], "initContainers": [sidecar("2"), container("4"), sidecar("1")] }),
                6000,
            ),
            (
                "the pod as a whole wins",
                json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "4" } } }),
                4000,
            ),
        ] {
            assert_eq!(cpu(&spec), milli, "{name}");
        }
    }

    #[test]
    fn a_container_that_is_resized_counts_for_the_most_that_it_may_take() {
        let requests = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        for (what, wanted, allocated, running, reason, milli) in [
            ("nothing changes", "1", "1", "1", None, 1000),
            ("it waits to grow", "4", "1", "1", Some("Deferred"), 4000),
            ("it cannot grow", "4", "1", "1", Some("Infeasible"), 1000),
            ("it has not shrunk yet", "1", "1", "4", None, 4000),
            ("it is to shrink", "1", "4", "4", None, 4000),
        ] {
            let mut conditions = json!([{ "type": "Ready", "status": "True" }]);
            if let Some(reason) = reason {
                let pending =
                    json!({ "type": "PodResizePending", "status": "True", "reason": reason });
                conditions.as_array_mut().unwrap().push(pending);
            }
            let pod: PodView = serde_json::from_value(json!({
                "spec": { "nodeName": "n", "containers": [{ "name": "a", "resources": requests(wanted) }] },
                "status": { "conditions": conditions, "containerStatuses": [
                    { "name": "a", "allocatedResources": { "cpu": allocated }, "resources": requests(running) },
                ] },
            }))
            .unwrap();
            assert_eq!(*of(&pod, &mut Names::default()).entry(CPU), milli, "{what}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_stepped_over() {
        let pod: PodView = serde_json::from_value(json!({
            "spec": { "containers": [{ "resources": { "requests": { "cpu": "much", "memory": 1024, "gadget": "1" } } }] },
        }))
        .unwrap();
        assert_eq!(
            of(&pod, &mut Names::default()).0,
            [(MEMORY, 1024), (PODS, 1)]
        );
    }
}
