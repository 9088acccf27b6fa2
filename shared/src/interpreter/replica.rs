//! Number of replicas of a workload, and the requirements of each.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Error,
    kind::Kind,
    pod,
    read::{count, field, integer, list, map, text, wrong_type},
};
use crate::api::binding::{NodeClaim, ReplicaRequirements};
use crate::capacity::{Amounts, Names, Parts, SIDECAR, amount};
use crate::k8s;
use crate::quantity::Quantity;

/// Replicas that a workload asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas {
    /// Number of replicas.
    pub replicas: i32,
    /// Requirements of one replica; `None` if it has none.
    pub requirements: Option<ReplicaRequirements>,
}

/// Returns the replicas of a workload and the requirements of each. `None` for kinds without a
/// rule: they are not workloads, and are placed without counting.
pub fn interpret_replica(object: &Value) -> Result<Option<Replicas>, Error> {
    let replicas = match Kind::of(object) {
        Some(Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet) => {
            count(object, &["spec", "replicas"])?
        }
        Some(Kind::Job) => {
            let parallelism = count(object, &["spec", "parallelism"])?;
            integer(object, &["spec", "completions"])?
                .map_or(parallelism, |wanted| parallelism.min(wanted))
        }
        Some(Kind::Pod) => 1,
        _ => return Ok(None),
    };
    let requirements = pod::spec(object).map(requirements).transpose()?.flatten();
    Ok(Some(Replicas {
        replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        requirements,
    }))
}

fn requirements(pod: &Value) -> Result<Option<ReplicaRequirements>, Error> {
    let claim = NodeClaim {
        hard_node_affinity: typed(
            pod,
            &[
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
            ],
        )?,
        node_selector: typed(pod, &["nodeSelector"])?.unwrap_or_default(),
        tolerations: typed(pod, &["tolerations"])?.unwrap_or_default(),
    };
    let needs = ReplicaRequirements {
        node_claim: (claim != NodeClaim::default()).then_some(claim),
        resource_request: request(pod)?,
        ..ReplicaRequirements::default()
    };
    Ok((needs != ReplicaRequirements::default()).then_some(needs))
}

fn typed<T: DeserializeOwned>(pod: &Value, path: &[&str]) -> Result<Option<T>, Error> {
    let Some(value) = field(pod, path) else {
        return Ok(None);
    };
    serde_json::from_value(value.clone())
        .map(Some)
        .map_err(|_| wrong_type(path, "what a pod has there", value))
}

/// What the scheduler of the member will reserve for the pod, counted as the agent counts what pods
/// reserve.
fn request(pod: &Value) -> Result<BTreeMap<String, k8s::Quantity>, Error> {
    let mut names = Names::default();
    let mut parts = Parts::default();
    for container in list(pod, &["containers"])? {
        parts.containers.push(effective(container, &mut names)?);
    }
    for container in list(pod, &["initContainers"])? {
        let is_sidecar = text(container, &["restartPolicy"])? == Some(SIDECAR);
        let asked = effective(container, &mut names)?;
        parts.init_containers.push((asked, is_sidecar));
    }
    // Of the pod as a whole a limit stands for a request only where no container requests anything.
    let containers = parts.total();
    parts.whole = effective(pod, &mut names)?;
    let requests = map(pod, &["resources", "requests"])?;
    parts.whole.0.retain(|(id, _)| {
        let name = names.name(*id);
        requests.is_some_and(|requests| requests.contains_key(name))
            || containers.0.iter().all(|(other, _)| other != id)
    });
    if let Some(overhead) = map(pod, &["overhead"])? {
        parts.overhead = amounts(overhead, &mut names)?;
    }
    let total = parts.total().0.into_iter();
    Ok(total
        .filter(|(_, amount)| *amount != 0)
        .map(|(id, amount)| {
            let quantity = names.quantity(id, amount.into()).to_wire();
            (names.name(id).to_owned(), quantity)
        })
        .collect())
}

/// What a container, or the pod as a whole, reserves: its requests, and its limits where it
/// requests nothing.
fn effective(asking: &Value, names: &mut Names) -> Result<Amounts, Error> {
    let mut reserved = match map(asking, &["resources", "limits"])? {
        Some(limits) => amounts(limits, names)?,
        None => Amounts::default(),
    };
    if let Some(requests) = map(asking, &["resources", "requests"])? {
        for (id, amount) in amounts(requests, names)?.0 {
            *reserved.entry(id) = amount;
        }
    }
    Ok(reserved)
}

/// Each amount is rounded up before it is added, as schedulers do.
fn amounts(quantities: &Map<String, Value>, names: &mut Names) -> Result<Amounts, Error> {
    let mut amounts = Amounts::default();
    let counted = quantities
        .iter()
        .filter(|(name, _)| Names::is_counted(name));
    for (name, value) in counted {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let quantity: Quantity = text.parse().map_err(|_| Error::Quantity {
            path: name.clone(),
            text,
        })?;
        if let Some(id) = names.intern(name) {
            *amounts.entry(id) = amount(id, quantity);
        }
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capacity::{Census, PodView};

    #[test]
    fn a_replica_asks_for_what_its_pod_will_be_counted_for() {
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
                "an init container beside a sidecar",
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
            let request = request(&spec).unwrap();
            let request = ["cpu", "memory"].map(|name| request[name].0.as_str());
            assert_eq!(request, [cpu, memory], "{what}");
            // The agent counts the same.
            let mut census = Census::default();
            let pod: PodView = serde_json::from_value(json!({ "spec": spec })).unwrap();
            census.apply_pod(&pod);
            let counted = census.summary().allocating;
            assert_eq!(
                request,
                ["cpu", "memory"].map(|name| counted[name].0.as_str()),
                "{what}"
            );
        }
    }

    #[test]
    fn a_limit_of_the_whole_pod_counts_where_no_container_requests_anything() {
        let limits = json!({ "limits": { "cpu": "4" } });
        let alone = json!({ "containers": [{ "name": "c" }], "resources": limits });
        assert_eq!(request(&alone).unwrap()["cpu"].0, "4");
        let asked = json!({ "requests": { "cpu": "1" } });
        let beside =
            json!({ "containers": [{ "name": "c", "resources": asked }], "resources": limits });
        assert_eq!(request(&beside).unwrap()["cpu"].0, "1");
    }
}
