use serde_json::json;

use super::*;
use crate::Operation;

fn widget() -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": { "name": "w", "namespace": "a", "resourceVersion": "7" }, "spec": { "size": 1 } })
}

#[test]
fn a_question_is_sent_as_karmada_sends_it() {
    let (widget, observed) = (widget(), json!({ "spec": { "size": 2 } }));
    let items = [AggregatedStatusItem {
        cluster_name: "m1".to_owned(),
        ..AggregatedStatusItem::default()
    }];
    let question = Question {
        observed: Some(&observed),
        replicas: 3,
        items: &items,
        ..Question::new(Operation::Retain, &widget)
    };
    let body: Value = serde_json::from_slice(&question.body("u-1", false)).unwrap();
    let expected = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext",
        "request": {
            "uid": "u-1",
            "kind": { "group": "example.com", "version": "v1", "kind": "Widget" },
            "name": "w", "namespace": "a", "operation": "Retain",
            "object": widget, "observedObject": observed, "replicas": 3,
            "aggregatedStatus": [serde_json::to_value(&items[0]).unwrap()],
        },
    });
    assert_eq!(body, expected);
}

#[test]
fn a_question_is_the_same_until_something_that_counts_has_changed() {
    let digest = |object: &Value| {
        Question::new(Operation::InterpretHealth, object)
            .digest(1, false)
            .0
    };
    let known = digest(&widget());
    let edited = |path: &str, value: Value| {
        let mut object = widget();
        *object.pointer_mut(path).unwrap() = value;
        digest(&object)
    };
    assert!(known == edited("/metadata/resourceVersion", json!("8")));
    assert!(known != edited("/spec/size", json!(2)));
    assert!(known != edited("/metadata/name", json!("x")));
    let widget = widget();
    assert!(
        known
            != Question::new(Operation::InterpretStatus, &widget)
                .digest(1, false)
                .0
    );
    assert!(
        known
            != Question::new(Operation::InterpretHealth, &widget)
                .digest(2, false)
                .0
    );
    assert_ne!(known.uid(1), known.uid(2));
    assert_eq!(known.uid(1).len(), 36);
}

#[test]
fn the_content_of_a_secret_is_left_out_wherever_it_stands() {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "s", "annotations": { "a": "b", LAST_APPLIED: "{\"data\":1}" } },
        "data": { "k": "dG9w" }, "stringData": { "k": "top" } });
    let question = Question {
        observed: Some(&secret),
        ..Question::new(Operation::Retain, &secret)
    };
    let body: Value = serde_json::from_slice(&question.body("u", true)).unwrap();
    let expected = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "s", "annotations": { "a": "b" } } });
    assert_eq!(body["request"]["object"], expected);
    assert_eq!(body["request"]["observedObject"], expected);
    let whole: Value = serde_json::from_slice(&question.body("u", false)).unwrap();
    assert_eq!(whole["request"]["object"], secret);
    let mut other = secret.clone();
    other["data"]["k"] = json!("bm90");
    let digest = |object: &Value, hides| {
        Question::new(Operation::InterpretHealth, object)
            .digest(1, hides)
            .0
    };
    assert!(digest(&secret, true) == digest(&other, true));
    assert!(digest(&secret, false) != digest(&other, false));
}

#[test]
fn an_object_stays_the_same_in_every_version_and_is_another_in_another_member() {
    let number = |object: &Value| Question::new(Operation::Retain, object).identity(1);
    let known = number(&widget());
    let edited = |path: &str, value: Value| {
        let mut object = widget();
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["annotations"] = json!({ "work.karmada.io/namespace": "n" });
        *object.pointer_mut(path).unwrap() = value;
        number(&object)
    };
    let same = edited("/spec/size", json!(7));
    assert_eq!(same, edited("/metadata/resourceVersion", json!("9")));
    assert_ne!(same, edited("/metadata/name", json!("x")));
    assert_ne!(same, edited("/metadata/uid", json!("v")));
    assert_ne!(
        same,
        edited(
            "/metadata/annotations/work.karmada.io~1namespace",
            json!("m")
        )
    );
    let widget = widget();
    assert_ne!(
        known,
        Question::new(Operation::InterpretHealth, &widget).identity(1)
    );
    assert_ne!(known, Question::new(Operation::Retain, &widget).identity(2));
    let revised = Question {
        replicas: 2,
        ..Question::new(Operation::Retain, &widget)
    };
    assert_ne!(known, revised.identity(1));
}

#[test]
fn versions_that_differ_in_their_status_alone_are_told_apart_from_others() {
    let object = json!({ "kind": "A", "metadata": { "name": "a", "resourceVersion": "1" },
        "spec": { "b": 1 }, "status": { "c": 1 } });
    for (path, value, expected) in [
        ("/status/c", json!(2), true),
        ("/status", json!(null), true),
        ("/metadata/resourceVersion", json!("2"), true),
        ("/spec/b", json!(2), false),
        ("/metadata/name", json!("b"), false),
    ] {
        let mut other = object.clone();
        *other.pointer_mut(path).unwrap() = value;
        assert_eq!(differs_in_status_alone(&object, &other), expected, "{path}");
    }
    let mut more = object.clone();
    more["data"] = json!({});
    assert!(!differs_in_status_alone(&object, &more));
    assert!(!differs_in_status_alone(&more, &object));
}
