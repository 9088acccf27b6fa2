//! Which webhooks are asked, and in what order.

use serde_json::json;

use crate::admission::webhook::{Webhook, allow};
use crate::admission::{Talk, map};

#[tokio::test]
async fn rules_conditions_and_names_of_configurations_decide_who_is_asked_and_when() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|_, _| allow()).await;
    let paths = || {
        let seen = webhook.seen().into_iter();
        seen.map(|(path, _)| path).collect::<Vec<_>>()
    };
    let everything = json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"] }]);
    let secrets = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["*"] }]);
    let is_x = json!([{ "name": "c", "expression": "object.metadata.name.startsWith('x') && request.operation == 'CREATE'" }]);
    let second = json!([
        webhook.entry("x.example.com", "/x", &json!({ "matchConditions": is_x })),
        webhook.entry("s.example.com", "/s", &json!({ "rules": secrets })),
    ]);
    talk.configure("Mutating", "b", second).await;
    let all = webhook.entry("all.example.com", "/all", &json!({ "rules": everything }));
    talk.configure("Mutating", "a", json!([all])).await;
    webhook.seen();
    talk.create(&map("y")).await;
    assert_eq!(paths(), ["/all"]);
    talk.create(&map("x")).await;
    assert_eq!(paths(), ["/all", "/x"]);
    // Nobody is asked about the configurations themselves: a bad one can be repaired.
    talk.configure("Mutating", "c", json!([])).await;
    assert!(paths().is_empty());
}
