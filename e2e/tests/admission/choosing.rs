//! Which webhooks are asked, and in what order.

use serde_json::{Value, json};

use crate::admission::webhook::{Webhook, allow};
use crate::admission::{Talk, map};

#[tokio::test]
async fn rules_and_conditions_choose_what_is_asked() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|_, _| allow()).await;
    let everything = json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"] }]);
    let entries = json!([
        webhook.entry("condition.example.com", "/condition", &json!({ "matchConditions": [{ "name": "c", "expression": "object.metadata.name.startsWith('x') && request.operation == 'CREATE'" }] })),
        webhook.entry("status.example.com", "/status", &json!({ "rules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/*"], "operations": ["UPDATE"] }] })),
        webhook.entry("all.example.com", "/all", &json!({ "rules": everything })),
    ]);
    talk.configure("Mutating", "m", entries).await;
    webhook.seen();

    talk.create(&map("a")).await;
    assert_eq!(webhook.paths(), ["/all"]);
    talk.create(&map("x")).await;
    assert_eq!(webhook.paths(), ["/condition", "/all"]);

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
