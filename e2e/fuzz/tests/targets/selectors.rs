//! Selectors and tolerations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use muster_fuzz::{Fuzz, Random};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterAffinity;
use muster_shared::selectors::{Affinity, is_sound_selector, matches_affinity, matches_labels};
use muster_shared::taints::{Stay, describe, stay, tolerates};
use serde_json::{Map, Value, json};

use crate::MEMORY;

const TEXTS: [&str; 14] = [
    "",
    "a",
    "b",
    "tier",
    "example.com/tier",
    "A_b.c",
    "-a",
    "a-",
    "a/b/c",
    "/a",
    "1",
    "7",
    "ä",
    "zone",
];
const OPERATORS: [&str; 9] = [
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "in",
    "",
    "Equal",
];
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "\"matchLabels\"",
    "\"matchExpressions\"",
    "\"key\"",
    "\"operator\"",
    "\"values\"",
    "\"In\"",
    "\"NotIn\"",
    "\"Exists\"",
    "\"Gt\"",
    "\"a\"",
    "\"1\"",
];

fn text(random: &mut Random) -> &'static str {
    random.one_of::<&str>(&TEXTS)
}

fn labels(random: &mut Random) -> Value {
    let labels = (0..random.below(4)).map(|_| (text(random).to_owned(), text(random).into()));
    Value::Object(labels.collect::<Map<_, _>>())
}

fn expressions(random: &mut Random) -> Value {
    let one = |random: &mut Random| {
        let mut one = json!({ "key": text(random), "operator": random.one_of(&OPERATORS) });
        if !random.once_in(3) {
            one["values"] = (0..random.below(3)).map(|_| text(random)).collect();
        }
        one
    };
    (0..random.below(3)).map(|_| one(random)).collect()
}

fn selector(random: &mut Random) -> Value {
    json!({ "matchLabels": labels(random), "matchExpressions": expressions(random) })
}

/// Reads a list of documents, one a line; absent ones are empty.
fn lines<const N: usize>(text: &str) -> Option<[Value; N]> {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let mut read = [const { Value::Null }; N];
    for one in &mut read {
        *one = serde_json::from_str(lines.next().unwrap_or("{}")).ok()?;
    }
    Some(read)
}

#[test]
fn a_sound_selector_selects_as_kubes_does_and_another_selects_nothing() {
    Fuzz::new("selector")
        .words(WORDS)
        .generator(|random| format!("{}\n{}", selector(random), labels(random)).into_bytes())
        .executions(10_000)
        .memory(MEMORY)
        .run_text(|text| {
            let Some([selector, labels]) = lines(text) else {
                return "no JSON".to_owned();
            };
            let selector = serde_json::from_value::<LabelSelector>(selector);
            let labels = serde_json::from_value::<BTreeMap<String, String>>(labels);
            let (Ok(selector), Ok(labels)) = (selector, labels) else {
                return "no selector".to_owned();
            };
            let selected = matches_labels(&selector, |key| labels.get(key).map(String::as_str));
            let sound = is_sound_selector(&selector);
            if !sound {
                assert!(!selected, "{selector:?}");
                return "not sound".to_owned();
            }
            let kube = Selector::try_from(selector.clone()).unwrap();
            assert_eq!(
                selected,
                kube.matches(&labels),
                "{selector:?} of {labels:?}"
            );
            let all = selector.match_labels.iter().flatten().count()
                + selector.match_expressions.iter().flatten().count();
            format!("{selected} {}", "x".repeat(all.min(4)))
        });
}

#[test]
fn an_affinity_matches_the_same_prepared_or_not() {
    Fuzz::new("affinity")
        .words(WORDS)
        .generator(|random| {
            let affinity = json!({
                "clusterNames": [text(random)], "exclude": [text(random)],
                "labelSelector": selector(random),
                "fieldSelector": { "matchExpressions": expressions(random) },
            });
            let cluster = json!({
                "metadata": { "name": text(random), "labels": labels(random) },
                "spec": { "syncMode": "Pull", "region": text(random), "zone": text(random),
                    "zones": [text(random), text(random)], "provider": text(random) },
            });
            format!("{affinity}\n{cluster}").into_bytes()
        })
        .executions(4_000)
        .memory(MEMORY)
        .run_text(|text| {
            let Some([affinity, cluster]) = lines(text) else {
                return "no JSON".to_owned();
            };
            let affinity = serde_json::from_value::<ClusterAffinity>(affinity);
            let (Ok(affinity), Ok(cluster)) =
                (affinity, serde_json::from_value::<Cluster>(cluster))
            else {
                return "no affinity".to_owned();
            };
            let matched = matches_affinity(&affinity, &cluster);
            let prepared = Affinity::new(&affinity);
            assert_eq!(matched, prepared.matches(&cluster));
            assert_eq!(matched, prepared.into_owned().matches(&cluster));
            if let Some(selector) = &affinity.label_selector
                && matched
            {
                assert!(is_sound_selector(selector));
            }
            format!("{matched}")
        });
}

const TAINTS: &[&str] = &[
    "{",
    "}",
    ",",
    ":",
    "\"key\"",
    "\"value\"",
    "\"effect\"",
    "\"operator\"",
    "\"Exists\"",
    "\"\"",
    "\"tolerationSeconds\"",
    "\"timeAdded\"",
    "\"2026-01-01T00:00:00Z\"",
    "-1",
    "null",
    "9223372036854775807",
    "-9223372036854775808",
];

fn taint(random: &mut Random) -> Value {
    let times = [
        "2026-01-01T00:00:00Z",
        "9999-12-30T22:00:00Z",
        "-009999-01-02T01:59:59Z",
    ];
    let mut taint = json!({
        "key": random.one_of(&["a", "b", ""]),
        "effect": random.one_of(&["NoExecute", "NoSchedule", "PreferNoExecute", ""]),
    });
    if random.once_in(2) {
        taint["value"] = (*random.one_of(&["", "x"])).into();
    }
    if !random.once_in(3) {
        taint["timeAdded"] = (*random.one_of(&times)).into();
    }
    taint
}

fn toleration(random: &mut Random) -> Value {
    let mut toleration = json!({});
    for (field, values) in [
        ("key", &["a", "b", ""][..]),
        ("value", &["", "x"]),
        ("effect", &["NoExecute", "NoSchedule", ""]),
        ("operator", &["Exists", "Equal", "", "Lt"]),
    ] {
        if random.once_in(2) {
            toleration[field] = (*random.one_of(values)).into();
        }
    }
    if random.once_in(2) {
        toleration["tolerationSeconds"] = json!(random.one_of(&[0, 5, -1, i64::MAX, i64::MIN]));
    }
    toleration
}

#[test]
fn a_workload_stays_as_long_as_the_shortest_of_its_tolerations() {
    let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    Fuzz::new("toleration")
        .words(TAINTS)
        .generator(|random| {
            let taints: Value = (0..random.below(4)).map(|_| taint(random)).collect();
            let tolerations: Value = (0..random.below(4)).map(|_| toleration(random)).collect();
            format!("{taints}\n{tolerations}").into_bytes()
        })
        .executions(5_000)
        .memory(MEMORY)
        .run_text(|text| {
            let Some([taints, tolerations]) = lines(text) else {
                return "no JSON".to_owned();
            };
            let taints = serde_json::from_value::<Vec<Taint>>(taints);
            let tolerations = serde_json::from_value::<Vec<Toleration>>(tolerations);
            let (Ok(taints), Ok(tolerations)) = (taints, tolerations) else {
                return "no taints".to_owned();
            };
            let whole = stay(&taints, &tolerations, now);
            // The taints one by one: the first that is not tolerated, or the earliest end.
            let each: Vec<Stay<'_>> = taints
                .iter()
                .map(|taint| stay(std::slice::from_ref(taint), &tolerations, now))
                .collect();
            let end = |stay: &Stay<'_>| match stay {
                Stay::Never(_) => Timestamp::MIN,
                Stay::Until(end, _) => *end,
                Stay::Unlimited => Timestamp::MAX,
            };
            let expected = each.iter().map(end).min().unwrap_or(Timestamp::MAX);
            assert_eq!(end(&whole), expected, "{taints:?} {tolerations:?}");
            let never = each.iter().any(|stay| matches!(stay, Stay::Never(_)));
            assert_eq!(matches!(whole, Stay::Never(_)), never);
            for taint in &taints {
                let tolerated = tolerations.iter().any(|it| tolerates(it, taint));
                if taint.effect == "NoExecute" {
                    assert_eq!(
                        !tolerated,
                        matches!(
                            stay(std::slice::from_ref(taint), &tolerations, now),
                            Stay::Never(_)
                        )
                    );
                }
                assert!(describe(taint).contains(&taint.key));
            }
            match whole {
                Stay::Never(taint) => format!("never {}", taint.key),
                Stay::Until(end, _) => format!("until {}", end <= now),
                Stay::Unlimited => "unlimited".to_owned(),
            }
        });
}
