//! APIs that tests answer for.

use std::io;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use kube::client::Body;
use muster_shared::k8s::Client;
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
