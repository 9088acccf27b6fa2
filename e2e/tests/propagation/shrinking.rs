//! Replicas that move between clusters which stay targets: none that is ready goes before as many
//! are ready elsewhere.

use muster_e2e::harness::objects::merge;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::conditions;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, shares};

fn replicas(number: i64) -> impl Fn(&Value) -> bool {
    move |manifest| manifest["spec"]["replicas"] == number
}

/// Returns a check of whether the binding says that replicas are kept, or that none are any more.
fn says(status: &'static str, part: &'static str) -> impl Fn(&ResourceBinding) -> bool {
    move |binding| {
        let conditions = &binding.status().conditions;
        let told = conditions::get(conditions, "ReplicasKept");
        told.is_some_and(|it| it.status == status && it.message.contains(part))
    }
}

#[tokio::test]
async fn weights_that_are_edited_take_no_ready_replica_away_before_its_successor_is_ready() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Deployment", "web", replicas(2)).await;
        bench.report(member, "web", 2).await;
    }
    let weight = |name: &str, weight: i64| json!({ "targetCluster": { "clusterNames": [name] }, "weight": weight });
    let weights = json!({ "staticWeightList": [weight("m1", 3), weight("m2", 1)] });
    let anew = json!({ "spec": { "placement": {
        "replicaScheduling": { "weightPreference": weights },
    } } });
    merge::<PropagationPolicy>(&bench.here(), "web", anew).await;
    bench
        .bound("web-deployment", "it is divided anew", |binding| {
            let mut shares = shares(binding);
            shares.sort_unstable();
            shares == [("m1", 3), ("m2", 1)]
        })
        .await;
    bench.sent("m1", "Deployment", "web", replicas(3)).await;
    let told = says("True", "m2: ready replicas beyond the share");
    bench.bound("web-deployment", "it says so", told).await;
    bench.sent("m2", "Deployment", "web", replicas(2)).await;

    bench.report("m1", "web", 3).await;
    bench.sent("m2", "Deployment", "web", replicas(1)).await;
    let over = says("False", "every cluster has the replicas");
    bench.bound("web-deployment", "it is over", over).await;
}
