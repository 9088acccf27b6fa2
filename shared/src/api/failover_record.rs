//! `Failover` (`failover.muster.io/v1alpha1`): the record of one outage, drain or series of
//! application failovers. Muster's own kind; Karmada has none.

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
    /// Record of a failover: why workloads had to leave a cluster, when, how many left, where they
    /// went, what could not leave, and how long it took until they were healthy elsewhere.
    ///
    /// The control plane writes it, and nothing reads it to decide anything: a record may be
    /// deleted at any time. The control plane deletes the oldest ended ones beyond
    /// `--failover-history-limit`, and those that ended `--failover-history-age` ago.
    Failover {
        group: "failover.muster.io",
        version: "v1alpha1",
        plural: "failovers",
        scope: Cluster,
        spec: FailoverSpec,
        status: FailoverStatus,
        short_names: ["fo"],
        categories: ["muster-io"],
        columns: [
            Column::text("CLUSTER", ".spec.cluster"),
            Column::text("CAUSE", ".status.cause.type"),
            Column::text("STATE", ".status.state"),
            Column::date("BEGAN", ".spec.startTime"),
            Column::integer("WORKLOADS", ".status.workloads.affected"),
            Column::integer("MOVED", ".status.workloads.moved"),
            Column::integer("HEALTHY", ".status.workloads.healthy"),
            Column::integer("STRANDED", ".status.workloads.stranded"),
            Column::integer("HELD", ".status.workloads.held"),
            Column::integer("MEDIAN", ".status.timeToHealthy.medianSeconds").wide(),
            Column::integer("95%", ".status.timeToHealthy.p95Seconds").wide(),
            Column::text("MESSAGE", ".status.cause.message").wide(),
        ],
    }
}

/// Subject of a record. Never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "subject", "startTime"]))]
pub struct FailoverSpec {
    /// Name of the cluster that workloads had to leave.
    pub cluster: String,

    /// Part of the cluster that failed.
    ///
    /// - `Cluster`: the whole cluster, or it was drained or tainted.
    /// - `Applications`: single applications that stayed unhealthy there. Those that leave a
    ///   cluster within five minutes of each other share a record.
    pub subject: Subject,

    /// Beginning of the cause: the last heartbeat of a silent cluster, otherwise the time at which
    /// its condition changed, its taint was added, or the application became unhealthy.
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,
}

open_enum! {
    /// Part of a cluster that failed.
    Subject {
        /// The whole cluster.
        Cluster = "Cluster",
        /// Single applications.
        Applications = "Applications",
    }
}

/// Course of a failover. Written by the control plane, at most once every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["state", "cause", "times", "workloads"]))]
pub struct FailoverStatus {
    /// State of the failover.
    ///
    /// - `Active`: the cause lasts.
    /// - `Settling`: the cause is over, and some workload is not healthy elsewhere yet, or its old
    ///   copy is not removed yet.
    /// - `Ended`: the rest. The record changes again only if the cause returns within five minutes.
    pub state: State,

    /// Cause, as it was at the beginning.
    pub cause: Cause,

    /// Times of the steps. A step that has not happened has none.
    pub times: Times,

    /// Number of times that the cause returned within five minutes of its end, or while workloads
    /// of this failover were not healthy yet. Zero if it lasted without a break.
    #[serde(skip_serializing_if = "absent")]
    pub relapses: u32,

    /// Times at which the cause was over and returned, the last 16 of them, the earliest first.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 16))]
    pub returns: Vec<Return>,

    /// Numbers of workloads that failed over or could not.
    pub workloads: Workloads,

    /// Number of workloads that each cluster received, by name of the cluster. A workload that was
    /// placed in several clusters counts in each. At most 64 clusters; the others are in
    /// `otherTargets`.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 64))]
    pub targets: Vec<Target>,

    /// Number of placements in clusters that `targets` does not name.
    #[serde(skip_serializing_if = "absent")]
    pub other_targets: u32,

    /// Reasons why workloads could not leave, each with the number of workloads, as they were when
    /// most were stranded.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 16))]
    pub stranded_reasons: Vec<StrandedReason>,

    /// Workloads that could not leave, as they were when most were stranded; at most as many as
    /// `--failover-history-entries`.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub stranded: Vec<StrandedWorkload>,

    /// Time from the cause until workloads were healthy elsewhere. Absent until one is.
    #[serde(skip_serializing_if = "absent")]
    pub time_to_healthy: Option<TimeToHealthy>,

    /// First workloads that moved; at most as many as `--failover-history-entries`.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub moves: Vec<Move>,
}

open_enum! {
    /// State of a failover.
    State {
        /// The cause lasts.
        Active = "Active",
        /// The cause is over, and not everything is in order again.
        Settling = "Settling",
        /// Everything is in order again.
        Ended = "Ended",
    }
}

/// Cause of a failover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Cause {
    /// Kind of the cause.
    ///
    /// - `ClusterUnreachable`: the cluster was silent (Ready is Unknown).
    /// - `ClusterNotReady`: the cluster reported that it is not ready (Ready is False).
    /// - `Drain`: a person drained it, see `command`.
    /// - `TaintPolicy`: a ClusterTaintPolicy tainted a ready cluster, see `policies`.
    /// - `Taint`: a ready cluster was tainted by other means.
    /// - `ApplicationFailure`: applications stayed unhealthy in the cluster.
    #[serde(rename = "type")]
    pub kind: CauseType,

    /// Explanation in a sentence: the message of the condition, or the taint.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 1024))]
    pub message: String,

    /// Taints of the cluster by which workloads leave it, as `key=value:effect`, all that there
    /// were since the beginning; at most 16.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 16))]
    pub taints: Vec<String>,

    /// Names of the ClusterTaintPolicies that added such taints; at most 16.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 16))]
    pub policies: Vec<String>,

    /// Command by which a person caused the failover, such as `kubectl muster drain member1`.
    #[serde(skip_serializing_if = "absent")]
    pub command: Option<String>,
}

open_enum! {
    /// Kind of the cause of a failover.
    CauseType {
        /// The cluster was silent.
        ClusterUnreachable = "ClusterUnreachable",
        /// The cluster reported that it is not ready.
        ClusterNotReady = "ClusterNotReady",
        /// A person drained the cluster.
        Drain = "Drain",
        /// A policy tainted the cluster.
        TaintPolicy = "TaintPolicy",
        /// The cluster was tainted by other means.
        Taint = "Taint",
        /// Applications stayed unhealthy.
        ApplicationFailure = "ApplicationFailure",
    }
}

/// Times of the steps of a failover, in whole seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Times {
    /// Last heartbeat before the silence, by the clock of the agent. Absent unless the cluster was
    /// silent.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub silent_since: Option<Time>,
    /// Time at which Ready of the cluster became False or Unknown.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub not_ready: Option<Time>,
    /// Time at which the first taint was added by which workloads leave.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub tainted: Option<Time>,
    /// Time at which the agent of the cluster, if it ran, began to stop copies whose policies ask
    /// for that (`fencing`): the last heartbeat and the shortest `afterSeconds` of their policies.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub stopped: Option<Time>,
    /// Time at which the first workload was placed elsewhere.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub first_move: Option<Time>,
    /// Time at which the last workload was placed elsewhere.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub last_move: Option<Time>,
    /// Time since which all workloads that moved have been healthy elsewhere, each for once.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub healthy: Option<Time>,
    /// Time at which the cause ended: the cluster was well again or left the fleet.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub recovered: Option<Time>,
    /// Time at which the last old copy was removed.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub cleaned: Option<Time>,
    /// Time at which the failover ended.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub ended: Option<Time>,
}

/// Numbers of workloads of a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["affected", "moved", "healthy", "stranded", "strandedNow"]))]
pub struct Workloads {
    /// Workloads that were in the cluster.
    pub affected: u32,
    /// Workloads that were placed elsewhere. One that moved twice counts once.
    pub moved: u32,
    /// Workloads of `moved` that have been healthy elsewhere.
    pub healthy: u32,
    /// Greatest number of workloads that could not leave at one time. A record of an earlier
    /// version counts those in it, too, that `held` counts now.
    pub stranded: u32,
    /// Workloads that cannot leave now.
    pub stranded_now: u32,
    /// Greatest number of workloads that were held at one time: too many clusters had failed, or
    /// movement was paused.
    pub held: u32,
    /// Workloads that are held now.
    pub held_now: u32,
}

/// End of the cause of a failover that returned soon after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["recovered", "returned"]))]
pub struct Return {
    /// Time at which the cause was over.
    #[schemars(schema_with = "schema::time")]
    pub recovered: Option<Time>,
    /// Time at which the cause began again.
    #[schemars(schema_with = "schema::time")]
    pub returned: Option<Time>,
}

/// Number of workloads that a cluster received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "workloads"]))]
pub struct Target {
    /// Name of the receiving cluster.
    pub cluster: String,
    /// Number of workloads that were placed there.
    pub workloads: u32,
}

/// Reason for which workloads could not leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["reason", "workloads"]))]
pub struct StrandedReason {
    /// Reason of the condition `EvictionPending`: `NowhereToGo`, `StateNotPreserved` or
    /// `NotFenced`.
    pub reason: String,
    /// Number of workloads that stayed for this reason.
    pub workloads: u32,
}

/// Reference to a workload in the fleet API.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct FailoverWorkload {
    /// Kind of the workload.
    pub kind: String,
    /// Namespace of the workload. Absent for a cluster-scoped resource.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the workload.
    pub name: String,
}

/// Workload that could not leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["workload", "reason"]))]
pub struct StrandedWorkload {
    /// Workload that stayed in the cluster.
    pub workload: FailoverWorkload,
    /// Reason of its condition `EvictionPending`.
    pub reason: String,
    /// Beginning of the message of that condition.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 512))]
    pub message: String,
}

/// Time from the cause until workloads were healthy elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["medianSeconds", "p95Seconds", "counts"]))]
pub struct TimeToHealthy {
    /// Seconds within which half of the workloads were healthy.
    pub median_seconds: u64,
    /// Seconds within which 95 of 100 workloads were healthy.
    #[serde(rename = "p95Seconds")]
    pub p95_seconds: u64,
    /// Numbers of workloads by seconds. Beyond 400 different numbers of seconds those from 1000 on
    /// are rounded up to three digits, and beyond that those from 100 on to two.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = 1000))]
    pub counts: Vec<SecondsCount>,
}

/// Number of workloads that were healthy after the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["seconds", "workloads"]))]
pub struct SecondsCount {
    /// Seconds from the cause until the workload was healthy.
    pub seconds: u64,
    /// Number of workloads that took so long.
    pub workloads: u32,
}

/// Placement of a workload elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["workload", "to", "time"]))]
pub struct Move {
    /// Workload that was placed elsewhere.
    pub workload: FailoverWorkload,
    /// Clusters that it was placed in, separated by commas; with very many, the first few.
    pub to: String,
    /// Time at which it was placed there.
    #[schemars(schema_with = "schema::time")]
    pub time: Option<Time>,
    /// Time at which all these clusters reported that it is applied. Absent until then.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub applied: Option<Time>,
    /// Time at which it was healthy there for the first time. Absent until then.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::time")]
    pub healthy: Option<Time>,
}
