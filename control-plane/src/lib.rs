//! The Muster control plane: detects failed clusters, evicts their workloads at a limited rate,
//! places them in other clusters, and reports why.
//!
//! One process has one cache per kind ([`fleet`]) and a module per capability, in which pure
//! functions decide and one `controller.rs` gathers, calls and writes. Every decision is stored in
//! API objects and memory is a cache, so that a restart at any instruction loses nothing and
//! repeats nothing.
//!
//! # The controllers
//!
//! | name in `--controllers` | module | writes |
//! |---|---|---|
//! | `cluster` | [`cluster`] | `Ready` of silent clusters, condition taints, execution namespaces |
//! | `clustertaintpolicy` | [`taint`] | taints of ClusterTaintPolicies |
//! | `taintmanager` | [`eviction`] | `spec.clusters` and eviction tasks of bindings |
//! | `applicationFailover` | [`application_failover`] | the same, for unhealthy applications |
//! | `gracefulEviction` | [`graceful_eviction`] | removes completed eviction tasks |
//! | `scheduler` | [`scheduler`] | `spec.clusters` of bindings, condition `Scheduled` |
//! | `detector` | [`detector`] | bindings, claims on templates |
//! | `binding`, `namespace` | [`binding`] | Works |
//! | `bindingStatus` | [`status`] | status of bindings and templates |
//! | `agentcsrapproving` | [`registration`] | approvals of signing requests |
//!
//! # A failover, step by step
//!
//! | step | module | result |
//! |---|---|---|
//! | an agent stops renewing its lease | | Lease `karmada-cluster/<cluster>` |
//! | the grace period ends | [`cluster`]: `monitor`, `rollcall` | condition `Ready`=Unknown |
//! | the condition sets a taint | [`taint`]: `condition_taints` | `unreachable:NoSchedule` |
//! | a policy adds a taint that evicts | [`taint`]: `decide` | `NoExecute` or `PreferNoExecute` |
//! | the workloads that must leave are found | [`eviction`]: `judge` | `EvictionPending` |
//! | they are ordered and paced | [`eviction`]: `backlog`, `pace` | |
//! | a new placement is written | [`eviction`]: `plan`, [`scheduler`] | one patch of the binding |
//! | the Work for the new cluster is created | [`binding`]: `render` | Work in `karmada-es-<new>` |
//! | its agent applies the Work and reports | agent: `apply`, `reflect` | status of the Work |
//! | the reports are collected | [`status`]: `aggregate` | `status.aggregatedStatus` |
//! | the replacement is healthy | [`graceful_eviction`]: `assess` | the eviction task is removed |
//! | the old Work is deleted | [`binding`]: `controller` | Work in `karmada-es-<old>` |
//! | the old cluster returns | agent: `apply` | the old copy is removed |
//!
//! # Terms in the code
//!
//! * *Template*: an object of the fleet API that a policy selects, and that is propagated to
//!   members.
//! * *Safety contract N*: promise N of the README.
//! * *The proposal*: Karmada's proposal "Optimize Cluster Failover", which was released in part.
//!   ClusterTaintPolicy has Karmada's *released form* (`taints`, also called shipped) and the
//!   *proposed form* (`taintsToAdd`).
//! * *Classic mode*: NoExecute taints some time after a failure, as in Karmada 1.3; enabled by
//!   `--failover-eviction-timeout`.
//! * *K15* and the like: numbers in the project's list of Karmada's defects; the sentence beside
//!   each says which behaviour is avoided.

pub mod application_failover;
pub mod binding;
pub mod cluster;
pub mod detector;
#[cfg(test)]
mod deviations;
pub mod eviction;
pub mod fleet;
pub mod graceful_eviction;
pub mod kubectl;
pub mod registration;
pub mod scheduler;
pub mod settings;
pub mod status;
pub mod taint;
mod unsupported;
pub mod webhook;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::client::{self, Gateway, Source};
use muster_shared::lease::{self, Leadership};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::serve::{self, Health};
use muster_shared::tasks::{self, Tasks};
use muster_shared::{telemetry, tls};
use tokio_util::sync::CancellationToken;

use crate::fleet::{COMPONENT, Fleet};
use crate::settings::{CONTROLLERS, Settings};

/// How long tasks may take to finish after a shutdown was asked for; below Kubernetes' default grace of 30 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// The program: reads arguments and environment, runs until it is told to stop.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|argument| argument == "crds") {
        return print_crds();
    }
    let settings: Settings =
        match muster_shared::settings::load_from(command(), arguments, std::env::vars_os()) {
            Ok(settings) => settings,
            Err(muster_shared::settings::Error::Flag(error)) => error.exit(),
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

/// Prints the definitions of our kinds, ready for `kubectl apply -f -`.
fn print_crds() -> ExitCode {
    let mut all = String::new();
    for crd in muster_shared::api::crds() {
        match serde_saphyr::to_string(&crd) {
            Ok(text) => all.extend(["---\n", text.trim_end(), "\n"]),
            Err(error) => return refuse(&error),
        }
    }
    match telemetry::print(&all) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &impl std::fmt::Display) -> ExitCode {
    eprintln!("{COMPONENT}: {error}");
    ExitCode::FAILURE
}

fn command() -> clap::Command {
    clap::Command::new(COMPONENT)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Cluster failover for fleets of Kubernetes clusters: the control plane")
        .subcommand(
            clap::Command::new("crds").about("Print the custom resource definitions as YAML"),
        )
}

#[tokio::main]
async fn start(settings: Settings) -> anyhow::Result<()> {
    telemetry::log(settings.log_format, &settings.log_filter)?;
    muster_shared::settings::warn_of_unknown_variables::<Settings>();
    let metrics = telemetry::metrics()?;
    let shutdown = CancellationToken::new();
    tokio::spawn(tasks::stop_on_signal(shutdown.clone()));
    run(settings, Some(metrics), shutdown).await
}

/// Runs the control plane until shutdown. Needs the process's TLS provider and, for metrics, its recorder.
///
/// # Errors
/// When the settings are refused, the fleet API is not configured, leadership was lost, or a part of the process ended: the caller
/// should end the process, to be started again.
pub async fn run(
    settings: Settings,
    metrics: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    say_what_is_owned(&settings);
    let source = Source {
        kubeconfig: settings.kubeconfig.clone(),
        context: settings.context.clone(),
    };
    let gateway = Gateway::open("fleet", source).await?;
    let health = Health::default();
    health.expect("caches");
    let mut tasks = Tasks::new(shutdown.clone());
    serve_admin(&settings, &health, metrics.as_ref(), &mut tasks).await?;

    let leadership = if settings.leader_elect {
        Leadership::elected()
    } else {
        Leadership::always()
    };
    let fleet = Fleet::new(&gateway, settings, leadership, &mut tasks)?;
    let kept_certificate = webhook::start(&fleet, &health, &mut tasks).await?;
    tasks.spawn("credentials", gateway.follow(shutdown.clone()));
    start_controllers(&fleet, &mut tasks);
    if let Some(certificate) = kept_certificate {
        webhook::keep_certificate(&fleet, certificate, &health, &mut tasks);
    }
    fleet.follow(&mut tasks);
    tasks.spawn("readiness", {
        let (fleet, shutdown) = (std::sync::Arc::clone(&fleet), shutdown.clone());
        async move {
            tokio::select! {
                () = fleet.synced() => health.ready("caches", Ok(())),
                () = say_what_is_waited_for(&fleet, &health) => {}
                () = shutdown.cancelled() => {}
            }
            shutdown.cancelled().await;
        }
    });

    let (tell, mut lost) = tokio::sync::oneshot::channel();
    let (electing, retire) = (std::sync::Arc::clone(&fleet), tasks.retire().clone());
    // Goes on until all else has come to its end: whoever still writes does so as the leader.
    tasks.spawn_last("election", async move {
        if stand_for_election(&electing, retire).await == lease::Outcome::Lost {
            tell.send(()).ok();
            electing.shutdown.cancel();
        }
    });
    tasks.supervise(SHUTDOWN_GRACE).await?;
    anyhow::ensure!(lost.try_recv().is_err(), "leadership was lost");
    Ok(())
}

/// Says in `/readyz` which caches are missing, and why, for as long as it is polled.
async fn say_what_is_waited_for(fleet: &Fleet, health: &Health) {
    loop {
        if let Some(missing) = fleet.waits_for() {
            health.ready("caches", Err(missing));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn start_controllers(fleet: &std::sync::Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    if settings.runs("cluster") {
        cluster::start(fleet, tasks);
    }
    if settings.runs("clustertaintpolicy") {
        taint::start(fleet, tasks);
    }
    let (taints, applications) = (
        settings.runs("taintmanager"),
        settings.runs("applicationFailover"),
    );
    if taints || applications {
        // One for all that moves.
        let budget = eviction::budget(fleet, tasks);
        if taints {
            eviction::start(fleet, &budget, tasks);
        }
        if applications {
            application_failover::start(fleet, budget, tasks);
        }
    }
    if settings.runs("gracefulEviction") {
        graceful_eviction::start(fleet, tasks);
    }
    if settings.runs("scheduler") {
        scheduler::start(fleet, tasks);
    }
    if settings.runs("detector") {
        detector::start(fleet, tasks);
    }
    if settings.runs("binding") {
        binding::start(fleet, tasks);
    }
    if settings.runs("binding") || settings.runs("bindingStatus") {
        unsupported::start(fleet, tasks);
    }
    if settings.runs("bindingStatus") {
        status::start(fleet, tasks);
    }
    if settings.runs("namespace") {
        binding::start_namespaces(fleet, tasks);
    }
    if settings.runs("agentcsrapproving") {
        registration::start(fleet, tasks);
    }
}

/// Makes sure that the namespaces of elections and leases exist, until they do: in a fresh fleet API nobody else makes them.
async fn found(fleet: &Fleet) {
    let api: Api<Namespace> = Api::all(fleet.client.clone());
    let mut wanted = vec![
        fleet.settings.leader_elect_resource_namespace.as_str(),
        CLUSTER_NAMESPACE,
    ];
    wanted.dedup();
    for name in wanted {
        loop {
            let refusal = match make(&api, name).await {
                Ok(true) => {
                    tracing::info!(name, "created a namespace that the fleet needs");
                    break;
                }
                Ok(false) => break,
                Err(error) => error,
            };
            let why = client::brief(&refusal);
            if is_refused_for_good(&refusal) {
                // Then somebody else is to make it, and the election says what is missing.
                tracing::warn!(
                    name,
                    why,
                    "a namespace that the fleet needs may not be created"
                );
                break;
            }
            tracing::warn!(
                name,
                why,
                "could not create a namespace that the fleet needs"
            );
            tokio::select! {
                () = fleet.shutdown.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(2)) => {}
            }
        }
    }
}

/// Creates a namespace where it is missing; says whether it was. It is read first, because admission may refuse to create one that exists.
async fn make(api: &Api<Namespace>, name: &str) -> Result<bool, kube::Error> {
    match api.get_metadata_opt(name).await {
        Ok(Some(_)) => return Ok(false),
        Ok(None) => {}
        // Who may not read it may still create it.
        Err(kube::Error::Api(status)) if status.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match api.create(&PostParams::default(), &namespace).await {
        Ok(_) => Ok(true),
        Err(error) if client::is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether asking again cannot help: the API answered, and it was not a matter of load or of time.
fn is_refused_for_good(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) && status.code != 429,
        _ => false,
    }
}

/// Campaigns where that was asked for, until it is told to retire; a loss is for the caller to end the process.
async fn stand_for_election(
    fleet: &Fleet,
    retire: tokio_util::sync::CancellationToken,
) -> lease::Outcome {
    found(fleet).await;
    let settings = &fleet.settings;
    if !settings.leader_elect {
        retire.cancelled().await;
        return lease::Outcome::Stopped;
    }
    let candidate = lease::Candidate {
        namespace: settings.leader_elect_resource_namespace.clone(),
        name: settings.leader_elect_resource_name.clone(),
        identity: lease::identity(COMPONENT),
        timing: lease::Timing {
            lease_duration: *settings.leader_elect_lease_duration,
            renew_deadline: *settings.leader_elect_renew_deadline,
            retry_period: *settings.leader_elect_retry_period,
        },
    };
    let (client, leadership) = (fleet.urgent_client.clone(), fleet.leadership.clone());
    lease::stand(
        client,
        candidate,
        leadership,
        fleet.shutdown.clone(),
        retire,
    )
    .await
}

async fn serve_admin(
    settings: &Settings,
    health: &Health,
    metrics: Option<&PrometheusHandle>,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let shutdown = tasks.shutdown().clone();
    if let Some(metrics) = metrics.cloned() {
        tasks.spawn("metrics upkeep", serve::upkeep(metrics, shutdown));
    }
    // Metrics are on their own port only, so that the port of the probes can be open to all.
    let addresses = [
        ("metrics server", settings.metrics_bind_address.0, metrics),
        ("health server", settings.health_probe_bind_address.0, None),
    ];
    for (name, address, metrics) in addresses {
        let Some(address) = address else { continue };
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot serve on {address}"))?;
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(
            name,
            serve::admin(listener, health.clone(), metrics.cloned(), shutdown),
        );
    }
    Ok(())
}

fn say_what_is_owned(settings: &Settings) {
    for (name, owns) in CONTROLLERS {
        tracing::info!(
            controller = name,
            running = settings.runs(name),
            owns,
            "controller"
        );
    }
    if !settings.gate(&settings::FAILOVER) {
        tracing::info!("feature gate Failover is off: no taint moves any workload");
    }
}
