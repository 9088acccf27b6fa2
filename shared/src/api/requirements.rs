//! Requirements of replicas: the `replicaRequirements` and `components` of a binding.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, quantities, schema};

/// Resources and node constraints of one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaRequirements {
    /// Constraints on the nodes that the replica can run on. Muster records them and does not use
    /// them in estimates. Absent if the pod template has none.
    #[serde(skip_serializing_if = "absent")]
    pub node_claim: Option<NodeClaim>,
    /// Resources that one replica reserves on a node, by resource name: requests, or limits where
    /// there is no request, including init containers, sidecars and overhead.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Namespace of the replica, for quota checks. Muster does not write or use it.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the priority class of the replica's pods. Muster does not write or use it.
    #[serde(skip_serializing_if = "absent")]
    pub priority_class_name: Option<String>,
}

/// Constraints on the nodes that a replica can run on, copied from the pod template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaim {
    /// Required node affinity of the pods: at least one of the terms must match a node.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::node_selector")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Labels that a node must have, with their values.
    #[serde(skip_serializing_if = "absent")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations for taints of nodes.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// Group of equal pods in a resource that has several pod templates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "replicas"]))]
pub struct Component {
    /// Name of the component, unique in the resource; at most 32 characters.
    #[schemars(length(max = 32))]
    pub name: String,
    /// Number of replicas of the component that the template asks for.
    pub replicas: i32,
    /// Requirements of one replica of the component. If absent, it has none.
    #[serde(skip_serializing_if = "absent")]
    pub replica_requirements: Option<ComponentReplicaRequirements>,
}

/// Resources and node constraints of one replica of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentReplicaRequirements {
    /// Constraints on the nodes that the component's replica can run on.
    #[serde(skip_serializing_if = "absent")]
    pub node_claim: Option<NodeClaim>,
    /// Resources that one replica of the component reserves on a node, by resource name.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Name of the priority class of the component's pods.
    #[serde(skip_serializing_if = "absent")]
    pub priority_class_name: Option<String>,
}
