//! The two kinds of bindings: how they are called, cached and written.

use std::fmt;

use kube::Client;
use muster_shared::api::binding::{
    Binding, ClusterResourceBinding, ResourceBinding, ResourceBindingSpec,
};
use muster_shared::k8s::{Api, ResourceExt};
use muster_shared::watch::Informer;

use crate::fleet::Fleet;

/// A binding: with a namespace a ResourceBinding, without a ClusterResourceBinding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub namespace: Option<String>,
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Key {
    pub fn of(binding: &impl Binding) -> Self {
        Self {
            namespace: binding.namespace(),
            name: binding.name_any(),
        }
    }
}

/// The two kinds of bindings, where they are cached and written.
pub(super) trait Stored: Binding {
    fn cache(fleet: &Fleet) -> &Informer<Self>;
    fn api(client: &Client, namespace: Option<&str>) -> Api<Self>;
}

impl Stored for ResourceBinding {
    fn cache(fleet: &Fleet) -> &Informer<Self> {
        &fleet.bindings
    }
    fn api(client: &Client, namespace: Option<&str>) -> Api<Self> {
        Api::namespaced(client.clone(), namespace.unwrap_or_default())
    }
}

impl Stored for ClusterResourceBinding {
    fn cache(fleet: &Fleet) -> &Informer<Self> {
        &fleet.cluster_bindings
    }
    fn api(client: &Client, _: Option<&str>) -> Api<Self> {
        Api::all(client.clone())
    }
}

/// What `read` says of the binding, if it exists.
pub(super) fn spec_of<T>(
    key: &Key,
    bindings: &Informer<ResourceBinding>,
    cluster_bindings: &Informer<ClusterResourceBinding>,
    read: impl FnOnce(&ResourceBindingSpec) -> T,
) -> Option<T> {
    let namespace = key.namespace.as_deref();
    if namespace.is_some() {
        let binding = bindings.get(namespace, &key.name)?;
        Some(read(&binding.spec))
    } else {
        let binding = cluster_bindings.get(namespace, &key.name)?;
        Some(read(&binding.spec))
    }
}
