//! Interpreters of the users, which are objects of the fleet API.

use std::sync::Arc;

use super::webhook::{Hook, Hooks};
use crate::lua::Rules;

/// Interpreters of the users: scripts of customizations, and webhooks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Scripts of the customizations; `None` until it is known which there are.
    pub(super) scripts: Option<Arc<Rules>>,
    /// Webhooks; `None` until it is known which there are.
    pub(super) hooks: Option<Arc<Hooks>>,
}

impl Layers {
    /// Returns whether it is known which there are.
    pub fn are_known(&self) -> bool {
        self.scripts.is_some() && self.hooks.is_some()
    }

    /// Returns the scripts; none before they are known.
    pub fn scripts(&self) -> Arc<Rules> {
        self.scripts.clone().unwrap_or_default()
    }

    /// Returns the webhooks; none before they are known.
    pub fn hooks(&self) -> Arc<Hooks> {
        self.hooks.clone().unwrap_or_default()
    }

    /// Returns whether the interpreters of a kind are the same in `other`.
    pub fn is_same_for(&self, other: &Self, api_version: &str, kind: &str) -> bool {
        let (scripts, hooks) = (self.scripts(), self.hooks());
        scripts.is_same_for(&other.scripts(), api_version, kind)
            && hooks.is_same_for(&other.hooks(), api_version, kind)
    }
}

/// Kinds whose interpreters have changed.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Kinds whose scripts have changed.
    kinds: Vec<(String, String)>,
    /// Webhooks that came or went. They may name every kind.
    hooks: Vec<Arc<Hook>>,
}

impl Changed {
    /// Compares what there was with what there is.
    pub(super) fn between(old: &Layers, new: &Layers) -> Self {
        let (before, after) = (old.hooks(), new.hooks());
        let mut hooks = before.without(&after);
        hooks.extend(after.without(&before));
        Self {
            kinds: new.scripts().differences(&old.scripts()),
            hooks,
        }
    }

    /// Names the kinds of all of these webhooks.
    pub(super) fn by_hooks(hooks: &Hooks) -> Self {
        Self {
            kinds: Vec::new(),
            hooks: hooks.without(&Hooks::default()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.hooks.is_empty()
    }

    /// Returns whether a kind is among them.
    pub fn has(&self, api_version: &str, kind: &str) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|(of, name)| of == api_version && name == kind)
            || self.hooks.iter().any(|it| it.concerns(api_version, kind))
    }
}
