//! Finds the policy that claims a template, from the template, its binding and the caches.

use std::sync::Arc;

use kube::api::Api;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use muster_shared::client::says_absent;
use muster_shared::watch::{Doubt, Presence};

use super::controller::Detector;
use super::error::Error;
use super::identity::{Owner, owner};
use super::select::winner;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, BindingKind};
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};

impl Detector {
    /// The claim on a template that was not written on it yet.
    pub(super) fn claim_of_binding(&self, key: &TemplateKey, template: &Template) -> Option<Claim> {
        if key.namespace.is_some() {
            let held = self.binding_of::<ResourceBinding>(key, template)?;
            Claim::on(&held.metadata)
        } else {
            let held = self.binding_of::<ClusterResourceBinding>(key, template)?;
            Claim::on(&held.metadata)
        }
    }

    pub(super) fn has_binding(&self, key: &TemplateKey, template: &Template) -> bool {
        if key.namespace.is_some() {
            self.binding_of::<ResourceBinding>(key, template).is_some()
        } else {
            self.binding_of::<ClusterResourceBinding>(key, template)
                .is_some()
        }
    }

    /// The binding of a template: one of its name that is another object's is not.
    pub(super) fn binding_of<B: BindingKind>(
        &self,
        key: &TemplateKey,
        template: &Template,
    ) -> Option<Arc<B>> {
        let name = BindingKey::for_template(key).name;
        let held = B::cache(&self.fleet).get(key.namespace.as_deref(), &name)?;
        let uid = template.metadata().uid.as_deref();
        (owner(held.as_ref(), key, uid) == Owner::Template).then_some(held)
    }

    /// The policy by name.
    pub(super) fn policy(&self, key: &PolicyKey) -> Option<Policy> {
        self.presence(key).there()
    }

    /// What is known of a policy by its name.
    pub(super) fn presence(&self, key: &PolicyKey) -> Presence<Policy> {
        fn as_policy<K>(found: Presence<Arc<K>>, policy: fn(Arc<K>) -> Policy) -> Presence<Policy> {
            match found {
                Presence::There(found) => Presence::There(policy(found)),
                Presence::Gone => Presence::Gone,
                Presence::Unknown(doubt) => Presence::Unknown(doubt),
            }
        }
        match key {
            PolicyKey::Namespaced { namespace, name } => as_policy(
                self.fleet.policies.presence(Some(namespace), name),
                Policy::Namespaced,
            ),
            PolicyKey::Cluster { name } => as_policy(
                self.fleet.cluster_policies.presence(None, name),
                Policy::Cluster,
            ),
        }
    }

    /// Whether a policy is no more. One that merely is not in the cache is asked for: a policy that
    /// cannot be read keeps what it has.
    pub(super) async fn is_gone(&self, key: &PolicyKey) -> Result<bool, Error> {
        match self.presence(key) {
            Presence::There(_) | Presence::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. }) => {
                return Ok(false);
            }
            Presence::Gone => return Ok(true),
            Presence::Unknown(Doubt::Unseen | Doubt::Vanished) => {}
        }
        let client = self.fleet.client.clone();
        let found = match key {
            PolicyKey::Namespaced { namespace, name } => {
                let api: Api<PropagationPolicy> = Api::namespaced(client, namespace);
                api.get_metadata(name).await.map(drop)
            }
            PolicyKey::Cluster { name } => {
                let api: Api<ClusterPropagationPolicy> = Api::all(client);
                api.get_metadata(name).await.map(drop)
            }
        };
        match found {
            Ok(()) => Ok(false),
            Err(error) if says_absent(&error, key.name()) => Ok(true),
            Err(error) => Err(ApiError::of("look for", key)(error).into()),
        }
    }

    /// The policy for a template that has none: one of its namespace before any cluster-wide one.
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
