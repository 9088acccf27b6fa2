//! `PropagationPolicy` and `ClusterPropagationPolicy` (`policy.karmada.io/v1alpha1`): which
//! resources are propagated to which clusters, and what happens when they fail there. Both kinds
//! have the same spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    data_replication::DataReplication,
    definition::Column,
    macros::{open_enum, resource},
    nullable,
};

pub use super::{failover::*, placement::*, policy_status::*};

const CONFLICT_RESOLUTION: Column = Column::text("CONFLICT-RESOLUTION", ".spec.conflictResolution");
const PRIORITY: Column = Column::integer("PRIORITY", ".spec.priority");
const READY: Column = Column::text("READY", r#".status.conditions[?(@.type=="Ready")].status"#);
const SELECTED: Column = Column::integer("SELECTED", ".status.selected");
const PLACED: Column = Column::integer("PLACED", ".status.placed");
const WAITING: Column = Column::integer("WAITING", ".status.waiting");
const REASON: Column = Column::text("REASON", r#".status.conditions[?(@.type=="Ready")].reason"#);
const WHY: Column = Column::text("WHY", r#".status.conditions[?(@.type=="Ready")].message"#).wide();
const EFFECTIVE: Column = Column::text(
    "EFFECTIVE",
    r#".status.conditions[?(@.type=="Effective")].message"#,
)
.wide();

resource! {
    /// Selects resources of its namespace and propagates them to member clusters.
    ///
    /// A resource belongs to one policy at a time. If several select it, a PropagationPolicy takes
    /// precedence over a ClusterPropagationPolicy; then the highest `priority` counts, then the
    /// most specific selector, then the first name in alphabetical order.
    PropagationPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "propagationpolicies",
        scope: Namespaced,
        spec: PropagationSpec,
        status: PropagationStatus,
        short_names: ["pp"],
        categories: ["karmada-io"],
        columns: [CONFLICT_RESOLUTION, PRIORITY, READY, SELECTED, PLACED, WAITING, REASON, Column::age("AGE"), WHY, EFFECTIVE],
    }
}

resource! {
    /// Selects resources of any namespace, and cluster-scoped resources, and propagates them to
    /// member clusters.
    ///
    /// A resource belongs to one policy at a time. If several select it, a PropagationPolicy takes
    /// precedence over a ClusterPropagationPolicy; then the highest `priority` counts, then the
    /// most specific selector, then the first name in alphabetical order.
    ClusterPropagationPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "clusterpropagationpolicies",
        scope: Cluster,
        spec: PropagationSpec,
        status: PropagationStatus,
        short_names: ["cpp"],
        categories: ["karmada-io"],
        columns: [CONFLICT_RESOLUTION, PRIORITY, READY, SELECTED, PLACED, WAITING, REASON, Column::age("AGE"), WHY, EFFECTIVE],
    }
}

/// Desired propagation of the selected resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["resourceSelectors"]))]
pub struct PropagationSpec {
    /// Resources that the policy applies to: 1 to 1,000 selectors, of at most 100 different kinds.
    /// Events on the policy name selectors that select nothing.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = 1000))]
    pub resource_selectors: Vec<ResourceSelector>,

    /// Deprecated and ignored: use `propagateDeps`.
    #[serde(skip_serializing_if = "absent")]
    pub association: bool,

    /// If true, the objects that a resource refers to (ConfigMaps, Secrets, service accounts,
    /// volume claims, ...) are propagated to the same clusters. Required by `failover.application`.
    /// Requires the feature gate `PropagateDeps`. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub propagate_deps: bool,

    /// Rules for choosing clusters and dividing replicas. If absent, the resources are propagated
    /// whole to every cluster that takes them.
    #[serde(skip_serializing_if = "absent")]
    pub placement: Placement,

    /// Priority of the policy among those of its kind that select the same resource; the highest
    /// one is applied. A resource that already belongs to a policy keeps it, unless `preemption` of
    /// the other policy is `Always`. Default: 0.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,

    /// Whether the policy takes over resources that belong to another one.
    ///
    /// - `Never` (the default): the policy applies only to resources that belong to none.
    /// - `Always`: the policy takes over resources that its selectors name from policies of lower
    ///   priority, and, as a PropagationPolicy, from every ClusterPropagationPolicy. Each selector
    ///   must have a name.
    ///
    /// Requires the feature gate `PropagationPolicyPreemption`, which is off by default.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Never"))]
    pub preemption: Option<PreemptionBehavior>,

    /// Names of override policies that must exist before anything is propagated: OverridePolicies
    /// of the same namespace for a PropagationPolicy, ClusterOverridePolicies for a
    /// ClusterPropagationPolicy. While one is missing, an event says so.
    #[serde(skip_serializing_if = "absent")]
    pub dependent_overrides: Vec<String>,

    /// Name of the scheduler that places the resources. Muster's scheduler acts if this is the
    /// value of its flag `--scheduler-name`. Must not be changed. Default: `default-scheduler`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "default-scheduler"))]
    pub scheduler_name: Option<String>,

    /// Conditions under which a resource is moved to another cluster, and how. If absent, only
    /// `NoExecute` taints that are not tolerated move it.
    #[serde(skip_serializing_if = "absent")]
    pub failover: Option<FailoverBehavior>,

    /// Action if an object of the same name exists in a member and is not managed by the fleet.
    ///
    /// - `Abort` (the default): the object is left alone and the failure is reported.
    /// - `Overwrite`: the object is taken over and updated.
    ///
    /// The annotation `work.karmada.io/conflict-resolution` of a resource takes precedence.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Abort"))]
    pub conflict_resolution: Option<ConflictResolution>,

    /// When a change of the policy takes effect. `Lazy` delays it for each resource until that
    /// resource itself changes. If absent, changes take effect at once.
    #[serde(skip_serializing_if = "absent")]
    pub activation_preference: Option<ActivationPreference>,

    /// Suspends the dispatching of the resources to members. If absent, nothing is suspended.
    #[serde(skip_serializing_if = "absent")]
    pub suspension: Option<Suspension>,

    /// If true, the objects in the members are kept when their Work is deleted: because the
    /// resource was deleted, or because it left the cluster. The agent removes the fleet's labels
    /// and annotations from them. Absent means false: the objects are deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,

    /// Priority class of the resources in the queues of the scheduler and of evictions. Requires
    /// the feature gate `PriorityBasedScheduling`. If absent, the priority is 0.
    #[serde(skip_serializing_if = "absent")]
    pub schedule_priority: Option<SchedulePriority>,

    /// Replicated data that follows workloads of the policy when they move (Muster's own): which
    /// object of a replication engine is primary where the workload is, and on which conditions the
    /// workload starts in a new cluster. If absent, workloads move without regard to their data.
    #[serde(skip_serializing_if = "absent")]
    pub data_replication: Option<DataReplication>,
}

impl PropagationSpec {
    /// Returns the priority; 0 if none is given.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or_default()
    }

    /// Returns what the policy says about clusters that fail.
    pub fn cluster_failover(&self) -> Option<&ClusterFailoverBehavior> {
        self.failover.as_ref()?.cluster.as_ref()
    }

    /// Returns what the policy says about applications that fail.
    pub fn application_failover(&self) -> Option<&ApplicationFailoverBehavior> {
        self.failover.as_ref()?.application.as_ref()
    }
}

open_enum! {
    /// Whether a policy takes over resources that belong to another one.
    PreemptionBehavior {
        /// It takes over from policies of lower priority.
        Always = "Always",
        /// It never takes over.
        Never = "Never",
    }
}

open_enum! {
    /// Action if an object of the same name exists in a member and is not managed by the fleet.
    ConflictResolution {
        /// The object is left alone and the failure is reported.
        Abort = "Abort",
        /// The object is taken over and updated.
        Overwrite = "Overwrite",
    }
}

open_enum! {
    /// When a change of a policy takes effect.
    ActivationPreference {
        /// With the next change of the resource.
        Lazy = "Lazy",
    }
}

open_enum! {
    /// Kind of object that defines a priority.
    PriorityClassSource {
        /// `PriorityClass` of `scheduling.k8s.io/v1` in the fleet API.
        KubePriorityClass = "KubePriorityClass",
    }
}

/// Priority class of the resources of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["priorityClassName", "priorityClassSource"]))]
pub struct SchedulePriority {
    /// Kind of the priority class. `KubePriorityClass`, the only value, is a PriorityClass of
    /// `scheduling.k8s.io/v1` in the fleet API.
    pub priority_class_source: PriorityClassSource,
    /// Name of the priority class, whose value becomes `schedulePriority.priority` of the bindings.
    /// If there is no such class, nothing of the policy is propagated, and an event says so.
    pub priority_class_name: String,
}
