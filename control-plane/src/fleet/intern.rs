//! Converts bindings to the form in which they are cached.

use std::sync::Arc;

use muster_shared::api::any_binding::{AnyBinding, Common};
use muster_shared::api::binding::ReplicaRequirements;
use muster_shared::api::policy::Placement;
use muster_shared::interner::Interner;
use muster_shared::watch::packing::{Codec, Parts};

/// What many bindings have in common, kept once. Kept with each binding, it is most of its memory
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
        let mut common = binding.take_common();
        if let Some(placement) = &mut common.placement {
            self.placements.share(placement);
        }
        if let Some(applied) = &mut common.applied_placement {
            self.applied.share(applied);
        }
        if let Some(requirements) = &mut common.requirements {
            self.requirements.share(requirements);
        }
        binding.put_common(common);
    }
}

/// Returns the codec of bindings: text without what they share, and that beside it.
pub fn codec() -> Codec<AnyBinding> {
    Codec {
        pack: |binding| {
            let mut binding = binding.clone();
            let common = binding.take_common();
            Ok(Parts {
                text: serde_json::to_vec(&binding)?,
                shared: Some(Arc::new(common)),
                ..Parts::default()
            })
        },
        unpack: |text, shared| {
            let mut binding: AnyBinding = serde_json::from_slice(text)?;
            let common = shared.and_then(|it| it.downcast_ref::<Common>());
            binding.put_common(common.cloned().unwrap_or_default());
            Ok(binding)
        },
    }
}
