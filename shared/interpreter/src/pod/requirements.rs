//! What one pod of a template asks of a node.

use muster_quantity::Quantity;
use muster_shared::api::binding::{NodeClaim, ReplicaRequirements};
use muster_shared::capacity::{Amounts, Names, Parts, SIDECAR, is_counted};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::lua::convert::brief;
use crate::read::{Read, Unread, field, list, map, text, wrong_type};

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
    let mut names = Names::default();
    let total = parts(pod, &mut names)?.total().0.into_iter();
    let needs = ReplicaRequirements {
        node_claim: (claim != NodeClaim::default()).then_some(claim),
        resource_request: total
            .filter(|(_, amount)| *amount != 0)
            .map(|(id, amount)| {
                let quantity = names.quantity(id, amount.into());
                (names.name(id).to_owned(), quantity.to_wire())
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

/// Returns what the parts of a pod ask for.
fn parts(pod: &Value, names: &mut Names) -> Read<Parts> {
    let mut parts = Parts::default();
    for container in list(pod, &["containers"])? {
        parts.containers.push(effective(container, names)?);
    }
    for container in list(pod, &["initContainers"])? {
        let asked = effective(container, names)?;
        let is_sidecar = text(container, &["restartPolicy"])? == Some(SIDECAR);
        parts.init_containers.push((asked, is_sidecar));
    }
    // Of the pod as a whole a limit stands for a request only where no container requests anything.
    let asked = parts.total();
    let requested = amounts(pod, &["resources", "requests"], names)?;
    parts.whole = effective(pod, names)?;
    let counts = |id| requested.has(id) || !asked.has(id);
    parts.whole.0.retain(|(id, _)| counts(*id));
    parts.overhead = amounts(pod, &["overhead"], names)?;
    Ok(parts)
}

/// Returns what a container, or the pod as a whole, reserves: its requests, and its limits where it
/// requests nothing.
fn effective(asking: &Value, names: &mut Names) -> Read<Amounts> {
    let mut reserved = amounts(asking, &["resources", "limits"], names)?;
    for (id, amount) in amounts(asking, &["resources", "requests"], names)?.0 {
        *reserved.entry(id) = amount;
    }
    Ok(reserved)
}

/// Returns the amounts of the quantities at `path`.
fn amounts(asking: &Value, path: &[&str], names: &mut Names) -> Read<Amounts> {
    let quantities = map(asking, path)?.into_iter().flatten();
    let mut amounts = Amounts::default();
    for (name, value) in quantities.filter(|(name, _)| is_counted(name)) {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let quantity: Quantity = text.parse().map_err(|_| Unread::Quantity {
            name: name.clone(),
            text: brief(text),
        })?;
        amounts.set(names, name, quantity);
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
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
                "containers, sidecars and others before them",
                json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("4")] }),
                "5",
                "2Gi",
            ),
            (
                "the pod as a whole, and the overhead",
                json!({ "containers": [container("1")], "resources": asks("3"), "overhead": { "cpu": "50m" } }),
                "3050m",
                "1Gi",
            ),
        ] {
            let found = &needs(&spec)["resourceRequest"];
            assert_eq!(*found, json!({ "cpu": cpu, "memory": memory }), "{what}");
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
    fn constraints_on_nodes_are_taken_along_and_checked() {
        let spec = json!({ "nodeSelector": { "disk": "ssd" }, "tolerations": [{ "key": "gpu", "operator": "Exists" }] });
        assert_eq!(needs(&spec), json!({ "nodeClaim": spec }));
        let wrong = json!({ "spec": { "tolerations": [{ "key": 1 }] } });
        let error = requirements(&wrong["spec"]).unwrap_err().to_string();
        assert!(error.starts_with("tolerations: "), "{error}");
    }
}
