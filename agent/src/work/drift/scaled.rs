//! Replicas that an autoscaler in the member has set. Pure.
//!
//! Whoever scales an object there, through its subresource `scale`, keeps what it has set: an agent
//! that scaled back would fight it for ever. A number in the manifest that changes afterwards is a
//! newer order, and counts until somebody scales again. An annotation remembers the number that was
//! left alone.

use std::borrow::Cow;

use muster_shared::names::annotation;
use serde_json::{Map, Value, json};

use super::settled::owned_fields;
use crate::work::member::FIELD_MANAGER;
use crate::work::ownership;

/// Field manager of the autoscaler of Kubernetes. Servers before 1.22 do not record that it writes
/// through the subresource.
const AUTOSCALER: &str = "kube-controller-manager";

/// Returns the desired state without the numbers that an autoscaler has set since they were applied
/// last, and with the annotation that remembers them.
pub fn without_scaled<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    let Some((_, left)) = scaler(&desired, observed) else {
        return desired;
    };
    let note = Value::from(left.clone()).to_string();
    let known = ownership::annotation(observed, annotation::LEFT_TO_AUTOSCALER);
    if known.is_some_and(|known| known != note) {
        return desired;
    }
    let mut desired = desired.into_owned();
    for path in left.keys() {
        remove(&mut desired, path);
    }
    let annotations = &mut desired["metadata"]["annotations"];
    annotations[annotation::LEFT_TO_AUTOSCALER] = json!(note);
    Cow::Owned(desired)
}

/// Returns the field manager that has scaled an object, and the numbers that are desired instead,
/// by their paths; `None` if nobody has since they were applied.
pub fn scaler<'a>(desired: &Value, observed: &'a Value) -> Option<(&'a str, Map<String, Value>)> {
    let entries = observed.pointer("/metadata/managedFields")?.as_array()?;
    entries.iter().find_map(|entry| {
        let manager = entry["manager"].as_str()?;
        let subresource = entry["subresource"].as_str().unwrap_or_default();
        let fields = entry["fieldsV1"].as_object()?;
        let scales = match subresource {
            "scale" => true,
            "" => manager == AUTOSCALER && fields.keys().eq(["f:spec"]),
            _ => false,
        };
        if !scales || entry["operation"] != "Update" {
            return None;
        }
        let ours = owned_fields(observed, FIELD_MANAGER);
        let mut left = Map::new();
        numbers(desired, fields, ours, "", &mut left);
        (!left.is_empty()).then_some((manager, left))
    })
}

/// Collects the desired numbers that a set of fields has, and the agent's own has not.
fn numbers(
    desired: &Value,
    fields: &Map<String, Value>,
    ours: Option<&Map<String, Value>>,
    path: &str,
    found: &mut Map<String, Value>,
) {
    for (key, below) in fields {
        let Some((name, wanted)) = key
            .strip_prefix("f:")
            .and_then(|name| Some((name, desired.get(name)?)))
        else {
            continue;
        };
        let ours = ours
            .and_then(|ours| ours.get(key))
            .and_then(Value::as_object);
        let path = format!("{path}.{name}");
        match below.as_object() {
            Some(below) if !below.is_empty() => numbers(wanted, below, ours, &path, found),
            Some(_) if wanted.is_number() && ours.is_none() => {
                found.insert(path, wanted.clone());
            }
            _ => {}
        }
    }
}

fn remove(object: &mut Value, path: &str) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = object.pointer_mut(&parent.replace('.', "/"));
    if let Some(parent) = parent.and_then(Value::as_object_mut) {
        parent.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(replicas: u32) -> Value {
        json!({"metadata": {"name": "web", "annotations": {"a": "b"}}, "spec": {"replicas": replicas, "paused": false}})
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields})
    }

    fn observed(note: Option<&str>, entries: &[Value]) -> Value {
        json!({"metadata": {"annotations": {annotation::LEFT_TO_AUTOSCALER: note}, "managedFields": entries},
            "spec": {"replicas": 7, "paused": false}})
    }

    #[test]
    fn what_an_autoscaler_has_set_stays_until_the_manifest_changes() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let paused = json!({"f:spec": {"f:paused": {}}});
        let ours = |fields: &Value| entry(FIELD_MANAGER, "Apply", "", fields);
        let scaled = entry("hpa", "Update", "scale", &replicas);
        let left = r#"{".spec.replicas":3}"#;
        for (what, note, entries, stays) in [
            ("scaled", None, vec![ours(&paused), scaled.clone()], true),
            (
                "left alone before",
                Some(left),
                vec![ours(&paused), scaled.clone()],
                true,
            ),
            (
                "another number then",
                Some(r#"{".spec.replicas":2}"#),
                vec![ours(&paused), scaled.clone()],
                false,
            ),
            ("applied since", None, vec![ours(&replicas), scaled], false),
            (
                "before 1.22",
                None,
                vec![ours(&paused), entry(AUTOSCALER, "Update", "", &replicas)],
                true,
            ),
            (
                "a person edits it",
                None,
                vec![
                    ours(&paused),
                    entry("kubectl-edit", "Update", "", &replicas),
                ],
                false,
            ),
            (
                "a status",
                None,
                vec![ours(&paused), entry("hpa", "Update", "status", &replicas)],
                false,
            ),
        ] {
            let (wanted, observed) = (desired(3), observed(note, &entries));
            let after = without_scaled(Cow::Borrowed(&wanted), &observed);
            let mut expected = wanted.clone();
            if stays {
                expected["spec"].as_object_mut().unwrap().remove("replicas");
                expected["metadata"]["annotations"][annotation::LEFT_TO_AUTOSCALER] = json!(left);
            }
            assert_eq!(*after, expected, "{what}");
        }
    }
}
