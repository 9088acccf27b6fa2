//! A fleet at rest writes nothing: the real control plane and a real agent among many odd policies
//! and objects.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::DynamicObject;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::Running;
use muster_e2e::apiserver::audit::Write;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, Client};
use serde_json::{Value, json};

use crate::agent::bench::{Bench, MEMBER, WORKS, until};
use crate::agent::twins::control_plane_with;

/// How long the fleet is watched once it has settled: together more than a minute, in which
/// whatever is done each minute is done.
const REST: Duration = Duration::from_secs(30);
/// A fleet that writes nothing for so long has come to rest.
const QUIET: Duration = Duration::from_secs(6);
/// How long nothing may be written until the fleet counts as settled: longer than the 30 s after
/// which policies report what the fleet lacks.
const SETTLED: Duration = Duration::from_secs(33);
/// How often it may be checked until it has.
const ROUNDS: usize = 4;

fn settings() -> Settings {
    Settings {
        feature_gates: "Failover=true,StatefulFailoverInjection=true"
            .parse()
            .unwrap(),
        cluster_startup_grace_period: "2s".parse().unwrap(),
        ..Settings::default()
    }
}

async fn post(client: &Client, path: &str, object: Value) {
    let body = serde_json::to_vec(&object).unwrap();
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let answer = client.request::<DynamicObject>(request).await;
    answer.unwrap_or_else(|error| panic!("{path}: {error}\n{object}"));
}

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const TAINT_POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/clustertaintpolicies";
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates policies of a kind, each from its name and its spec.
async fn post_policies(client: &Client, path: &str, kind: &str, policies: &Value) {
    for it in policies.as_array().unwrap() {
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
            "metadata": {"name": it["name"]}, "spec": it["spec"],
        });
        post(client, path, policy).await;
    }
}

/// Creates taint policies that match nothing, never, or always.
async fn odd_taint_policies(client: &Client) {
    let when = |kind: &str, operator: &str, value: &str| json!([{"conditionType": kind, "operator": operator, "statusValues": [value]}]);
    let taint = |key: &str, seconds: i32| json!([{"key": key, "effect": "PreferNoExecute", "addOnMatchSeconds": seconds, "removeOnMismatchSeconds": 1}]);
    let policies = json!([
        {"name": "absent", "spec": {"matchConditions": when("Nope", "In", "False"), "taintsToAdd": taint("absent", 1)}},
        {"name": "typo", "spec": {"matchConditions": when("ready", "NotIn", "True"), "taintsToAdd": taint("typo", 1)}},
        {"name": "waits", "spec": {"matchConditions": when("Ready", "In", "True"), "taintsToAdd": taint("waits", 100_000)}},
        {"name": "holds", "spec": {"matchConditions": when("Ready", "In", "Unknown"), "taintsToAdd": taint("holds", 1)}},
        {"name": "holds-too", "spec": {"matchConditions": when("Ready", "NotIn", "True"), "taintsToAdd": taint("holds", 1)}},
        {"name": "nobody", "spec": {"targetCluster": {"clusterNames": ["nobody"]}, "taintsToAdd": taint("nobody", 1)}},
        {"name": "mixed", "spec": {
            "matchConditions": [
                {"conditionType": "Ready", "operator": "In", "statusValues": ["True"]},
                {"conditionType": "Nope", "operator": "In", "statusValues": ["True"]},
            ],
            "taintsToAdd": taint("mixed", 1),
        }},
        {"name": "shipped", "spec": {
            "addOnConditions": when("Nope", "In", "False"), "removeOnConditions": when("Nope", "In", "True"),
            "taints": [{"key": "shipped", "effect": "NoSchedule"}],
        }},
        {"name": "quarrel-a", "spec": {"addOnConditions": when("Ready", "NotIn", "Maybe"), "taints": [{"key": "quarrel", "effect": "PreferNoExecute"}]}},
        {"name": "quarrel-b", "spec": {"removeOnConditions": when("Ready", "NotIn", "Maybe"), "taints": [{"key": "quarrel", "effect": "PreferNoExecute"}]}},
    ]);
    post_policies(client, TAINT_POLICIES, "ClusterTaintPolicy", &policies).await;
}

/// Creates policies that select nothing, an object that is not there, one that another policy
/// selects, or one that cannot be moved.
async fn odd_policies(client: &Client) {
    let selects = |version: &str, kind: &str, name: &str| json!([{"apiVersion": version, "kind": kind, "name": name}]);
    let failover = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Never",
        "statePreservation": {"rules": [{"aliasLabelName": "job", "jsonPath": "{.nothing}"}]},
    }});
    let policies = json!([
        {"name": "web", "spec": {"resourceSelectors": selects("apps/v1", "Deployment", "web"), "propagateDeps": true}},
        {"name": "web-again", "spec": {"resourceSelectors": selects("apps/v1", "Deployment", "web")}},
        {"name": "lazy", "spec": {"resourceSelectors": selects("v1", "ConfigMap", "lazy"), "activationPreference": "Lazy"}},
        {"name": "nothing", "spec": {"resourceSelectors": selects("v1", "ConfigMap", "nobody-made-it")}},
        {"name": "unknown", "spec": {"resourceSelectors": selects("example.com/v1", "Unknown", "x")}},
        {"name": "job", "spec": {"resourceSelectors": selects("batch/v1", "Job", "job")}},
        {"name": "failing", "spec": {"resourceSelectors": selects("apps/v1", "Deployment", "failing"), "propagateDeps": true, "failover": failover}},
        {"name": "alone", "spec": {"resourceSelectors": selects("apps/v1", "Deployment", "alone"), "failover": failover}},
        {"name": "nowhere", "spec": {
            "resourceSelectors": selects("apps/v1", "Deployment", "nowhere"),
            "placement": {"clusterAffinity": {"clusterNames": ["nobody"]}},
        }},
        {"name": "suspended", "spec": {"resourceSelectors": selects("v1", "ConfigMap", "suspended"), "suspension": {"dispatching": true}}},
    ]);
    post_policies(client, POLICIES, "PropagationPolicy", &policies).await;
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{
                "name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "attached"}}, {"secretRef": {"name": "missing"}}],
            }]}},
        },
    })
}

async fn templates(client: &Client) {
    for name in ["web", "failing", "alone", "nowhere", "unclaimed"] {
        post(client, DEPLOYMENTS, deployment(name)).await;
    }
    for name in ["attached", "lazy", "suspended"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": "1.10"}});
        post(client, CONFIG_MAPS, map).await;
    }
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": pod}});
    post(client, "/apis/batch/v1/namespaces/default/jobs", job).await;
}

/// Creates a binding of what nobody has, one that is left for ever with preserved state, and Works
/// that cannot be carried out.
async fn orphans(client: &Client) {
    let binding = |name: &str, tasks: Value| {
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": name},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name},
                "clusters": [{"name": MEMBER}], "gracefulEvictionTasks": tasks,
            },
        })
    };
    let task = json!({
        "fromCluster": "silent", "purgeMode": "Never", "reason": "ApplicationFailure", "producer": "test", "suppressDeletion": true,
        "preservedLabelState": {"job": "7f"}, "clustersBeforeFailover": ["silent"],
    });
    post(client, BINDINGS, binding("orphan", json!([]))).await;
    post(client, BINDINGS, binding("left", json!([task]))).await;
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{WORKS}/works");
    for (name, manifest) in [
        (
            "unknown-kind",
            json!({"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "x", "namespace": "default"}}),
        ),
        (
            "no-namespace",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nowhere"}}),
        ),
        (
            "refused",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "Not A Name", "namespace": "default"}, "spec": {}}),
        ),
    ] {
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name, "namespace": WORKS},
            "spec": {"workload": {"manifests": [manifest]}},
        });
        post(client, &works, work).await;
    }
}

/// Returns whether a fleet at rest may ask for this: leases, and the status that an agent reports
/// of its own member.
fn is_heartbeat(write: &Write) -> bool {
    let status = format!("{CLUSTERS}/{MEMBER}/status");
    write.path.contains("/coordination.k8s.io/")
        || write.path == status && write.user.ends_with(MEMBER)
}

/// How often something that the API refuses may be tried again in a minute: the longest back-off is
/// one.
const TRIES: usize = 2;

/// Waits for so long, and returns what was written in that time and how often, except for
/// heartbeats and for what is refused and rarely tried again.
async fn writes(servers: [&Running; 2], time: Duration) -> BTreeMap<Write, usize> {
    for server in servers {
        server.audit().begin();
    }
    tokio::time::sleep(time).await;
    let mut counted = BTreeMap::new();
    for write in servers.into_iter().flat_map(|server| server.audit().end()) {
        if !is_heartbeat(&write) {
            *counted.entry(write).or_insert(0) += 1;
        }
    }
    counted.retain(|write, count| !write.refused || *count > TRIES);
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_at_rest_writes_nothing_but_leases_and_the_status_heartbeat() {
    let bench = Bench::start().await;
    let client = &bench.fleet_client;
    let _control_plane = control_plane_with(&bench, settings());
    let _agent = bench.agent();
    bench.joined().await;
    for (name, mode) in [("push", "Push"), ("silent", "Pull")] {
        let spec = json!({"syncMode": mode, "id": name});
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec});
        post(client, CLUSTERS, cluster).await;
    }
    odd_taint_policies(client).await;
    templates(client).await;
    odd_policies(client).await;
    orphans(client).await;

    until(
        &bench.clusters(),
        "silent",
        "it is tainted",
        |cluster: &Cluster| cluster.spec.taints.iter().any(|taint| taint.key == "holds"),
    )
    .await;
    bench
        .has("push", &[("Monitored", "False", "NotConnected")])
        .await;
    let works: Api<Work> = bench.works();
    let web = muster_shared::names::work("Deployment", "web", "default");
    until(&works, &web, "the workload is applied", |work: &Work| {
        crate::agent::bench::applied(work).is_some_and(|(status, _)| status == "True")
    })
    .await;

    let servers = [&bench.fleet, &bench.member];
    let mut restless = BTreeMap::new();
    for _ in 0..ROUNDS {
        restless = writes(servers, SETTLED).await;
        if restless.is_empty() {
            break;
        }
    }
    assert!(
        restless.is_empty(),
        "it does not come to rest: {restless:#?}"
    );
    let written = writes(servers, REST).await;
    assert!(written.is_empty(), "{written:#?}");
    let beats = writes_of_leases(servers).await;
    assert!(beats > 0, "the log of writes sees nothing");
}

/// Heartbeats in a few seconds: the log has to see what there is.
async fn writes_of_leases(servers: [&Running; 2]) -> usize {
    servers[0].audit().begin();
    tokio::time::sleep(QUIET).await;
    servers[0]
        .audit()
        .end()
        .iter()
        .filter(|write| is_heartbeat(write))
        .count()
}
