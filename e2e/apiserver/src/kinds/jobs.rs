//! Jobs.

use serde_json::Value;

use super::Strategy;
use crate::context::RequestContext;

pub(super) struct Jobs;

impl Strategy for Jobs {
    fn prepare_for_create(&self, object: &mut Value) {
        if object["spec"]["manualSelector"].is_null() {
            object["spec"]["manualSelector"] = false.into();
        }
    }

    fn complete(&self, _: &RequestContext<'_>, object: &mut Value) {
        generate_selector(object);
    }
}

/// Generates the selector by which a job finds its pods by its own identity, unless its author
/// wants otherwise.
fn generate_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (
        job["metadata"]["name"].clone(),
        job["metadata"]["uid"].clone(),
    );
    let labels = &mut job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = value.clone();
    }
    let labels = labels.clone();
    if job["metadata"]["labels"].is_null() {
        job["metadata"]["labels"] = labels;
    }
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
}
