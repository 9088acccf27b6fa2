//! Selectors of labels, against those of kube.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use muster_fuzz::{Fuzz, Random};
use muster_shared::selectors::{is_sound_selector, matches_labels};
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
