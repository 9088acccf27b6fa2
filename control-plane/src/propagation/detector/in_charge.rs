//! Finds the policy that claims a template, from the template, its binding and the caches.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::watch::{Doubt, Presence};

use super::controller::Detector;
use super::error::Error;
use super::identity::{Owner, owner};
use super::select::winner;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};

impl Detector {
    /// Returns the claim on a template that is written on its binding, and may not have been
    /// written on the template yet.
    pub(super) fn claim_of_binding(&self, key: &TemplateKey, template: &Template) -> Option<Claim> {
        let held = self.binding_of(key, template)?;
        Claim::on(&held.metadata)
    }

    /// Returns the binding of a template. A binding of its name that belongs to another object is
    /// not returned.
    pub(super) fn binding_of(
        &self,
        key: &TemplateKey,
        template: &Template,
    ) -> Option<Arc<AnyBinding>> {
        let held = self.fleet.bindings.get(&BindingKey::for_template(key))?;
        let uid = template.metadata().uid.as_deref();
        (owner(held.as_ref(), key, uid) == Owner::Template).then_some(held)
    }

    /// Returns the policy of a key, if it is in the cache.
    pub(super) fn policy(&self, key: &PolicyKey) -> Option<Policy> {
        key.presence(&self.fleet).there()
    }

    /// Returns whether a policy does not exist any more. The API is asked for a policy that is not
    /// in the cache, because one that was seen being deleted may have been made again, and a policy
    /// that cannot be read keeps what it has.
    pub(super) async fn is_gone(&self, key: &PolicyKey) -> Result<bool, Error> {
        Ok(match key.presence(&self.fleet) {
            Presence::There(_) | Presence::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. }) => {
                false
            }
            Presence::Gone | Presence::Unknown(Doubt::Unseen | Doubt::Vanished) => {
                key.read(&self.fleet).await?.is_none()
            }
        })
    }

    /// Returns the policy for a template that has none: one of its namespace goes before any
    /// cluster-wide one.
    pub(super) fn match_policy(&self, subject: Subject<'_>) -> Option<Policy> {
        let best = |namespace: Option<&str>| {
            let candidates = self.memory().candidates.of(namespace, subject);
            let policies: Vec<_> = candidates
                .iter()
                .filter_map(|key| self.policy(key))
                .collect();
            winner(&policies, subject).cloned()
        };
        let near = subject
            .namespace
            .and_then(|namespace| best(Some(namespace)));
        near.or_else(|| best(None))
    }
}
