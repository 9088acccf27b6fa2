//! What replicas need: the `replicaRequirements` and `components` of a binding.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, quantities, schema};

/// What one replica needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaRequirements {
    /// The nodes it can run on.
    #[serde(skip_serializing_if = "absent")]
    pub node_claim: Option<NodeClaim>,
    /// The resources it asks for.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Its namespace, for quotas.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Its priority class.
    #[serde(skip_serializing_if = "absent")]
    pub priority_class_name: Option<String>,
}

/// The nodes that a replica can run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaim {
    /// Required node affinity.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::node_selector")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "absent")]
    pub node_selector: BTreeMap<String, String>,
    /// Node taints that do not matter.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// One kind of pod of a resource that has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "replicas"]))]
pub struct Component {
    /// Name, unique in the resource.
    #[schemars(length(max = 32))]
    pub name: String,
    /// How many replicas of it are wanted.
    pub replicas: i32,
    /// What one replica needs.
    #[serde(skip_serializing_if = "absent")]
    pub replica_requirements: Option<ComponentReplicaRequirements>,
}

/// What one replica of a component needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentReplicaRequirements {
    /// The nodes it can run on.
    #[serde(skip_serializing_if = "absent")]
    pub node_claim: Option<NodeClaim>,
    /// The resources it asks for.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Its priority class.
    #[serde(skip_serializing_if = "absent")]
    pub priority_class_name: Option<String>,
}
