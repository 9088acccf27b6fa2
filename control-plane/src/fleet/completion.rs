//! Jobs that have completed: in another cluster they would run again.

use muster_shared::api::binding::{AggregatedStatusItem, ObjectReference};

use super::Fleet;
use super::job_status::is_complete;
use super::template::TemplateKey;
use super::template_event::Lookup;

/// Returns whether a resource is a Job.
pub fn is_job(resource: &ObjectReference) -> bool {
    (resource.api_version.as_str(), resource.kind.as_str()) == ("batch/v1", "Job")
}

/// Returns whether a cluster reports a status of the resource.
pub fn has_report(reports: &[AggregatedStatusItem], cluster: &str) -> bool {
    let mut reports = reports.iter();
    reports.any(|it| it.cluster_name == cluster && it.status.is_some())
}

/// Returns whether a cluster reports that the resource is a Job and has completed there.
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

/// Returns whether a Job has completed in every cluster that it was in, by the status of its
/// template: the reports of its clusters are removed when they leave the fleet. `None` means that
/// this cannot be read yet. A template that is not seen may have been left out by a list; if it is
/// gone, garbage collection removes its binding.
pub fn has_completed_by_template(fleet: &Fleet, resource: &ObjectReference) -> Option<bool> {
    if !is_job(resource) {
        return Some(false);
    }
    let key = TemplateKey::of(resource);
    match fleet.templates.get(&key) {
        Lookup::Found(template) => {
            let is_same = template.metadata().uid == resource.uid;
            Some(is_same && template.is_complete())
        }
        Lookup::Absent | Lookup::Unknown => None,
    }
}
