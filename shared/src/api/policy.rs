//! `PropagationPolicy` and `ClusterPropagationPolicy` (`policy.karmada.io/v1alpha1`): what goes where, and what
//! happens when it fails there. Both kinds have the same spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    definition::Column,
    macros::{open_enum, resource},
    nullable,
};

pub use super::{failover::*, placement::*};

const CONFLICT_RESOLUTION: Column = Column::text("CONFLICT-RESOLUTION", ".spec.conflictResolution");
const PRIORITY: Column = Column {
    kind: "integer",
    ..Column::text("PRIORITY", ".spec.priority")
};

resource! {
    /// Places the selected resources of its namespace.
    PropagationPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "propagationpolicies",
        scope: Namespaced,
        spec: PropagationSpec,
        short_names: ["pp"],
        categories: ["karmada-io"],
        columns: [CONFLICT_RESOLUTION, PRIORITY, Column::age("AGE")],
    }
}

resource! {
    /// Places the selected resources of any namespace, and those without one.
    ClusterPropagationPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "clusterpropagationpolicies",
        scope: Cluster,
        spec: PropagationSpec,
        short_names: ["cpp"],
        categories: ["karmada-io"],
        columns: [CONFLICT_RESOLUTION, PRIORITY, Column::age("AGE")],
    }
}

/// What goes where, and what happens when it fails there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["resourceSelectors"]))]
pub struct PropagationSpec {
    /// The resources; at most 1,000 selectors (ours).
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = 1000))]
    pub resource_selectors: Vec<ResourceSelector>,

    /// Deprecated and ignored; see `propagateDeps`.
    #[serde(skip_serializing_if = "absent")]
    pub association: bool,

    /// Whether what a resource refers to (config maps, secrets, ...) goes with it.
    #[serde(skip_serializing_if = "absent")]
    pub propagate_deps: bool,

    /// Where it goes.
    #[serde(skip_serializing_if = "absent")]
    pub placement: Placement,

    /// Of several policies that select a resource, the one of the highest priority has it.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,

    /// Whether this policy may take resources over from one of lower priority.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Never"))]
    pub preemption: Option<PreemptionBehavior>,

    /// Override policies that must exist before anything is placed.
    #[serde(skip_serializing_if = "absent")]
    pub dependent_overrides: Vec<String>,

    /// The scheduler in charge; cannot be changed.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "default-scheduler"))]
    pub scheduler_name: Option<String>,

    /// What happens when the application or its cluster fails.
    #[serde(skip_serializing_if = "absent")]
    pub failover: Option<FailoverBehavior>,

    /// What happens when a member has an object of the same name already.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Abort"))]
    pub conflict_resolution: Option<ConflictResolution>,

    /// `Lazy`: a change of this policy reaches a resource only with the next change of that resource.
    #[serde(skip_serializing_if = "absent")]
    pub activation_preference: Option<ActivationPreference>,

    /// What is not to be done for now.
    #[serde(skip_serializing_if = "absent")]
    pub suspension: Option<Suspension>,

    /// Whether objects stay in the members when the resource is deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,

    /// Place in the queue of the scheduler.
    #[serde(skip_serializing_if = "absent")]
    pub schedule_priority: Option<SchedulePriority>,
}

impl PropagationSpec {
    /// The priority; zero when none is given.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or_default()
    }
}

open_enum! {
    /// Whether a policy may take resources over.
    PreemptionBehavior {
        /// From policies of lower priority.
        Always = "Always",
        /// No.
        Never = "Never",
    }
}

open_enum! {
    /// What happens when a member has an object of the same name already.
    ConflictResolution {
        /// Nothing is written, and the failure is reported.
        Abort = "Abort",
        /// It is taken over.
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
    /// Where a priority class comes from.
    PriorityClassSource {
        /// `PriorityClass` of `scheduling.k8s.io/v1`.
        KubePriorityClass = "KubePriorityClass",
    }
}

/// Place in the queue of the scheduler, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["priorityClassName", "priorityClassSource"]))]
pub struct SchedulePriority {
    /// Where the class comes from.
    pub priority_class_source: PriorityClassSource,
    /// Name of the class.
    pub priority_class_name: String,
}
