//! Keeps one watch in the member for each kind that Works contain.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::Interpreters;
use muster_shared::k8s::{Client, GroupVersionKind};
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};
use tokio::sync::{Notify, broadcast};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::opened::Watched;
use super::statuses::ObjectStatuses;
use super::supervised::Supervised;
use super::waiting::Room;
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::work::CachedWork;
use crate::work::drift::Drift;
use crate::work::reader::WorkReader;
use crate::work::repairs::Repairs;

/// Interval at which kinds that the member does not serve yet are looked for again: the agent may
/// apply their definition, too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The watches in the member.
pub struct Watches {
    /// Cache of Works.
    pub works: Informer<CachedWork>,
    /// Opens Works.
    pub reader: Arc<WorkReader>,
    /// The member's API, for watches.
    pub member: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
    /// Meaning of resources.
    pub interpreters: Arc<Interpreters>,
    /// Statuses of the objects that are seen.
    pub statuses: Arc<ObjectStatuses>,
    /// Memory that says whether an object has to be applied, and is fed by the watches.
    pub drift: Arc<Drift>,
    /// Times of repairs.
    pub repairs: Arc<Repairs>,
    /// Works to be applied again.
    pub to_apply: Queue<String>,
    /// The id of the fleet.
    pub fleet: fleet_id::Known,
    /// What objects may take that wait for a webhook.
    pub waiting: Room,
    /// Notified when the Works may have other kinds.
    pub kinds_changed: Arc<Notify>,
    /// Tells the kinds of Works that could not be read and now can: what their objects told
    /// meanwhile was nobody's.
    pub readable: broadcast::Sender<GroupVersionKind>,
}

impl Watches {
    /// Listens to the Works for kinds to watch.
    pub fn listen(self) -> Arc<Self> {
        let (changed, readable) = (Arc::clone(&self.kinds_changed), self.readable.clone());
        self.works.on_change(move |change| {
            if let Change::Applied { old, new } = change {
                let old = old.as_deref();
                if !CachedWork::concerns_us(old, new) {
                    return;
                }
                if CachedWork::becomes_readable(old, new) {
                    // A send fails only while no kind is watched, when no watch needs to hear it.
                    new.kinds()
                        .for_each(|kind| drop(readable.send(kind.clone())));
                }
            }
            changed.notify_one();
        });
        Arc::new(self)
    }

    /// Keeps one watch for each kind that Works mention, until shutdown. One that breaks is started
    /// again without touching the others.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        self.works.synced().await;
        self.interpreters.known().await;
        let mut watches: Supervised<GroupVersionKind> = Supervised::new();
        loop {
            let wanted = self.kinds();
            watches.retain(|kind| wanted.contains(kind));
            let mut unserved = 0;
            for kind in wanted {
                if !watches.is_due(&kind) {
                    continue;
                }
                let stop = shutdown.child_token();
                let ends = stop.clone();
                match self.discovery.resolve(&kind).await {
                    Err(error) => {
                        tracing::debug!(kind = kind.kind, %error, "cannot watch yet");
                        unserved += 1;
                    }
                    Ok(None) => {
                        self.go_on(self.drift.unlisted(&kind));
                        unserved += 1;
                    }
                    // A kind that cannot be watched is never listed.
                    Ok(Some(place)) if !place.watchable => {
                        self.go_on(self.drift.unlisted(&kind));
                        watches.start(kind, stop, async move { ends.cancelled().await });
                    }
                    Ok(Some(place)) => {
                        let of = Watched {
                            kind: kind.clone(),
                            namespaced: place.namespaced,
                        };
                        let task = Arc::clone(&self).follow(place.resource, of, ends);
                        watches.start(kind, stop, task);
                    }
                }
            }
            metrics::gauge!("muster_watched_kinds")
                .set(u32::try_from(watches.len()).unwrap_or(u32::MAX));
            let next = watches.next_start();
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.kinds_changed.notified() => {}
                () = watches.broke() => {
                    metrics::counter!("muster_member_watches_broken_total").increment(1);
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = tokio::time::sleep(LOOK_AGAIN), if unserved > 0 => {}
            }
        }
        watches.drain().await;
    }

    fn kinds(&self) -> HashSet<GroupVersionKind> {
        let works = self.works.list();
        works
            .iter()
            .flat_map(|work| work.kinds())
            .cloned()
            .collect()
    }

    /// Adds Works to the queue that waited for a list.
    pub(super) fn go_on(&self, works: Vec<String>) {
        for work in works {
            self.to_apply.add(work);
        }
    }
}
