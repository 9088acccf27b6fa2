//! Policies with more than one condition.

use super::*;

#[test]
fn all_conditions_of_a_policy_have_to_match_and_one_that_ends_ends_the_match() {
    let ready =
        json!({"conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"]});
    let disk =
        json!({"conditionType": "DiskFailed", "operator": "NotIn", "statusValues": ["False"]});
    let taints = json!([{"key": "down", "effect": "NoExecute", "addOnMatchSeconds": 300, "removeOnMismatchSeconds": 180}]);
    let spec = json!({"matchConditions": [ready, disk], "taintsToAdd": taints});
    let mut story = Story::new(vec![spec]);
    story.also("DiskFailed", "True", 0);
    assert_eq!(story.check(900), NONE, "the second alone");
    story.also("DiskFailed", "False", 1_000);
    story.ready("False", 1_000);
    assert_eq!(story.check(1_000), NONE);
    assert_eq!(
        (story.check(2_000), story.again),
        (vec![], None),
        "the first alone"
    );
    story.also("DiskFailed", "Unknown", 2_000);
    assert_eq!(story.check(2_000), NONE);
    assert_eq!(story.again, Some(2_300), "from when both match");
    assert_eq!(story.check(2_299), NONE);
    assert_eq!(story.check(2_300), ["down"]);
    story.also("DiskFailed", "False", 3_000);
    assert_eq!(story.check(3_000), ["down"]);
    assert_eq!(story.again, Some(3_180), "one that ends is enough");
    assert_eq!(story.check(3_180), NONE);
}

#[test]
fn both_lists_of_the_shipped_form_have_to_match_as_a_whole() {
    let when = |type_: &str, status: &str| json!({"conditionType": type_, "operator": "In", "statusValues": [status]});
    let spec = json!({
        "addOnConditions": [when("Ready", "False"), when("DiskFailed", "True")],
        "removeOnConditions": [when("Ready", "True"), when("DiskFailed", "False")],
        "taints": [{"key": "down", "effect": "NoExecute"}],
    });
    for (ready, disk, added, kept) in [
        ("False", "True", true, true),
        ("False", "False", false, true),
        ("True", "True", false, true),
        ("True", "False", false, false),
    ] {
        let mut story = Story::new(vec![spec.clone()]);
        story.ready(ready, 10);
        story.also("DiskFailed", disk, 10);
        assert_eq!(!story.check(20).is_empty(), added, "{ready} {disk}");

        let mut story = Story::new(vec![spec.clone()]);
        story.ready("False", 10);
        story.also("DiskFailed", "True", 10);
        assert_eq!(story.check(20), ["down"]);
        story.ready(ready, 30);
        story.also("DiskFailed", disk, 30);
        assert_eq!(!story.check(30).is_empty(), kept, "{ready} {disk}");
    }
}

#[test]
fn a_taint_that_one_policy_lets_go_of_counts_while_one_of_the_shipped_form_wants_it() {
    let of_disk = json!({
        "addOnConditions": [{"conditionType": "Disk", "operator": "In", "statusValues": ["False"]}],
        "removeOnConditions": [{"conditionType": "Disk", "operator": "In", "statusValues": ["True"]}],
        "taints": [{"key": "down", "effect": "NoExecute"}],
    });
    let mut story = Story::new(vec![proposed("down", 0, 300), of_disk]);
    story.check(0);
    story.ready("Unknown", 10);
    assert_eq!(story.check(10), ["down"]);
    // The disks of the cluster are broken, too, and stay so when the cluster reports again.
    story.also("Disk", "False", 20);
    assert_eq!(story.check(20), ["down"]);
    story.ready("True", 30);
    assert_eq!(story.check(30), ["down"]);
    let record = story.record.as_ref().unwrap();
    let taint = &story.cluster.spec.taints[0];
    assert!(
        !record.is_going(taint),
        "the second policy wants it as much as before, so that workloads have to leave"
    );
    // However long the first one waits, the taint stays.
    assert_eq!(story.check(10_000), ["down"]);
}
