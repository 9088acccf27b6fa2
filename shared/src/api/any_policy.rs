//! A policy of either of two kinds that have the same spec: one in namespaces, one of the fleet.

use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::macros::either;
use super::override_policy::{ClusterOverridePolicy, OverridePolicy, OverrideSpec};
use super::policy::{
    ClusterPropagationPolicy, PropagationPolicy, PropagationSpec, PropagationStatus,
};
use super::scope::ResourceScope;
use crate::k8s::{CoreObjectReference, ObjectMeta};

/// Spec of policies of two kinds.
pub trait PolicySpec {
    /// Kind of the policies in namespaces.
    type Namespaced: Resource<DynamicType = ()>;
    /// Kind of the policies of the fleet.
    type Cluster: Resource<DynamicType = ()>;
}

impl PolicySpec for PropagationSpec {
    type Namespaced = PropagationPolicy;
    type Cluster = ClusterPropagationPolicy;
}

impl PolicySpec for OverrideSpec {
    type Namespaced = OverridePolicy;
    type Cluster = ClusterOverridePolicy;
}

/// A policy of either kind; which it is shows in its metadata.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AnyPolicy<S, T> {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: S,
    /// Observed state; `None` until it is first reported.
    #[serde(default)]
    pub status: Option<T>,
}

/// A `PropagationPolicy` or a `ClusterPropagationPolicy`.
pub type AnyPropagationPolicy = AnyPolicy<PropagationSpec, PropagationStatus>;
/// An `OverridePolicy` or a `ClusterOverridePolicy`, which have no status.
pub type AnyOverridePolicy = AnyPolicy<OverrideSpec, IgnoredAny>;

impl<S: PolicySpec, T> AnyPolicy<S, T> {
    /// Returns where the policy holds.
    pub fn scope(&self) -> ResourceScope {
        ResourceScope::of(self.metadata.namespace.as_deref())
    }

    /// Returns the reference by which events name the policy.
    pub fn reference(&self) -> CoreObjectReference {
        self.object_ref(&self.scope())
    }

    /// Returns whether the policy is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

either!([S: PolicySpec, T] AnyPolicy<S, T>: S::Namespaced, S::Cluster);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_policy_is_of_the_kind_that_its_namespace_shows_and_has_what_that_kind_has() {
        let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        let body = |namespace: Option<&str>| -> Value {
            json!({
                "metadata": {"namespace": namespace, "name": "web"},
                "spec": {"resourceSelectors": selectors},
                "status": {"selected": 1},
            })
        };
        let (near, wide) = (body(Some("shop")), body(None));
        let typed: PropagationPolicy = serde_json::from_value(near.clone()).unwrap();
        let any: AnyPropagationPolicy = serde_json::from_value(near.clone()).unwrap();
        assert_eq!((&any.spec, &any.status), (&typed.spec, &typed.status));
        let kind = |reference: CoreObjectReference| reference.kind;
        assert_eq!(kind(any.reference()), Some("PropagationPolicy".to_owned()));
        let any: AnyPropagationPolicy = serde_json::from_value(wide.clone()).unwrap();
        let expected = Some("ClusterPropagationPolicy".to_owned());
        assert_eq!(kind(any.reference()), expected);
        let expected = [
            (near, "namespaces/shop/overridepolicies"),
            (wide, "clusteroverridepolicies"),
        ];
        for (body, path) in expected {
            let any: AnyOverridePolicy = serde_json::from_value(body).unwrap();
            let found =
                AnyOverridePolicy::url_path(&any.scope(), any.metadata.namespace.as_deref());
            assert_eq!(found, format!("/apis/policy.karmada.io/v1alpha1/{path}"));
        }
    }
}
