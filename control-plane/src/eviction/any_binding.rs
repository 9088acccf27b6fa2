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
use crate::fleet::binding::BindingKey;
use crate::fleet::completion;

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
    /// What names it.
    pub fn key(&self) -> BindingKey {
        match self {
            Self::Namespaced(binding) => BindingKey::of(binding.as_ref()),
            Self::Cluster(binding) => BindingKey::of(binding.as_ref()),
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Namespaced(binding) => binding.meta(),
            Self::Cluster(binding) => binding.meta(),
        }
    }

    /// Its spec.
    pub fn spec(&self) -> &ResourceBindingSpec {
        match self {
            Self::Namespaced(binding) => &binding.spec,
            Self::Cluster(binding) => &binding.spec,
        }
    }

    /// Its status.
    pub fn status(&self) -> &ResourceBindingStatus {
        match self {
            Self::Namespaced(binding) => binding.status(),
            Self::Cluster(binding) => binding.status(),
        }
    }

    /// Whether the workload has completed in a cluster: a Job of which the cluster reports so. A
    /// completed Job that is created in another cluster runs again.
    pub fn has_completed(&self, cluster: &str) -> bool {
        let reports = &self.status().aggregated_status;
        completion::has_completed(&self.spec().resource, reports, cluster)
    }

    /// The placement whose tolerations count.
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

    /// Its place in line: `spec.schedulePriority`.
    pub fn priority(&self) -> i32 {
        self.spec()
            .schedule_priority
            .as_ref()
            .map_or(0, |priority| priority.priority)
    }

    /// The kind of its resource as the metrics name it: API version and kind.
    pub fn resource_kind(&self) -> String {
        format!(
            "{}/{}",
            self.spec().resource.api_version,
            self.spec().resource.kind
        )
    }

    /// Whether the workload has completed in the same of its clusters.
    fn has_completed_where(&self, other: &Self) -> bool {
        let mut clusters = self.spec().clusters.iter();
        !completion::is_job(&self.spec().resource)
            || clusters.all(|it| self.has_completed(&it.name) == other.has_completed(&it.name))
    }

    fn preserves_state(&self) -> bool {
        let failover = self.spec().failover.as_ref();
        failover
            .and_then(|failover| failover.cluster.as_ref())
            .is_some_and(|cluster| cluster.state_preservation.is_some())
    }

    /// How events refer to it.
    pub fn reference(&self) -> CoreObjectReference {
        match self {
            Self::Namespaced(binding) => binding.object_ref(&()),
            Self::Cluster(binding) => binding.object_ref(&()),
        }
    }

    /// Whether nothing that an eviction depends on differs. What its clusters report counts only
    /// where it is to be preserved, and where a Job has completed.
    pub fn is_same_wish(&self, other: &Self) -> bool {
        self.spec() == other.spec()
            && (!self.preserves_state()
                || self.status().aggregated_status == other.status().aggregated_status)
            && self.has_completed_where(other)
            && self.meta().annotations == other.meta().annotations
            && self.meta().deletion_timestamp == other.meta().deletion_timestamp
    }
}
