//! Settings of the control plane: the flags of karmada-controller-manager and karmada-scheduler,
//! with the same names, meaning and syntax, and flags from the proposal, which are marked.

mod check;
pub mod evict_plugin;
pub mod failback_times;
pub mod grade_rule;
pub mod notice_receivers;
mod published;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgAction::Set;
use muster_shared::names::DEFAULT_SCHEDULER;
use muster_shared::settings::{
    BindAddress, Controllers, Duration, Error, FeatureGates, FleetServers, Gate, Stage, Words,
    load_from,
};
use muster_shared::telemetry::LogFormat;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::settings::failback_times::FailbackTimes;
use crate::settings::grade_rule::GradeRule;
use crate::settings::notice_receivers::NoticeReceivers;

/// The name under which the control plane writes: field manager of its objects and source of its
/// events.
pub const COMPONENT: &str = "muster-control-plane";

/// Prints why the program ends.
pub fn refuse(error: &impl std::fmt::Display) -> ExitCode {
    eprintln!("{COMPONENT}: {error}");
    ExitCode::FAILURE
}

/// Runs a command of the program until it ends, with its settings as arguments and environment give
/// them.
pub(crate) fn execute<T: clap::Args + DeserializeOwned>(
    command: clap::Command,
    arguments: Vec<OsString>,
    start: impl FnOnce(T) -> anyhow::Result<()>,
) -> ExitCode {
    let settings = match load_from(command, arguments, std::env::vars_os()) {
        Ok(settings) => settings,
        Err(Error::Flag(error)) => error.exit(),
        Err(error) => return refuse(&error),
    };
    match start(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ended");
            refuse(&format!("{error:#}"))
        }
    }
}

/// Permits evictions because of taints. If off, no taint evicts anything, including taints of users
/// (safety contract 2).
pub const FAILOVER: Gate = Gate {
    name: "Failover",
    default: false,
    stage: Stage::Beta,
};
/// Propagates the dependencies of a workload together with it.
pub const PROPAGATE_DEPS: Gate = Gate {
    name: "PropagateDeps",
    default: true,
    stage: Stage::Beta,
};
/// Orders the scheduling queue by the priority of bindings.
pub const PRIORITY_BASED_SCHEDULING: Gate = Gate {
    name: "PriorityBasedScheduling",
    default: true,
    stage: Stage::Beta,
};
/// Permits policies to take templates over from other policies.
pub const PROPAGATION_POLICY_PREEMPTION: Gate = Gate {
    name: "PropagationPolicyPreemption",
    default: false,
    stage: Stage::Alpha,
};
/// Estimates capacity by resource models.
pub const CUSTOMIZED_CLUSTER_RESOURCE_MODELING: Gate = Gate {
    name: "CustomizedClusterResourceModeling",
    default: true,
    stage: Stage::Beta,
};
/// Passes preserved state to the replacement of an evicted workload.
pub const STATEFUL_FAILOVER_INJECTION: Gate = Gate {
    name: "StatefulFailoverInjection",
    default: false,
    stage: Stage::Alpha,
};
/// Permits application failover with purge mode `Gracefully`; if off, such applications stay, and a
/// condition says so. Evictions because of taints do not depend on it (as in the proposal).
pub const GRACEFUL_EVICTION: Gate = Gate {
    name: "GracefulEviction",
    default: true,
    stage: Stage::Beta,
};

/// Schedules workloads with several pod templates by their components: a cluster needs room for all
/// of them. If off, such workloads count as their kind's number of replicas says.
pub const MULTIPLE_POD_TEMPLATES_SCHEDULING: Gate = Gate {
    name: "MultiplePodTemplatesScheduling",
    default: false,
    stage: Stage::Alpha,
};

/// Gates that `--feature-gates` accepts.
pub const GATES: [Gate; 8] = [
    FAILOVER,
    PROPAGATE_DEPS,
    PRIORITY_BASED_SCHEDULING,
    PROPAGATION_POLICY_PREEMPTION,
    CUSTOMIZED_CLUSTER_RESOURCE_MODELING,
    STATEFUL_FAILOVER_INJECTION,
    GRACEFUL_EVICTION,
    MULTIPLE_POD_TEMPLATES_SCHEDULING,
];

/// Names that `--controllers` accepts, with the task of each.
pub const CONTROLLERS: [(&str, &str); 18] = [
    (
        "cluster",
        "Cluster lifecycle, health monitor and condition taints",
    ),
    ("clustertaintpolicy", "taints by ClusterTaintPolicy"),
    ("policyStatus", "status of ClusterTaintPolicies"),
    (
        "taintmanager",
        "eviction of workloads from tainted clusters",
    ),
    (
        "applicationFailover",
        "moving of applications from where they stay unhealthy",
    ),
    ("gracefulEviction", "clearing of graceful eviction tasks"),
    ("failoverHistory", "records of failovers"),
    ("scheduler", "placement of bindings"),
    ("detector", "bindings from templates and policies"),
    ("binding", "Works from bindings"),
    (
        "bindingStatus",
        "status of bindings and templates from Works",
    ),
    (
        "traffic",
        "DNSEndpoints of Services and Ingresses (--traffic-dns-endpoints)",
    ),
    ("namespace", "propagation of namespaces to members"),
    ("clusterStatus", "status of clusters of syncMode Push"),
    ("execution", "Works of clusters of syncMode Push"),
    ("workStatus", "status of Works of clusters of syncMode Push"),
    (
        "workloadRebalancer",
        "new placements on request, and failbacks",
    ),
    (
        "agentcsrapproving",
        "approval of the signing requests of agents",
    ),
];

/// Controllers of clusters of sync mode Push, with the names of Karmada's controller manager.
pub const PUSH_CONTROLLERS: [&str; 3] = ["clusterStatus", "execution", "workStatus"];

/// Names that `--plugins` accepts: the rules of Karmada's scheduler that can be disabled.
pub const SCHEDULER_PLUGINS: [&str; 6] = [
    "APIEnablement",
    "TaintToleration",
    "ClusterAffinity",
    "SpreadConstraint",
    "ClusterEviction",
    "ClusterLocality",
];

/// All settings of the control plane.
#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[allow(clippy::struct_excessive_bools)] // one per switch of the command line
pub struct Settings {
    /// Kubeconfig of the fleet API. If unset, in-cluster credentials are used.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Maximum number of requests per second to the fleet API. 0 means no limit: the API server's
    /// priority and fairness decides.
    #[arg(long, default_value_t = 0.0)]
    pub kube_api_qps: f64,
    /// Maximum number of requests that are sent at once after a pause.
    #[arg(long, default_value_t = 60)]
    pub kube_api_burst: u32,
    /// Controllers to run: `*`, `name`, `-name`.
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub controllers: Controllers,
    /// Feature gates, as `NAME=true,...`.
    #[arg(long, default_value = "", value_name = "MAP")]
    pub feature_gates: FeatureGates,

    /// Act only as elected leader.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Name of the Lease for leader election.
    #[arg(long, default_value = "muster-control-plane")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease for leader election.
    #[arg(long, default_value = "karmada-system")]
    pub leader_elect_resource_namespace: String,
    /// Time after the leader's last renewal before another replica takes over.
    #[arg(long, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,
    /// Time after its last renewal during which the leader may act.
    #[arg(long, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,
    /// Pause between attempts to acquire or renew the lease.
    #[arg(long, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// Address of `/metrics`; `0` for none.
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: BindAddress,
    /// Address of `/healthz`, `/livez` and `/readyz`; `0` for none.
    #[arg(long, default_value = ":10357")]
    pub health_probe_bind_address: BindAddress,
    /// Directory with the certificate of the admission server. If neither this nor
    /// --webhook-certificate-names is set, there is no admission server, and policies are not
    /// checked when they are written.
    #[arg(long, value_name = "DIRECTORY")]
    pub cert_dir: Option<PathBuf>,
    /// DNS names and IP addresses of the admission server, for which the control plane creates and
    /// renews a certificate, instead of --cert-dir. It is stored in the Secret
    /// karmada-system/muster-webhook-tls of the fleet API, and its authority is published in the
    /// webhook configurations `muster` there.
    #[arg(long, default_value = "", value_name = "LIST")]
    pub webhook_certificate_names: Words,
    /// File name of the certificate in --cert-dir. The file may be replaced at any time.
    #[arg(long, default_value = "tls.crt")]
    pub tls_cert_file_name: String,
    /// File name of the private key in --cert-dir.
    #[arg(long, default_value = "tls.key")]
    pub tls_private_key_file_name: String,
    /// IP address of the admission server.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port of the admission server.
    #[arg(long, default_value_t = 8443)]
    pub secure_port: u16,
    /// Accept ClusterTaintPolicies with taints of effect NoExecute at admission.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub allow_no_execute_taint_policy: bool,

    /// Format of log lines: text or json.
    #[arg(long, default_value = "text")]
    pub log_format: LogFormat,
    /// Log filter in tracing's syntax, such as `info` or `info,kube=warn`.
    #[arg(long, default_value = "info")]
    pub log_filter: String,

    /// Accepted for compatibility, no effect: the monitor uses timers instead of polling.
    #[arg(long, default_value = "5s")]
    pub cluster_monitor_period: Duration,
    /// Time without a sign of life after which Ready of a pull cluster becomes Unknown.
    #[arg(long, default_value = "40s")]
    pub cluster_monitor_grace_period: Duration,
    /// Time after which Ready of a pull cluster that has never reported becomes Unknown.
    #[arg(long, default_value = "60s")]
    pub cluster_startup_grace_period: Duration,
    /// Period of health probes and of status reports of clusters whose syncMode is Push. (Those of
    /// Pull clusters are set at their agents.)
    #[arg(long, default_value = "10s")]
    pub cluster_status_update_frequency: Duration,
    /// Time for which a cluster whose syncMode is Push must be healthy before it is reported ready
    /// again.
    #[arg(long, default_value = "30s")]
    pub cluster_success_threshold: Duration,
    /// Time for which a cluster whose syncMode is Push must be unhealthy before it is reported not
    /// ready.
    #[arg(long, default_value = "30s")]
    pub cluster_failure_threshold: Duration,
    /// Accepted for compatibility, no effect: a cluster whose syncMode is Push has no lease, and
    /// that of a Pull cluster is its agent's.
    #[arg(long, default_value = "40s")]
    pub cluster_lease_duration: Duration,
    /// Accepted for compatibility, no effect: see --cluster-lease-duration.
    #[arg(long, default_value_t = 0.25)]
    pub cluster_lease_renew_interval_fraction: f64,
    /// Watch nodes and pods of clusters whose syncMode is Push, and report their capacity.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_cluster_resource_modeling: bool,

    /// Number of agents of other clusters that watch each cluster, for the condition SeenByPeers:
    /// 0, or 2 to 5. 0 means that none does. Two have to have lost a cluster before it counts as
    /// lost, so that 3 is the least that survives the loss of one of them.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub peers_per_cluster: usize,

    /// Share of workloads, from 0 to 1, from which on the condition WorkloadsHealthy of a cluster
    /// is False: of its workloads that are healthy in another cluster, those that are unhealthy in
    /// this one, as the mean of all namespaces. 0 means no such condition.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub cluster_unhealthy_workloads_threshold: f64,
    /// Number of workloads that have to be healthy in another cluster before
    /// --cluster-unhealthy-workloads-threshold counts; with fewer the condition is Unknown.
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    pub cluster_unhealthy_workloads_minimum: usize,

    /// Time beyond failover.cluster.fencing.afterSeconds and the grace period of the pods for which
    /// the control plane waits before it places a fenced workload anew: for the agent to notice
    /// that the time is over and to write into its cluster, and for the kubelets to learn of it.
    #[arg(long, default_value = "30s")]
    pub fencing_margin: Duration,

    /// Whether workloads return to a cluster that they left because of a taint, where the policy
    /// does not say: Never, or WhenHealthy. Requires the feature gate Failover.
    #[arg(long, default_value = "Never")]
    pub failback: String,
    /// Time for which that cluster has to be healthy before, where the policy does not say.
    #[arg(long, default_value = "10m")]
    pub failback_after: Duration,
    /// Times at which workloads may return, where the policy does not say, such as
    /// `22:00-04:00` or `Saturday,Sunday 22:00-04:00 Europe/Berlin`. Empty: at any time.
    #[arg(long, default_value = "")]
    pub failback_window: FailbackTimes,

    /// Put the NoSchedule taints not-ready and unreachable on clusters that are not ready. If
    /// false, ClusterTaintPolicies may put them on, which are refused otherwise.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub condition_taints: bool,

    /// Follow ClusterTaintPolicies while the feature gate Failover is off, too, to see which taints
    /// they would put on. These move nothing then, but NoSchedule and NoExecute taints keep new
    /// workloads away.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub preview_cluster_taint_policies: bool,

    /// Time after a failure at which a cluster gets NoExecute taints, as in Karmada 1.3. If unset,
    /// no such taints are added automatically.
    #[arg(long)]
    pub failover_eviction_timeout: Option<Duration>,

    /// Seconds for which the NoExecute taint not-ready is tolerated if the policy has no toleration
    /// for it. If unset, it is not tolerated.
    #[arg(long, value_name = "SECONDS")]
    pub default_not_ready_toleration_seconds: Option<u32>,
    /// Seconds for which the NoExecute taint unreachable is tolerated if the policy has no
    /// toleration for it. If unset, it is not tolerated.
    #[arg(long, value_name = "SECONDS")]
    pub default_unreachable_toleration_seconds: Option<u32>,

    /// False is the same as --controllers=*,-taintmanager, the newer form: no taint evicts.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_taint_manager: bool,
    /// Evict workloads because of NoExecute taints. Requires the feature gate Failover.
    #[arg(long, default_value_t = true, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_no_execute_taint_eviction: bool,
    /// Purge mode of evictions because of NoExecute taints, if the policy has no failover.cluster:
    /// Gracefully or Directly.
    #[arg(long, default_value = "Gracefully")]
    pub no_execute_taint_eviction_purge_mode: String,
    /// Evictions per second, for all clusters together.
    #[arg(long, default_value_t = 0.5)]
    pub resource_eviction_rate: f64,
    /// Evictions per second if too many clusters have failed (from the proposal).
    #[arg(long, default_value_t = 0.1)]
    pub secondary_resource_eviction_rate: f64,
    /// Share of failed clusters above which the fleet counts as unhealthy (from the proposal).
    #[arg(long, default_value_t = 0.55)]
    pub unhealthy_cluster_threshold: f64,
    /// Number of clusters above which an unhealthy fleet evicts at the secondary rate, instead of
    /// not at all (from the proposal).
    #[arg(long, default_value_t = 10)]
    pub large_cluster_num_threshold: usize,
    /// Checks of which any one completes a graceful eviction: `*`, `name`, `-name`. ResourceHealth:
    /// every chosen cluster has a healthy copy. BackInResult: the cluster was chosen again. (From
    /// the proposal.)
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub evict_plugins: Words,
    /// Accepted for compatibility, no effect: an old copy is removed when an evict plugin passes or
    /// the policy's own grace period ends.
    #[arg(long, default_value = "10m")]
    pub graceful_eviction_timeout: Duration,

    /// Number of Failover objects that are kept as a history. The oldest ended ones are deleted; 0
    /// keeps no history.
    #[arg(long, default_value_t = 500, value_name = "NUMBER")]
    pub failover_history_limit: usize,
    /// Time after the end of a failover at which its Failover object is deleted.
    #[arg(long, default_value = "2160h")]
    pub failover_history_age: Duration,
    /// Number of workloads that each list of a Failover object names at most, 500 or less; all are
    /// counted.
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    pub failover_history_entries: usize,

    /// Receivers of notices of failovers, as a list in the file or as JSON: each has a `name`, a
    /// `url` or `urlFile`, and if wanted `format` (cloudevents, slack, teams, template),
    /// `template`, `contentType`, `secretFile`, `caFile`, `phases`, `minimumSeverity`, `perMinute`.
    #[arg(
        long,
        default_value = "",
        value_name = "JSON",
        hide_default_value = true
    )]
    pub notice_receivers: NoticeReceivers,
    /// Name or address of the fleet in notices, their `source`.
    #[arg(long, default_value = "muster", value_name = "NAME")]
    pub notice_source: String,
    /// Address at which people open the page of the fleet: notices link to the failover there.
    /// Empty: no link.
    #[arg(long, default_value = "", value_name = "URL")]
    pub notice_page_url: String,

    /// Publish the host names that Services and Ingresses ask for by the annotation
    /// failover.muster.io/hostname as DNSEndpoints of external-dns in the fleet API, which lead to
    /// the clusters with healthy copies.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub traffic_dns_endpoints: bool,
    /// Time for which a copy has to be healthy before a host name leads to its cluster again, while
    /// the name leads to another healthy one.
    #[arg(long, default_value = "30s")]
    pub traffic_return_after: Duration,
    /// Addresses of the fleet API, in order of preference, as a list in the file or as JSON: each
    /// has a `server` (URL), and if wanted `caData` and `store` (addresses of one store have one
    /// name; a standby has another). They are published to the agents, and asked whether their
    /// store was promoted: this control plane leads no store that is older.
    #[arg(
        long,
        default_value = "",
        value_name = "JSON",
        hide_default_value = true
    )]
    pub fleet_servers: FleetServers,

    /// Name of this scheduler: it places bindings whose policy names it.
    #[arg(long, default_value = "default-scheduler")]
    pub scheduler_name: String,
    /// Plugins of the scheduler: `*`, `name`, `-name`. `ClusterEviction` named explicitly is
    /// Karmada's rule: no return to a cluster before its eviction task is complete.
    #[arg(long, default_value = "*", value_name = "LIST")]
    pub plugins: Words,
    /// Estimate of the replicas that a node of a grade can run: minimums (Karmada's rule),
    /// averages, upper-bounds, or ignored.
    #[arg(long, default_value = "minimums", value_name = "RULE")]
    pub node_grades: GradeRule,
    /// Rejected if true: there is no estimator; capacity is estimated from the reports of the
    /// agents.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_scheduler_estimator: bool,
    /// Accepted for compatibility, no effect: there is no estimator.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub disable_scheduler_estimator_in_pull_mode: bool,
    /// Propagate workloads with zero replicas.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_empty_workload_propagation: bool,

    /// Kinds that are never propagated, as `group`, `group/version` or `group/version/Kind,Kind`;
    /// separated by `;`.
    #[arg(long, default_value = "")]
    pub skipped_propagating_apis: String,
    /// Regular expressions for namespaces whose objects are never propagated.
    #[arg(long, default_value = "kube-.*")]
    pub skipped_propagating_namespaces: Words,

    /// Number of Clusters that are reconciled at the same time.
    #[arg(long, default_value_t = 5)]
    pub concurrent_cluster_syncs: usize,
    /// Number of bindings, of both kinds, that each controller reconciles at the same time.
    #[arg(long, default_value_t = 32)]
    pub concurrent_resourcebinding_syncs: usize,
    /// Accepted for compatibility, no effect: both kinds of bindings share the workers of
    /// --concurrent-resourcebinding-syncs.
    #[arg(long, default_value_t = 32)]
    pub concurrent_clusterresourcebinding_syncs: usize,
    /// Number of Works that are reconciled at the same time.
    #[arg(long, default_value_t = 32)]
    pub concurrent_work_syncs: usize,
    /// Number of namespaces that are reconciled at the same time.
    #[arg(long, default_value_t = 4)]
    pub concurrent_namespace_syncs: usize,
    /// Number of templates that are reconciled at the same time.
    #[arg(long, default_value_t = 32)]
    pub concurrent_resource_template_syncs: usize,

    /// Accepted for compatibility, no effect: --log-filter sets what is logged.
    #[arg(long, hide = true)]
    pub v: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        muster_shared::settings::defaults()
    }
}

impl Settings {
    /// Returns whether a feature gate is on.
    pub fn gate(&self, gate: &Gate) -> bool {
        self.feature_gates.enabled(gate)
    }

    /// Returns all feature gates, and whether each is on.
    pub fn gates(&self) -> BTreeMap<String, bool> {
        let gates = GATES.iter();
        gates
            .map(|it| (it.name.to_owned(), self.gate(it)))
            .collect()
    }

    /// Returns whether a controller runs.
    pub fn runs(&self, controller: &str) -> bool {
        let is_off = match controller {
            "taintmanager" => !self.enable_taint_manager,
            "clustertaintpolicy" => !self.follows_taint_policies(),
            "traffic" => !self.traffic_dns_endpoints,
            _ => false,
        };
        !is_off && self.chooses(controller)
    }

    /// Returns whether `--controllers` chooses a controller, which other flags may switch off.
    pub fn chooses(&self, controller: &str) -> bool {
        self.controllers.enabled(controller, false)
    }

    /// Returns whether ClusterTaintPolicies are followed: not without failover, as in Karmada,
    /// unless that is asked for.
    pub fn follows_taint_policies(&self) -> bool {
        self.gate(&FAILOVER) || self.preview_cluster_taint_policies
    }

    /// Returns whether the control plane connects to members of sync mode Push.
    pub fn connects_to_members(&self) -> bool {
        PUSH_CONTROLLERS
            .iter()
            .any(|controller| self.runs(controller))
    }

    /// Returns whether the scheduler of this process places bindings that name this scheduler.
    pub fn schedules(&self, scheduler: Option<&str>) -> bool {
        self.runs("scheduler") && names_scheduler(scheduler, &self.scheduler_name)
    }

    /// Returns why workloads that this scheduler places do not return to clusters that they left,
    /// whatever their policies ask; `None` if they do.
    pub fn no_failback(&self, scheduler: Option<&str>) -> Option<&'static str> {
        if !names_scheduler(scheduler, &self.scheduler_name) {
            Some("spec.schedulerName names another scheduler")
        } else if !self.runs("scheduler") {
            Some("the controller scheduler of the control plane is off (--controllers)")
        } else if !self.runs("workloadRebalancer") {
            Some("the controller workloadRebalancer of the control plane is off (--controllers)")
        } else {
            None
        }
    }

    /// Returns why nothing brings workloads back that this scheduler places, whatever their
    /// policies ask; `None` if something does. `failover` says whether the feature gate `Failover`
    /// is on.
    pub fn no_return(&self, scheduler: Option<&str>, failover: bool) -> Option<&'static str> {
        if !failover {
            return Some("the feature gate Failover is off");
        }
        self.no_failback(scheduler)
    }

    /// Returns whether this process answers admission reviews.
    pub fn serves_admission(&self) -> bool {
        self.cert_dir.is_some() || !self.webhook_certificate_names.0.is_empty()
    }
}

/// Returns whether the name of a scheduler in a binding means this one; `None` and the empty string
/// mean the default one.
pub fn names_scheduler(named: Option<&str>, scheduler: &str) -> bool {
    let named = named.filter(|name| !name.is_empty());
    named.unwrap_or(DEFAULT_SCHEDULER) == scheduler
}

#[cfg(test)]
mod tests;
