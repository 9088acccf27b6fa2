//! What is accepted beside what the recorded conversations hold.

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
