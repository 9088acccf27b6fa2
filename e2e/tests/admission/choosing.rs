//! Which webhooks are asked, and in what order.

use muster_e2e::apiserver::ApiServer;
use serde_json::{Value, json};

use crate::admission::webhook::{Webhook, allow, change};
use crate::admission::{MAPS, Talk, map};

#[tokio::test]
async fn selectors_and_conditions_choose_what_is_asked() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|_, _| allow()).await;
    let everything = json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"] }]);
    let entries = json!([
        webhook.entry("object.example.com", "/object", &json!({ "objectSelector": { "matchLabels": { "a": "1" } } })),
        webhook.entry("space.example.com", "/space", &json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "kube-public" } } })),
        webhook.entry("condition.example.com", "/condition", &json!({ "matchConditions": [{ "name": "c", "expression": "object.metadata.name.startsWith('x') && request.operation == 'CREATE'" }] })),
        webhook.entry("status.example.com", "/status", &json!({ "rules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/*"], "operations": ["UPDATE"] }] })),
        webhook.entry("all.example.com", "/all", &json!({ "rules": everything, "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } } })),
    ]);
    talk.configure("Mutating", "m", entries).await;
    webhook.seen();

    talk.create(&map("a")).await;
    assert_eq!(webhook.paths(), ["/all"]);
    talk.create(&map("x")).await;
    assert_eq!(webhook.paths(), ["/condition", "/all"]);
    talk.send(
        "POST",
        "/api/v1/namespaces/kube-public/configmaps",
        &map("a"),
    )
    .await;
    assert_eq!(webhook.paths(), ["/space"]);
    // Taking the label away is asked about, too: the old object had it.
    talk.send(
        "PATCH",
        &format!("{MAPS}/a"),
        &json!({ "metadata": { "labels": { "a": "1" } } }),
    )
    .await;
    talk.send(
        "PATCH",
        &format!("{MAPS}/a"),
        &json!({ "metadata": { "labels": null } }),
    )
    .await;
    assert_eq!(webhook.paths(), ["/object", "/all", "/object", "/all"]);

    let deployment = json!({ "metadata": { "name": "d" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "a", "image": "i" }] } },
    } });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    talk.send("POST", path, &deployment).await;
    webhook.seen();
    talk.send(
        "PATCH",
        &format!("{path}/d/status"),
        &json!({ "status": { "replicas": 1 } }),
    )
    .await;
    talk.send(
        "PATCH",
        &format!("{path}/d/scale"),
        &json!({ "spec": { "replicas": 2 } }),
    )
    .await;
    let seen: Vec<(String, Value, Value)> = webhook
        .seen()
        .into_iter()
        .map(|(path, r)| (path, r["subResource"].clone(), r["kind"]["kind"].clone()))
        .collect();
    let expected = |path: &str, subresource: &str, kind: &str| {
        (path.to_owned(), json!(subresource), json!(kind))
    };
    assert_eq!(
        seen,
        [
            expected("/status", "status", "Deployment"),
            expected("/all", "status", "Deployment"),
            expected("/status", "scale", "Scale"),
            expected("/all", "scale", "Scale"),
        ]
    );
    // Nobody is asked about the configurations themselves: a bad one can be repaired.
    talk.configure("Mutating", "m2", json!([])).await;
    assert!(webhook.paths().is_empty());
}

#[tokio::test]
async fn webhooks_follow_one_another_by_the_names_of_their_configurations() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|_, _| allow()).await;
    let entry = |name: &str, path: &str| webhook.entry(name, path, &json!({}));
    let second = json!([
        entry("two.example.com", "/second"),
        entry("three.example.com", "/third")
    ]);
    talk.configure("Mutating", "b", second).await;
    let first = json!([entry("one.example.com", "/first")]);
    talk.configure("Mutating", "a", first).await;
    talk.create(&map("a")).await;
    assert_eq!(webhook.paths(), ["/first", "/second", "/third"]);
}

#[tokio::test]
async fn a_rule_for_another_version_counts_unless_it_must_be_exact() {
    muster_shared::tls::install_provider();
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Cluster", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [version("v1", true), version("v2", false)] },
    });
    let server = ApiServer::for_test_with(vec![crd]).await;
    let talk = Talk::start(server).await;
    let webhook =
        Webhook::start(|_, _| change(&json!([{ "op": "add", "path": "/spec", "value": 1 }]))).await;
    let rules = json!([{ "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"] }]);
    talk.configure(
        "Mutating",
        "m",
        json!([
            webhook.entry(
                "exact.example.com",
                "/exact",
                &json!({ "rules": rules, "matchPolicy": "Exact" })
            ),
            webhook.entry(
                "equivalent.example.com",
                "/equivalent",
                &json!({ "rules": rules })
            ),
        ]),
    )
    .await;
    let widget =
        json!({ "apiVersion": "example.com/v2", "kind": "Widget", "metadata": { "name": "w" } });
    let (made, _) = talk
        .send("POST", "/apis/example.com/v2/widgets", &widget)
        .await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!(1)),
        "{made}"
    );
    let seen = webhook.seen();
    let [(path, review)] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!(path, "/equivalent");
    assert_eq!(
        (
            &review["kind"]["version"],
            &review["requestKind"]["version"]
        ),
        (&json!("v1"), &json!("v2"))
    );
    assert_eq!(review["object"]["apiVersion"], "example.com/v1");
}
