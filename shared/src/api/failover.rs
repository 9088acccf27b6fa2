//! Failover behaviour: the `failover` of a policy and of a binding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, failback::Failback, macros::open_enum, nullable};

/// Conditions under which a resource is moved to another cluster, and how the old copy is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailoverBehavior {
    /// Failover when the application is unhealthy in a cluster although the cluster is ready. Does
    /// not depend on the feature gate `Failover`. Requires `propagateDeps` and a kind whose health
    /// Muster can tell. If absent, the health of the application moves nothing.
    #[serde(skip_serializing_if = "absent")]
    pub application: Option<ApplicationFailoverBehavior>,

    /// Failover when the cluster is tainted. A taint with effect `PreferNoExecute` moves only
    /// resources that have this field. For taints with effect `NoExecute`,
    /// `placement.clusterTolerations` decide when the resource leaves, and only `purgeMode`,
    /// `gracePeriodSeconds` and `statePreservation` apply. Requires the feature gate `Failover`. If
    /// absent, `PreferNoExecute` taints move nothing and the flag
    /// `--no-execute-taint-eviction-purge-mode` decides for `NoExecute`.
    #[serde(skip_serializing_if = "absent")]
    pub cluster: Option<ClusterFailoverBehavior>,
}

open_enum! {
    /// When the copy in the old cluster is deleted.
    PurgeMode {
        /// The old copy is deleted before the new one is created.
        Directly = "Directly",
        /// The old copy is deleted when the new one is healthy, or when the grace period has
        /// passed.
        Gracefully = "Gracefully",
        /// The old copy is never deleted automatically.
        Never = "Never",
        /// Deprecated spelling of `Directly`, used by Karmada before 1.15.
        Immediately = "Immediately",
        /// Deprecated spelling of `Gracefully`, used by Karmada before 1.15.
        Graciously = "Graciously",
    }
}

impl PurgeMode {
    /// Returns the mode with deprecated spellings replaced. Objects keep the spelling that they
    /// were written with, because an older API server accepts no other; decisions use this one.
    pub fn canonical(&self) -> &Self {
        match self {
            Self::Immediately => &Self::Directly,
            Self::Graciously => &Self::Gracefully,
            mode => mode,
        }
    }

    /// Returns whether an old copy waits for the new one, as it does where no mode is given.
    pub fn is_graceful(mode: Option<&Self>) -> bool {
        mode.is_none_or(|mode| *mode.canonical() == Self::Gracefully)
    }
}

/// Failover of an application that is unhealthy in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["decisionConditions"]))]
pub struct ApplicationFailoverBehavior {
    /// Conditions under which the application counts as failed.
    pub decision_conditions: DecisionConditions,

    /// When the old copy is deleted.
    ///
    /// - `Directly`: before the new copy is created.
    /// - `Gracefully` (the default): when the new copy is healthy, or when `gracePeriodSeconds`
    ///   have passed. Requires the feature gate `GracefulEviction`.
    /// - `Never`: when `suppressDeletion` of the eviction task is set to false.
    ///
    /// `Immediately` and `Graciously` are deprecated spellings of `Directly` and `Gracefully`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Gracefully"))]
    pub purge_mode: Option<PurgeMode>,

    /// Seconds after which the old copy is deleted even if the new one is not healthy yet, provided
    /// that the new cluster is ready. Only with `purgeMode` `Gracefully`; must be positive.
    /// Default: 600.
    #[serde(skip_serializing_if = "absent")]
    pub grace_period_seconds: Option<i32>,

    /// Values from the status of the old copy that are passed to the new copy as labels. Used only
    /// with `purgeMode` `Directly` and the feature gate `StatefulFailoverInjection`; if a value
    /// cannot be read, the application is not moved. If absent, no labels are added.
    #[serde(skip_serializing_if = "absent")]
    pub state_preservation: Option<StatePreservation>,
}

/// Conditions under which an application counts as failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionConditions {
    /// Seconds for which the application may be reported `Unhealthy` before it is moved. A report
    /// `Healthy` or `Unknown` restarts the count. 0 moves it at once. Default: 300.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 0))]
    pub toleration_seconds: Option<i32>,
}

/// Failover of a resource whose cluster is tainted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFailoverBehavior {
    /// When the old copy is deleted.
    ///
    /// - `Directly`: as soon as another cluster is chosen. The new copy waits until the old one is
    ///   gone only with `statePreservation`.
    /// - `Gracefully` (the default): when the new copy is healthy, or when `gracePeriodSeconds`
    ///   have passed.
    /// - `Never`: when `suppressDeletion` of the eviction task is set to false.
    ///
    /// `Immediately` and `Graciously` are deprecated spellings of `Directly` and `Gracefully`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = "Gracefully"))]
    pub purge_mode: Option<PurgeMode>,

    /// Seconds for which a taint with effect `PreferNoExecute` is tolerated before the resource
    /// leaves the cluster. Does not apply to `NoExecute`. 0 moves it at once. Default: 300.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("default" = 300, "minimum" = 0))]
    pub toleration_seconds: Option<i32>,

    /// Seconds after which the old copy is deleted even if the new one is not healthy yet, provided
    /// that the new cluster is ready. Only with `purgeMode` `Gracefully`; must be positive. If
    /// absent, the old copy stays until the new one is healthy.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 1))]
    pub grace_period_seconds: Option<i32>,

    /// Values from the status of the old copy that are passed to the new copy as labels. Used only
    /// with `purgeMode` `Directly` and the feature gate `StatefulFailoverInjection`; if a value
    /// cannot be read, the resource is not moved. If absent, no labels are added.
    #[serde(skip_serializing_if = "absent")]
    pub state_preservation: Option<StatePreservation>,

    /// Stop of a copy whose cluster is cut off, before another copy is made (Muster's own). For
    /// workloads that must not run twice. If absent, the copy in a cluster that is cut off goes on
    /// while its replacement starts.
    ///
    /// The agent in the cluster stops the copy when it has not been able to renew the lease of its
    /// cluster for `afterSeconds`, by its own monotonic clock, in which time counts for which the
    /// machine was suspended. Deployments, StatefulSets (with their pods), ReplicaSets and custom
    /// resources whose rules can set replicas to zero are scaled to zero. Jobs, CronJobs (with
    /// their Jobs) and custom resources with replicas and a boolean `spec.suspend` in their
    /// manifest are suspended; those in a queue of Kueue (label `kueue.x-k8s.io/queue-name`), which
    /// would start them again, are deleted. DaemonSets, Pods and other custom resources with
    /// replicas are deleted. Other kinds, such as ConfigMaps, Secrets, Services, and custom
    /// resources without a rule that returns their replicas, are no workloads: they are never
    /// stopped, and move as without fencing. The annotation `failover.muster.io/stopped` of the
    /// object remembers what it was.
    ///
    /// No other copy is made before the old one is removed by its agent, or `afterSeconds`, the
    /// flag `--fencing-margin` and the `terminationGracePeriodSeconds` of its pods have passed
    /// since the control plane last saw the lease renewed; whatever asks for the move. Until then
    /// the conditions `EvictionPending` and `RemovalPending` of the binding give the reason.
    /// When the lease is renewed again, the agent first reads whether its copy is still wanted:
    /// then it runs again, otherwise it is removed. `purgeMode` `Gracefully` acts as `Directly`,
    /// and `Never` is rejected, because with both two copies would run.
    ///
    /// Guaranteed: two copies do not run at once, if an agent runs and reaches the API server of
    /// its cluster all the time, if that one's controllers and kubelets carry out within the margin
    /// what it says, and if the two clocks run at rates that differ by less than one percent. Steps
    /// of the time of day do not matter. An agent that is restarted on its node continues to count;
    /// one that is started on another node, and cannot renew the lease, stops the copy a lease
    /// duration after its start. Of several agents of a cluster each stops the copy, once none of
    /// them renews the lease; one that could not read for a while whether another one does waits
    /// for a renewal interval and 5 s first.
    ///
    /// Not guaranteed: a copy whose agents are dead, or whose nodes or API server are cut off from
    /// them, goes on, and is not stopped. The same holds where a virtual machine of the agent is
    /// paused and its clocks with it. A person who deletes the Cluster, removes finalizers of a
    /// Work, or takes this field from the policy, answers for the copy there. An outage of the
    /// fleet API that lasts `afterSeconds` stops the workload in every cluster. Shares of a
    /// workload that is divided over several clusters are each fenced; clusters that keep a share
    /// are not waited for when shares change. A Job that ends while its cluster is cut off runs
    /// again elsewhere: its copies do not overlap, and its work may be done twice. Works that
    /// another control plane makes, such as Karmada's binding controller, are not fenced.
    ///
    /// A cluster whose agent does not confirm that it fences, and every cluster of sync mode Push,
    /// is waited for until it is ready and has removed its copy. The condition `Fenced` of the
    /// binding says beforehand whether all copies are fenced, or which are not and why.
    #[serde(skip_serializing_if = "absent")]
    pub fencing: Option<Fencing>,

    /// Return of the resource to a cluster that it left because of a taint or a drain, once that
    /// cluster is healthy (Muster's own). If absent, the flag `--failback` decides, which by
    /// default brings nothing back.
    ///
    /// The resource is placed anew, by the rules for one that has no clusters yet, if that brings
    /// replicas to the cluster that it left. It moves at the rate of evictions, after these, and
    /// not while movement is paused. Each old copy stays until the new ones are healthy, unless
    /// `purgeMode` is `Directly` or there is `fencing`. Requires the feature gate `Failover`.
    #[serde(skip_serializing_if = "absent")]
    pub failback: Option<Failback>,
}

/// Stop of the copy in a cluster that is cut off, so that at most one copy runs. Muster's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["afterSeconds"]))]
pub struct Fencing {
    /// Seconds without a renewal of the lease after which the agent stops the copy. At least the
    /// flag `--cluster-monitor-grace-period`, and the duration of the agent's lease: else a short
    /// trouble of the network would stop it. At most 86,400 (a day).
    #[schemars(extend("minimum" = 1, "maximum" = 86_400))]
    pub after_seconds: i32,
}

/// Labels of the new copy whose values come from the status of the old copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["rules"]))]
pub struct StatePreservation {
    /// Rules that make one label each; at most 64. If two rules name the same label, the later one
    /// wins.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = 64))]
    pub rules: Vec<StatePreservationRule>,
}

/// Rule that makes one label from the status of the old copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["aliasLabelName", "jsonPath"]))]
pub struct StatePreservationRule {
    /// Name of the label on the new copy; must be a valid label key.
    pub alias_label_name: String,
    /// JSONPath template, in the syntax of `kubectl -o jsonpath`, that is evaluated on the status
    /// that the old cluster reported, for example `{.jobStatus.jobID}`. The result must be a valid
    /// label value. At most 1,024 characters.
    #[serde(rename = "jsonPath")]
    #[schemars(extend("maxLength" = crate::jsonpath::LENGTH))]
    pub json_path: String,
}
