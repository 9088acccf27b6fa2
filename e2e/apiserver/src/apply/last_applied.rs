//! The bridge from client-side to server-side apply: what the annotation of `kubectl apply` says,
//! kubectl may take.

use serde_json::{Value, json};

use super::conflict::Found;
use super::set::FieldSet;
use super::{Request, combine, typed};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The one manager that is trusted to have written the annotation.
const KUBECTL: &str = "kubectl";

/// Returns the conflicts that remain when kubectl takes over what it applied from the client's side
/// before.
pub fn unresolved(request: &Request<'_>, conflicts: Vec<Found>) -> Vec<Found> {
    let Some(allowed) = (request.manager == KUBECTL)
        .then(|| last_applied_set(request))
        .flatten()
    else {
        return conflicts;
    };
    conflicts
        .into_iter()
        .filter(|conflict| {
            let mut single = FieldSet::default();
            single.insert(&conflict.path);
            !single.difference(&allowed).is_empty()
        })
        .collect()
}

/// Fields that the annotation names and that still have the value that it gives them.
fn last_applied_set(request: &Request<'_>) -> Option<FieldSet> {
    let annotation = request.live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    if last["apiVersion"] != request.api_version {
        return None;
    }
    let at = request.schema.root();
    let comparison = combine::compare(at, &last, request.live);
    let set = typed::to_set(at, &last);
    Some(
        set.difference(&comparison.modified)
            .difference(&comparison.added)
            .difference(&comparison.removed),
    )
}

/// Keeps the annotation true where there is one, so that client-side apply can go on from here.
pub fn renew(object: &mut Value, manager: &str, config: &Value) {
    let present = object["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .is_some_and(|text| !text.is_empty());
    if manager != KUBECTL || !present {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            config["metadata"]
                .as_object_mut()
                .map(|metadata| metadata.remove("annotations"));
        }
    }
    object["metadata"]["annotations"][ANNOTATION] = json!(format!("{config}\n"));
}
