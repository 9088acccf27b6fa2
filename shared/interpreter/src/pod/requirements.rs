//! What one pod of a template asks of a node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use muster_quantity::{Format, Quantity};
use muster_shared::api::binding::{NodeClaim, ReplicaRequirements};
use muster_shared::capacity::is_counted;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::lua::convert::brief;
use crate::read::{Read, Unread, field, list, map, text, wrong_type};

/// Restart policy of an init container that makes it a sidecar.
const SIDECAR: &str = "Always";

/// Amounts by resource name.
type Amounts = BTreeMap<String, Quantity>;

/// Returns the requirements of a pod with this spec; `None` if it has none.
///
/// # Errors
/// A field of another type than a pod has there, or a quantity that is none.
pub(crate) fn requirements(pod: &Value) -> Read<Option<ReplicaRequirements>> {
    let affinity = [
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
    ];
    let claim = NodeClaim {
        hard_node_affinity: typed(pod, &affinity)?,
        node_selector: typed(pod, &["nodeSelector"])?.unwrap_or_default(),
        tolerations: typed(pod, &["tolerations"])?.unwrap_or_default(),
    };
    let amounts = request(pod)?;
    let needs = ReplicaRequirements {
        node_claim: (claim != NodeClaim::default()).then_some(claim),
        resource_request: amounts
            .into_iter()
            .filter(|(_, amount)| !amount.is_zero())
            .map(|(name, amount)| {
                let format = usual(&name);
                (name, Wire(amount.with_format(format).to_string()))
            })
            .collect(),
        ..ReplicaRequirements::default()
    };
    Ok((needs != ReplicaRequirements::default()).then_some(needs))
}

fn typed<T: DeserializeOwned>(pod: &Value, path: &[&str]) -> Read<Option<T>> {
    let Some(value) = field(pod, path) else {
        return Ok(None);
    };
    serde_json::from_value(value.clone())
        .map(Some)
        .map_err(|_| wrong_type(path, "what a pod has there", value))
}

/// Returns the notation that Kubernetes writes a resource in.
fn usual(name: &str) -> Format {
    if matches!(name, "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
        Format::BinarySi
    } else {
        Format::DecimalSi
    }
}

/// Returns what the scheduler of a member reserves for the pod: containers side by side with
/// sidecars, or the largest init container with the sidecars before it, whichever is more; a
/// request of the pod as a whole instead; and the overhead.
fn request(pod: &Value) -> Read<Amounts> {
    let mut running = Amounts::new();
    for container in list(pod, &["containers"])? {
        add(&mut running, &effective(container)?);
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(pod, &["initContainers"])? {
        let mut starting = sidecars.clone();
        add(&mut starting, &effective(container)?);
        raise(&mut peak, &starting);
        if text(container, &["restartPolicy"])? == Some(SIDECAR) {
            sidecars = starting;
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &peak);
    // Of the pod as a whole a limit stands for a request only where no container requests anything.
    let requests = map(pod, &["resources", "requests"])?;
    for (name, amount) in effective(pod)? {
        let is_requested = requests.is_some_and(|requests| requests.contains_key(&name));
        if is_requested || !running.contains_key(&name) {
            running.insert(name, amount);
        }
    }
    if let Some(overhead) = map(pod, &["overhead"])? {
        add(&mut running, &amounts(overhead)?);
    }
    Ok(running)
}

/// Returns what a container, or the pod as a whole, reserves: its requests, and its limits where it
/// requests nothing.
fn effective(asking: &Value) -> Read<Amounts> {
    let mut reserved = match map(asking, &["resources", "limits"])? {
        Some(limits) => amounts(limits)?,
        None => Amounts::new(),
    };
    if let Some(requests) = map(asking, &["resources", "requests"])? {
        reserved.extend(amounts(requests)?);
    }
    Ok(reserved)
}

/// Returns the amounts of quantities. Each amount is rounded up before it is added, as schedulers
/// do: CPU to thousandths, others to whole units.
fn amounts(quantities: &Map<String, Value>) -> Read<Amounts> {
    let mut amounts = Amounts::new();
    for (name, value) in quantities.iter().filter(|(name, _)| is_counted(name)) {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let quantity: Quantity = text.parse().map_err(|_| Unread::Quantity {
            name: name.clone(),
            text: brief(text),
        })?;
        let rounded = if name == "cpu" {
            Quantity::milli(quantity.milli_value(), Format::DecimalSi)
        } else {
            Quantity::units(quantity.value(), usual(name))
        };
        amounts.insert(name.clone(), rounded);
    }
    Ok(amounts)
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += *amount;
    }
}

fn raise(least: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let now = least.entry(name.clone()).or_default();
        *now = (*now).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::capacity::{Census, PodView};
    use serde_json::json;

    use super::*;

    fn needs(spec: &Value) -> Value {
        let found = requirements(spec).unwrap();
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn a_pod_asks_for_what_its_scheduler_reserves() {
        let asks = |cpu: &str| json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
        let container = |cpu: &str| json!({ "name": "c", "resources": asks(cpu) });
        let sidecar =
            |cpu: &str| json!({ "name": "s", "restartPolicy": "Always", "resources": asks(cpu) });
        for (what, spec, cpu, memory) in [
            (
                "a container",
                json!({ "containers": [container("1")] }),
                "1",
                "1Gi",
            ),
            (
                "a sidecar beside it",
                json!({ "containers": [container("1")], "initContainers": [sidecar("100m")] }),
                "1100m",
                "2Gi",
            ),
            (
                "an init container after a sidecar",
                json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("4")] }),
                "5",
                "2Gi",
            ),
            (
                "an init container before a sidecar",
                json!({ "containers": [container("1")], "initContainers": [container("4"), sidecar("1")] }),
                "4",
                "2Gi",
            ),
            (
                "the pod as a whole",
                json!({ "containers": [container("1")], "resources": asks("3") }),
                "3",
                "1Gi",
            ),
            (
                "the overhead",
                json!({ "containers": [container("1")], "overhead": { "cpu": "50m" } }),
                "1050m",
                "1Gi",
            ),
        ] {
            let found = &needs(&spec)["resourceRequest"];
            assert_eq!(*found, json!({ "cpu": cpu, "memory": memory }), "{what}");
            // The agent counts the same.
            let mut census = Census::default();
            let pod: PodView = serde_json::from_value(json!({ "spec": spec })).unwrap();
            census.apply_pod(&pod);
            let counted = census.summary().allocating;
            let counted = ["cpu", "memory"].map(|name| counted[name].0.as_str());
            assert_eq!(counted, [cpu, memory], "{what}");
        }
    }

    #[test]
    fn a_limit_counts_where_nothing_is_requested() {
        let limits = json!({ "limits": { "cpu": "4" } });
        let spec = json!({ "containers": [{ "name": "c", "resources": limits }] });
        assert_eq!(needs(&spec), json!({ "resourceRequest": { "cpu": "4" } }));
        let alone = json!({ "containers": [{ "name": "c" }], "resources": limits });
        assert_eq!(needs(&alone), json!({ "resourceRequest": { "cpu": "4" } }));
        let asked = json!({ "requests": { "cpu": "1" } });
        let beside =
            json!({ "containers": [{ "name": "c", "resources": asked }], "resources": limits });
        assert_eq!(needs(&beside), json!({ "resourceRequest": { "cpu": "1" } }));
    }

    #[test]
    fn a_pod_that_asks_for_nothing_has_no_requirements() {
        assert_eq!(
            needs(&json!({ "containers": [{ "name": "c" }] })),
            Value::Null
        );
        assert_eq!(needs(&Value::Null), Value::Null);
    }

    #[test]
    fn constraints_on_nodes_are_taken_along_and_checked() {
        let spec = json!({ "nodeSelector": { "disk": "ssd" }, "tolerations": [{ "key": "gpu", "operator": "Exists" }] });
        assert_eq!(needs(&spec), json!({ "nodeClaim": spec }));
        let wrong = json!({ "spec": { "tolerations": [{ "key": 1 }] } });
        let error = requirements(&wrong["spec"]).unwrap_err().to_string();
        assert!(error.starts_with("tolerations: "), "{error}");
    }
}
