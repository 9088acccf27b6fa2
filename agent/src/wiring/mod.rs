//! Starts the agent from its settings: connections, admin servers, election, registration,
//! supervision.

mod access;
mod leases;
mod parts;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::api::cluster::Cluster;
use muster_shared::capacity::default_models;
use muster_shared::client::{Gateway, Limits, Profile, Source};
use muster_shared::clock::Clock;
use muster_shared::events::Events;
use muster_shared::lease::Leadership;
use muster_shared::serve::{self, Health};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Informer;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::COMPONENT;
use crate::certificate::Bootstrap;
use crate::join::{self, Registration, Standing, Telling};
use crate::settings::Settings;

/// Time for which tasks may take to finish after the shutdown began; below Kubernetes' default
/// grace of 30 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// A configured agent, and the tasks that were started.
pub struct Agent {
    settings: Settings,
    fleet: Arc<Gateway>,
    member: Arc<Gateway>,
    leadership: Leadership,
    health: Health,
    tasks: Tasks,
    standing: watch::Receiver<Standing>,
    threads: Threads,
    shutdown: CancellationToken,
    /// Clock for the times of decisions.
    clock: Arc<Clock>,
    /// Obtains the credentials for the fleet API; `None` without a bootstrap kubeconfig.
    bootstrap: Option<Arc<Bootstrap>>,
}

/// Threads of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The leases are renewed on a thread of their own, so that nothing that blocks the others
    /// delays them.
    Apart,
    /// Everything runs on the caller's runtime, for tests with paused time.
    One,
}

impl Agent {
    /// Reads both kubeconfigs and opens the admin servers. With a bootstrap kubeconfig it waits
    /// until the agent has credentials; returns `None` if the shutdown began before.
    pub async fn open(
        settings: Settings,
        metrics: Option<PrometheusHandle>,
        threads: Threads,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Option<Self>> {
        let fleet = Source {
            kubeconfig: settings.karmada_kubeconfig.clone(),
            context: settings.karmada_context.clone(),
        };
        let member = Source {
            kubeconfig: settings.kubeconfig.clone(),
            context: settings.cluster_context.clone(),
        };
        let leadership = if settings.leader_elect {
            Leadership::elected()
        } else {
            Leadership::always()
        };
        let health = Health::default();
        for part in join::PARTS {
            health.expect(part);
        }
        let mut tasks = Tasks::new(shutdown.clone());
        let ports = serve::Ports {
            metrics: settings.metrics_bind_address.0,
            health: settings.health_probe_bind_address.0,
        };
        serve::open(ports, &health, metrics, &mut tasks).await?;
        let member = Gateway::open("member", member).await?;
        tasks.spawn(
            "member credentials",
            Arc::clone(&member).follow(shutdown.clone()),
        );
        let bootstrap = access::bootstrap(&settings, &member, &health, &mut tasks)?;
        let fleet = match &bootstrap {
            None => Gateway::open("fleet", fleet).await?,
            Some(bootstrap) => tokio::select! {
                () = shutdown.cancelled() => return Ok(None),
                config = bootstrap.obtain() => Gateway::given("fleet", config),
            },
        };
        Ok(Some(Self {
            fleet,
            member,
            bootstrap,
            settings,
            leadership,
            health,
            tasks,
            standing: watch::channel(Standing::Unregistered).1,
            threads,
            shutdown,
            clock: Arc::new(Clock::default()),
        }))
    }

    /// Starts all tasks, and runs them until shutdown.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let following = Arc::clone(&self.fleet).follow(self.shutdown.clone());
        self.tasks.spawn("fleet credentials", following);
        let (publish, standing) = watch::channel(Standing::Unregistered);
        self.standing = standing;
        let clusters = self.follow_cluster()?;
        let (events, delivery) = Events::new(
            self.fleet_client(Profile::Write)?,
            COMPONENT,
            self.shutdown.clone(),
        );
        self.tasks.spawn("events", delivery);
        let telling = Telling {
            standing: publish,
            health: self.health.clone(),
            events: events.clone(),
        };
        let mut refused = self.start_joining(telling, clusters.clone())?;
        self.start(clusters, events)?;
        let ended = self.tasks.supervise(SHUTDOWN_GRACE).await;
        if let Ok(refusal) = refused.try_recv() {
            return Err(refusal.into());
        }
        Ok(ended?)
    }

    /// Registers the member in a task of its own; a final refusal ends the agent and is sent
    /// through the channel.
    fn start_joining(
        &mut self,
        telling: Telling,
        clusters: Informer<Cluster>,
    ) -> anyhow::Result<oneshot::Receiver<join::Error>> {
        let (config, fleet) = (self.member.config(), self.fleet.config());
        let registration = Registration {
            fleet: self.fleet.client(Profile::Write, Limits::NONE)?,
            member: self.member.client(Profile::Write, Limits::NONE)?,
            settings: self.settings.clone(),
            endpoint: config
                .cluster_url
                .to_string()
                .trim_end_matches('/')
                .to_owned(),
            same_server: config.cluster_url == fleet.cluster_url
                && config.tls_server_name == fleet.tls_server_name,
            insecure: config.accept_invalid_certs,
            reports: self.settings.reports()?,
            models: if self.settings.models_enabled() {
                default_models()
            } else {
                Vec::new()
            },
        };
        let (refuse, refused) = oneshot::channel();
        let (leadership, shutdown) = (self.leadership.clone(), self.shutdown.clone());
        self.tasks.spawn("registration", async move {
            let ends = shutdown.clone();
            let joining = join::run(registration, clusters, leadership, telling, ends);
            if let Err(error) = joining.await {
                refuse.send(error).ok();
                shutdown.cancel();
            }
        });
        Ok(refused)
    }

    /// Starts a task that begins once the member has this standing.
    fn spawn_as(
        &mut self,
        standing: Standing,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (mut reached, shutdown) = (self.standing.clone(), self.shutdown.clone());
        self.tasks.spawn(name, async move {
            tokio::select! {
                () = shutdown.cancelled() => return,
                // The sender lives as long as the registration task, so that waiting cannot fail
                // before shutdown.
                Ok(_) = reached.wait_for(|reached| *reached >= standing) => {}
                else => return,
            }
            task.await;
        });
    }
}
