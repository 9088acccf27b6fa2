//! Registration of the member, and what the agent may do before it is complete.

mod adoption;
mod error;
mod hosted;
mod identity;
mod namespace;
mod register;

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::events::Events;
use muster_shared::lease::Leadership;
use muster_shared::queue::jittered;
use muster_shared::serve::Health;
use muster_shared::watch::Informer;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use self::error::Error;
pub use self::hosted::Recognition;
pub use self::namespace::ensure_namespace;
pub use self::register::Registration;

/// First and longest pause between attempts to join.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Parts of `/readyz` that a new member reaches one after the other.
pub const PARTS: [&str; 2] = ["registration", "works"];

/// Progress of the registration; each step permits more. An agent may fall back to `Registered`:
/// whatever writes to the member asks before each act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JoinState {
    /// Nothing is known of the registration: the agent waits.
    Unregistered,
    /// A Cluster with this name exists, and the member's API server does not answer. The agent
    /// renews the lease and reports the member as unhealthy, and applies no Works.
    Registered,
    /// The Cluster has the member's id: Works may be applied. A registration that the fleet API
    /// rejects for another reason, such as a label, does not change that.
    Member,
}

/// Receivers of the progress of a registration.
pub struct Telling {
    /// Sender of the state, for the tasks that wait for it.
    pub join_state: watch::Sender<JoinState>,
    /// State for `/readyz`.
    pub health: Health,
    /// Events about the Cluster.
    pub events: Events,
}

/// Registers the member, and steps back while the control plane says that the member has another
/// Cluster (the agent's role may permit to read only its own Cluster, so the control plane checks
/// that). Ends before shutdown only after a final refusal.
///
/// The statement of the control plane never ends the agent: without an agent the member would be
/// evacuated, because of a mistake or of another cluster that claims its identity.
pub async fn run(
    registration: Registration,
    clusters: Informer<Cluster>,
    leadership: Leadership,
    telling: Telling,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let joining = async {
        tokio::select! {
            () = stand_by(&leadership, &telling.health) => {}
            refused = refusal(&registration) => return Err(refused),
        }
        let name = &registration.settings.cluster_name;
        let news = Arc::new(Notify::new());
        let wake = Arc::clone(&news);
        clusters.on_change(move |_| wake.notify_one());
        loop {
            keep_trying(&registration, &clusters, &telling, &news).await?;
            let problem = doubt(&clusters, name, &news).await;
            step_back(&telling.join_state);
            let words = format!("{problem}; the member reports, and applies nothing until then");
            telling.health.ready("registration", Err(words));
            tokio::select! {
                () = tokio::time::sleep(jittered(PAUSES.0)) => {}
                () = news.notified() => {}
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        refused = joining => refused,
    }
}

/// Waits to lead. An agent is ready while another one is seen to lead.
async fn stand_by(leadership: &Leadership, health: &Health) {
    let mut holder = leadership.holder();
    let waits = async {
        loop {
            let led = holder.borrow_and_update().is_some();
            for part in PARTS {
                health.ready(
                    part,
                    if led {
                        Ok(())
                    } else {
                        Err("starting".to_owned())
                    },
                );
            }
            if holder.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = leadership.acquired() => {}
        () = waits => {}
    }
    for part in PARTS {
        health.ready(part, Err("starting".to_owned()));
    }
}

/// Waits until it is known that the member is refused for good, if it is.
async fn refusal(registration: &Registration) -> Error {
    let (mut pause, longest) = PAUSES;
    loop {
        match registration.challenge().await {
            Ok(()) => return std::future::pending().await,
            Err(error) if error.is_final() => return error,
            // The calls that follow report the obstacle, once this replica leads.
            Err(_) => {}
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(longest);
    }
}

async fn keep_trying(
    registration: &Registration,
    clusters: &Informer<Cluster>,
    telling: &Telling,
    news: &Notify,
) -> Result<(), Error> {
    let Telling {
        join_state,
        health,
        events,
    } = telling;
    let (mut pause, longest) = PAUSES;
    let mut told = String::new();
    loop {
        let recognised = || advance(join_state, JoinState::Member);
        let error = match registration.register(recognised).await {
            Ok(()) => break,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => error,
        };
        let words = error.to_string();
        health.ready("registration", Err(words.clone()));
        tracing::debug!(error = words, retry_in = ?pause, "could not register");
        // The event is written once per message, because a fleet at rest writes nothing.
        let cluster = clusters.get(None, &registration.settings.cluster_name);
        if let Some(cluster) = cluster.filter(|_| told != words) {
            let note = format!("Cannot register as the agent's flags say: {words}");
            events.warn(&*cluster, "RegistrationRefused", note);
            told = words;
        }
        if error.is_doubt() {
            step_back(join_state);
        } else if error.is_anonymity() && registration.is_known().await {
            advance(join_state, JoinState::Registered);
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => pause = (pause * 2).min(longest),
            // The Cluster changed: the doubt may be over.
            () = news.notified(), if error.is_doubt() => {}
        }
    }
    health.ready("registration", Ok(()));
    advance(join_state, JoinState::Member);
    Ok(())
}

/// Waits until the Cluster has a statement that the member is registered under another name, and
/// returns it.
async fn doubt(clusters: &Informer<Cluster>, name: &str, news: &Notify) -> String {
    loop {
        let cluster = clusters.get(None, name);
        if let Some(problem) = cluster.and_then(|cluster| identity::twin(&cluster)) {
            return problem;
        }
        news.notified().await;
    }
}

fn advance(join_state: &watch::Sender<JoinState>, to: JoinState) {
    join_state.send_if_modified(|join_state| {
        let before = *join_state;
        *join_state = before.max(to);
        before < to
    });
}

/// Stops applying Works; the tasks of a registered member go on, or begin.
fn step_back(join_state: &watch::Sender<JoinState>) {
    join_state.send_if_modified(|join_state| {
        std::mem::replace(join_state, JoinState::Registered) != JoinState::Registered
    });
}
