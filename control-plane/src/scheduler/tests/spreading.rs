//! Tests of spread constraints beyond the recorded vectors.

use serde_json::{Value, json};

use super::fixtures::{
    cluster, config_map, decide_with, deployment, dynamic, keeping_empty, leaving, outcome, placed,
    text,
};
use crate::scheduler::core::Options;

const ONLY_TWO_ZONES: &str = "failed to select clusters: \
    the clusters that meet the other spread constraints do not meet the one by zone";

#[test]
fn the_values_of_a_label_are_spread_over_as_regions_are() {
    let labelled = |name: &str, rack: Option<&str>| {
        let mut cluster = cluster(name, 10);
        cluster["metadata"]["labels"] = json!({ "rack": rack });
        if rack.is_none() {
            cluster["metadata"]["labels"] = json!({});
        }
        cluster
    };
    let clusters = [
        labelled("m1", Some("a")),
        labelled("m2", Some("a")),
        labelled("m3", Some("b")),
        labelled("m4", None),
    ];
    let spread = |min: usize, max: usize| {
        config_map(&json!({ "spreadConstraints": [
            { "spreadByLabel": "rack", "minGroups": min, "maxGroups": max },
            { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 9 },
        ] }))
    };
    assert_eq!(outcome(&spread(2, 2), &clusters), "m1:0 m2:0 m3:0");
    assert_eq!(outcome(&spread(1, 1), &clusters), "m1:0 m2:0");
    assert_eq!(
        outcome(&spread(3, 3), &clusters),
        "failed to select clusters: the number of feasible label is less than spreadConstraint.MinGroups"
    );
}

#[test]
fn zones_and_providers_are_spread_over_as_regions_are() {
    let place = |name: &str, provider: &str, zones: &[&str]| {
        let mut cluster = cluster(name, 10);
        cluster["spec"] = json!({ "provider": provider, "zones": zones });
        cluster
    };
    let clusters = [
        place("a1", "alpha", &["z1"]),
        place("a2", "alpha", &["z2"]),
        place("b1", "beta", &["z1", "z2"]),
        place("b2", "beta", &["z3"]),
    ];
    let spread = |fields: &[(&str, i64, i64)]| {
        let constraints: Vec<_> = fields
            .iter()
            .map(|(field, min, max)| json!({ "spreadByField": field, "minGroups": min, "maxGroups": max }))
            .collect();
        config_map(&json!({ "spreadConstraints": constraints }))
    };
    for (fields, expected) in [
        (&[("provider", 2, 2), ("cluster", 2, 2)][..], "a1:0 b1:0"),
        (&[("provider", 1, 1), ("cluster", 1, 5)], "a1:0 a2:0"),
        (&[("zone", 3, 3), ("cluster", 3, 3)], "a1:0 a2:0 b2:0"),
        (&[("zone", 2, 2), ("cluster", 1, 5)], "a1:0 a2:0 b1:0"),
        (&[("zone", 1, 1), ("cluster", 1, 5)], "a1:0"),
        (
            &[("zone", 4, 4), ("cluster", 1, 5)],
            "failed to select clusters: the number of feasible zone is less than spreadConstraint.MinGroups",
        ),
        // An upper bound that is not given is none.
        (&[("cluster", 1, 0)], "a1:0 a2:0 b1:0 b2:0"),
        // The best three clusters of two providers lie in two zones only.
        (
            &[("provider", 2, 2), ("zone", 3, 3), ("cluster", 2, 3)],
            "a1:0 b1:0 b2:0",
        ),
        (&[("provider", 2, 2), ("zone", 1, 1)], ONLY_TWO_ZONES),
    ] {
        assert_eq!(outcome(&spread(fields), &clusters), expected, "{fields:?}");
    }
}

#[test]
fn a_lost_copy_is_replaced_in_another_region_where_its_own_has_no_cluster_left() {
    let placement = json!({ "spreadConstraints": [
        { "spreadByField": "region", "minGroups": 1, "maxGroups": 2 },
        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 2 },
    ] });
    let clusters = ["a1", "a2", "b1", "b2"].map(|name| in_region(name, 10));
    let spec = deployment(2, &placement);
    assert_eq!(outcome(&spec, &clusters), "a1:2 a2:2");
    let failing = placed(spec, &[("a1", 2), ("a2", 2)]);
    assert_eq!(outcome(&failing, &clusters), "a1:2 a2:2");
    let moved = leaving(failing, "a1", "ApplicationFailure");
    assert_eq!(outcome(&moved, &clusters), "a2:2 b1:2");
}

/// Returns a cluster of so many cores in the region that its name begins with.
fn in_region(name: &str, cores: i64) -> Value {
    let mut cluster = cluster(name, cores);
    cluster["spec"]["region"] = json!(name[..1]);
    cluster
}

#[test]
fn what_is_placed_stays_in_its_regions_until_it_lacks_room() {
    let constraints = json!([
        { "spreadByField": "region", "minGroups": 1, "maxGroups": 3 },
        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 9 },
    ]);
    let copies = config_map(&json!({ "spreadConstraints": constraints }));
    let mut shares = dynamic();
    shares["spreadConstraints"] = constraints;
    let divided = |replicas, held: &[(&str, i32)]| placed(deployment(replicas, &shares), held);
    // Chosen clusters are reported, those without replicas, too.
    let options = keeping_empty();
    let two = [("a1", 2), ("b1", 2)];
    let larger = placed(copies.clone(), &[("b1", 0), ("b2", 0)]);
    let (all, some) = (divided(4, &two), divided(7, &two));
    let best = divided(6, &[("a1", 4)]);
    for (what, spec, clusters, expected) in [
        ("first the largest region", copies, "a1 b1 b2", "b1:0 b2:0"),
        ("a larger one", larger, "a1 a2 a3 b1 b2", "b1:0 b2:0"),
        ("all replicas are there", all, "a1 b1 c1", "a1:2 b1:2"),
        ("some are missing", some, "a1 b1 c1", "a1:3 b1:3 c1:1"),
        ("missing in the best region", best, "a1 a2 b1", "a1:5 a2:1"),
    ] {
        let clusters = clusters.split(' ').map(|name| in_region(name, 10));
        let decided = decide_with(&spec, &clusters.collect::<Vec<_>>(), &options);
        assert_eq!(text(decided), expected, "{what}");
    }
}

#[test]
fn a_failover_leaves_as_many_copies_as_a_first_choice_would_make() {
    let placement = json!({ "spreadConstraints": [
        { "spreadByField": "region", "minGroups": 1, "maxGroups": 2 },
        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 3 },
    ] });
    // Anew it would go to the three clusters of region b, where two have room for it, or one.
    for (what, left, second) in [
        ("what it has in region a makes that no better", 10, 10),
        ("what it has in region a is no room", 1, 0),
    ] {
        let clusters = [
            in_region("a1", left),
            in_region("a2", left),
            in_region("a3", 10),
            in_region("b1", 10),
            in_region("b2", second),
            in_region("b3", 0),
        ];
        let copies = [("a1", 2), ("a2", 2), ("a3", 2)];
        let failing = placed(deployment(2, &placement), &copies);
        let moved = leaving(failing, "a3", "ApplicationFailure");
        assert_eq!(outcome(&moved, &clusters), "a1:2 a2:2 b1:2", "{what}");
    }
}

#[test]
fn one_cluster_may_be_chosen_for_several_zones() {
    let place = |name: &str, zones: [&str; 2]| {
        let mut cluster = cluster(name, 10);
        cluster["spec"]["zones"] = json!(zones);
        cluster
    };
    // Zones with more clusters come first.
    let clusters = [
        place("m1", ["z1", "z2"]),
        place("m2", ["z3", "z4"]),
        place("m3", ["z3", "z4"]),
    ];
    let spec = config_map(&json!({ "spreadConstraints": [
        { "spreadByField": "zone", "minGroups": 2, "maxGroups": 2 },
        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 },
    ] }));
    assert_eq!(outcome(&spec, &clusters), "m2:0");
}

#[test]
fn a_constraint_by_label_refuses_no_cluster_where_it_is_not_supported() {
    let by_label = json!({ "spreadConstraints": [{ "spreadByLabel": "rack", "minGroups": 1 }] });
    for (options, expected) in [
        (
            Options::default(),
            "0/1 clusters are available: 1 cluster(s) did not have the label to spread by.",
        ),
        (
            Options::karmada(),
            "failed to select clusters: just support cluster and region spread constraint",
        ),
    ] {
        let decided = decide_with(&config_map(&by_label), &[cluster("m", 10)], &options);
        assert_eq!(text(decided), expected);
    }
}
