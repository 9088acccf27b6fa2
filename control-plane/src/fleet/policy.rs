//! A policy of either kind. Namespaced and cluster-wide policies differ in the templates that they
//! can select, and have the same spec.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::Api;
use kube::core::ObjectMeta;
use muster_shared::api::policy::{
    ActivationPreference, ClusterPropagationPolicy, PropagationPolicy, PropagationSpec,
    PropagationStatus,
};
use muster_shared::client::says_absent;
use muster_shared::events::{EventType, Events};
use muster_shared::watch::{Followed, Informer, Presence};

use super::Fleet;
use super::api_error::ApiError;

/// Key of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKey {
    /// Key of a `PropagationPolicy`.
    Namespaced {
        /// Namespace, which is also that of the templates that it can select.
        namespace: String,
        /// Name of the policy.
        name: String,
    },
    /// Key of a `ClusterPropagationPolicy`.
    Cluster {
        /// Name of the policy.
        name: String,
    },
}

impl PolicyKey {
    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Namespaced { name, .. } | Self::Cluster { name } => name,
        }
    }

    /// Returns the policy's namespace, `None` for a cluster-wide one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespaced { namespace, .. } => Some(namespace),
            Self::Cluster { .. } => None,
        }
    }

    /// Returns what the cache knows of the policy.
    pub fn presence(&self, fleet: &Fleet) -> Presence<Policy> {
        fn of<K: Followed>(
            policies: &Informer<K>,
            key: &PolicyKey,
            policy: fn(Arc<K>) -> Policy,
        ) -> Presence<Policy> {
            match policies.presence(key.namespace(), key.name()) {
                Presence::There(found) => Presence::There(policy(found)),
                Presence::Gone => Presence::Gone,
                Presence::Unknown(doubt) => Presence::Unknown(doubt),
            }
        }
        match self {
            Self::Namespaced { .. } => of(&fleet.policies, self, Policy::Namespaced),
            Self::Cluster { .. } => of(&fleet.cluster_policies, self, Policy::Cluster),
        }
    }

    /// Reads the policy as the API has it now, `None` when the API has none of this name. Its
    /// metadata alone is sent while the cache has the same version.
    pub async fn read(&self, fleet: &Fleet) -> Result<Option<Policy>, ApiError> {
        async fn read<K>(
            api: Api<K>,
            policies: &Informer<K>,
            key: &PolicyKey,
        ) -> Result<Option<Arc<K>>, ApiError>
        where
            K: Followed + Clone + fmt::Debug,
        {
            let held = policies.get(key.namespace(), key.name());
            let version = api.get_metadata(key.name()).await;
            let read = match version.map(|it| it.resource_version()) {
                Ok(version)
                    if held
                        .as_ref()
                        .is_some_and(|it| it.meta().resource_version == version) =>
                {
                    return Ok(held);
                }
                Ok(_) => api.get(key.name()).await,
                Err(error) => Err(error),
            };
            match read {
                Ok(read) => Ok(Some(Arc::new(read))),
                Err(error) if says_absent(&error, key.name()) => Ok(None),
                Err(error) => Err(ApiError::of("read", key)(error)),
            }
        }
        let client = fleet.client.clone();
        Ok(match self {
            Self::Namespaced { namespace, .. } => {
                read(Api::namespaced(client, namespace), &fleet.policies, self)
                    .await?
                    .map(Policy::Namespaced)
            }
            Self::Cluster { .. } => read(Api::all(client), &fleet.cluster_policies, self)
                .await?
                .map(Policy::Cluster),
        })
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaced { namespace, name } => {
                write!(f, "PropagationPolicy {namespace}/{name}")
            }
            Self::Cluster { name } => write!(f, "ClusterPropagationPolicy {name}"),
        }
    }
}

/// Cached policy of either kind.
#[derive(Clone, Debug)]
pub enum Policy {
    /// A `PropagationPolicy`.
    Namespaced(Arc<PropagationPolicy>),
    /// A `ClusterPropagationPolicy`.
    Cluster(Arc<ClusterPropagationPolicy>),
}

impl Policy {
    /// Returns the key of the policy.
    pub fn key(&self) -> PolicyKey {
        let name = self.metadata().name.clone().unwrap_or_default();
        match self {
            Self::Namespaced(policy) => PolicyKey::Namespaced {
                namespace: policy.metadata.namespace.clone().unwrap_or_default(),
                name,
            },
            Self::Cluster(_) => PolicyKey::Cluster { name },
        }
    }

    /// Returns the standard metadata of the policy.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Namespaced(policy) => &policy.metadata,
            Self::Cluster(policy) => &policy.metadata,
        }
    }

    /// Returns the spec of the policy.
    pub fn spec(&self) -> &PropagationSpec {
        match self {
            Self::Namespaced(policy) => &policy.spec,
            Self::Cluster(policy) => &policy.spec,
        }
    }

    /// Returns the status of the policy, as Muster wrote it last.
    pub fn status(&self) -> Option<&PropagationStatus> {
        match self {
            Self::Namespaced(policy) => policy.status.as_ref(),
            Self::Cluster(policy) => policy.status.as_ref(),
        }
    }

    /// Returns whether the policy is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Publishes an event about it.
    pub(crate) fn report(&self, events: &Events, kind: EventType, reason: &str, note: String) {
        match self {
            Self::Namespaced(policy) => events.publish(policy.as_ref(), kind, reason, note),
            Self::Cluster(policy) => events.publish(policy.as_ref(), kind, reason, note),
        }
    }

    /// Returns whether a change of the policy waits for the next change of each template.
    pub fn is_lazy(&self) -> bool {
        self.spec().activation_preference == Some(ActivationPreference::Lazy)
    }
}
