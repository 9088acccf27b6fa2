//! Evictions after which another affinity group is in use: what runs in the rest of the former
//! group serves its users until the new copies do.

use muster_control_plane::settings::Settings;
use muster_shared::api::binding::ResourceBinding;
use serde_json::json;

use super::{asks, is_kept, settled, taint, tasks};
use crate::propagation::bench::{Bench, shares};

/// Places a workload in the clusters m1 and m2 of its first affinity group, where it is healthy;
/// the second has m3 and m4, and each group needs two.
async fn in_the_first_group(bench: &Bench) {
    for member in ["m3", "m4"] {
        bench.join(member).await;
    }
    bench.deploy("web").await;
    let group =
        |name: &str, clusters: [&str; 2]| json!({ "affinityName": name, "clusterNames": clusters });
    let spec = json!({
        "failover": { "cluster": asks("Gracefully") },
        "placement": {
            "clusterAffinities": [group("home", ["m1", "m2"]), group("away", ["m3", "m4"])],
            "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 2, "maxGroups": 2 }],
            "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
        },
    });
    bench.place("web", spec).await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Deployment", "web", |_| true).await;
        bench.report(member, "web", 4).await;
    }
    bench
        .bound("web-deployment", "its copies are reported", |binding| {
            let reports = &binding.status.as_ref().unwrap().aggregated_status;
            reports.iter().filter(|it| it.applied).count() == 2
        })
        .await;
}

fn sorted(binding: &ResourceBinding) -> Vec<(&str, i32)> {
    let mut all = shares(binding);
    all.sort_unstable();
    all
}

#[tokio::test]
async fn healthy_copies_in_the_former_group_stay_until_the_new_ones_are_healthy() {
    let bench = Bench::start().await;
    let _control_plane = bench.evicting_control_plane(Settings::default());
    in_the_first_group(&bench).await;
    taint(&bench, "m1").await;
    bench
        .bound("web-deployment", "it is in the other group", |binding| {
            sorted(binding) == [("m3", 4), ("m4", 4)]
        })
        .await;
    let tasks = tasks(&bench).await;
    let told: Vec<_> = tasks
        .iter()
        .map(|it| (it.from_cluster.as_str(), it.reason.as_str(), it.replicas))
        .collect();
    assert_eq!(
        told,
        [
            ("m2", "PlacementChanged", Some(4)),
            ("m1", "TaintUntolerated", Some(4)),
        ]
    );
    for member in ["m3", "m4"] {
        bench.sent(member, "Deployment", "web", |_| true).await;
    }
    settled(&bench, "m2").await;
    for member in ["m1", "m2"] {
        is_kept(&bench, member).await;
    }
    for member in ["m3", "m4"] {
        bench.report(member, "web", 4).await;
    }
    for member in ["m1", "m2"] {
        bench.withdrawn(member, "Deployment", "web").await;
    }
    bench
        .bound("web-deployment", "the move is over", |binding| {
            binding.spec.graceful_eviction_tasks.is_empty()
        })
        .await;
}
