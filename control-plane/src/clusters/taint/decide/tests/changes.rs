//! Which taints change beside others, and by whose word.

use super::*;

fn change(by: &str, key: &str, added: bool) -> (String, String, bool) {
    (by.to_owned(), key.to_owned(), added)
}

#[test]
fn each_change_is_reported_with_the_policy_that_wants_it_and_touches_no_other_taint() {
    let mut story = Story::new(vec![proposed("a", 0, 0), proposed("b", 0, 0)]);
    story.by_hand("other");
    story.check(0);
    story.ready("False", 10);
    assert_eq!(story.check(10), ["other", "a", "b"]);
    let added = [change("policy0", "a", true), change("policy1", "b", true)];
    assert_eq!(story.changes, added);
    story.ready("True", 20);
    assert_eq!(story.check(20), ["other"]);
    let removed = [change("policy0", "a", false), change("policy1", "b", false)];
    assert_eq!(story.changes, removed);
}

#[test]
fn a_taint_that_an_edit_takes_out_of_a_policy_goes() {
    let mut story = Story::new(vec![proposed("a", 0, 0)]);
    story.check(0);
    story.ready("False", 10);
    assert_eq!(story.check(10), ["a"]);
    story.policies = vec![policy("policy0", &proposed("b", 0, 0))];
    assert_eq!(story.check(20), ["b"]);
}

#[test]
fn a_taint_gets_the_value_that_an_edit_of_its_policy_gives_it_unless_another_holds_it_too() {
    let valued = |value: &str| {
        let mut spec = proposed("a", 0, 10);
        spec["taintsToAdd"][0]["value"] = json!(value);
        spec
    };
    let mut story = Story::new(vec![valued("one")]);
    let expect = |story: &Story, value: &str, since: i64| {
        let taint = &story.cluster.spec.taints[0];
        assert_eq!(taint.value.as_deref(), Some(value));
        assert_eq!(taint.time_added, Some(Time(at(since))));
    };
    story.check(0);
    story.ready("False", 10);
    story.check(10);
    expect(&story, "one", 10);
    story.policies = vec![policy("policy0", &valued("two"))];
    assert_eq!(story.check(20), ["a"]);
    expect(&story, "two", 20);
    assert_eq!(story.changes, [change("policy0", "a", true)]);
    story.policies.push(policy("policy1", &valued("three")));
    story.check(30);
    let writes = story.writes;
    story.check(31);
    expect(&story, "two", 20);
    assert_eq!(story.writes, writes, "they do not take it from each other");
    // An entry that comes second for the same taint has no say.
    let mut twice = valued("two");
    let second = valued("four")["taintsToAdd"][0].clone();
    twice["taintsToAdd"].as_array_mut().unwrap().push(second);
    story.policies = vec![policy("policy0", &twice)];
    story.check(40);
    story.check(50);
    expect(&story, "two", 20);
}

#[test]
fn a_taint_that_an_edit_makes_impossible_is_not_put_on_and_goes_with_its_conditions() {
    let mut spec = proposed("a", 0, 10);
    let conditions = spec["matchConditions"].as_array_mut().unwrap();
    conditions.push(json!({
        "conditionType": "SeenByPeers", "operator": "In", "statusValues": ["False"],
    }));
    let mut story = Story::new(vec![spec.clone()]);
    story.check(0);
    story.ready("False", 10);
    story.also("SeenByPeers", "False", 10);
    assert_eq!(story.check(10), ["a"]);
    // The word of witnesses is left alone, which is no cause of an eviction.
    spec["matchConditions"].as_array_mut().unwrap().remove(0);
    let mut edited = policy("policy0", &spec);
    edited.metadata.generation = Some(2);
    story.policies = vec![edited];
    assert_eq!(story.check(20), ["a"]);
    story.ready("True", 30);
    story.also("SeenByPeers", "True", 30);
    assert_eq!(story.check(30), ["a"]);
    assert_eq!(story.check(40), NONE);
    story.also("SeenByPeers", "False", 50);
    assert_eq!(story.check(60), NONE);
}

#[test]
fn a_taint_of_the_shipped_form_that_a_person_took_off_comes_back_with_the_next_match() {
    let mut spec = shipped("a");
    // It is never taken off by the policy itself.
    spec["removeOnConditions"][0]["conditionType"] = json!("Other");
    let mut story = Story::new(vec![spec]);
    story.check(0);
    story.ready("False", 10);
    assert_eq!(story.check(10), ["a"]);
    story.cluster.spec.taints.clear();
    assert_eq!(story.check(20), NONE);
    story.ready("True", 30);
    assert_eq!(story.check(30), NONE);
    story.ready("False", 40);
    assert_eq!(story.check(40), ["a"]);
}

#[test]
fn a_taint_that_an_edit_moves_to_the_proposed_form_goes_as_that_says() {
    let mut lasting = shipped("a");
    // It is never taken off by the policy itself.
    lasting["removeOnConditions"] = json!([]);
    let other = || Some(lasting.clone());
    for (what, other, is_read, left) in [
        ("no other policy has it", None, true, &NONE[..]),
        ("another policy has it, too", other(), true, &["a"][..]),
        ("another one cannot be read", other(), false, &["a"]),
    ] {
        let mut story = Story::new([shipped("a")].into_iter().chain(other).collect());
        story.check(0);
        story.ready("False", 10);
        assert_eq!(story.check(10), ["a"], "{what}");
        story.policies[0] = policy("policy0", &proposed("a", 300, 10));
        if !is_read {
            story.policies.truncate(1);
            story.unreadable = vec!["policy1".into()];
        }
        assert_eq!(story.check(20), ["a"], "{what}");
        story.ready("True", 30);
        assert_eq!(story.check(30), ["a"], "{what}");
        assert_eq!(story.check(40), left, "{what}");
    }
}

#[test]
fn one_decision_may_add_a_taint_and_take_off_another() {
    let mut healthy = proposed("b", 0, 0);
    healthy["matchConditions"][0]["statusValues"] = json!(["True"]);
    let mut story = Story::new(vec![proposed("a", 0, 0), healthy]);
    assert_eq!(story.check(0), ["b"]);
    story.ready("False", 10);
    assert_eq!(story.check(10), ["a"]);
    let both = [change("policy0", "a", true), change("policy1", "b", false)];
    assert_eq!(story.changes, both);
}

#[test]
fn a_taint_that_is_added_and_taken_off_in_one_decision_is_no_change() {
    let mut spec = shipped("a");
    spec["removeOnConditions"] = spec["addOnConditions"].clone();
    let mut story = Story::new(vec![spec]);
    story.check(0);
    story.ready("False", 10);
    assert_eq!(story.check(10), NONE);
    assert_eq!(story.changes, []);
}

#[test]
fn a_taint_that_many_policies_hold_fills_no_more_than_the_record() {
    let mut story = Story::new(Vec::new());
    let long = |n: usize| policy(&format!("{n:0>200}"), &proposed("a", 0, 0));
    story.policies = (0..1_000).map(long).collect();
    story.check(0);
    story.ready("False", 10);
    // Each decision begins no more windows than there is room for.
    for now in 10..40 {
        assert_eq!(story.check(now), ["a"]);
    }
    let text = story.record.as_ref().unwrap().write();
    assert!(text.len() <= record::LIMIT, "{} bytes", text.len());
    assert!(!story.left_out.is_empty());
}
