//! What an agent does with Works that were applied before it started.

use std::time::Duration;

use kube::api::ListParams;
use muster_e2e::harness::objects::{delete, list, merge};
use muster_shared::k8s::ResourceExt;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::agent::bench::{Bench, config_map, deployment, until, value};
use crate::agent::meter::Meter;

/// How long an agent may take to compare all Works. Without lists and at 40 requests a second it
/// takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Works of three kinds, each with the object that its name says: `map-0`, `deployment-0`,
/// `service-0`, ...
async fn works(bench: &Bench, each: usize) -> Vec<String> {
    let mut names = Vec::new();
    for number in 0..each {
        for kind in ["map", "deployment", "service"] {
            let name = format!("{kind}-{number}");
            let manifest = match kind {
                "map" => config_map(&name, "1"),
                "deployment" => deployment(&name),
                _ => {
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
                    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
                }
            };
            bench
                .create_work(&name, |work| {
                    work["spec"]["workload"]["manifests"] = json!([manifest]);
                })
                .await;
            names.push(name);
        }
    }
    names
}

/// Waits until so many Works have been compared successfully.
async fn compared(meter: &Meter, works: f64) {
    let all = async {
        while meter.sum("muster_works_applied_total", &["result=\"success\""]) < works {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = timeout(PATIENCE, all).await;
    assert!(ended.is_ok(), "{works} Works in vain\n{}", meter.text());
}

fn requests(meter: &Meter, labels: &[&str]) -> f64 {
    meter.sum("muster_api_requests_total", labels)
}

/// Names and versions of everything of ours in the member, and of the Works.
async fn versions(bench: &Bench) -> Vec<(String, Option<String>)> {
    let ours = ListParams::default().labels("karmada.io/managed=true");
    let mut versions = Vec::new();
    for (api_version, kind) in [
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("v1", "Service"),
    ] {
        let api = bench.objects(api_version, kind);
        let listed = api.list(&ours).await.unwrap();
        versions.extend(
            listed
                .iter()
                .map(|object| (object.name_any(), object.resource_version())),
        );
    }
    let works = list(&bench.works()).await;
    versions.extend(
        works
            .iter()
            .map(|work| (format!("work {}", work.name_any()), work.resource_version())),
    );
    versions
}

#[tokio::test]
async fn an_agent_that_starts_lists_what_it_applied_and_neither_reads_nor_writes_one_by_one() {
    let bench = Bench::start().await;
    let names = works(&bench, 30).await;
    let count = f64::from(u32::try_from(names.len()).unwrap());
    let agent = bench.agent();
    for name in &names {
        bench.applied(name, "True").await;
        until(&bench.works(), name, "it is reported", |work| {
            work.status
                .as_ref()
                .is_some_and(|status| !status.manifest_statuses.is_empty())
        })
        .await;
    }
    agent.stop().await.unwrap();
    let before = versions(&bench).await;

    let meter = Meter::install();
    let begun = Instant::now();
    let limited = |settings: &mut muster_agent::settings::Settings| {
        settings.cluster_api_qps = 40.0;
    };
    let _agent = bench.agent_in(&[crate::agent::bench::AGENTS], limited);
    compared(&meter, count).await;
    let took = begun.elapsed();

    let member = requests(&meter, &["api=\"member\""]);
    let writes = requests(&meter, &["api=\"member\"", "method=\"PATCH\""]);
    let fleet = requests(&meter, &["api=\"fleet\""]);
    println!("{count} Works: {member} requests to the member, {fleet} to the fleet, in {took:?}");
    // Probes, discovery, registration, nodes and pods, a list and a watch for each of three kinds.
    assert!(member < 60.0, "{member} requests\n{}", meter.text());
    assert!(fleet < 60.0, "{fleet} requests\n{}", meter.text());
    assert!(writes < 1.0, "{}", meter.text());
    assert_eq!(
        versions(&bench).await,
        before,
        "nothing was written on either side"
    );
}

#[tokio::test]
async fn what_drifted_vanished_or_changed_while_the_agent_was_away_is_put_right() {
    let bench = Bench::start().await;
    let names = works(&bench, 4).await;
    let agent = bench.agent();
    for name in &names {
        bench.applied(name, "True").await;
    }
    agent.stop().await.unwrap();
    let (maps, deployments) = (bench.config_maps(), bench.objects("apps/v1", "Deployment"));
    merge(&maps, "map-0", &json!({"data": {"k": "drifted"}})).await;
    delete(&maps, "map-1").await;
    let change = json!({"spec": {"workload": {"manifests": [config_map("map-2", "2")]}}});
    merge(&bench.works(), "map-2", &change).await;
    let unmarked = json!({"metadata": {"annotations": {"work.karmada.io/name": null}}});
    merge(&maps, "map-3", &unmarked).await;
    let scaled = json!({"spec": {"replicas": 7}});
    merge(&deployments, "deployment-0", &scaled).await;
    let theirs = json!({"metadata": {"annotations": {"theirs": "1"}}});
    merge(&deployments, "deployment-1", &theirs).await;

    let meter = Meter::install();
    let _agent = bench.agent();
    for (name, expected) in [("map-0", "1"), ("map-1", "1"), ("map-2", "2")] {
        until(&maps, name, "it is as wanted", |object| {
            value(object) == expected
        })
        .await;
    }
    until(&maps, "map-3", "it has our mark again", |object| {
        object
            .annotations()
            .get("work.karmada.io/name")
            .is_some_and(|name| name == "map-3")
    })
    .await;
    until(
        &deployments,
        "deployment-0",
        "its replicas are back",
        |object| object.data["spec"]["replicas"] == 2,
    )
    .await;
    compared(&meter, 12.0).await;
    let kept = deployments.get("deployment-1").await.unwrap();
    assert_eq!(kept.annotations()["theirs"], "1");
    let writes = requests(&meter, &["api=\"member\"", "method=\"PATCH\""]);
    assert!(writes <= 5.0, "{writes} writes\n{}", meter.text());
}
