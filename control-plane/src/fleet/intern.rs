//! Converts bindings to the form in which they are cached, sharing equal parts.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ReplicaRequirements;
use muster_shared::api::policy::Placement;
use muster_shared::interner::Interner;

/// What many bindings have in common, kept once: each carries two copies of its policy's placement,
/// the second in the annotation that says what was applied last, and most workloads ask for one of
/// a few sizes of pod. Kept with each binding, that is a third of its memory, and nearly all of it
/// where a placement names a thousand clusters.
#[derive(Default)]
pub struct BindingInterner {
    placements: Interner<Placement>,
    applied: Interner<String>,
    requirements: Interner<ReplicaRequirements>,
}

impl BindingInterner {
    /// Shares what a binding has in common with others.
    pub fn share(&self, binding: &mut AnyBinding) {
        if let Some(placement) = &mut binding.spec.placement {
            self.placements.share(placement);
        }
        binding.share_applied_placement(|text| self.applied.share(text));
        if let Some(requirements) = &mut binding.spec.replica_requirements {
            self.requirements.share(requirements);
        }
    }
}
