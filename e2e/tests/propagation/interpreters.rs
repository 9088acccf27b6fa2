//! Kinds that customizations interpret: divided, shown on the template, and moved by the failover
//! of applications. A bad script stops its own kind.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, delete, merge};
use muster_e2e::harness::test_bed::{Task, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::k8s::Api;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, shares};

const REPLICAS: &str =
    "function GetReplicas(o) return o.spec.size, { resourceRequest = { cpu = '100m' } } end";
const REVISION: &str = "function ReviseReplica(o, n) o.spec.size = n return o end";
const HEALTH: &str = "function InterpretHealth(o) return o.status.phase == 'Running' end";
const AGGREGATION: &str = "
function AggregateStatus(o, items)
  local ready = 0
  for _, item in ipairs(items or {}) do
    ready = ready + ((item.status or {}).ready or 0)
  end
  o.status = { ready = ready }
  return o
end";

fn widgets() -> Value {
    customization(
        "widgets",
        "Widget",
        &json!({
            "replicaResource": { "luaScript": REPLICAS },
            "replicaRevision": { "luaScript": REVISION },
            "healthInterpretation": { "luaScript": HEALTH },
            "statusAggregation": { "luaScript": AGGREGATION },
        }),
    )
}

fn customization(name: &str, kind: &str, scripts: &Value) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "target": { "apiVersion": "example.com/v1", "kind": kind },
            "customizations": scripts,
        },
    })
}

async fn customize(bench: &Bench, customization: Value) {
    create::<ResourceInterpreterCustomization>(&bench.all(), customization).await;
}

/// Creates a Widget of this size, with a policy that also has these fields.
pub async fn widget(bench: &Bench, name: &str, size: i64, more: &Value) {
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": { "name": name }, "spec": { "size": size },
    });
    let widgets = bench.defined("Widget");
    create(&widgets, widget).await;
    let mut spec = json!({
        "resourceSelectors": [{ "apiVersion": "example.com/v1", "kind": "Widget", "name": name }],
        "placement": { "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        } },
    });
    let fields = spec.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let policy = json!({ "metadata": { "name": name }, "spec": spec });
    create::<PropagationPolicy>(&bench.here(), policy).await;
}

/// Starts a fleet whose members have Widgets.
pub async fn with_widgets() -> Bench {
    let bench = Bench::start().await;
    define(&bench, ("example.com", "v1"), ("Widget", "widgets")).await;
    bench
}

/// Reports health and status of an object as an agent would.
async fn report(bench: &Bench, member: &str, identifier: &Value, health: &str, status: &Value) {
    let reported = json!({ "status": status, "health": health });
    bench.report_object(member, identifier, reported).await;
}

fn of_widget(name: &str) -> Value {
    json!({ "ordinal": 0, "group": "example.com", "version": "v1", "kind": "Widget",
        "resource": "widgets", "namespace": "default", "name": name })
}

/// Waits until a binding is in one cluster, and returns that cluster and the other.
async fn placed(bench: &Bench, binding: &str) -> (&'static str, &'static str) {
    let found = until(
        &bench.here(),
        binding,
        "it is placed",
        |it: &ResourceBinding| it.spec.clusters.len() == 1,
    )
    .await;
    match shares(&found)[0].0 {
        "m1" => ("m1", "m2"),
        _ => ("m2", "m1"),
    }
}

fn injecting(bench: &Bench) -> Task {
    bench.control_plane_with(Settings {
        feature_gates: "StatefulFailoverInjection=true".parse().unwrap(),
        ..Settings::default()
    })
}

#[tokio::test]
async fn a_customization_that_comes_and_goes_changes_how_a_custom_resource_is_divided_and_shown() {
    let bench = with_widgets().await;
    let _control_plane = bench.control_plane();
    widget(&bench, "w", 6, &json!({})).await;
    for member in ["m1", "m2"] {
        let whole = |manifest: &Value| manifest["spec"]["size"] == 6;
        bench.sent(member, "Widget", "w", whole).await;
    }
    customize(&bench, widgets()).await;
    for member in ["m1", "m2"] {
        let half = |manifest: &Value| manifest["spec"]["size"] == 3;
        bench.sent(member, "Widget", "w", half).await;
    }
    let binding: ResourceBinding = bench.here().get("w-widget").await.unwrap();
    let needs = binding.spec.replica_requirements.unwrap();
    assert_eq!(needs.resource_request["cpu"].0, "100m");
    for (member, ready) in [("m1", 3), ("m2", 2)] {
        let status = json!({ "ready": ready });
        report(&bench, member, &of_widget("w"), "Healthy", &status).await;
    }
    let widgets = bench.defined("Widget");
    until(&widgets, "w", "the sum is shown", |it: &DynamicObject| {
        it.data["status"] == json!({ "ready": 5 })
    })
    .await;
    let customizations = bench.all::<ResourceInterpreterCustomization>();
    delete(&customizations, "widgets").await;
    for member in ["m1", "m2"] {
        let whole = |manifest: &Value| manifest["spec"]["size"] == 6;
        bench.sent(member, "Widget", "w", whole).await;
    }
}

const FLINK: &str = "flink.apache.org/v1beta1";

/// The policy of Karmada's documentation with `propagateDeps`, which it lacks: without, admission
/// refuses it, and the application stays.
const SEED: &str = r#"
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: foo
spec:
  propagateDeps: true
  resourceSelectors:
    - apiVersion: flink.apache.org/v1beta1
      kind: FlinkDeployment
      name: foo
  failover:
    application:
      decisionConditions:
        tolerationSeconds: 1
      purgeMode: Immediately
      statePreservation:
        rules:
          - aliasLabelName: application.karmada.io/failover-jobid
            jsonPath: "{ .jobStatus.jobID }"
  placement:
    clusterAffinity:
      clusterNames:
        - m1
        - m2
        - m3
    spreadConstraints:
      - maxGroups: 1
        minGroups: 1
        spreadByField: cluster
"#;

/// Makes a kind with a status in namespaces, which both members have.
async fn define(bench: &Bench, (group, version): (&str, &str), (kind, plural): (&str, &str)) {
    let status = json!({ "status": {} });
    bench
        .define_in((group, version), (kind, plural), &status)
        .await;
    let version = format!("{group}/{version}");
    bench.serve(&[(&version, plural, kind)]).await;
}

async fn define_flink(bench: &Bench) -> Api<DynamicObject> {
    let version = ("flink.apache.org", "v1beta1");
    define(bench, version, ("FlinkDeployment", "flinkdeployments")).await;
    let kind = GroupVersionKind::gvk("flink.apache.org", "v1beta1", "FlinkDeployment");
    let client = bench.all::<Cluster>().into_client();
    Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind))
}

#[tokio::test]
async fn a_flink_job_takes_its_id_along_to_the_next_cluster() {
    let bench = Bench::start().await;
    let flinks = define_flink(&bench).await;
    let _control_plane = injecting(&bench);
    let flink = json!({
        "apiVersion": FLINK, "kind": "FlinkDeployment", "metadata": { "name": "foo" },
        "spec": {
            "jobManager": { "replicas": 1, "resource": { "cpu": 1, "memory": "1024m" } },
            "taskManager": { "replicas": 2, "resource": { "cpu": 1, "memory": "1024m" } },
            "job": { "parallelism": 2 },
        },
    });
    let flink: DynamicObject = serde_json::from_value(flink).unwrap();
    create(&flinks, &flink).await;
    let policy: Value = serde_saphyr::from_str(SEED).unwrap();
    create::<PropagationPolicy>(&bench.here(), policy).await;

    let (here, there) = placed(&bench, "foo-flinkdeployment").await;
    let label = "application.karmada.io/failover-jobid";
    let bare = |manifest: &Value| manifest["metadata"]["labels"].get(label).is_none();
    bench.sent(here, "FlinkDeployment", "foo", bare).await;
    let identifier = json!({ "ordinal": 0, "group": "flink.apache.org", "version": "v1beta1",
        "kind": "FlinkDeployment", "resource": "flinkdeployments", "namespace": "default", "name": "foo" });
    let id = "a7f3c1e9b2d84f56";
    for (health, state) in [("Healthy", "RUNNING"), ("Unhealthy", "RECONCILING")] {
        let status = json!({ "jobStatus": { "jobID": id, "state": state } });
        report(&bench, here, &identifier, health, &status).await;
        until(
            &flinks,
            "foo",
            "the template shows it",
            |it: &DynamicObject| it.data["status"]["jobStatus"]["state"] == state,
        )
        .await;
    }
    let labelled = |manifest: &Value| manifest["metadata"]["labels"][label] == id;
    bench.withdrawn(here, "FlinkDeployment", "foo").await;
    bench.sent(there, "FlinkDeployment", "foo", labelled).await;
}

#[tokio::test]
async fn a_script_that_loops_and_one_that_is_no_lua_are_reported_and_stop_their_kinds_alone() {
    let bench = with_widgets().await;
    bench.define("Gadget", "gadgets").await;
    let endless = json!({ "replicaResource": { "luaScript": "function GetReplicas(o) while true do end end" } });
    customize(&bench, customization("endless", "Widget", &endless)).await;
    let broken =
        json!({ "replicaResource": { "luaScript": "function GetReplicas(o)\n  return = 1\nend" } });
    customize(&bench, customization("broken", "Gadget", &broken)).await;
    let _control_plane = bench.control_plane();
    widget(&bench, "w", 6, &json!({})).await;
    let gadget =
        json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "g" } });
    let gadgets = bench.defined("Gadget");
    create(&gadgets, gadget).await;
    let policy = json!({ "metadata": { "name": "g" }, "spec": {
        "resourceSelectors": [{ "apiVersion": "example.com/v1", "kind": "Gadget" }] } });
    create::<PropagationPolicy>(&bench.here(), policy).await;

    // Others are not disturbed.
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;

    for (kind, name, reason, part) in [
        ("Widget", "w", "ApplyPolicyFailed", "stopped at its limit"),
        (
            "Gadget",
            "g",
            "ApplyPolicyFailed",
            "line 2: unexpected symbol near '='",
        ),
        (
            "ResourceInterpreterCustomization",
            "endless",
            "InterpretFailed",
            "stopped at its limit",
        ),
        (
            "ResourceInterpreterCustomization",
            "broken",
            "InterpretFailed",
            "line 2: ",
        ),
        (
            "ResourceInterpreterCustomization",
            "broken",
            "InvalidScript",
            "line 2: ",
        ),
    ] {
        bench.reported_of(kind, name, (reason, part)).await;
    }
    // A script that is mended counts at once.
    let mended =
        json!({ "spec": { "customizations": { "replicaResource": { "luaScript": REPLICAS } } } });
    merge::<ResourceInterpreterCustomization>(&bench.all(), "endless", mended).await;
    bench
        .bound("w-widget", "it is counted", |binding| {
            binding.spec.replicas == 6
        })
        .await;
}
