//! Number of replicas of a workload, and the requirements of each.

use serde_json::Value;

use super::{Error, kind::Kind, pod};
use crate::Replicas;
use crate::pod as rules;
use crate::read::{count, integer};

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
    let needs = pod::spec(object).map(rules::requirements).transpose()?;
    Ok(Some(Replicas {
        replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        requirements: needs.flatten(),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use muster_shared::capacity::{Census, PodView};
    use muster_shared::k8s;

    /// Returns what a replica with this pod spec asks for.
    fn request(spec: &Value) -> BTreeMap<String, k8s::Quantity> {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec });
        let found = interpret_replica(&pod).unwrap().unwrap();
        found.requirements.unwrap().resource_request
    }

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
            let request = request(&spec);
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
        assert_eq!(request(&alone)["cpu"].0, "4");
        let asked = json!({ "requests": { "cpu": "1" } });
        let beside =
            json!({ "containers": [{ "name": "c", "resources": asked }], "resources": limits });
        assert_eq!(request(&beside)["cpu"].0, "1");
    }
}
