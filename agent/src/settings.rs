//! Settings of the agent: the flags of karmada-agent, with the same names and meaning.

mod check;

use std::path::PathBuf;

use muster_shared::certificate::hash::Hash;
use muster_shared::settings::{
    BindAddress, Controllers, Duration, Error, FeatureGates, FleetServers, Gate, Stage, Words,
    defaults,
};
use muster_shared::telemetry::LogFormat;
use serde::Deserialize;

use crate::accounts::{self, Report};

/// Counts nodes by the grades of `spec.resourceModels`.
pub const CUSTOMIZED_MODELS: Gate = Gate {
    name: "CustomizedClusterResourceModeling",
    default: true,
    stage: Stage::Beta,
};
/// The controller that is off unless it is named.
pub const CERT_ROTATION: &str = "certRotation";
/// Names that `--controllers` accepts.
pub const CONTROLLERS: [&str; 6] = [
    CERT_ROTATION,
    "clusterStatus",
    "endpointsliceCollect",
    "execution",
    "serviceExport",
    "workStatus",
];

/// All settings of the agent; defaults are those of karmada-agent.
#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// Kubeconfig of the member. If unset, the pod's service account is used.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the member in its kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub cluster_context: Option<String>,
    /// Kubeconfig of the fleet API.
    #[arg(long, value_name = "FILE")]
    pub karmada_kubeconfig: Option<PathBuf>,
    /// Context of the fleet API in its kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub karmada_context: Option<String>,
    /// Kubeconfig of the fleet API with bootstrap credentials, such as a bootstrap token. With it
    /// the agent asks for its certificate when none is stored in the Secret
    /// `--karmada-kubeconfig-secret` of the member, and when the stored one has expired.
    /// `--karmada-kubeconfig` is then that Secret as it is mounted, and optional.
    #[arg(long, value_name = "FILE")]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Hashes of certificate authorities, separated by commas, as kubeadm writes them: `sha256:`
    /// and 64 hexadecimal digits. One authority of the bootstrap kubeconfig has to have one of
    /// them, and the token is given to no fleet API whose certificate another authority signed.
    /// If empty, every authority of the file is trusted.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub discovery_token_ca_cert_hash: Words,
    /// Addresses of the fleet API, in order of preference, as a list in the file or as JSON: each
    /// has a `server` (URL), and if wanted `caData` or `caFile` (its authority; by default that of
    /// the kubeconfig) and `store` (addresses of one store have one name; a standby has another,
    /// and is obeyed after its promotion alone). The server of the kubeconfig is the first unless
    /// it is named elsewhere. The credentials are the same for all.
    #[arg(
        long,
        default_value = "",
        value_name = "JSON",
        hide_default_value = true
    )]
    pub fleet_servers: FleetServers,
    /// Time since the last answer of the server of the fleet API after which another one is used.
    /// With the pauses between checks and renewals it has to be shorter than the grace period after
    /// which a silent cluster counts as lost.
    #[arg(long, default_value = "20s")]
    pub fleet_server_timeout: Duration,
    /// Name of the member: its Cluster object in the fleet API.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_name: String,
    /// Namespace in the fleet API for the member's credentials.
    #[arg(long, default_value = "karmada-cluster")]
    pub cluster_namespace: String,

    /// Period of health probes, and of status reports if nothing changes.
    #[arg(long, default_value = "10s")]
    pub cluster_status_update_frequency: Duration,
    /// Duration of the member's lease.
    #[arg(long, default_value = "40s")]
    pub cluster_lease_duration: Duration,
    /// Fraction of the lease's duration after which it is renewed.
    #[arg(long, default_value_t = 0.25)]
    pub cluster_lease_renew_interval_fraction: f64,
    /// Time for which the member must be healthy before it is reported ready again.
    #[arg(long, default_value = "30s")]
    pub cluster_success_threshold: Duration,
    /// Time for which the member must be unhealthy before it is reported not ready.
    #[arg(long, default_value = "30s")]
    pub cluster_failure_threshold: Duration,
    /// Share of nodes, from 0 to 1, that must be ready for the condition NodesReady. 0 means no
    /// such condition.
    #[arg(long, default_value_t = 0.0)]
    pub cluster_ready_nodes_threshold: f64,
    /// DNS name that must resolve for the condition ServiceDomainNameResolutionReady, such as
    /// kubernetes.default.svc.cluster.local. Empty means no such condition. Only for agents that
    /// run in their member.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_dns_name: String,
    /// Address outside of the member, as host:port, to which connections must succeed for the
    /// condition EgressReady. Empty means no such condition. Only for agents that run in their
    /// member.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_egress_address: String,
    /// Time within which the member's API server has to answer a probe for the condition
    /// APIServerResponsive. 0s means no such condition.
    #[arg(long, default_value = "0s")]
    pub cluster_api_latency_threshold: Duration,
    /// Share of the last 12 probes, from 0 to 1, from which on APIServerResponsive is False: those
    /// that were answered later, with an error, or not at all.
    #[arg(long, default_value_t = 0.5)]
    pub cluster_api_errors_threshold: f64,
    /// Watch nodes and pods, and report capacity. If false, neither is watched.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_cluster_resource_modeling: bool,

    /// Address of the member's API server for other clients. If empty, that of the kubeconfig.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_api_endpoint: String,
    /// Proxy through which other clients reach the member's API server.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub proxy_server_address: String,
    /// Provider of the member; must be a label value.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_provider: String,
    /// Region of the member; must be a label value.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_region: String,
    /// Zones of the member, separated by commas; must be label values.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_zones: Words,

    /// Credentials of the member that are reported to the fleet: `KubeCredentials` (an account with
    /// all rights), `KubeImpersonator`, both, or `None`. Credentials that were reported before and
    /// are not named are removed.
    #[arg(long, default_value = "None")]
    pub report_secrets: Words,

    /// Interval at which the controller certRotation checks the certificate for the fleet API.
    #[arg(long, default_value = "5m")]
    pub cert_rotation_checking_interval: Duration,
    /// Remaining share of the certificate's lifetime, from 0 to 1, at which it is renewed.
    #[arg(long, default_value_t = 0.2)]
    pub cert_rotation_remaining_time_threshold: f64,
    /// Namespace of the member's Secret with the agent's kubeconfig for the fleet API.
    #[arg(long, default_value = "karmada-system")]
    pub karmada_kubeconfig_namespace: String,
    /// Name of the member's Secret with the agent's kubeconfig for the fleet API.
    #[arg(long, default_value = "karmada-kubeconfig")]
    pub karmada_kubeconfig_secret: String,
    /// Key of the kubeconfig in that Secret.
    #[arg(long, default_value = "karmada-kubeconfig")]
    pub karmada_kubeconfig_secret_key: String,

    /// Maximum number of requests per second to the member's API server.
    #[arg(long, default_value_t = 40.0)]
    pub cluster_api_qps: f64,
    /// Maximum number of requests to the member's API server that are sent at once after a pause.
    #[arg(long, default_value_t = 60)]
    pub cluster_api_burst: u32,
    /// Maximum number of requests per second to the fleet API.
    #[arg(long, default_value_t = 40.0)]
    pub kube_api_qps: f64,
    /// Maximum number of requests to the fleet API that are sent at once after a pause.
    #[arg(long, default_value_t = 60)]
    pub kube_api_burst: u32,

    /// Number of Works that are applied at the same time.
    #[arg(long, default_value_t = 5)]
    pub concurrent_work_syncs: usize,
    /// Controllers to run: `*`, `name`, `-name`.
    #[arg(long, default_value = "*")]
    pub controllers: Controllers,
    /// Feature gates, as `NAME=true,...`.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub feature_gates: FeatureGates,

    /// Act only as elected leader among the agents of this member.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Namespace in the fleet API of the Lease for leader election.
    #[arg(long, default_value = "karmada-system")]
    pub leader_elect_resource_namespace: String,
    /// Time after the leader's last renewal before another agent takes over.
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
    /// Format of log lines: `text` or `json`.
    #[arg(long, default_value = "text")]
    pub log_format: LogFormat,
    /// Log filter in tracing's syntax, such as `info` or `info,muster_agent=debug`.
    #[arg(long, default_value = "info")]
    pub log_filter: String,

    // Flags of karmada-agent that have no work to do here, accepted so that its manifests carry
    // over: caches are waited for without a limit, and retries back off by themselves.
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub cluster_cache_sync_timeout: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub resync_period: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub concurrent_cluster_syncs: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub rate_limiter_base_delay: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub rate_limiter_max_delay: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub rate_limiter_qps: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub rate_limiter_bucket_size: Option<String>,
    /// Accepted for compatibility, no effect.
    #[arg(long, hide = true)]
    pub v: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        defaults()
    }
}

impl Settings {
    /// Returns the hashes of the authorities that the bootstrap kubeconfig may have.
    ///
    /// # Errors
    /// When one of them is malformed.
    pub fn pins(&self) -> Result<Vec<Hash>, Error> {
        let words = self.discovery_token_ca_cert_hash.0.iter();
        let words = words.filter(|it| !it.is_empty());
        let read = words.map(|it| it.parse::<Hash>());
        read.collect::<Result<_, _>>()
            .map_err(|error| Error::invalid("discovery-token-ca-cert-hash", error.to_string()))
    }

    /// Returns whether a controller runs. The rotation of the certificate is off unless it is named
    /// or the agent asks for its certificate by itself.
    pub fn runs(&self, controller: &str) -> bool {
        let off_by_default = controller == CERT_ROTATION && self.bootstrap_kubeconfig.is_none();
        self.controllers.enabled(controller, off_by_default)
    }

    /// Returns the pause between renewals of the cluster's lease.
    pub fn lease_interval(&self) -> std::time::Duration {
        self.cluster_lease_duration
            .mul_f64(self.cluster_lease_renew_interval_fraction)
    }

    /// Returns the credentials to report to the fleet.
    pub fn reports(&self) -> Result<Vec<Report>, Error> {
        accounts::chosen(&self.report_secrets)
            .map_err(|problem| Error::invalid("report-secrets", problem))
    }

    /// Returns whether nodes are counted by grades.
    pub fn models_enabled(&self) -> bool {
        self.enable_cluster_resource_modeling && self.feature_gates.enabled(&CUSTOMIZED_MODELS)
    }
}

#[cfg(test)]
mod tests;
