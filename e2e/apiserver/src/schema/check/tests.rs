//! Rules that no recorded conversation holds, one line each: what is changed, and what is said
//! about it.

use serde_json::{Value, json};

use crate::catalog;
use crate::schema::Schema;

fn admitted(mut object: Value) -> (Schema, Value) {
    let kind = catalog::of_object(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let schema = Schema::builtin(kind.expect("a built-in kind"));
    schema.decode(&mut object).expect("decodes");
    schema.default(&mut object);
    (schema, object)
}

/// Returns the object with `change` merged in.
fn changed(object: &Value, change: &Value) -> Value {
    let mut merged = object.clone();
    json_patch::merge(&mut merged, change);
    merged
}

fn create(object: &Value, change: &Value) -> Vec<String> {
    let (schema, object) = admitted(changed(object, change));
    schema
        .validate(&object, None)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[test]
fn pods_are_refused_for_these_reasons() {
    let container = |fields: Value| {
        let base = json!({"name": "c", "image": "i:1"});
        json!({"spec": {"containers": [changed(&base, &fields)]}})
    };
    for (change, expected) in [
        (
            container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            container(json!({"resources": {"requests": {"cpu": "-1"}}})),
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}}),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}}),
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({"spec": {"tolerations": [{"key": "k", "effect": "Never"}]}}),
            "spec.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
    ] {
        assert_eq!(create(&pod(), &change), [expected], "{change}");
    }
}

#[test]
fn what_is_recreated_takes_no_pace_of_a_rolling_update() {
    let change = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}});
    let expected = "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'";
    assert_eq!(create(&deployment(), &change), [expected]);
}
