//! The two kinds of binding, for code that treats them alike.

use std::fmt;

use kube::Client;
use kube::api::{Api, PatchParams};
use muster_shared::api::binding::{
    Binding, ClusterResourceBinding, ObjectReference, ResourceBinding,
};
use muster_shared::names::{self, label};
use muster_shared::watch::Informer;

use crate::fleet::{COMPONENT, Fleet};

/// What names a binding of either kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// Its namespace, `None` for a `ClusterResourceBinding`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl BindingKey {
    /// The key of a binding.
    pub fn of(binding: &impl Binding) -> Self {
        let metadata = binding.meta();
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// The key of the binding of a resource.
    pub fn for_resource(resource: &ObjectReference) -> Self {
        Self {
            namespace: resource.namespace.clone(),
            name: names::binding(&resource.kind, &resource.name),
        }
    }
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "ResourceBinding {namespace}/{}", self.name),
            None => write!(f, "ClusterResourceBinding {}", self.name),
        }
    }
}

/// A kind of binding with its place in the fleet.
pub trait Kept: Binding {
    /// The label that holds the permanent id.
    const ID_LABEL: &'static str;

    /// The cache of the kind.
    fn cache(fleet: &Fleet) -> &Informer<Self>;

    /// Where a binding is written, by a client of the rank that fits.
    fn api(client: &Client, key: &BindingKey) -> Api<Self>;

    /// The permanent id, `None` before one is given.
    fn permanent_id(&self) -> Option<&str> {
        self.meta()
            .labels
            .as_ref()?
            .get(Self::ID_LABEL)
            .map(String::as_str)
            .filter(|id| !id.is_empty())
    }
}

impl Kept for ResourceBinding {
    const ID_LABEL: &'static str = label::RESOURCE_BINDING_ID;

    fn cache(fleet: &Fleet) -> &Informer<Self> {
        &fleet.bindings
    }

    fn api(client: &Client, key: &BindingKey) -> Api<Self> {
        Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default())
    }
}

impl Kept for ClusterResourceBinding {
    const ID_LABEL: &'static str = label::CLUSTER_RESOURCE_BINDING_ID;

    fn cache(fleet: &Fleet) -> &Informer<Self> {
        &fleet.cluster_bindings
    }

    fn api(client: &Client, _key: &BindingKey) -> Api<Self> {
        Api::all(client.clone())
    }
}

/// Parameters of our merge patches.
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    }
}
