//! What has to be written so that a Work is as it was rendered.

use muster_shared::merge;
use muster_shared::names::{finalizer, label};
use serde_json::{Map, Value, json};

use super::render::{Pairs, Rendered};
use super::works::CachedWork;

/// The whole Work, for one that does not exist yet.
pub fn create(rendered: &Rendered) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "namespace": rendered.namespace,
            "name": rendered.name,
            "labels": rendered.labels,
            "annotations": rendered.annotations,
            "finalizers": [finalizer::WORK],
        },
        "spec": rendered.spec(None),
    })
}

/// The merge patch for an existing Work, `None` when it is as rendered. Labels, annotations and finalizers of others stay.
pub fn patch(work: &CachedWork, rendered: &Rendered) -> Option<Value> {
    let held = &work.metadata;
    let id = held
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::WORK_ID))
        .map(String::as_str);
    let mut metadata = Map::new();
    for (key, held, wanted) in [
        ("labels", held.labels.as_ref(), &rendered.labels),
        (
            "annotations",
            held.annotations.as_ref(),
            &rendered.annotations,
        ),
    ] {
        let missing = missing(held, wanted);
        if !missing.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(missing));
        }
    }
    if !held
        .finalizers
        .iter()
        .flatten()
        .any(|held| held == finalizer::WORK)
    {
        let mut all: Vec<&str> = held
            .finalizers
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        all.push(finalizer::WORK);
        metadata.insert("finalizers".to_owned(), json!(all));
        // The list is replaced as a whole, so nobody else may have changed it meanwhile.
        metadata.insert("resourceVersion".to_owned(), json!(held.resource_version));
    }
    let mut patch = Map::new();
    if let Some(spec) = merge::difference(&held_spec(work), &rendered.spec(id)) {
        patch.insert("spec".to_owned(), spec);
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The part of the spec that we decide.
fn held_spec(work: &CachedWork) -> Value {
    let spec = work.spec();
    let ours = [
        "workload",
        "suspendDispatching",
        "preserveResourcesOnDeletion",
    ];
    ours.into_iter()
        .map(|key| (key.to_owned(), spec[key].clone()))
        .collect()
}

fn missing(held: Option<&Pairs>, wanted: &Pairs) -> Map<String, Value> {
    wanted
        .iter()
        .filter(|(key, value)| held.and_then(|held| held.get(*key)) != Some(value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}
