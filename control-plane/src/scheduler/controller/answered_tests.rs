//! Tests of requests for a new placement whose answer could not be reported.

use http::Method;
use muster_shared::names::annotation::{ANSWERED_REQUEST, APPLIED_PLACEMENT, FAILBACK_ASKED};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::start;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Bench, binding, cluster, pass};
use crate::settings::Settings;

/// Returns a cluster with so many cores.
fn of_size(name: &str, cores: u32) -> Value {
    let mut cluster = cluster(name);
    cluster["status"]["resourceSummary"]["allocatable"]["cpu"] = json!(cores.to_string());
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_once_although_the_answer_could_not_be_reported() {
    let mut asked = binding();
    let spec = &mut asked["spec"];
    spec["placement"]["clusterAffinity"]["clusterNames"] = json!(["m1", "m2", "m3"]);
    spec["replicaRequirements"] = json!({"resourceRequest": {"cpu": "1"}});
    spec["failover"] = json!({"cluster": {"purgeMode": "Directly"}});
    let requested = "2024-01-02T00:00:00Z";
    spec["rescheduleTriggeredAt"] = json!(requested);
    asked["status"] = json!({"lastScheduledTime": "2024-01-01T00:00:00Z"});
    let mut bench = Bench::new([
        ("clusters", of_size("m1", 4)),
        ("clusters", of_size("m2", 40)),
        ("clusters", of_size("m3", 4)),
        ("resourcebindings", asked),
    ]);
    let status = "/web-deployment/status";
    bench
        .api
        .refuse(Method::PATCH, status, 500, "web-deployment");
    let pace = Pace::of(&bench.fleet.settings);
    start(&bench.fleet, pace.clone(), &mut bench.tasks);
    bench.follow().await;
    pace.begin(Instant::now());
    pass(60).await;
    let stored = || bench.api.binding("web-deployment");
    let placed = || stored()["spec"]["clusters"][0]["name"].clone();
    assert_eq!(placed(), "m2", "it has most room");
    bench.api.put("clusters", of_size("m3", 90));
    pass(600).await;
    assert_eq!(placed(), "m2", "nobody asked again");
    bench.api.answer_truly();
    pass(600).await;
    let scheduled = stored()["status"]["lastScheduledTime"].clone();
    assert!(scheduled.as_str() >= Some(requested), "{scheduled}");
    // The next request is one of its own.
    let mut again = stored();
    again["spec"]["rescheduleTriggeredAt"] = json!("2099-01-01T00:00:00Z");
    again["metadata"]["generation"] = json!(9);
    bench.api.put("resourcebindings", again);
    pass(60).await;
    assert_eq!(placed(), "m3");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_although_its_job_completed_before_the_answer_was_reported() {
    let requested = "2024-01-02T00:00:00Z";
    let mut moved = binding();
    moved["metadata"]["generation"] = json!(3);
    moved["metadata"]["annotations"] = json!({ ANSWERED_REQUEST: requested });
    let spec = &mut moved["spec"];
    spec["resource"]["apiVersion"] = json!("batch/v1");
    spec["resource"]["kind"] = json!("Job");
    spec["clusters"] = json!([{"name": "m2", "replicas": 2}]);
    spec["rescheduleTriggeredAt"] = json!(requested);
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    moved["status"] = json!({
        "schedulerObservedGeneration": 2, "lastScheduledTime": "2024-01-01T00:00:00Z",
        "aggregatedStatus": [{"clusterName": "m2", "status": done}],
    });
    let mut bench = Bench::new([("clusters", cluster("m2")), ("resourcebindings", moved)]);
    let pace = Pace::of(&bench.fleet.settings);
    start(&bench.fleet, pace, &mut bench.tasks);
    bench.follow_for(60).await;
    let status = bench.api.binding("web-deployment")["status"].clone();
    assert_eq!(status["schedulerObservedGeneration"], 3);
    assert_eq!(status["lastScheduledTime"], requested);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_to_return_stays_once_nothing_returns_any_more() {
    let (requested, before) = ("2024-01-02T00:00:00Z", "2024-01-01T00:00:00Z");
    let on = "--feature-gates=Failover=true";
    let person = "2023-01-02T00:00:00Z";
    for (flags, marked, expected) in [
        (&[on][..], requested, "m2"),
        (&[], requested, "m1"),
        (
            &[on, "--controllers=*,-workloadRebalancer"],
            requested,
            "m1",
        ),
        // A person asked for it.
        (&[], person, "m2"),
    ] {
        let mut asked = binding();
        let spec = &mut asked["spec"];
        spec["replicaRequirements"] = json!({"resourceRequest": {"cpu": "1"}});
        spec["rescheduleTriggeredAt"] = json!(requested);
        let applied = spec["placement"].to_string();
        asked["metadata"]["annotations"] =
            json!({ APPLIED_PLACEMENT: applied, FAILBACK_ASKED: marked });
        asked["status"] = json!({ "lastScheduledTime": before });
        let settings: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        let objects = [
            ("clusters", of_size("m1", 4)),
            ("clusters", of_size("m2", 40)),
            ("resourcebindings", asked),
        ];
        let mut bench = Bench::with(Settings::of_flags(&settings).unwrap(), objects);
        let pace = Pace::of(&bench.fleet.settings);
        start(&bench.fleet, pace.clone(), &mut bench.tasks);
        bench.follow().await;
        pace.begin(Instant::now());
        pass(60).await;
        let placed = bench.api.binding("web-deployment")["spec"]["clusters"][0]["name"].clone();
        assert_eq!(placed, expected, "{flags:?} {marked}");
    }
}
