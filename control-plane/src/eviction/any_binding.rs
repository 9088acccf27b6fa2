//! A binding of either kind in the eviction queue, shared with the cache.

use std::borrow::Cow;
use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::binding::{
    Binding, ClusterResourceBinding, ResourceBinding, ResourceBindingSpec, ResourceBindingStatus,
};
use muster_shared::api::policy::Placement;
use muster_shared::k8s::{CoreObjectReference, ObjectMeta, Resource};
use muster_shared::names::annotation;

use super::judge;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::completion;
use crate::fleet::protection::protected;

/// A binding of either kind.
#[derive(Clone, Debug)]
pub enum AnyBinding {
    /// One that lives in a namespace.
    Namespaced(Arc<ResourceBinding>),
    /// One without a namespace.
    Cluster(Arc<ClusterResourceBinding>),
}

impl From<Arc<ResourceBinding>> for AnyBinding {
    fn from(binding: Arc<ResourceBinding>) -> Self {
        Self::Namespaced(binding)
    }
}

impl From<Arc<ClusterResourceBinding>> for AnyBinding {
    fn from(binding: Arc<ClusterResourceBinding>) -> Self {
        Self::Cluster(binding)
    }
}

impl AnyBinding {
    /// Returns the key of the binding.
    pub fn key(&self) -> BindingKey {
        match self {
            Self::Namespaced(binding) => BindingKey::of(binding.as_ref()),
            Self::Cluster(binding) => BindingKey::of(binding.as_ref()),
        }
    }

    /// Returns the metadata of the binding.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Namespaced(binding) => binding.meta(),
            Self::Cluster(binding) => binding.meta(),
        }
    }

    /// Returns the spec of the binding.
    pub fn spec(&self) -> &ResourceBindingSpec {
        match self {
            Self::Namespaced(binding) => &binding.spec,
            Self::Cluster(binding) => &binding.spec,
        }
    }

    /// Returns the spec with what the policy says by now of copies in members.
    pub fn protected(&self, fleet: &Fleet) -> Cow<'_, ResourceBindingSpec> {
        match self {
            Self::Namespaced(binding) => protected(fleet, binding.as_ref()),
            Self::Cluster(binding) => protected(fleet, binding.as_ref()),
        }
    }

    /// Returns the status of the binding.
    pub fn status(&self) -> &ResourceBindingStatus {
        match self {
            Self::Namespaced(binding) => binding.status(),
            Self::Cluster(binding) => binding.status(),
        }
    }

    /// Returns whether the workload has completed in a cluster: it is a Job, and the cluster
    /// reports so. A completed Job that is created in another cluster runs again.
    pub fn has_completed(&self, cluster: &str) -> bool {
        let reports = &self.status().aggregated_status;
        completion::has_completed(&self.spec().resource, reports, cluster)
    }

    /// Returns whether a cluster reports a status of the workload.
    pub fn has_report_of(&self, cluster: &str) -> bool {
        completion::has_report(&self.status().aggregated_status, cluster)
    }

    /// Returns the placement whose tolerations count.
    pub fn placement(&self) -> Option<Cow<'_, Placement>> {
        let annotations = match self {
            Self::Namespaced(binding) => binding.annotations(),
            Self::Cluster(binding) => binding.annotations(),
        };
        judge::placement(
            self.spec(),
            annotations
                .get(annotation::APPLIED_PLACEMENT)
                .map(String::as_str),
        )
    }

    /// Returns the priority of the binding in the queue: `spec.schedulePriority`.
    pub fn priority(&self) -> i32 {
        self.spec()
            .schedule_priority
            .as_ref()
            .map_or(0, |priority| priority.priority)
    }

    /// Returns the kind of the binding's resource as the metrics name it: API version and kind.
    pub fn resource_kind(&self) -> String {
        format!(
            "{}/{}",
            self.spec().resource.api_version,
            self.spec().resource.kind
        )
    }

    /// Returns whether the clusters of a Job report the same of its completion in both versions of
    /// the binding.
    fn has_completed_where(&self, other: &Self) -> bool {
        let mut clusters = self.spec().clusters.iter();
        let told = |binding: &Self, cluster: &str| {
            let has_completed = binding.has_completed(cluster);
            (has_completed, binding.has_report_of(cluster))
        };
        !completion::is_job(&self.spec().resource)
            || clusters.all(|it| told(self, &it.name) == told(other, &it.name))
    }

    fn preserves_state(&self) -> bool {
        let failover = self.spec().failover.as_ref();
        failover
            .and_then(|failover| failover.cluster.as_ref())
            .is_some_and(|cluster| cluster.state_preservation.is_some())
    }

    /// Returns the reference by which events name the binding.
    pub fn reference(&self) -> CoreObjectReference {
        match self {
            Self::Namespaced(binding) => binding.object_ref(&()),
            Self::Cluster(binding) => binding.object_ref(&()),
        }
    }

    /// Returns whether nothing differs that an eviction depends on. What the clusters report counts
    /// only where it is to be preserved, and where a Job has completed.
    pub fn is_same_wish(&self, other: &Self) -> bool {
        self.spec() == other.spec()
            && (!self.preserves_state()
                || self.status().aggregated_status == other.status().aggregated_status)
            && self.has_completed_where(other)
            && self.meta().annotations == other.meta().annotations
            && self.meta().deletion_timestamp == other.meta().deletion_timestamp
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn binding(changes: &[(&str, Value)]) -> AnyBinding {
        let mut binding = json!({
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {
                "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
                "clusters": [{"name": "m1"}, {"name": "m2"}],
            },
        });
        for (pointer, value) in changes {
            let mut at = &mut binding;
            for part in pointer.split('.') {
                at = &mut at[part];
            }
            *at = value.clone();
        }
        let binding: ResourceBinding = serde_json::from_value(binding).unwrap();
        Arc::new(binding).into()
    }

    fn reports(done: &[&str]) -> Value {
        let report = |name: &&str| {
            let complete = json!([{"type": "Complete", "status": "True"}]);
            json!({"clusterName": name, "status": {"conditions": complete}})
        };
        json!(done.iter().map(report).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_an_eviction_depends_on_is_another_wish() {
        let job = ("spec.resource.kind", json!("Job"));
        let other = ("spec.resource.kind", json!("Other"));
        let rules = json!({"rules": [{"aliasLabelName": "a", "jsonPath": "{.b}"}]});
        let preserved = (
            "spec.failover",
            json!({"cluster": {"statePreservation": rules}}),
        );
        let plain = ("spec.failover", json!({"cluster": {}}));
        let reported = |done: &[&str]| ("status.aggregatedStatus", reports(done));
        let annotated = ("metadata.annotations", json!({"a": "b"}));
        let deleted = ("metadata.deletionTimestamp", json!("2024-01-01T00:00:00Z"));
        let version = ("metadata.resourceVersion", json!("2"));
        for (what, both, change, is_same) in [
            ("nothing", vec![job.clone()], vec![], true),
            ("a write", vec![job.clone()], vec![version], true),
            ("an annotation", vec![job.clone()], vec![annotated], false),
            ("its deletion", vec![job.clone()], vec![deleted], false),
            ("its spec", vec![job.clone()], vec![plain.clone()], false),
            (
                "a completed Job",
                vec![job.clone()],
                vec![reported(&["m2"])],
                false,
            ),
            (
                "a Job that runs",
                vec![job.clone()],
                vec![(
                    "status.aggregatedStatus",
                    json!([{"clusterName": "m1", "status": {"active": 1}}]),
                )],
                false,
            ),
            ("a Job elsewhere", vec![job], vec![reported(&["m3"])], true),
            (
                "a report",
                vec![other.clone()],
                vec![reported(&["m2"])],
                true,
            ),
            (
                "a report, of a policy",
                vec![other.clone(), plain],
                vec![reported(&["m2"])],
                true,
            ),
            (
                "a state that is kept",
                vec![other, preserved],
                vec![reported(&["m2"])],
                false,
            ),
        ] {
            let changed: Vec<_> = both.iter().cloned().chain(change).collect();
            let (old, new) = (binding(&both), binding(&changed));
            assert_eq!(old.is_same_wish(&new), is_same, "{what}");
            assert_eq!(new.is_same_wish(&old), is_same, "{what}, and back");
        }
    }

    #[test]
    fn events_refer_to_the_binding() {
        let reference = binding(&[]).reference();
        assert_eq!(reference.kind.as_deref(), Some("ResourceBinding"));
        assert_eq!(reference.name.as_deref(), Some("b"));
        assert_eq!(reference.namespace.as_deref(), Some("default"));
    }
}
