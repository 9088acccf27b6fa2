use muster_interpreter::Interpreters;
use serde_json::json;

use super::*;

mod health_rules;

fn cluster(ready: &Value) -> Cluster {
    serde_json::from_value(json!({
        "metadata": { "name": "m1" }, "spec": { "syncMode": "Pull" },
        "status": { "conditions": ready },
    }))
    .unwrap()
}

fn silence(since: &str) -> Silence {
    Silence {
        since: since.parse().unwrap(),
        reason: "ClusterStatusUnknown".to_owned(),
    }
}

fn silent(clusters: &[&str]) -> Silent {
    let one = |name: &&str| ((*name).to_owned(), silence("2026-01-01T00:00:07Z"));
    clusters.iter().map(one).collect()
}

fn items(items: &Value) -> Vec<AggregatedStatusItem> {
    serde_json::from_value(items.clone()).unwrap()
}

#[test]
fn a_cluster_is_silent_when_its_agent_does_not_report_or_its_api_cannot_be_reached() {
    for (status, reason, expected) in [
        ("True", "ClusterReady", false),
        ("Unknown", "ClusterStatusUnknown", true),
        ("Unknown", "ClusterStatusNeverUpdated", true),
        // The member refuses the control plane's own credentials: nothing of it is known.
        ("Unknown", "ClusterCredentialsRefused", true),
        ("False", "ClusterNotReachable", true),
        // Its agent reports, and so do its workloads.
        ("False", "ClusterNotReady", false),
    ] {
        let ready = json!([{ "type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:07Z" }]);
        let found = Silence::of(&cluster(&ready));
        assert_eq!(found.is_some(), expected, "{status} {reason}");
    }
    assert_eq!(Silence::of(&cluster(&json!([]))), None);
}

#[test]
fn what_a_silent_cluster_reported_last_is_unknown_and_is_reported_in_words() {
    let since = "unknown since 2026-01-01T00:00:07Z (ClusterStatusUnknown): the cluster is silent; it last reported:";
    for (reported, words) in [
        (
            json!({ "applied": true, "health": "Healthy", "status": { "readyReplicas": 1 } }),
            "Healthy",
        ),
        (
            json!({ "applied": true, "health": "Unhealthy" }),
            "Unhealthy",
        ),
        (
            json!({ "appliedMessage": "no room", "health": "Unknown" }),
            "not applied: no room",
        ),
        (json!({ "health": "Unknown" }), "nothing"),
    ] {
        let mut reported = reported;
        reported["clusterName"] = "m1".into();
        let mut heard = reported.clone();
        heard["clusterName"] = "m2".into();
        let mut all = items(&json!([reported, heard]));
        mark(&mut all, &silent(&["m1"]));
        let mut expected = json!({
            "clusterName": "m1", "health": "Unknown", "appliedMessage": format!("{since} {words}"),
        });
        if let Some(status) = reported.get("status") {
            expected["status"] = status.clone();
        }
        assert_eq!(json!(all), json!([expected, heard]));
    }
}

#[test]
fn the_message_of_the_condition_stays_short_in_a_large_fleet() {
    let names: Vec<String> = (0..3_000).map(|n| format!("m{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(
        all_silent(&silent(&names[..2])),
        "clusters are silent: m0000 (unknown since 2026-01-01T00:00:07Z), m0001 (unknown since 2026-01-01T00:00:07Z)"
    );
    let all = all_silent(&silent(&names));
    assert!(all.len() < 500 && all.ends_with("and 2990 more"), "{all}");
}

/// Returns the status that a template gets from these items.
fn shown(template: &Value, reported: &[AggregatedStatusItem], silent: &Silent) -> Value {
    let counted = counted(reported, silent);
    Interpreters::default()
        .aggregate_status(template, &counted, Timestamp::UNIX_EPOCH)
        .unwrap()
        .unwrap()
}

#[test]
fn copies_on_silent_clusters_exist_and_are_neither_ready_nor_available() {
    let counts = |n: u64| {
        json!({
            "replicas": n, "readyReplicas": n, "updatedReplicas": n, "availableReplicas": n,
            "generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 1,
        })
    };
    let daemons = json!({
        "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberReady": 3, "numberAvailable": 3,
        "numberMisscheduled": 0, "updatedNumberScheduled": 3,
        "generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 1,
    });
    for (kind, reported, silent_ones, expected) in [
        (
            "Deployment",
            [counts(2), counts(1)],
            &["m1"][..],
            json!({ "replicas": 3, "readyReplicas": 1, "updatedReplicas": 3, "availableReplicas": 1, "unavailableReplicas": 2, "observedGeneration": 1 }),
        ),
        (
            "Deployment",
            [counts(2), counts(1)],
            &["m1", "m2"],
            json!({ "replicas": 3, "updatedReplicas": 3, "unavailableReplicas": 3, "observedGeneration": 1 }),
        ),
        (
            "StatefulSet",
            [counts(2), counts(1)],
            &["m1", "m2"],
            json!({ "replicas": 3, "updatedReplicas": 3, "availableReplicas": 0, "observedGeneration": 1 }),
        ),
        (
            "DaemonSet",
            [daemons.clone(), daemons],
            &["m2"],
            json!({
                "currentNumberScheduled": 6, "desiredNumberScheduled": 6, "numberReady": 3, "numberAvailable": 3,
                "numberMisscheduled": 0, "numberUnavailable": 3, "updatedNumberScheduled": 6, "observedGeneration": 1,
            }),
        ),
    ] {
        let template = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "web", "generation": 1 },
        });
        let [one, two] = reported;
        let reported = items(&json!([
            { "clusterName": "m1", "applied": true, "health": "Healthy", "status": one },
            { "clusterName": "m2", "applied": true, "health": "Healthy", "status": two },
        ]));
        let found = shown(&template, &reported, &silent(silent_ones));
        assert_eq!(found, expected, "{kind} with {silent_ones:?} silent");
    }
}

#[test]
fn what_kinds_of_other_projects_count_as_ready_on_a_silent_cluster_is_not_either() {
    for (reported, expected) in [
        (
            json!({ "replicas": 2, "updatedReplicas": 2, "updatedReadyReplicas": 2 }),
            json!({ "replicas": 2, "updatedReplicas": 2, "updatedReadyReplicas": 0, "unavailableReplicas": 2 }),
        ),
        (
            json!({ "matchedPods": 2, "readyPods": 2 }),
            json!({ "matchedPods": 2, "readyPods": 0 }),
        ),
        (
            json!({ "desiredWorkerReplicas": 2, "readyWorkerReplicas": 2, "availableWorkerReplicas": 2 }),
            json!({ "desiredWorkerReplicas": 2, "readyWorkerReplicas": 0, "availableWorkerReplicas": 0 }),
        ),
    ] {
        let reported = items(&json!([{ "clusterName": "m1", "status": reported }]));
        let found = counted(&reported, &silent(&["m1"]));
        assert_eq!(found[0].status.as_ref().unwrap().0, expected);
    }
}
