use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::clock::{Clock, calendar};
use serde_json::json;

use super::*;
use crate::clusters::taint::default_tolerations::DefaultTolerations;
use crate::fleet::budget::rate::Rates;
use crate::movement::eviction::evictor::{Now, Step};
use crate::movement::eviction::judge::Switches;

fn now() -> Now {
    Now::by(&Clock::default())
}

fn cluster(name: &str, failed: bool) -> Arc<Cluster> {
    let taints = if failed {
        json!([{"key": "down", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"}])
    } else {
        json!([])
    };
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
    });
    let cluster = json!({
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": [ready]},
    });
    Arc::new(serde_json::from_value(cluster).unwrap())
}

fn spec(kind: &str, tolerated: bool) -> serde_json::Value {
    let tolerations = if tolerated {
        json!([{"operator": "Exists", "tolerationSeconds": 4_000_000_000_u32}])
    } else {
        json!([])
    };
    json!({
        "resource": {"apiVersion": "apps/v1", "kind": kind, "name": "w"},
        "clusters": [{"name": "c0"}],
        "placement": {"clusterTolerations": tolerations},
    })
}

/// Returns an evictor with one failed cluster of four, on it three Deployments (one of which is
/// tolerated for a time) and something without a namespace.
fn evictor() -> Evictor {
    let switches = Switches {
        failover: true,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    };
    let mut evictor = Evictor::new(switches, Rates::default(), now());
    for n in 0..4 {
        evictor.cluster(&cluster(&format!("c{n}"), n == 0), now());
    }
    for n in 0..3 {
        let binding: AnyBinding = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": format!("w{n}")},
            "spec": spec("Deployment", n == 0),
        }))
        .unwrap();
        evictor.binding(&Arc::new(binding), now());
    }
    let binding: AnyBinding = serde_json::from_value(
        json!({"metadata": {"name": "w"}, "spec": spec("ClusterRole", false)}),
    )
    .unwrap();
    evictor.binding(&Arc::new(binding), now());
    evictor.open(now());
    evictor
}

/// Returns what `/metrics` shows after `act`, without comments and in order.
fn shown(act: impl FnOnce(&mut Evictor, &mut Meter, Instant)) -> Vec<String> {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let (mut evictor, start) = (evictor(), Instant::now());
        let mut meter = Meter::new(start);
        act(&mut evictor, &mut meter, start);
        meter.show(&evictor, start + Duration::from_secs(10));
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
    let lines = shown(|_, _, _| {});
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
fn process_all(evictor: &mut Evictor, meter: &mut Meter, start: Instant) {
    let mut outcomes = [
        Outcome::Conflict,
        Outcome::Nowhere("full".into()),
        Outcome::Failed("500".into()),
    ]
    .into_iter();
    for tick in 0_u32.. {
        let now = Now {
            wall: calendar(),
            tick: start + tick * Duration::from_millis(100),
        };
        if let Step::Evict(eviction) = evictor.next(now) {
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
            evictor.done(&eviction, outcome, now);
            if end {
                break;
            }
        }
    }
}

#[test]
fn what_was_processed_is_counted_by_its_end() {
    let lines = shown(process_all);
    let later = shown(|evictor, meter, start| {
        process_all(evictor, meter, start);
        meter.show(evictor, start);
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
    let lines = shown(|evictor, meter, start| {
        meter.show(evictor, start);
        evictor.cluster(&cluster("c0", false), now());
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
    let lines = shown(|evictor, meter, start| {
        meter.show(evictor, start);
        assert!(meter.done.contains_key("c0"));
        evictor.cluster_gone("c0", true, now());
        meter.show(evictor, start);
        assert!(meter.done.is_empty());
    });
    let of_it: Vec<&String> = lines.iter().filter(|line| line.contains("c0")).collect();
    assert!(of_it.is_empty(), "{of_it:?}");
}
