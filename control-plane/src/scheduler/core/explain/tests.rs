use serde_json::json;

use super::*;
use crate::scheduler::tests::fixtures::{
    cluster, config_map, deployment, dynamic, placed, snapshot, tainted,
};

#[test]
fn each_cluster_is_reported_with_what_it_is_given_and_why() {
    let one = json!({ "spreadConstraints": [
        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 },
    ] });
    let mut overflowing = dynamic();
    overflowing["clusterAffinities"] = json!([{
        "affinityName": "home", "clusterNames": ["m1"],
        "overflowAffinities": [{ "clusterNames": ["m2"] }],
    }]);
    for (what, spec, expected) in [
        (
            "a copy that goes to one of two",
            config_map(&one),
            "\
CLUSTER  FITS  SCORE  CAPACITY  HOLDS  GIVEN  WHY
m1       yes   0      any       -      0
m2       yes   0      any       -      -      not chosen under the spread constraints
",
        ),
        (
            "more replicas than there is room for at home",
            deployment(12, &overflowing),
            "\
CLUSTER  FITS  SCORE  CAPACITY  HOLDS  GIVEN  WHY
m1       yes   0      10        -      10
m2       yes   0      10        -      2      overflow affinity 1
",
        ),
    ] {
        let clusters = snapshot(&[cluster("m1", 10), cluster("m2", 10)]);
        let status = ResourceBindingStatus::default();
        let explained = explain(&spec, &status, &clusters, &Options::default());
        assert_eq!(explained[0].to_string(), expected, "{what}");
    }
}

#[test]
fn no_group_is_reported_after_one_with_a_cluster_that_nobody_knows() {
    let groups = json!({ "clusterAffinities": [
        { "affinityName": "home", "clusterNames": ["m1"] },
        { "affinityName": "away", "clusterNames": ["m2"] },
    ] });
    let spec = placed(config_map(&groups), &[("m1", 0)]);
    let clusters = snapshot(&[cluster("m2", 10)]);
    let status = ResourceBindingStatus::default();
    let explained = explain(&spec, &status, &clusters, &Options::default());
    assert_eq!(explained.len(), 1);
    assert!(matches!(explained[0].failure, Some(FitError::Unknown(_))));
}

#[test]
fn a_cluster_that_admits_no_more_and_gets_more_is_reported_as_such() {
    let keeps = "m1:2 m2:2, keeps what it holds, admits no more: ";
    let gets = "m1:4 m2:2, gets more, as the others do not suffice, although it admits no more: ";
    for (replicas, expected) in [(4, keeps), (6, gets)] {
        let spec = placed(deployment(replicas, &dynamic()), &[("m1", 2)]);
        let clusters = [tainted("m1", 2, "x", "NoSchedule"), cluster("m2", 2)];
        let status = ResourceBindingStatus::default();
        let explained = explain(&spec, &status, &snapshot(&clusters), &Options::default());
        let given = explained[0].clusters.iter().map(|line| match &line.fate {
            Fate::Fits(fit) => format!("{}:{}", line.name, fit.given.unwrap_or_default()),
            _ => line.name.clone(),
        });
        let given = given.collect::<Vec<_>>().join(" ");
        let why = explained[0].clusters[0].fate.why(true);
        let reported = format!("{given}, {why}");
        assert!(reported.starts_with(expected), "{reported}");
    }
}
