//! Outages that last for long, in simulated time: nothing is lost, nothing piles up, and the end is
//! noticed at once.

use std::time::Duration;

use jiff::Timestamp;
use muster_e2e::apiserver::Running;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{delete, merge};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::agent::bench::{AGENT, AGENTS, Bench, MEMBER, config_map, gone, renewed, until, value};
use crate::agent::meter::Meter;
use muster_e2e::harness::test_bed::Task;

/// Time for which nobody answers: many times the longest back-off, which is a minute.
const LONG: Duration = Duration::from_mins(30);
/// Works that are pending while nobody answers.
const WORKS: u32 = 20;

/// Starts an agent as operators run it: with the intervals that are the defaults.
fn agent(bench: &Bench) -> Task {
    bench.agent_in(&[AGENTS], |settings| {
        settings.cluster_status_update_frequency = "10s".parse().unwrap();
        settings.cluster_lease_duration = "40s".parse().unwrap();
        settings.cluster_success_threshold = "30s".parse().unwrap();
        settings.cluster_failure_threshold = "30s".parse().unwrap();
    })
}

fn cut_off(server: &Running) {
    let agent_only = Scope::user(AGENT);
    server.faults().inject_for(agent_only, Effect::Cut);
}

fn changed(name: &str) -> serde_json::Value {
    json!({"spec": {"workload": {"manifests": [config_map(name, "2")]}}})
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_is_away_for_long_finds_its_member_as_it_wants_it() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let _agent = agent(&bench);
    bench.joined().await;
    for name in ["changed", "deleted", "untouched"] {
        bench.create_work(name, |_| {}).await;
        bench.applied(name, "True").await;
    }
    cut_off(&bench.fleet);
    let before = meter.sum("muster_api_requests_total", &["api=\"fleet\""]);
    sleep(LONG / 2).await;
    // What the member needs no fleet for goes on: drift is repaired. Not so by an agent that stands
    // for election, which leads no longer when the fleet, where its lease is, has been away for the
    // renew deadline.
    merge(
        &bench.config_maps(),
        "untouched",
        &json!({"data": {"k": "drifted"}}),
    )
    .await;
    until(
        &bench.config_maps(),
        "untouched",
        "drift is repaired",
        |object| value(object) == "1",
    )
    .await;
    merge(&bench.works(), "changed", &changed("changed")).await;
    delete(&bench.works(), "deleted").await;
    bench.create_work("new", |_| {}).await;
    sleep(LONG / 2).await;
    let asked = meter.sum("muster_api_requests_total", &["api=\"fleet\""]) - before;
    // The lease is tried once a second; watches and writes have backed off.
    let seconds = LONG.as_secs_f64();
    assert!(
        asked < seconds * 1.5,
        "{asked} requests in {seconds} s:\n{}",
        meter.series("muster_api_requests_total").join("\n")
    );
    assert!(asked > seconds / 60.0, "it goes on trying: {asked}");
    assert!(
        meter.sum("muster_queue_depth", &[]) <= 8.0,
        "{}",
        meter.text()
    );

    bench.fleet.faults().heal();
    let healed = Instant::now();
    until(&bench.config_maps(), "changed", "it changed", |object| {
        value(object) == "2"
    })
    .await;
    until(&bench.config_maps(), "new", "it is there", |object| {
        value(object) == "1"
    })
    .await;
    gone(&bench.config_maps(), "deleted").await;
    let took = healed.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    until(&bench.leases(), MEMBER, "it is renewed", |lease| {
        renewed(lease).is_some_and(|at| Timestamp::now().duration_since(at).as_secs() < 10)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_silent_for_long_is_reported_once_and_caught_up_with_when_it_answers() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let _agent = agent(&bench);
    bench.joined().await;
    bench.create_work("changed", |_| {}).await;
    bench.applied("changed", "True").await;
    let joined = bench
        .has(
            MEMBER,
            &[
                ("Ready", "True", "ClusterReady"),
                ("StatusUpToDate", "True", "Collected"),
            ],
        )
        .await;
    cut_off(&bench.member);
    let silent = bench
        .has(
            MEMBER,
            &[
                ("Ready", "False", "ClusterNotReachable"),
                ("StatusUpToDate", "False", "CollectionFailed"),
            ],
        )
        .await;
    merge(&bench.works(), "changed", &changed("changed")).await;
    for number in 0..WORKS {
        bench.create_work(&format!("new-{number}"), |_| {}).await;
    }
    sleep(LONG).await;
    let after = bench.clusters().get(MEMBER).await.unwrap();
    assert_eq!(
        after.metadata.resource_version, silent.metadata.resource_version,
        "what is known is not written again"
    );
    let (now, then) = (after.status.unwrap(), joined.status.unwrap());
    assert_eq!(now.node_summary, then.node_summary);
    assert_eq!(now.api_enablements, then.api_enablements);
    // Each Work waits once; retries have backed off to one a minute.
    assert!(
        meter.sum("muster_queue_depth", &[]) <= f64::from(WORKS + 8),
        "{}",
        meter.text()
    );
    let retries = meter.sum("muster_queue_retries_total", &["queue=\"works\""]);
    assert!(
        retries < f64::from(WORKS + 1) * 60.0,
        "{retries} retries in half an hour"
    );

    bench.member.faults().heal();
    let healed = Instant::now();
    for number in 0..WORKS {
        let name = format!("new-{number}");
        until(&bench.config_maps(), &name, "it is there", |object| {
            value(object) == "1"
        })
        .await;
    }
    until(&bench.config_maps(), "changed", "it changed", |object| {
        value(object) == "2"
    })
    .await;
    let took = healed.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    bench.joined().await;
}
