//! Every field of every definition has a description of its own, which `kubectl explain` shows.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use muster_shared::api;
use serde_json::{Map, Value, json};

/// Fields of the root that the API server describes itself, whatever a definition says. It rejects
/// a definition that describes `metadata`.
const DESCRIBED_BY_THE_SERVER: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Fewest words of a description.
const FEWEST_WORDS: usize = 4;

/// Words that refer to a speaker or hide the actor; a description names the component instead.
const VAGUE: [&str; 10] = [
    "we", "us", "our", "ours", "nobody", "somebody", "anybody", "whoever", "what is", "same as",
];

#[test]
fn every_field_that_is_served_has_a_description_of_its_own() {
    let mut faults = Vec::new();
    for crd in api::crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().unwrap();
            let schema = serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap();
            let kind = &crd.spec.names.kind;
            faults.extend(faults_of_text(text(&schema)).map(|fault| format!("{kind}: {fault}")));
            walk(&schema, kind, true, &mut faults);
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_description_that_says_too_little_is_found() {
    let field = |text: &str| json!({ "type": "string", "description": text });
    let (sound, thing) = ("Name of the thing itself.", "A thing with a description.");
    let below = json!({ "b": field("Why."), "c": { "type": "string" } });
    let schema = json!({ "type": "object", "description": thing, "properties": {
        "both": field("Sound and of its own."),
        "d-missing": { "type": "string" },
        "e-word": field("Name."),
        "f-parents": field(thing),
        "g-items": { "description": "List with a text.", "items": { "description": "List with a text." } },
        "h-first": field(sound),
        "i-twice": field(sound),
        "j-list": { "description": "Things in a list.", "items": { "properties": below } },
        "k-map": { "description": "Things in a map.", "additionalProperties": { "properties": below } },
        "l-begin": field("name of the thing."),
        "m-end": field("Name of the thing"),
        "n-speaker": field("Name that somebody has given."),
    } });
    let mut faults = Vec::new();
    walk(&schema, "Kind", true, &mut faults);
    let expected = [
        "Kind.d-missing: no description",
        "Kind.e-word: fewer than 4 words: \"Name.\"",
        "Kind.f-parents: the description of its parent",
        "Kind.g-items: the description of its items",
        "Kind: h-first and i-twice have one description",
        "Kind.j-list[].b: fewer than 4 words: \"Why.\"",
        "Kind.j-list[].c: no description",
        "Kind.k-map{}.b: fewer than 4 words: \"Why.\"",
        "Kind.k-map{}.c: no description",
        "Kind.l-begin: no capital letter at the beginning: \"name of the thing.\"",
        "Kind.m-end: no full stop at the end: \"Name of the thing\"",
        "Kind.n-speaker: says \"somebody\": \"Name that somebody has given.\"",
    ];
    assert_eq!(faults, expected);
}

fn text(node: &Value) -> Option<&str> {
    node["description"].as_str()
}

/// Collects the faults in the descriptions of a schema's fields, at every depth.
fn walk(node: &Value, at: &str, is_root: bool, faults: &mut Vec<String>) {
    let no_fields = Map::new();
    let properties = node["properties"].as_object().unwrap_or(&no_fields);
    let mut described: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, field) in properties {
        if is_root && DESCRIBED_BY_THE_SERVER.contains(&name.as_str()) {
            continue;
        }
        let at_field = format!("{at}.{name}");
        faults.extend(faults_of_text(text(field)).map(|fault| format!("{at_field}: {fault}")));
        if let Some(said) = text(field) {
            if text(node) == Some(said) {
                faults.push(format!("{at_field}: the description of its parent"));
            }
            if text(&field["items"]) == Some(said) {
                faults.push(format!("{at_field}: the description of its items"));
            }
            if let Some(other) = described.insert(said, name) {
                faults.push(format!("{at}: {other} and {name} have one description"));
            }
        }
        walk(field, &at_field, false, faults);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[keyword].is_object() {
            walk(&node[keyword], &format!("{at}{mark}"), false, faults);
        }
    }
}

fn faults_of_text(text: Option<&str>) -> impl Iterator<Item = String> {
    let Some(text) = text else {
        return vec!["no description".to_owned()].into_iter();
    };
    let mut faults = Vec::new();
    let mut fault = |what: String| faults.push(format!("{what}: {text:?}"));
    if text.split_whitespace().count() < FEWEST_WORDS {
        fault(format!("fewer than {FEWEST_WORDS} words"));
    }
    if !text.starts_with(|first: char| first.is_uppercase() || first == '`') {
        fault("no capital letter at the beginning".to_owned());
    }
    if !text.ends_with('.') {
        fault("no full stop at the end".to_owned());
    }
    let words: Vec<&str> = text
        .split(|it: char| !it.is_alphanumeric() && it != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let spaced = format!(" {} ", words.join(" ").to_lowercase());
    for vague in VAGUE {
        if spaced.contains(&format!(" {vague} ")) {
            fault(format!("says {vague:?}"));
        }
    }
    faults.into_iter()
}
