//! Properties of applies of any configurations.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Schema, Story};

/// Returns the schema of a custom kind with lists and maps of each type.
fn custom() -> Schema {
    let crd = json!({"spec": {"versions": [{"name": "v1", "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
    "type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "string"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"},
                    "b": {"type": "integer", "default": 1}, "v": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }}}}]}});
    Schema::of_crd(&crd, "v1").expect("a schema")
}

/// Returns an object of the custom kind.
fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "a.b/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

/// Specs of the custom kind, small enough to collide. Keyed lists and sets are never empty: an
/// empty one owns nothing, not even itself, which is a gap of the specification that we share.
fn spec() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["p", "q"]);
    let map = prop::option::of(prop::collection::btree_map("[xy]", text(), 0..3));
    let set = prop::option::of(prop::collection::btree_set(text(), 1..3));
    let keyed = prop::option::of(prop::collection::btree_map(text(), text(), 1..3));
    let atomic = prop::option::of(prop::collection::vec(text(), 0..3));
    (map, set, keyed, atomic).prop_map(|(map, set, keyed, atomic)| {
        let mut spec = json!({});
        if let Some(map) = map {
            spec["map"] = json!(map);
        }
        if let Some(set) = set {
            spec["set"] = json!(set);
        }
        if let Some(keyed) = keyed {
            let items: Vec<Value> = keyed
                .iter()
                .map(|(a, v)| json!({"a": a, "b": 1, "v": v}))
                .collect();
            spec["keyed"] = json!(items);
        }
        if let Some(atomic) = atomic {
            spec["atomic"] = json!(atomic);
        }
        spec
    })
}

proptest! {
    // Failures are reported, not kept in files beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(first in spec(), second in spec(), mine in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), true).unwrap();
        story.try_apply("two", &widget(&second), true).unwrap();
        story.try_apply("one", &widget(&mine), true).unwrap();
        let once = story.object().clone();
        story.try_apply("one", &widget(&mine), true).unwrap();
        prop_assert_eq!(story.object(), &once);
    }

    #[test]
    fn a_lone_applier_gets_exactly_what_it_says(first in spec(), second in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), false).unwrap();
        story.try_apply("one", &widget(&second), false).unwrap();
        let mut alone = Story::new(custom(), "a.b/v1");
        alone.try_apply("one", &widget(&second), false).unwrap();
        prop_assert_eq!(story.fields("one", "Apply"), alone.fields("one", "Apply"));
        for list in ["set", "keyed", "atomic", "map"] {
            let hollow = |v: &Value| v.as_array().is_none_or(Vec::is_empty) && v.as_object().is_none_or(serde_json::Map::is_empty);
            let (got, wanted) = (&story.object()["spec"][list], &second[list]);
            prop_assert!(got == wanted || hollow(got) && hollow(wanted), "{}: {} is not {}", list, got, wanted);
        }
    }

    #[test]
    fn nobody_loses_without_force(first in spec(), second in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), false).unwrap();
        let before = story.fields("one", "Apply");
        if story.try_apply("two", &widget(&second), false).is_ok() {
            prop_assert_eq!(story.fields("one", "Apply"), before);
        }
    }
}
