//! Kinds that interpreter webhooks interpret, and webhooks that do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_e2e::harness::interpreter_webhook::InterpreterWebhook;
use muster_e2e::harness::objects::{create, merge};
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use serde_json::{Value, json};

use crate::propagation::bench::Bench;
use crate::propagation::interpreters::{widget, with_widgets};

/// Answers about Widgets: their size is their number of replicas.
fn answer(request: &Value) -> Option<Value> {
    let object = &request["object"];
    Some(match request["operation"].as_str()? {
        "InterpretReplica" => json!({
            "replicas": object["spec"]["size"],
            "replicaRequirements": { "resourceRequest": { "cpu": "100m" } },
        }),
        "ReviseReplica" => InterpreterWebhook::patch(&json!([
            { "op": "replace", "path": "/spec/size", "value": request["replicas"] }])),
        _ => return None,
    })
}

const OPERATIONS: [&str; 2] = ["InterpretReplica", "ReviseReplica"];

async fn configure(bench: &Bench, configuration: Value) {
    create::<ResourceInterpreterWebhookConfiguration>(&bench.all(), configuration).await;
}

#[tokio::test]
async fn a_webhook_that_fails_stops_its_kind_alone_and_what_is_there_stays() {
    let bench = with_widgets().await;
    bench.define("Gadget", "gadgets").await;
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let webhook = InterpreterWebhook::start(move |request| {
        (!broken.load(Ordering::Relaxed))
            .then(|| answer(request))
            .flatten()
    })
    .await
    .unwrap();
    // A server that takes connections and never says anything.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let wrong = webhook.configuration_at("http://127.0.0.1/", "wrong", &["Gizmo"]);
    configure(
        &bench,
        webhook.configuration("widgets", &["Widget"], &OPERATIONS),
    )
    .await;
    configure(
        &bench,
        webhook.configuration_at(&url, "silent", &["Gadget"]),
    )
    .await;
    configure(&bench, wrong).await;
    let _control_plane = bench.control_plane();
    widget(&bench, "w", 6, &json!({})).await;
    let half = |manifest: &Value| manifest["spec"]["size"] == 3;
    bench.sent("m1", "Widget", "w", half).await;

    let gadget = json!({
        "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "g" } });
    let gadgets = bench.defined("Gadget");
    create(&gadgets, gadget).await;
    let policy = json!({ "metadata": { "name": "g" }, "spec": {
        "resourceSelectors": [{ "apiVersion": "example.com/v1", "kind": "Gadget" }] } });
    create::<muster_shared::api::policy::PropagationPolicy>(&bench.here(), policy).await;

    is_broken.store(true, Ordering::Relaxed);
    let bigger = json!({ "spec": { "size": 8 } });
    let widgets = bench.defined("Widget");
    merge(&widgets, "w", bigger).await;
    // Others are not disturbed.
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let configuration = "ResourceInterpreterWebhookConfiguration";
    for (kind, name, reason, part) in [
        (
            configuration,
            "widgets",
            "InterpretFailed",
            "HTTP status 500: out of order",
        ),
        (
            configuration,
            "silent",
            "InterpretFailed",
            "no answer within 1 s",
        ),
        ("Gadget", "g", "ApplyPolicyFailed", "no answer within 1 s"),
        ("Widget", "w", "ApplyPolicyFailed", "HTTP status 500"),
        (
            configuration,
            "wrong",
            "InvalidWebhook",
            "does not begin with https://",
        ),
    ] {
        bench.reported_of(kind, name, (reason, part)).await;
    }
    // What is there stays, and counts again when the webhook answers.
    bench.sent("m1", "Widget", "w", half).await;
    is_broken.store(false, Ordering::Relaxed);
    for member in ["m1", "m2"] {
        let half = |manifest: &Value| manifest["spec"]["size"] == 4;
        bench.sent(member, "Widget", "w", half).await;
    }
}
