//! Clusters that are being left: the `gracefulEvictionTasks` of a binding.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, failover::PurgeMode, schema};

/// A cluster that is being left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["fromCluster", "producer", "reason"]))]
pub struct GracefulEvictionTask {
    /// The cluster.
    pub from_cluster: String,

    /// What becomes of the copy there.
    #[serde(skip_serializing_if = "absent")]
    pub purge_mode: Option<PurgeMode>,

    /// How many replicas were there.
    #[serde(skip_serializing_if = "absent")]
    pub replicas: Option<i32>,

    /// Why, in one word for programs.
    #[schemars(length(min = 1, max = 32), extend("pattern" = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,

    /// Why, for people.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 1024))]
    pub message: Option<String>,

    /// The controller that wants it.
    pub producer: String,

    /// How long, in seconds, the copy waits for the new one at most; absent: as configured.
    #[serde(skip_serializing_if = "absent")]
    pub grace_period_seconds: Option<i32>,

    /// True: the copy stays until this becomes false.
    #[serde(skip_serializing_if = "absent")]
    pub suppress_deletion: Option<bool>,

    /// Labels for the new copy.
    #[serde(skip_serializing_if = "absent")]
    pub preserved_label_state: BTreeMap<String, String>,

    /// Since when; filled in by the controller that works the tasks off.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub creation_timestamp: Option<Time>,

    /// The clusters that had the resource before, so that a new one can be told.
    #[serde(skip_serializing_if = "absent")]
    pub clusters_before_failover: Vec<String>,
}
