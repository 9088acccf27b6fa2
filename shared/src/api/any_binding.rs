//! A binding of either kind.

use std::sync::Arc;

use kube::{Resource, ResourceExt as _};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::binding::{
    ClusterResourceBinding, ReplicaRequirements, ResourceBinding, ResourceBindingSpec,
    ResourceBindingStatus,
};
use super::macros::either;
use super::policy::Placement;
use super::scope::ResourceScope;
use crate::k8s::{CoreObjectReference, ObjectMeta};
use crate::names::annotation::APPLIED_PLACEMENT;

/// A binding of either kind: both have the same spec and status, and which it is shows in its
/// metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AnyBinding {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: ResourceBindingSpec,
    /// Observed state; `None` until it is first reported.
    #[serde(default)]
    pub status: Option<ResourceBindingStatus>,
    /// Placement that the scheduler applied last, where [`Self::take_common`] took it out of the
    /// annotations.
    #[serde(skip)]
    applied_placement: Option<Arc<String>>,
}

/// Parts of a binding that it has in common with many others: each carries two copies of its
/// policy's placement, the second in the annotation that says what was applied last, and most
/// workloads ask for one of a few sizes of pod.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Placement of the policy.
    pub placement: Option<Arc<Placement>>,
    /// Placement that the scheduler applied last, as text.
    pub applied_placement: Option<Arc<String>>,
    /// What each replica needs.
    pub requirements: Option<Arc<ReplicaRequirements>>,
}

impl AnyBinding {
    /// Returns the placement that the scheduler applied last, as its annotation has it.
    pub fn applied_placement(&self) -> Option<&str> {
        let shared = self.applied_placement.as_deref().map(String::as_str);
        shared.or_else(|| {
            self.annotations()
                .get(APPLIED_PLACEMENT)
                .map(String::as_str)
        })
    }

    /// Takes out what many bindings have in common; without it the binding is not whole.
    pub fn take_common(&mut self) -> Common {
        let annotations = self.metadata.annotations.as_mut();
        let text = annotations.and_then(|them| them.remove(APPLIED_PLACEMENT));
        Common {
            placement: self.spec.placement.take(),
            applied_placement: text.map(Arc::new).or_else(|| self.applied_placement.take()),
            requirements: self.spec.replica_requirements.take(),
        }
    }

    /// Puts back what [`take_common`](Self::take_common) took out; the placement that was applied
    /// last does not go back to the annotations.
    pub fn put_common(&mut self, common: Common) {
        self.spec.placement = common.placement;
        self.applied_placement = common.applied_placement;
        self.spec.replica_requirements = common.requirements;
    }

    /// Returns the scope of the binding.
    pub fn scope(&self) -> ResourceScope {
        ResourceScope::of(self.metadata.namespace.as_deref())
    }

    /// Returns the reference by which events name the binding.
    pub fn reference(&self) -> CoreObjectReference {
        self.object_ref(&self.scope())
    }

    /// Returns the permanent id of the binding, `None` before it has one.
    pub fn permanent_id(&self) -> Option<&str> {
        let id = self.labels().get(self.scope().binding_id_label())?;
        (!id.is_empty()).then_some(id)
    }
}

impl Serialize for AnyBinding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let scope = self.scope();
        let mut object = serializer.serialize_struct("AnyBinding", 5)?;
        object.serialize_field("apiVersion", &Self::api_version(&scope))?;
        object.serialize_field("kind", scope.binding_kind())?;
        match &self.applied_placement {
            None => object.serialize_field("metadata", &self.metadata)?,
            Some(text) => {
                let mut metadata = self.metadata.clone();
                let annotations = metadata.annotations.get_or_insert_default();
                annotations.insert(APPLIED_PLACEMENT.to_owned(), text.to_string());
                object.serialize_field("metadata", &metadata)?;
            }
        }
        object.serialize_field("spec", &self.spec)?;
        if let Some(status) = &self.status {
            object.serialize_field("status", status)?;
        }
        object.end()
    }
}

either!([] AnyBinding: ResourceBinding, ClusterResourceBinding);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::label;

    #[test]
    fn a_binding_is_written_as_the_kind_that_it_is() {
        let body = json!({
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "web"}},
            "status": {"schedulerObservedGeneration": 1},
        });
        let mut wide = body.clone();
        wide["kind"] = json!("ClusterResourceBinding");
        wide["metadata"] = json!({"name": "web"});
        let typed: [Value; 2] = [
            serde_json::to_value(serde_json::from_value::<ResourceBinding>(body.clone()).unwrap()),
            serde_json::to_value(
                serde_json::from_value::<ClusterResourceBinding>(wide.clone()).unwrap(),
            ),
        ]
        .map(Result::unwrap);
        for (typed, body) in typed.into_iter().zip([body, wide]) {
            let binding: AnyBinding = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(serde_json::to_value(&binding).unwrap(), typed);
            let reference = binding.reference();
            assert_eq!(reference.kind.as_deref(), body["kind"].as_str());
            assert_eq!(
                reference.api_version.as_deref(),
                body["apiVersion"].as_str()
            );
            let place =
                AnyBinding::url_path(&binding.scope(), binding.metadata.namespace.as_deref());
            let expected = match &binding.metadata.namespace {
                Some(_) => "/apis/work.karmada.io/v1alpha2/namespaces/shop/resourcebindings",
                None => "/apis/work.karmada.io/v1alpha2/clusterresourcebindings",
            };
            assert_eq!(place, expected);
        }
    }

    #[test]
    fn the_permanent_id_is_the_value_of_the_label_of_the_kind() {
        for (namespace, label, id, expected) in [
            (Some("shop"), label::RESOURCE_BINDING_ID, "a", Some("a")),
            (Some("shop"), label::RESOURCE_BINDING_ID, "", None),
            (Some("shop"), label::CLUSTER_RESOURCE_BINDING_ID, "a", None),
            (None, label::CLUSTER_RESOURCE_BINDING_ID, "a", Some("a")),
        ] {
            let metadata = json!({"namespace": namespace, "name": "web", "labels": {label: id}});
            let binding = json!({"metadata": metadata, "spec": {"resource": {}}});
            let binding: AnyBinding = serde_json::from_value(binding).unwrap();
            assert_eq!(
                binding.permanent_id(),
                expected,
                "{namespace:?} {label} {id:?}"
            );
        }
    }
}
