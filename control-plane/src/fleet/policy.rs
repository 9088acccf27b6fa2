//! A policy of either kind. Namespaced and cluster-wide policies differ in the templates that they
//! can select, and have the same spec.

use std::fmt;
use std::sync::Arc;

use kube::core::ObjectMeta;
use muster_shared::api::policy::{
    ActivationPreference, ClusterPropagationPolicy, PropagationPolicy, PropagationSpec,
    PropagationStatus,
};
use muster_shared::events::{EventType, Events};

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
    /// The policy's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Namespaced { name, .. } | Self::Cluster { name } => name,
        }
    }

    /// The policy's namespace, `None` for a cluster-wide one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespaced { namespace, .. } => Some(namespace),
            Self::Cluster { .. } => None,
        }
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
    /// What names it.
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

    /// Standard metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Namespaced(policy) => &policy.metadata,
            Self::Cluster(policy) => &policy.metadata,
        }
    }

    /// What it says.
    pub fn spec(&self) -> &PropagationSpec {
        match self {
            Self::Namespaced(policy) => &policy.spec,
            Self::Cluster(policy) => &policy.spec,
        }
    }

    /// Its status, as Muster wrote it last.
    pub fn status(&self) -> Option<&PropagationStatus> {
        match self {
            Self::Namespaced(policy) => policy.status.as_ref(),
            Self::Cluster(policy) => policy.status.as_ref(),
        }
    }

    /// Whether it is going away.
    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Publishes an event about it.
    pub(crate) fn tell(&self, events: &Events, kind: EventType, reason: &str, note: String) {
        match self {
            Self::Namespaced(policy) => events.publish(policy.as_ref(), kind, reason, note),
            Self::Cluster(policy) => events.publish(policy.as_ref(), kind, reason, note),
        }
    }

    /// Whether a change of it waits for the next change of each template.
    pub fn is_lazy(&self) -> bool {
        self.spec().activation_preference == Some(ActivationPreference::Lazy)
    }
}
