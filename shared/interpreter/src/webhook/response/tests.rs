use muster_shared::api::binding::Component;
use serde_json::json;

use super::*;
use crate::webhook::error::QUOTED;

#[test]
fn a_foreign_text_is_quoted_in_one_line_and_shortened() {
    assert_eq!(shortened("a\nb\u{202e}c\u{7}d\u{200b}"), "a bcd");
    let long = shortened(&"x".repeat(5_000));
    assert_eq!(long.len(), QUOTED + 3);
    // Errors of parsers quote what they read.
    let body = json!({ "response": { "uid": "u", "successful": "y".repeat(50_000) } });
    let Err(Fault::Malformed(text)) = read(
        Operation::InterpretHealth,
        Some("u"),
        body.to_string().as_bytes(),
    ) else {
        panic!("it was read");
    };
    assert!(text.len() <= QUOTED + 3, "{} bytes", text.len());
}

fn answered(operation: Operation, response: &Value) -> Result<Said, Fault> {
    let mut all = json!({ "uid": "u", "successful": true });
    all.as_object_mut()
        .unwrap()
        .extend(response.as_object().unwrap().clone());
    let context = json!({ "apiVersion": API_VERSION, "kind": KIND, "response": all });
    read(operation, Some("u"), context.to_string().as_bytes())
}

#[test]
fn an_answer_may_leave_out_what_is_nothing_and_components_are_read() {
    use Operation::{AggregateStatus, Retain, ReviseReplica};
    for operation in [Retain, ReviseReplica, AggregateStatus] {
        let Said::Patch(none) = answered(operation, &json!({})).unwrap() else {
            panic!("no patch");
        };
        assert_eq!(none.0.len(), 0);
    }
    let says = |operation, response: Value, expected| {
        let expected = Ok(Said::Answer(expected));
        assert_eq!(answered(operation, &response), expected, "{operation}");
    };
    let none = Answer::Dependencies(Vec::new());
    says(Operation::InterpretDependency, json!({}), none);
    let component = Component {
        name: "a".to_owned(),
        replicas: 1,
        replica_requirements: None,
    };
    let components = json!({ "components": [{ "name": "a", "replicas": 1 }] });
    let expected = Answer::Components(vec![component]);
    says(Operation::InterpretComponent, components, expected);
}

#[test]
fn an_answer_that_cannot_be_used_says_why() {
    use Operation::{InterpretHealth, InterpretReplica, InterpretStatus, Retain};
    let foreign = json!({ "uid": "v", "healthy": true });
    let claim = json!({ "replicas": 1, "replicaRequirements": { "nodeClaim": 3 } });
    let patch = |kind: &str, patch: &str| json!({ "patchType": kind, "patch": patch });
    let merge = "expected \"JSONPatch\"";
    let failed = json!({ "successful": false });
    let without = json!({ "patchType": "JSONPatch" });
    for (operation, response, reported) in [
        (InterpretHealth, json!({}), "response.healthy is absent"),
        (InterpretHealth, json!({ "healthy": "yes" }), "invalid type"),
        (InterpretHealth, foreign, "response.uid"),
        (InterpretReplica, json!({}), "response.replicas is absent"),
        (InterpretReplica, json!({ "replicas": -1 }), "from 0 to"),
        (InterpretReplica, claim, "replicaRequirements.nodeClaim"),
        (InterpretStatus, json!({}), "response.rawStatus is absent"),
        (InterpretStatus, json!({ "rawStatus": [1] }), "no object"),
        (Retain, json!({ "patch": "W10=" }), "patchType is absent"),
        (Retain, without, "patch is empty"),
        (Retain, patch("JSONPatch", ""), "patch is empty"),
        (Retain, patch("Merge", "W10="), merge),
        (Retain, patch("JSONPatch", "%%"), "response.patch"),
        (InterpretHealth, failed, "response.status is absent"),
    ] {
        let Err(Fault::Malformed(text)) = answered(operation, &response) else {
            panic!("{response}");
        };
        assert!(text.contains(reported), "{response}: {text}");
    }
    let refused =
        json!({ "successful": false, "status": { "code": 400, "message": "no such kind" } });
    let expected = Fault::Refused {
        code: 400,
        message: "no such kind".to_owned(),
    };
    assert_eq!(answered(InterpretHealth, &refused), Err(expected));
    for body in ["", "{}", "[]", r#"{"kind":"Status"}"#, "{\"response\":"] {
        let found = read(InterpretHealth, None, body.as_bytes());
        assert!(
            matches!(found, Err(Fault::Malformed(_))),
            "{body}: {found:?}"
        );
    }
}

#[test]
fn a_field_that_is_wrong_is_reported_with_its_place() {
    use Operation::{InterpretComponent, InterpretDependency, InterpretReplica};
    let requirements = json!({ "resourceRequest": { "cpu": "much" } });
    let replicas = json!({ "replicas": 1, "replicaRequirements": requirements });
    let cpu = "replicaRequirements.resourceRequest.cpu:";
    let components = json!({ "components": [{ "replicas": -1 }] });
    let dependencies = json!({ "dependencies": [{ "apiVersion": "v1", "kind": "Secret" }] });
    for (operation, response, place) in [
        (InterpretReplica, replicas, cpu),
        (InterpretComponent, components, "result[1].replicas:"),
        (InterpretDependency, dependencies, "result[1]:"),
    ] {
        let Err(Fault::Malformed(text)) = answered(operation, &response) else {
            panic!("{response}");
        };
        assert!(text.starts_with(place), "{text}");
    }
}
