//! Interpreters in the agent: health, reflected status, and fields that the member keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::PostParams;
use muster_e2e::harness::interpreter_webhook::InterpreterWebhook;
use muster_e2e::harness::objects::{create, delete, event, merge};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use muster_shared::api::work::{ManifestStatus, Work};
use muster_shared::k8s::{Api, Event, ResourceExt};
use serde_json::{Value, json};

use crate::agent::bench::{Bench, MEMBER, deployment, until};

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn widget(size: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": size}})
}

/// Waits until the Work reports this of its Widget.
async fn reported(bench: &Bench, what: &str, holds: impl Fn(&ManifestStatus) -> bool) {
    until(&bench.works(), "w", what, |work: &Work| {
        let mut all = work.status.iter().flat_map(|it| &it.manifest_statuses);
        all.next().is_some_and(&holds)
    })
    .await;
}

/// Waits until the Work reports its Widget with this health and status.
async fn shown(bench: &Bench, health: ResourceHealth, status: &Value) {
    reported(bench, &format!("{health:?} with {status}"), |it| {
        let shown = it.status.as_ref().map(|status| &status.0);
        it.health.as_ref() == Some(&health) && shown == Some(status)
    })
    .await;
}

/// Creates a Widget in the member, and waits until it is running.
async fn running(bench: &Bench) {
    bench.apply("definition", json!([definition()])).await;
    bench.create_of("w", json!([widget(1)])).await;
    bench.applied("w", "True").await;
    phase(bench, "Running").await;
}

async fn phase(bench: &Bench, phase: &str) {
    let widgets = bench.objects("example.com/v1", "Widget");
    merge(
        &widgets,
        "w",
        &json!({"status": {"phase": phase, "more": 1}}),
    )
    .await;
}

/// Sees that the member's size stays where the Work changes something else.
async fn size_is_the_members(bench: &Bench) {
    let widgets = bench.objects("example.com/v1", "Widget");
    merge(&widgets, "w", &json!({"spec": {"size": 7}})).await;
    let mut wanted = widget(2);
    wanted["spec"]["color"] = json!("red");
    let wanted = json!({"spec": {"workload": {"manifests": [wanted]}}});
    merge(&bench.works(), "w", &wanted).await;
    let held = until(&widgets, "w", "the rest is applied", |it| {
        it.data["spec"]["color"] == "red"
    })
    .await;
    assert_eq!(held.data["spec"]["size"], 7);
}

#[tokio::test]
async fn without_the_right_to_read_customizations_nothing_is_called_healthy_until_it_is_granted() {
    let bench = Bench::start().await;
    let group = "system:karmada:agents";
    crate::agent::survival::grant_karmadactl_role(&bench).await;
    let cluster_roles: Api<ClusterRole> = Api::all(bench.fleet_client.clone());
    let mut role = cluster_roles.get("agent").await.unwrap();
    let all = role.rules.clone();
    let groups = |rule: &PolicyRule| rule.api_groups.clone().unwrap_or_default();
    let rules = role.rules.as_mut().unwrap();
    rules.retain(|rule| groups(rule) != ["config.karmada.io"]);
    let role = cluster_roles
        .replace("agent", &PostParams::default(), &role)
        .await;
    let _agent = bench.agent_in(&[group], |_| {});
    bench.joined().await;
    bench.create_of("web", json!([deployment("web")])).await;
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    let about = format!("involvedObject.name={MEMBER},reason=CustomizationsUnreadable");
    let said = event(&events, &about, "").await.message.unwrap();
    assert!(said.contains("not known which there are"), "{said}");
    let work = bench.works().get("web").await.unwrap();
    assert_eq!(work.status, None, "nothing is reported of it");

    let mut role = role.unwrap();
    role.rules = all;
    cluster_roles
        .replace("agent", &PostParams::default(), &role)
        .await
        .unwrap();
    bench.applied("web", "True").await;
}

#[tokio::test]
async fn health_status_and_what_is_kept_are_what_a_webhook_says_and_stay_while_it_is_away() {
    let (bench, _agent) = Bench::with_agent().await;
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let webhook = InterpreterWebhook::start(move |request| {
        let (object, observed) = (&request["object"], &request["observedObject"]);
        if broken.load(Ordering::Relaxed) {
            return None;
        }
        Some(match request["operation"].as_str()? {
            "InterpretHealth" => json!({"healthy": object["status"]["phase"] == "Running"}),
            "InterpretStatus" => json!({"rawStatus": {"phase": object["status"]["phase"]}}),
            "Retain" => InterpreterWebhook::patch(&json!([
                {"op": "replace", "path": "/spec/size", "value": observed["spec"]["size"]}])),
            _ => return None,
        })
    })
    .await
    .unwrap();
    let configurations: Api<ResourceInterpreterWebhookConfiguration> =
        Api::all(bench.fleet_client.clone());
    let operations = ["InterpretHealth", "InterpretStatus", "Retain"];
    let configuration = webhook.configuration("widgets", &["Widget"], &operations);
    create(&configurations, configuration).await;
    running(&bench).await;
    let runs = json!({"phase": "Running"});
    shown(&bench, ResourceHealth::Healthy, &runs).await;
    phase(&bench, "Stuck").await;
    let stuck = json!({"phase": "Stuck"});
    shown(&bench, ResourceHealth::Unhealthy, &stuck).await;
    size_is_the_members(&bench).await;

    is_broken.store(true, Ordering::Relaxed);
    phase(&bench, "Running").await;
    let said = bench
        .reported("w", "ReflectStatusFailed")
        .await
        .message
        .unwrap();
    assert!(said.contains("HTTP status 500: out of order"), "{said}");
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    let about = format!("involvedObject.name={MEMBER},reason=InterpretFailed");
    let said = event(&events, &about, "").await.message.unwrap();
    assert!(
        said.contains("ResourceInterpreterWebhookConfiguration \"widgets\""),
        "{said}"
    );
    let work = bench.apply("web", json!([deployment("web")])).await;
    assert_eq!(work.name_any(), "web");
    reported(&bench, "the last status stays", |it| {
        it.status.as_ref().is_some_and(|status| status.0 == stuck)
    })
    .await;
    is_broken.store(false, Ordering::Relaxed);
    shown(&bench, ResourceHealth::Healthy, &runs).await;
    delete(&configurations, "widgets").await;
    let whole = json!({"phase": "Running", "more": 1});
    shown(&bench, ResourceHealth::Healthy, &whole).await;
}
