//! Custom kinds, whose schemas say how lists are owned.

use serde_json::{Value, json};

use super::{Schema, Story};

pub(super) fn custom() -> Schema {
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

pub(super) fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "a.b/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn custom_kinds_are_owned_by_the_list_types_of_their_schema() {
    let mut story = Story::new(custom(), "a.b/v1");
    story.apply(
        "one",
        &widget(
            &json!({"map": {"x": "1"}, "atomicMap": {"x": "1"}, "set": ["p"], "atomic": ["p", "q"],
        "keyed": [{"a": "k", "v": "1"}], "free": {"deep": {"er": [1]}}}),
        ),
    );
    assert_eq!(
        story.fields("one", "Apply"),
        json!({"f:spec": {
            "f:map": {"f:x": {}}, "f:atomicMap": {}, "f:set": {"v:\"p\"": {}}, "f:atomic": {},
            "f:keyed": {"k:{\"a\":\"k\",\"b\":1}": {".": {}, "f:a": {}, "f:v": {}}},
            "f:free": {"f:deep": {".": {}, "f:er": {}}},
        }})
    );
    story.apply(
        "two",
        &widget(&json!({"set": ["q"], "keyed": [{"a": "k", "b": 2, "v": "2"}]})),
    );
    assert_eq!(story.object()["spec"]["set"], json!(["p", "q"]));
    assert_eq!(story.object()["spec"]["keyed"].as_array().unwrap().len(), 2);
    story.apply("one", &widget(&json!({"map": {"x": "1"}})));
    assert_eq!(
        story.object()["spec"],
        json!({"map": {"x": "1"}, "set": ["q"], "keyed": [{"a": "k", "b": 2, "v": "2"}]})
    );
}

#[test]
fn creating_a_custom_object_owns_its_structs_too() {
    let mut story = Story::new(custom(), "a.b/v1");
    story.update("creator", "", |object| {
        *object = widget(&json!({"map": {"x": "1"}}));
    });
    assert_eq!(
        story.fields("creator", "Update"),
        json!({"f:spec": {".": {}, "f:map": {".": {}, "f:x": {}}}})
    );
}
