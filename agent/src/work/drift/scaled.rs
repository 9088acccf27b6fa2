//! Replicas that an autoscaler in the member has set. Pure.
//!
//! Whoever scales an object there, through its subresource `scale`, keeps what it has set: an agent
//! that scaled back would fight it for ever. So does what the agent gave back to an object that it
//! had stopped while its member was cut off. A number in the manifest that was not applied yet is a
//! newer order, and counts until somebody scales again. An annotation remembers the number that was
//! applied last; it is written whenever the object is.

use std::borrow::Cow;

use muster_shared::names::{annotation, api_group};
use serde_json::{Map, Value, json};

use super::settled::owned_fields;
use crate::work::managed_fields::entries;
use crate::work::member::FIELD_MANAGER;
use crate::work::ownership;

pub use muster_shared::work_status::REPLICAS_LEFT as LEFT_TO;

/// Kinds of Kubernetes that can be scaled, by `.spec.replicas`.
const BUILT_IN: [(&str, &str); 4] = [
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
];

/// Returns the desired state without the number that an autoscaler has set since it was applied,
/// and with the annotation that remembers it where the object has one.
pub fn without_scaled<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    if ownership::annotation(observed, annotation::LEFT_TO_AUTOSCALER).is_none() {
        return desired;
    }
    let is_left = left_to(&desired, observed).is_some();
    let mut noted = with_note(desired.clone().into_owned(), &desired, observed);
    if let Some(field) = scaled_field(&noted, observed).filter(|_| is_left)
        && let Some(spec) = noted["spec"].as_object_mut()
    {
        spec.remove(&field);
    }
    Cow::Owned(noted)
}

/// Returns an object for those rules by which its member decides on its number: where it has none
/// because none was applied last, it has what its manifest asks for by now. Nobody in the member
/// decided on that, and no autoscaler starts what it has not stopped.
pub fn with_start<'a>(desired: &Value, observed: &'a Value) -> Cow<'a, Value> {
    let Some(field) = scaled_field(desired, observed) else {
        return Cow::Borrowed(observed);
    };
    let asked = &desired["spec"][&field];
    let none = json!({ (format!(".spec.{field}")): 0 }).to_string();
    let known = ownership::annotation(observed, annotation::LEFT_TO_AUTOSCALER);
    let is_empty = known == Some(none.as_str()) && observed["spec"][&field] == 0;
    if !is_empty || !asked.is_number() {
        return Cow::Borrowed(observed);
    }
    let mut started = observed.clone();
    started["spec"][&field] = asked.clone();
    Cow::Owned(started)
}

/// Returns what is applied with the annotation that remembers the number of the desired state, if
/// it has one that is scaled. `observed` is null for an object that is made.
pub fn with_note(mut apply: Value, desired: &Value, observed: &Value) -> Value {
    if let Some(note) = note(desired, observed) {
        apply["metadata"]["annotations"][annotation::LEFT_TO_AUTOSCALER] = json!(note);
    }
    apply
}

/// Returns the field manager that has scaled an object since the number of its manifest was
/// applied, so that the agent leaves the number to it. The number of the manifest itself, which the
/// agent gives back after a stop, is left to nobody.
pub fn left_to<'a>(manifest: &Value, observed: &'a Value) -> Option<&'a str> {
    if !is_noted(manifest, observed) {
        return None;
    }
    let field = scaled_field(manifest, observed)?;
    if is_applied(observed, &field) {
        return None;
    }
    let owned = format!("f:{field}");
    let is_manifests = manifest["spec"].get(&field) == observed["spec"].get(&field);
    let mut scaled =
        scaled(observed).filter(|(manager, _)| *manager != FIELD_MANAGER || !is_manifests);
    scaled.find_map(|(manager, fields)| fields.get("f:spec")?.get(&owned).and(Some(manager)))
}

/// Returns a merge patch without the removal of the number of an object that the agent has not
/// applied: an autoscaler has set it, or the agent has given it back after a stop.
pub fn without_reset(mut patch: Value, observed: &Value) -> Value {
    let field = scaled_field(&patch, observed).filter(|it| !is_applied(observed, it));
    if let Some(field) = field
        && let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get(&field).is_some_and(Value::is_null)
    {
        spec.remove(&field);
    }
    patch
}

/// Returns whether the agent has applied a field of the spec.
fn is_applied(observed: &Value, field: &str) -> bool {
    let spec = owned_fields(observed).and_then(|ours| ours.get("f:spec"));
    spec.is_some_and(|spec| spec.get(format!("f:{field}")).is_some())
}

/// Returns whether an object that is stopped had a number that was left to somebody, by the patch
/// that undoes its stop: another one than its manifest has, which has not changed since.
pub fn was_left(manifest: &Value, observed: &Value, undo: &Value) -> bool {
    let number = |it: &Value| it["spec"].get(scaled_field(manifest, observed)?).cloned();
    let was = number(undo).filter(Value::is_number);
    is_noted(manifest, observed) && was.is_some_and(|was| number(manifest) != Some(was))
}

/// Returns whether the number of a manifest is the one that was applied last.
fn is_noted(manifest: &Value, observed: &Value) -> bool {
    let known = ownership::annotation(observed, annotation::LEFT_TO_AUTOSCALER);
    known.is_some() && note(manifest, observed).as_deref() == known
}

/// Returns the note about the number of a manifest; `None` if it has none that is scaled.
fn note(manifest: &Value, observed: &Value) -> Option<String> {
    let field = scaled_field(manifest, observed)?;
    let number = manifest["spec"].get(&field).filter(|it| it.is_number())?;
    Some(json!({ (format!(".spec.{field}")): number }).to_string())
}

/// Returns the name of the number under `.spec` that is scaled. That of a kind which Kubernetes
/// does not have is known once somebody has scaled an object of it.
pub fn scaled_field(manifest: &Value, observed: &Value) -> Option<String> {
    let api_version = manifest["apiVersion"].as_str()?;
    let group = api_group(api_version);
    if BUILT_IN.contains(&(group, manifest["kind"].as_str()?)) {
        return Some("replicas".to_owned());
    }
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return None;
    }
    let known = ownership::annotation(observed, annotation::LEFT_TO_AUTOSCALER);
    let noted = known.and_then(|known| {
        let known: Map<String, Value> = serde_json::from_str(known).ok()?;
        let path = known.keys().next()?;
        Some(path.strip_prefix(".spec.")?.to_owned())
    });
    noted.or_else(|| scaled(observed).find_map(|(_, fields)| only_field(fields)))
}

/// Returns the field under `.spec` that a set of fields names, if it names nothing else.
fn only_field(fields: &Map<String, Value>) -> Option<String> {
    let spec = fields.get("f:spec")?.as_object()?;
    let (name, below) = spec.iter().next()?;
    let is_only = fields.len() == 1 && spec.len() == 1 && *below == json!({});
    Some(name.strip_prefix("f:").filter(|_| is_only)?.to_owned())
}

/// Returns the field managers that have scaled an object, and the fields that they own by that. The
/// agent itself updates nothing of a spec but what it gives back after a stop, and what it writes
/// where an apply is refused: the numbers of the manifest.
fn scaled(observed: &Value) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    let scales =
        |entry: &Value| entry["subresource"] == "scale" || entry["manager"] == FIELD_MANAGER;
    entries(observed)
        .iter()
        .filter(move |entry| entry["operation"] == "Update" && scales(entry))
        .filter_map(|entry| Some((entry["manager"].as_str()?, entry["fieldsV1"].as_object()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(replicas: u32) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {"a": "b"}},
            "spec": {"replicas": replicas, "minReadySeconds": 1}})
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields})
    }

    fn observed(note: Option<&str>, entries: &[Value]) -> Value {
        json!({"metadata": {"annotations": {annotation::LEFT_TO_AUTOSCALER: note}, "managedFields": entries},
            "spec": {"replicas": 7, "minReadySeconds": 1}})
    }

    const THREE: &str = r#"{".spec.replicas":3}"#;

    /// Fields of the objects here that somebody owns.
    fn owned(name: &str) -> Value {
        json!({"f:spec": {(format!("f:{name}")): {}}})
    }

    #[test]
    fn what_an_autoscaler_has_set_stays_until_the_manifest_has_a_number_that_was_not_applied() {
        let replicas = owned("replicas");
        let rest = entry(FIELD_MANAGER, "Apply", "", &owned("minReadySeconds"));
        let scaled = entry("hpa", "Update", "scale", &replicas);
        let updated = |manager: &str, subresource: &str| {
            let other = entry(manager, "Update", subresource, &replicas);
            vec![rest.clone(), other]
        };
        let both = vec![rest.clone(), scaled.clone()];
        let applied = vec![entry(FIELD_MANAGER, "Apply", "", &replicas), scaled];
        let (two, three) = (Some(r#"{".spec.replicas":2}"#), Some(THREE));
        let given_back = updated(FIELD_MANAGER, "");
        let no_scale = updated("kube-controller-manager", "");
        for (what, note, entries, stays) in [
            ("scaled since", three, both.clone(), true),
            ("another number then", two, both.clone(), false),
            ("it is not known which", None, both, false),
            ("given back after a stop", three, given_back, true),
            ("applied since", three, applied, false),
            ("no scale", three, no_scale, false),
            ("a person edits", three, updated("kubectl-edit", ""), false),
            ("a status", three, updated("hpa", "status"), false),
        ] {
            let (wanted, observed) = (desired(3), observed(note, &entries));
            let after = without_scaled(Cow::Borrowed(&wanted), &observed);
            let mut expected = wanted.clone();
            if stays {
                expected["spec"].as_object_mut().unwrap().remove("replicas");
            }
            if note.is_some() {
                expected["metadata"]["annotations"][annotation::LEFT_TO_AUTOSCALER] = json!(THREE);
            }
            assert_eq!(*after, expected, "{what}");
            let manager = stays.then_some(if what == "given back after a stop" {
                FIELD_MANAGER
            } else {
                "hpa"
            });
            assert_eq!(left_to(&wanted, &observed), manager, "{what}");
        }
    }

    #[test]
    fn the_number_of_the_manifest_that_was_given_back_after_a_stop_is_left_to_nobody() {
        let entries = [entry(FIELD_MANAGER, "Update", "", &owned("replicas"))];
        let observed = observed(Some(r#"{".spec.replicas":7}"#), &entries);
        assert_eq!(left_to(&desired(7), &observed), None);
    }

    #[test]
    fn a_number_that_was_not_applied_is_not_reset_by_a_patch_without_it() {
        let (number, ready) = (owned("replicas"), owned("minReadySeconds"));
        for (what, applied, kind, is_reset) in [
            ("given back after a stop", &ready, "Deployment", false),
            ("applied, and dropped since", &number, "Deployment", true),
            ("a kind that is not scaled", &ready, "DaemonSet", true),
        ] {
            let entries = [
                entry(FIELD_MANAGER, "Apply", "", applied),
                entry(FIELD_MANAGER, "Update", "", &number),
            ];
            let spec = json!({"replicas": null, "minReadySeconds": null});
            let patch = json!({"apiVersion": "apps/v1", "kind": kind, "spec": spec});
            let after = without_reset(patch, &observed(None, &entries));
            assert_eq!(after["spec"].get("replicas").is_some(), is_reset, "{what}");
            assert!(after["spec"].get("minReadySeconds").is_some(), "{what}");
        }
    }

    #[test]
    fn only_a_number_that_is_scaled_can_be_left_to_anybody() {
        let many = json!({"f:spec": {"f:size": {}, "f:limit": {}}});
        let deep = json!({"f:spec": {"f:size": {"f:min": {}}}});
        let ready = owned("minReadySeconds");
        for (api_version, kind, fields, noted) in [
            ("apps/v1", "Deployment", ready.clone(), Some("replicas")),
            ("apps/v1", "DaemonSet", ready, None),
            ("batch/v1", "Job", owned("parallelism"), None),
            ("policy.k8s.io/v1", "Thing", owned("size"), None),
            ("example.io/v1", "Thing", owned("size"), Some("size")),
            ("example.io/v1", "Thing", many, None),
            ("example.io/v1", "Thing", deep, None),
            ("example.io/v1", "Thing", json!({"f:data": {}}), None),
        ] {
            let spec = json!({"replicas": 3, "minReadySeconds": 1, "parallelism": 2, "size": 4, "limit": 5});
            let manifest = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            let entries = [entry("anybody", "Update", "scale", &fields)];
            let found = note(&manifest, &observed(None, &entries));
            let expected =
                noted.map(|name| json!({(format!(".spec.{name}")): spec[name]}).to_string());
            assert_eq!(found, expected, "{kind} {fields}");
            let known = observed(found.as_deref(), &entries);
            let is_left = noted == Some("size");
            let found = left_to(&manifest, &known);
            assert_eq!(found.is_some(), is_left, "{kind} {fields}");
        }
    }
}
