//! Tokens of service accounts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::identity::{client_with_token, send, server, until, who_am_i};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Makes the account `bot`, and the secret `anchor` for its tokens to be bound to.
async fn make_bot(client: &Client) {
    let secrets = "/api/v1/namespaces/default/secrets";
    for (path, name) in [(ACCOUNTS, "bot"), (secrets, "anchor")] {
        send(
            client,
            "POST",
            path,
            &json!({ "metadata": { "name": name } }),
        )
        .await;
    }
}

/// Requests a token of `bot`, and returns the answer.
async fn token_of_bot(client: &Client, spec: Value) -> Value {
    let path = format!("{ACCOUNTS}/bot/token");
    send(client, "POST", &path, &json!({ "spec": spec })).await
}

#[tokio::test]
async fn a_token_is_bound_only_to_what_is_there() {
    let (_server, client) = server().await;
    make_bot(&client).await;
    for (reference, message) in [
        (
            json!({ "kind": "ConfigMap", "apiVersion": "v1", "name": "x" }),
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({ "kind": "Secret", "apiVersion": "v1", "name": "x" }),
            "secrets \"x\" not found",
        ),
        (
            json!({ "kind": "Secret", "apiVersion": "v1", "name": "anchor", "uid": "zz" }),
            "Operation cannot be fulfilled on Secret \"anchor\": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated",
        ),
    ] {
        assert_eq!(
            token_of_bot(&client, json!({ "boundObjectRef": reference })).await["message"],
            message
        );
    }
}

#[tokio::test]
async fn tokens_stand_for_accounts_as_long_as_what_they_are_bound_to() {
    let (server, client) = server().await;
    make_bot(&client).await;
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

    let bound = token_of_bot(
        &client,
        json!({ "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": "anchor" } }),
    )
    .await["status"]["token"]
        .clone();
    let review = |token: &Value, audiences: Value| {
        let client = client.clone();
        let spec = json!({ "token": token, "audiences": audiences });
        async move {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            send(&client, "POST", path, &json!({ "spec": spec })).await["status"].clone()
        }
    };
    assert_eq!(review(&bound, json!([])).await["authenticated"], true);
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
    send(
        &client,
        "DELETE",
        "/api/v1/namespaces/default/secrets/anchor",
        &json!({}),
    )
    .await;
    assert_eq!(
        review(&bound, json!([])).await["error"],
        "invalid bearer token"
    );
    assert_eq!(review(&plain, json!([])).await["authenticated"], true);
    send(&client, "DELETE", &format!("{ACCOUNTS}/bot"), &json!({})).await;
    assert_eq!(
        review(&plain, json!([])).await["error"],
        "invalid bearer token"
    );
}

#[tokio::test]
async fn secrets_of_the_old_kind_are_filled_with_a_token() {
    let (server, client) = server().await;
    let secret = json!({
        "metadata": { "name": "old", "annotations": { "kubernetes.io/service-account.name": "default" } },
        "type": "kubernetes.io/service-account-token",
    });
    let path = "/api/v1/namespaces/default/secrets";
    until(
        &client,
        "/api/v1/namespaces/default/serviceaccounts/default",
        |a| a["metadata"]["uid"].is_string(),
    )
    .await;
    send(&client, "POST", path, &secret).await;
    let filled = until(&client, &format!("{path}/old"), |s| {
        s["data"]["token"].is_string()
    })
    .await;
    let token = STANDARD
        .decode(filled["data"]["token"].as_str().unwrap())
        .unwrap();
    let token = String::from_utf8(token).unwrap();
    let bot = client_with_token(&server, &token).await;
    assert_eq!(
        who_am_i(&bot).await["username"],
        "system:serviceaccount:default:default"
    );
    send(&client, "DELETE", &format!("{path}/old"), &json!({})).await;
    assert_eq!(who_am_i(&bot).await, Value::Null);
}
