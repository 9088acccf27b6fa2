//! Clusters and eviction tasks for the tests of commands.

use std::sync::Arc;

use muster_control_plane::scheduler::core::Snapshot;
use serde_json::{Value, json};

/// Makes a ready cluster that serves Deployments, with so many cores and plenty of pods free.
pub(crate) fn cluster(name: &str, cores: &str) -> Value {
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
            ],
            "resourceSummary": { "allocatable": { "cpu": cores, "pods": "1000" } },
        },
    })
}

/// Makes the scheduler's picture of clusters.
pub(crate) fn snapshot(clusters: &[Value]) -> Snapshot {
    let decoded = |it: &Value| Arc::new(serde_json::from_value(it.clone()).unwrap());
    Snapshot::new(clusters.iter().map(decoded))
}

/// Makes the eviction tasks of a workload that leaves a cluster, or leaves none.
pub(crate) fn tasks(leaving: Option<&str>) -> Vec<Value> {
    let task = leaving.map(|from| {
        json!({
            "fromCluster": from, "reason": "TaintUntolerated", "producer": "TaintManager",
            "creationTimestamp": "2026-01-01T00:09:00Z",
        })
    });
    task.into_iter().collect()
}
