//! Jobs that have completed stay where they are placed.

use muster_shared::api::binding::Binding;

use crate::fleet::Fleet;
use crate::fleet::completion::{has_completed, has_completed_by_template, has_report, is_job};

/// Whether a binding is that of a Job which has completed in each of its clusters. Wherever it were
/// placed instead, it would run again. The template says so when a cluster has left the fleet, and
/// its report with it; also when all have.
pub(super) fn has_completed_everywhere<B: Binding>(fleet: &Fleet, binding: &B) -> bool {
    let (spec, reports) = (binding.spec(), &binding.status().aggregated_status);
    if !is_job(&spec.resource) {
        return false;
    }
    let completed = |name: &str| has_completed(&spec.resource, reports, name);
    let all = |test: &dyn Fn(&str) -> bool| spec.clusters.iter().all(|it| test(&it.name));
    if all(&completed) && !spec.clusters.is_empty() {
        return true;
    }
    // A cluster that reports something else runs it anew.
    all(&|name| completed(name) || !has_report(reports, name))
        && has_completed_by_template(fleet, &spec.resource) == Some(true)
}
