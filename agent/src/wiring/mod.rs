//! Starts the agent from its settings: connections, admin servers, and the tasks of one table
//! ([`mod@tasks`]).

mod access;
mod context;
mod hosted;
mod leases;
mod registration;
mod status;
mod tasks;
mod works;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::client::{Gateway, Source};
use muster_shared::events::Events;
use muster_shared::lease::Leadership;
use muster_shared::serve::{self, Health};
use muster_shared::tasks::Tasks;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::context::{Base, Context};
pub use self::hosted::Hosted;
use crate::COMPONENT;
use crate::fleet_server::Restart;
use crate::join;
use crate::settings::Settings;

/// Time for which tasks may take to finish after the shutdown began; below Kubernetes' default
/// grace of 30 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// A configured agent, and the tasks that were started.
pub struct Agent {
    base: Base,
    tasks: Tasks,
}

/// Connections of an agent that its caller has made.
#[derive(Clone)]
pub struct Connections {
    /// To the fleet API.
    pub fleet: Arc<Gateway>,
    /// To the member's API.
    pub member: Arc<Gateway>,
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
    /// Reads both kubeconfigs, unless connections are given, and opens the admin servers. With a
    /// bootstrap kubeconfig it waits until the agent has credentials; returns `None` if the
    /// shutdown began before.
    pub async fn open(
        settings: Settings,
        connections: Option<Connections>,
        metrics: Option<PrometheusHandle>,
        threads: Threads,
        restart: Restart,
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
        let given = connections.map(|it| (it.fleet, it.member));
        let (given_fleet, given_member) = given.unzip();
        let member = match given_member {
            Some(member) => member,
            None => Gateway::open("member", member).await?,
        };
        tasks.spawn(
            "member credentials",
            Arc::clone(&member).follow(shutdown.clone()),
        );
        let bootstrap = access::bootstrap(&settings, &member, &health, &mut tasks)?;
        let fleet = match (given_fleet, &bootstrap) {
            (Some(fleet), _) => fleet,
            (None, None) => Gateway::open("fleet", fleet).await?,
            (None, Some(bootstrap)) => tokio::select! {
                () = shutdown.cancelled() => return Ok(None),
                config = bootstrap.obtain() => Gateway::given("fleet", config),
            },
        };
        let base = Base {
            settings,
            fleet,
            member,
            leadership,
            health,
            threads,
            restart,
            shutdown,
            retire: tasks.retire().clone(),
            bootstrap,
        };
        Ok(Some(Self { base, tasks }))
    }

    /// Starts all tasks, and runs them until shutdown.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { base, mut tasks } = self;
        let following = Arc::clone(&base.fleet).follow(base.shutdown.clone());
        tasks.spawn("fleet credentials", following);
        let client = base.fleet_client()?;
        // Goes on while the others finish, since these still tell what they did.
        let (events, delivery) = Events::new(client, COMPONENT, base.retire.clone());
        tasks.spawn_last("events", delivery);
        let reporting = serve::report_election(
            base.leadership.clone(),
            base.health.clone(),
            base.shutdown.clone(),
        );
        tasks.spawn("state of the election", reporting);
        let (refused, mut refusal) = mpsc::channel(1);
        let context = Context::new(base, events, refused, None)?;
        tasks::start(&context, &mut tasks)?;
        drop(context);
        let ended = tasks.supervise(SHUTDOWN_GRACE).await;
        if let Ok(refusal) = refusal.try_recv() {
            return Err(refusal.into());
        }
        Ok(ended?)
    }
}
