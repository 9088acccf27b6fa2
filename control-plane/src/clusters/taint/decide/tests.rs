use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::at;

mod changes;
mod proposed_example;
mod several_conditions;

/// A cluster and its policies through time, each decision with the memory of the last.
struct Story {
    cluster: Cluster,
    policies: Vec<ClusterTaintPolicy>,
    record: Option<Record>,
    fresh: bool,
    again: Option<i64>,
    /// The policies that are there and cannot be read.
    unreadable: Vec<String>,
    /// Writes so far.
    writes: usize,
    left_out: Vec<String>,
    /// What the last decision changed: policy, key, and whether the taint was added.
    changes: Vec<(String, String, bool)>,
    /// Keys of taints that the API refuses.
    refused: Vec<String>,
}

impl Story {
    fn new(policies: Vec<Value>) -> Self {
        let cluster = json!({
            "metadata": {"name": "member1", "creationTimestamp": at(0)},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": []},
        });
        let policies = policies
            .into_iter()
            .enumerate()
            .map(|(n, spec)| policy(&format!("policy{n}"), &spec))
            .collect();
        let mut story = Self {
            cluster: serde_json::from_value(cluster).unwrap(),
            policies,
            record: None,
            fresh: true,
            again: None,
            unreadable: Vec::new(),
            writes: 0,
            left_out: Vec::new(),
            changes: Vec::new(),
            refused: Vec::new(),
        };
        story.ready("True", 0);
        story
    }

    fn ready(&mut self, status: &str, since: i64) {
        self.also("Ready", status, since);
    }

    /// Sets another condition than Ready, or changes it.
    fn also(&mut self, type_: &str, status: &str, since: i64) {
        let conditions = &mut self.cluster.status.as_mut().unwrap().conditions;
        conditions.retain(|condition| condition.type_ != type_);
        conditions.push(Condition {
            type_: type_.into(),
            status: status.into(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: Time(at(since)),
            observed_generation: None,
        });
    }

    /// Decides about the cluster while it is well, and when it has failed.
    fn fail(&mut self) {
        self.check(10);
        self.ready("False", 100);
        self.check(100);
    }

    fn by_hand(&mut self, key: &str) {
        self.cluster.spec.taints.push(Taint {
            key: key.into(),
            effect: "NoExecute".into(),
            value: None,
            time_added: None,
        });
    }

    fn restart(&mut self) {
        self.fresh = true;
    }

    /// Decides about the cluster, writes what is decided, and returns the keys of its taints.
    fn check(&mut self, now: i64) -> Vec<String> {
        let policies: Vec<&ClusterTaintPolicy> = self.policies.iter().collect();
        let selects = |affinity: &ClusterAffinity| {
            affinity.cluster_names.is_empty()
                || affinity.cluster_names.contains(&"member1".to_owned())
        };
        let scene = Scene {
            cluster: &self.cluster,
            record: self.record.clone(),
            policies: &policies,
            selects: &selects,
            is_gone: &|policy| !self.unreadable.contains(&policy.to_owned()),
            lacks_some: !self.unreadable.is_empty(),
            is_refused: &|taint| self.refused.contains(&taint.key),
            is_first: self.fresh,
            reserves: true,
        };
        let outcome = decide(&scene, at(now));
        self.again = outcome.again.map(Timestamp::as_second);
        self.writes += usize::from(outcome.taints.is_some() || outcome.record.is_some());
        self.left_out = outcome.left_out.into_iter().collect();
        let changes = outcome.changes.into_iter();
        self.changes = changes.map(|(by, it, added)| (by, it.key, added)).collect();
        if let Some(taints) = outcome.taints {
            self.cluster.spec.taints = taints;
        }
        if let Some(record) = outcome.record {
            self.record = Record::read(Some(&record.write()));
        }
        self.fresh = false;
        self.cluster
            .spec
            .taints
            .iter()
            .map(|t| t.key.clone())
            .collect()
    }
}

fn policy(name: &str, spec: &Value) -> ClusterTaintPolicy {
    serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": at(0), "generation": 1}, "spec": spec})).unwrap()
}

fn proposed(key: &str, add: i32, remove: i32) -> Value {
    json!({
        "matchConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"]}],
        "taintsToAdd": [{"key": key, "effect": "NoExecute", "addOnMatchSeconds": add, "removeOnMismatchSeconds": remove}],
    })
}

fn shipped(key: &str) -> Value {
    json!({
        "addOnConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"]}],
        "removeOnConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}],
        "taints": [{"key": key, "effect": "NoExecute"}],
    })
}

const NONE: [&str; 0] = [];

#[test]
fn a_taint_comes_after_its_first_window_and_goes_after_its_second() {
    let mut story = Story::new(vec![proposed("down", 300, 180)]);
    assert_eq!(story.check(10), NONE);
    story.ready("False", 1_000);
    assert_eq!(story.check(1_000), NONE);
    assert_eq!(story.again, Some(1_300));
    story.ready("Unknown", 1_100);
    assert_eq!(story.check(1_100), NONE);
    assert_eq!(
        story.again,
        Some(1_300),
        "False and Unknown both match: no break"
    );
    assert_eq!(story.check(1_299), NONE);
    assert_eq!(story.check(1_300), ["down"]);
    assert_eq!(
        story.cluster.spec.taints[0].time_added,
        Some(Time(at(1_300)))
    );

    story.ready("True", 2_000);
    assert_eq!(story.check(2_000), ["down"]);
    assert_eq!(story.again, Some(2_180));
    story.ready("False", 2_100);
    assert_eq!(story.check(2_100), ["down"], "still held");
    assert_eq!(story.again, None);
    story.ready("True", 2_110);
    assert_eq!(story.check(2_110), ["down"]);
    assert_eq!(story.again, Some(2_290), "the second window begins anew");
    assert_eq!(story.check(2_290), NONE);
}

#[test]
fn windows_survive_a_restart() {
    let mut story = Story::new(vec![proposed("down", 300, 180)]);
    story.ready("False", 1_000);
    story.check(1_000);
    story.ready("Unknown", 1_100);
    story.check(1_100);
    story.restart();
    assert_eq!(story.check(1_200), NONE);
    assert_eq!(story.again, Some(1_300));

    let mut flapped = Story::new(vec![proposed("down", 300, 180)]);
    flapped.ready("False", 1_000);
    flapped.check(1_000);
    flapped.restart();
    flapped.ready("False", 1_150);
    flapped.check(1_200);
    assert_eq!(
        flapped.again,
        Some(1_500),
        "it may have been True while nobody looked"
    );
}

#[test]
fn a_condition_that_a_cluster_does_not_have_matches_nothing_and_writes_nothing() {
    for operator in ["In", "NotIn"] {
        let mut spec = proposed("down", 300, 180);
        spec["matchConditions"] = json!([
            {"conditionType": "Redy", "operator": operator, "statusValues": ["False"]},
        ]);
        let mut story = Story::new(vec![spec, proposed("other", 300, 180)]);
        // Before the first report it has none at all.
        story.cluster.status = None;
        for now in [10, 11, 12] {
            assert_eq!(story.check(now), NONE);
        }
        story.cluster.status = Some(muster_shared::api::cluster::ClusterStatus::default());
        story.ready("False", 20);
        for now in [20, 21, 319] {
            assert_eq!(story.check(now), NONE);
        }
        assert_eq!(story.writes, 2, "an empty record, and the other's window");
        assert_eq!(story.check(320), ["other"]);
    }
}

#[test]
fn a_policy_that_has_waited_for_nothing_leaves_no_trace() {
    let mut story = Story::new(vec![proposed("down", 10, 10), proposed("never", 10, 10)]);
    story.fail();
    story.check(110);
    story.ready("True", 200);
    story.check(200);
    assert_eq!(story.check(210), NONE);
    assert_eq!(story.record, Some(Record::default()));
    let writes = story.writes;
    story.check(211);
    assert_eq!(story.writes, writes);
}

#[test]
fn a_condition_that_disappears_is_a_mismatch_that_counts_from_when_it_is_seen() {
    let mut story = Story::new(vec![proposed("down", 10, 10)]);
    story.ready("False", 100);
    story.check(100);
    assert_eq!(story.check(110), ["down"]);
    story.cluster.status.as_mut().unwrap().conditions.clear();
    assert_eq!(story.check(120), ["down"]);
    assert_eq!(story.check(125), ["down"]);
    assert_eq!(story.again, Some(130));
    assert_eq!(story.check(130), NONE);
}

#[test]
fn a_policy_that_cannot_be_read_keeps_its_taints_and_its_windows() {
    let mut story = Story::new(vec![proposed("down", 10, 10), proposed("soon", 100, 10)]);
    story.ready("False", 100);
    story.check(100);
    assert_eq!(story.check(110), ["down"]);
    let policies = std::mem::take(&mut story.policies);
    story.unreadable = vec!["policy0".into(), "policy1".into()];
    story.restart();
    assert_eq!(story.check(150), ["down"]);
    story.policies = policies;
    story.unreadable.clear();
    assert_eq!(story.check(199), ["down"]);
    assert_eq!(story.again, Some(200), "its window went on");
    story.policies.clear();
    assert_eq!(story.check(201), NONE, "these are gone");
}

#[test]
fn of_policies_with_the_same_creation_time_the_later_name_has_the_last_word() {
    let adds = shipped("down");
    let mut removes = shipped("down");
    removes["addOnConditions"] = json!([]);
    removes["removeOnConditions"] = adds["addOnConditions"].clone();
    for (first, second, expected) in [
        (&adds, &removes, &NONE[..]),
        (&removes, &adds, &["down"][..]),
    ] {
        for turned in [false, true] {
            let mut story = Story::new(vec![first.clone(), second.clone()]);
            if turned {
                story.policies.reverse();
            }
            story.ready("False", 100);
            assert_eq!(story.check(100), expected);
        }
    }
}

#[test]
fn the_record_stays_small_enough_to_be_written_and_the_oldest_policies_are_followed() {
    let many: Vec<Value> = (0..2_000)
        .map(|n| proposed(&format!("example.com/key-{n}"), 10, 10))
        .collect();
    let mut story = Story::new(many);
    for (n, policy) in story.policies.iter_mut().enumerate() {
        let second = i64::try_from(n).unwrap();
        policy.metadata.creation_timestamp = Some(Time(at(second)));
    }
    story.ready("False", 5_000);
    let mut writes = 0;
    for now in (5_000..).step_by(10) {
        story.check(now);
        if std::mem::replace(&mut writes, story.writes) == story.writes {
            break;
        }
    }
    let taints: HashSet<String> = story.check(9_999).into_iter().collect();
    assert_eq!(
        story.writes, writes,
        "what is left out is not tried by writing"
    );
    assert!((200..2_000).contains(&taints.len()), "{}", taints.len());
    assert!(taints.contains("example.com/key-0"));
    assert!(story.left_out.contains(&"policy1999".to_owned()));
    assert!(!story.left_out.contains(&"policy0".to_owned()));
    let text = story.record.as_ref().unwrap().write();
    assert!(text.len() <= record::LIMIT, "{} bytes", text.len());
}

#[test]
fn the_record_of_very_many_taints_stays_small_enough_when_a_person_takes_them_all_off() {
    let mut spec = shipped("k");
    let taint = |n: i32| json!({"key": format!("k{n}"), "effect": "NoExecute"});
    spec["taints"] = (0..2_000).map(taint).collect();
    let mut story = Story::new(vec![spec]);
    story.ready("False", 10);
    let size = |story: &Story| story.record.as_ref().unwrap().write().len();
    let put_on = story.check(10).len();
    assert!((500..2_000).contains(&put_on), "{put_on}");
    assert!(size(&story) <= record::LIMIT, "{} bytes", size(&story));
    assert_eq!(story.check(20).len(), put_on, "there is room for no more");
    story.cluster.spec.taints.clear();
    assert_eq!(story.check(30), NONE);
    assert!(size(&story) <= record::LIMIT, "{} bytes", size(&story));
}

#[test]
fn a_taint_that_a_person_set_is_never_taken_away() {
    for spec in [proposed("down", 1, 1), shipped("down")] {
        let mut story = Story::new(vec![spec]);
        story.check(10);
        story.by_hand("down");
        assert_eq!(story.check(20), ["down"]);
        story.ready("False", 100);
        story.check(100);
        assert_eq!(story.check(200), ["down"]);
        story.ready("True", 300);
        story.check(300);
        assert_eq!(story.check(400), ["down"]);
    }
}

#[test]
fn a_taint_that_a_person_took_off_stays_off_until_the_match_is_over() {
    for spec in [proposed("down", 1, 1), shipped("down")] {
        let mut story = Story::new(vec![spec]);
        story.by_hand("other");
        story.fail();
        assert_eq!(story.check(101), ["other", "down"]);
        story.cluster.spec.taints.truncate(1);
        assert_eq!(story.check(110), ["other"]);
        assert_eq!(story.check(500), ["other"]);
        story.ready("True", 600);
        story.check(600);
        story.check(601);
        story.ready("False", 700);
        story.check(700);
        assert_eq!(story.check(701), ["other", "down"]);
    }
}

#[test]
fn a_taint_of_two_policies_goes_when_the_last_lets_go() {
    let mut story = Story::new(vec![proposed("down", 10, 10), proposed("down", 20, 100)]);
    story.fail();
    assert_eq!(story.check(110), ["down"]);
    assert_eq!(story.again, Some(120));
    story.check(120);
    story.ready("True", 200);
    story.check(200);
    assert_eq!(story.check(210), ["down"]);
    assert_eq!(story.check(299), ["down"]);
    assert_eq!(story.check(300), NONE);
}

#[test]
fn a_policy_that_is_deleted_or_selects_others_lets_go_at_once() {
    for retarget in [false, true] {
        let mut story = Story::new(vec![proposed("down", 1, 1_000)]);
        story.fail();
        assert_eq!(story.check(101), ["down"]);
        if retarget {
            story.policies[0].spec.target_cluster = Some(ClusterAffinity {
                cluster_names: vec!["other".into()],
                ..ClusterAffinity::default()
            });
        } else {
            story.policies.clear();
        }
        assert_eq!(story.check(102), NONE);
        let lets_go = ("policy0".to_owned(), "down".to_owned(), false);
        assert_eq!(story.changes, [lets_go], "{retarget}");
        assert_eq!(story.record.as_ref().unwrap(), &Record::default());
    }
}

#[test]
fn taints_of_the_shipped_form_outlive_their_policy() {
    let mut story = Story::new(vec![shipped("down")]);
    story.check(10);
    story.ready("False", 100);
    assert_eq!(story.check(100), ["down"]);
    story.policies.clear();
    assert_eq!(story.check(200), ["down"]);
}

#[test]
fn taints_that_karmada_left_behind_are_adopted_once() {
    let mut story = Story::new(vec![shipped("down")]);
    story.by_hand("down");
    story.ready("False", 5);
    assert_eq!(story.check(10), ["down"]);
    story.ready("True", 20);
    assert_eq!(story.check(20), NONE);
    story.by_hand("down");
    assert_eq!(
        story.check(30),
        ["down"],
        "from now on a record tells whose it is"
    );
}

#[test]
fn one_invalid_policy_or_taint_does_not_stop_the_others() {
    let mut both = proposed("both", 1, 1);
    both["targetCluster"] = json!({});
    both["targetClusters"] = json!({});
    let mut wrong_effect = shipped("never");
    wrong_effect["taints"] =
        json!([{"key": "never", "effect": "Sometimes"}, {"key": "odd", "effect": "NoSchedule"}]);
    let mut story = Story::new(vec![both, wrong_effect, shipped("down")]);
    story.fail();
    assert_eq!(story.check(200), ["odd", "down"]);
}

#[test]
fn a_taint_that_the_api_refuses_is_left_out_until_it_takes_it() {
    let mut story = Story::new(vec![
        proposed("soft", 1, 1),
        shipped("odd"),
        shipped("down"),
    ]);
    story.refused = vec!["soft".into(), "odd".into()];
    story.fail();
    assert_eq!(story.check(101), ["down"]);
    let writes = story.writes;
    assert_eq!(story.check(150), ["down"]);
    assert_eq!(
        story.writes, writes,
        "what is left out is not written about"
    );
    story.refused.clear();
    assert_eq!(story.check(200), ["down", "soft", "odd"]);
    // One that is there is kept and taken off as ever.
    story.refused = vec!["soft".into(), "odd".into()];
    assert_eq!(story.check(210), ["down", "soft", "odd"]);
    story.ready("True", 300);
    story.check(300);
    assert_eq!(story.check(301), NONE);
}

#[test]
fn an_empty_list_of_the_proposed_form_always_matches() {
    let mut story = Story::new(vec![
        json!({"taintsToAdd": [{"key": "drain", "effect": "PreferNoExecute", "addOnMatchSeconds": 60}]}),
    ]);
    assert_eq!(story.check(10), NONE);
    assert_eq!(story.check(69), NONE);
    assert_eq!(story.check(70), ["drain"]);
}

#[test]
fn policies_that_are_not_followed_are_reported_of_when_there_are_more_or_fewer() {
    for (left_out, reported, expected) in [
        (&[][..], None, false),
        (&[], Some(0), false),
        (&[], Some(1), false),
        (&["a"], None, true),
        (&["a"], Some(0), true),
        (&["a"], Some(1), false),
        (&["a", "b"], Some(1), true),
        (&["a"], Some(2), true),
    ] {
        let outcome = Outcome {
            left_out: left_out.iter().map(|it| (*it).to_owned()).collect(),
            ..Outcome::default()
        };
        let is_new = outcome.leaves_out_others(reported);
        assert_eq!(is_new, expected, "{left_out:?} {reported:?}");
    }
}
