//! Reads the id of the fleet, which marks everything that the agent makes in the member, and
//! follows its changes.
//!
//! Lease, status and registration do not wait for the id, so that the member does not look failed.
//! Works and credentials wait for the first answer. Without a known id, objects without an id are
//! handled as before there were ids, and objects with one are left alone.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::events::{EventType, Events};
use muster_shared::fleet_id::{self, FleetId, Owner};
use muster_shared::k8s::Client;
use muster_shared::names::annotation;
use muster_shared::queue::{backoff, jittered};
use muster_shared::watch::Informer;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::write::within;

/// Time for which a fleet API may not answer before the work starts without the id. One request may
/// take 16 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which a known id is read again, because an operator may have changed it.
const CHECK_AGAIN: Duration = Duration::from_mins(5);
/// Interval at which an unknown id is read again: the agent may get the right to read it, or the
/// control plane may publish it.
const CHECK_SOON: Duration = Duration::from_secs(30);

/// The present id of the fleet, for all tasks that write into the member.
#[derive(Clone, Debug)]
pub struct Known(watch::Receiver<Option<Arc<FleetId>>>);

impl Known {
    /// Returns the id, or the reason why it is not known.
    pub fn now(&self) -> Arc<FleetId> {
        let known = self.0.borrow().clone();
        known.unwrap_or_else(|| Arc::new(FleetId::Unknown("it has not been read yet".to_owned())))
    }

    /// Waits until the id was read, or could not be read for [`PATIENCE`].
    pub async fn settled(&self) {
        let mut known = self.0.clone();
        if known.wait_for(Option::is_some).await.is_err() {
            // The task that reads the id has ended with the agent.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the id differs from the one at the last call.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Reason why an object in the member may not be used, changed or removed: the id of a fleet that
/// it bears.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The object bears the id of another fleet, whose agent made it.
    #[error(
        "it was made for another fleet (annotation {}: {theirs:?}, the id of this fleet {ours})",
        annotation::FLEET
    )]
    OtherFleet {
        /// The id that the object bears.
        theirs: String,
        /// The id of this fleet, in words.
        ours: String,
    },
    /// The id of this fleet is not known, so the object may be another fleet's.
    #[error("it bears the id of a fleet ({theirs:?}), and the id of this fleet is {ours}")]
    Unclear {
        /// The id that the object bears.
        theirs: String,
        /// Reason why the id of this fleet is not known.
        ours: String,
    },
}

/// Refuses an object that is another fleet's, or may be, by the id of a fleet that it bears.
pub fn check(mark: Option<&str>, fleet: &FleetId) -> Result<(), Foreign> {
    let words = || (mark.unwrap_or_default().to_owned(), fleet.to_string());
    match fleet.owner(mark) {
        Owner::Unmarked | Owner::Ours => Ok(()),
        Owner::Other => {
            let (theirs, ours) = words();
            Err(Foreign::OtherFleet { theirs, ours })
        }
        Owner::Unclear => {
            let (theirs, ours) = words();
            Err(Foreign::Unclear { theirs, ours })
        }
    }
}

/// Makes a publisher of the id of the fleet, and a receiver.
pub fn channel() -> (watch::Sender<Option<Arc<FleetId>>>, Known) {
    let (publish, known) = watch::channel(None);
    (publish, Known(known))
}

/// Reads the id of the fleet for one member.
pub struct Finder {
    /// Name of the Cluster.
    pub cluster: String,
    /// Cache of the Cluster.
    pub clusters: Informer<Cluster>,
    /// The fleet API.
    pub fleet: Client,
    /// Publishes events about the Cluster.
    pub events: Events,
    /// Publishes the id.
    pub publish: watch::Sender<Option<Arc<FleetId>>>,
}

impl Finder {
    /// Reads the id at once and then at intervals, until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        let follows = async {
            let (begun, mut failures) = (Instant::now(), 0);
            loop {
                let read = within("read the fleet's namespaces", fleet_id::read(&self.fleet));
                let read = read.await.map_err(|error| error.to_string());
                if let Err(error) = &read {
                    tracing::warn!(error, "could not read the id of the fleet");
                }
                failures = if read.is_ok() { 0 } else { failures + 1 };
                let known = self.publish.borrow().clone();
                if let Some(found) = next(known.as_deref(), read, begun.elapsed()) {
                    self.publish.send_replace(Some(Arc::new(found.clone())));
                    self.report(known.as_deref(), &found).await;
                }
                let known = self.publish.borrow().clone();
                let pause = match known.as_deref() {
                    _ if failures > 0 => backoff(failures).min(CHECK_SOON),
                    Some(FleetId::Known { .. }) => CHECK_AGAIN,
                    Some(FleetId::Unknown(_)) | None => CHECK_SOON,
                };
                tokio::time::sleep(jittered(pause)).await;
            }
        };
        shutdown.run_until_cancelled(follows).await;
    }

    async fn report(&self, before: Option<&FleetId>, now: &FleetId) {
        let known = now.mark().is_some();
        metrics::gauge!("muster_fleet_identified").set(if known { 1.0 } else { 0.0 });
        tracing::info!("the id of the fleet is {now}");
        let (kind, reason, note) = match now {
            // An id that is known from the start, or that was published since, needs no event.
            FleetId::Known { .. } if before.is_none_or(|it| it.mark() == now.mark()) => return,
            FleetId::Known { id, .. } => (
                EventType::Normal,
                "FleetIdentified",
                format!(
                    "What the agent makes in the member is marked with the id of the fleet, {id:?}."
                ),
            ),
            FleetId::Unknown(why) => (
                EventType::Warning,
                "FleetUnidentified",
                format!(
                    "The objects that the agent makes in the member cannot be distinguished from those of another fleet: {why}. Objects with the id of a fleet are left alone."
                ),
            ),
        };
        // The first id may be known before the Cluster is in the cache.
        timeout(PATIENCE, self.clusters.synced()).await.ok();
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            self.events.publish(&*cluster, kind, reason, note);
        }
    }
}

/// Returns the id to publish after a read, or `None` if nothing changes. A known id stays if the
/// read does not contradict it: a right that is taken away, or a namespace that is made anew, does
/// not make the member's objects another fleet's.
fn next(
    known: Option<&FleetId>,
    read: Result<FleetId, String>,
    since: Duration,
) -> Option<FleetId> {
    let found = match read {
        Ok(found) => found,
        Err(_) if known.is_none() && since < PATIENCE => return None,
        Err(why) => FleetId::Unknown(why),
    };
    let stays = match (known, &found) {
        (Some(FleetId::Known { .. }), FleetId::Unknown(_)) => true,
        (
            Some(FleetId::Known {
                published: true, ..
            }),
            FleetId::Known { published, .. },
        ) => !published,
        _ => false,
    };
    (!stays && known != Some(&found)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: &str, published: bool) -> FleetId {
        FleetId::Known {
            id: id.into(),
            published,
            accepted: [id.to_owned()].into(),
        }
    }

    fn unknown(why: &str) -> FleetId {
        FleetId::Unknown(why.into())
    }

    #[test]
    fn what_was_known_stays_unless_another_id_is_published() {
        let (soon, late) = (Duration::ZERO, PATIENCE);
        let (a, b) = (id("a", true), id("b", true));
        let (own, other) = (id("a", false), id("b", false));
        let (x, gone) = (unknown("x"), unknown("timeout"));
        let failed = || Err("timeout".to_owned());
        for (what, known, read, since, expected) in [
            ("the first", None, Ok(&a), soon, Some(&a)),
            ("the same", Some(&a), Ok(&a), soon, None),
            ("another", Some(&a), Ok(&b), soon, Some(&b)),
            ("published at last", Some(&own), Ok(&b), soon, Some(&b)),
            ("no longer published", Some(&a), Ok(&other), soon, None),
            ("another store", Some(&own), Ok(&other), soon, Some(&other)),
            ("no longer readable", Some(&a), Ok(&x), soon, None),
            ("nobody says it", None, Ok(&x), soon, Some(&x)),
            ("readable at last", Some(&x), Ok(&own), soon, Some(&own)),
            ("no answer yet", None, failed(), soon, None),
            ("no answer for long", None, failed(), late, Some(&gone)),
            ("no answer any more", Some(&a), failed(), late, None),
            ("no answer again", Some(&gone), failed(), late, None),
            (
                "one that does not help",
                Some(&gone),
                Ok(&x),
                late,
                Some(&x),
            ),
        ] {
            let found = next(known, read.cloned(), since);
            assert_eq!(found.as_ref(), expected, "{what}");
        }
    }
}
