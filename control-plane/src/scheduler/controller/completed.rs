//! Jobs that have completed stay where they are placed.

use muster_shared::api::binding::Binding;

use crate::fleet::Fleet;
use crate::fleet::completion::{has_completed, is_complete_template, is_job};
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;

/// Whether a binding is that of a Job which has completed in each of its clusters. Wherever it were
/// placed instead, it would run again. The template says so when a cluster has left the fleet, and
/// its report with it.
pub(super) fn has_completed_everywhere<B: Binding>(fleet: &Fleet, binding: &B) -> bool {
    let (spec, reports) = (binding.spec(), &binding.status().aggregated_status);
    if !is_job(&spec.resource) || spec.clusters.is_empty() {
        return false;
    }
    let mut targets = spec.clusters.iter();
    if targets.all(|target| has_completed(&spec.resource, reports, &target.name)) {
        return true;
    }
    let key = TemplateKey::of(&spec.resource);
    match fleet.templates.get(&key) {
        Lookup::Found(template) => {
            template.metadata().uid == spec.resource.uid
                && is_complete_template(&template, &key.kind)
        }
        Lookup::Absent | Lookup::Unknown => false,
    }
}
