//! What the detector does where something is odd: copied claims, names that two objects share,
//! kinds that cannot be listed, objects that cannot be read, restarts in between; and what it
//! reports.

use std::collections::BTreeMap;

use http::StatusCode;
use kube::api::DynamicObject;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, delete, merge};
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use muster_shared::k8s::{Api, ConfigMap, Deployment, Namespace, ResourceExt};
use muster_shared::names;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, POLICY_ID, deployment};

/// Creates a cluster-wide policy for one kind and name.
async fn place_everywhere(bench: &Bench, name: &str, selector: Value, more: Value) {
    let mut spec = json!({ "resourceSelectors": [selector] });
    let fields = spec.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let policy = json!({ "metadata": { "name": name }, "spec": spec });
    create::<ClusterPropagationPolicy>(&bench.all(), policy).await;
}

#[tokio::test]
async fn a_policy_with_a_kind_that_cannot_be_listed_is_deleted_and_releases_the_others() {
    let bench = Bench::start().await;
    bench.define("Gizmo", "gizmos").await;
    let scope = Scope::path("/example.com/v1/gizmos");
    let broken = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    bench.faults().inject_for(scope, broken);
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    let selectors = json!({ "resourceSelectors": [
        { "apiVersion": "example.com/v1", "kind": "Gizmo" }, { "apiVersion": "apps/v1", "kind": "Deployment" },
    ] });
    bench.place("web", selectors).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    bench.claimed("web").await;
    let policies: Api<PropagationPolicy> = bench.here();
    delete(&policies, "web").await;
    gone(&policies, "web").await;
    until::<Deployment>(&bench.here(), "web", "it is released", |it| {
        !it.labels().contains_key(POLICY_ID)
    })
    .await;
}

#[tokio::test]
async fn a_policy_of_another_namespace_is_not_taken_because_a_template_names_it() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    create::<Namespace>(&bench.all(), json!({ "metadata": { "name": "other" } })).await;
    let policy = json!({ "metadata": { "name": "theirs", "namespace": "other" }, "spec": {
        "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment" }],
    } });
    let theirs: Api<PropagationPolicy> =
        Api::namespaced(bench.here::<ConfigMap>().into_client(), "other");
    create(&theirs, policy).await;
    let mut forged = deployment("web");
    forged["metadata"]["labels"] = json!({ POLICY_ID: "forged" });
    forged["metadata"]["annotations"] = json!({
        "propagationpolicy.karmada.io/namespace": "other", "propagationpolicy.karmada.io/name": "theirs",
    });
    create::<Deployment>(&bench.here(), forged).await;
    until::<Deployment>(&bench.here(), "web", "the claim is taken off", |it| {
        !it.labels().contains_key(POLICY_ID)
    })
    .await;
    let binding: Api<ResourceBinding> = bench.here();
    assert!(binding.get_opt("web-deployment").await.unwrap().is_none());
    // Its own policy takes it.
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_after_a_restart_keeps_its_templates() {
    let (bench, control_plane) = Bench::with_web(json!({})).await;
    bench.claimed("web").await;
    control_plane.stop().await.unwrap();
    bench.relax("propagationpolicies.policy.karmada.io").await;
    let odd: Api<kube::api::PartialObjectMeta<PropagationPolicy>> = bench.here();
    let change = json!({ "spec": { "resourceSelectors": "odd" } });
    merge(&odd, "web", change).await;
    let _control_plane = bench.control_plane();
    // Another one that selects it does not get it meanwhile.
    let selector = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    place_everywhere(&bench, "all", selector, json!({})).await;
    bench.deploy("witness").await;
    bench.sent("m2", "Deployment", "witness", |_| true).await;
    let kept: Deployment = bench.here().get("web").await.unwrap();
    assert!(kept.labels().contains_key(POLICY_ID), "{:?}", kept.labels());
    let kept: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert!(kept.labels().contains_key(POLICY_ID), "{:?}", kept.labels());
}

#[tokio::test]
async fn what_a_workload_refers_to_stays_while_its_binding_cannot_be_read() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    bench.deploy_with_map("web").await;
    control_plane.stop().await.unwrap();
    bench.relax("resourcebindings.work.karmada.io").await;
    let odd: Api<kube::api::PartialObjectMeta<ResourceBinding>> = bench.here();
    let change = json!({ "spec": { "replicas": "odd" } });
    merge(&odd, "web-deployment", change).await;
    let _control_plane = bench.control_plane();
    // Whatever else was to be written comes before this is carried out.
    bench.deploy_with_map("witness").await;
    let held: ResourceBinding = bench.here().get("web-conf-configmap").await.unwrap();
    assert_eq!(held.spec.required_by.len(), 1, "{:?}", held.spec);
    for member in ["m1", "m2"] {
        let work = names::work("ConfigMap", "web-conf", "default");
        let kept = bench.works(member).get(&work).await.unwrap();
        assert!(kept.metadata.deletion_timestamp.is_none(), "{member}");
    }
}

#[tokio::test]
async fn a_binding_that_cannot_be_read_is_reported_and_not_made_again_and_again() {
    let bench = Bench::start().await;
    bench.relax("resourcebindings.work.karmada.io").await;
    let odd = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": { "name": "web-deployment" }, "spec": "odd",
    });
    let named = kube::api::GroupVersionKind::gvk("work.karmada.io", "v1alpha2", "ResourceBinding");
    let resource = kube::api::ApiResource::from_gvk(&named);
    let client = bench.here::<ConfigMap>().into_client();
    let bindings: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    create(&bindings, odd).await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    let reported = bench
        .reported("Deployment", "web", "ApplyPolicyFailed")
        .await;
    assert!(
        reported.contains("ResourceBinding default/web-deployment"),
        "{reported}"
    );
    delete(&bindings, "web-deployment").await;
}

#[tokio::test]
async fn a_template_whose_policy_goes_gets_the_next_one() {
    let (bench, _control_plane) = Bench::with_web(json!({ "priority": 2 })).await;
    let selector = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    place_everywhere(&bench, "all", selector, json!({})).await;
    let policies: Api<PropagationPolicy> = bench.here();
    delete(&policies, "web").await;
    let theirs = |labels: &BTreeMap<String, String>| {
        labels.contains_key("clusterpropagationpolicy.karmada.io/permanent-id")
            && !labels.contains_key(POLICY_ID)
    };
    until::<Deployment>(&bench.here(), "web", "the other policy has it", |it| {
        theirs(it.labels())
    })
    .await;
    bench
        .bound("web-deployment", "the other policy has it", |it| {
            theirs(it.labels())
        })
        .await;
    // The same where the claim is only on the binding: somebody takes it off.
    let off = json!({ "metadata": { "labels": { "clusterpropagationpolicy.karmada.io/permanent-id": null } } });
    merge::<ResourceBinding>(&bench.here(), "web-deployment", off).await;
    bench
        .bound("web-deployment", "the claim is back", |it| {
            theirs(it.labels())
        })
        .await;
}

#[tokio::test]
async fn a_priority_class_that_comes_later_is_taken_then() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    let class = json!({ "priorityClassSource": "KubePriorityClass", "priorityClassName": "high" });
    bench
        .place("web", json!({ "schedulePriority": class }))
        .await;
    let reported = bench
        .reported("Deployment", "web", "ApplyPolicyFailed")
        .await;
    assert!(reported.contains("\"high\""), "{reported}");
    let high = |value: i32| json!({ "metadata": { "name": "high" }, "value": value });
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = bench.all();
    create(&classes, high(7)).await;
    let priority =
        |binding: &ResourceBinding| json!(binding.spec)["schedulePriority"]["priority"] == 7;
    bench
        .bound("web-deployment", "it has the priority", priority)
        .await;
}
