//! Rejects settings that parse but are not allowed.

use muster_shared::fleet_servers;
use muster_shared::names::is_cluster_name;
use muster_shared::selectors::is_label_value;
use muster_shared::settings::{Error, Gate};

use super::{CERT_ROTATION, CONTROLLERS, CUSTOMIZED_MODELS, Settings};

/// Gates of karmada-agent without effect here, accepted so that its manifests can be used.
const WITHOUT_EFFECT: [&str; 4] = [
    "Failover",
    "GracefulEviction",
    "PropagateDeps",
    "MultiClusterService",
];

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
            ("fleet-server-timeout", self.fleet_server_timeout),
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
                "cluster-api-errors-threshold",
                self.cluster_api_errors_threshold,
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
        if self.cluster_api_errors_threshold <= 0.0 {
            let problem = "must be more than 0: no share of probes is less than none";
            return Err(Error::invalid("cluster-api-errors-threshold", problem));
        }
        let egress = &self.cluster_egress_address;
        if !egress.is_empty() && !is_host_and_port(egress) {
            let problem = format!("{egress:?} is not a host and a port, such as example.com:443");
            return Err(Error::invalid("cluster-egress-address", problem));
        }
        fleet_servers::check(&self.fleet_servers.0)
            .map_err(|problem| Error::invalid("fleet-servers", problem))?;
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
}

/// Returns whether a string is a host and a port, without a scheme.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_host = text.parse::<http::uri::Authority>().is_ok() && !host.contains('@');
    is_host && !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
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
