//! The Muster agent, which runs in each member cluster.
//!
//! | task | module | writes |
//! |---|---|---|
//! | registers the member | [`join`] | Cluster, namespaces |
//! | renews the member's lease | [`heartbeat`] | Lease `karmada-cluster/<cluster>` |
//! | probes the member's API server | [`health`] | condition `Ready` |
//! | reports version, kinds, resources | [`report`], [`census`], [`discovery`] | Cluster status |
//! | applies Works | [`apply`] | objects in the member, conditions of Works |
//! | reports the state of applied objects | [`reflect`] | `status.manifestStatuses` of Works |
//! | obtains and renews the agent's certificate | [`certificate`] | Secret in the member |
//! | reports credentials of the member, if requested | [`credentials`] | Secrets in the fleet API |
//!
//! The process has two threads. One renews the leases, on a runtime and a connection of its own;
//! everything else runs on the other, so that slow lists, discovery, comparisons and applies do not
//! delay the leases.

mod accounts;
mod apply;
mod census;
mod certificate;
mod credentials;
mod digest;
mod discovery;
mod fleet_id;
mod health;
mod heartbeat;
mod join;
mod measures;
pub mod reflect;
mod report;
pub mod settings;
mod wiring;
pub mod work;
mod write;
mod written;

use std::ffi::OsString;
use std::process::ExitCode;

use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::{tasks, telemetry, tls};
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;
use crate::wiring::Threads;

/// Name of the program and of the source of its events.
pub const COMPONENT: &str = "muster-agent";

/// Runs the program: reads arguments and environment, and runs until a signal to stop.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let command = clap::Command::new(COMPONENT)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Cluster failover for fleets of Kubernetes clusters: the agent of one member");
    let settings = muster_shared::settings::load_from(command, arguments, std::env::vars_os());
    let outcome = match settings {
        Ok(settings) => start(settings),
        Err(muster_shared::settings::Error::Flag(error)) => error.exit(),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{COMPONENT}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// One thread runs everything but the leases: the agent mostly waits, and more threads would cost
// memory.
#[tokio::main(flavor = "current_thread")]
async fn start(settings: Settings) -> anyhow::Result<()> {
    telemetry::log(settings.log_format, &settings.log_filter)?;
    muster_shared::settings::warn_of_unknown_variables::<Settings>();
    let metrics = telemetry::metrics()?;
    measures::describe();
    let shutdown = CancellationToken::new();
    tokio::spawn(tasks::stop_on_signal(shutdown.clone()));
    serve(settings, Some(metrics), Threads::Apart, shutdown).await
}

/// Runs the agent until shutdown. Needs the process's TLS provider; metrics go to the process's
/// recorder, if it has one.
///
/// # Errors
/// When the settings are refused, the fleet has another cluster of this name, or a task of the
/// agent ended. The caller should end the process, so that it is started again.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    serve(settings, None, Threads::Apart, shutdown).await
}

/// Runs the agent as [`run`] does, with the leases on the caller's runtime too: for tests in
/// simulated time, because every runtime has its own.
///
/// # Errors
/// As [`run`].
pub async fn run_on_one_runtime(
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    serve(settings, None, Threads::One, shutdown).await
}

async fn serve(
    settings: Settings,
    metrics: Option<PrometheusHandle>,
    threads: Threads,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    match wiring::Agent::open(settings, metrics, threads, shutdown).await? {
        Some(agent) => agent.run().await,
        None => Ok(()),
    }
}
