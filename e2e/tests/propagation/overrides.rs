//! Override policies: what each cluster gets, and what happens when a policy comes, changes, goes
//! or cannot be applied.

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, delete, merge};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use muster_shared::names::annotation::{APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES};
use serde_json::{Value, json};

use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::work::Work;
use muster_shared::k8s::CustomResourceDefinition;
use muster_shared::names;

use crate::propagation::bench::Bench;

fn image(manifest: &Value) -> &str {
    let container = &manifest["spec"]["template"]["spec"]["containers"][0];
    container["image"].as_str().unwrap_or_default()
}

fn registry(value: &str) -> Value {
    json!({ "imageOverrider": [{ "component": "Registry", "operator": "replace", "value": value }] })
}

/// Returns a rule for the clusters of a region.
fn in_region(region: &str, overriders: &Value) -> Value {
    json!({
        "targetCluster": { "fieldSelector": { "matchExpressions": [
            { "key": "region", "operator": "In", "values": [region] },
        ] } },
        "overriders": overriders,
    })
}

async fn region(bench: &Bench, member: &str, region: &str) {
    merge::<Cluster>(
        &bench.all(),
        member,
        json!({ "spec": { "region": region } }),
    )
    .await;
}

async fn override_policy(bench: &Bench, name: &str, rules: Value) {
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }],
            "overrideRules": rules,
        },
    });
    create::<OverridePolicy>(&bench.here(), policy).await;
}

async fn runs(bench: &Bench, member: &str, expected: &str) {
    let is_it = |manifest: &Value| image(manifest) == expected;
    bench.sent(member, "Deployment", "web", is_it).await;
}

#[tokio::test]
async fn a_policy_takes_effect_when_it_comes_changes_and_goes_and_when_a_cluster_moves() {
    let (bench, _control_plane) = Bench::with_web(json!({})).await;
    runs(&bench, "m1", "nginx").await;
    // The policy of the namespace has the last word.
    let wide = json!({
        "metadata": { "name": "wide" },
        "spec": { "overrideRules": [{ "overriders": registry("all.io") }] },
    });
    create::<ClusterOverridePolicy>(&bench.all(), wide).await;
    runs(&bench, "m1", "all.io/nginx").await;
    override_policy(&bench, "near", json!([in_region("eu", &registry("eu.io"))])).await;
    region(&bench, "m2", "eu").await;
    runs(&bench, "m2", "eu.io/nginx").await;
    let work = names::work("Deployment", "web", "default");
    let works = bench.works("m2");
    until(&works, &work, "both policies are named", |work: &Work| {
        let annotations = work.metadata.annotations.clone().unwrap_or_default();
        let names =
            |key: &str, name: &str| annotations.get(key).is_some_and(|it| it.contains(name));
        names(APPLIED_CLUSTER_OVERRIDES, "\"wide\"") && names(APPLIED_OVERRIDES, "\"near\"")
    })
    .await;
    let rules = json!({ "spec": { "overrideRules": [{ "overriders": registry("any.io") }] } });
    merge::<OverridePolicy>(&bench.here(), "near", rules).await;
    for member in ["m1", "m2"] {
        runs(&bench, member, "any.io/nginx").await;
    }
    let policies = bench.here::<OverridePolicy>();
    delete(&policies, "near").await;
    for member in ["m1", "m2"] {
        runs(&bench, member, "all.io/nginx").await;
    }
    until(
        &works,
        &work,
        "the policy that went is not named",
        |work: &Work| {
            let annotations = work.metadata.annotations.clone().unwrap_or_default();
            !annotations.contains_key(APPLIED_OVERRIDES)
        },
    )
    .await;
}

#[tokio::test]
async fn a_change_that_cannot_be_made_is_reported_and_stops_its_cluster_alone() {
    let (bench, _control_plane) = Bench::with_web(json!({})).await;
    bench.sent("m2", "Deployment", "web", |_| true).await;
    region(&bench, "m2", "eu").await;
    override_policy(&bench, "broken", json!([in_region("eu", &failing())])).await;
    for (kind, name) in [("Deployment", "web"), ("ResourceBinding", "web-deployment")] {
        let reported = bench
            .reported(kind, name, "ApplyOverridePolicyFailed")
            .await;
        assert!(
            reported.contains("OverridePolicy default/broken")
                && reported.contains("cluster m2")
                && reported.contains("plaintext"),
            "{reported}"
        );
    }
    // The other cluster follows the template, and this one keeps what it has.
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "nginx:2" }] } } } });
    merge::<muster_shared::k8s::Deployment>(&bench.here(), "web", image).await;
    runs(&bench, "m1", "nginx:2").await;
    runs(&bench, "m2", "nginx").await;
    let mended = json!({ "spec": { "overrideRules": [{ "overriders": registry("ok.io") }] } });
    merge::<OverridePolicy>(&bench.here(), "broken", mended).await;
    for member in ["m1", "m2"] {
        runs(&bench, member, "ok.io/nginx:2").await;
    }
}

/// Overriders that fail for every Deployment.
fn failing() -> Value {
    json!({ "plaintext": [{ "path": "/spec/nosuch", "operator": "replace", "value": 1 }] })
}

#[tokio::test]
async fn a_fleet_api_without_override_policies_carries_out_everything_else() {
    let bench = Bench::start().await;
    let definitions = bench.all::<CustomResourceDefinition>();
    for plural in ["overridepolicies", "clusteroverridepolicies"] {
        let name = format!("{plural}.policy.karmada.io");
        delete(&definitions, &name).await;
        gone(&definitions, &name).await;
    }
    let _control_plane = bench.evicting_control_plane(Settings::default());
    let (here, there) = bench.in_one_cluster(json!({})).await;
    let taint = json!({ "spec": { "taints": [{ "key": "broken", "effect": "NoExecute" }] } });
    merge::<Cluster>(&bench.all(), here, taint).await;
    runs(&bench, there, "nginx").await;
}
