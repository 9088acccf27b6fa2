//! Converts bindings to the form in which they are cached, sharing equal parts.

use std::sync::Arc;

use muster_shared::api::binding::{Binding, ReplicaRequirements};
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
    /// Brings the bindings of a kind into the form.
    pub fn form<B: Binding>(self: &Arc<Self>) -> impl Fn(&mut B) + Send + Sync + 'static {
        let common = Arc::clone(self);
        move |binding| {
            let spec = binding.spec_mut();
            if let Some(placement) = &mut spec.placement {
                common.placements.share(placement);
            }
            if let Some(requirements) = &mut spec.replica_requirements {
                common.requirements.share(requirements);
            }
        }
    }
}
