//! A policy of either kind. Namespaced and cluster-wide policies differ in the templates that they
//! can select, and have the same spec.

use std::fmt;
use std::sync::Arc;

use kube::Client;
use kube::api::Api;
use kube::core::ObjectMeta;
use muster_shared::api::any_policy::AnyPropagationPolicy;
use muster_shared::api::policy::{
    ActivationPreference, PropagationSpec, PropagationStatus, ResourceSelector,
};
use muster_shared::api::scope::ResourceScope;
use muster_shared::check::listed;
use muster_shared::client::says_absent;
use muster_shared::events::{EventType, Events};
use muster_shared::watch::{Doubt, Presence};

use super::Fleet;
use super::api_error::ApiError;
use super::selection::given;

/// Override policies that a text names at most.
const MOST_NAMED: usize = 10;

/// Key of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// Namespace of a `PropagationPolicy`, which is also that of the templates that it can select;
    /// `None` for a `ClusterPropagationPolicy`.
    namespace: Option<String>,
    /// Name of the policy.
    name: String,
}

impl PolicyKey {
    /// Makes the key of a policy in a namespace, or of one for the fleet.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the policy's namespace, `None` for a cluster-wide one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the namespace in which a selector of the policy selects: the policy's own, or the
    /// one that the selector of a cluster-wide policy names; `None` for any.
    pub fn namespace_of<'a>(&'a self, selector: &'a ResourceSelector) -> Option<&'a str> {
        self.namespace()
            .or_else(|| given(selector.namespace.as_deref()))
    }

    /// Returns where the policy holds.
    pub fn scope(&self) -> ResourceScope {
        ResourceScope::of(self.namespace())
    }

    /// Returns the API by which the policy is read and written.
    pub fn api(&self, client: &Client) -> Api<AnyPropagationPolicy> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.scope()),
            None => Api::all_with(client.clone(), &self.scope()),
        }
    }

    /// Returns what the cache knows of the policy.
    pub fn presence(&self, fleet: &Fleet) -> Presence<Policy> {
        let policies = fleet.policies.of(self.namespace());
        match policies.presence(self.namespace(), &self.name) {
            Presence::There(found) => Presence::There(Policy(found)),
            Presence::Gone => Presence::Gone,
            Presence::Unknown(doubt) => Presence::Unknown(doubt),
        }
    }

    /// Reads the policy as the API has it now, `None` when the API has none of this name. Its
    /// metadata alone is sent while the cache has the same version.
    pub async fn read(&self, fleet: &Fleet) -> Result<Option<Policy>, ApiError> {
        let policies = fleet.policies.of(self.namespace());
        let held = policies.get(self.namespace(), &self.name);
        let api = self.api(&fleet.client);
        let known = api.get_metadata(&self.name).await;
        let read = match known.map(|it| it.metadata.resource_version) {
            Ok(version)
                if held
                    .as_ref()
                    .is_some_and(|it| it.metadata.resource_version == version) =>
            {
                return Ok(held.map(Policy));
            }
            Ok(_) => api.get(&self.name).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => Ok(Some(Policy(Arc::new(read)))),
            Err(error) if says_absent(&error, &self.name) => Ok(None),
            Err(error) => Err(ApiError::of("read", self)(error)),
        }
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.namespace {
            Some(namespace) => write!(f, "PropagationPolicy {namespace}/{name}"),
            None => write!(f, "ClusterPropagationPolicy {name}"),
        }
    }
}

/// Cached policy of either kind.
#[derive(Clone, Debug)]
pub struct Policy(pub Arc<AnyPropagationPolicy>);

impl Policy {
    /// Returns the key of the policy.
    pub fn key(&self) -> PolicyKey {
        let metadata = self.metadata();
        let name = metadata.name.as_deref().unwrap_or_default();
        PolicyKey::new(metadata.namespace.as_deref(), name)
    }

    /// Returns where the policy holds.
    pub fn scope(&self) -> ResourceScope {
        self.0.scope()
    }

    /// Returns the standard metadata of the policy.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    /// Returns the spec of the policy.
    pub fn spec(&self) -> &PropagationSpec {
        &self.0.spec
    }

    /// Returns the status of the policy, as Muster wrote it last.
    pub fn status(&self) -> Option<&PropagationStatus> {
        self.0.status.as_ref()
    }

    /// Returns whether the policy is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.0.is_deleting()
    }

    /// Returns whether an override policy is in force, or might be: an OverridePolicy of the
    /// namespace for a PropagationPolicy, a ClusterOverridePolicy for a ClusterPropagationPolicy.
    pub fn has_override(&self, fleet: &Fleet, name: &str) -> bool {
        let namespace = self.metadata().namespace.as_deref();
        let overrides = fleet.override_policies.of(namespace);
        match overrides.presence(namespace, name) {
            // It changes nothing any more.
            Presence::There(held) => !held.is_deleting(),
            Presence::Gone => false,
            Presence::Unknown(why) => matches!(why, Doubt::Unreadable { .. }),
        }
    }

    /// Returns in words which override policies of `spec.dependentOverrides` the policy waits for:
    /// those that do not exist or are being deleted, or of which none is known yet.
    pub fn awaited_overrides(&self, fleet: &Fleet) -> Option<String> {
        let names = self.spec().dependent_overrides.iter();
        let names = names.filter(|name| !self.has_override(fleet, name));
        let missing: Vec<&str> = names.map(String::as_str).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "{} waits for the override policies of its spec.dependentOverrides that do not exist or are being deleted: {}",
                self.key(),
                listed(&missing, MOST_NAMED)
            )
        })
    }

    /// Publishes an event about it.
    pub(crate) fn report(&self, events: &Events, kind: EventType, reason: &str, note: String) {
        events.publish_about(self.0.reference(), kind, reason, note);
    }

    /// Returns whether a change of the policy waits for the next change of each template.
    pub fn is_lazy(&self) -> bool {
        self.spec().activation_preference == Some(ActivationPreference::Lazy)
    }
}
