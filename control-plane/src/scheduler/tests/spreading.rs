//! Tests of spread constraints beyond the recorded vectors.

use serde_json::json;

use super::fixtures::{cluster, config_map, deployment, leaving, outcome, placed};

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
    let place = |name: &str, region: &str| {
        let mut cluster = cluster(name, 10);
        cluster["spec"]["region"] = json!(region);
        cluster
    };
    let clusters = [
        place("a1", "a"),
        place("a2", "a"),
        place("b1", "b"),
        place("b2", "b"),
    ];
    let spec = deployment(2, &placement);
    assert_eq!(outcome(&spec, &clusters), "a1:2 a2:2");
    let failing = placed(spec, &[("a1", 2), ("a2", 2)]);
    assert_eq!(outcome(&failing, &clusters), "a1:2 a2:2");
    let moved = leaving(failing, "a1", "ApplicationFailure");
    assert_eq!(outcome(&moved, &clusters), "a2:2 b1:2");
}
