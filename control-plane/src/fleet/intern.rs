//! Converts bindings to the form in which they are cached, sharing equal parts.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ReplicaRequirements;
use muster_shared::api::policy::Placement;
use muster_shared::interner::Interner;

/// What many bindings have in common, kept once: each carries a copy of its policy's placement, and
/// most workloads ask for one of a few sizes of pod. Kept with each binding, the two are a third of
/// its memory.
#[derive(Default)]
pub struct BindingInterner {
    placements: Interner<Placement>,
    requirements: Interner<ReplicaRequirements>,
}

impl BindingInterner {
    /// Shares what a binding has in common with others.
    pub fn share(&self, binding: &mut AnyBinding) {
        if let Some(placement) = &mut binding.spec.placement {
            self.placements.share(placement);
        }
        if let Some(requirements) = &mut binding.spec.replica_requirements {
            self.requirements.share(requirements);
        }
    }
}
