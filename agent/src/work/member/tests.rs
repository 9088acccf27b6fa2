use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::testing;

/// Returns a member that serves group `example.io` in version `v1` only.
fn upgraded(writes: &Arc<AtomicUsize>) -> Member {
    let writes = Arc::clone(writes);
    let mut group = testing::group("example.io", &[("things", "Thing"), ("places", "Place")]);
    group["versions"][0]["resources"][1]["scope"] = json!("Cluster");
    let client = testing::member(vec![group], move |head, _| {
        if head.method != http::Method::GET {
            writes.fetch_add(1, Ordering::Relaxed);
        }
        (200, json!({"kind": "APIGroupDiscoveryList", "items": []}))
    });
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

/// Checks that a Work that begins or ends to name the default namespace with an upgrade does not
/// lose the object that it still wants.
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

#[tokio::test(start_paused = true)]
async fn what_belongs_to_an_object_is_read_in_pages_and_one_that_cannot_be_read_is_left_out() {
    let pod = |name: &str| json!({"metadata": {"name": name, "namespace": "b"}});
    let mut odd = pod("odd");
    odd["metadata"]["ownerReferences"] = json!("x".repeat(300_000));
    let pages = [
        json!({"metadata": {"continue": "t"}, "items": [pod("a"), odd, pod("unwanted")]}),
        json!({"metadata": {}, "items": [pod("c")]}),
    ];
    let core = testing::group("", &[("pods", "Pod")]);
    let client = testing::member(vec![core], move |head, _| {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        match path {
            "/api/v1/namespaces/b/pods" if query.contains("continue=t") => (200, pages[1].clone()),
            "/api/v1/namespaces/b/pods" if query.contains("limit=") => (200, pages[0].clone()),
            _ => panic!("{path}?{query}"),
        }
    });
    let member = Member::new(client.clone(), Discovery::new(client), || true);
    let owner = ObjectKey {
        kind: GroupVersionKind::gvk("apps", "v1", "StatefulSet"),
        namespace: "b".into(),
        name: "web".into(),
    };
    let kind = GroupVersionKind::gvk("", "v1", "Pod");
    let is_wanted = |pod: &Value| pod["metadata"]["name"] != "unwanted";
    let found = member.list_beside(&kind, &owner, is_wanted).await.unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, [Some("a"), Some("c")]);
}
