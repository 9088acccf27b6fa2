//! From settings to a running control plane: connections, admin servers, caches, controllers,
//! election, supervision.
//!
//! [`controllers`] is the table of all controllers: what each watches, decides and writes.

pub mod controllers;
mod election;
mod epoch;
mod fitness;
mod namespaces;
mod outlived;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::client::{Gateway, Source};
use muster_shared::lease::{self, Leadership};
use muster_shared::serve::{self, Health};
use muster_shared::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::fleet::Fleet;
use crate::notices;
use crate::settings::Settings;

/// How long tasks may take to finish after a shutdown was asked for; below Kubernetes' default
/// grace of 30 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// Interval at which `/readyz` learns which caches are missing.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Runs the control plane until shutdown. Needs the process's TLS provider and, for metrics, its
/// recorder.
///
/// # Errors
/// When the settings are refused, the fleet API is not configured, leadership was lost, or a part
/// of the process ended: the caller should end the process, to be started again.
pub async fn run(
    settings: Settings,
    metrics: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    let source = Source {
        kubeconfig: settings.kubeconfig.clone(),
        context: settings.context.clone(),
    };
    let gateway = Gateway::open("fleet", source).await?;
    run_over(gateway, settings, metrics, shutdown).await
}

/// Runs the control plane as [`run`] does, over a connection to the fleet API that the caller has
/// made. Members of sync mode Push are reached over the same network.
///
/// # Errors
/// As [`run`].
pub async fn run_over(
    gateway: Arc<Gateway>,
    settings: Settings,
    metrics: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    settings.check()?;
    notices::check(&settings)?;
    controllers::say_what_runs(&settings);
    let health = Health::default();
    health.expect("caches");
    let mut tasks = Tasks::new(shutdown.clone());
    let ports = serve::Ports {
        metrics: settings.metrics_bind_address.0,
        health: settings.health_probe_bind_address.0,
    };
    serve::open(ports, &health, metrics, &mut tasks).await?;

    let leadership = if settings.leader_elect {
        Leadership::elected()
    } else {
        Leadership::always()
    };
    let fleet = Fleet::new(&gateway, settings, leadership, &mut tasks)?;
    let kept_certificate = admission::start(&fleet, &health, &mut tasks).await?;
    tasks.spawn("credentials", gateway.follow(shutdown.clone()));
    controllers::start(&fleet, &mut tasks);
    if let Some(certificate) = kept_certificate {
        admission::keep_certificate(&fleet, certificate, &health, &mut tasks);
    }
    let epoch = epoch::Watch::new(&fleet, &health);
    let (fit, ended) = (epoch.fit(), epoch.ended());
    fleet.follow(&mut tasks);
    tasks.spawn("epoch of the store", epoch.run());
    tasks.spawn(
        "fitness",
        fitness::watch(Arc::clone(&fleet), health.clone()),
    );
    let reporting =
        serve::report_election(fleet.leadership.clone(), health.clone(), shutdown.clone());
    tasks.spawn("state of the election", reporting);
    tasks.spawn("readiness", {
        let (fleet, shutdown) = (Arc::clone(&fleet), shutdown.clone());
        async move {
            tokio::select! {
                () = fleet.synced() => health.ready("caches", Ok(())),
                () = say_what_is_waited_for(&fleet, &health) => {}
                () = shutdown.cancelled() => {}
            }
            shutdown.cancelled().await;
        }
    });

    let (sender, mut lost) = tokio::sync::oneshot::channel();
    let (electing, retire) = (Arc::clone(&fleet), tasks.retire().clone());
    // Goes on until all else has come to its end: whoever still writes does so as the leader.
    tasks.spawn_last("election", async move {
        if election::campaign(&electing, fit, retire).await == lease::Outcome::Lost {
            sender.send(()).ok();
            electing.shutdown.cancel();
        }
    });
    tasks.supervise(SHUTDOWN_GRACE).await?;
    if let Some(why) = ended.lock().take() {
        anyhow::bail!(why);
    }
    anyhow::ensure!(lost.try_recv().is_err(), "leadership was lost");
    Ok(())
}

/// Says in `/readyz` which caches are missing, and why, for as long as it is polled.
async fn say_what_is_waited_for(fleet: &Fleet, health: &Health) {
    loop {
        if let Some(missing) = fleet.waits_for() {
            health.ready("caches", Err(missing));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}
