//! Whether an object in the member already is what we would make it, so that nothing needs to be sent.
//!
//! The server records in `managedFields` exactly which fields our last server-side apply set. An apply would change nothing if that
//! set is the set of fields that we want now, and each of them still holds what we want. Fields of others (defaults, injected
//! containers, a status) are no business of ours and are not looked at.

use muster_shared::quantity::Quantity;
use serde_json::{Map, Value};

/// Whether applying `desired` as `manager` would leave `observed` as it is.
///
/// A wrong "no" costs one request that the server answers without a change; there is no wrong "yes" short of a server that does
/// not keep `managedFields`.
pub fn settled(desired: &Value, observed: &Value, manager: &str) -> bool {
    let Some(owned) = owned_fields(observed, manager) else {
        return false;
    };
    let (Some(desired), Some(observed)) = (desired.as_object(), observed.as_object()) else {
        return false;
    };
    // `managedFields` never names what identifies the object.
    let mut desired = desired.clone();
    desired.retain(|key, _| key != "apiVersion" && key != "kind");
    if let Some(Value::Object(metadata)) = desired.get_mut("metadata") {
        metadata.retain(|key, _| key != "name" && key != "namespace");
        if metadata.is_empty() {
            desired.remove("metadata");
        }
    }
    same_object(&desired, observed, owned)
}

/// The fields that `manager` set by server-side apply on the object itself.
fn owned_fields<'a>(observed: &'a Value, manager: &str) -> Option<&'a Map<String, Value>> {
    observed
        .pointer("/metadata/managedFields")?
        .as_array()?
        .iter()
        .find(|entry| {
            entry["manager"] == manager
                && entry["operation"] == "Apply"
                && entry.get("subresource").is_none_or(|sub| sub == "")
        })?
        .get("fieldsV1")?
        .as_object()
}

/// One value against the set below it: empty means that the value is owned as a whole.
fn same(desired: &Value, observed: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else {
        return false;
    };
    if owned.is_empty() {
        return same_value(desired, observed);
    }
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => same_object(desired, observed, owned),
        (Value::Array(desired), Value::Array(observed)) => same_list(desired, observed, owned),
        _ => false,
    }
}

fn same_object(
    desired: &Map<String, Value>,
    observed: &Map<String, Value>,
    owned: &Map<String, Value>,
) -> bool {
    let mut covered = 0;
    for (key, below) in owned {
        // The other entry is ".": the object itself.
        let Some(key) = key.strip_prefix("f:") else {
            continue;
        };
        let desired = desired.get(key).filter(|value| !value.is_null());
        let observed = observed.get(key).filter(|value| !value.is_null());
        covered += usize::from(desired.is_some());
        let same = match (desired, observed) {
            (Some(desired), Some(observed)) => same(desired, observed, below),
            // The server may leave out what is empty.
            (Some(desired), None) => is_empty(desired),
            (None, Some(_)) => false,
            (None, None) => true,
        };
        if !same {
            return false;
        }
    }
    covered == desired.values().filter(|value| !value.is_null()).count()
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn same_list(desired: &[Value], observed: &[Value], owned: &Map<String, Value>) -> bool {
    let elements = owned.iter().filter(|(key, _)| key.as_str() != ".");
    let mut count = 0;
    for (key, below) in elements {
        count += 1;
        let same = if let Some(keys) = key.strip_prefix("k:") {
            let Ok(keys) = serde_json::from_str::<Map<String, Value>>(keys) else {
                return false;
            };
            match (element(desired, &keys), element(observed, &keys)) {
                (Some(desired), Some(observed)) => same_element(desired, observed, below, &keys),
                _ => false,
            }
        } else if let Some(value) = key.strip_prefix("v:") {
            let Ok(value) = serde_json::from_str::<Value>(value) else {
                return false;
            };
            desired.contains(&value) && observed.contains(&value)
        } else {
            false
        };
        if !same {
            return false;
        }
    }
    count == desired.len()
}

/// The element of an associative list that these keys name. A key that the element leaves out is taken for a default.
fn element<'a>(list: &'a [Value], keys: &Map<String, Value>) -> Option<&'a Value> {
    list.iter().find(|element| {
        keys.iter()
            .all(|(key, value)| element.get(key).is_none_or(|found| found == value))
            && keys
                .iter()
                .any(|(key, value)| element.get(key) == Some(value))
    })
}

/// Elements are compared without keys that the server filled in by default.
fn same_element(
    desired: &Value,
    observed: &Value,
    owned: &Value,
    keys: &Map<String, Value>,
) -> bool {
    let Some(element) = desired.as_object() else {
        return same(desired, observed, owned);
    };
    let mut completed = element.clone();
    if let Some(owned) = owned.as_object() {
        for (key, value) in keys {
            if owned.contains_key(&format!("f:{key}")) {
                completed
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
        }
    }
    same(&Value::Object(completed), observed, owned)
}

/// Equal, or two spellings of one quantity: the server rewrites `1000m` as `1`.
fn same_value(desired: &Value, observed: &Value) -> bool {
    if desired == observed {
        return true;
    }
    match (quantity(desired), quantity(observed)) {
        (Some(desired), Some(observed)) => desired == observed,
        _ => false,
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MANAGER: &str = "muster-agent";

    fn observed(fields: &Value, object: &Value) -> Value {
        let mut observed = object.clone();
        observed["metadata"]["name"] = json!("web");
        observed["metadata"]["managedFields"] = json!([
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": fields},
        ]);
        observed
    }

    fn deployment() -> (Value, Value) {
        let desired = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
                 "resources": {"requests": {"cpu": "1000m"}}}]}}},
        });
        let fields = json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:requests": {"f:cpu": {}}}}}}}},
        });
        let object = json!({
            "metadata": {"labels": {"app": "web", "theirs": "x"}, "uid": "1"},
            "spec": {"replicas": 2, "revisionHistoryLimit": 10, "template": {"spec": {"containers": [
                {"name": "sidecar", "image": "proxy"},
                {"name": "web", "image": "nginx", "imagePullPolicy": "Always",
                 "ports": [{"containerPort": 80, "protocol": "TCP"}],
                 "resources": {"requests": {"cpu": "1"}}}]}}},
            "status": {"replicas": 2},
        });
        (desired, observed(&fields, &object))
    }

    #[test]
    fn defaults_injected_parts_and_other_spellings_of_a_quantity_are_no_difference() {
        let (desired, observed) = deployment();
        assert!(settled(&desired, &observed, MANAGER));
    }

    #[test]
    fn every_real_difference_is_noticed() {
        type Edit = fn(&mut Value, &mut Value);
        let edits: [(&str, Edit); 9] = [
            ("we want another value", |desired, _| {
                desired["spec"]["replicas"] = json!(3);
            }),
            ("somebody changed our value", |_, observed| {
                observed["spec"]["replicas"] = json!(1);
            }),
            ("we want one field more", |desired, _| {
                desired["spec"]["paused"] = json!(true);
            }),
            ("we no longer want a field", |desired, _| {
                desired["spec"].as_object_mut().unwrap().remove("replicas");
            }),
            ("we no longer want any label", |desired, _| {
                desired["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("labels");
            }),
            ("somebody removed our label", |_, observed| {
                observed["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove("app");
            }),
            ("somebody changed our container", |_, observed| {
                observed["spec"]["template"]["spec"]["containers"][1]["image"] = json!("apache");
            }),
            ("somebody removed our container", |_, observed| {
                observed["spec"]["template"]["spec"]["containers"]
                    .as_array_mut()
                    .unwrap()
                    .pop();
            }),
            ("we never applied it", |_, observed| {
                observed["metadata"]["managedFields"][1]["operation"] = json!("Update");
            }),
        ];
        for (what, edit) in edits {
            let (mut desired, mut observed) = deployment();
            edit(&mut desired, &mut observed);
            assert!(!settled(&desired, &observed, MANAGER), "{what}");
        }
    }

    #[test]
    fn an_atomic_list_must_be_equal_as_a_whole() {
        let fields = json!({"f:spec": {"f:args": {}}});
        let desired = json!({"spec": {"args": ["a"]}});
        for (found, expected) in [(json!(["a"]), true), (json!(["a", "b"]), false)] {
            let observed = observed(&fields, &json!({"metadata": {}, "spec": {"args": found}}));
            assert_eq!(settled(&desired, &observed, MANAGER), expected);
        }
    }

    #[test]
    fn elements_that_others_add_to_a_set_are_theirs() {
        let fields = json!({"f:spec": {"f:hosts": {"v:\"a\"": {}}}});
        let desired = json!({"spec": {"hosts": ["a"]}});
        for (found, expected) in [(json!(["b", "a"]), true), (json!(["b"]), false)] {
            let observed = observed(&fields, &json!({"metadata": {}, "spec": {"hosts": found}}));
            assert_eq!(settled(&desired, &observed, MANAGER), expected);
        }
    }

    #[test]
    fn a_null_is_a_field_that_is_not_set() {
        let fields = json!({"f:spec": {"f:created": {}, "f:volumes": {}, "f:replicas": {}}});
        let desired = json!({"spec": {"created": null, "volumes": [], "replicas": 1}});
        let observed = observed(&fields, &json!({"metadata": {}, "spec": {"replicas": 1}}));
        assert!(settled(&desired, &observed, MANAGER));
    }

    #[test]
    fn an_empty_object_that_we_set_is_a_value() {
        let fields = json!({"f:spec": {"f:emptyDir": {}}});
        let desired = json!({"spec": {"emptyDir": {}}});
        let observed = observed(&fields, &json!({"metadata": {}, "spec": {"emptyDir": {}}}));
        assert!(settled(&desired, &observed, MANAGER));
    }
}
