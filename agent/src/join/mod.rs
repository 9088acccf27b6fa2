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
pub struct Receivers {
    /// Sender of the state, for the tasks that wait for it.
    pub join_state: watch::Sender<JoinState>,
    /// State for `/readyz`.
    pub health: Health,
    /// Events about the Cluster.
    pub events: Events,
}

/// Registers the member, and does so again when its Cluster was deleted and made again. Steps back
/// while the control plane says that the member has another Cluster (the agent's role may permit to
/// read only its own Cluster, so the control plane checks that). Waits while the control plane
/// manages the member itself. Ends before shutdown only after a final refusal, and when the control
/// plane takes a member over: tasks that report its Works end with the agent only, which waits once
/// it is started again.
///
/// The statement of the control plane never ends the agent: without an agent the member would be
/// evacuated, because of a mistake or of another cluster that claims its identity.
pub async fn run(
    registration: Registration,
    clusters: Informer<Cluster>,
    leadership: Leadership,
    receivers: Receivers,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let joining = async {
        tokio::select! {
            () = stand_by(&leadership, &receivers.health) => {}
            refused = refusal(&registration) => return Err(refused),
        }
        let name = &registration.settings.cluster_name;
        let changed = Arc::new(Notify::new());
        let wake = Arc::clone(&changed);
        clusters.on_change(move |_| wake.notify_one());
        let mut was_member = false;
        loop {
            let known = clusters.get(None, name);
            let known = known.and_then(|cluster| cluster.metadata.uid.clone());
            keep_trying(
                &registration,
                &clusters,
                &receivers,
                &changed,
                &mut was_member,
            )
            .await?;
            match await_reason(&clusters, name, known.as_deref(), &changed).await {
                Again::Unclaimed => continue,
                // The cache may be late: the registration reads the Cluster itself.
                Again::Pushed => {}
                Again::Doubt(problem) => {
                    step_back(&receivers.join_state);
                    let words =
                        format!("{problem}; the member reports, and applies nothing until then");
                    receivers.health.ready("registration", Err(words));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(PAUSES.0)) => {}
                () = changed.notified() => {}
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

/// Registers the member, with pauses between attempts. `was_member` is whether the tasks of a
/// member have begun, also before the agent stepped back: they do not end before the agent does.
async fn keep_trying(
    registration: &Registration,
    clusters: &Informer<Cluster>,
    receivers: &Receivers,
    changed: &Notify,
    was_member: &mut bool,
) -> Result<(), Error> {
    let Receivers {
        join_state,
        health,
        events,
    } = receivers;
    let (mut pause, longest) = PAUSES;
    let mut reported = String::new();
    loop {
        let recognised = || advance(join_state, JoinState::Member);
        let outcome = registration.register(recognised).await;
        *was_member |= outcome.is_ok() || *join_state.borrow() == JoinState::Member;
        let error = match outcome {
            Ok(()) => break,
            Err(error) if error.is_final() => return Err(error),
            Err(error) if error.is_push() && *was_member => return Err(error),
            Err(error) => error,
        };
        let words = error.to_string();
        health.ready("registration", Err(words.clone()));
        tracing::debug!(error = words, retry_in = ?pause, "could not register");
        // The event is written once per message, because a fleet at rest writes nothing.
        let cluster = clusters.get(None, &registration.settings.cluster_name);
        if let Some(cluster) = cluster.filter(|_| reported != words) {
            let note = format!("Cannot register as the agent's flags say: {words}");
            events.warn(&*cluster, "RegistrationRefused", note);
            reported = words;
        }
        if error.is_doubt() {
            step_back(join_state);
        } else if error.is_anonymity() && registration.is_known().await {
            advance(join_state, JoinState::Registered);
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => pause = (pause * 2).min(longest),
            // The Cluster changed: the doubt may be over.
            () = changed.notified(), if error.is_doubt() => {}
        }
    }
    health.ready("registration", Ok(()));
    advance(join_state, JoinState::Member);
    Ok(())
}

/// Reason to register a member again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Again {
    /// The Cluster was deleted and made again without an id, by a tool that applies it for example.
    /// Such a Cluster lacks what the flags of the agent say, too.
    Unclaimed,
    /// The control plane manages the member itself.
    Pushed,
    /// The control plane says that the member is registered under another name.
    Doubt(String),
}

/// Returns why a member has to be registered again, by its Cluster; `None` if it has not. `known`
/// is the uid of the Cluster that it was registered with: a role that permits no change of the
/// Cluster leaves that one without an id.
fn again(cluster: &Cluster, known: Option<&str>) -> Option<Again> {
    if let Some(problem) = identity::twin(cluster) {
        return Some(Again::Doubt(problem));
    }
    if identity::pushed(cluster).is_some() {
        return Some(Again::Pushed);
    }
    let metadata = &cluster.metadata;
    let is_unclaimed = cluster.spec.id.as_deref().is_none_or(str::is_empty);
    let is_another = metadata.uid.as_deref() != known && metadata.deletion_timestamp.is_none();
    (is_unclaimed && is_another).then_some(Again::Unclaimed)
}

/// Waits until the Cluster requires that the member is registered again, and returns why.
async fn await_reason(
    clusters: &Informer<Cluster>,
    name: &str,
    known: Option<&str>,
    changed: &Notify,
) -> Again {
    loop {
        let cluster = clusters.get(None, name);
        if let Some(reason) = cluster.and_then(|cluster| again(&cluster, known)) {
            return reason;
        }
        changed.notified().await;
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_member_is_registered_again_where_its_cluster_is_another_one_or_is_doubted() {
        let doubt = json!([{
            "type": "UniqueIdentity", "status": "False", "reason": "r", "message": "registered as m0",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let (none, deleted) = (json!([]), Some("2026-01-01T00:00:00Z"));
        let doubted = || Some(Again::Doubt("registered as m0".to_owned()));
        let unclaimed = || Some(Again::Unclaimed);
        let cluster =
            |mode: &str, uid: &str, id: &str, deleted: Option<&str>, conditions: &Value| {
                let metadata = json!({"name": "m1", "uid": uid, "deletionTimestamp": deleted});
                let cluster = json!({
                    "metadata": metadata, "spec": {"syncMode": mode, "id": id},
                    "status": {"conditions": conditions},
                });
                serde_json::from_value::<Cluster>(cluster).unwrap()
            };
        for (what, uid, id, deleted, conditions, expected) in [
            ("the same", "1", "a", None, &none, None),
            ("made again, with the id", "2", "a", None, &none, None),
            ("made again", "2", "", None, &none, unclaimed()),
            ("it cannot be claimed", "1", "", None, &none, None),
            ("another that is deleted", "2", "", deleted, &none, None),
            ("doubted", "1", "a", None, &doubt, doubted()),
        ] {
            let cluster = cluster("Pull", uid, id, deleted, conditions);
            assert_eq!(again(&cluster, Some("1")), expected, "{what}");
        }
        let pushed = cluster("Push", "1", "a", None, &none);
        assert_eq!(again(&pushed, Some("1")), Some(Again::Pushed));
    }
}
