//! The Muster agent, which runs in each member cluster.
//!
//! Decisions are pure functions beside the task that carries them out. All state is in API objects
//! and memory is a cache, so that a restart at any instruction loses nothing.
//!
//! # The tasks
//!
//! The table of all tasks is `wiring/tasks.rs`. Each begins when the join has the state that it
//! needs ([`join::JoinState`]). A task that writes for the member asks for leadership at each
//! act:
//!
//! * `fleet server` watches the servers of the fleet API; decides in [`mod@fleet_server`]
//!   (`decide`) which one may be obeyed; writes the connection to the fleet API, and the newest
//!   epoch into the member.
//! * `cluster informer` watches the Cluster of the member; decides nothing; writes the cache that
//!   the other tasks read.
//! * `registration` watches the Cluster; decides in [`join`] (`identity`, `adoption`) whether the
//!   member may join under its name and id; writes the Cluster, its namespaces, and the state of
//!   the join.
//! * `fleet id` watches two namespaces of the fleet API; decides in [`mod@fleet_id`] (`next`) which
//!   id the fleet has; writes it for the tasks that mark objects.
//! * `leases` watches the Cluster and the state of the join; decides in [`heartbeat`] when to
//!   renew; writes Lease `karmada-cluster/<cluster>` and the Lease of the election.
//! * `pulse of the leases` watches the thread of the leases; decides whether it is stuck; writes
//!   `/livez`.
//! * `probe` watches `/readyz` of the member; decides in [`health`] (`probe`) how it is; writes the
//!   observation for `status report`.
//! * `collector` watches version and kinds of the member; decides in [`discovery`] (`catalog`)
//!   which kinds are complete; writes both for `status report`.
//! * `names` watches the DNS of the member; decides in [`health`] (`deeper`) whether a name
//!   resolves; writes the answer for `status report`.
//! * `egress` watches an address outside of the member; decides in [`health`] (`deeper`) whether
//!   connections to it succeed; writes the answer for `status report`.
//! * `peers` watches the Cluster and the API servers of the peers that it names; decides in
//!   [`muster_shared::peers`] whether a peer is reached; writes that for `status report`.
//! * `census` watches nodes and pods; decides in [`census`] what they add up to; writes the sums
//!   for `status report`.
//! * `status report` watches these observations, the Cluster and the Works; decides in [`health`]
//!   (`debounce`) and [`report`] (`conditions`, `enablements`, `status`); writes the status of the
//!   Cluster, and an event about resource models that cannot be used.
//! * `credentials` watches Secrets of the member and the Cluster; decides in [`credentials`]
//!   (`report`, `ownership`) which accounts are missing, and which are no longer reported; writes
//!   accounts and roles in the member, Secrets in the fleet API, and their removal.
//! * `certificate rotation` watches the member's Secret; decides in [`certificate`] (`document`,
//!   `asking`) when a new certificate is due; writes signing requests and the Secret.
//! * `bootstrap` watches the certificate and the bootstrap kubeconfig; decides in [`certificate`]
//!   (`stored`) whether credentials are usable; writes signing requests and the Secret.
//! * `member watches` watches the kinds of the Works in the member; decides in [`work`] (`drift`,
//!   `waits`) what differs and when to repair it; writes the queues of the next two tasks.
//! * `work status` watches the statuses of objects; decides in [`work`] (`report`); writes
//!   `status.manifestStatuses` of Works.
//! * `applier` watches Works; decides in [`work`] (`drift`, `ownership`, `manifests`, `apply`);
//!   writes objects in the member, conditions and finalizers of Works.
//! * `fencing` watches the times of renewals and the record of them in the member; decides in
//!   [`work::fencing`] (`silence`, `record`) whether the member is cut off for too long; writes the
//!   record, and stops workloads in the member. The one task that does not ask for leadership: of
//!   agents that are cut off none leads.
//! * `objects without a Work` watches the epoch of the store; decides in [`work::orphans`] which
//!   objects in the member were made for Works that a promoted store does not have; writes them for
//!   `status report`, and removes none.
//! * `retries` watches whether an API answers again, and the id of the fleet; decides which Works
//!   failed meanwhile, or that all objects are marked anew; writes the queues of `applier` and
//!   `work status`.
//! * `works readiness` watches the cache of Works; decides whether it is complete; writes
//!   `/readyz`.
//! * `work informer` watches the Works of the member; decides nothing; writes the cache that the
//!   other tasks read.
//! * `interpreters` watches ResourceInterpreterCustomizations and
//!   ResourceInterpreterWebhookConfigurations of the fleet API; decides which count; writes the
//!   interpreters that `member watches` and `applier` ask, and sends the questions to the webhooks.
//!
//! Beside these run the admin servers, the delivery of events, and the reload of credentials from
//! files (`wiring/mod.rs`).
//!
//! # Threads
//!
//! The process has two threads. One renews the leases, on a runtime and a connection of its own;
//! everything else runs on the other, so that slow lists, discovery, comparisons and applies do not
//! delay the leases.

mod accounts;
mod census;
mod certificate;
pub mod check;
mod credentials;
mod digest;
mod discovery;
mod fleet_id;
mod fleet_server;
mod health;
mod heartbeat;
mod join;
mod measures;
mod records;
mod report;
pub mod settings;
#[cfg(test)]
mod testing;
mod wiring;
pub mod work;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::{tasks, telemetry, tls};
use tokio_util::sync::CancellationToken;

pub use crate::certificate::Asked;
pub use crate::credentials::is_an_agents;
use crate::settings::Settings;
use crate::wiring::Threads;
pub use crate::wiring::{Connections, Hosted};

/// Name of the program and of the source of its events.
pub const COMPONENT: &str = "muster-agent";

/// Time for which an agent that may not join says so in `/readyz` before it ends. The kubelet
/// starts it again then, and the agent checks whether it may join by then.
const REFUSAL_SHOWN: Duration = Duration::from_secs(30);

/// Runs the program: reads arguments and environment, and runs until a signal to stop.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|it| it == check::COMMAND) {
        return check::execute(arguments);
    }
    let command = clap::Command::new(COMPONENT)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Cluster failover for fleets of Kubernetes clusters: the agent of one member")
        .subcommand(clap::Command::new(check::COMMAND).about("Check this member"));
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
    measures::show_version();
    let shutdown = CancellationToken::new();
    muster_shared::clock::spawn(tasks::stop_on_signal(shutdown.clone()));
    let (ports, signal) = (ports(&settings), shutdown.child_token());
    // The refusal cancels the token of the agent, and a signal that of both.
    let own = shutdown.child_token();
    let ended = serve(settings, None, Some(metrics), Threads::Apart, own).await;
    if let Err(error) = &ended
        && let Some(refusal) = error.downcast_ref::<join::Error>()
    {
        hold(refusal, ports, signal).await;
    }
    ended
}

/// Returns the addresses of the admin servers.
fn ports(settings: &Settings) -> muster_shared::serve::Ports {
    muster_shared::serve::Ports {
        metrics: None,
        health: settings
            .health_probe_bind_address
            .0
            .or(settings.metrics_bind_address.0),
    }
}

/// Says in `/readyz` and in the log why the agent will end, long enough to be read.
async fn hold(
    refusal: &join::Error,
    ports: muster_shared::serve::Ports,
    signal: CancellationToken,
) {
    let health = muster_shared::serve::Health::default();
    health.ready("registration", Err(refusal.to_string()));
    let until = signal.child_token();
    let mut tasks = tasks::Tasks::new(until.clone());
    if let Err(error) = muster_shared::serve::open(ports, &health, None, &mut tasks).await {
        tracing::warn!("registration: {refusal}");
        tracing::debug!(%error, "cannot serve /readyz again");
        return;
    }
    tokio::select! {
        () = signal.cancelled() => {}
        () = tokio::time::sleep(REFUSAL_SHOWN) => {}
    }
    until.cancel();
}

/// Runs the agent until shutdown. Needs the process's TLS provider; metrics go to the process's
/// recorder, if it has one.
///
/// # Errors
/// When the settings are refused, the fleet has another cluster of this name, or a task of the
/// agent ended. The caller should end the process, so that it is started again.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    serve(settings, None, None, Threads::Apart, shutdown).await
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
    serve(settings, None, None, Threads::One, shutdown).await
}

/// Runs the agent as [`run_on_one_runtime`] does, over connections that the caller has made.
///
/// # Errors
/// As [`run`].
pub async fn run_over(
    connections: Connections,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    serve(settings, Some(connections), None, Threads::One, shutdown).await
}

async fn serve(
    settings: Settings,
    connections: Option<Connections>,
    metrics: Option<PrometheusHandle>,
    threads: Threads,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    let restart = fleet_server::Restart::default();
    loop {
        let opening = wiring::Agent::open(
            settings.clone(),
            connections.clone(),
            metrics.clone(),
            threads,
            restart.clone(),
            shutdown.child_token(),
        );
        let Some(agent) = Box::pin(opening).await? else {
            return Ok(());
        };
        agent.run().await?;
        // What it holds of the fleet was read from a store that is not obeyed any more.
        if !restart.is_due() || shutdown.is_cancelled() {
            return Ok(());
        }
    }
}
