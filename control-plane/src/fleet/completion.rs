//! Jobs that have completed: in another cluster they would run again.

use muster_shared::api::binding::{AggregatedStatusItem, ObjectReference};
use serde_json::Value;

use super::Fleet;
use super::template::{Kind, Template, TemplateKey};
use super::template_event::Lookup;

/// Conditions of a Job that has succeeded, or certainly will: `SuccessCriteriaMet` comes first, and
/// `Complete` when the last pods have ended (KEP-3998).
const ENDS: [&str; 2] = ["Complete", "SuccessCriteriaMet"];

/// Whether a resource is a Job.
pub fn is_job(resource: &ObjectReference) -> bool {
    (resource.api_version.as_str(), resource.kind.as_str()) == ("batch/v1", "Job")
}

/// Whether the status of a Job says that it has completed.
pub fn is_complete(status: &Value) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["status"] == "True" && ENDS.iter().any(|end| condition["type"] == *end)
    })
}

/// Whether a cluster reports that the resource is a Job and has completed there.
pub fn has_completed(
    resource: &ObjectReference,
    reports: &[AggregatedStatusItem],
    cluster: &str,
) -> bool {
    is_job(resource)
        && reports
            .iter()
            .filter(|report| report.cluster_name == cluster)
            .filter_map(|report| report.status.as_ref())
            .any(|status| is_complete(&status.0))
}

/// Whether a Job has completed in every cluster that it was in, by the status of its template: its
/// clusters' reports go when they leave the fleet. `None`: that cannot be read yet.
pub fn has_completed_by_template(fleet: &Fleet, resource: &ObjectReference) -> Option<bool> {
    if !is_job(resource) {
        return Some(false);
    }
    let key = TemplateKey::of(resource);
    match fleet.templates.get(&key) {
        Lookup::Found(template) => {
            let is_same = template.metadata().uid == resource.uid;
            Some(is_same && is_complete_template(&template, &key.kind))
        }
        Lookup::Absent => Some(false),
        Lookup::Unknown => None,
    }
}

/// Whether a template is a Job whose status says that it has completed everywhere.
fn is_complete_template(template: &Template, kind: &Kind) -> bool {
    is_complete(&template.object(kind)["status"])
}
