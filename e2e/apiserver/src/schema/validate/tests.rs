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

/// Checks demands that the conversation "every demand of a schema" does not hold, and the words.
#[test]
fn demands_are_refused_in_the_words_of_the_real_server() {
    for (property, value, expected) in [
        (
            json!({"type": "integer"}),
            json!(1.5),
            "x: Invalid value: \"number\": x in body must be of type integer: \"number\"",
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
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a", "a"]),
            "x[2]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "v1"}),
            "x.kind: Required value",
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
