//! `ClusterTaintPolicy` (`policy.karmada.io/v1alpha1`): taints that follow the conditions of
//! clusters.
//!
//! The kind has two forms, which a policy may combine:
//!
//! - Karmada's released form: `targetClusters`, `addOnConditions`, `removeOnConditions`, `taints`.
//!   Taints are added and removed at once. If neither list matches, they stay as they are.
//! - The form with delays, from Karmada's proposal "Optimize Cluster Failover": `targetCluster`,
//!   `matchConditions`, `taintsToAdd`. A taint is added after the conditions have matched for a
//!   time, and removed after they have not matched for a time.

use k8s_openapi::api::core::v1::Taint as ClusterTaint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    definition::Column,
    macros::{open_enum, resource},
    nullable,
    policy::ClusterAffinity,
    schema,
};

resource! {
    /// Adds taints to clusters, and removes them, according to the conditions of the clusters.
    ///
    /// `taints` are added and removed at once, by `addOnConditions` and `removeOnConditions`.
    /// `taintsToAdd` are added after `matchConditions` have matched for a time, and removed after
    /// they have not matched for a time. A policy may have both.
    ClusterTaintPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "clustertaintpolicies",
        scope: Cluster,
        spec: ClusterTaintPolicySpec,
        status: ClusterTaintPolicyStatus,
        short_names: ["ctp"],
        categories: ["karmada-io"],
        columns: [
            Column::text("READY", r#".status.conditions[?(@.type=="Ready")].status"#),
            Column::text("EFFECTIVE", r#".status.conditions[?(@.type=="Effective")].status"#),
            Column::integer("SELECTED", ".status.selected"),
            Column::integer("MATCHING", ".status.matching"),
            Column::integer("TAINTED", ".status.tainted"),
            Column::text("REASON", r#".status.conditions[?(@.type=="Ready")].reason"#),
            Column::age("AGE"),
            Column::text("WHY", r#".status.conditions[?(@.type=="Ready")].message"#).wide(),
            // Whole lists: of a path to parts of them the API server shows the first alone.
            Column::text("MATCH-CONDITIONS", ".spec.matchConditions").wide(),
            Column::text("TAINTS-TO-ADD", ".spec.taintsToAdd").wide(),
            Column::text("ADD-ON-CONDITIONS", ".spec.addOnConditions").wide(),
            Column::text("TAINTS", ".spec.taints").wide(),
        ],
    }
}

/// Clusters, conditions and taints of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.taints) || has(self.taintsToAdd)",
        "message": "a policy has taints or taintsToAdd",
    },
    {
        "rule": "!(has(self.targetClusters) && has(self.targetCluster))",
        "message": "targetClusters and targetCluster are two names for the same thing: use one",
    },
]))]
pub struct ClusterTaintPolicySpec {
    /// Clusters that the policy applies to. Excludes `targetCluster`. If both are absent, all
    /// clusters.
    #[serde(skip_serializing_if = "absent")]
    pub target_clusters: Option<ClusterAffinity>,

    /// Conditions of a cluster under which `taints` are added. All must match. If empty, `taints`
    /// are never added.
    #[serde(skip_serializing_if = "absent")]
    pub add_on_conditions: Vec<MatchCondition>,

    /// Conditions of a cluster under which `taints` are removed. All must match. If empty, `taints`
    /// are never removed.
    #[serde(skip_serializing_if = "absent")]
    pub remove_on_conditions: Vec<MatchCondition>,

    /// Taints that are added and removed at once. They stay on the cluster if neither
    /// `addOnConditions` nor `removeOnConditions` match, and when the policy is deleted. Required
    /// unless there are `taintsToAdd`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(length(min = 1))]
    pub taints: Vec<Taint>,

    /// Clusters that the policy applies to: another name for `targetClusters`, which it excludes.
    /// If both are absent, all clusters.
    #[serde(skip_serializing_if = "absent")]
    pub target_cluster: Option<ClusterAffinity>,

    /// Conditions of a cluster under which it gets `taintsToAdd`. All must match. If empty, they
    /// always match.
    #[serde(skip_serializing_if = "absent")]
    pub match_conditions: Vec<MatchCondition>,

    /// Taints that are added and removed with a delay. They are removed when the policy is deleted
    /// or no longer applies to the cluster. A taint that a user removes stays off until the
    /// conditions stop matching. Required unless there are `taints`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(length(min = 1))]
    pub taints_to_add: Vec<TaintToAdd>,
}

impl ClusterTaintPolicySpec {
    /// Returns the clusters that the policy applies to, from whichever of the two fields is set;
    /// `None` means all.
    pub fn target(&self) -> Option<&ClusterAffinity> {
        self.target_clusters
            .as_ref()
            .or(self.target_cluster.as_ref())
    }
}

/// Effect of a policy on the fleet. Written by Muster's control plane; Karmada's policies have no
/// status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["selected", "matching", "tainted"]))]
pub struct ClusterTaintPolicyStatus {
    /// Generation of the policy that the status is about.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,

    /// Number of clusters that the policy applies to.
    #[schemars(extend("minimum" = 0))]
    pub selected: u32,

    /// Number of clusters of `selected` that match `addOnConditions` or `matchConditions` now,
    /// whether or not the time in `addOnMatchSeconds` has passed.
    #[schemars(extend("minimum" = 0))]
    pub matching: u32,

    /// Number of clusters that have a taint of the policy. A taint that a person added, or that
    /// only another policy holds, does not count. `taints` that several policies add count for
    /// each of them.
    #[schemars(extend("minimum" = 0))]
    pub tainted: u32,

    /// Types of conditions in the policy that none of the selected clusters has, such as a
    /// misspelt one; at most 10. Conditions that Muster itself sets only in case of trouble are
    /// not listed.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 10))]
    pub unknown_conditions: Vec<UnknownCondition>,

    /// Conditions of the policy.
    ///
    /// - `Ready`: the policy can be carried out. False with reason `Invalid` or `NoConditions`, and
    ///   the message names the part of the policy that has to be changed.
    /// - `Effective`: the policy acts on clusters as soon as they match. True with reason
    ///   `NoClusterMatches`, `Matching` (a cluster matches and has no taint of the policy: a delay
    ///   runs, or a person removed the taint) or `Tainting`. False where it is not ready, and with
    ///   reason `NoClusterSelected` or `UnknownCondition`: there is no cluster that it could act
    ///   on, or none has the condition that it names, which may be misspelt.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Type of a condition that no selected cluster has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["conditionType"]))]
pub struct UnknownCondition {
    /// Type as written in the policy, cut after 64 bytes.
    pub condition_type: String,

    /// Time at which the control plane first missed the condition. It starts anew when a cluster
    /// with the condition has been seen.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
}

open_enum! {
    /// Relation between the status of a condition and a list of values.
    MatchConditionOperator {
        /// The status is one of the values.
        In = "In",
        /// The status is none of the values. A cluster without the condition does not match.
        NotIn = "NotIn",
    }
}

/// Requirement on one condition of a cluster. A cluster that does not have the condition does not
/// match, whatever the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["conditionType", "operator", "statusValues"]))]
pub struct MatchCondition {
    /// Type of the condition in `status.conditions` of the Cluster, such as `Ready`.
    pub condition_type: String,
    /// Relation between the status of the condition and `statusValues`.
    ///
    /// - `In`: the status is one of the values.
    /// - `NotIn`: the status is none of the values.
    pub operator: MatchConditionOperator,
    /// Statuses that the condition is compared with: `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub status_values: Vec<String>,
}

/// Taint that is added and removed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["effect", "key"]))]
pub struct Taint {
    /// Key of the taint, a qualified name such as `example.com/maintenance`. The cluster
    /// controller's own taints, `cluster.karmada.io/not-ready` and `cluster.karmada.io/unreachable`
    /// with effect `NoSchedule`, are rejected.
    #[schemars(extend("minLength" = 1, "maxLength" = 316, "pattern" = schema::LABEL_NAME))]
    pub key: String,
    /// Effect of the taint: `NoSchedule`, `NoExecute`, `PreferNoExecute` or `PreferNoSchedule`; see
    /// `spec.taints` of Cluster. Admission accepts `NoExecute` only with
    /// `--allow-no-execute-taint-policy`.
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"]))]
    pub effect: String,
    /// Value of the taint, which tolerations can match; a valid label value. If absent, the value
    /// is empty.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub value: Option<String>,
}

/// Taint that is added and removed with a delay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["effect", "key"]))]
pub struct TaintToAdd {
    /// Key of the taint, a qualified name such as `example.com/maintenance`. The cluster
    /// controller's own taints, `cluster.karmada.io/not-ready` and `cluster.karmada.io/unreachable`
    /// with effect `NoSchedule`, are rejected.
    #[schemars(extend("minLength" = 1, "maxLength" = 316, "pattern" = schema::LABEL_NAME))]
    pub key: String,

    /// Effect of the taint: `NoSchedule`, `NoExecute`, `PreferNoExecute` or `PreferNoSchedule`; see
    /// `spec.taints` of Cluster. Admission accepts `NoExecute` only with
    /// `--allow-no-execute-taint-policy`.
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"]))]
    pub effect: String,

    /// Value of the taint, which tolerations can match; a valid label value. If absent, the value
    /// is empty.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub value: Option<String>,

    /// Seconds for which the conditions must match without interruption before the taint is added.
    /// Counted by the control plane's clock, from when it sees them match. Default: 300.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 1))]
    pub add_on_match_seconds: Option<i32>,

    /// Seconds for which the conditions must not match, without interruption, before the taint is
    /// removed. Default: 180.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 180, "minimum" = 1))]
    pub remove_on_mismatch_seconds: Option<i32>,
}

impl TaintToAdd {
    /// Returns the seconds of match before the taint is added; 300 if not given (the proposal's
    /// default).
    pub fn add_on_match_seconds(&self) -> i32 {
        self.add_on_match_seconds.unwrap_or(300)
    }

    /// Returns the seconds of mismatch before the taint is removed; 180 if not given (the
    /// proposal's default).
    pub fn remove_on_mismatch_seconds(&self) -> i32 {
        self.remove_on_mismatch_seconds.unwrap_or(180)
    }

    /// Returns the taint without a time.
    pub fn taint(&self) -> ClusterTaint {
        ClusterTaint {
            key: self.key.clone(),
            value: self.value.clone(),
            effect: self.effect.clone(),
            time_added: None,
        }
    }
}

impl Taint {
    /// Returns the taint without a time.
    pub fn taint(&self) -> ClusterTaint {
        ClusterTaint {
            key: self.key.clone(),
            value: self.value.clone(),
            effect: self.effect.clone(),
            time_added: None,
        }
    }
}
