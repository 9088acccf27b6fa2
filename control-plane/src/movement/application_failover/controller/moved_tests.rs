//! An application that stays unhealthy, from its report to its move.

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Bench, REFUSALS, binding, claimed, cluster, pass, paused, policy};
use crate::movement::eviction;

/// Returns a binding whose application asks for failover, and is unhealthy in `m1`.
fn unhealthy() -> Value {
    let mut binding = binding();
    binding["spec"]["propagateDeps"] = json!(true);
    binding["spec"]["failover"] = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 30}, "purgeMode": "Directly",
    }});
    binding["status"] = json!({"aggregatedStatus": [{"clusterName": "m1", "health": "Unhealthy"}]});
    binding
}

/// Returns where the workload is to run according to what was written; the list is empty as long as
/// nothing was written.
fn placements(bench: &Bench) -> Vec<Value> {
    let writes = bench.api.writes().into_iter();
    let placements = writes.filter_map(|(.., body)| body["spec"].get("clusters").cloned());
    placements.collect()
}

async fn bench(binding: Value) -> Bench {
    let mut bench = Bench::new([
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("resourcebindings", binding),
    ]);
    begin(&mut bench).await;
    bench
}

/// Starts the controller, and the evictor without its taints.
async fn begin(bench: &mut Bench) {
    let pace = Pace::of(&bench.fleet.settings);
    let evictor = eviction::start(&bench.fleet, &pace, false, &mut bench.tasks);
    start(&bench.fleet, &evictor, &mut bench.tasks);
    bench.follow().await;
}

#[tokio::test(start_paused = true)]
async fn an_application_that_is_unhealthy_for_longer_than_tolerated_moves_once() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = bench(unhealthy()).await;
    pass(28).await;
    assert_eq!(placements(&bench), [Value::Null; 0]);
    pass(10).await;
    assert_eq!(placements(&bench), [json!([{"name": "m2", "replicas": 2}])]);
    let reported = bench.api.reported().await;
    for reason in ["WaitingForToleration", "ApplicationMoved"] {
        let reported_of = reported.iter().filter(|it| it.1 == reason);
        let about: Vec<&str> = reported_of.map(|it| &*it.0).collect();
        assert_eq!(about, ["web-deployment", "web"], "{reported:?}");
    }
    pass(120).await;
    assert_eq!(placements(&bench).len(), 1);
    let figures = recorder.handle().render();
    let counted = r#"muster_application_failovers_total{result="moved"} 1"#;
    assert!(figures.lines().any(|it| it == counted), "{figures}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_made_again_is_unhealthy_anew() {
    let made = |uid: &str| {
        let mut binding = unhealthy();
        binding["metadata"]["uid"] = json!(uid);
        binding
    };
    let bench = bench(made("first")).await;
    pass(20).await;
    bench.api.put("resourcebindings", made("second"));
    pass(25).await;
    assert_eq!(placements(&bench), [Value::Null; 0]);
    pass(10).await;
    assert_eq!(placements(&bench).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn that_the_health_is_not_known_because_an_update_is_refused_is_reported() {
    let bench = bench(unhealthy()).await;
    pass(20).await;
    let put = |report: Value| {
        let mut binding = bench.api.binding("web-deployment");
        binding["status"]["aggregatedStatus"] = json!([report]);
        bench.api.put("resourcebindings", binding);
    };
    let reported = || {
        let binding = bench.api.binding("web-deployment");
        let reported = &binding["status"]["conditions"][0];
        ["status", "reason"].map(|field| reported[field].as_str().unwrap().to_owned())
    };
    put(json!({"clusterName": "m1", "health": "Unknown", "appliedMessage": "denied"}));
    pass(300).await;
    assert_eq!(placements(&bench), [Value::Null; 0]);
    assert_eq!(reported(), ["True", "UpdateNotApplied"]);
    let events = bench.api.reported().await;
    let warned = events.iter().filter(|it| it.1 == "UpdateNotApplied");
    assert_eq!(
        warned.count(),
        2,
        "of the binding and the template, once: {events:?}"
    );
    put(json!({"clusterName": "m1", "applied": true, "health": "Unknown"}));
    pass(5).await;
    assert_eq!(reported(), ["False", "ApplicationRecovered"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_refused_of_a_copy_that_was_well_says_nothing_of_its_health() {
    let mut refused = unhealthy();
    refused["status"]["aggregatedStatus"] =
        json!([{"clusterName": "m1", "health": "Unknown", "appliedMessage": "denied"}]);
    let bench = bench(refused).await;
    pass(120).await;
    assert!(bench.api.reported().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_move_is_written_with_the_new_placement_and_other_schedulers_place_what_is_theirs() {
    for (scheduler, clusters) in [
        ("", json!([{"name": "m2", "replicas": 2}])),
        ("other", Value::Null),
    ] {
        let mut binding = unhealthy();
        binding["spec"]["schedulerName"] = json!(scheduler);
        let bench = bench(binding).await;
        pass(40).await;
        let writes = bench.api.writes().into_iter();
        let left = |spec: &Value| !spec["gracefulEvictionTasks"].is_null();
        let bodies: Vec<Value> = writes
            .map(|it| it.2)
            .filter(|it| left(&it["spec"]))
            .collect();
        let [body] = &bodies[..] else {
            panic!("{scheduler}: {bodies:?}");
        };
        assert_eq!(
            body["spec"]["gracefulEvictionTasks"][0]["fromCluster"],
            "m1"
        );
        let placed = &body["spec"]["clusters"];
        assert_eq!(*placed, clusters, "{scheduler}");
        // The next process reports the move where this one ends before it could.
        let written = body["metadata"]["annotations"][history::ANNOTATION].as_str();
        let moved = History::read(written).to_publish(None).cloned().unwrap();
        let mode = moved.mode.as_str();
        assert_eq!((&*moved.from, &*moved.to, mode), ("m1", "m2", "Directly"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_comes_too_late_is_planned_anew_and_one_that_is_refused_is_reported() {
    for (code, is_overtaken) in REFUSALS {
        let bench = bench(unhealthy()).await;
        // The health of the application is noted before.
        pass(28).await;
        let (method, path) = (Method::PATCH, "/web-deployment");
        bench.api.refuse(method, path, code, "web-deployment");
        pass(10).await;
        let reported = bench.api.reported().await;
        let is_reported = reported
            .iter()
            .any(|it| it.1 == "EvictWorkloadFromClusterFailed");
        assert_eq!(is_reported, !is_overtaken, "{code}: {reported:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_recovers_while_that_is_tolerated_or_while_it_waits_to_leave_stays() {
    for (unhealthy_for, is_paused) in [(20, false), (40, true)] {
        let left = if is_paused {
            paused(cluster("m1"))
        } else {
            cluster("m1")
        };
        let mut bench = Bench::new([
            ("clusters", left),
            ("clusters", cluster("m2")),
            ("resourcebindings", unhealthy()),
        ]);
        begin(&mut bench).await;
        pass(unhealthy_for).await;
        let mut healthy = unhealthy();
        healthy["status"]["aggregatedStatus"][0]["health"] = json!("Healthy");
        bench.api.put("resourcebindings", healthy);
        pass(1).await;
        bench.api.put("clusters", cluster("m1"));
        pass(120).await;
        assert_eq!(placements(&bench), [Value::Null; 0], "{unhealthy_for} s");
    }
}

#[tokio::test(start_paused = true)]
async fn one_whose_cluster_is_not_ready_when_the_queue_comes_to_it_stays() {
    let mut bench = Bench::new([
        ("clusters", paused(cluster("m1"))),
        ("clusters", cluster("m2")),
        ("resourcebindings", unhealthy()),
    ]);
    begin(&mut bench).await;
    pass(40).await;
    let mut silent = cluster("m1");
    silent["status"]["conditions"][0]["status"] = json!("Unknown");
    bench.api.put("clusters", paused(silent.clone()));
    // Nothing of the binding changes.
    pass(10).await;
    bench.api.put("clusters", silent);
    pass(60).await;
    assert_eq!(placements(&bench), [Value::Null; 0]);
    let reported = bench.api.reported().await;
    for reason in ["Paused", "ClusterNotReady"] {
        assert!(
            reported.iter().any(|it| it.1 == reason),
            "{reason}: {reported:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_stays_because_its_policy_asks_for_time_or_no_failover_any_more_says_so() {
    let asks = |seconds: i64| {
        json!({"application": {
            "decisionConditions": {"tolerationSeconds": seconds}, "purgeMode": "Directly",
        }})
    };
    // The binding does not follow.
    for (says, leaves) in [(asks(30), true), (asks(3_600), false), (Value::Null, false)] {
        let mut policy = policy();
        policy["spec"]["propagateDeps"] = json!(true);
        policy["spec"]["failover"] = says.clone();
        let mut bench = Bench::new([
            ("clusters", cluster("m1")),
            ("clusters", cluster("m2")),
            ("propagationpolicies", policy),
            ("resourcebindings", claimed(unhealthy())),
        ]);
        begin(&mut bench).await;
        pass(60).await;
        assert_eq!(!placements(&bench).is_empty(), leaves, "{says}");
        let reported = bench.api.reported().await;
        let is_reported = reported
            .iter()
            .any(|it| it.1 == "EvictWorkloadFromClusterFailed");
        assert_eq!(is_reported, !leaves, "{says}: {reported:?}");
    }
}
