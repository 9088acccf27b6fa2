//! `WorkloadRebalancer` (`apps.karmada.io/v1alpha1`): places workloads anew on request, for example
//! to bring them home after a failover.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    definition::Column,
    macros::{open_enum, resource},
    nullable, schema,
};

resource! {
    /// Has workloads placed anew, once: the scheduler chooses their clusters as if they had none,
    /// beginning with the first group of `clusterAffinities`. Nothing moves back by itself after a
    /// failover; this object brings workloads home.
    ///
    /// Workloads that move do so at the rate of evictions, and after these. An old copy stays until
    /// the new ones are healthy, unless the policy of the workload has `purgeMode` `Directly` or
    /// asks for fencing.
    ///
    /// The status says for each workload whether its placement was requested.
    WorkloadRebalancer {
        group: "apps.karmada.io",
        version: "v1alpha1",
        plural: "workloadrebalancers",
        scope: Cluster,
        spec: WorkloadRebalancerSpec,
        status: WorkloadRebalancerStatus,
        categories: ["karmada-io"],
        columns: [
            Column::date("FINISHED", ".status.finishTime"),
            Column::age("AGE"),
        ],
    }
}

/// Workloads to place anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["workloads"]))]
pub struct WorkloadRebalancerSpec {
    /// Workloads that are placed anew, each once. One that is added later is placed anew when it
    /// is added.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    pub workloads: Vec<WorkloadReference>,

    /// Seconds after the end of all requests until the object is deleted. If absent, it stays.
    #[serde(rename = "ttlSecondsAfterFinished", skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// Reference to a workload in the fleet API.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind", "name"]))]
pub struct WorkloadReference {
    /// API version of the workload, such as `apps/v1`.
    pub api_version: String,
    /// Kind of the workload, such as `Deployment`.
    pub kind: String,
    /// Name of the workload in the fleet API.
    pub name: String,
    /// Namespace of the workload. Absent for a cluster-scoped resource.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
}

/// Progress of the requests. Written by the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRebalancerStatus {
    /// Result for each workload of the spec. A workload that was taken out of the spec after its
    /// request succeeded stays in the list.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub observed_workloads: Vec<ObservedWorkload>,

    /// Generation of the spec that the status is about.
    #[serde(skip_serializing_if = "absent")]
    pub observed_generation: i64,

    /// Time at which every workload of the spec had a result. Absent while one has none.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub finish_time: Option<Time>,
}

/// Result for one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["workload"]))]
pub struct ObservedWorkload {
    /// Workload that the result is about.
    pub workload: WorkloadReference,
    /// Result of the request; absent while the scheduler has not answered it, for example because
    /// the workload waits for the eviction rate.
    ///
    /// - `Successful`: the scheduler has processed the request, and placed the workload anew or
    ///   left it where it is.
    /// - `Failed`: it was not asked, for the reason in `reason`.
    #[serde(skip_serializing_if = "absent")]
    pub result: Option<RebalanceResult>,
    /// Reason of a failure: `ReferencedBindingNotFound` if no policy propagates the workload.
    #[serde(skip_serializing_if = "absent")]
    pub reason: Option<RebalanceFailure>,
}

open_enum! {
    /// Result of a request to place a workload anew.
    RebalanceResult {
        /// The scheduler has answered.
        Successful = "Successful",
        /// The scheduler was not asked.
        Failed = "Failed",
    }
}

open_enum! {
    /// Reason why a workload is not placed anew.
    RebalanceFailure {
        /// The workload has no binding.
        ReferencedBindingNotFound = "ReferencedBindingNotFound",
    }
}
