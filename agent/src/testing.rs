//! APIs that tests answer for, and what several of them do to objects.

use std::io;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use kube::client::Body;
use muster_interpreter::Interpreters;
use muster_interpreter::webhook::Hooks;
use muster_shared::fencing::{self, Orders};
use muster_shared::k8s::Client;
use muster_shared::merge;
use serde_json::{Value, json};

/// Returns a client of an API that answers each request by its head and its body.
pub(crate) fn api(
    answer: impl Fn(&Parts, &[u8]) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
    slow_api(move |head, body| std::future::ready(Ok(answer(&head, &body))))
}

/// Returns a client of an API that takes its time for an answer, or breaks the connection off.
pub(crate) fn slow_api<A>(answer: impl Fn(Parts, Vec<u8>) -> A + Send + Sync + 'static) -> Client
where
    A: Future<Output = io::Result<(u16, Value)>> + Send + 'static,
{
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, body) = answer(head, body.to_vec()).await?;
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

/// Returns the answer of an API that has no object with these details. The answer of a proxy has
/// the same code and no details.
pub(crate) fn not_found(details: &Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "not found", "details": details,
    });
    (404, status)
}

/// Returns a client of a member that serves these groups, and answers all but discovery by the head
/// and the body of the request.
pub(crate) fn member(
    groups: Vec<Value>,
    answer: impl Fn(&Parts, &[u8]) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
    let is_core = |group: &Value| group["metadata"]["name"] == "";
    let (core, named): (Vec<Value>, Vec<Value>) = groups.into_iter().partition(is_core);
    api(move |head, body| {
        let items = match head.uri.path() {
            "/api" => &core,
            "/apis" => &named,
            _ => return answer(head, body),
        };
        let list = json!({"kind": "APIGroupDiscoveryList", "items": items});
        (200, list)
    })
}

/// Returns version `v1` of a group as discovery lists it, with the plurals and the names of its
/// namespaced kinds. The core group has no name.
pub(crate) fn group(name: &str, kinds: &[(&str, &str)]) -> Value {
    let resource = |(plural, kind): &(&str, &str)| {
        json!({"resource": plural, "scope": "Namespaced", "verbs": ["get"],
            "responseKind": {"kind": kind}})
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]})
}

/// Has a webhook asked about all objects of a kind, or of each (`*`), which does not answer.
pub(crate) fn ask_webhook(interpreters: &Interpreters, kind: &str) {
    muster_shared::tls::install_provider();
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "w.example.com", "interpreterContextVersions": ["v1alpha1"],
        "clientConfig": {"url": "https://localhost:1/"},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": [kind]}],
    }]});
    let configuration = serde_json::from_value(configuration).unwrap();
    interpreters.set_hooks(Hooks::new([&configuration]));
}

/// Gives an object fencing orders; without `stop` it is deleted while the member is cut off.
pub(crate) fn fence(object: &mut Value, stop: Option<Value>) {
    let orders = Orders {
        after_seconds: 60,
        grace_seconds: 0,
        stop,
    };
    orders.write(object);
}

/// Stops an object, as the agent does in a member that is cut off.
pub(crate) fn stop(object: &mut Value, order: &Value) {
    let stop = fencing::stop(object, order).unwrap();
    merge::apply(object, &stop);
}
