use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use muster_shared::k8s::Client;

use super::super::desired::desired;
use super::super::member::FIELD_MANAGER;
use super::*;
use crate::discovery::Discovery;

fn plan_for(desired: &Value, observed: &Value) -> Plan {
    let key = ObjectKey::of(desired, 0).unwrap();
    plan(&ServerNormalization::default(), &key, desired, observed).unwrap()
}

fn service(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

fn applied(object: &Value, fields: &Value) -> Value {
    let mut observed = object.clone();
    observed["metadata"]["managedFields"] =
        json!([{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}]);
    observed
}

#[test]
fn an_object_that_is_as_desired_needs_nothing() {
    let desired = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let mut observed = applied(&desired, &json!({"f:data": {"f:k": {}}}));
    assert!(plan_for(&desired, &observed).is_empty());
    observed["data"]["k"] = json!("other");
    assert_eq!(plan_for(&desired, &observed).apply, Some(desired));
}

#[test]
fn what_the_member_decides_is_sent_along_when_something_is_sent() {
    let observed = service(&json!({"clusterIP": "10.0.0.1", "type": "ClusterIP"}));
    let apply = plan_for(&service(&json!({"type": "NodePort"})), &observed)
        .apply
        .unwrap();
    assert_eq!(
        apply["spec"],
        json!({"clusterIP": "10.0.0.1", "type": "NodePort"})
    );
}

#[test]
fn what_the_member_decides_is_no_reason_to_send_anything() {
    let found = service(&json!({"clusterIP": "10.0.0.1", "type": "ClusterIP"}));
    let observed = applied(&found, &json!({"f:spec": {"f:type": {}}}));
    assert!(plan_for(&service(&json!({"type": "ClusterIP"})), &observed).is_empty());
}

#[test]
fn what_admission_and_the_scheduler_add_to_a_bare_pod_is_no_reason_to_send_anything() {
    let container = json!({"name": "web", "image": "nginx"});
    let desired = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [container], "tolerations": [{"key": "gpu"}], "nodeSelector": {"zone": "a"}}});
    let mut found = desired.clone();
    found["spec"]["tolerations"] = json!([{"key": "gpu"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 300}]);
    found["spec"]["nodeSelector"] = json!({"zone": "a", "pool": "x"});
    found["spec"]["nodeName"] = json!("n1");
    let fields = json!({"f:spec": {"f:tolerations": {}, "f:nodeSelector": {},
        "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
    let mut observed = applied(&found, &fields);
    assert!(plan_for(&desired, &observed).is_empty());

    observed["spec"]["containers"][0]["image"] = json!("other");
    let sent = plan_for(&desired, &observed).apply.unwrap();
    assert_eq!(sent["spec"]["tolerations"], found["spec"]["tolerations"]);
}

/// A member without objects that answers an apply with a version by this refusal, as Kubernetes
/// before 1.23 does for Services.
fn old_member(refusal: (u16, &'static str, &'static str)) -> Member {
    let service = tower::service_fn(
        move |request: http::Request<kube::client::Body>| async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, answer) = match (parts.method.as_str(), parts.uri.path()) {
                (_, "/api") => {
                    let resource = json!({"resource": "services", "scope": "Namespaced", "verbs": ["get"], "responseKind": {"kind": "Service"}});
                    let core = json!({"metadata": {}, "versions": [{"version": "v1", "resources": [resource]}]});
                    (
                        200,
                        json!({"kind": "APIGroupDiscoveryList", "items": [core]}),
                    )
                }
                (_, "/apis") => (200, json!({"kind": "APIGroupDiscoveryList", "items": []})),
                ("GET", _) => {
                    let why = json!({"name": "a", "kind": "services"});
                    (
                        404,
                        json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": why}),
                    )
                }
                _ => {
                    let object: Value = serde_json::from_slice(&body).unwrap();
                    if object.pointer("/metadata/resourceVersion").is_some() {
                        let (code, reason, message) = refusal;
                        (
                            code,
                            json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}),
                        )
                    } else {
                        (201, object)
                    }
                }
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        },
    );
    let client = Client::new(service, "default");
    Member::new(
        client.clone(),
        Discovery::new(client),
        Arc::default(),
        || true,
    )
}

#[tokio::test]
async fn an_object_is_made_where_no_version_may_be_named_with_it() {
    let wanted = service(&json!({"type": "ClusterIP"}));
    let key = ObjectKey::of(&wanted, 0).unwrap();
    let fleet = FleetId::Unknown(String::new());
    let not_set = "resourceVersion should not be set on objects to be created";
    for refusal in [
        (500, "InternalError", not_set),
        (409, "Conflict", "there is no object of this version"),
    ] {
        let member = old_member(refusal);
        let made = ensure_applied(&member, "m1", &key, &wanted, &fleet).await;
        assert_eq!(
            made.unwrap(),
            (Change::Created, wanted.clone()),
            "{refusal:?}"
        );
    }
}

/// A member that serves ingresses in two groups; `web` is one object with a uid for each, and what
/// is written is noted.
fn two_groups(uids: [&'static str; 2], writes: &Arc<Mutex<Vec<String>>>) -> Member {
    let writes = Arc::clone(writes);
    let group = |name: &str| {
        let resource = json!({"resource": "ingresses", "scope": "Namespaced", "verbs": ["get"], "responseKind": {"kind": "Ingress"}});
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [resource]}]})
    };
    let groups = json!([group("extensions"), group("networking.k8s.io")]);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        if request.method() != http::Method::GET {
            writes.lock().unwrap().push(path.clone());
        }
        let answer = match path.as_str() {
            "/apis" => json!({"kind": "APIGroupDiscoveryList", "items": groups}),
            "/api" => json!({"kind": "APIGroupDiscoveryList", "items": []}),
            path => {
                let uid = uids[usize::from(path.contains("networking"))];
                let api_version = path.split('/').nth(2).unwrap_or_default();
                let object = json!({"apiVersion": format!("{api_version}/v1"), "kind": "Ingress",
                    "metadata": {"name": "web", "namespace": "shop"}});
                let mut object = desired(&object, ("es", "w"), None);
                object["metadata"]["uid"] = json!(uid);
                object
            }
        };
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, Infallible>(http::Response::new(body)) }
    });
    let client = Client::new(service, "default");
    let discovery = Discovery::new(client.clone());
    Member::new(client, discovery, Arc::default(), || true)
}

#[tokio::test]
async fn an_object_that_is_wanted_in_another_group_is_not_removed_in_the_former_one() {
    let key = |group: &str| {
        let manifest = json!({"apiVersion": format!("{group}/v1"), "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}});
        ObjectKey::of(&manifest, 0).unwrap()
    };
    for (what, uids, wanted, removed) in [
        ("one object in two groups", ["u", "u"], true, 0),
        ("two objects of one name", ["u", "v"], true, 1),
        ("one object that is not wanted", ["u", "u"], false, 1),
    ] {
        for preserve in [false, true] {
            let writes = Arc::default();
            let member = two_groups(uids, &writes);
            let others = wanted.then(|| key("networking.k8s.io"));
            let former = key("extensions");
            remove(
                &member,
                &former,
                others.as_slice(),
                ("es", "w"),
                preserve,
                &FleetId::Unknown(String::new()),
            )
            .await
            .unwrap();
            let writes = writes.lock().unwrap();
            assert_eq!(writes.len(), removed, "{what}: {writes:?}");
            assert!(writes.iter().all(|path| path.contains("/extensions/")));
        }
    }
}

#[tokio::test]
async fn what_the_server_made_of_an_object_is_forgotten_with_it() {
    let member = two_groups(["u", "u"], &Arc::default());
    for number in 0..1_000 {
        let wanted = json!({"apiVersion": "extensions/v1", "kind": "Ingress",
            "metadata": {"name": format!("web{number}"), "namespace": "shop"}, "spec": {"timeout": "60s"}});
        let key = ObjectKey::of(&wanted, 0).unwrap();
        let mut answer = wanted.clone();
        answer["spec"]["timeout"] = json!("1m0s");
        member.echoes().applied(&key, &wanted, &answer);
        assert_eq!(member.echoes().remembered(), 1);
        remove(
            &member,
            &key,
            &[],
            ("es", "w"),
            false,
            &FleetId::Unknown(String::new()),
        )
        .await
        .unwrap();
    }
    assert_eq!(member.echoes().remembered(), 0);
}
