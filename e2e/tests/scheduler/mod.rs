//! The scheduler against a real API: what it writes for bindings, when, and when not.

mod bench;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{WatchEvent, WatchParams};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, typed};
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::k8s::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use bench::{Bench, PATIENCE, aggregated, binding, is_observed, shown, until, verdict};

#[tokio::test]
async fn a_binding_is_placed_and_reported_in_two_writes() {
    let bench = Bench::with_members(&[("m1", 10), ("m2", 4)]).await;
    let _scheduler = bench.scheduler();
    let params = WatchParams::default();
    let mut watch = bench.bindings().watch(&params, "0").await.unwrap().boxed();
    for name in ["divided", "copies"] {
        let placement = if name == "divided" {
            aggregated()
        } else {
            json!({})
        };
        bench.bind(name, 2, placement).await;
        bench
            .placed(
                name,
                if name == "divided" {
                    "m1:2"
                } else {
                    "m1:2 m2:2"
                },
            )
            .await;
    }
    // Whatever else was to be written about them comes before this is done.
    bench.bind("witness", 1, aggregated()).await;
    bench.placed("witness", "m1:1").await;

    let mut seen: HashMap<String, usize> = HashMap::new();
    while let Some(event) = watch.next().await {
        let (WatchEvent::Added(binding) | WatchEvent::Modified(binding)) = event.unwrap() else {
            continue;
        };
        *seen.entry(binding.name_any()).or_default() += 1;
        if binding.name_any() == "witness" && is_observed(&binding) {
            break;
        }
    }
    // Created, placed, reported.
    assert_eq!((seen["divided"], seen["copies"]), (3, 3));
}

#[tokio::test]
async fn a_waiting_binding_is_placed_within_a_second_when_room_returns_and_others_stay() {
    let bench = Bench::with_members(&[("m1", 10), ("m2", 2)]).await;
    let _scheduler = bench.scheduler();
    bench.bind("settled", 2, aggregated()).await;
    let settled = bench.placed("settled", "m1:2").await;
    bench.bind("large", 15, aggregated()).await;
    let large = until(&bench.bindings(), "large", "it waits", |binding| {
        verdict(binding).0 == "Unschedulable"
    })
    .await;
    assert_eq!(
        verdict(&large).1,
        "failed to assign replicas: failed to scale up: \
         Clusters available replicas 12 are not enough to schedule."
    );
    assert_eq!(shown(&large), "");

    let started = Instant::now();
    bench.report("m2", 20).await;
    bench.placed("large", "m2:15").await;
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    // What was put on the queue together with it, or after, is done before this is.
    bench.report("m2", 21).await;
    bench.bind("witness", 1, aggregated()).await;
    bench.placed("witness", "m2:1").await;
    let after = bench.bindings().get("settled").await.unwrap();
    assert_eq!(after.resource_version(), settled.resource_version());
}

#[tokio::test]
async fn bindings_of_a_higher_priority_are_placed_first_and_then_the_older_ones() {
    let bench = Bench::with_members(&[("m1", 100)]).await;
    let params = WatchParams::default();
    let mut watch = bench.bindings().watch(&params, "0").await.unwrap().boxed();
    let priorities = [0, 5, -3, 9, 5, 0];
    for (number, priority) in priorities.iter().enumerate() {
        let mut urgent = binding(&format!("b{number}"), 1, &aggregated());
        urgent["spec"]["schedulePriority"] = json!({ "priority": priority });
        create(&bench.bindings(), urgent).await;
    }
    let one_at_a_time = Settings {
        concurrent_resourcebinding_syncs: 1,
        ..Settings::default()
    };
    let _scheduler = bench.scheduler_with(one_at_a_time);
    let mut order: Vec<String> = Vec::new();
    while order.len() < priorities.len() {
        let event = timeout(PATIENCE, watch.next())
            .await
            .expect("all are placed");
        if let Some(Ok(WatchEvent::Modified(binding))) = event
            && !binding.spec.clusters.is_empty()
            && !order.contains(&binding.name_any())
        {
            order.push(binding.name_any());
        }
    }
    assert_eq!(order[0], "b3");
    let mut next = [order[1].as_str(), order[2].as_str()];
    next.sort_unstable();
    // The first list comes in no order: what is equal in priority has one age.
    assert_eq!((next, order[5].as_str()), (["b1", "b4"], "b2"));
}

#[tokio::test]
async fn cluster_scoped_bindings_are_placed_and_those_of_others_are_not() {
    let bench = Bench::with_members(&[("m1", 10)]).await;
    let mut suspended = binding("suspended", 1, &aggregated());
    suspended["spec"]["suspension"] = json!({ "scheduling": true });
    let mut foreign = binding("foreign", 1, &aggregated());
    foreign["spec"]["schedulerName"] = json!("another");
    for other in [suspended, foreign] {
        let other: ResourceBinding = typed(other);
        create(&bench.bindings(), &other).await;
    }
    let _scheduler = bench.scheduler();
    let wide: Api<ClusterResourceBinding> = Api::all(bench.client.clone());
    let binding: ClusterResourceBinding = typed(binding("wide", 1, &aggregated()));
    create(&wide, &binding).await;
    until(&wide, "wide", "it is placed", |binding| {
        binding
            .spec
            .clusters
            .first()
            .is_some_and(|target| target.name == "m1")
    })
    .await;
    for other in ["suspended", "foreign"] {
        let binding = bench.bindings().get(other).await.unwrap();
        assert_eq!((shown(&binding).as_str(), verdict(&binding).0), ("", ""));
    }
    bench
        .patch("suspended", json!({ "spec": { "suspension": null } }))
        .await;
    bench.placed("suspended", "m1:1").await;
}
