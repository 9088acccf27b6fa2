//! Replicated data that follows a workload: the `dataReplication` of a policy and of a binding.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, binding::ObjectReference, macros::open_enum, nullable};

/// Seconds that an engine may take to demote its data where a role does not say.
const DEMOTION_SECONDS: i32 = 60;
/// Seconds after which a copy that waits for its data is reported as stuck, if a gate does not say.
pub const TIMEOUT_SECONDS: i32 = 600;

/// Objects of a replication engine that follow a workload, and conditions on which its copies
/// start. Muster's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataReplication {
    /// Objects that have one value in the cluster with the workload and another one elsewhere; at
    /// most 8.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 8))]
    pub roles: Vec<DataRole>,

    /// Conditions that have to hold in a cluster before a copy of the workload is created there; at
    /// most 8. A copy that is there already is not affected.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 8))]
    pub gates: Vec<DataGate>,
}

impl DataReplication {
    /// Returns the part that is about one workload; `None` if nothing is.
    pub fn of(&self, workload: &ObjectReference) -> Option<Self> {
        let roles = self.roles.iter().filter(|it| it.follows.is(workload));
        let gates = self.gates.iter().filter(|it| it.workload.is(workload));
        let part = Self {
            roles: roles.cloned().collect(),
            gates: gates.cloned().collect(),
        };
        (part != Self::default()).then_some(part)
    }
}

/// Reference to a template in the namespace of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind", "name"]))]
pub struct DataReference {
    /// API version of the template, such as `apps/v1`.
    pub api_version: String,
    /// Kind of the template, such as `StatefulSet`.
    pub kind: String,
    /// Name of the template.
    pub name: String,
}

impl DataReference {
    /// Returns whether it refers to a resource.
    pub fn is(&self, resource: &ObjectReference) -> bool {
        self.api_version == resource.api_version
            && self.kind == resource.kind
            && self.name == resource.name
    }
}

impl fmt::Display for DataReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Object of a replication engine that is primary in the cluster with a workload and secondary in
/// all others.
///
/// The object has to be propagated to all clusters that the workload may be placed in, by a policy
/// of its own. When the workload moves, its old copy is removed first; then the object there gets
/// `secondary`; when its status says that it is demoted, the object in the new cluster gets
/// `primary`; and when its status says that it is promoted, the new copy of the workload is
/// created. No two clusters have `primary` at a time, and while it changes none has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["object", "follows", "path", "primary", "secondary", "promoted", "demoted"]))]
pub struct DataRole {
    /// Object of the engine, in the namespace of the workload.
    pub object: DataReference,

    /// Workload that the object follows. It has to be placed in one cluster at a time: while it is
    /// in several, no role changes.
    pub follows: DataReference,

    /// Field of the object that has the role, as names separated by dots that begin with `spec`,
    /// such as `spec.replicationState`.
    pub path: String,

    /// Value of the field in the cluster with the workload.
    pub primary: String,

    /// Value of the field in all other clusters.
    pub secondary: String,

    /// What the status of the object says once it has become primary.
    pub promoted: DataCheck,

    /// What the status of the object says once it is secondary and all its data is copied.
    pub demoted: DataCheck,

    /// Seconds that the engine may take to demote the data in a cluster that is cut off, once the
    /// agent there has set `secondary` (with `failover.cluster.fencing`). Default: 60.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 60, "minimum" = 1, "maximum" = 86_400))]
    pub demotion_seconds: Option<i32>,

    /// Action if the cluster with the primary is silent.
    ///
    /// - `Wait` (the default): the workload stays until its cluster is certainly fenced
    ///   (`failover.cluster.fencing`) or is back.
    /// - `Promote`: the failover goes on although the old primary may still be written to. For
    ///   engines that fence the old primary themselves.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Wait"))]
    pub when_unreachable: Option<WhenUnreachable>,
}

impl DataRole {
    /// Returns whether the role goes on while the cluster with the primary is silent.
    pub fn promotes_unreachable(&self) -> bool {
        self.when_unreachable == Some(WhenUnreachable::Promote)
    }

    /// Returns the seconds that the engine may take to demote the data.
    pub fn demotion_seconds(&self) -> i32 {
        self.demotion_seconds.unwrap_or(DEMOTION_SECONDS)
    }
}

open_enum! {
    /// Action if the cluster with the primary is silent.
    WhenUnreachable {
        /// The role waits until the cluster is fenced or back.
        Wait = "Wait",
        /// The role goes on.
        Promote = "Promote",
    }
}

/// Statement in the status of an object: either a condition, or a field with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataCheck {
    /// Condition in `status.conditions`. Excludes `path`.
    #[serde(skip_serializing_if = "absent")]
    pub condition: Option<DataCondition>,

    /// Field of the status, as names separated by dots that begin with `status`, such as
    /// `status.state`. Requires `value`.
    #[serde(skip_serializing_if = "absent")]
    pub path: Option<String>,

    /// Value that the field has to have. Numbers and booleans are compared as text.
    #[serde(skip_serializing_if = "absent")]
    pub value: Option<String>,
}

/// Condition that has to be in the status of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct DataCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,

    /// Status that the condition has to have. Default: `True`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "True"))]
    pub status: Option<String>,
}

impl DataCondition {
    /// Returns the status that the condition has to have.
    pub fn status(&self) -> &str {
        self.status.as_deref().unwrap_or("True")
    }
}

/// Condition on an object in a cluster that has to hold before a copy of a workload is created
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["workload", "object", "ready"]))]
pub struct DataGate {
    /// Workload whose copy waits.
    pub workload: DataReference,

    /// Object that is looked at, in the namespace of the workload. It has to be propagated to the
    /// cluster by a policy.
    pub object: DataReference,

    /// What the status of the object in that cluster has to say.
    pub ready: DataCheck,

    /// Seconds after which a copy that still waits is reported as stuck by the event
    /// `DataNotReady` and the condition `DataPending`. Default: 600.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 600, "minimum" = 1, "maximum" = 86_400))]
    pub timeout_seconds: Option<i32>,

    /// Action after `timeoutSeconds`.
    ///
    /// - `Wait` (the default): the copy goes on waiting.
    /// - `Start`: the copy is created without the condition. The roles of the workload are waited
    ///   for nevertheless.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Wait"))]
    pub on_timeout: Option<OnDataTimeout>,
}

impl DataGate {
    /// Returns the seconds after which a copy that still waits is reported as stuck.
    pub fn timeout_seconds(&self) -> i32 {
        self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS)
    }

    /// Returns whether the copy is created then without the condition.
    pub fn starts_on_timeout(&self) -> bool {
        self.on_timeout == Some(OnDataTimeout::Start)
    }
}

open_enum! {
    /// Action when a copy has waited for its data for too long.
    OnDataTimeout {
        /// The copy goes on waiting.
        Wait = "Wait",
        /// The copy is created.
        Start = "Start",
    }
}
