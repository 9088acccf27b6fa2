use serde_json::json;

use super::*;

#[test]
fn keys_and_values_follow_the_syntax_of_labels() {
    let longest = format!("{}/{}", ["a"; 127].join("."), "b".repeat(63));
    for key in [
        "a",
        "A.b_c-d",
        "example.com/app",
        "x-y.z/n",
        "0",
        longest.as_str(),
    ] {
        assert!(is_label_key(key), "{key}");
    }
    let (long, prefix) = ("a".repeat(64), format!("a.{longest}"));
    for key in [
        "",
        "-a",
        "a-",
        "Example.com/a",
        "a/b/c",
        "/a",
        "a/",
        "a b",
        "ä",
        "a_b/c",
        "-a.b/c",
        "a..b/c",
        long.as_str(),
        prefix.as_str(),
    ] {
        assert!(!is_label_key(key), "{key}");
    }
    for (value, is_one) in [
        ("", true),
        ("v1.2_3", true),
        ("A-b", true),
        ("a b", false),
        ("-a", false),
        ("a.", false),
        ("ä", false),
        (long.as_str(), false),
    ] {
        assert_eq!(is_label_value(value), is_one, "{value}");
    }
}

#[test]
fn what_cannot_be_understood_selects_nothing() {
    for requirement in [
        json!({ "key": "a", "operator": "Bogus" }),
        json!({ "key": "a", "operator": "In", "values": [] }),
        json!({ "key": "a", "operator": "Exists", "values": ["x"] }),
        json!({ "key": "a b", "operator": "DoesNotExist" }),
        json!({ "key": "a", "operator": "NotIn", "values": ["b c"] }),
    ] {
        let selector: LabelSelector =
            serde_json::from_value(json!({ "matchExpressions": [requirement] })).unwrap();
        assert!(!matches_labels(&selector, |_| None), "{requirement}");
    }
}

#[test]
fn lists_of_any_order_and_length_are_looked_up() {
    let cluster: Cluster = serde_json::from_value(json!({
        "metadata": { "name": "m7", "labels": { "tier": "gold", "rank": "7" } },
        "spec": { "region": "eu", "zones": ["z1", "z2"] },
    }))
    .unwrap();
    let many = |prefix: &str, last: &str| {
        let mut texts: Vec<_> = (0..900).rev().map(|n| format!("{prefix}{n}")).collect();
        texts.push(last.to_owned());
        texts
    };
    let labels = |key: &str, operator: &str, values: &[String]| {
        let requirement = json!({ "key": key, "operator": operator, "values": values });
        json!({ "labelSelector": { "matchExpressions": [requirement] } })
    };
    let fields = |key: &str, operator: &str, values: &[String]| {
        let requirement = json!({ "key": key, "operator": operator, "values": values });
        json!({ "fieldSelector": { "matchExpressions": [requirement] } })
    };
    for (affinity, expected) in [
        (json!({ "clusterNames": many("x", "m7") }), true),
        (json!({ "clusterNames": many("x", "m8") }), false),
        (json!({ "exclude": many("x", "m7") }), false),
        (json!({ "exclude": many("x", "m8") }), true),
        (labels("tier", "In", &many("x", "gold")), true),
        (labels("tier", "In", &many("x", "silver")), false),
        (labels("tier", "NotIn", &many("x", "gold")), false),
        (labels("other", "NotIn", &many("x", "gold")), true),
        (fields("region", "In", &many("x", "eu")), true),
        (fields("region", "NotIn", &many("x", "eu")), false),
        (fields("zone", "In", &many("x", "z2")), true),
        (fields("zone", "NotIn", &many("x", "z2")), false),
        (labels("rank", "Exists", &[]), true),
        (labels("none", "DoesNotExist", &[]), true),
        (
            json!({ "labelSelector": { "matchLabels": { "tier": "gold", "rank": "7" } } }),
            true,
        ),
        (
            json!({ "labelSelector": { "matchLabels": { "tier": "gold", "rank": "8" } } }),
            false,
        ),
    ] {
        let affinity: ClusterAffinity = serde_json::from_value(affinity).unwrap();
        assert_eq!(
            matches_affinity(&affinity, &cluster),
            expected,
            "{affinity:?}"
        );
        let kept = Affinity::new(&affinity).into_owned();
        assert_eq!(kept.matches(&cluster), expected, "{affinity:?}");
    }
}

#[test]
fn a_selector_with_too_many_requirements_selects_nothing() {
    let cluster = Cluster::new("m", serde_json::from_value(json!({})).unwrap());
    for (count, expected) in [(MOST_REQUIREMENTS, true), (MOST_REQUIREMENTS + 1, false)] {
        let absent = |n| json!({ "key": format!("k{n}"), "operator": "DoesNotExist" });
        let absent: Vec<_> = (0..count).map(absent).collect();
        let affinity: ClusterAffinity =
            serde_json::from_value(json!({ "labelSelector": { "matchExpressions": absent } }))
                .unwrap();
        assert_eq!(requirements(&affinity), count);
        assert_eq!(matches_affinity(&affinity, &cluster), expected, "{count}");
    }
}
