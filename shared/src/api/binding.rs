//! `ResourceBinding` and `ClusterResourceBinding` (`work.karmada.io/v1alpha2`): one propagated
//! resource, the clusters that run it and the clusters that it is being evicted from.
//!
//! Both kinds have the same spec and status; code that handles either is written against
//! [`AnyBinding`].
//!
//! Documentation comments on fields become the descriptions that `kubectl explain` shows.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, Time},
    runtime::RawExtension,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    any_binding::AnyBinding,
    data_replication::DataReplication,
    definition::Column,
    failover::{ApplicationFailoverBehavior, ClusterFailoverBehavior},
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
/// Reason of the condition `EvictionPending`: what the eviction waits for, or how it ended.
const EVICTION: Column = Column::text(
    "EVICTION",
    r#".status.conditions[?(@.type=="EvictionPending")].reason"#,
);
/// Time of the last transition of that condition: how long a workload has waited, or when it left.
const SINCE: Column = Column::date(
    "SINCE",
    r#".status.conditions[?(@.type=="EvictionPending")].lastTransitionTime"#,
);
/// All targets with their replicas. A column shows only the first match of a path with `[*]`, but
/// a list whole.
const CLUSTERS: Column = Column::text("CLUSTERS", ".spec.clusters").wide();
/// The first of the clusters in which an old copy is still kept: tasks as a whole are too long.
const LEAVING: Column = Column::text(
    "FIRST-LEAVING",
    ".spec.gracefulEvictionTasks[0].fromCluster",
)
.wide();
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
    /// A resource in a namespace and the clusters that it is propagated to.
    ///
    /// The detector creates one binding for each template that a policy selects, and one for each
    /// dependency of such a template. The scheduler chooses the clusters, the binding controller
    /// creates one Work per cluster, and the status controller collects what the clusters report.
    ResourceBinding {
        group: "work.karmada.io",
        version: "v1alpha2",
        plural: "resourcebindings",
        scope: Namespaced,
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
        short_names: ["rb"],
        categories: ["karmada-io"],
        columns: [SCHEDULED, FULLY_APPLIED, EVICTION, SINCE, Column::age("AGE"), CLUSTERS, LEAVING, WHY, REMOVAL],
    }
}

resource! {
    /// A resource without a namespace and the clusters that it is propagated to.
    ///
    /// The detector creates one binding for each cluster-scoped template that a
    /// ClusterPropagationPolicy selects. Fields and controllers are those of ResourceBinding.
    ClusterResourceBinding {
        group: "work.karmada.io",
        version: "v1alpha2",
        plural: "clusterresourcebindings",
        scope: Cluster,
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
        short_names: ["crb"],
        categories: ["karmada-io"],
        columns: [SCHEDULED, FULLY_APPLIED, EVICTION, SINCE, Column::age("AGE"), CLUSTERS, LEAVING, WHY, REMOVAL],
    }
}

static UNTOUCHED: LazyLock<ResourceBindingStatus> = LazyLock::new(ResourceBindingStatus::default);

macro_rules! reads_status {
    ($($kind:ty),+) => {
        $(impl $kind {
            /// Returns the status; the empty status if the binding has none yet.
            pub fn status(&self) -> &ResourceBindingStatus {
                self.status.as_ref().unwrap_or(&UNTOUCHED)
            }
        })+
    };
}

reads_status!(ResourceBinding, ClusterResourceBinding, AnyBinding);

/// Desired state of a propagated resource: what it is, where it runs, and the rules by which the
/// clusters were chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["resource"]))]
pub struct ResourceBindingSpec {
    /// Reference to the template that is propagated. Set by the detector.
    pub resource: ObjectReference,

    /// If true, the objects that the template refers to (ConfigMaps, Secrets, service accounts,
    /// volume claims, ...) are propagated to the same clusters. Copied from the policy. Requires
    /// the feature gate `PropagateDeps`. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub propagate_deps: bool,

    /// Resources and node constraints of one replica, read from the pod template. The scheduler
    /// estimates from them how many replicas fit into a cluster. Absent if the template runs no
    /// pods, or if its pods request nothing.
    #[serde(skip_serializing_if = "absent")]
    pub replica_requirements: Option<Arc<ReplicaRequirements>>,

    /// Total number of replicas that the template asks for. Absent or 0 for a resource without
    /// replicas, which is propagated whole to every chosen cluster.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: i32,

    /// Groups of pods of a template that has more than one pod template, such as the job manager
    /// and the task managers of a Flink cluster. Filled in by feature gate
    /// `MultiplePodTemplatesScheduling`, instead of `replicas`, where the kind has a rule for it. A
    /// workload that goes to exactly one cluster goes where all of them have room.
    #[serde(skip_serializing_if = "absent")]
    pub components: Vec<Component>,

    /// Clusters that the resource is propagated to, with the replicas of each. Written by the
    /// scheduler, and by the eviction controllers together with a task in `gracefulEvictionTasks`.
    /// Empty until the resource has been scheduled.
    #[serde(skip_serializing_if = "absent")]
    pub clusters: Vec<TargetCluster>,

    /// Rules for choosing clusters and dividing replicas: a copy of the policy's `spec.placement`.
    /// Absent on the binding of a dependency, which follows the bindings in `requiredBy`.
    #[serde(skip_serializing_if = "absent")]
    pub placement: Option<Arc<Placement>>,

    /// Clusters that the resource is being evicted from. The copy in such a cluster stays as it is
    /// until its task ends; what ends a task is described at `purgeMode`, `gracePeriodSeconds` and
    /// `suppressDeletion`. Added by the eviction controllers and the scheduler, removed by the
    /// graceful-eviction controller.
    #[serde(skip_serializing_if = "absent")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,

    /// Bindings of the resources that depend on this one, with their clusters. The resource is
    /// propagated to all of these clusters in addition to `clusters`. Written by the detector; at
    /// most 1,000 entries.
    #[serde(skip_serializing_if = "absent")]
    pub required_by: Vec<BindingSnapshot>,

    /// Name of the scheduler that is responsible for the binding, copied from the policy. Muster's
    /// scheduler acts if this is the value of its flag `--scheduler-name`, or if the field is
    /// absent.
    #[serde(skip_serializing_if = "absent")]
    pub scheduler_name: Option<String>,

    /// Conditions under which the resource is moved to another cluster, and how. Copied from the
    /// policy. If absent, only `NoExecute` taints move it.
    #[serde(skip_serializing_if = "absent")]
    pub failover: Option<FailoverBehavior>,

    /// Action if an object of the same name exists in a member and is not managed by the fleet.
    ///
    /// - `Abort` (the default): the object is left alone and the failure is reported.
    /// - `Overwrite`: the object is taken over and updated.
    ///
    /// Copied from the policy. The annotation `work.karmada.io/conflict-resolution` of the template
    /// takes precedence.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Abort"))]
    pub conflict_resolution: Option<ConflictResolution>,

    /// Time at which a new schedule was requested. If it is later than `status.lastScheduledTime`,
    /// the scheduler places the resource as if it had no clusters yet and starts again with the
    /// first group of `clusterAffinities`. Set by users and by other programs, such as Karmada's
    /// WorkloadRebalancer.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub reschedule_triggered_at: Option<Time>,

    /// Suspends dispatching to members, or scheduling, of this resource. If absent, nothing is
    /// suspended.
    #[serde(skip_serializing_if = "absent")]
    pub suspension: Option<Suspension>,

    /// If true, the objects in the members are kept when their Work is deleted: because the
    /// template was deleted, or because the resource left the cluster. The agent removes the
    /// fleet's labels and annotations from them. Copied from the policy. Absent means false: the
    /// objects are deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,

    /// Priority of this binding in the queues of the scheduler and of evictions. Absent means
    /// priority 0.
    #[serde(skip_serializing_if = "absent")]
    pub schedule_priority: Option<SchedulePriority>,

    /// Groups of workloads that are to run in the same cluster or in different ones. Written by
    /// Karmada's detector. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub workload_affinity_groups: Option<WorkloadAffinityGroups>,

    /// Replicated data that follows the resource when it moves (Muster's own). The part of the
    /// policy's `dataReplication` that is about this resource. If absent, the resource moves
    /// without regard to its data.
    #[serde(skip_serializing_if = "absent")]
    pub data_replication: Option<DataReplication>,
}

impl ResourceBindingSpec {
    /// Returns the labels that a failover saved for the copy in a cluster: those of the last task,
    /// where that purged directly and the workload was not in the cluster before (Karmada's rule).
    pub fn state_given(&self, cluster: &str) -> Option<&BTreeMap<String, String>> {
        let task = self.graceful_eviction_tasks.last()?;
        let mut before = task.clusters_before_failover.iter();
        let is_new = !before.any(|it| it == cluster);
        (task.purges_directly() && is_new).then_some(&task.preserved_label_state)
    }

    /// Returns the labels that a failover saved for the copy in a cluster, unless `reports` say
    /// that this copy is healthy, which has used them, or another one is: a copy that runs
    /// without them would be given them late, once it is the only one.
    pub fn unused_state(
        &self,
        cluster: &str,
        reports: &[AggregatedStatusItem],
    ) -> Option<&BTreeMap<String, String>> {
        let healthy = Some(ResourceHealth::Healthy);
        let is_copy = |name: &str| name == cluster || self.has_copy(name);
        let mut reports = reports.iter();
        let has_run = reports.any(|it| it.health == healthy && is_copy(&it.cluster_name));
        let given = self.state_given(cluster);
        given.filter(|it| !it.is_empty() && !has_run)
    }

    /// Returns whether the resource runs pods: it has replicas, requirements or components.
    pub fn is_workload(&self) -> bool {
        self.replicas > 0 || self.replica_requirements.is_some() || !self.components.is_empty()
    }

    /// Returns whether the resource is a workload that is scaled to zero: it need not be anywhere.
    /// A kind without a rule that counts its replicas has none, too; it is a workload only where
    /// the binding has its requirements, or the kind has
    /// [such a rule always](ObjectReference::has_replica_rule). The replicas of a dependency, which
    /// has no placement of its own, are not counted: it may run any number of them.
    pub fn is_scaled_to_zero(&self) -> bool {
        let follows = self.placement.is_none() && !self.required_by.is_empty();
        let is_counted = !follows && self.resource.has_replica_rule();
        self.replicas <= 0
            && (is_counted || self.replica_requirements.is_some())
            && self.components.is_empty()
    }

    /// Returns whether nothing counts replicas of the resource, or their number is zero: also of a
    /// kind that has none, or whose rule is gone, unlike
    /// [`is_scaled_to_zero`](Self::is_scaled_to_zero).
    pub fn asks_for_none(&self) -> bool {
        self.replicas == 0 && self.components.is_empty()
    }

    /// Returns whether the resource has replicas of its own, of which each target has a share.
    /// Those of components are not divided.
    pub fn has_own_replicas(&self) -> bool {
        self.replicas > 0 && self.components.is_empty()
    }

    /// Returns whether a result gives a cluster a copy of the resource. A share of zero of its
    /// replicas (`--enable-empty-workload-propagation`) is none.
    pub fn is_copy(&self, target: &TargetCluster) -> bool {
        target.replicas > 0 || !self.has_own_replicas()
    }

    /// Returns the targets in which the resource is to have a copy. Where its replicas are not
    /// divided yet, each target counts.
    pub fn copies(&self) -> impl Iterator<Item = &TargetCluster> {
        let is_undivided = self.is_undivided();
        let targets = self.clusters.iter();
        targets.filter(move |it| is_undivided || self.is_copy(it))
    }

    /// Returns whether the resource is to have a copy in a cluster.
    pub fn has_copy(&self, cluster: &str) -> bool {
        self.copies().any(|it| it.name == cluster)
    }

    /// Returns whether the replicas of a workload are not divided yet: no target has a share, as in
    /// a workload that was scaled from zero, or whose kind was not counted before. Nobody has
    /// decided that anything stops.
    pub fn is_undivided(&self) -> bool {
        self.has_own_replicas()
            && !self.clusters.is_empty()
            && self.clusters.iter().all(|it| it.replicas <= 0)
    }

    /// Returns the priority of the binding in the queues of the scheduler and of evictions.
    pub fn priority(&self) -> i32 {
        let priority = self.schedule_priority.as_ref();
        priority.map_or(0, |it| it.priority)
    }

    /// Returns what the policy says about clusters that fail.
    pub fn cluster_failover(&self) -> Option<&ClusterFailoverBehavior> {
        self.failover.as_ref()?.cluster.as_ref()
    }

    /// Returns what the policy says about applications that fail.
    pub fn application_failover(&self) -> Option<&ApplicationFailoverBehavior> {
        self.failover.as_ref()?.application.as_ref()
    }

    /// Returns whether the objects stay in the members when the binding is deleted.
    pub fn is_preserved_on_deletion(&self) -> bool {
        self.preserve_resources_on_deletion == Some(true)
    }

    /// Returns whether `suspension.scheduling` tells the scheduler to skip the binding.
    pub fn scheduling_suspended(&self) -> bool {
        self.suspension
            .as_ref()
            .and_then(|suspension| suspension.scheduling)
            .unwrap_or_default()
    }

    /// Returns whether dispatching to a cluster is suspended: whatever is to be created or updated
    /// there waits until the suspension ends.
    pub fn dispatching_suspended_in(&self, cluster: &str) -> bool {
        self.suspension.as_ref().is_some_and(|suspension| {
            let listed = suspension.dispatching_on_clusters.as_ref();
            suspension.dispatching.unwrap_or_default()
                || listed.is_some_and(|it| it.cluster_names.iter().any(|name| name == cluster))
        })
    }

    /// Returns whether replicated data has a role where the resource is, so that its old copy goes
    /// before the new one is created.
    pub fn has_data_roles(&self) -> bool {
        let data = self.data_replication.as_ref();
        data.is_some_and(|it| !it.roles.is_empty())
    }

    /// Returns the entry of a cluster in `clusters`.
    pub fn target(&self, cluster: &str) -> Option<&TargetCluster> {
        self.clusters.iter().find(|target| target.name == cluster)
    }

    /// Returns the eviction task for a cluster.
    pub fn eviction_task(&self, cluster: &str) -> Option<&GracefulEvictionTask> {
        self.graceful_eviction_tasks
            .iter()
            .find(|task| task.from_cluster == cluster)
    }

    /// Returns whether an old copy waits for new ones. One that is kept for ever holds nothing up.
    pub fn is_moving(&self) -> bool {
        let mut tasks = self.graceful_eviction_tasks.iter();
        tasks.any(|task| !task.is_kept())
    }

    /// Takes a cluster out of the result and appends the task of leaving it, as Karmada does: a
    /// cluster that is no target gets no task, and an existing task for the cluster is neither
    /// replaced nor refreshed.
    pub fn take_out(&mut self, task: GracefulEvictionTask) {
        let Some(at) = self
            .clusters
            .iter()
            .position(|target| target.name == task.from_cluster)
        else {
            return;
        };
        let target = self.clusters.remove(at);
        if self.eviction_task(&task.from_cluster).is_some() {
            return;
        }
        let replicas = (target.replicas > 0).then_some(target.replicas);
        self.graceful_eviction_tasks
            .push(GracefulEvictionTask { replicas, ..task });
    }

    /// Takes a cluster out of the result, and forgets the task of leaving it before, which was over
    /// when the cluster was chosen again: it must not swallow this one (Karmada, K43).
    pub fn take_out_anew(&mut self, task: GracefulEvictionTask) {
        self.graceful_eviction_tasks
            .retain(|it| it.from_cluster != task.from_cluster);
        self.take_out(task);
    }
}

/// Reference to the template of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind", "name"]))]
pub struct ObjectReference {
    /// API version of the template, such as `apps/v1`.
    pub api_version: String,
    /// Kind of the template, such as `Deployment`.
    pub kind: String,
    /// Namespace of the template; absent if the kind is cluster-scoped. It is the namespace of the
    /// ResourceBinding itself: a reference to another namespace is not followed.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the template in the fleet API.
    pub name: String,
    /// UID of the template, by which a template that was deleted and created again is recognised.
    #[serde(skip_serializing_if = "absent")]
    pub uid: Option<String>,
    /// Resource version of the template from which this binding was last built. A change of the
    /// template's status alone does not update it.
    #[serde(skip_serializing_if = "absent")]
    pub resource_version: Option<String>,
}

impl ObjectReference {
    /// Returns whether the kind is one of Kubernetes' own that are counted in replicas. Its status
    /// leaves their number out while it is 0.
    pub fn is_counted(&self) -> bool {
        let is_controller = self.api_version == "v1" && self.kind == "ReplicationController";
        is_controller || self.has_replica_rule()
    }

    /// Returns whether the replicas of a template of the kind are always counted in its binding:
    /// the native interpreter has a rule for that. It has none for a ReplicationController, whose
    /// binding says 0 whatever the template asks for.
    pub fn has_replica_rule(&self) -> bool {
        let counted = ["Deployment", "ReplicaSet", "StatefulSet"];
        self.api_version == "apps/v1" && counted.contains(&&*self.kind)
    }
}

/// A cluster that the resource is propagated to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct TargetCluster {
    /// Name of the Cluster object.
    pub name: String,
    /// Number of replicas for this cluster. Absent or 0 for a resource without replicas. If the
    /// placement duplicates, every cluster has the total of the template.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: i32,
    /// Replicas for this cluster by component, where a workload with several components goes to
    /// exactly one cluster.
    #[serde(skip_serializing_if = "absent")]
    pub components: Vec<TargetComponent>,
}

/// Number of replicas of one component in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "replicas"]))]
pub struct TargetComponent {
    /// Name of the component, as in `spec.components`.
    pub name: String,
    /// Number of replicas of the component in this cluster.
    pub replicas: i32,
}

/// A binding whose resource depends on this one, as of the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct BindingSnapshot {
    /// Namespace of the depending binding.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the depending binding.
    pub name: String,
    /// Clusters in which the depending resource runs, including those that it is being evicted
    /// from.
    #[serde(skip_serializing_if = "absent")]
    pub clusters: Vec<TargetCluster>,
}

/// Suspends dispatching or scheduling of a binding. The first two fields are copied from the
/// policy; `scheduling` belongs to the binding.
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
    /// If true, the scheduler skips this binding, and nothing evicts it. Set by other programs,
    /// such as a job queue, and kept when the policy's fields are copied. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub scheduling: Option<bool>,
}

/// Numeric priority of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulePriority {
    /// Priority as a number; a higher number is scheduled, and evicted, first. Written by the
    /// detector from the PriorityClass that the policy names. Default: 0.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 0))]
    pub priority: i32,
}

/// Affinity groups that a workload belongs to, as `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinityGroups {
    /// Group of workloads that are to run in the same cluster. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub affinity_group: Option<String>,
    /// Group of workloads that are to run in different clusters. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub anti_affinity_group: Option<String>,
}

/// Observed state of a propagated resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingStatus {
    /// The `metadata.generation` of the binding that the scheduler last placed successfully. While
    /// it is behind `metadata.generation`, no eviction task ends because its replacement is
    /// healthy.
    #[serde(skip_serializing_if = "absent")]
    pub scheduler_observed_generation: i64,

    /// Name of the group in `spec.placement.clusterAffinities` from which the clusters were chosen.
    /// Later schedules start with this group. Absent if the placement has no groups.
    #[serde(
        rename = "schedulerObservingAffinityName",
        skip_serializing_if = "absent"
    )]
    pub scheduler_observed_affinity_name: Option<String>,

    /// Time of the last successful schedule that changed the status. Absent until the first one.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub last_scheduled_time: Option<Time>,

    /// Conditions of the binding:
    ///
    /// - `Scheduled`: clusters were found. If False, the message counts the clusters by the reason
    ///   why they were rejected.
    /// - `FullyApplied`: every cluster has applied its Work. `Unknown` (reason `ClustersNotHeard`)
    ///   while one of them is silent.
    /// - `EvictionPending`: the resource has to leave a cluster because of a taint. The reason says
    ///   what it waits for or, if False, why it stays or how the eviction ended.
    /// - `ApplicationFailoverPending`: the resource has to leave a cluster because it is unhealthy
    ///   there.
    /// - `RemovalPending`: copies in new clusters wait until an old copy is removed.
    /// - `DataPending`: copies in new clusters wait for their data, or the object waits until its
    ///   role can change. Only with `dataReplication`.
    /// - `ReplicasKept`: clusters that the message names keep more ready replicas than
    ///   `spec.clusters` gives them, until as many are ready elsewhere.
    /// - `Fenced`: every copy is stopped when its cluster is cut off. If False, the message names
    ///   the clusters where it is not and why. Only if `failover.cluster.fencing` asks for that.
    /// - `HostnamePublished`: the host name that a Service or an Ingress asks for leads to healthy
    ///   copies. If False, the message says why not, and which last known addresses stay.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Report of each cluster, sorted by name. Written by the control plane from the Works.
    #[serde(skip_serializing_if = "absent")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

impl ResourceBindingStatus {
    /// Returns what a cluster reports of the resource.
    pub fn report(&self, cluster: &str) -> Option<&AggregatedStatusItem> {
        let mut reports = self.aggregated_status.iter();
        reports.find(|report| report.cluster_name == cluster)
    }

    /// Returns whether a cluster reports a healthy copy of the resource.
    pub fn is_healthy_in(&self, cluster: &str) -> bool {
        let report = self.report(cluster);
        report.is_some_and(|it| it.health == Some(ResourceHealth::Healthy))
    }
}

open_enum! {
    /// Health of a resource in one cluster.
    ResourceHealth {
        /// The resource is healthy by the rule of its kind.
        Healthy = "Healthy",
        /// The resource is unhealthy, is being deleted, or is missing.
        Unhealthy = "Unhealthy",
        /// The health is not known: the kind has no rule, or the cluster has not reported.
        Unknown = "Unknown",
    }
}

/// Report of one cluster about the resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clusterName"]))]
pub struct AggregatedStatusItem {
    /// Name of the reporting cluster.
    pub cluster_name: String,

    /// Status of the object in this cluster; for kinds with a rule, reduced to the fields that are
    /// aggregated. Absent if the object has not been applied, or if its status is too large to be
    /// copied (64 KiB, 64 levels, 768 KiB for all clusters together); `appliedMessage` says so.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::raw_extension")]
    pub status: Option<RawExtension>,

    /// Whether this cluster has applied the object as desired. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub applied: bool,

    /// Reason why the object has not been applied, or why `status` is absent.
    #[serde(skip_serializing_if = "absent")]
    pub applied_message: Option<String>,

    /// Health of the object in this cluster.
    ///
    /// - `Healthy`: healthy by the rule of its kind.
    /// - `Unhealthy`: unhealthy, being deleted or missing. `failover.application` counts from here.
    /// - `Unknown`: the kind has no rule, or the cluster has not reported, or is silent: then
    ///   `appliedMessage` says since when, and what it reported last does not count.
    #[serde(skip_serializing_if = "absent")]
    pub health: Option<ResourceHealth>,
}

impl AggregatedStatusItem {
    /// Returns whether the object could not be applied in this cluster as it is now. A copy of
    /// before may run there.
    pub fn is_refused(&self) -> bool {
        !self.applied && self.applied_message.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_workload_that_is_counted_in_replicas_is_scaled_to_zero() {
        let requirements = json!({ "resourceRequest": { "cpu": "1" } });
        let components = json!([{ "name": "a", "replicas": 0 }]);
        for (replicas, requirements, components, expected) in [
            (0, &requirements, json!([]), true),
            (-1, &requirements, json!([]), true),
            (1, &requirements, json!([]), false),
            (0, &json!(null), json!([]), false),
            (0, &requirements, components.clone(), false),
            (0, &json!(null), components, false),
        ] {
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "resource": { "apiVersion": "example.com/v1", "kind": "Site", "name": "web" },
                "replicas": replicas,
                "replicaRequirements": requirements,
                "components": components,
            }))
            .unwrap();
            assert_eq!(spec.is_scaled_to_zero(), expected, "{}", json!(spec));
        }
        let required_by = json!([{ "namespace": "shop", "name": "api" }]);
        for (api_version, kind, placement, required_by, expected) in [
            ("apps/v1", "Deployment", json!(null), json!([]), true),
            (
                "apps/v1",
                "Deployment",
                json!({}),
                required_by.clone(),
                true,
            ),
            ("apps/v1", "Deployment", json!(null), required_by, false),
            ("apps/v1", "DaemonSet", json!({}), json!([]), false),
            ("v1", "ReplicationController", json!({}), json!([]), false),
            ("v1", "ConfigMap", json!({}), json!([]), false),
        ] {
            let spec = json!({
                "resource": { "apiVersion": api_version, "kind": kind, "name": "web" },
                "placement": placement,
                "requiredBy": required_by,
            });
            let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(spec.is_scaled_to_zero(), expected, "{}", json!(spec));
        }
    }

    #[test]
    fn a_share_of_zero_is_a_copy_only_of_what_is_not_divided() {
        let part = json!([{ "name": "a", "replicas": 1 }]);
        let none = json!([]);
        for (replicas, components, [first, second], expected) in [
            (3, &none, [3, 0], [true, false]),
            (3, &none, [1, 2], [true, true]),
            (3, &none, [0, 0], [true, true]),
            (0, &none, [0, 0], [true, true]),
            (3, &part, [3, 0], [true, true]),
        ] {
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "replicas": replicas,
                "components": components,
                "clusters": [
                    { "name": "m1", "replicas": first }, { "name": "m2", "replicas": second },
                ],
            }))
            .unwrap();
            let found = ["m1", "m2"].map(|it| spec.has_copy(it));
            assert_eq!(found, expected, "{replicas} {components}: {first} {second}");
            assert!(!spec.has_copy("m3"));
        }
    }

    #[test]
    fn dispatching_is_suspended_everywhere_or_in_the_clusters_that_are_listed() {
        for (suspension, expected) in [
            (json!(null), false),
            (json!({ "dispatching": false, "scheduling": true }), false),
            (json!({ "dispatching": true }), true),
            (
                json!({ "dispatchingOnClusters": { "clusterNames": ["other", "m1"] } }),
                true,
            ),
            (
                json!({ "dispatchingOnClusters": { "clusterNames": ["other"] } }),
                false,
            ),
            (json!({ "dispatchingOnClusters": {} }), false),
        ] {
            let spec = ResourceBindingSpec {
                suspension: serde_json::from_value(suspension.clone()).unwrap(),
                ..ResourceBindingSpec::default()
            };
            assert_eq!(
                spec.dispatching_suspended_in("m1"),
                expected,
                "{suspension}"
            );
        }
    }
}
