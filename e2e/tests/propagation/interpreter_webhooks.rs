//! Kinds that interpreter webhooks interpret, and webhooks that do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_e2e::harness::interpreter_webhook::InterpreterWebhook;
use muster_e2e::harness::objects::{create, delete, merge};
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use serde_json::{Value, json};

use crate::propagation::bench::Bench;
use crate::propagation::interpreters::{
    in_one_cluster, of_widget, placed, report, widget, with_widgets,
};

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
        "InterpretHealth" => json!({ "healthy": object["status"]["phase"] == "Running" }),
        "AggregateStatus" => {
            let items = request["aggregatedStatus"].as_array()?;
            let ready = items
                .iter()
                .filter_map(|item| item["status"]["ready"].as_i64());
            let status = json!({ "ready": ready.sum::<i64>() });
            InterpreterWebhook::patch(&json!([{ "op": "add", "path": "/status", "value": status }]))
        }
        _ => return None,
    })
}

const OPERATIONS: [&str; 4] = [
    "InterpretReplica",
    "ReviseReplica",
    "InterpretHealth",
    "AggregateStatus",
];

async fn configure(bench: &Bench, configuration: Value) {
    create::<ResourceInterpreterWebhookConfiguration>(&bench.all(), configuration).await;
}

#[tokio::test]
async fn a_custom_resource_is_divided_shown_and_moved_as_its_webhook_says() {
    let bench = with_widgets().await;
    let webhook = InterpreterWebhook::start(answer).await.unwrap();
    configure(
        &bench,
        webhook.configuration("widgets", &["Widget"], &OPERATIONS),
    )
    .await;
    let _control_plane = bench.control_plane();
    let application =
        json!({ "decisionConditions": { "tolerationSeconds": 1 }, "purgeMode": "Gracefully" });
    widget(&bench, "w", 6, &in_one_cluster(&application)).await;
    let (here, there) = placed(&bench, "w-widget").await;
    let whole = |manifest: &Value| manifest["spec"]["size"] == 6;
    bench.sent(here, "Widget", "w", whole).await;
    bench
        .bound("w-widget", "its replicas are counted", |binding| {
            let needs = binding.spec.replica_requirements.as_ref();
            binding.spec.replicas == 6
                && needs.is_some_and(|needs| needs.resource_request["cpu"].0 == "100m")
        })
        .await;
    let status = json!({ "phase": "Stuck", "ready": 2 });
    report(&bench, here, &of_widget("w"), "Unhealthy", &status).await;
    let widgets = bench.defined("Widget");
    muster_e2e::harness::test_bed::until(
        &widgets,
        "w",
        "the sum is shown",
        |it: &kube::api::DynamicObject| it.data["status"] == json!({ "ready": 2 }),
    )
    .await;
    // That the kind has a rule of health is known from the webhook, so that the policy counts.
    bench.sent(there, "Widget", "w", whole).await;
    let status = json!({ "phase": "Running", "ready": 6 });
    report(&bench, there, &of_widget("w"), "Healthy", &status).await;
    bench.withdrawn(here, "Widget", "w").await;

    // Without the webhook the kind has no replicas.
    widget(&bench, "two", 6, &json!({})).await;
    for member in ["m1", "m2"] {
        let half = |manifest: &Value| manifest["spec"]["size"] == 3;
        bench.sent(member, "Widget", "two", half).await;
    }
    delete(
        &bench.all::<ResourceInterpreterWebhookConfiguration>(),
        "widgets",
    )
    .await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Widget", "two", whole).await;
    }
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
