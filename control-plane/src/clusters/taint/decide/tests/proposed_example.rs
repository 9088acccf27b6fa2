//! The ClusterTaintPolicy of the proposal, as it is there.

use serde_json::json;

use super::*;

/// Taints of the cluster, without their times.
fn taints(story: &Story) -> Vec<(&str, &str)> {
    let taints = story.cluster.spec.taints.iter();
    taints
        .map(|taint| (taint.key.as_str(), taint.effect.as_str()))
        .collect()
}

#[test]
fn the_example_taints_what_is_not_ready_for_five_minutes_beside_the_automatic_taint() {
    let detect_cluster_not_ready = json!({
        "targetCluster": { "clusterNames": ["member1", "member2"] },
        "matchConditions": [
            { "conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"] },
        ],
        "taintsToAdd": [{
            "key": "cluster.karmada.io/not-ready",
            "effect": "PreferNoExecute",
            "addOnMatchSeconds": 300,
            "removeOnMismatchSeconds": 180,
        }],
    });
    let mut story = Story::new(vec![detect_cluster_not_ready]);
    story.check(10);
    story.ready("False", 1_000);
    let key = "cluster.karmada.io/not-ready";
    let automatic = json!({ "key": key, "effect": "NoSchedule", "timeAdded": at(1_000) });
    let automatic = serde_json::from_value(automatic).unwrap();
    story.cluster.spec.taints = vec![automatic];
    story.check(1_000);
    story.check(1_299);
    assert_eq!(taints(&story), [(key, "NoSchedule")]);
    story.check(1_300);
    let both = [(key, "NoSchedule"), (key, "PreferNoExecute")];
    assert_eq!(taints(&story), both);
    let added = story.cluster.spec.taints[1].time_added.clone();
    assert_eq!(added, Some(Time(at(1_300))));

    story.ready("True", 2_000);
    // The automatic one goes at once, the policy's after its second window.
    story.cluster.spec.taints.remove(0);
    story.check(2_000);
    story.check(2_179);
    assert_eq!(taints(&story), [(key, "PreferNoExecute")]);
    story.check(2_180);
    assert_eq!(taints(&story), []);

    let other = json!({ "clusterNames": ["member2"] });
    let mut elsewhere = Story::new(vec![json!({
        "targetCluster": other,
        "taintsToAdd": [{ "key": key, "effect": "PreferNoExecute", "addOnMatchSeconds": 1 }],
    })]);
    elsewhere.ready("False", 1_000);
    elsewhere.check(1_000);
    elsewhere.check(2_000);
    assert_eq!(taints(&elsewhere), []);
}
