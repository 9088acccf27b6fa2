//! Where workloads may run and how replicas are divided: the `placement` of a policy and of a binding.

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, macros::open_enum, nullable, schema};

/// The clusters to choose from and the rules to choose by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// The clusters to choose from; absent means all. Excludes `clusterAffinities`.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_affinity: Option<ClusterAffinity>,

    /// Groups of clusters, tried in order until one of them can take the workload.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,

    /// Taints that do not keep the workload away (`NoSchedule`, `NoExecute`) or drive it out (`NoExecute`).
    /// They say nothing about `PreferNoExecute`; `failover.cluster` does.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::tolerations")]
    pub cluster_tolerations: Vec<Toleration>,

    /// How many clusters, regions, zones and providers to spread over.
    #[serde(skip_serializing_if = "absent")]
    pub spread_constraints: Vec<SpreadConstraint>,

    /// How replicas are divided among the chosen clusters. Absent: every cluster gets all replicas.
    #[serde(skip_serializing_if = "absent")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,

    /// Workloads to be near to or far from.
    #[serde(skip_serializing_if = "absent")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

/// A choice of clusters. All parts must hold; `exclude` wins over the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinity {
    /// Clusters with these labels.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// Clusters with these fields: `provider`, `region`, `zone`, compared by `In` and `NotIn`.
    #[serde(skip_serializing_if = "absent")]
    pub field_selector: Option<FieldSelector>,

    /// Clusters with one of these names; empty means any name.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_names: Vec<String>,

    /// Clusters that are never chosen.
    #[serde(skip_serializing_if = "absent")]
    pub exclude: Vec<String>,
}

/// Requirements on the fields of a cluster; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldSelector {
    /// The requirements.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::field_requirements")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// A named group of clusters, with overflow groups for what does not fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["affinityName"]))]
pub struct ClusterAffinityTerm {
    /// Name of the group, unique in the policy.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,

    /// The clusters of the group.
    #[serde(flatten)]
    pub cluster_affinity: ClusterAffinity,

    /// Groups that take, in order, what the group itself has no room for.
    #[serde(skip_serializing_if = "absent")]
    pub overflow_affinities: Vec<OverflowClusterAffinity>,
}

/// A named group of clusters for what does not fit elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["affinityName"]))]
pub struct OverflowClusterAffinity {
    /// Name of the group, unique in the policy.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,

    /// The clusters of the group.
    #[serde(flatten)]
    pub cluster_affinity: ClusterAffinity,
}

open_enum! {
    /// What is counted by a spread constraint.
    SpreadFieldValue {
        /// Clusters.
        Cluster = "cluster",
        /// Regions.
        Region = "region",
        /// Zones.
        Zone = "zone",
        /// Providers.
        Provider = "provider",
    }
}

/// How many groups of clusters to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// The field that makes the groups. Excludes `spreadByLabel`; absent with it absent: `cluster`.
    #[serde(skip_serializing_if = "absent")]
    pub spread_by_field: Option<SpreadFieldValue>,

    /// The label that makes the groups.
    #[serde(skip_serializing_if = "absent")]
    pub spread_by_label: Option<String>,

    /// At most so many groups.
    #[serde(skip_serializing_if = "absent")]
    pub max_groups: i64,

    /// At least so many groups.
    #[serde(skip_serializing_if = "absent")]
    pub min_groups: i64,
}

open_enum! {
    /// Whether clusters share the replicas.
    ReplicaSchedulingType {
        /// Every cluster gets all replicas.
        Duplicated = "Duplicated",
        /// The clusters share the replicas.
        Divided = "Divided",
    }
}

open_enum! {
    /// How clusters share the replicas.
    ReplicaDivisionPreference {
        /// As few clusters as possible.
        Aggregated = "Aggregated",
        /// By weight.
        Weighted = "Weighted",
    }
}

/// How replicas are divided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSchedulingStrategy {
    /// Whether clusters share the replicas.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Divided"))]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,

    /// How clusters share the replicas, when they do.
    #[serde(skip_serializing_if = "absent")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,

    /// The weights; absent means equal ones.
    #[serde(skip_serializing_if = "absent")]
    pub weight_preference: Option<ClusterPreferences>,
}

open_enum! {
    /// What makes the weight of a cluster.
    DynamicWeightFactor {
        /// How many more replicas the cluster could run.
        AvailableReplicas = "AvailableReplicas",
    }
}

/// Weights of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPreferences {
    /// Fixed weights.
    #[serde(skip_serializing_if = "absent")]
    pub static_weight_list: Vec<StaticClusterWeight>,

    /// Weights that are computed; they win over fixed ones.
    #[serde(skip_serializing_if = "absent")]
    pub dynamic_weight: Option<DynamicWeightFactor>,
}

/// A fixed weight for some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetCluster", "weight"]))]
pub struct StaticClusterWeight {
    /// The clusters.
    pub target_cluster: ClusterAffinity,
    /// The weight of each of them.
    #[schemars(range(min = 1))]
    pub weight: i64,
}

/// Workloads to be near to or far from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinity {
    /// Workloads of one group run in the same clusters.
    #[serde(skip_serializing_if = "absent")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// Workloads of one group run in different clusters.
    #[serde(skip_serializing_if = "absent")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// Which workloads form a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["groupByLabelKey"]))]
pub struct WorkloadAffinityTerm {
    /// Workloads with the same value of this label form a group.
    #[schemars(length(min = 1))]
    pub group_by_label_key: String,
}

/// The resources that a policy is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub struct ResourceSelector {
    /// API version, such as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent means the namespace of the policy, or any for a cluster-wide policy.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name; absent means any.
    #[serde(skip_serializing_if = "absent")]
    pub name: Option<String>,
    /// Labels; ignored when `name` is set.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}

/// What is not to be done for now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    /// Nothing is created or updated in any member. Deletion goes on.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching: Option<bool>,
    /// The same for some members.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Some members, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendClusters {
    /// Their names.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub cluster_names: Vec<String>,
}
