use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A cluster and its policies through time, each look with the memory of the last.
struct Story {
    cluster: Cluster,
    policies: Vec<ClusterTaintPolicy>,
    record: Option<Record>,
    fresh: bool,
    again: Option<i64>,
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
        };
        story.ready("True", 0);
        story
    }

    fn ready(&mut self, status: &str, since: i64) {
        let conditions = &mut self.cluster.status.as_mut().unwrap().conditions;
        *conditions = vec![Condition {
            type_: "Ready".into(),
            status: status.into(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: Time(at(since)),
            observed_generation: None,
        }];
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

    /// Looks at the cluster, writes what is decided, and returns the keys of its taints.
    fn look(&mut self, now: i64) -> Vec<String> {
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
            first_look: self.fresh,
        };
        let outcome = decide(&scene, at(now));
        self.again = outcome.again.map(Timestamp::as_second);
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
    assert_eq!(story.look(10), NONE);
    story.ready("False", 1_000);
    assert_eq!(story.look(1_000), NONE);
    assert_eq!(story.again, Some(1_300));
    story.ready("Unknown", 1_100);
    assert_eq!(story.look(1_100), NONE);
    assert_eq!(
        story.again,
        Some(1_300),
        "False and Unknown both match: no break"
    );
    assert_eq!(story.look(1_299), NONE);
    assert_eq!(story.look(1_300), ["down"]);
    assert_eq!(
        story.cluster.spec.taints[0].time_added,
        Some(Time(at(1_300)))
    );

    story.ready("True", 2_000);
    assert_eq!(story.look(2_000), ["down"]);
    assert_eq!(story.again, Some(2_180));
    story.ready("False", 2_100);
    assert_eq!(story.look(2_100), ["down"], "still held");
    assert_eq!(story.again, None);
    story.ready("True", 2_110);
    assert_eq!(story.look(2_110), ["down"]);
    assert_eq!(story.again, Some(2_290), "the second window begins anew");
    assert_eq!(story.look(2_290), NONE);
}

#[test]
fn a_match_that_breaks_off_does_not_count() {
    let mut story = Story::new(vec![proposed("down", 300, 180)]);
    story.ready("False", 1_000);
    story.look(1_000);
    story.ready("True", 1_200);
    story.look(1_200);
    story.ready("False", 1_250);
    assert_eq!(story.look(1_250), NONE);
    assert_eq!(story.look(1_300), NONE);
    assert_eq!(story.look(1_549), NONE);
    assert_eq!(story.look(1_550), ["down"]);
}

#[test]
fn windows_survive_a_restart() {
    let mut story = Story::new(vec![proposed("down", 300, 180)]);
    story.ready("False", 1_000);
    story.look(1_000);
    story.ready("Unknown", 1_100);
    story.look(1_100);
    story.restart();
    assert_eq!(story.look(1_200), NONE);
    assert_eq!(story.again, Some(1_300));

    let mut flapped = Story::new(vec![proposed("down", 300, 180)]);
    flapped.ready("False", 1_000);
    flapped.look(1_000);
    flapped.restart();
    flapped.ready("False", 1_150);
    flapped.look(1_200);
    assert_eq!(
        flapped.again,
        Some(1_450),
        "it may have been True while nobody looked"
    );
}

#[test]
fn a_failure_during_our_absence_counts_from_when_it_happened() {
    let mut story = Story::new(vec![proposed("down", 300, 180)]);
    story.look(10);
    story.restart();
    story.ready("Unknown", 500);
    assert_eq!(story.look(900), ["down"]);
}

#[test]
fn a_taint_that_a_person_set_is_never_taken_away() {
    for spec in [proposed("down", 1, 1), shipped("down")] {
        let mut story = Story::new(vec![spec]);
        story.look(10);
        story.by_hand("down");
        assert_eq!(story.look(20), ["down"]);
        story.ready("False", 100);
        story.look(100);
        assert_eq!(story.look(200), ["down"]);
        story.ready("True", 300);
        story.look(300);
        assert_eq!(story.look(400), ["down"]);
    }
}

#[test]
fn a_taint_that_a_person_took_off_stays_off_until_the_match_is_over() {
    for spec in [proposed("down", 1, 1), shipped("down")] {
        let mut story = Story::new(vec![spec]);
        story.look(10);
        story.ready("False", 100);
        story.look(100);
        assert_eq!(story.look(101), ["down"]);
        story.cluster.spec.taints.clear();
        assert_eq!(story.look(110), NONE);
        assert_eq!(story.look(500), NONE);
        story.ready("True", 600);
        story.look(600);
        story.look(601);
        story.ready("False", 700);
        story.look(700);
        assert_eq!(story.look(701), ["down"]);
    }
}

#[test]
fn a_taint_of_two_policies_goes_when_the_last_lets_go() {
    let mut story = Story::new(vec![proposed("down", 10, 10), proposed("down", 20, 100)]);
    story.look(10);
    story.ready("False", 100);
    story.look(100);
    assert_eq!(story.look(110), ["down"]);
    assert_eq!(story.again, Some(120));
    story.look(120);
    story.ready("True", 200);
    story.look(200);
    assert_eq!(story.look(210), ["down"]);
    assert_eq!(story.look(299), ["down"]);
    assert_eq!(story.look(300), NONE);
}

#[test]
fn a_policy_that_is_deleted_or_looks_elsewhere_lets_go_at_once() {
    for retarget in [false, true] {
        let mut story = Story::new(vec![proposed("down", 1, 1_000)]);
        story.look(10);
        story.ready("False", 100);
        story.look(100);
        assert_eq!(story.look(101), ["down"]);
        if retarget {
            story.policies[0].spec.target_cluster = Some(ClusterAffinity {
                cluster_names: vec!["other".into()],
                ..ClusterAffinity::default()
            });
        } else {
            story.policies.clear();
        }
        assert_eq!(story.look(102), NONE);
        assert_eq!(story.record.as_ref().unwrap(), &Record::default());
    }
}

#[test]
fn taints_of_the_shipped_form_outlive_their_policy() {
    let mut story = Story::new(vec![shipped("down")]);
    story.look(10);
    story.ready("False", 100);
    assert_eq!(story.look(100), ["down"]);
    story.policies.clear();
    assert_eq!(story.look(200), ["down"]);
}

#[test]
fn taints_that_karmada_left_behind_are_adopted_once() {
    let mut story = Story::new(vec![shipped("down")]);
    story.by_hand("down");
    story.ready("False", 5);
    assert_eq!(story.look(10), ["down"]);
    story.ready("True", 20);
    assert_eq!(story.look(20), NONE);
    story.by_hand("down");
    assert_eq!(
        story.look(30),
        ["down"],
        "from now on a record tells whose it is"
    );
}

#[test]
fn one_invalid_policy_or_taint_does_not_stop_the_others() {
    let mut both = proposed("down", 1, 1);
    both["targetCluster"] = json!({});
    both["targetClusters"] = json!({});
    let mut wrong_effect = shipped("never");
    wrong_effect["taints"] =
        json!([{"key": "never", "effect": "Sometimes"}, {"key": "odd", "effect": "NoSchedule"}]);
    let mut story = Story::new(vec![both, wrong_effect, shipped("down")]);
    story.look(10);
    story.ready("False", 100);
    story.look(100);
    assert_eq!(story.look(200), ["odd", "down"]);
}

#[test]
fn an_empty_list_of_the_proposed_form_always_matches() {
    let mut story = Story::new(vec![
        json!({"taintsToAdd": [{"key": "drain", "effect": "PreferNoExecute", "addOnMatchSeconds": 60}]}),
    ]);
    assert_eq!(story.look(10), NONE);
    assert_eq!(story.look(60), ["drain"]);
}
