//! Tokens of service accounts.

use kube::Client;
use serde_json::{Value, json};

use crate::identity::{client_with_token, send, server, who_am_i};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Requests a token of the account `bot`, and returns the answer.
async fn token_of_bot(client: &Client, spec: Value) -> Value {
    let path = format!("{ACCOUNTS}/bot/token");
    send(client, "POST", &path, &json!({ "spec": spec })).await
}

#[tokio::test]
async fn tokens_stand_for_accounts_as_long_as_these_are_there() {
    let (server, client) = server().await;
    let bot = json!({ "metadata": { "name": "bot" } });
    send(&client, "POST", ACCOUNTS, &bot).await;
    let plain = token_of_bot(&client, json!({})).await["status"]["token"].clone();
    let bot = client_with_token(&server, plain.as_str().unwrap()).await;
    let info = who_am_i(&bot).await;
    assert_eq!(
        info["username"], "system:serviceaccount:default:bot",
        "{info}"
    );
    assert_eq!(
        info["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );

    let secret = json!({ "kind": "Secret", "apiVersion": "v1", "name": "anchor" });
    let bound = token_of_bot(&client, json!({ "boundObjectRef": secret })).await;
    assert_eq!(bound["reason"], "BadRequest", "{bound}");
    let review = |token: &Value, audiences: Value| {
        let client = client.clone();
        let spec = json!({ "token": token, "audiences": audiences });
        async move {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            send(&client, "POST", path, &json!({ "spec": spec })).await["status"].clone()
        }
    };
    assert_eq!(review(&plain, json!([])).await["authenticated"], true);
    let foreign =
        token_of_bot(&client, json!({ "audiences": ["vault"] })).await["status"]["token"].clone();
    assert_eq!(
        review(&foreign, json!(["vault", "other"])).await["audiences"],
        json!(["vault"])
    );
    assert!(
        review(&foreign, json!([])).await["error"]
            .as_str()
            .unwrap()
            .contains("is invalid for the target audiences")
    );
    send(&client, "DELETE", &format!("{ACCOUNTS}/bot"), &json!({})).await;
    assert_eq!(
        review(&plain, json!([])).await["error"],
        "invalid bearer token"
    );
}
