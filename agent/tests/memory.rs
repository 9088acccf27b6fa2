//! How many bytes the agent holds for each Work, counted by the allocator: the same in every run on
//! every machine.
//!
//! A member may have thousands of Works, each with a whole object in it.
//! `cargo test -p muster-agent --test memory -- --nocapture` prints the figures.

#![allow(clippy::unwrap_used)] // a test

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use muster_agent::work::CachedWork;
use muster_agent::work::desired::ObjectKey;
use muster_agent::work::observed::{Interpretation, ObjectStatuses};
use muster_agent::work::texts::Texts;
use muster_interpreter::Interpreters;
use muster_shared::interner::Interner;
use muster_shared::k8s::{Api, Client};
use muster_shared::queue::Queue;
use muster_shared::watch::{Informer, Selection};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Enough that the empty holders do not count.
const WORKS: usize = 1000;

/// Works that are larger than what the cache keeps.
const LARGE: usize = 40;

/// Returns a cache of the Works as an agent has it.
fn cache(client: Client) -> Informer<CachedWork> {
    let (kinds, namespaces) = (Interner::default(), Interner::default());
    let texts = Texts::default();
    let form = move |work: &mut CachedWork| {
        work.share(&kinds, &namespaces);
        work.fit(&texts);
    };
    Informer::keeping(Api::all(client), Selection::everything(), form)
}

/// Measures how much memory a Work takes in the cache. This is one test, because others beside it
/// would be counted, too.
#[test]
fn a_work_is_held_as_little_more_than_its_text() {
    let text = (0..WORKS).map(|n| work(n).to_string().len()).sum::<usize>() / WORKS;
    let (listed, relisted) = held(WORKS, work);
    let (large, _) = held(LARGE, large_work);
    let reflected = reflected();
    println!("{text:6} bytes: text of a Work as it is sent");
    println!("{listed:6} bytes: Work in the cache");
    println!("{large:6} bytes: Work of 1 MB in the cache");
    println!("{reflected:6} bytes: what was seen of its object");
    assert!(listed <= text + 700, "a Work takes {listed} bytes");
    assert!(relisted <= listed, "after another list it takes {relisted}");
    assert!(large <= 2000, "a large Work takes {large} bytes");
    assert!(reflected <= 1000, "a status takes {reflected} bytes");
}

/// Bytes for each Work once all are listed, and once they were listed again because the history was
/// lost.
fn held(works: usize, work: fn(usize) -> Value) -> (usize, usize) {
    let items: Vec<Value> = (0..works).map(work).collect();
    let list = json!({ "metadata": { "resourceVersion": "9" }, "items": items }).to_string();
    drop(items);
    let server = Arc::new(Server {
        list,
        watches: AtomicUsize::new(0),
        goes_on: Notify::new(),
        watched: Notify::new(),
    });
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(async {
        let answering = Arc::clone(&server);
        let service = tower::service_fn(move |request| Arc::clone(&answering).answer(request));
        let informer = cache(Client::new(service, "default"));
        let region = Region::new(ALLOCATOR);
        let each = || {
            let change = region.change();
            (change.bytes_allocated - change.bytes_deallocated) / works
        };
        tokio::spawn(informer.clone().run(CancellationToken::new()));
        server.watched.notified().await;
        assert_eq!(informer.len(), works);
        let listed = each();
        server.goes_on.notify_one();
        server.watched.notified().await;
        assert_eq!(informer.len(), works);
        (listed, each())
    })
}

/// Bytes for what is known of each object once all were seen, with the place of each Work in the
/// queue for its report.
fn reflected() -> usize {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(async {
        // The built-in scripts are read with the first question, once for the whole process.
        let interpreters = Interpreters::default();
        drop(Interpretation::at(&observed(0), &interpreters));
        let region = Region::new(ALLOCATOR);
        let statuses = ObjectStatuses::new(Queue::new("test"));
        for number in 0..WORKS {
            let object = observed(number);
            let key = ObjectKey::of(&object, 0).unwrap();
            let seen = Interpretation::at(&object, &interpreters);
            statuses.see(&name(number), &key, seen);
        }
        let change = region.change();
        (change.bytes_allocated - change.bytes_deallocated) / WORKS
    })
}

/// A server that has one list, whose first watch it ends for want of history, and no changes.
struct Server {
    list: String,
    watches: AtomicUsize,
    /// The first watch ends.
    goes_on: Notify,
    /// A watch has begun, so a list was taken over.
    watched: Notify,
}

impl Server {
    async fn answer(
        self: Arc<Self>,
        request: Request<kube::client::Body>,
    ) -> Result<Response<kube::client::Body>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let status = |code| json!({ "kind": "Status", "code": code }).to_string();
        let (code, body) = if query.contains("sendInitialEvents") {
            (422, status(422))
        } else if query.contains("watch=") {
            self.watched.notify_one();
            if self.watches.fetch_add(1, Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
            self.goes_on.notified().await;
            (410, status(410))
        } else {
            (200, self.list.clone())
        };
        let answer = Response::builder().status(code);
        Ok(answer.body(body.into_bytes().into()).unwrap())
    }
}

fn large_work(number: usize) -> Value {
    let mut work = work(number);
    work["spec"]["workload"]["manifests"][0]["data"] = json!({ "a": "x".repeat(1 << 20) });
    work
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

/// Returns an identifier that is as long as a uid.
fn uid(name: &str) -> String {
    format!("{name:0>36}")
}

/// Returns a template as people write them: two containers with a dozen variables.
fn deployment(number: usize) -> Value {
    let name = name(number);
    let variables: Vec<Value> = (0..12)
        .map(|variable| json!({ "name": format!("VARIABLE_{variable}"), "value": format!("value-{variable}-of-{name}") }))
        .collect();
    let container = |role: &str| {
        json!({
            "name": role, "image": format!("registry.example/app/{role}:1.2.3"), "env": variables,
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name, "work.karmada.io/permanent-id": uid(&name) } },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [container("main"), container("sidecar")] },
            },
        },
    })
}

/// Returns the object that a member makes of the template.
fn observed(number: usize) -> Value {
    let mut object = deployment(number);
    object["status"] = replicas();
    object
}

fn replicas() -> Value {
    json!({ "availableReplicas": 2, "observedGeneration": 1, "readyReplicas": 2, "replicas": 2, "updatedReplicas": 2 })
}

/// Returns a Work as it is listed once it was applied and reported.
fn work(number: usize) -> Value {
    let name = name(number);
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time });
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": name, "namespace": "karmada-es-m1", "uid": uid(&name), "resourceVersion": "123456", "generation": 2,
            "creationTimestamp": time, "finalizers": ["karmada.io/execution-controller"],
            "labels": { "resourcebinding.karmada.io/permanent-id": uid(&name), "work.karmada.io/permanent-id": uid(&name) },
            "annotations": { "resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": name },
        },
        "spec": { "workload": { "manifests": [deployment(number)] } },
        "status": {
            "conditions": [
                condition("Dispatching", "Dispatching", "Work is being dispatched to member clusters."),
                condition("Applied", "AppliedSuccessful", "Manifest has been successfully applied"),
            ],
            "manifestStatuses": [{
                "identifier": { "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "", "namespace": "default", "name": name },
                "health": "Healthy", "status": replicas(),
            }],
        },
    })
}
