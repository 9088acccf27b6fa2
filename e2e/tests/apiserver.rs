//! The embedded API server as kube-rs's client meets it.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use muster_e2e::apiserver::{ApiServer, Forget};
use serde_json::json;

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("key".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let api = ApiServer::for_test().await;
    let client = api.client().await.expect("client");
    let maps = config_maps(&client);
    let made = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("create");
    assert!(made.uid().is_some() && made.resource_version().is_some());
    let again = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await;
    let Err(kube::Error::Api(status)) = again else {
        panic!("created twice")
    };
    assert_eq!(status.message, r#"configmaps "a" already exists"#);

    let patch = json!({ "data": { "key": "2" } });
    let patched = maps
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("patch");
    assert_eq!(
        patched
            .data
            .as_ref()
            .and_then(|d| d.get("key"))
            .map(String::as_str),
        Some("2")
    );
    let stale = maps.replace("a", &PostParams::default(), &made).await;
    let Err(kube::Error::Api(status)) = stale else {
        panic!("a stale update went through")
    };
    assert!(status.is_conflict());

    maps.delete("a", &DeleteParams::default())
        .await
        .expect("delete");
    assert!(maps.get_opt("a").await.expect("get").is_none());
}

#[tokio::test]
async fn a_watch_sees_what_happens_and_ends_with_410_when_history_is_gone() {
    let api = ApiServer::for_test().await;
    let client = api.client().await.expect("client");
    let maps = config_maps(&client);
    let start = maps.list(&ListParams::default()).await.expect("list");
    let version = start.metadata.resource_version.expect("version");
    let mut events = Box::pin(
        maps.watch(&WatchParams::default(), &version)
            .await
            .expect("watch"),
    );
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("create");
    maps.delete("a", &DeleteParams::default())
        .await
        .expect("delete");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match events.next().await.expect("event").expect("decodes") {
            WatchEvent::Added(o) if o.name_any() == "a" => seen.push("added"),
            WatchEvent::Deleted(o) if o.name_any() == "a" => seen.push("deleted"),
            _ => {}
        }
    }
    assert_eq!(seen, ["added", "deleted"]);

    api.restart(Forget::History);
    assert!(
        !matches!(events.next().await, Some(Ok(_))),
        "a restart cuts watches"
    );
    let client = api.client().await.expect("client");
    let mut late = Box::pin(
        config_maps(&client)
            .watch(&WatchParams::default(), &version)
            .await
            .expect("watch"),
    );
    let Some(Ok(WatchEvent::Error(status))) = late.next().await else {
        panic!("no error event")
    };
    assert_eq!(status.code, 410);
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one() {
    let api = ApiServer::for_test().await;
    let client = api.client().await.expect("client");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    for i in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("m{i}"), "x"))
            .await
            .expect("create");
    }
    let first = maps
        .list(&ListParams::default().limit(2))
        .await
        .expect("page");
    maps.delete("m4", &DeleteParams::default())
        .await
        .expect("delete");
    maps.create(&PostParams::default(), &config_map("m3a", "x"))
        .await
        .expect("create");
    let mut names: Vec<String> = first.items.iter().map(ResourceExt::name_any).collect();
    let mut token = first.metadata.continue_;
    while let Some(next) = token.filter(|t| !t.is_empty()) {
        let page = maps
            .list(&ListParams::default().limit(2).continue_token(&next))
            .await
            .expect("page");
        names.extend(page.items.iter().map(ResourceExt::name_any));
        token = page.metadata.continue_;
    }
    names.retain(|n| n != "kube-root-ca.crt");
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
}

fn widgets() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["wd"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    })
}

fn widget_api(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::namespaced_with(client.clone(), "default", &kind)
}

#[tokio::test]
async fn custom_resources_are_served_with_a_status_of_their_own() {
    let api = ApiServer::for_test_with(vec![widgets()]).await;
    let client = api.client().await.expect("client");
    let widgets = widget_api(&client);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
        "spec": { "size": 1 }, "status": { "ready": true },
    }))
    .expect("object");
    let made = widgets
        .create(&PostParams::default(), &object)
        .await
        .expect("create");
    assert!(
        made.data.get("status").is_none(),
        "the status is written by its subresource only"
    );
    assert_eq!(made.metadata.generation, Some(1));

    let status = json!({ "status": { "ready": true } });
    let params = PatchParams::default();
    let patched = widgets
        .patch_status("w", &params, &Patch::Merge(&status))
        .await
        .expect("status");
    assert_eq!(patched.data["status"]["ready"], true);
    assert_eq!(patched.metadata.generation, Some(1));
    let spec = json!({ "spec": { "size": 2 } });
    let patched = widgets
        .patch("w", &params, &Patch::Merge(&spec))
        .await
        .expect("spec");
    assert_eq!(patched.metadata.generation, Some(2));
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along() {
    let api = ApiServer::for_test().await;
    let client = api.client().await.expect("client");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let made = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("create");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("create");
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .expect("delete");
    let uid = made.uid().expect("uid");
    let gone = conditions::is_deleted(&uid);
    tokio::time::timeout(
        std::time::Duration::from_secs(10),
        await_condition(namespaces, "shop", gone),
    )
    .await
    .expect("in time")
    .expect("gone");
    let late = maps
        .create(&PostParams::default(), &config_map("b", "1"))
        .await;
    let Err(kube::Error::Api(status)) = late else {
        panic!("created in an absent namespace")
    };
    assert_eq!(status.message, r#"namespaces "shop" not found"#);
}

#[tokio::test]
async fn dependents_go_with_their_owner() {
    let api = ApiServer::for_test().await;
    let client = api.client().await.expect("client");
    let maps = config_maps(&client);
    let owner = maps
        .create(&PostParams::default(), &config_map("owner", "1"))
        .await
        .expect("create");
    let mut dependent = config_map("dependent", "1");
    dependent.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(),
        }))
        .expect("reference"),
    ]);
    let dependent = maps
        .create(&PostParams::default(), &dependent)
        .await
        .expect("create");
    maps.delete("owner", &DeleteParams::default())
        .await
        .expect("delete");
    let uid = dependent.uid().expect("uid");
    let gone = conditions::is_deleted(&uid);
    tokio::time::timeout(
        std::time::Duration::from_secs(10),
        await_condition(maps, "dependent", gone),
    )
    .await
    .expect("in time")
    .expect("gone");
}

#[tokio::test]
async fn those_without_a_role_may_nothing() {
    let api = ApiServer::for_test().await;
    let client = api.client_as("jane", &["dev"]).await.expect("client");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let Err(kube::Error::Api(status)) = pods.list(&ListParams::default()).await else {
        panic!("allowed")
    };
    assert_eq!(
        status.message,
        r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
    );
}
