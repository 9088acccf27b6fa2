//! The fields of pods and nodes that the census reads.
//!
//! Both types can be watched like the full kinds (`Api<PodView>`). They decode in a sixth of the
//! time, and omit what makes a `Pod` of k8s-openapi take 76 kB: managed fields, annotations,
//! environment and container statuses.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde::{Deserialize, Deserializer};

use crate::api::{nullable, quantities};

type Requests = BTreeMap<String, Quantity>;

/// A pod, as far as it takes resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PodView {
    /// Name, namespace, uid and resource version; nothing else is decoded.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// Node on which the pod runs, and resources that it requests.
    #[serde(default)]
    pub spec: PodSpecView,
    /// Phase and conditions of the pod, and what its containers hold.
    #[serde(default)]
    pub status: PodStatusView,
}

/// Node on which a pod runs, and resources that it requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    /// Its node; absent until one is found.
    pub node_name: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<ContainerView>,
    /// Containers that run before the others, one by one.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<ContainerView>,
    /// Resources that the runtime itself takes.
    #[serde(deserialize_with = "quantities")]
    pub overhead: Requests,
    /// Resources that the pod requests as a whole, if it does.
    pub resources: Option<ResourcesView>,
}

/// A container, as far as it takes resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Its name, by which its status is found.
    pub name: String,
    /// `Always` on an init container: a sidecar, which goes on running.
    pub restart_policy: Option<String>,
    /// Resources that the container requests.
    pub resources: Option<ResourcesView>,
}

/// Requested resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourcesView {
    /// Amounts by resource name.
    #[serde(deserialize_with = "quantities")]
    pub requests: Requests,
}

/// Phase and conditions of a pod, and what its containers hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[serde(rename_all = "camelCase")]
pub struct PodStatusView {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: Option<String>,
    /// Its conditions; one of them says that a resize cannot be done.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<ConditionView>,
    /// What its containers hold, which differs from what they ask for while they are resized.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatusView>,
    /// Statuses of the containers that run before the others.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatusView>,
}

/// Resources that a container has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusView {
    /// Its name.
    pub name: String,
    /// Resources that the node has allocated to the container.
    #[serde(deserialize_with = "quantities")]
    pub allocated_resources: Requests,
    /// Resources with which the container runs.
    pub resources: Option<ResourcesView>,
}

/// A node, as far as it offers resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct NodeView {
    /// Name, uid and resource version; nothing else is decoded.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// Whether it takes pods.
    #[serde(default)]
    pub spec: NodeSpecView,
    /// Resources that the node offers, and its conditions.
    #[serde(default)]
    pub status: NodeStatusView,
}

/// Whether a node takes pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpecView {
    /// Somebody cordoned it: it takes no new pods.
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
    /// Taints of the node.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<TaintView>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TaintView {
    /// Key of the taint.
    pub key: String,
    /// Effect of the taint.
    pub effect: String,
}

impl TaintView {
    /// Returns whether the node is about to leave its cluster, as an autoscaler says, the cloud or
    /// a person. Candidates of an autoscaler do not count: they have room, and stay if it is used.
    fn is_leaving(&self) -> bool {
        const LEAVING: [&str; 5] = [
            // Cluster Autoscaler.
            "ToBeDeletedByClusterAutoscaler",
            // Karpenter, and before its version 1.
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
            "node.cloudprovider.kubernetes.io/shutdown",
            "node.kubernetes.io/out-of-service",
        ];
        LEAVING.contains(&self.key.as_str()) && matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

/// Resources that a node offers, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatusView {
    /// Resources that the node offers to pods.
    #[serde(deserialize_with = "quantities")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Its conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<ConditionView>,
}

/// A condition of a node or a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ConditionView {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: String,
    /// The reason for its status.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
}

impl PodView {
    /// Returns whether the pod has run to its end, so that it takes nothing any more.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Returns whether a resize was asked for that its node cannot do, so that what is asked for
    /// will not be given.
    pub(super) fn is_resize_infeasible(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|it| {
            it.kind == "PodResizePending" && it.status == "True" && it.reason == "Infeasible"
        })
    }

    /// Returns the node that the pod is on.
    pub(super) fn node(&self) -> Option<&str> {
        self.spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty())
    }
}

impl NodeView {
    /// Returns whether the node is ready. Of several `Ready` conditions the first counts.
    pub(super) fn is_ready(&self) -> bool {
        let ready = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        ready.is_some_and(|condition| condition.status == "True")
    }

    /// Returns whether it takes new pods: it is ready and not about to leave, nobody cordoned it,
    /// and it has none of the conditions that Kubernetes makes taints of which no pod tolerates by
    /// itself.
    pub(super) fn takes_pods(&self) -> bool {
        const KEEP_AWAY: [&str; 3] = ["DiskPressure", "PIDPressure", "NetworkUnavailable"];
        let mut conditions = self.status.conditions.iter();
        let is_pressed =
            conditions.any(|it| it.status == "True" && KEEP_AWAY.contains(&it.kind.as_str()));
        let is_leaving = self.spec.taints.iter().any(TaintView::is_leaving);
        self.is_ready() && !self.spec.unschedulable && !is_leaving && !is_pressed
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Decodes the metadata that a watch needs. Managed fields alone would cost 30 kB an object.
fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let SlimMeta {
        name,
        namespace,
        uid,
        resource_version,
    } = SlimMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        ..ObjectMeta::default()
    })
}

crate::resource_as!(PodView as Pod);
crate::resource_as!(NodeView as Node);
