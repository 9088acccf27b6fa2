//! `ResourceBinding` and `ClusterResourceBinding` (`work.karmada.io/v1alpha2`): one placed resource, the
//! clusters it is on, the clusters it is leaving. Both kinds have the same spec and status; [`Binding`] is what
//! code that does not care is written against.

use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, Time},
    runtime::RawExtension,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Object, absent,
    definition::Column,
    macros::{open_enum, resource},
    policy::{ConflictResolution, FailoverBehavior, Placement, SuspendClusters},
    schema,
};

pub use super::{eviction_task::*, requirements::*};

const SCHEDULED: Column = Column::text(
    "SCHEDULED",
    r#".status.conditions[?(@.type=="Scheduled")].status"#,
);
const FULLY_APPLIED: Column = Column::text(
    "FULLYAPPLIED",
    r#".status.conditions[?(@.type=="FullyApplied")].status"#,
);
/// Why it waits for a cluster to leave, or what became of it last.
const EVICTION: Column = Column::text(
    "EVICTION",
    r#".status.conditions[?(@.type=="EvictionPending")].reason"#,
);
const CLUSTERS: Column = Column::text("CLUSTERS", ".spec.clusters[*].name").wide();
const LEAVING: Column =
    Column::text("LEAVING", ".spec.gracefulEvictionTasks[*].fromCluster").wide();
const WHY: Column = Column::text(
    "WHY",
    r#".status.conditions[?(@.type=="EvictionPending")].message"#,
)
.wide();
/// What has to be removed before new copies are made.
const REMOVAL: Column = Column::text(
    "REMOVAL",
    r#".status.conditions[?(@.type=="RemovalPending")].message"#,
)
.wide();

resource! {
    /// A placed resource that lives in a namespace.
    ResourceBinding {
        group: "work.karmada.io",
        version: "v1alpha2",
        plural: "resourcebindings",
        scope: Namespaced,
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
        short_names: ["rb"],
        categories: ["karmada-io"],
        columns: [SCHEDULED, FULLY_APPLIED, EVICTION, Column::age("AGE"), CLUSTERS, LEAVING, WHY, REMOVAL],
    }
}

resource! {
    /// A placed resource without a namespace.
    ClusterResourceBinding {
        group: "work.karmada.io",
        version: "v1alpha2",
        plural: "clusterresourcebindings",
        scope: Cluster,
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
        short_names: ["crb"],
        categories: ["karmada-io"],
        columns: [SCHEDULED, FULLY_APPLIED, EVICTION, Column::age("AGE"), CLUSTERS, LEAVING, WHY, REMOVAL],
    }
}

/// What the two kinds of binding have in common.
pub trait Binding: Object {
    /// Whether objects of the kind live in namespaces.
    const NAMESPACED: bool;

    /// What is placed, where, and how.
    fn spec(&self) -> &ResourceBindingSpec;
    /// The same, to change it.
    fn spec_mut(&mut self) -> &mut ResourceBindingSpec;
    /// What became of it; a binding nobody has touched yet has the empty status.
    fn status(&self) -> &ResourceBindingStatus;
    /// The same, to change it.
    fn status_mut(&mut self) -> &mut ResourceBindingStatus;
}

static UNTOUCHED: LazyLock<ResourceBindingStatus> = LazyLock::new(ResourceBindingStatus::default);

macro_rules! binding {
    ($kind:ty, $namespaced:literal) => {
        impl Binding for $kind {
            const NAMESPACED: bool = $namespaced;

            fn spec(&self) -> &ResourceBindingSpec {
                &self.spec
            }
            fn spec_mut(&mut self) -> &mut ResourceBindingSpec {
                &mut self.spec
            }
            fn status(&self) -> &ResourceBindingStatus {
                self.status.as_ref().unwrap_or(&UNTOUCHED)
            }
            fn status_mut(&mut self) -> &mut ResourceBindingStatus {
                self.status.get_or_insert_default()
            }
        }
    };
}

binding!(ResourceBinding, true);
binding!(ClusterResourceBinding, false);

/// What is placed, where, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["resource"]))]
pub struct ResourceBindingSpec {
    /// The resource.
    pub resource: ObjectReference,

    /// Whether what the resource refers to goes with it.
    #[serde(skip_serializing_if = "absent")]
    pub propagate_deps: bool,

    /// What one replica needs; absent means nothing in particular.
    #[serde(skip_serializing_if = "absent")]
    pub replica_requirements: Option<Arc<ReplicaRequirements>>,

    /// How many replicas are wanted in all.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: i32,

    /// The parts of a resource that has more than one kind of pod.
    #[serde(skip_serializing_if = "absent")]
    pub components: Vec<Component>,

    /// The clusters that were chosen.
    #[serde(skip_serializing_if = "absent")]
    pub clusters: Vec<TargetCluster>,

    /// The rules they were chosen by: a copy of the policy's.
    #[serde(skip_serializing_if = "absent")]
    pub placement: Option<Arc<Placement>>,

    /// The clusters that are being left. The last copy there goes when the new ones are healthy.
    #[serde(skip_serializing_if = "absent")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,

    /// The bindings whose resources refer to this one.
    #[serde(skip_serializing_if = "absent")]
    pub required_by: Vec<BindingSnapshot>,

    /// The scheduler in charge.
    #[serde(skip_serializing_if = "absent")]
    pub scheduler_name: Option<String>,

    /// What happens when the application or its cluster fails.
    #[serde(skip_serializing_if = "absent")]
    pub failover: Option<FailoverBehavior>,

    /// What happens when a member has an object of the same name already.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Abort"))]
    pub conflict_resolution: Option<ConflictResolution>,

    /// Since when the resource is to be placed anew, from scratch.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub reschedule_triggered_at: Option<Time>,

    /// What is not to be done for now.
    #[serde(skip_serializing_if = "absent")]
    pub suspension: Option<Suspension>,

    /// Whether objects stay in the members when the resource is deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,

    /// Place in the queue of the scheduler.
    #[serde(skip_serializing_if = "absent")]
    pub schedule_priority: Option<SchedulePriority>,

    /// The groups of workloads that the resource belongs to.
    #[serde(skip_serializing_if = "absent")]
    pub workload_affinity_groups: Option<WorkloadAffinityGroups>,
}

impl ResourceBindingSpec {
    /// Whether the resource runs pods: it has replicas, requirements or components.
    pub fn is_workload(&self) -> bool {
        self.replicas > 0 || self.replica_requirements.is_some() || !self.components.is_empty()
    }

    /// Whether the scheduler is to leave the binding alone.
    pub fn scheduling_suspended(&self) -> bool {
        self.suspension
            .as_ref()
            .and_then(|suspension| suspension.scheduling)
            .unwrap_or_default()
    }

    /// The place of a cluster among the chosen ones.
    pub fn target(&self, cluster: &str) -> Option<&TargetCluster> {
        self.clusters.iter().find(|target| target.name == cluster)
    }

    /// The task of leaving a cluster.
    pub fn eviction_task(&self, cluster: &str) -> Option<&GracefulEvictionTask> {
        self.graceful_eviction_tasks
            .iter()
            .find(|task| task.from_cluster == cluster)
    }
}

/// The resource that a binding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind", "name"]))]
pub struct ObjectReference {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for a resource without one.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid.
    #[serde(skip_serializing_if = "absent")]
    pub uid: Option<String>,
    /// Version of the resource when the binding was last built from it.
    #[serde(skip_serializing_if = "absent")]
    pub resource_version: Option<String>,
}

/// A chosen cluster and its share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct TargetCluster {
    /// Name of the cluster.
    pub name: String,
    /// Its replicas.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: i32,
    /// Its replicas by component.
    #[serde(skip_serializing_if = "absent")]
    pub components: Vec<TargetComponent>,
}

/// The share of a cluster in a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "replicas"]))]
pub struct TargetComponent {
    /// Name of the component.
    pub name: String,
    /// Its replicas.
    pub replicas: i32,
}

/// A binding whose resource refers to this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct BindingSnapshot {
    /// Its namespace.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The clusters chosen for it.
    #[serde(skip_serializing_if = "absent")]
    pub clusters: Vec<TargetCluster>,
}

/// What is not to be done for now: the policy's part and one of the binding's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    /// Nothing is created or updated in any member. Deletion goes on.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching: Option<bool>,
    /// The same for some members.
    #[serde(skip_serializing_if = "absent")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    /// The scheduler leaves the binding alone. Set by others (a queue, for instance), kept when the policy's
    /// part is copied.
    #[serde(skip_serializing_if = "absent")]
    pub scheduling: Option<bool>,
}

/// Place in the queue of the scheduler, as a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulePriority {
    /// Higher comes first.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 0))]
    pub priority: i32,
}

/// The groups of workloads that a resource belongs to, as `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinityGroups {
    /// Those that run together.
    #[serde(skip_serializing_if = "absent")]
    pub affinity_group: Option<String>,
    /// Those that run apart.
    #[serde(skip_serializing_if = "absent")]
    pub anti_affinity_group: Option<String>,
}

/// What became of a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingStatus {
    /// The generation that the scheduler has dealt with.
    #[serde(skip_serializing_if = "absent")]
    pub scheduler_observed_generation: i64,

    /// The group of clusters that the present choice was made from.
    #[serde(
        rename = "schedulerObservingAffinityName",
        skip_serializing_if = "absent"
    )]
    pub scheduler_observed_affinity_name: Option<String>,

    /// When the scheduler last succeeded.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub last_scheduled_time: Option<Time>,

    /// Judgements: `Scheduled`, `FullyApplied`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// What the clusters report, by name.
    #[serde(skip_serializing_if = "absent")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

open_enum! {
    /// Whether a resource works.
    ResourceHealth {
        /// It does.
        Healthy = "Healthy",
        /// It does not.
        Unhealthy = "Unhealthy",
        /// Nobody knows.
        Unknown = "Unknown",
    }
}

/// What one cluster reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clusterName"]))]
pub struct AggregatedStatusItem {
    /// The cluster.
    pub cluster_name: String,

    /// Status of the resource there.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::raw_extension")]
    pub status: Option<RawExtension>,

    /// Whether the resource was written there.
    #[serde(skip_serializing_if = "absent")]
    pub applied: bool,

    /// Why not.
    #[serde(skip_serializing_if = "absent")]
    pub applied_message: Option<String>,

    /// Whether the resource works there.
    #[serde(skip_serializing_if = "absent")]
    pub health: Option<ResourceHealth>,
}
