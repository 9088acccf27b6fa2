//! Runs the tasks of the agent for a member from outside it, as the control plane does for clusters
//! of sync mode Push.

use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::Interpreters;
use muster_shared::client::{Gateway, Limits, Profile};
use muster_shared::events::Events;
use muster_shared::lease::Leadership;
use muster_shared::serve::Health;
use muster_shared::tasks::Tasks;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Threads;
use super::context::{Base, Context};
use super::tasks::{self, Made};
use crate::COMPONENT;
use crate::fleet_server::Restart;
use crate::join::Recognition;
use crate::settings::Settings;

/// Time for which tasks may take to finish after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A member that is managed from outside it.
pub struct Hosted {
    /// Settings of an agent. Flags of its process and of its registration have no effect.
    pub settings: Settings,
    /// Connection to the fleet API.
    pub fleet: Arc<Gateway>,
    /// Connection to the member's API.
    pub member: Arc<Gateway>,
    /// Leadership of the process, which is asked for at each act.
    pub leadership: Leadership,
    /// Meaning of resources, as the process knows it.
    pub interpreters: Arc<Interpreters>,
    /// Epoch of the store, which the process judges itself.
    pub epoch: u64,
}

impl Hosted {
    /// Reports the status of the member, applies its Works, and reflects the status of its objects,
    /// until shutdown.
    ///
    /// # Errors
    /// When a client cannot be made, or a task ended.
    pub async fn run(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = Tasks::new(shutdown.clone());
        let base = Base {
            settings: self.settings,
            fleet: self.fleet,
            member: self.member,
            leadership: self.leadership,
            health: Health::default(),
            threads: Threads::One,
            restart: Restart::default(),
            shutdown,
            retire: tasks.retire().clone(),
            bootstrap: None,
        };
        let client = base.fleet_client()?;
        // Goes on while the others finish, since these still tell what they did.
        let (events, delivery) = Events::new(client, COMPONENT, base.retire.clone());
        tasks.spawn_last("events", delivery);
        let (refused, _refusal) = mpsc::channel(1);
        let hosted = Some((self.interpreters, self.epoch));
        let context = Context::new(base, events, refused, hosted)?;
        tasks.spawn("recognition", recognition(&context)?);
        tasks::start(&context, &mut tasks)?;
        drop(context);
        Ok(tasks.supervise(SHUTDOWN_GRACE).await?)
    }
}

/// Compares the identity of the member with its Cluster.
fn recognition(context: &Context) -> Made {
    let base = &context.base;
    let recognition = Recognition {
        fleet: base.fleet.client(Profile::Write, Limits::NONE)?,
        member: base.member.client(Profile::Write, Limits::NONE)?,
        same_server: base.is_same_server(),
        cluster: base.settings.cluster_name.clone(),
        clusters: context.clusters.clone(),
        events: context.events.clone(),
        join_state: context.join_state.clone(),
        probed: context.probed.clone(),
    };
    Ok(Box::pin(recognition.run(base.shutdown.clone())))
}
