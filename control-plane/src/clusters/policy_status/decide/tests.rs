use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::at;

/// Returns settings by which policies are followed.
fn followed() -> Settings {
    Settings {
        preview_cluster_taint_policies: true,
        ..Settings::default()
    }
}

fn cluster(name: &str, ready: &str, taints: &Value, record: &Value) -> Cluster {
    let conditions = match ready {
        "" => json!([]),
        ready => json!([{
            "type": "Ready", "status": ready, "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]),
    };
    let annotation = record.to_string();
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": { "tier": name },
            "annotations": { (crate::clusters::taint::record::ANNOTATION): annotation },
        },
        "spec": { "syncMode": "Pull", "taints": taints },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

fn policy(spec: &Value) -> ClusterTaintPolicy {
    serde_json::from_value(json!({ "metadata": { "name": "p", "generation": 3 }, "spec": spec }))
        .unwrap()
}

fn judged(policy: &ClusterTaintPolicy, clusters: &[Cluster]) -> ClusterTaintPolicyStatus {
    let clusters: Vec<Sight<'_>> = clusters.iter().map(Sight::of).collect();
    status(policy, &clusters, &followed(), at(100))
}

fn when(kind: &str) -> Value {
    json!([{ "conditionType": kind, "operator": "NotIn", "statusValues": ["True"] }])
}

fn down() -> Value {
    json!([{ "key": "down", "effect": "NoExecute" }])
}

/// Returns the spec of a policy that taints clusters in which this condition is not true.
fn wanted(kind: &str) -> Value {
    json!({ "matchConditions": when(kind), "taintsToAdd": down() })
}

#[test]
fn a_policy_says_what_it_selects_what_matches_and_what_it_has_tainted() {
    let record = |more: Value| {
        let mut taint = json!({ "key": "down", "effect": "NoExecute" });
        json_patch::merge(&mut taint, &more);
        json!({ "taints": [taint] })
    };
    let held = record(json!({ "heldBy": ["p"] }));
    let of_others = record(json!({ "heldBy": ["other"] }));
    let shipped = record(json!({ "shipped": true }));
    let withdrawn = record(json!({ "heldBy": ["p"], "withdrawn": "2026-01-01T00:00:00Z" }));
    let proposed = wanted("Ready");
    let released = json!({ "addOnConditions": when("Ready"), "taints": down() });
    let mut narrow = wanted("Ready");
    narrow["targetCluster"] = json!({ "clusterNames": ["b"] });
    let (well, lost) = ("True", "Unknown");
    let nothing = json!({});
    for (what, spec, ready, has_it, record, counts) in [
        ("well", &proposed, well, false, &nothing, [2, 0, 0]),
        ("delayed", &proposed, lost, false, &nothing, [2, 1, 0]),
        ("tainted", &proposed, lost, true, &held, [2, 1, 1]),
        ("by hand", &proposed, lost, true, &nothing, [2, 1, 0]),
        ("by another", &proposed, well, true, &of_others, [2, 0, 0]),
        ("taken off", &proposed, lost, false, &withdrawn, [2, 1, 0]),
        ("put back", &proposed, lost, true, &withdrawn, [2, 1, 0]),
        ("released form", &released, lost, true, &shipped, [2, 1, 1]),
        // No longer selected, still held.
        ("kept", &narrow, lost, true, &held, [1, 0, 1]),
    ] {
        let none = json!([]);
        let taints = if has_it { down() } else { none.clone() };
        let clusters = [
            cluster("a", ready, &taints, record),
            cluster("b", well, &none, &nothing),
        ];
        let status = judged(&policy(spec), &clusters);
        let found = [status.selected, status.matching, status.tainted];
        let condition = &status.conditions[0];
        let reason = match counts {
            [_, 0, 0] => "NoClusterMatches",
            [.., 0] => "Matching",
            _ => "Tainting",
        };
        assert_eq!((found, &*condition.reason), (counts, reason), "{what}");
        assert_eq!(condition.status, "True", "{what}");
        let generations = (status.observed_generation, condition.observed_generation);
        assert_eq!(generations, (Some(3), Some(3)));
    }
}

#[test]
fn a_policy_without_effect_says_which_part_of_it_is_wrong() {
    let clusters = [cluster("a", "True", &json!([]), &json!({}))];
    let young = [cluster("a", "", &json!([]), &json!({}))];
    let nobody = json!({ "clusterNames": ["nobody"] });
    for (what, spec, clusters, reason, part) in [
        (
            "a typo",
            wanted("Redy"),
            &clusters[..],
            "UnknownCondition",
            "\"Redy\"",
        ),
        (
            "a typo of what removes",
            json!({ "addOnConditions": when("Ready"), "removeOnConditions": when("ready"), "taints": down() }),
            &clusters,
            "UnknownCondition",
            "The clusters have Ready",
        ),
        (
            "no condition reported yet",
            wanted("Redy"),
            &young,
            "NoClusterMatches",
            "none of the 1",
        ),
        (
            "a condition of trouble",
            wanted("UniqueIdentity"),
            &clusters,
            "NoClusterMatches",
            "none of the 1",
        ),
        (
            "no such cluster",
            json!({ "targetClusters": nobody, "matchConditions": when("Ready"), "taintsToAdd": down() }),
            &clusters,
            "NoClusterSelected",
            "spec.targetClusters selects none of the 1",
        ),
        (
            "no cluster at all",
            wanted("Ready"),
            &[],
            "NoClusterSelected",
            "the fleet has no cluster",
        ),
        (
            "no conditions",
            json!({ "taints": down() }),
            &clusters,
            "NoConditions",
            "addOnConditions",
        ),
        (
            "two targets",
            json!({ "targetClusters": nobody, "targetCluster": nobody, "taints": down() }),
            &clusters,
            "Invalid",
            "two names for the same thing",
        ),
    ] {
        let status = judged(&policy(&spec), clusters);
        let condition = &status.conditions[0];
        assert_eq!(condition.reason, reason, "{what}");
        assert!(
            condition.message.contains(part),
            "{what}: {}",
            condition.message
        );
        let acts = reason == "NoClusterMatches";
        let is_wrong = ["NoConditions", "Invalid"].contains(&reason);
        let holds = |kind: &str| conditions::is_true(&status.conditions, kind);
        assert_eq!(holds("Ready"), !is_wrong, "{what}");
        assert_eq!(holds("Effective"), acts, "{what}");
    }
}

#[test]
fn a_status_that_is_written_is_not_written_again_and_its_times_are_those_of_the_changes() {
    let clusters = [cluster("a", "True", &json!([]), &json!({}))];
    let sights: Vec<Sight<'_>> = clusters.iter().map(Sight::of).collect();
    let mut policy = policy(&wanted("Redy"));
    let first = status(&policy, &sights, &followed(), at(100));
    assert_eq!(first.unknown_conditions[0].since, Some(Time(at(100))));
    policy.status = Some(first.clone());
    assert_eq!(status(&policy, &sights, &followed(), at(200)), first);
    policy.spec.match_conditions[0].condition_type = "Ready".to_owned();
    policy.metadata.generation = Some(4);
    let mended = status(&policy, &sights, &followed(), at(300));
    assert!(mended.unknown_conditions.is_empty());
    assert!(conditions::is_true(&mended.conditions, "Effective"));
    assert_eq!(mended.conditions[1].last_transition_time, Time(at(300)));
    policy.status = Some(mended);
    policy.spec.match_conditions[0].condition_type = "Redy".to_owned();
    let again = status(&policy, &sights, &followed(), at(400));
    assert_eq!(again.unknown_conditions[0].since, Some(Time(at(400))));
}

#[test]
fn with_failover_or_its_controller_off_a_policy_says_that_it_is_not_followed() {
    let clusters = [cluster("a", "False", &json!([]), &json!({}))];
    let sights: Vec<Sight<'_>> = clusters.iter().map(Sight::of).collect();
    let gate = "--feature-gates=Failover=true";
    let without = "--controllers=*,-clustertaintpolicy";
    let odd = json!([{"key": "a", "effect": "Never"}]);
    for (flags, taints, reason, is_ready) in [
        (&[][..], down(), "FailoverOff", true),
        (&[], odd.clone(), "Invalid", false),
        (&[without], down(), "ControllerOff", true),
        (&[gate, without], down(), "ControllerOff", true),
        (&[gate, without], odd, "Invalid", false),
    ] {
        let flags: Vec<String> = flags.iter().map(|it: &&str| (*it).to_owned()).collect();
        let settings = Settings::of_flags(&flags).unwrap();
        let policy = policy(&json!({ "matchConditions": when("Ready"), "taintsToAdd": taints }));
        let status = status(&policy, &sights, &settings, at(100));
        let holds = |kind: &str| conditions::is_true(&status.conditions, kind);
        assert_eq!(status.conditions[0].reason, reason);
        assert_eq!((holds("Ready"), holds("Effective")), (is_ready, false));
    }
}

#[test]
fn a_status_is_bounded_whatever_policies_and_clusters_say() {
    let long = "é".repeat(100_000);
    let conditions: Vec<Value> = (0..1_000)
        .map(|number| json!({
            "conditionType": format!("{number}{long}"), "operator": "In", "statusValues": ["True"],
        }))
        .collect();
    let odd: Vec<Value> = (0..1_000)
        .map(|_| json!({ "key": long, "effect": long }))
        .collect();
    let clusters: Vec<Cluster> = (0..100)
        .map(|number| cluster(&format!("m{number}"), "False", &json!([]), &json!({})))
        .collect();
    for spec in [
        json!({ "matchConditions": conditions, "taintsToAdd": down() }),
        json!({ "matchConditions": when("Ready"), "taintsToAdd": odd }),
        wanted("Ready"),
    ] {
        let status = judged(&policy(&spec), &clusters);
        let size = json!(status).to_string().len();
        assert!(size < 4_096, "{size}");
    }
}
