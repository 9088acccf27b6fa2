//! What the agent outlives.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{delete, event, merge};
use muster_e2e::harness::raw;
use muster_shared::k8s::{Api, Event, ResourceExt};
use serde_json::{Value, json};

use crate::agent::bench::{AGENT, Bench, MEMBER, WORKS, gone, renewed, until, value};

/// Checks that only a fresh list of the fleet decides when the member answers again. A Work is
/// deleted while the member is silent, so its removal is pending in the agent; then the fleet goes
/// away, and behind the agent's back the Work is made anew.
#[tokio::test]
async fn a_returning_member_deletes_nothing_on_stale_knowledge() {
    let bench = Bench::start().await;
    let _agent = bench.agent();
    bench.joined().await;
    for name in ["a", "witness"] {
        bench.create_work(name, |_| {}).await;
        bench.applied(name, "True").await;
    }
    let maps = bench.config_maps();
    let before = maps.get("a").await.unwrap();

    bench
        .member
        .faults()
        .inject_for(Scope::user(AGENT), Effect::Cut);
    delete(&bench.works(), "a").await;
    bench
        .has(MEMBER, &[("Ready", "False", "ClusterNotReachable")])
        .await;
    bench
        .fleet
        .faults()
        .inject_for(Scope::user(AGENT), Effect::Cut);
    merge(
        &bench.works(),
        "a",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    gone(&bench.works(), "a").await;
    let again = bench.create_work("a", |_| {}).await;

    bench.member.faults().heal();
    // The agent acts in the member, on its old list, for longer than the pending removal backs off.
    for _ in 0..3 {
        merge(&maps, "witness", &json!({"data": {"k": "drifted"}})).await;
        until(&maps, "witness", "drift is repaired", |object| {
            value(object) == "1"
        })
        .await;
    }
    bench.fleet.faults().heal();
    let work = bench.applied("a", "True").await;
    assert_eq!(work.uid(), again.uid());
    assert_eq!(
        maps.get("a").await.unwrap().uid(),
        before.uid(),
        "the object was never deleted"
    );
}

/// Grants the permissions that `karmadactl register` gives to an agent: no patch of clusters, of
/// their status or of leases.
pub async fn grant_karmadactl_role(bench: &Bench) {
    let subject = json!([{"kind": "User", "name": AGENT, "apiGroup": "rbac.authorization.k8s.io"}]);
    let rules = json!([
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "resourceNames": [MEMBER], "verbs": ["get", "delete"]},
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["create", "list", "watch"]},
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/status"], "resourceNames": [MEMBER], "verbs": ["update"]},
        {"apiGroups": ["config.karmada.io"], "resources": ["resourceinterpreterwebhookconfigurations", "resourceinterpretercustomizations"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]);
    let work_rules = json!([
        {"apiGroups": ["work.karmada.io"], "resources": ["works"], "verbs": ["get", "create", "list", "watch", "update", "delete"]},
        {"apiGroups": ["work.karmada.io"], "resources": ["works/status"], "verbs": ["patch", "update"]},
    ]);
    let secret_rules = json!([
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [MEMBER, format!("{MEMBER}-impersonator")], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]);
    let rbac = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "agent"}, "rules": rules});
    create(bench, &format!("/apis/{rbac}/clusterroles"), &role).await;
    let binding = json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent"}, "subjects": subject});
    create(
        bench,
        &format!("/apis/{rbac}/clusterrolebindings"),
        &binding,
    )
    .await;
    for (name, namespace, rules) in [
        ("works", WORKS, work_rules),
        ("secrets", "karmada-cluster", secret_rules),
    ] {
        let metadata = json!({"name": name, "namespace": namespace});
        let role =
            json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules});
        let collection = format!("/apis/{rbac}/namespaces/{namespace}");
        create(bench, &format!("{collection}/roles"), &role).await;
        let binding = json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": subject});
        create(bench, &format!("{collection}/rolebindings"), &binding).await;
    }
}

async fn create(bench: &Bench, collection: &str, object: &Value) {
    let answer = raw::send(&bench.fleet_client, &[], "POST", collection, object).await;
    assert!(answer.code < 300, "{answer:?}");
}

/// Checks that a member is alive and at work while the fleet refuses what the flags say about the
/// Cluster, as it does when its schema is stricter than the flags.
#[tokio::test]
async fn a_registered_member_whose_registration_is_refused_is_alive_and_at_work() {
    let bench = Bench::start().await;
    let first = bench.agent();
    bench.joined().await;
    bench.beats(None).await;
    first.stop().await.unwrap();
    let before = bench.leases().get(MEMBER).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.fleet_client.clone());
    let strict = json!([{"op": "replace", "value": "^$",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/region/pattern"}]);
    let strict = Patch::<()>::Json(serde_json::from_value(strict).unwrap());
    let (name, params) = ("clusters.cluster.karmada.io", PatchParams::default());
    definitions.patch(name, &params, &strict).await.unwrap();
    let _agent = bench.agent_in(&[crate::agent::bench::AGENTS], |settings| {
        settings.cluster_region = "eu-west".into();
    });
    bench.beats(renewed(&before)).await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    let reported = event(&events, "reason=RegistrationRefused", "").await;
    let reported = reported.message.unwrap();
    assert!(
        reported.contains("region"),
        "it names the field: {reported}"
    );
    let cluster = bench.clusters().get(MEMBER).await.unwrap();
    assert_eq!(cluster.spec.region, None, "it was refused");
}
