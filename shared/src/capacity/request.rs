//! What a pod asks for, computed as Kubernetes' scheduler does.
//!
//! Containers run side by side and add up, sidecars among them; init containers run before, one at a time, beside
//! the sidecars that were started so far. The pod needs the larger of the two, plus the overhead of its runtime.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

use super::{
    amounts::{Amounts, Names, PODS, amount},
    view::{PodView, ResourcesView},
};
use crate::quantity::Quantity;

/// What a pod asks for, one place for itself included.
pub(super) fn of(pod: &PodView, names: &mut Names) -> Amounts {
    let mut running = Amounts::default();
    for container in &pod.spec.containers {
        running.add(&requests(container.resources.as_ref(), names));
    }
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in &pod.spec.init_containers {
        let asked = requests(container.resources.as_ref(), names);
        let mut starting = sidecars.clone();
        starting.add(&asked);
        peak.raise_to(&starting);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = starting;
        }
    }
    running.add(&sidecars);
    running.raise_to(&peak);

    // A request for the pod as a whole takes the place of its containers'.
    for (id, amount) in requests(pod.spec.resources.as_ref(), names).0 {
        *running.entry(id) = amount;
    }
    running.add(&amounts(&pod.spec.overhead, names));
    let places = running.entry(PODS);
    *places = places.saturating_add(1);
    running.0.retain(|(_, amount)| *amount != 0);
    running
}

fn requests(resources: Option<&ResourcesView>, names: &mut Names) -> Amounts {
    resources
        .map(|resources| amounts(&resources.requests, names))
        .unwrap_or_default()
}

/// Amounts that count. A quantity that cannot be read is left out: the API server would have refused it.
fn amounts(quantities: &BTreeMap<String, Wire>, names: &mut Names) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, quantity) in quantities
        .iter()
        .filter(|(name, _)| Names::is_counted(name))
    {
        if let (Some(id), Ok(quantity)) = (names.intern(name), Quantity::from_wire(quantity)) {
            *amounts.entry(id) = amount(id, quantity);
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
                "containers add up",
                json!({ "containers": [container("1"), container("2")] }),
                3000,
            ),
            (
                "an init container runs alone",
                json!({ "containers": [container("1")], "initContainers": [container("5"), container("2")] }),
                5000,
            ),
            (
                "a small init container does not matter",
                json!({ "containers": [container("3")], "initContainers": [container("1")] }),
                3000,
            ),
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
                "overhead comes on top",
                json!({ "containers": [container("1")], "overhead": { "cpu": "100m" } }),
                1100,
            ),
            (
                "the pod as a whole wins",
                json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "4" } } }),
                4000,
            ),
            (
                "each request is rounded up",
                json!({ "containers": [container("1u"), container("1u")] }),
                2,
            ),
        ] {
            assert_eq!(cpu(&spec), milli, "{name}");
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
