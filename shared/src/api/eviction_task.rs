//! Evictions in progress: the `gracefulEvictionTasks` of a binding.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, failover::PurgeMode, schema};
use crate::names::eviction::{REASON_APPLICATION_FAILURE, REASON_NOT_APPLIED};

/// Eviction of a resource from one cluster. While the task exists, the copy in that cluster is kept
/// as it is, except with purge mode `Directly`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["fromCluster", "producer", "reason"]))]
pub struct GracefulEvictionTask {
    /// Name of the cluster that the resource is evicted from. At most one task names a cluster.
    pub from_cluster: String,

    /// When the copy in `fromCluster` is deleted.
    ///
    /// - `Directly`: as soon as clusters are chosen. Works in other clusters wait until it is gone,
    ///   up to `gracePeriodSeconds` or else 10 minutes, unless `fromCluster` is not ready.
    /// - `Gracefully`: when the replacement is healthy, or when `gracePeriodSeconds` have passed.
    /// - `Never`: when `suppressDeletion` is set to false.
    ///
    /// `Immediately` and `Graciously` are deprecated spellings of `Directly` and `Gracefully`.
    /// Absent means `Gracefully`.
    #[serde(skip_serializing_if = "absent")]
    pub purge_mode: Option<PurgeMode>,

    /// Number of replicas that ran in `fromCluster` when the task was created. Absent for a
    /// resource without replicas.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: Option<i32>,

    /// Machine-readable reason for the eviction, in CamelCase. Muster writes `TaintUntolerated`,
    /// `ApplicationFailure`, `NotApplied` where the cluster could not apply the workload,
    /// `NoClusterFit`, and `PlacementChanged` where a healthy copy has to go since the placement
    /// without another cluster, or one that was requested, is a different one.
    #[schemars(length(min = 1, max = 32), extend("pattern" = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,

    /// Human-readable explanation that names the taint and the rule, or the time since which the
    /// application has been unhealthy. At most 1,024 characters.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 1024))]
    pub message: Option<String>,

    /// Controller that requested the eviction, such as `TaintManager` or `Scheduler`.
    pub producer: String,

    /// Seconds after `creationTimestamp` at which the task ends even if the replacement is not
    /// healthy yet, provided that one of the chosen clusters which are ready and not tainted
    /// against the resource has applied its Work, and each other one has applied or refused its
    /// own. Must be positive. Excludes `suppressDeletion`. If absent, the copy stays until the
    /// replacement is healthy: the flag `--graceful-eviction-timeout` has no effect.
    #[serde(skip_serializing_if = "absent")]
    pub grace_period_seconds: Option<i32>,

    /// If true, the copy is kept until this field is set to false or the resource is placed in
    /// `fromCluster` again. Setting it to false ends the task, and the copy is deleted. Excludes
    /// `gracePeriodSeconds`. If absent, `purgeMode` decides.
    #[serde(skip_serializing_if = "absent")]
    pub suppress_deletion: Option<bool>,

    /// Labels that are added to the replacement, with values taken from the status of the old copy
    /// by the policy's `statePreservation`. Used only with `purgeMode` `Directly`, if the
    /// replacement is a single cluster that is not in `clustersBeforeFailover`, and only with the
    /// feature gate `StatefulFailoverInjection`.
    #[serde(skip_serializing_if = "absent")]
    pub preserved_label_state: BTreeMap<String, String>,

    /// Time at which the task was created, from which `gracePeriodSeconds` count. If the controller
    /// that creates the task leaves it out, the graceful-eviction controller sets it.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub creation_timestamp: Option<Time>,

    /// Clusters that ran the resource before the eviction, `fromCluster` included. They are not
    /// given the labels of `preservedLabelState`. Set only if there are such labels.
    #[serde(skip_serializing_if = "absent")]
    pub clusters_before_failover: Vec<String>,
}

impl GracefulEvictionTask {
    /// Returns whether the copy goes as soon as clusters are chosen (purge mode `Directly`).
    pub fn purges_directly(&self) -> bool {
        let mode = self.purge_mode.as_ref().map(PurgeMode::canonical);
        mode == Some(&PurgeMode::Directly)
    }

    /// Returns whether the task alone says why the workload left the cluster: the application
    /// failed there, or could not be applied. The cluster itself shows no sign of that, unlike a
    /// taint.
    pub fn is_about_the_copy(&self) -> bool {
        [REASON_APPLICATION_FAILURE, REASON_NOT_APPLIED].contains(&&*self.reason)
    }

    /// Returns whether the task carries the state for the new copy. Nothing else has it until that
    /// copy is healthy, least of all when the cluster that it comes from has left the fleet.
    pub fn gives_state(&self) -> bool {
        self.purges_directly() && !self.preserved_label_state.is_empty()
    }

    /// Returns whether the copy is kept until somebody says otherwise. It waits for no replacement.
    pub fn is_kept(&self) -> bool {
        self.suppress_deletion == Some(true)
    }
}
