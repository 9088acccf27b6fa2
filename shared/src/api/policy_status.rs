//! Status of a `PropagationPolicy` or `ClusterPropagationPolicy`: what it selects, what is placed,
//! and why the rest is not. Karmada's kinds have none.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, nullable, schema};

/// Observed state of a policy, written by Muster's detector. Karmada's policies have none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["selected", "placed", "refused", "waiting"]))]
pub struct PropagationStatus {
    /// Generation of the policy that the status is about.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,

    /// Resources that the policy is in charge of. One that its selectors name and another policy
    /// has does not count.
    #[schemars(extend("minimum" = 0))]
    pub selected: u32,

    /// Resources of `selected` that have clusters.
    #[schemars(extend("minimum" = 0))]
    pub placed: u32,

    /// Resources of `selected` that have no clusters: none fits, or something is missing.
    #[schemars(extend("minimum" = 0))]
    pub refused: u32,

    /// Resources of `placed` that have to leave a cluster, and have not left it yet.
    #[schemars(extend("minimum" = 0))]
    pub waiting: u32,

    /// Reasons why resources are refused or wait, the most frequent first; at most 10.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 10))]
    pub reasons: Vec<PropagationReason>,

    /// Conditions of the policy.
    ///
    /// - `Ready`: each selected resource has clusters, and at least one of them is not silent.
    ///   False if a resource is refused, or if another policy has all that this one selects;
    ///   Unknown (`NotHeard`) if all clusters of a resource are silent. The reason and the message
    ///   say why. It stays True where nothing is selected, which is no fault of the policy
    ///   (`Effective` reports it), and where a resource has to leave a cluster and cannot, since it
    ///   is placed.
    /// - `Effective`: each part of the policy has an effect. False if a selector finds nothing, a
    ///   cluster that it names does not exist, or a feature gate is off; the message names the
    ///   fields. It is judged half a minute after the policy, what it has, or the clusters of the
    ///   fleet have changed, and once a minute while it is False.
    /// - `Suspended`: copies are neither created nor changed in some clusters, because the policy
    ///   says so (`suspension`). The message names the clusters, who ordered that, and why. Set if
    ///   they were once.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Reason that resources of a policy have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["reason", "resources", "example", "message"]))]
pub struct PropagationReason {
    /// Reason of the condition `Scheduled` of a resource that is refused, or of `EvictionPending`
    /// of one that waits; `NotPropagated` where no binding could be made, and `NotScheduledYet`
    /// where the scheduler has not answered.
    pub reason: String,
    /// Number of resources with this reason.
    #[schemars(extend("minimum" = 0))]
    pub resources: u32,
    /// First of them, such as `Deployment shop/web`.
    pub example: String,
    /// Message about `example`, cut after 256 bytes.
    pub message: String,
}
