//! Clusters and bindings for the tests of the scheduler.

use std::sync::Arc;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::cluster::Cluster;
use serde_json::{Value, json};

use crate::scheduler::core::{Decision, FitError, Options, Snapshot, schedule};

/// Returns a ready cluster that serves Deployments and ConfigMaps, with so many cores and plenty of
/// pods free.
pub(crate) fn cluster(name: &str, cores: i64) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }],
            "apiEnablements": [
                { "groupVersion": "apps/v1", "resources": [{ "name": "deployments", "kind": "Deployment" }] },
                { "groupVersion": "v1", "resources": [{ "name": "configmaps", "kind": "ConfigMap" }] },
            ],
            "resourceSummary": { "allocatable": { "cpu": cores.to_string(), "pods": "1000" } },
        },
    })
}

/// Returns such a cluster with a taint.
pub(in crate::scheduler) fn tainted(name: &str, cores: i64, key: &str, effect: &str) -> Value {
    let mut cluster = cluster(name, cores);
    cluster["spec"]["taints"] = json!([{ "key": key, "effect": effect }]);
    cluster
}

pub(in crate::scheduler) fn decoded(cluster: &Value) -> Cluster {
    serde_json::from_value(cluster.clone()).unwrap()
}

pub(crate) fn snapshot(clusters: &[Value]) -> Snapshot {
    Snapshot::new(clusters.iter().map(|cluster| Arc::new(decoded(cluster))))
}

/// Returns a Deployment whose replicas ask for a core each.
pub(crate) fn deployment(replicas: i32, placement: &Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web" },
        "replicas": replicas,
        "replicaRequirements": { "resourceRequest": { "cpu": "1" } },
        "placement": placement,
    }))
    .unwrap()
}

/// Returns a ConfigMap.
pub(in crate::scheduler) fn config_map(placement: &Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "settings" },
        "placement": placement,
    }))
    .unwrap()
}

/// Returns the binding with a previous result.
pub(crate) fn placed(mut spec: ResourceBindingSpec, result: &[(&str, i32)]) -> ResourceBindingSpec {
    let result: Vec<_> = result
        .iter()
        .map(|(name, replicas)| json!({ "name": name, "replicas": replicas }))
        .collect();
    spec.clusters = serde_json::from_value(json!(result)).unwrap();
    spec
}

/// Returns the binding while it is being moved away from a cluster.
pub(in crate::scheduler) fn leaving(
    mut spec: ResourceBindingSpec,
    cluster: &str,
    reason: &str,
) -> ResourceBindingSpec {
    spec.clusters.retain(|target| target.name != cluster);
    let task = json!({ "fromCluster": cluster, "reason": reason, "producer": "TaintManager" });
    spec.graceful_eviction_tasks
        .push(serde_json::from_value(task).unwrap());
    spec
}

/// Returns the options that keep clusters to which no replicas are given.
pub(in crate::scheduler) fn keeping_empty() -> Options {
    Options {
        keep_empty: true,
        ..Options::default()
    }
}

/// Returns the decision with default options and nothing in the status.
pub(in crate::scheduler) fn decide(
    spec: &ResourceBindingSpec,
    clusters: &[Value],
) -> Result<Decision, FitError> {
    decide_with(spec, clusters, &Options::default())
}

/// Returns the decision with these options and nothing in the status.
pub(in crate::scheduler) fn decide_with(
    spec: &ResourceBindingSpec,
    clusters: &[Value],
    options: &Options,
) -> Result<Decision, FitError> {
    let status = ResourceBindingStatus::default();
    schedule(spec, &status, &snapshot(clusters), options)
}

/// Returns the result as text, sorted by name, such as `m1:2 m2:1`; or why there is none.
pub(in crate::scheduler) fn outcome(spec: &ResourceBindingSpec, clusters: &[Value]) -> String {
    text(decide(spec, clusters))
}

pub(in crate::scheduler) fn text(result: Result<Decision, FitError>) -> String {
    match result {
        Ok(decision) => {
            let mut parts: Vec<String> = decision
                .clusters
                .iter()
                .map(|target| format!("{}:{}", target.name, target.replicas))
                .collect();
            parts.sort();
            parts.join(" ")
        }
        Err(error) => error.to_string(),
    }
}

pub(in crate::scheduler) fn static_weights(weights: &[(&str, i64)]) -> Value {
    let list: Vec<_> = weights
        .iter()
        .map(|(name, weight)| json!({ "targetCluster": { "clusterNames": [name] }, "weight": weight }))
        .collect();
    json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": { "staticWeightList": list },
    } })
}

pub(in crate::scheduler) fn dynamic() -> Value {
    json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": { "dynamicWeight": "AvailableReplicas" },
    } })
}

pub(in crate::scheduler) fn aggregated() -> Value {
    json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Aggregated",
    } })
}
