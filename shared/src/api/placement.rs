//! Placement rules: the `placement` of a policy and of a binding.

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, macros::open_enum, nullable, schema};

/// Rules for choosing clusters and for dividing replicas among them. An empty placement propagates
/// the whole resource to every cluster that takes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Clusters that may be chosen. Excludes `clusterAffinities`. If both are absent, every cluster
    /// may be chosen.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_affinity: Option<ClusterAffinity>,

    /// Groups of clusters that are tried in order until one can take the resource; the group in use
    /// is in the binding's `status.schedulerObservingAffinityName`. Later schedules start with that
    /// group. They return to an earlier one only if neither that group nor a later one can take the
    /// resource, or if a reschedule is requested. At most 100 groups are tried in one schedule.
    /// Excludes `clusterAffinity`.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,

    /// Tolerations for taints of clusters. A resource is placed only in clusters whose `NoSchedule`
    /// and `NoExecute` taints it tolerates; with `tolerationSeconds` it may stay under a
    /// `NoExecute` taint for that time, but is not placed anew. Tolerations do not apply to
    /// `PreferNoExecute`; see `failover.cluster`. If absent, no taint is tolerated.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::tolerations")]
    pub cluster_tolerations: Vec<Toleration>,

    /// Minimum and maximum number of clusters, regions, zones, providers or label values to use.
    /// All must be met, or the resource is not placed. Ignored if replicas are divided by fixed
    /// weights. If absent, every cluster that takes the resource may be used.
    #[serde(skip_serializing_if = "absent")]
    pub spread_constraints: Vec<SpreadConstraint>,

    /// How replicas are divided among the chosen clusters. If absent, every cluster gets all
    /// replicas (`Duplicated`); if present, `replicaSchedulingType` defaults to `Divided`.
    #[serde(skip_serializing_if = "absent")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,

    /// Workloads to be placed with or apart from this one. Muster does not act on it: admission
    /// returns a warning, and an event on the policy says so.
    #[serde(skip_serializing_if = "absent")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

impl Placement {
    /// Returns whether the replicas are divided over the clusters, rather than all given to each. A
    /// strategy without a type divides: the schema's default is `Divided`.
    pub fn is_divided(&self) -> bool {
        self.replica_scheduling.as_ref().is_some_and(|scheduling| {
            scheduling.replica_scheduling_type != Some(ReplicaSchedulingType::Duplicated)
        })
    }
}

/// Selection of clusters. A cluster must match every field that is set; `exclude` takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinity {
    /// Label selector on Cluster objects. If absent, all labels match; an invalid selector matches
    /// no cluster.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// Selector on the fields `provider`, `region` and `zone` of clusters. If absent, all clusters
    /// match.
    #[serde(skip_serializing_if = "absent")]
    pub field_selector: Option<FieldSelector>,

    /// Names of clusters to select from. If empty, all names match.
    #[serde(skip_serializing_if = "absent")]
    pub cluster_names: Vec<String>,

    /// Names of clusters that are never selected, whatever the other fields say.
    #[serde(skip_serializing_if = "absent")]
    pub exclude: Vec<String>,
}

/// Requirements on the fields of a cluster; all must be met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldSelector {
    /// Requirements, all of which must be met. Keys are `provider`, `region` and `zone`; operators
    /// are `In` and `NotIn`. A cluster with several zones matches `In` if one of them is listed,
    /// and `NotIn` if none is.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::field_requirements")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// Named group of clusters, with overflow groups for replicas that do not fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["affinityName"]))]
pub struct ClusterAffinityTerm {
    /// Name of the group: 1 to 32 characters, a valid label key, unique in the placement.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,

    /// Clusters of the group. The fields are beside `affinityName`.
    #[serde(flatten)]
    pub cluster_affinity: ClusterAffinity,

    /// Groups that take the replicas for which the group itself has no room, in order. Only if
    /// replicas are `Divided` by `Aggregated`, or by `Weighted` with `dynamicWeight`. If absent,
    /// the group must have room for all replicas.
    #[serde(skip_serializing_if = "absent")]
    pub overflow_affinities: Vec<OverflowClusterAffinity>,
}

/// Named group of clusters for replicas that do not fit into the groups before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["affinityName"]))]
pub struct OverflowClusterAffinity {
    /// Name of the overflow group: 1 to 32 characters, a valid label key, unique in the placement.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,

    /// Clusters of the group. The fields are beside `affinityName`.
    #[serde(flatten)]
    pub cluster_affinity: ClusterAffinity,
}

open_enum! {
    /// Field of a cluster that a spread constraint counts.
    SpreadFieldValue {
        /// The clusters themselves.
        Cluster = "cluster",
        /// `spec.region` of the clusters.
        Region = "region",
        /// `spec.zones` of the clusters.
        Zone = "zone",
        /// `spec.provider` of the clusters.
        Provider = "provider",
    }
}

/// Minimum and maximum number of groups of clusters to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// Field by which clusters are grouped: `cluster`, `region`, `zone` or `provider`. Clusters
    /// without the field are not chosen. Excludes `spreadByLabel`. If both are absent, `cluster`.
    /// If any constraint has this field, one of them must be by `cluster`.
    #[serde(skip_serializing_if = "absent")]
    pub spread_by_field: Option<SpreadFieldValue>,

    /// Key of the cluster label by whose value clusters are grouped. Clusters without the label are
    /// not chosen. Excludes `spreadByField`. Only the last constraint by label counts.
    #[serde(skip_serializing_if = "absent")]
    pub spread_by_label: Option<String>,

    /// Maximum number of groups to use. Absent or 0 means no maximum.
    #[serde(skip_serializing_if = "absent")]
    pub max_groups: i64,

    /// Minimum number of groups to use. Absent or 0 means 1.
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
        /// As few clusters as possible are used.
        Aggregated = "Aggregated",
        /// Each cluster gets a share in proportion to its weight.
        Weighted = "Weighted",
    }
}

/// How replicas are divided among clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSchedulingStrategy {
    /// Whether clusters share the replicas.
    ///
    /// - `Divided` (the default): the clusters share the replicas, as `replicaDivisionPreference`
    ///   says.
    /// - `Duplicated`: every cluster gets all replicas.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Divided"))]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,

    /// How clusters share the replicas if the type is `Divided`.
    ///
    /// - `Aggregated`: as few clusters as possible are used.
    /// - `Weighted`: in proportion to `weightPreference`.
    ///
    /// Admission writes `Weighted` if the field is absent; without admission, nothing is placed.
    #[serde(skip_serializing_if = "absent")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,

    /// Weights of the clusters for `Weighted`. If absent, all clusters have the same weight.
    #[serde(skip_serializing_if = "absent")]
    pub weight_preference: Option<ClusterPreferences>,
}

open_enum! {
    /// Measure from which weights are computed.
    DynamicWeightFactor {
        /// Number of further replicas that fit into the cluster.
        AvailableReplicas = "AvailableReplicas",
    }
}

/// Weights of clusters, fixed or computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPreferences {
    /// Fixed weights. A cluster that matches several entries has the highest of their weights; one
    /// that matches none gets no replicas, unless no cluster matches any. Ignored if
    /// `dynamicWeight` is set.
    #[serde(skip_serializing_if = "absent")]
    pub static_weight_list: Vec<StaticClusterWeight>,

    /// Measure from which weights are computed. `AvailableReplicas`, the only value, is the number
    /// of replicas that fit into the cluster. Takes precedence over `staticWeightList`.
    #[serde(skip_serializing_if = "absent")]
    pub dynamic_weight: Option<DynamicWeightFactor>,
}

/// Fixed weight of some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetCluster", "weight"]))]
pub struct StaticClusterWeight {
    /// Clusters that the weight applies to.
    pub target_cluster: ClusterAffinity,
    /// Weight of each of these clusters, relative to the others; at least 1.
    #[schemars(range(min = 1))]
    pub weight: i64,
}

/// Workloads to be placed together or apart. Muster does not act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinity {
    /// Group of workloads that are to run in the same cluster. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// Group of workloads that are to run in different clusters. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// Group of workloads, identified by a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["groupByLabelKey"]))]
pub struct WorkloadAffinityTerm {
    /// Key of the label whose value identifies the group of a workload. The keys of `affinity` and
    /// `antiAffinity` must differ.
    #[schemars(length(min = 1))]
    pub group_by_label_key: String,
}

/// Selection of resource templates by kind and by name or labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub struct ResourceSelector {
    /// API version of the selected kind, such as `apps/v1`.
    pub api_version: String,
    /// Selected kind, such as `Deployment`. Kinds of the fleet itself and those in
    /// `--skipped-propagating-apis` are never selected.
    pub kind: String,
    /// Namespace of the selected resources. If absent, the namespace of the policy or, in a
    /// ClusterPropagationPolicy, every namespace. A PropagationPolicy selects only in its own
    /// namespace.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the selected resource. If absent, `labelSelector` decides, or else every resource of
    /// the kind is selected.
    #[serde(skip_serializing_if = "absent")]
    pub name: Option<String>,
    /// Label selector on the resources. Ignored if `name` is set. An empty selector matches
    /// everything, an invalid one matches nothing.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}

/// Suspends the dispatching of resources to members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    /// If true, nothing is created or updated in any member. Deletion is not suspended. Excludes
    /// `dispatchingOnClusters`. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching: Option<bool>,
    /// Clusters in which nothing is created or updated. Deletion is not suspended. Excludes
    /// `dispatching`. If absent, no single cluster is suspended.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Clusters for which dispatching is suspended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendClusters {
    /// Names of the clusters for which dispatching is suspended.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub cluster_names: Vec<String>,
}
