//! Scope of bindings and policies, of which there are two kinds each: one in namespaces and one of
//! the fleet.

use crate::names::{finalizer, label};

/// Where a binding or a policy lives, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceScope {
    /// In a namespace.
    Namespaced,
    /// In the whole fleet.
    Cluster,
}

impl ResourceScope {
    /// Returns the scope of objects in a namespace, or of those without.
    pub const fn of(namespace: Option<&str>) -> Self {
        match namespace {
            Some(_) => Self::Namespaced,
            None => Self::Cluster,
        }
    }

    /// Returns what is given for this scope.
    pub fn choose<T>(self, namespaced: T, cluster: T) -> T {
        match self {
            Self::Namespaced => namespaced,
            Self::Cluster => cluster,
        }
    }

    /// Returns the kind of bindings, as in `kind`.
    pub fn binding_kind(self) -> &'static str {
        self.choose("ResourceBinding", "ClusterResourceBinding")
    }

    /// Returns the label that holds the permanent id of a binding.
    pub fn binding_id_label(self) -> &'static str {
        self.choose(
            label::RESOURCE_BINDING_ID,
            label::CLUSTER_RESOURCE_BINDING_ID,
        )
    }

    /// Returns the finalizer by which the binding controller keeps a binding until its Works are
    /// gone.
    pub fn binding_finalizer(self) -> &'static str {
        self.choose(
            finalizer::RESOURCE_BINDING,
            finalizer::CLUSTER_RESOURCE_BINDING,
        )
    }

    /// Returns the label that holds the permanent id of a propagation policy.
    pub fn policy_id_label(self) -> &'static str {
        self.choose(
            label::PROPAGATION_POLICY_ID,
            label::CLUSTER_PROPAGATION_POLICY_ID,
        )
    }

    /// Returns the finalizer by which the detector keeps a propagation policy until it has released
    /// what the policy claimed.
    pub fn policy_finalizer(self) -> &'static str {
        self.choose(
            finalizer::PROPAGATION_POLICY,
            finalizer::CLUSTER_PROPAGATION_POLICY,
        )
    }
}
