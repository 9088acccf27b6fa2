//! Clusters, bindings, leases and APIs for the tests of commands.

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use muster_control_plane::scheduler::core::Snapshot;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Client, Lease};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Decodes an object.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Makes an API that answers each request, whose body is a document, with a code and a document.
pub(crate) fn api(answer: impl FnMut(&Request<Value>) -> (u16, Value) + Send + 'static) -> Client {
    let answer = Arc::new(Mutex::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, document) = (*answer.lock())(&Request::from_parts(parts, body));
            let body = Body::from(document.to_string().into_bytes());
            Response::builder().status(code).body(body)
        }
    });
    Client::new(service, "default")
}

/// Makes a condition that has this status since a time.
pub(crate) fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    since: &str,
) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    })
}

/// Makes a ready cluster that serves Deployments, with so many cores and plenty of pods free.
pub(crate) fn cluster(name: &str, cores: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {},
        "status": {
            "conditions": [condition("Ready", "True", "ClusterReady", "", "2024-01-01T00:00:00Z")],
            "apiEnablements": [
                { "groupVersion": "apps/v1", "resources": [{ "name": "deployments", "kind": "Deployment" }] },
            ],
            "resourceSummary": { "allocatable": { "cpu": cores, "pods": "1000" } },
        },
    })
}

/// Makes a cluster of sync mode Pull that has reported nothing, and changes it by a merge patch.
pub(crate) fn member(name: &str, changes: &Value) -> Cluster {
    let mut cluster = json!({ "metadata": { "name": name }, "spec": { "syncMode": "Pull" } });
    json_patch::merge(&mut cluster, changes);
    read(cluster)
}

/// Makes the scheduler's picture of clusters.
pub(crate) fn snapshot(clusters: &[Value]) -> Snapshot {
    Snapshot::new(clusters.iter().map(|it| Arc::new(read(it.clone()))))
}

/// Makes the binding of a Deployment that is placed nowhere, and changes it by a merge patch.
pub(crate) fn binding(namespace: &str, name: &str, changes: &Value) -> Arc<AnyBinding> {
    let mut binding = json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "resource": {
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": name,
        } },
    });
    json_patch::merge(&mut binding, changes);
    Arc::new(read(binding))
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

/// Makes a lease of 15 seconds.
pub(crate) fn lease(holder: &str, renewed: &str) -> Lease {
    read(json!({ "spec": {
        "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed,
    } }))
}
