//! Settings of the control plane: the flags of karmada-controller-manager and karmada-scheduler,
//! with the same names, meaning and syntax, and flags from the proposal, which are marked.

pub mod grade_rule;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ArgAction::Set;
use muster_shared::settings::{
    BindAddress, Controllers, Duration, Error, FeatureGates, Gate, Stage, Words,
};
use muster_shared::telemetry::LogFormat;
use serde::Deserialize;

use crate::settings::grade_rule::GradeRule;

/// Governs all movement of workloads: off means that no taint, a person's included, moves anything (safety contract 2).
pub const FAILOVER: Gate = Gate {
    name: "Failover",
    default: false,
    stage: Stage::Beta,
};
/// Propagates what a workload refers to along with it.
pub const PROPAGATE_DEPS: Gate = Gate {
    name: "PropagateDeps",
    default: true,
    stage: Stage::Beta,
};
/// Orders the scheduling queue by a binding's priority.
pub const PRIORITY_BASED_SCHEDULING: Gate = Gate {
    name: "PriorityBasedScheduling",
    default: true,
    stage: Stage::Beta,
};
/// Lets a policy take a template over from another.
pub const PROPAGATION_POLICY_PREEMPTION: Gate = Gate {
    name: "PropagationPolicyPreemption",
    default: false,
    stage: Stage::Alpha,
};
/// Grade counts by resource models.
pub const CUSTOMIZED_CLUSTER_RESOURCE_MODELING: Gate = Gate {
    name: "CustomizedClusterResourceModeling",
    default: true,
    stage: Stage::Beta,
};
/// Carries preserved state into the replacement of an evicted workload.
pub const STATEFUL_FAILOVER_INJECTION: Gate = Gate {
    name: "StatefulFailoverInjection",
    default: false,
    stage: Stage::Alpha,
};
/// Off: application failover with purge mode `Gracefully` is held back, and says so. Evictions by taints do not ask for it: there the
/// purge mode alone decides (the proposal).
pub const GRACEFUL_EVICTION: Gate = Gate {
    name: "GracefulEviction",
    default: true,
    stage: Stage::Beta,
};

/// Every gate that `--feature-gates` takes.
pub const GATES: [Gate; 7] = [
    FAILOVER,
    PROPAGATE_DEPS,
    PRIORITY_BASED_SCHEDULING,
    PROPAGATION_POLICY_PREEMPTION,
    CUSTOMIZED_CLUSTER_RESOURCE_MODELING,
    STATEFUL_FAILOVER_INJECTION,
    GRACEFUL_EVICTION,
];

/// Every name that `--controllers` takes, with what it owns.
pub const CONTROLLERS: [(&str, &str); 11] = [
    (
        "cluster",
        "Cluster lifecycle, health monitor and condition taints",
    ),
    ("clustertaintpolicy", "taints by ClusterTaintPolicy"),
    (
        "taintmanager",
        "eviction of workloads from tainted clusters",
    ),
    (
        "applicationFailover",
        "moving of applications from where they stay unhealthy",
    ),
    ("gracefulEviction", "clearing of graceful eviction tasks"),
    ("scheduler", "placement of bindings"),
    ("detector", "bindings from templates and policies"),
    ("binding", "Works from bindings"),
    (
        "bindingStatus",
        "status of bindings and templates from Works",
    ),
    ("namespace", "propagation of namespaces to members"),
    (
        "agentcsrapproving",
        "approval of the signing requests of agents",
    ),
];

/// Every name that `--plugins` takes: the rules of Karmada's scheduler that can be switched off.
pub const SCHEDULER_PLUGINS: [&str; 6] = [
    "APIEnablement",
    "TaintToleration",
    "ClusterAffinity",
    "SpreadConstraint",
    "ClusterEviction",
    "ClusterLocality",
];

/// Every name that `--evict-plugins` takes: the checks that may end a graceful eviction task.
pub const EVICT_PLUGINS: [&str; 2] = ["BackInResult", "ResourceHealth"];

/// Reads `--evict-plugins`: which of [`EVICT_PLUGINS`] are in force.
///
/// # Errors
/// When a name is unknown, or when no plugin is left: no old copy would ever be removed.
pub fn evict_plugins(words: &Words) -> Result<[bool; EVICT_PLUGINS.len()], Error> {
    let chosen = words.chosen("evict-plugins", &EVICT_PLUGINS)?;
    if chosen.contains(&true) {
        return Ok(chosen);
    }
    let known = EVICT_PLUGINS.join(", ");
    Err(Error::invalid(
        "evict-plugins",
        format!("without one no old copy would ever be removed; known are *, {known}"),
    ))
}

/// Everything that can be set.
#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[allow(clippy::struct_excessive_bools)] // one per switch of the command line
pub struct Settings {
    /// Kubeconfig of the fleet API; in-cluster credentials without it.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context within the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Requests a second to the fleet API; 0 leaves the limit to the API server's priority and fairness.
    #[arg(long, default_value_t = 0.0)]
    pub kube_api_qps: f64,
    /// Requests that may be sent at once after a quiet time.
    #[arg(long, default_value_t = 60)]
    pub kube_api_burst: u32,
    /// Which controllers run: `*`, `name`, `-name`.
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub controllers: Controllers,
    /// Features switched on or off, as `NAME=true,...`.
    #[arg(long, default_value = "", value_name = "MAP")]
    pub feature_gates: FeatureGates,

    /// Stand for election before acting.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Name of the election's Lease.
    #[arg(long, default_value = "muster-control-plane")]
    pub leader_elect_resource_name: String,
    /// Namespace of the election's Lease.
    #[arg(long, default_value = "karmada-system")]
    pub leader_elect_resource_namespace: String,
    /// How long followers wait after the leader's last renewal.
    #[arg(long, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,
    /// How long after its last renewal a leader may act.
    #[arg(long, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,
    /// Pause between attempts to take or renew the lease.
    #[arg(long, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// Where `/metrics` is served; `0` for nowhere.
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: BindAddress,
    /// Where `/healthz` and `/readyz` are served; `0` for nowhere.
    #[arg(long, default_value = ":10357")]
    pub health_probe_bind_address: BindAddress,
    /// Directory of the certificate of the admission server. Without it and --webhook-certificate-names policies are not checked when they
    /// are written.
    #[arg(long, value_name = "DIRECTORY")]
    pub cert_dir: Option<PathBuf>,
    /// DNS names and IP addresses of the admission server, for which the control plane makes and renews a certificate itself, in place of
    /// --cert-dir. It is kept in Secret karmada-system/muster-webhook-tls of the fleet API, and its authority is named in the webhook
    /// configurations `muster` there.
    #[arg(long, default_value = "", value_name = "LIST")]
    pub webhook_certificate_names: Words,
    /// File name of the certificate in there. It may be replaced at any time.
    #[arg(long, default_value = "tls.crt")]
    pub tls_cert_file_name: String,
    /// File name of its key in there.
    #[arg(long, default_value = "tls.key")]
    pub tls_private_key_file_name: String,
    /// IP address on which the admission server listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port on which the admission server listens.
    #[arg(long, default_value_t = 8443)]
    pub secure_port: u16,
    /// Whether admission lets a ClusterTaintPolicy have taints of effect NoExecute.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub allow_no_execute_taint_policy: bool,

    /// How log lines look: text or json.
    #[arg(long, default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged, in tracing's syntax.
    #[arg(long, default_value = "info")]
    pub log_filter: String,

    /// Accepted for compatibility: the monitor waits for deadlines instead of polling.
    #[arg(long, default_value = "5s")]
    pub cluster_monitor_period: Duration,
    /// Silence of a pull cluster after which its Ready condition becomes Unknown.
    #[arg(long, default_value = "40s")]
    pub cluster_monitor_grace_period: Duration,
    /// The same for a cluster that has never reported.
    #[arg(long, default_value = "60s")]
    pub cluster_startup_grace_period: Duration,
    /// Classic behaviour of Karmada 1.3: NoExecute taints this long after a cluster failed. Unset: never by itself.
    #[arg(long)]
    pub failover_eviction_timeout: Option<Duration>,

    /// For how many seconds policies that do not say tolerate the NoExecute taint not-ready. Unset: not at all.
    #[arg(long, value_name = "SECONDS")]
    pub default_not_ready_toleration_seconds: Option<u32>,
    /// For how many seconds policies that do not say tolerate the NoExecute taint unreachable. Unset: not at all.
    #[arg(long, value_name = "SECONDS")]
    pub default_unreachable_toleration_seconds: Option<u32>,

    /// Whether NoExecute taints evict. The gate Failover is the switch above it.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_no_execute_taint_eviction: bool,
    /// What happens to the old copy on a NoExecute eviction: Gracefully or Directly.
    #[arg(long, default_value = "Gracefully")]
    pub no_execute_taint_eviction_purge_mode: String,
    /// Evictions a second, over all clusters.
    #[arg(long, default_value_t = 0.5)]
    pub resource_eviction_rate: f64,
    /// Evictions a second when too many clusters have failed (proposal).
    #[arg(long, default_value_t = 0.1)]
    pub secondary_resource_eviction_rate: f64,
    /// Share of failed clusters above which the fleet counts as unhealthy (proposal).
    #[arg(long, default_value_t = 0.55)]
    pub unhealthy_cluster_threshold: f64,
    /// Number of clusters above which an unhealthy fleet evicts slowly rather than not at all (proposal).
    #[arg(long, default_value_t = 10)]
    pub large_cluster_num_threshold: usize,
    /// Checks of which any one ends a graceful eviction: `*`, `name`, `-name`. ResourceHealth: every chosen cluster has a healthy
    /// copy. BackInResult: the cluster was chosen again (proposal).
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub evict_plugins: Words,
    /// Accepted for compatibility and without effect: an old copy goes when an evict plugin passes or the policy's own grace period ends
    /// (the proposal deprecates the timeout).
    #[arg(long, default_value = "10m")]
    pub graceful_eviction_timeout: Duration,

    /// Bindings whose policy names this scheduler are placed by us.
    #[arg(long, default_value = "default-scheduler")]
    pub scheduler_name: String,
    /// Which filters and scores decide on placements: `*`, `name`, `-name`. `ClusterEviction` by name is Karmada's: no return
    /// before the eviction task is done.
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub plugins: Words,
    /// How many replicas a node of a resource model's grade is taken to hold: minimums (Karmada's rule), averages, upper-bounds, or
    /// ignored.
    #[arg(long, default_value = "minimums", value_name = "RULE")]
    pub node_grades: GradeRule,
    /// Refused when true: there is no estimator to ask; what fits is judged by what the agents report.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_scheduler_estimator: bool,
    /// Accepted for compatibility: there is no estimator, in pull mode or otherwise.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub disable_scheduler_estimator_in_pull_mode: bool,
    /// Propagate workloads whose replicas are zero.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_empty_workload_propagation: bool,

    /// Kinds that are never propagated, as `group`, `group/version` or `group/version/Kind,Kind`; separated by `;`.
    #[arg(long, default_value = "")]
    pub skipped_propagating_apis: String,
    /// Namespaces (regular expressions) whose objects are never propagated.
    #[arg(long, default_value = "kube-.*")]
    pub skipped_propagating_namespaces: Words,

    /// Clusters worked on at a time.
    #[arg(long, default_value_t = 5)]
    pub concurrent_cluster_syncs: usize,
    /// Bindings worked on at a time, per controller, of either kind.
    #[arg(long, default_value_t = 32)]
    pub concurrent_resourcebinding_syncs: usize,
    /// Accepted for compatibility and without effect: both kinds of bindings share the workers of --concurrent-resourcebinding-syncs.
    #[arg(long, default_value_t = 32)]
    pub concurrent_clusterresourcebinding_syncs: usize,
    /// Works worked on at a time.
    #[arg(long, default_value_t = 32)]
    pub concurrent_work_syncs: usize,
    /// Namespaces worked on at a time.
    #[arg(long, default_value_t = 4)]
    pub concurrent_namespace_syncs: usize,
    /// Templates worked on at a time.
    #[arg(long, default_value_t = 32)]
    pub concurrent_resource_template_syncs: usize,
}

impl Default for Settings {
    fn default() -> Self {
        muster_shared::settings::defaults()
    }
}

impl Settings {
    /// Whether a gate is on.
    pub fn gate(&self, gate: &Gate) -> bool {
        self.feature_gates.enabled(gate)
    }

    /// Whether a controller runs.
    pub fn runs(&self, controller: &str) -> bool {
        self.controllers.enabled(controller, false)
    }

    /// Whether we place the bindings that ask for this scheduler; `None` and nothing mean the default one.
    pub fn schedules(&self, scheduler: Option<&str>) -> bool {
        let ours = |name: &str| name.is_empty() || name == self.scheduler_name;
        self.runs("scheduler") && scheduler.is_none_or(ours)
    }

    /// Refuses values that parse and make no sense.
    pub fn check(&self) -> Result<(), Error> {
        self.feature_gates.check(&GATES)?;
        self.controllers.check(&CONTROLLERS.map(|(name, _)| name))?;
        for (name, duration) in [
            ("cluster-monitor-period", self.cluster_monitor_period),
            (
                "cluster-monitor-grace-period",
                self.cluster_monitor_grace_period,
            ),
            (
                "cluster-startup-grace-period",
                self.cluster_startup_grace_period,
            ),
            ("leader-elect-retry-period", self.leader_elect_retry_period),
        ] {
            if duration.is_zero() {
                return Err(Error::invalid(name, "must be longer than 0"));
            }
        }
        if self.leader_elect_renew_deadline >= self.leader_elect_lease_duration {
            return Err(Error::invalid(
                "leader-elect-renew-deadline",
                "must be shorter than leader-elect-lease-duration, or two leaders could act at once",
            ));
        }
        for (name, rate) in [
            ("resource-eviction-rate", self.resource_eviction_rate),
            ("kube-api-qps", self.kube_api_qps),
            (
                "secondary-resource-eviction-rate",
                self.secondary_resource_eviction_rate,
            ),
        ] {
            if !rate.is_finite() || rate < 0.0 {
                return Err(Error::invalid(
                    name,
                    format!("{rate} is not a rate: 0 or more a second"),
                ));
            }
        }
        if !(0.0..=1.0).contains(&self.unhealthy_cluster_threshold) {
            return Err(Error::invalid(
                "unhealthy-cluster-threshold",
                "must be between 0 and 1",
            ));
        }
        if !["Gracefully", "Directly"].contains(&self.no_execute_taint_eviction_purge_mode.as_str())
        {
            return Err(Error::invalid(
                "no-execute-taint-eviction-purge-mode",
                "must be Gracefully or Directly",
            ));
        }
        self.plugins.chosen("plugins", &SCHEDULER_PLUGINS)?;
        if self.enable_scheduler_estimator {
            return Err(Error::invalid(
                "enable-scheduler-estimator",
                "there is no estimator to ask; what fits is judged by what the agents report",
            ));
        }
        evict_plugins(&self.evict_plugins)?;
        self.check_controllers()
    }

    /// Some controllers make no sense without others of ours or somebody's.
    fn check_controllers(&self) -> Result<(), Error> {
        if CONTROLLERS.iter().all(|(name, _)| !self.runs(name)) {
            return Err(Error::invalid("controllers", "none would run"));
        }
        if self.runs("taintmanager") && !self.runs("gracefulEviction") && self.runs("scheduler") {
            return Err(Error::invalid(
                "controllers",
                "taintmanager and scheduler without gracefulEviction would leave eviction tasks for ever",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted_and_move_nothing() {
        let settings = Settings::default();
        settings.check().unwrap();
        assert!(!settings.gate(&FAILOVER));
        assert!(settings.runs("scheduler"));
    }

    #[test]
    fn the_defaults_of_evictions_are_those_of_the_proposal() {
        let settings = Settings::default();
        for (name, value, expected) in [
            ("rate", settings.resource_eviction_rate, "0.5"),
            (
                "secondary",
                settings.secondary_resource_eviction_rate,
                "0.1",
            ),
            ("threshold", settings.unhealthy_cluster_threshold, "0.55"),
        ] {
            assert_eq!(value.to_string(), expected, "{name}");
        }
        assert_eq!(settings.large_cluster_num_threshold, 10);
        assert_eq!(settings.evict_plugins, Words(vec!["*".to_owned()]));
        assert!(settings.enable_no_execute_taint_eviction);
        assert_eq!(settings.no_execute_taint_eviction_purge_mode, "Gracefully");
        assert!(settings.failover_eviction_timeout.is_none());
        assert!(settings.default_not_ready_toleration_seconds.is_none());
        assert!(settings.default_unreachable_toleration_seconds.is_none());
        for (gate, on) in [
            (&FAILOVER, false),
            (&STATEFUL_FAILOVER_INJECTION, false),
            (&GRACEFUL_EVICTION, true),
        ] {
            assert_eq!(settings.gate(gate), on, "{}", gate.name);
        }
    }

    #[test]
    fn the_defaults_of_detection_are_those_of_karmada() {
        let settings = Settings::default();
        for (name, duration, seconds) in [
            ("monitor period", settings.cluster_monitor_period, 5),
            ("grace", settings.cluster_monitor_grace_period, 40),
            ("start-up grace", settings.cluster_startup_grace_period, 60),
            ("lease", settings.leader_elect_lease_duration, 15),
            ("renewal", settings.leader_elect_renew_deadline, 10),
            ("retry", settings.leader_elect_retry_period, 2),
        ] {
            let expected: Duration = format!("{seconds}s").parse().unwrap();
            assert_eq!(duration, expected, "{name}");
        }
    }

    #[test]
    fn senseless_values_are_refused_by_name() {
        type Spoil = fn(&mut Settings);
        let cases: [(&str, Spoil); 9] = [
            ("evict-plugins", |s| s.evict_plugins = Words(Vec::new())),
            ("enable-scheduler-estimator", |s| {
                s.enable_scheduler_estimator = true;
            }),
            ("plugins", |s| s.plugins = Words(vec!["Luck".to_owned()])),
            ("resource-eviction-rate", |s| {
                s.resource_eviction_rate = -1.0;
            }),
            ("unhealthy-cluster-threshold", |s| {
                s.unhealthy_cluster_threshold = 55.0;
            }),
            ("cluster-monitor-grace-period", |s| {
                s.cluster_monitor_grace_period = Duration::default();
            }),
            ("leader-elect-renew-deadline", |s| {
                s.leader_elect_renew_deadline = s.leader_elect_lease_duration;
            }),
            ("no-execute-taint-eviction-purge-mode", |s| {
                s.no_execute_taint_eviction_purge_mode = "Never".to_owned();
            }),
            ("evict-plugins", |s| {
                s.evict_plugins = Words(vec!["Hope".to_owned()]);
            }),
        ];
        for (name, spoil) in cases {
            let mut settings = Settings::default();
            spoil(&mut settings);
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
