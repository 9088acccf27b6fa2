//! Settings of the agent: the flags of karmada-agent, with the same names and meaning.

use std::path::PathBuf;

use muster_shared::names::is_cluster_name;
use muster_shared::selectors::is_label_value;
use muster_shared::settings::{
    BindAddress, Controllers, Duration, Error, FeatureGates, Gate, Stage, Words, defaults,
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
/// Gates of karmada-agent without effect here, accepted so that its manifests can be used.
const WITHOUT_EFFECT: [&str; 4] = [
    "Failover",
    "GracefulEviction",
    "PropagateDeps",
    "MultiClusterService",
];

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
    /// Rejects values that parse but are not allowed.
    pub fn check(&self) -> Result<(), Error> {
        if !is_cluster_name(&self.cluster_name) {
            let problem = format!(
                "{:?} is not the name of a cluster: lower-case letters, digits and dashes, at most 48",
                self.cluster_name
            );
            return Err(Error::invalid("cluster-name", problem));
        }
        let fraction = self.cluster_lease_renew_interval_fraction;
        if !(fraction > 0.0 && fraction < 1.0) {
            let problem = format!("{fraction} must lie between 0 and 1");
            return Err(Error::invalid(
                "cluster-lease-renew-interval-fraction",
                problem,
            ));
        }
        for (name, value) in [
            (
                "cluster-status-update-frequency",
                self.cluster_status_update_frequency,
            ),
            ("cluster-lease-duration", self.cluster_lease_duration),
            (
                "cert-rotation-checking-interval",
                self.cert_rotation_checking_interval,
            ),
        ] {
            if value.is_zero() {
                return Err(Error::invalid(name, "must be longer than nothing"));
            }
        }
        for (name, share) in [
            (
                "cluster-ready-nodes-threshold",
                self.cluster_ready_nodes_threshold,
            ),
            (
                "cert-rotation-remaining-time-threshold",
                self.cert_rotation_remaining_time_threshold,
            ),
        ] {
            if !(0.0..=1.0).contains(&share) {
                let problem = format!("{share} must lie between 0 and 1");
                return Err(Error::invalid(name, problem));
            }
        }
        if self.cluster_ready_nodes_threshold > 0.0 && !self.enable_cluster_resource_modeling {
            let problem = "nodes are not watched with --enable-cluster-resource-modeling=false";
            return Err(Error::invalid("cluster-ready-nodes-threshold", problem));
        }
        self.check_registration()?;
        self.reports()?;
        self.controllers.check(&CONTROLLERS)?;
        let ignored = WITHOUT_EFFECT.map(|name| Gate {
            name,
            ..CUSTOMIZED_MODELS
        });
        let known: Vec<Gate> = ignored.into_iter().chain([CUSTOMIZED_MODELS]).collect();
        self.feature_gates.check(&known)?;
        if self.bootstrap_kubeconfig.is_some() && !self.runs(CERT_ROTATION) {
            let problem = "the controller certRotation is off, which renews what bootstrap brings";
            return Err(Error::invalid("bootstrap-kubeconfig", problem));
        }
        if self.bootstrap_kubeconfig.is_some() && self.karmada_context.is_some() {
            let problem = "--karmada-context names a context of a kubeconfig that somebody wrote; the agent writes its own here";
            return Err(Error::invalid("bootstrap-kubeconfig", problem));
        }
        Ok(())
    }

    /// Returns whether a controller runs. The rotation of the certificate is off unless it is named
    /// or the agent asks for its certificate by itself.
    pub fn runs(&self, controller: &str) -> bool {
        let off_by_default = controller == CERT_ROTATION && self.bootstrap_kubeconfig.is_none();
        self.controllers.enabled(controller, off_by_default)
    }

    /// Rejects values that the API server would reject in a Cluster, at start instead of at
    /// registration.
    fn check_registration(&self) -> Result<(), Error> {
        let labels = [
            ("cluster-provider", &self.cluster_provider),
            ("cluster-region", &self.cluster_region),
        ];
        let zones = self.cluster_zones.0.iter();
        let labels = labels
            .into_iter()
            .chain(zones.map(|zone| ("cluster-zones", zone)));
        for (name, value) in labels {
            if !is_label_value(value) {
                let problem = format!(
                    "{value:?} is not a label value: at most 63 letters, digits, \"-\", \"_\" and \".\", a letter or digit first and last"
                );
                return Err(Error::invalid(name, problem));
            }
        }
        let endpoint = &self.cluster_api_endpoint;
        let plain = !endpoint.contains(['@', '#', '?']);
        let usable = plain && is_address(endpoint, &["https", "http"]);
        if !usable && !endpoint.is_empty() {
            let problem = format!("{endpoint:?} is not a URL of scheme, host and path only");
            return Err(Error::invalid("cluster-api-endpoint", problem));
        }
        let proxy = &self.proxy_server_address;
        if !proxy.is_empty() && !is_address(proxy, &["http", "https", "socks5"]) {
            let problem = format!("{proxy:?} is not a URL that begins with http, https or socks5");
            return Err(Error::invalid("proxy-server-address", problem));
        }
        Ok(())
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

/// Returns whether a string is a URL with a host and one of these schemes.
fn is_address(text: &str, schemes: &[&str]) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else {
        return false;
    };
    let known = uri
        .scheme_str()
        .is_some_and(|scheme| schemes.contains(&scheme));
    let host = uri.host().is_some_and(|host| !host.is_empty());
    known && host && text.len() <= 2048
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use muster_shared::settings::load_from;

    use super::*;

    fn load(arguments: &[&str]) -> Result<Settings, Error> {
        let arguments = std::iter::once("muster-agent").chain(arguments.iter().copied());
        let settings: Settings = load_from(
            clap::Command::new("muster-agent"),
            arguments.map(OsString::from),
            [],
        )?;
        settings.check()?;
        Ok(settings)
    }

    #[test]
    fn the_defaults_of_the_heartbeat_are_those_of_karmada() {
        let settings = Settings::default();
        for (name, duration, seconds) in [
            ("status", settings.cluster_status_update_frequency, 10),
            ("lease", settings.cluster_lease_duration, 40),
            ("success", settings.cluster_success_threshold, 30),
            ("failure", settings.cluster_failure_threshold, 30),
        ] {
            assert_eq!(duration, Duration::from_secs(seconds), "{name}");
        }
        let fraction = settings.cluster_lease_renew_interval_fraction;
        assert!((fraction - 0.25).abs() < f64::EPSILON, "{fraction}");
    }

    #[test]
    fn the_command_line_that_karmadactl_register_writes_is_understood() {
        let settings = load(&[
            "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
            "--cluster-name=member1",
            "--cluster-api-endpoint=https://10.0.0.1:6443",
            "--cluster-provider=aws",
            "--cluster-region=eu-1",
            "--cluster-zones=a,b",
            "--controllers=*,certRotation",
            "--proxy-server-address=",
            "--leader-elect-resource-namespace=karmada-system",
            "--cluster-namespace=karmada-cluster",
            "--cluster-status-update-frequency=10s",
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=0.0.0.0:10357",
            "--v=2",
        ])
        .unwrap();
        assert!(settings.runs(CERT_ROTATION) && !Settings::default().runs(CERT_ROTATION));
        let bootstrap = ["--cluster-name=a", "--bootstrap-kubeconfig=b"];
        assert!(load(&bootstrap).unwrap().runs(CERT_ROTATION));
        assert_eq!(settings.cluster_name, "member1");
        assert_eq!(settings.cluster_zones.0, ["a", "b"]);
        assert!(settings.leader_elect && settings.models_enabled());
    }

    #[test]
    fn nonsense_is_refused_with_the_name_of_the_flag() {
        for (arguments, name) in [
            (vec![], "cluster-name"),
            (vec!["--cluster-name=A.b"], "cluster-name"),
            (
                vec![
                    "--cluster-name=a",
                    "--cluster-lease-renew-interval-fraction=1",
                ],
                "fraction",
            ),
            (
                vec!["--cluster-name=a", "--cluster-lease-duration=0s"],
                "cluster-lease-duration",
            ),
            (
                vec!["--cluster-name=a", "--controllers=*,nope"],
                "controllers",
            ),
            (
                vec!["--cluster-name=a", "--feature-gates=Nope=true"],
                "feature-gates",
            ),
            (
                vec!["--cluster-name=a", "--cluster-ready-nodes-threshold=60"],
                "cluster-ready-nodes-threshold",
            ),
            (
                vec![
                    "--cluster-name=a",
                    "--cluster-ready-nodes-threshold=0.6",
                    "--enable-cluster-resource-modeling=false",
                ],
                "cluster-ready-nodes-threshold",
            ),
            (
                vec!["--cluster-name=a", "--report-secrets=Everything"],
                "report-secrets",
            ),
            (
                vec![
                    "--cluster-name=a",
                    "--cert-rotation-remaining-time-threshold=20",
                ],
                "cert-rotation-remaining-time-threshold",
            ),
            (
                vec![
                    "--cluster-name=a",
                    "--bootstrap-kubeconfig=b",
                    "--controllers=*,-certRotation",
                ],
                "bootstrap-kubeconfig",
            ),
            (
                vec![
                    "--cluster-name=a",
                    "--bootstrap-kubeconfig=b",
                    "--karmada-context=c",
                ],
                "bootstrap-kubeconfig",
            ),
            (vec!["--cluster-name=a", "--nope"], "nope"),
            (
                vec!["--cluster-name=a", "--cluster-region=EU West"],
                "cluster-region",
            ),
            (
                vec!["--cluster-name=a", "--cluster-provider=-x"],
                "cluster-provider",
            ),
            (
                vec!["--cluster-name=a", "--cluster-zones=a,b c"],
                "cluster-zones",
            ),
            (
                vec!["--cluster-name=a", "--cluster-api-endpoint=10.0.0.1:6443"],
                "cluster-api-endpoint",
            ),
            (
                vec!["--cluster-name=a", "--cluster-api-endpoint=https://h/?a=b"],
                "cluster-api-endpoint",
            ),
            (
                vec!["--cluster-name=a", "--proxy-server-address=proxy:3128"],
                "proxy-server-address",
            ),
        ] {
            let error = load(&arguments).unwrap_err().to_string();
            assert!(error.contains(name), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn addresses_that_a_cluster_takes_are_taken() {
        for endpoint in [
            "https://10.0.0.1:6443",
            "https://[fd00::1]:6443",
            "https://rancher/k8s/clusters/c-1",
            "http://localhost:8080/",
        ] {
            let endpoint = format!("--cluster-api-endpoint={endpoint}");
            load(&["--cluster-name=a", &endpoint]).unwrap();
        }
        let flags = [
            "--cluster-name=a",
            "--proxy-server-address=socks5://proxy:1080",
        ];
        load(&flags).unwrap();
    }

    #[test]
    fn the_name_of_a_cluster_is_a_label_of_at_most_48_characters() {
        for (name, valid) in [
            ("member1", true),
            ("a", true),
            ("-a", false),
            ("a-", false),
            ("a.b", false),
            ("", false),
        ] {
            assert_eq!(is_cluster_name(name), valid, "{name}");
        }
        assert!(is_cluster_name(&"a".repeat(48)) && !is_cluster_name(&"a".repeat(49)));
    }
}
