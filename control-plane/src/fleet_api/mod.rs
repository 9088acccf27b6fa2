//! `muster-control-plane fleet-api`: keeps the certificates of a fleet API that the chart brings
//! along, and prepares that API for the control plane and the members.
//!
//! It runs beside the control plane, in a pod of its own, with an account of the host cluster that
//! may write a few Secrets of its namespace. So certificates are renewed even while the control
//! plane or the fleet API is down.
//!
//! * [`plan`]: the Secrets, and users, names and usages of the certificates in them.
//! * [`judge`]: whether a Secret is kept, made anew or refused.
//! * [`issue`]: new keys and certificates.
//! * [`secrets`]: one pass over the Secrets.
//! * [`etcd`]: whether a member of etcd may start.
//! * [`snapshots`]: which snapshots of etcd are kept, and object storage for them.
//! * [`objects`]: definitions, roles and the public ConfigMap of the fleet API.

pub(crate) mod etcd;
mod fitness;
mod issue;
mod judge;
mod objects;
mod plan;
mod secrets;
pub(crate) mod snapshots;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration as StdDuration;

use clap::ArgAction::Set;
use muster_shared::client::{self, Gateway, Limits, Profile, Source};
use muster_shared::clock::calendar;
use muster_shared::k8s::DynamicObject;
use muster_shared::queue::{doubled, jittered};
use muster_shared::serve::{self, Health};
use muster_shared::settings::{BindAddress, Duration, Error, Words};
use muster_shared::tasks::{self, Tasks};
use muster_shared::telemetry::{self, LogFormat};
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::fitness::unfit;
pub(crate) use self::issue::params as certificate_params;
pub use self::objects::is_newer;
pub use self::plan::CONTROL_PLANE;
use self::plan::Site;
use self::secrets::{Keeper, Outcome};
use crate::fleet::api_error::ApiError;
use crate::settings::COMPONENT;

/// Name of the command.
pub(crate) const COMMAND: &str = "fleet-api";
/// Description of the command.
pub(crate) const ABOUT: &str =
    "Keep the certificates of a fleet API that the chart brings along, and prepare that API";

/// Parts of `/readyz`.
const CERTIFICATES: &str = "certificates";
const FLEET: &str = "fleet API";
/// Longest pause between two passes over the Secrets.
const CHECK_EVERY: StdDuration = StdDuration::from_mins(1);
/// Interval of the checks while the load balancer has given no address yet.
const CHECK_ADDRESS: StdDuration = StdDuration::from_secs(5);
/// Certificates that live shorter may end before kube-controller-manager reads the next ones.
const SHORTEST_LIFE: StdDuration = StdDuration::from_mins(15);
/// First and longest pause after a pass that left something to do. Each pass applies all objects,
/// which is work for the API, and an object that the API refuses waits for a person.
const RETRY: (StdDuration, StdDuration) = (StdDuration::from_secs(2), CHECK_EVERY);
/// Interval at which the objects of the fleet API are applied again, should somebody have changed
/// them.
const REAPPLY: StdDuration = StdDuration::from_mins(30);
/// Time that tasks have to finish after a shutdown was requested.
const SHUTDOWN_GRACE: StdDuration = StdDuration::from_secs(5);

/// Settings of the command.
#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// Kubeconfig of the host cluster. If unset, in-cluster credentials are used.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets in the host cluster.
    #[arg(long, default_value = "muster-system")]
    pub namespace: String,
    /// Start of the names of the Secrets and of the Services.
    #[arg(long, default_value = "muster-fleet")]
    pub name: String,
    /// DNS domain of the host cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// URL of the fleet API for members and people. If unset, that of the Service's load balancer,
    /// or of the Service itself.
    #[arg(long, default_value = "", value_name = "URL")]
    pub address: String,
    /// Further DNS names and IP addresses of the fleet API.
    #[arg(long, default_value = "", value_name = "LIST")]
    pub certificate_names: Words,
    /// Make an account for the page that is served to whoever signs in.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub page_account: bool,
    /// Lifetime of new certificates, which are renewed when a third of it is left.
    #[arg(long, default_value = "2160h")]
    pub certificate_lifetime: Duration,
    /// Lifetime of new certificate authorities, which are not renewed.
    #[arg(long, default_value = "87600h")]
    pub authority_lifetime: Duration,
    /// Secret with a serving certificate that somebody else keeps, such as cert-manager: tls.crt,
    /// tls.key, ca.crt.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub serving_secret: String,
    /// URL at which this program reaches the fleet API. If unset, that of the Service.
    #[arg(long, default_value = "", value_name = "URL")]
    pub api_server: String,
    /// Directory with YAML files of further objects for the fleet API: those of admission, which is
    /// taken back without it.
    #[arg(long, value_name = "DIRECTORY")]
    pub objects_directory: Option<PathBuf>,
    /// Make the certificates and end: do not prepare the fleet API, and do not wait for renewals.
    #[arg(long, default_value_t = false, action = Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub once: bool,
    /// Address of `/metrics`; `0` for none.
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: BindAddress,
    /// Address of `/healthz`, `/livez` and `/readyz`; `0` for none.
    #[arg(long, default_value = ":10357")]
    pub health_probe_bind_address: BindAddress,
    /// Format of log lines: text or json.
    #[arg(long, default_value = "text")]
    pub log_format: LogFormat,
    /// Log filter in tracing's syntax, such as `info` or `info,kube=warn`.
    #[arg(long, default_value = "info")]
    pub log_filter: String,
}

impl Default for Settings {
    fn default() -> Self {
        muster_shared::settings::defaults()
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        for (name, url) in [("address", &self.address), ("api-server", &self.api_server)] {
            if !url.is_empty() && (!url.starts_with("https://") || plan::host(url).is_none()) {
                let problem = format!("{url:?} is no URL: write https://NAME or https://NAME:PORT");
                return Err(Error::invalid(name, problem));
            }
        }
        for (name, life) in [
            ("certificate-lifetime", self.certificate_lifetime),
            ("authority-lifetime", self.authority_lifetime),
        ] {
            if life.is_zero() {
                return Err(Error::invalid(name, "it has to be more than 0"));
            }
        }
        Ok(())
    }

    fn site(&self) -> Site {
        Site {
            prefix: self.name.clone(),
            namespace: self.namespace.clone(),
            cluster_domain: self.cluster_domain.clone(),
            address: self.address.clone(),
            names: self.certificate_names.0.clone(),
            has_page: self.page_account,
        }
    }
}

/// Runs the command: reads arguments and environment, and runs until a signal to stop.
pub(crate) fn execute(mut arguments: Vec<OsString>) -> ExitCode {
    arguments.remove(1);
    let command = clap::Command::new(COMPONENT)
        .bin_name(format!("{COMPONENT} {COMMAND}"))
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT);
    crate::settings::execute(command, arguments, start)
}

#[tokio::main(flavor = "current_thread")]
async fn start(settings: Settings) -> anyhow::Result<()> {
    telemetry::log(settings.log_format, &settings.log_filter)?;
    let metrics = telemetry::metrics()?;
    let shutdown = CancellationToken::new();
    muster_shared::clock::spawn(tasks::stop_on_signal(shutdown.clone()));
    let health = Health::default();
    let mut tasks = Tasks::new(shutdown.clone());
    if !settings.once {
        let ports = serve::Ports {
            metrics: settings.metrics_bind_address.0,
            health: settings.health_probe_bind_address.0,
        };
        serve::open(ports, &health, Some(metrics), &mut tasks).await?;
    }
    let once = settings.once;
    let (sender, mut failed) = tokio::sync::oneshot::channel();
    tasks.spawn("fleet API", async move {
        if let Err(error) = run(settings, health, shutdown.clone()).await {
            sender.send(error).ok();
        }
        shutdown.cancel();
    });
    let ended = tasks.supervise(SHUTDOWN_GRACE).await;
    if let Ok(error) = failed.try_recv() {
        return Err(error);
    }
    if once { Ok(()) } else { Ok(ended?) }
}

/// Keeps the Secrets and prepares the fleet API until shutdown; with `once` makes one pass over the
/// Secrets. Needs the process's TLS provider.
///
/// # Errors
/// When the settings are refused or the host cluster is not configured, and with `once` when a
/// Secret is not as it should be.
pub async fn run(
    settings: Settings,
    health: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    let source = Source {
        kubeconfig: settings.kubeconfig.clone(),
        context: None,
    };
    let gateway = Gateway::open("host", source).await?;
    let serving = Some(settings.serving_secret.clone()).filter(|it| !it.is_empty());
    let keeper = Keeper {
        host: gateway.client(Profile::Write, Limits::NONE)?,
        site: settings.site(),
        authority_life: *settings.authority_lifetime,
        leaf_life: *settings.certificate_lifetime,
        serving,
    };
    if settings.once {
        let outcome = keeper.pass(calendar()).await?;
        say(&outcome);
        let problems: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
        anyhow::ensure!(problems.is_empty(), "{}", problems.join("; "));
        return Ok(());
    }
    health.expect(CERTIFICATES);
    health.expect(FLEET);
    let following = muster_shared::clock::spawn(gateway.follow(shutdown.clone()));
    let mut program = Program {
        settings,
        keeper,
        health,
        applied: None,
        said: String::new(),
        waits: false,
        refusals: 0,
    };
    if *program.settings.certificate_lifetime < SHORTEST_LIFE {
        tracing::warn!(
            certificate_lifetime = %program.settings.certificate_lifetime,
            "kube-controller-manager reads its certificate again every five minutes only: with less than 15m it may lose its rights in between"
        );
    }
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = program.keep() => {}
    }
    following.abort();
    Ok(())
}

/// Objects that were applied to the fleet API, and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    at: Instant,
    address: String,
    trusted: String,
}

struct Program {
    settings: Settings,
    keeper: Keeper,
    health: Health,
    applied: Option<Applied>,
    /// The trouble that was logged last, so that it is not logged at each pass.
    said: String,
    /// Whether the load balancer has no address yet.
    waits: bool,
    /// Number of consecutive refusals of an object by the fleet API.
    refusals: u32,
}

impl Program {
    async fn keep(&mut self) {
        let check = CHECK_EVERY.min(*self.settings.certificate_lifetime / 12);
        loop {
            let trouble = self.pass().await;
            let text = trouble.err().map_or_else(String::new, |it| it.to_string());
            if !text.is_empty() && text != self.said {
                tracing::warn!(problem = text, "the fleet API is not as it should be");
            }
            let pause = match (text.is_empty(), self.waits) {
                (true, false) => check,
                (true, true) => check.min(CHECK_ADDRESS),
                (false, _) => doubled(RETRY, self.refusals).min(check).max(RETRY.0),
            };
            self.said = text;
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    async fn pass(&mut self) -> anyhow::Result<()> {
        let outcome = self.keeper.pass(calendar()).await;
        let state = match &outcome {
            Err(error) => Err(error.to_string()),
            Ok(outcome) if outcome.problems.is_empty() => Ok(()),
            Ok(outcome) => {
                let problems = outcome.problems.iter().map(ToString::to_string);
                Err(problems.collect::<Vec<_>>().join("; "))
            }
        };
        self.health.ready(CERTIFICATES, state.clone());
        let outcome = outcome?;
        say(&outcome);
        self.waits = outcome.waits.is_some();
        let prepared = self.prepare(&outcome).await;
        let words = prepared.as_ref().err().map(ToString::to_string);
        self.health.ready(FLEET, words.map_or(Ok(()), Err));
        if state.is_ok() {
            self.health.note(CERTIFICATES, outcome.waits.clone());
        }
        prepared?;
        state.map_err(anyhow::Error::msg)
    }

    /// Applies the objects where that is due.
    async fn prepare(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let address = outcome.site.outside();
        let is_recent = |it: &Applied| {
            it.address == address && it.trusted == outcome.trusted && it.at.elapsed() < REAPPLY
        };
        if self.applied.as_ref().is_some_and(is_recent) {
            return Ok(());
        }
        let mut config = client::from_text(&outcome.visitor, "of the fleet API").await?;
        if !self.settings.api_server.is_empty() {
            config.cluster_url = self.settings.api_server.parse()?;
        }
        let fleet = client::connect(&config, Profile::Write)?;
        let directory = self.settings.objects_directory.as_deref();
        let has_page = self.settings.page_account;
        let prepared = prepare(&fleet, &address, &outcome.trusted, directory, has_page).await;
        let error = prepared.as_ref().err();
        let error = error.and_then(|it| it.downcast_ref::<ApiError>());
        let is_refusal = error.is_some_and(ApiError::is_lasting);
        self.refusals = if is_refusal {
            self.refusals.saturating_add(1)
        } else {
            0
        };
        let newer = prepared?;
        // After a rollback, which has to become ready: the control plane works with newer objects.
        self.health.note(FLEET, newer);
        self.applied = Some(Applied {
            at: Instant::now(),
            address,
            trusted: outcome.trusted.clone(),
        });
        Ok(())
    }
}

/// Applies definitions, roles and admission policies to a fleet API, and says publicly where it is.
/// Without a directory of further objects nobody answers about admission, so that its
/// configurations are removed; without an account of the page its user loses the rights that it
/// had, for its certificate outlives it. Returns what there is to know of objects that a newer
/// version wrote: they stay as they are.
///
/// # Errors
/// When the API does not answer or refuses an object.
pub async fn prepare(
    fleet: &kube::Client,
    address: &str,
    trusted: &str,
    directory: Option<&std::path::Path>,
    has_page: bool,
) -> anyhow::Result<Option<String>> {
    let version = env!("CARGO_PKG_VERSION");
    let is_over = |it: &DynamicObject| !has_page && objects::binds_page(it);
    let (mut ended, mut all): (Vec<_>, Vec<_>) = objects::own()?.into_iter().partition(is_over);
    match directory {
        Some(directory) => all.extend(objects::of_directory(directory)?),
        None => ended.extend(objects::admission()),
    }
    objects::take_back(fleet, ended, version).await?;
    let number = all.len();
    let applied = objects::apply(fleet, all, version).await;
    objects::announce(fleet, address, trusted).await?;
    let newer = applied?;
    tracing::info!(objects = number, "the fleet API is prepared");
    let names = newer.join(", ");
    let words = || {
        format!(
            "the fleet API was prepared by a newer version than {version}, whose objects stay as they are: {names}"
        )
    };
    Ok((!newer.is_empty()).then(words))
}

fn say(outcome: &Outcome) {
    for (secret, why) in &outcome.written {
        tracing::info!(secret, why, "wrote a Secret");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_refused_with_their_name() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().map_err(|error| error.to_string())
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|it| it.address = "https://a:6443".to_owned()), Ok(()));
        for (result, name) in [
            (
                with(|it| it.address = "fleet.example.com".to_owned()),
                "address",
            ),
            (
                with(|it| it.api_server = "http://a".to_owned()),
                "api-server",
            ),
            (
                with(|it| it.certificate_lifetime = "0s".parse().unwrap()),
                "certificate-lifetime",
            ),
        ] {
            assert!(result.clone().unwrap_err().contains(name), "{result:?}");
        }
    }
}
