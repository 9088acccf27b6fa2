//! Jobs that have completed: in another cluster they would run again.

use muster_shared::api::binding::{AggregatedStatusItem, ObjectReference};
use serde_json::Value;

use super::template::{Kind, Template};

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

/// Whether a template is a Job whose status says that it has completed everywhere.
pub fn is_complete_template(template: &Template, kind: &Kind) -> bool {
    is_complete(&template.object(kind)["status"])
}
