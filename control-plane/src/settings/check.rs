//! Rejects settings that parse but are not allowed.

use std::net::SocketAddr;
use std::time::Duration;

use muster_shared::api::failback::FailbackMode;
use muster_shared::fleet_servers;
use muster_shared::peers::MOST_WITNESSES;
use muster_shared::settings::Error;

use super::evict_plugin::EvictPlugins;
use super::{CONTROLLERS, GATES, SCHEDULER_PLUGINS, Settings, notice_receivers};

/// Shortest `--fencing-margin`: agents check every two seconds.
const LEAST_FENCING_MARGIN: Duration = Duration::from_secs(5);

/// Most `--failover-history-entries`: two lists of so many are below 1 MiB, and etcd takes 1.5.
const MOST_HISTORY_ENTRIES: usize = 500;

impl Settings {
    /// Rejects values that parse but are not allowed.
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
            (
                "cluster-status-update-frequency",
                self.cluster_status_update_frequency,
            ),
            ("cluster-lease-duration", self.cluster_lease_duration),
        ] {
            if duration.is_zero() {
                return Err(Error::invalid(name, "must be longer than 0"));
            }
        }
        if *self.fencing_margin < LEAST_FENCING_MARGIN {
            let problem = format!(
                "must be at least {} s, in which an agent can notice the end of a time and stop something",
                LEAST_FENCING_MARGIN.as_secs()
            );
            return Err(Error::invalid("fencing-margin", problem));
        }
        if !FailbackMode::KNOWN.contains(&self.failback.as_str()) {
            return Err(Error::invalid("failback", "must be Never or WhenHealthy"));
        }
        if self.failback_after.is_zero() {
            return Err(Error::invalid("failback-after", "must be longer than 0"));
        }
        if self.failover_history_entries > MOST_HISTORY_ENTRIES {
            let problem =
                format!("must be at most {MOST_HISTORY_ENTRIES}, so that an object holds them");
            return Err(Error::invalid("failover-history-entries", problem));
        }
        self.check_detection()?;
        let fraction = self.cluster_lease_renew_interval_fraction;
        if !(fraction > 0.0 && fraction < 1.0) {
            let problem = format!("{fraction} must lie between 0 and 1");
            let name = "cluster-lease-renew-interval-fraction";
            return Err(Error::invalid(name, problem));
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
        EvictPlugins::parse(&self.evict_plugins)?;
        fleet_servers::check_published(&self.fleet_servers.0)
            .map_err(|problem| Error::invalid("fleet-servers", problem))?;
        self.check_notices()?;
        self.check_ports()?;
        self.check_controllers()
    }

    /// Rejects values of settings by which failed clusters are detected.
    fn check_detection(&self) -> Result<(), Error> {
        if self.peers_per_cluster == 1 || self.peers_per_cluster > MOST_WITNESSES {
            let problem = format!(
                "must be 0, or 2 to {MOST_WITNESSES}: a cluster counts as lost once two agents have lost it, and each is a connection every 25 s"
            );
            return Err(Error::invalid("peers-per-cluster", problem));
        }
        let share = self.cluster_unhealthy_workloads_threshold;
        if !(0.0..=1.0).contains(&share) {
            let problem = format!("{share} must lie between 0 and 1");
            let name = "cluster-unhealthy-workloads-threshold";
            return Err(Error::invalid(name, problem));
        }
        Ok(())
    }

    /// Rejects an admission server on a port that another server of this process has. In command
    /// lines for karmada-controller-manager `--secure-port` is the port of `/healthz`.
    fn check_ports(&self) -> Result<(), Error> {
        let meets = |other: SocketAddr| {
            let (ours, theirs) = (self.bind_address, other.ip());
            let same = ours == theirs || ours.is_unspecified() || theirs.is_unspecified();
            same && other.port() == self.secure_port && self.secure_port != 0
        };
        for (name, address) in [
            ("health-probe-bind-address", &self.health_probe_bind_address),
            ("metrics-bind-address", &self.metrics_bind_address),
        ] {
            if self.serves_admission() && address.0.is_some_and(meets) {
                let problem = format!(
                    "port {} is that of --{name} as well; admission needs one of its own",
                    self.secure_port
                );
                return Err(Error::invalid("secure-port", problem));
            }
        }
        Ok(())
    }

    /// Rejects receivers of notices to which nothing could be sent, or not in the right form.
    fn check_notices(&self) -> Result<(), Error> {
        self.notice_receivers.check()?;
        let records = self.runs("failoverHistory") && self.failover_history_limit > 0;
        if !self.notice_receivers.0.is_empty() && !records {
            return Err(Error::invalid(
                "notice-receivers",
                "notices are about the records of failovers: run the controller failoverHistory, with a failover-history-limit above 0",
            ));
        }
        let source = &self.notice_source;
        if source.is_empty() || source.parse::<http::Uri>().is_err() {
            let problem = format!("{source:?} must be a name or an address without spaces");
            return Err(Error::invalid("notice-source", problem));
        }
        let page = &self.notice_page_url;
        if !page.is_empty()
            && let Err(problem) = notice_receivers::check_url(page)
        {
            return Err(Error::invalid("notice-page-url", format!("it {problem}")));
        }
        Ok(())
    }

    /// Rejects sets of controllers that cannot work.
    fn check_controllers(&self) -> Result<(), Error> {
        if CONTROLLERS.iter().all(|(name, _)| !self.runs(name)) {
            return Err(Error::invalid("controllers", "none would run"));
        }
        let evicts = ["taintmanager", "applicationFailover"];
        let evicts = evicts.into_iter().find(|it| self.runs(it));
        if let Some(evicts) = evicts
            && self.runs("scheduler")
            && !self.runs("gracefulEviction")
        {
            let problem = format!(
                "{evicts} and scheduler without gracefulEviction would leave eviction tasks for ever"
            );
            return Err(Error::invalid("controllers", problem));
        }
        Ok(())
    }
}
