//! How many bytes the caches hold for each object, counted by the allocator: the same in every run
//! on every machine.
//!
//! A fleet is as large as its workloads are many, and of each the control plane keeps a binding, a
//! template and at least one Work. Each kind is listed by an informer of its own, as in the fleet,
//! and what is allocated afterwards is divided by the objects. `cargo test -p muster-control-plane
//! --test memory -- --nocapture` prints the figures.

#![allow(clippy::unwrap_used)] // a test

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use kube::{Api, Client};
use muster_control_plane::fleet::intern::{self, BindingInterner};
use muster_control_plane::fleet::template;
use muster_control_plane::fleet::works::{self, WorkIndex};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::scope::ResourceScope;
use muster_shared::k8s::{ApiResource, GroupVersionKind};
use muster_shared::watch::{Followed, Informer, Selection};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Enough that the empty cache hardly counts, nor do the objects that stay decoded.
const OBJECTS: usize = 5000;

#[test]
fn the_caches_hold_no_more_of_an_object_than_is_read() {
    let everything = Selection::everything;
    // One for all, as in the fleet.
    let common = Arc::new(BindingInterner::default());
    let bindings = |client| {
        let common = Arc::clone(&common);
        let form = move |binding: &mut AnyBinding| common.share(binding);
        let api = Api::all_with(client, &ResourceScope::Namespaced);
        Informer::packing(api, everything(), form, intern::codec())
    };
    let works = |client| {
        let works = Informer::packing(Api::all(client), everything(), |_| {}, works::codec());
        // It lives on in what it listens with.
        WorkIndex::new(&works);
        works
    };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let templates = |client| {
        let api = Api::all_with(client, &kind);
        Informer::packing(api, everything(), |_| {}, template::codec())
    };

    let reported = |number| binding(number, 10, &reported_binding());
    let figures = [
        (
            "binding, scheduled",
            held(bindings, |number| binding(number, 10, &scheduled())),
            900,
        ),
        (
            "binding, scheduled among a thousand clusters",
            held(bindings, |number| binding(number, 1000, &scheduled())),
            900,
        ),
        (
            "binding, reported by its cluster",
            held(bindings, reported),
            1050,
        ),
        ("template", held(templates, template), 620),
        (
            "work",
            held(works, |number| work(number, &Value::Null)),
            800,
        ),
        (
            "work, reported by its cluster",
            held(works, |number| work(number, &reported_work())),
            880,
        ),
    ];
    for (what, bytes, _) in &figures {
        println!("{bytes:6} bytes: {what}");
    }
    for (what, bytes, budget) in figures {
        assert!(bytes <= budget, "a {what} takes {bytes} bytes of {budget}");
    }
}

/// Bytes for each object once all are listed.
fn held<K: Followed>(
    informer: impl FnOnce(Client) -> Informer<K>,
    object: impl Fn(usize) -> Value,
) -> usize {
    let items: Vec<Value> = (0..OBJECTS).map(object).collect();
    let list = json!({ "metadata": { "resourceVersion": "9" }, "items": items }).to_string();
    // A runtime for each kind, on this thread: when it is gone, so is everything that must not be
    // counted with the next.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(async {
        let server = tower::service_fn(move |request| answer(request, list.clone()));
        let informer = informer(Client::new(server, "default"));
        let region = Region::new(ALLOCATOR);
        tokio::spawn(informer.clone().run(CancellationToken::new()));
        informer.synced().await;
        assert_eq!(informer.len(), OBJECTS);
        let change = region.change();
        (change.bytes_allocated - change.bytes_deallocated) / OBJECTS
    })
}

/// Answers a request as a server does that has one list and no changes.
async fn answer(request: Request<Body>, list: String) -> Result<Response<Body>, Infallible> {
    let query = request.uri().query().unwrap_or_default();
    if query.contains("sendInitialEvents") {
        let refusal = json!({ "kind": "Status", "code": 422 }).to_string();
        return Ok(Response::builder()
            .status(422)
            .body(refusal.into_bytes().into())
            .unwrap());
    }
    if query.contains("watch=") {
        drop(list);
        return std::future::pending().await;
    }
    Ok(Response::new(list.into_bytes().into()))
}

/// Returns metadata as an API server fills it in.
fn metadata(namespace: &str, name: &str, labels: &Value, annotations: &Value) -> Value {
    json!({
        "namespace": namespace, "name": name, "uid": uid(name), "resourceVersion": "123456", "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "annotations": annotations,
        "managedFields": [{ "manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} } }],
    })
}

/// Returns a text with the name that is as long as a uid.
fn uid(name: &str) -> String {
    format!("{name:0>36}")
}

fn placement(clusters: usize) -> Value {
    let clusters: Vec<_> = (0..clusters)
        .map(|number| format!("member-{number}"))
        .collect();
    json!({
        "clusterAffinity": { "clusterNames": clusters },
        "clusterTolerations": [
            { "key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "cluster.karmada.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
        ],
        "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": { "dynamicWeight": "AvailableReplicas" },
        },
    })
}

/// Returns a binding whose policy names so many clusters.
fn binding(number: usize, clusters: usize, status: &Value) -> Value {
    let placement = placement(clusters);
    let template = format!("web-{number}");
    let labels = json!({ "propagationpolicy.karmada.io/permanent-id": uid("p"), "resourcebinding.karmada.io/permanent-id": uid(&template) });
    let annotations = json!({
        "propagationpolicy.karmada.io/namespace": "default", "propagationpolicy.karmada.io/name": "web",
        "policy.karmada.io/applied-placement": placement.to_string(),
    });
    let mut metadata = metadata(
        "default",
        &format!("{template}-deployment"),
        &labels,
        &annotations,
    );
    metadata["finalizers"] = json!(["karmada.io/binding-controller"]);
    metadata["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": template, "uid": uid(&template), "controller": true, "blockOwnerDeletion": true,
    }]);
    json!({
        "metadata": metadata,
        "spec": {
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": template, "uid": uid(&template), "resourceVersion": "123" },
            "replicaRequirements": { "resourceRequest": { "cpu": "100m", "memory": "128Mi" } },
            "replicas": 2, "clusters": [{ "name": "member-3", "replicas": 2 }], "placement": placement,
            "schedulerName": "default-scheduler", "conflictResolution": "Abort",
        },
        "status": status,
    })
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn scheduled() -> Value {
    json!({
        "schedulerObservedGeneration": 2, "lastScheduledTime": "2026-01-01T00:00:00Z",
        "conditions": [condition("Scheduled", "Success", "Binding has been scheduled successfully.")],
    })
}

fn reported_binding() -> Value {
    let mut status = scheduled();
    let applied = condition(
        "FullyApplied",
        "FullyAppliedSuccess",
        "All works have been successfully applied",
    );
    status["conditions"] = json!([status["conditions"][0], applied]);
    status["aggregatedStatus"] = json!([{ "clusterName": "member-3", "applied": true, "health": "Healthy", "status": replicas() }]);
    status
}

/// Returns what is reflected of a Deployment.
fn replicas() -> Value {
    json!({
        "availableReplicas": 2, "generation": 1, "observedGeneration": 1, "readyReplicas": 2, "replicas": 2,
        "resourceTemplateGeneration": 1, "updatedReplicas": 2,
    })
}

fn deployment(name: &str) -> Value {
    json!({
        "replicas": 2, "selector": { "matchLabels": { "app": name } },
        "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } } }] },
        },
    })
}

fn template(number: usize) -> Value {
    let name = format!("web-{number}");
    let labels = json!({ "app": name, "propagationpolicy.karmada.io/permanent-id": uid("p") });
    let annotations = json!({ "propagationpolicy.karmada.io/namespace": "default", "propagationpolicy.karmada.io/name": "web" });
    json!({ "metadata": metadata("default", &name, &labels, &annotations), "spec": deployment(&name) })
}

fn work(number: usize, status: &Value) -> Value {
    let name = format!("web-{number}");
    let labels = json!({ "resourcebinding.karmada.io/permanent-id": uid(&name), "work.karmada.io/permanent-id": uid(&name) });
    let annotations = json!({
        "resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": format!("{name}-deployment"),
        "work.karmada.io/conflict-resolution": "abort",
    });
    let mut metadata = metadata(
        "karmada-es-member-3",
        &format!("{name}-84d4bbb"),
        &labels,
        &annotations,
    );
    metadata["finalizers"] = json!(["karmada.io/execution-controller"]);
    let manifest = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "default", "name": name, "labels": labels, "annotations": annotations }, "spec": deployment(&name) });
    json!({ "metadata": metadata, "spec": { "workload": { "manifests": [manifest] } }, "status": status })
}

fn reported_work() -> Value {
    json!({
        "conditions": [condition("Applied", "AppliedSuccessful", "Manifest has been successfully applied")],
        "manifestStatuses": [{
            "identifier": { "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "", "namespace": "default", "name": "web" },
            "health": "Healthy", "status": replicas(),
        }],
    })
}
