use serde_json::{Value, json};

use super::*;

fn asking(requests: &[(&str, i64)]) -> Demand {
    let requests = requests.iter();
    requests
        .map(|(name, amount)| ((*name).into(), *amount))
        .collect()
}

/// Returns a cluster with so many cores and pod slots free.
fn sums(cores: i64, pods: i64) -> Capacity {
    reported(&json!({}), cores, pods, &json!([]))
}

/// Returns a cluster with so many cores free, and with nodes of which each has at least `least` of
/// the cores.
fn nodes(least: i64, count: i64, cores: i64) -> Capacity {
    let range = json!([{ "name": "cpu", "min": least.to_string(), "max": "64" }]);
    let models = json!({ "resourceModels": [{ "grade": 0, "ranges": range }] });
    let counts = json!([{ "grade": 0, "count": count }]);
    reported(&models, cores, 1_000, &counts)
}

fn reported(spec: &Value, cores: i64, pods: i64, counts: &Value) -> Capacity {
    let cluster = json!({
        "spec": spec,
        "status": { "resourceSummary": {
            "allocatable": { "cpu": cores.to_string(), "pods": pods.to_string() },
            "allocatableModelings": counts,
        } },
    });
    Capacity::of(&serde_json::from_value(cluster).unwrap()).unwrap()
}

#[test]
fn a_range_grows_by_no_more_than_fits_into_the_room_that_was_gained() {
    use GradeRule::{Averages, Ignored, Minimums};
    // From a tenth of a core to a core.
    let mut range = Range::of(Some(&asking(&[(CPU, 100)])));
    range.include(Some(&asking(&[(CPU, 1_000)])));
    let three = nodes(1, 3, 10);
    for (what, before, now, rule, expected) in [
        ("one core", &sums(10, 1_000), &sums(11, 1_000), Minimums, 10),
        // There are cores enough.
        ("more pods", &sums(100, 5), &sums(100, 50), Minimums, 45),
        ("nodes do not count", &three, &nodes(1, 3, 11), Ignored, 10),
        ("one node more", &three, &nodes(1, 4, 10), Minimums, 10),
        // Of these nobody knows what each node has gained: 108 of the least fit where 9 of the
        // greatest did, and 60 where 3 did.
        ("on the same nodes", &three, &nodes(1, 3, 11), Averages, 99),
        ("better nodes", &three, &nodes(2, 3, 10), Minimums, 57),
    ] {
        assert_eq!(range.growth(Some(before), now, rule), expected, "{what}");
    }
}

#[test]
fn a_range_of_more_names_than_it_may_have_counts_as_fitting_nowhere_before() {
    for (count, expected) in [(64, 0), (65, 10)] {
        let names: Vec<String> = (0..count)
            .map(|number| format!("a.example/{number}"))
            .collect();
        let each = |amount| -> Demand {
            let requests = names.iter().map(|name| (name.as_str().into(), amount));
            requests.collect()
        };
        let mut having = json!({ "pods": "1000" });
        for name in &names {
            having[name] = json!("10");
        }
        let cluster = json!({ "status": { "resourceSummary": { "allocatable": having } } });
        let same = Capacity::of(&serde_json::from_value(cluster).unwrap()).unwrap();
        let mut range = Range::of(Some(&each(1)));
        range.include(Some(&each(2)));
        let growth = range.growth(Some(&same), &same, GradeRule::Minimums);
        assert_eq!(growth, expected, "{count} names");
    }
}

#[test]
fn demands_are_near_each_other_by_the_octaves_of_what_most_pods_ask_for() {
    let cpu = |amount| Some(asking(&[(CPU, amount)]));
    let with = |name| Some(asking(&[(CPU, 1_000), (name, 1)]));
    for (one, other, expected) in [
        (cpu(1_000), cpu(1_000), true),
        (cpu(1_024), cpu(2_047), true),
        (cpu(1_023), cpu(1_024), false),
        (with("a.example/one"), with("a.example/other"), true),
        (with("a.example/one"), cpu(1_000), true),
        (with("memory"), cpu(1_000), false),
        (None, cpu(1_000), false),
    ] {
        let near = Likeness::near(one.as_ref()) == Likeness::near(other.as_ref());
        assert_eq!(near, expected, "{one:?} {other:?}");
        let same = Likeness::same(one.as_ref()) == Likeness::same(other.as_ref());
        assert_eq!(same, one == other, "{one:?} {other:?}");
    }
}
