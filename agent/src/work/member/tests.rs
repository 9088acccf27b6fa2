use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::*;

/// Returns a member that serves group `example.io` in version `v1` only.
fn upgraded(writes: &Arc<AtomicUsize>) -> Member {
    let writes = Arc::clone(writes);
    let kind = |kind: &str, plural: &str, scope: &str| json!({"resource": plural, "scope": scope, "verbs": ["get"], "responseKind": {"kind": kind}});
    let resources = json!([
        kind("Thing", "things", "Namespaced"),
        kind("Place", "places", "Cluster")
    ]);
    let group = json!({"metadata": {"name": "example.io"}, "versions": [{"version": "v1", "resources": resources}]});
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        if request.method() != http::Method::GET {
            writes.fetch_add(1, Ordering::Relaxed);
        }
        let items = match request.uri().path() {
            "/apis" => vec![group.clone()],
            _ => Vec::new(),
        };
        let list = json!({"kind": "APIGroupDiscoveryList", "items": items});
        let body = kube::client::Body::from(list.to_string().into_bytes());
        async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    });
    let client = Client::new(service, "default");
    let first = Arc::new(AtomicBool::new(true));
    Member::new(client.clone(), Discovery::new(client), move || {
        first.swap(false, Ordering::Relaxed)
    })
}

#[tokio::test]
async fn whether_we_may_act_is_asked_before_each_write() {
    let writes = Arc::default();
    let member = upgraded(&writes);
    let key = ObjectKey {
        kind: GroupVersionKind::gvk("example.io", "v1", "Thing"),
        namespace: "b".into(),
        name: "a".into(),
    };
    let object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let dismissed = |outcome: Result<Value, Error>| outcome.is_err_and(|it| it.is_dismissal());
    assert!(!dismissed(member.apply(&key, &object, true).await));
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    assert!(dismissed(member.apply(&key, &object, true).await));
    assert!(dismissed(member.patch(&key, &json!({})).await));
    let deleted = member
        .delete(&key, None, None, PropagationPolicy::Background)
        .await;
    assert!(deleted.is_err_and(|it| it.is_dismissal() && !it.is_silence()));
    assert_eq!(writes.load(Ordering::Relaxed), 1);
}

/// Otherwise a Work that begins or ends to name the default namespace with an upgrade loses the
/// object that it still wants.
#[tokio::test]
async fn an_object_of_a_version_that_is_gone_has_the_place_of_its_present_version() {
    let key = |kind: &str, namespace: &str, version: &str| ObjectKey {
        kind: GroupVersionKind::gvk("example.io", version, kind),
        namespace: namespace.into(),
        name: "a".into(),
    };
    let member = upgraded(&Arc::default());
    for (kind, namespace, place) in [
        ("Thing", "", "default"),
        ("Thing", "b", "b"),
        ("Place", "b", ""),
    ] {
        let found = member.place_served(&key(kind, namespace, "v1beta1")).await;
        assert_eq!(
            found.unwrap(),
            Some(key(kind, place, "v1")),
            "{kind} {namespace:?}"
        );
    }
}
