//! `ClusterTaintPolicy` (`policy.karmada.io/v1alpha1`): which conditions of a cluster put which taints on it.
//!
//! The kind is a superset of two forms. Karmada ships `targetClusters`, `addOnConditions`,
//! `removeOnConditions`, `taints`: taints come and go at once, and what matches neither list stays as it is. The
//! failover proposal has `targetCluster`, `matchConditions`, `taintsToAdd`: a taint comes when the conditions
//! have matched for a while and goes when they have not matched for a while. A policy may use both.

use k8s_openapi::api::core::v1::Taint as ClusterTaint;
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
    /// Puts taints on clusters by their conditions, and takes them off again.
    ClusterTaintPolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "clustertaintpolicies",
        scope: Cluster,
        spec: ClusterTaintPolicySpec,
        short_names: ["ctp"],
        categories: ["karmada-io"],
        columns: [
            Column::text("CONDITIONS", ".spec.matchConditions[*].conditionType"),
            Column::text("TAINTS", ".spec.taintsToAdd[*].key"),
            Column::text("EFFECTS", ".spec.taintsToAdd[*].effect"),
            Column::age("AGE"),
        ],
    }
}

/// Which conditions of which clusters put which taints on them.
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
    /// The clusters; absent means all.
    #[serde(skip_serializing_if = "absent")]
    pub target_clusters: Option<ClusterAffinity>,

    /// When all of these match, `taints` are added; empty means never.
    #[serde(skip_serializing_if = "absent")]
    pub add_on_conditions: Vec<MatchCondition>,

    /// When all of these match, `taints` are removed; empty means never.
    #[serde(skip_serializing_if = "absent")]
    pub remove_on_conditions: Vec<MatchCondition>,

    /// The taints of the shipped form.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(length(min = 1))]
    pub taints: Vec<Taint>,

    /// The clusters, by the name of the proposal; absent means all.
    #[serde(skip_serializing_if = "absent")]
    pub target_cluster: Option<ClusterAffinity>,

    /// While all of these match, `taintsToAdd` are wanted; empty means always.
    #[serde(skip_serializing_if = "absent")]
    pub match_conditions: Vec<MatchCondition>,

    /// The taints of the proposed form.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(length(min = 1))]
    pub taints_to_add: Vec<TaintToAdd>,
}

impl ClusterTaintPolicySpec {
    /// The clusters that the policy is about, by whichever name they were given; `None` means all.
    pub fn target(&self) -> Option<&ClusterAffinity> {
        self.target_clusters
            .as_ref()
            .or(self.target_cluster.as_ref())
    }
}

open_enum! {
    /// How a condition is compared.
    MatchConditionOperator {
        /// Its status is one of the values.
        In = "In",
        /// Its status is none of the values. A condition that the cluster does not have matches nothing.
        NotIn = "NotIn",
    }
}

/// A statement about one condition of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["conditionType", "operator", "statusValues"]))]
pub struct MatchCondition {
    /// Type of the condition.
    pub condition_type: String,
    /// How its status is compared.
    pub operator: MatchConditionOperator,
    /// The statuses: `True`, `False`, `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub status_values: Vec<String>,
}

/// A taint that comes and goes at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["effect", "key"]))]
pub struct Taint {
    /// Key.
    #[schemars(extend("minLength" = 1, "maxLength" = 316, "pattern" = schema::LABEL_NAME))]
    pub key: String,
    /// Effect.
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"]))]
    pub effect: String,
    /// Value.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub value: Option<String>,
}

/// A taint that waits before it comes and before it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["effect", "key"]))]
pub struct TaintToAdd {
    /// Key.
    #[schemars(extend("minLength" = 1, "maxLength" = 316, "pattern" = schema::LABEL_NAME))]
    pub key: String,

    /// Effect.
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "PreferNoExecute", "NoExecute"]))]
    pub effect: String,

    /// Value.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub value: Option<String>,

    /// How long, in seconds, the conditions must have matched without a break before the taint is added.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 1))]
    pub add_on_match_seconds: Option<i32>,

    /// How long, in seconds, the conditions must have been unmatched without a break before the taint is
    /// removed.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 180, "minimum" = 1))]
    pub remove_on_mismatch_seconds: Option<i32>,
}

impl TaintToAdd {
    /// Seconds of match before the taint comes; 300 unless told otherwise (the seed's default).
    pub fn add_on_match_seconds(&self) -> i32 {
        self.add_on_match_seconds.unwrap_or(300)
    }

    /// Seconds of mismatch before the taint goes; 180 unless told otherwise (the seed's default).
    pub fn remove_on_mismatch_seconds(&self) -> i32 {
        self.remove_on_mismatch_seconds.unwrap_or(180)
    }

    /// The taint itself, without a time.
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
    /// The taint itself, without a time.
    pub fn taint(&self) -> ClusterTaint {
        ClusterTaint {
            key: self.key.clone(),
            value: self.value.clone(),
            effect: self.effect.clone(),
            time_added: None,
        }
    }
}
