//! The two kinds of binding, for code that handles both.

use std::fmt;

use kube::Client;
use kube::api::{Api, PatchParams};
use muster_shared::api::binding::{
    Binding, ClusterResourceBinding, ObjectReference, ResourceBinding, ResourceBindingSpec,
};
use muster_shared::k8s::{CoreObjectReference, ObjectMeta, OwnerReference};
use muster_shared::names::{self, label};
use muster_shared::watch::Informer;

use super::template::TemplateKey;
use super::{COMPONENT, Fleet};

/// What names a binding of either kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// Its namespace, `None` for a `ClusterResourceBinding`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl BindingKey {
    /// Returns the key of a binding.
    pub fn of(binding: &impl Binding) -> Self {
        let metadata = binding.meta();
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Returns the key of the binding of a template.
    pub fn for_template(template: &TemplateKey) -> Self {
        Self {
            namespace: template.namespace.clone(),
            name: names::binding(&template.kind.kind, &template.name),
        }
    }

    /// Returns the key of the binding of a resource.
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
pub trait BindingKind: Binding {
    /// The label that holds the permanent id.
    const ID_LABEL: &'static str;

    /// Returns the cache of the bindings of this kind.
    fn cache(fleet: &Fleet) -> &Informer<Self>;

    /// Returns the API by which a binding is written; the client has to be one of the rank that
    /// fits.
    fn api(client: &Client, key: &BindingKey) -> Api<Self>;

    /// Returns the permanent id of the binding, `None` before it has one.
    fn permanent_id(&self) -> Option<&str> {
        self.meta()
            .labels
            .as_ref()?
            .get(Self::ID_LABEL)
            .map(String::as_str)
            .filter(|id| !id.is_empty())
    }
}

impl BindingKind for ResourceBinding {
    const ID_LABEL: &'static str = label::RESOURCE_BINDING_ID;

    fn cache(fleet: &Fleet) -> &Informer<Self> {
        &fleet.bindings
    }

    fn api(client: &Client, key: &BindingKey) -> Api<Self> {
        Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default())
    }
}

impl BindingKind for ClusterResourceBinding {
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

/// Returns the reference by which events name the resource of a binding.
pub fn event_reference(resource: &ObjectReference) -> CoreObjectReference {
    CoreObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        namespace: resource.namespace.clone(),
        name: Some(resource.name.clone()),
        uid: resource.uid.clone(),
        ..CoreObjectReference::default()
    }
}

/// Reads the spec of a binding in the caches; `None` if the binding is not there.
pub fn spec_of<T>(
    key: &BindingKey,
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

/// Returns the owner reference of an object's controller: garbage collection removes the object
/// with it.
pub fn controller_of(held: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = held.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}
