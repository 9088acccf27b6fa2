//! What each demand says when it is not met.

use serde_json::{Value, json};

use crate::schema::Schema;

fn errors(property: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"x": property}}}}]}});
    let schema = Schema::of_crd(&crd, "v1").expect("a schema");
    let object =
        |x: &Value| json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "x": x});
    let old = old.map(object);
    schema
        .validate(&object(new), old.as_ref())
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
#[allow(clippy::too_many_lines)]
fn each_demand_is_refused_in_the_words_of_the_real_server() {
    for (property, value, expected) in [
        (
            json!({"type": "integer"}),
            json!("a"),
            "x: Invalid value: \"string\": x in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string"}),
            json!(null),
            "x: Invalid value: \"null\": x in body must be of type string: \"null\"",
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            "x: Invalid value: \"number\": x in body must be of type integer: \"number\"",
        ),
        (
            json!({"type": "object"}),
            json!([]),
            "x: Invalid value: \"array\": x in body must be of type object: \"array\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "x: Invalid value: \"boolean\": x in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "x: Invalid value: \"b\": x in body should match '^a+$'",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("b"),
            "x: Invalid value: \"b\": x in body should be at least 2 chars long",
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("bbb"),
            "x: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "x: Invalid value: 0: x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            "x: Invalid value: 1: x in body should be greater than 1",
        ),
        (
            json!({"type": "integer", "maximum": 1}),
            json!(2),
            "x: Invalid value: 2: x in body should be less than or equal to 1",
        ),
        (
            json!({"type": "integer", "multipleOf": 2}),
            json!(3),
            "x: Invalid value: 3: x in body should be a multiple of 2",
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
            json!([]),
            "x: Invalid value: 0: x in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a", "b"]),
            "x: Too many: 2: must have at most 1 items",
        ),
        (
            json!({"type": "object", "required": ["y"], "properties": {"y": {"type": "string"}}}),
            json!({}),
            "x.y: Required value",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a", "a"]),
            "x[2]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a"}]),
            "x[1]: Duplicate value: {\"k\":\"a\"}",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("yesterday"),
            "x: Invalid value: \"yesterday\": x in body must be of type date-time: \"yesterday\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "v1"}),
            "x.kind: Required value",
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}, "properties": {"a": {"type": "string"}}}),
            json!({"a": "1"}),
            "<nil>: Invalid value: \"\": \"x\" must not validate the schema (not)",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": "1", "b": "2"}),
            "<nil>: Invalid value: \"\": \"x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": "b"}),
            "x.a: Invalid value: \"string\": x.a in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}),
            json!([{"n": 1}, {"n": "2"}]),
            "x[1].n: Invalid value: \"string\": x[1].n in body must be of type integer: \"string\"",
        ),
    ] {
        assert_eq!(errors(&property, &value, None), [expected], "{property}");
    }
}

#[test]
fn what_fits_is_accepted() {
    for (property, value) in [
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("25%")),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!([1, {"a": 2}]),
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
            json!({"b": "1"}),
        ),
        (
            json!({"type": "string", "format": "unheard-of"}),
            json!("x"),
        ),
    ] {
        assert_eq!(
            errors(&property, &value, None),
            Vec::<String>::new(),
            "{property}"
        );
    }
}

#[test]
fn what_was_accepted_once_may_stay() {
    let property = json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1}}});
    let (old, new) = (
        json!({"a": "long", "b": "x"}),
        json!({"a": "long", "b": "y"}),
    );
    assert_eq!(errors(&property, &new, Some(&old)), Vec::<String>::new());
    let worse = json!({"a": "longer", "b": "y"});
    assert_eq!(
        errors(&property, &worse, Some(&old)),
        ["x.a: Too long: may not be more than 1 bytes"]
    );
}
