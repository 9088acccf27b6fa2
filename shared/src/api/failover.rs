//! What happens to a workload when it, or its cluster, fails: the `failover` of a policy and of a binding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, macros::open_enum, nullable};

/// What happens when the application or its cluster fails. An absent part means: nothing moves by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailoverBehavior {
    /// The application is unhealthy in a cluster.
    #[serde(skip_serializing_if = "absent")]
    pub application: Option<ApplicationFailoverBehavior>,

    /// The cluster has a taint of effect `PreferNoExecute`, or one of effect `NoExecute` that is not
    /// tolerated (for the latter only `purgeMode` and `statePreservation` count: tolerations say when).
    #[serde(skip_serializing_if = "absent")]
    pub cluster: Option<ClusterFailoverBehavior>,
}

open_enum! {
    /// What becomes of the copy in the cluster that is left.
    PurgeMode {
        /// It is deleted first, then the new one is made.
        Directly = "Directly",
        /// It is kept until the new one is healthy or a grace period ends.
        Gracefully = "Gracefully",
        /// It is kept until somebody says otherwise.
        Never = "Never",
        /// What Karmada called `Directly` before 1.15.
        Immediately = "Immediately",
        /// What Karmada called `Gracefully` before 1.15.
        Graciously = "Graciously",
    }
}

impl PurgeMode {
    /// The mode by its present name. The old spelling is kept in objects, since an old API server knows no
    /// other, but decisions are made by this.
    pub fn canonical(&self) -> &Self {
        match self {
            Self::Immediately => &Self::Directly,
            Self::Graciously => &Self::Gracefully,
            mode => mode,
        }
    }
}

/// What happens when the application is unhealthy in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["decisionConditions"]))]
pub struct ApplicationFailoverBehavior {
    /// When it has failed.
    pub decision_conditions: DecisionConditions,

    /// What becomes of the old copy.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Gracefully"))]
    pub purge_mode: Option<PurgeMode>,

    /// How long, in seconds, the old copy waits for the new one at most; only with `Gracefully`.
    #[serde(skip_serializing_if = "absent")]
    pub grace_period_seconds: Option<i32>,

    /// What the new copy is told about the old one.
    #[serde(skip_serializing_if = "absent")]
    pub state_preservation: Option<StatePreservation>,
}

/// When an application has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionConditions {
    /// How long, in seconds, the application may be unhealthy.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 0))]
    pub toleration_seconds: Option<i32>,
}

/// What happens when the cluster fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFailoverBehavior {
    /// What becomes of the old copy.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Gracefully"))]
    pub purge_mode: Option<PurgeMode>,

    /// How long, in seconds, a taint of effect `PreferNoExecute` may stay before the workload leaves.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 0))]
    pub toleration_seconds: Option<i32>,

    /// How long, in seconds, the old copy waits for the new one at most; only with `Gracefully`. Without it, until the
    /// new one is healthy.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 1))]
    pub grace_period_seconds: Option<i32>,

    /// What the new copy is told about the old one.
    #[serde(skip_serializing_if = "absent")]
    pub state_preservation: Option<StatePreservation>,
}

/// What the new copy is told about the old one, as labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["rules"]))]
pub struct StatePreservation {
    /// One label per rule; of two rules with the same label the later wins.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = 64))]
    pub rules: Vec<StatePreservationRule>,
}

/// One label for the new copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["aliasLabelName", "jsonPath"]))]
pub struct StatePreservationRule {
    /// Name of the label.
    pub alias_label_name: String,
    /// Where its value stands in the status of the old copy, for instance `{ .jobStatus.jobID }`.
    #[serde(rename = "jsonPath")]
    #[schemars(extend("maxLength" = crate::jsonpath::LENGTH))]
    pub json_path: String,
}
