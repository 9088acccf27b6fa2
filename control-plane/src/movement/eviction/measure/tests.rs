use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::PurgeMode;
use serde_json::json;

use super::*;
use crate::movement::eviction::evictor::Step;
use crate::movement::eviction::evictor::tests::{World, binding, cluster, down};

/// Returns a workload of a kind in `c0`, which may tolerate for a time that this cluster fails.
fn workload(name: &str, kind: &str, is_tolerated: bool) -> Arc<AnyBinding> {
    let tolerations = if is_tolerated {
        json!([{"operator": "Exists", "tolerationSeconds": 4_000_000_000_u32}])
    } else {
        json!([])
    };
    let more = json!({
        "resource": {"apiVersion": "apps/v1", "kind": kind, "name": "w"},
        "placement": {"clusterTolerations": tolerations},
    });
    binding(name, &["c0"], &more)
}

/// Returns a world with one failed cluster of four, on it three Deployments (one of which is
/// tolerated for a time) and something without a namespace.
fn world() -> World {
    let well = ["c1", "c2", "c3"].map(|name| cluster(name, &json!([])));
    let clusters = [cluster("c0", &down(0))].into_iter().chain(well);
    let deployments = (0..3).map(|n| workload(&format!("w{n}"), "Deployment", n == 0));
    let mut role = AnyBinding::clone(&workload("w", "ClusterRole", false));
    role.metadata.namespace = None;
    let workloads = deployments.chain([Arc::new(role)]);
    World::of(clusters.collect(), workloads.collect(), true)
}

/// Returns what `/metrics` shows after `act`, without comments and in order.
fn shown(act: impl FnOnce(&mut World, &mut Meter)) -> Vec<String> {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let mut world = world();
        let mut meter = Meter::new(world.start);
        act(&mut world, &mut meter);
        meter.show(&world.evictor, world.start + Duration::from_secs(10));
    });
    let text = muster_shared::telemetry::render(&handle);
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn the_gauges_show_what_waits_and_why() {
    let lines = shown(|_, _| {});
    let expected = [
        "cluster_fault_num 1",
        "cluster_fault_rate 0.25",
        r#"evict_kind_total{cluster_name="c0",resource_kind="apps/v1/ClusterRole"} 1"#,
        r#"evict_kind_total{cluster_name="c0",resource_kind="apps/v1/Deployment"} 3"#,
        r#"evict_rate{cluster_name="c0"} 0"#,
        r#"evict_total{cluster_name="c0"} 4"#,
        r#"eviction_kind_total{member_cluster="c0",resource_kind="ClusterResourceBinding"} 1"#,
        r#"eviction_kind_total{member_cluster="c0",resource_kind="ResourceBinding"} 3"#,
        r#"eviction_queue_depth{name="binding-eviction"} 2"#,
        r#"eviction_queue_depth{name="cluster-binding-eviction"} 1"#,
        "muster_evict_allowed_rate 0.5",
        r#"muster_evict_stranded{cluster_name="c0"} 0"#,
        r#"muster_evict_waiting{cluster_name="c0"} 1"#,
    ];
    assert_eq!(lines, expected);
}

/// Evicts until one has left: the first three end otherwise.
fn process_all(world: &mut World, meter: &mut Meter) {
    let mut outcomes = [
        Outcome::Conflict,
        Outcome::Nowhere("full".into()),
        Outcome::Failed("500".into()),
    ]
    .into_iter();
    for tick in 0_u32.. {
        world.second = f64::from(tick) / 10.0;
        let now = world.now();
        if let Step::Evict(eviction) = world.evictor.next(now) {
            let outcome = outcomes.next().unwrap_or_else(|| Outcome::Evicted {
                binding: eviction.binding.clone(),
                to: "c1".into(),
                mode: PurgeMode::Gracefully,
            });
            let end = matches!(outcome, Outcome::Evicted { .. });
            meter.count(
                &eviction,
                &outcome,
                eviction.since() + jiff::SignedDuration::from_secs(2),
            );
            world.evictor.done(&eviction, outcome, now);
            if end {
                break;
            }
        }
    }
}

#[test]
fn what_was_processed_is_counted_by_its_end() {
    let lines = shown(process_all);
    let later = shown(|world, meter| {
        process_all(world, meter);
        meter.show(&world.evictor, world.start);
    });
    let nothing_since = r#"evict_rate{cluster_name="c0"} 0"#;
    assert!(later.iter().any(|line| line == nothing_since), "{later:#?}");
    for expected in [
        r#"evict_rate{cluster_name="c0"} 0.1"#,
        r#"evict_total{cluster_name="c0"} 3"#,
        r#"evict_success_rate{cluster_name="c0"} 0.3333333333333333"#,
        r#"muster_evict_stranded{cluster_name="c0"} 1"#,
        r#"evict_processing_latency_seconds_count{cluster_name="c0"} 1"#,
        r#"evict_processing_latency_seconds_sum{cluster_name="c0"} 2"#,
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} in {lines:#?}"
        );
    }
    let tried: u64 = lines
        .iter()
        .filter(|line| line.starts_with("eviction_processing_total"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(tried, 3, "a conflict is no end: {lines:#?}");
}

#[test]
fn a_recovered_cluster_leaves_no_figure_behind_that_says_otherwise() {
    let lines = shown(|world, meter| {
        meter.show(&world.evictor, world.start);
        world
            .evictor
            .cluster(&cluster("c0", &json!([])), world.now());
    });
    for line in &lines {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            value == "0" || name == "muster_evict_allowed_rate",
            "{line}"
        );
    }
}

#[test]
fn nothing_is_remembered_or_shown_of_a_cluster_that_has_left_the_fleet() {
    let lines = shown(|world, meter| {
        meter.show(&world.evictor, world.start);
        assert!(meter.done.contains_key("c0"));
        world.evictor.cluster_gone("c0", true, world.now());
        meter.show(&world.evictor, world.start);
        assert!(meter.done.is_empty());
    });
    let of_it: Vec<&String> = lines.iter().filter(|line| line.contains("c0")).collect();
    assert!(of_it.is_empty(), "{of_it:?}");
}
