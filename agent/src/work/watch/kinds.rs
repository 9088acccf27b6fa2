//! Keeps one watch in the member for each kind that Works contain.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use metrics::Gauge;
use muster_shared::k8s::{Client, GroupVersionKind, ResourceExt};
use muster_shared::queue::backoff;
use muster_shared::watch::Change;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::opened::{Opened, Watched};
use super::stream::Stream;
use super::waiting::Room;
use crate::discovery::Discovery;
use crate::work::CachedWork;
use crate::work::store::Store;
use crate::work::works::Unread;

/// Interval at which kinds that the member does not serve yet are asked for again: the agent may
/// apply their definition, too.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// Time after which a watch that breaks begins with the shortest pause again.
const SOUND: Duration = Duration::from_mins(10);

/// The watches in the member.
pub struct Watches {
    /// Works, and what is known of their objects.
    pub store: Arc<Store>,
    /// The member's API, for watches.
    pub member: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
    /// Memory of the objects that wait for the answer of a webhook.
    pub waiting: Room,
    /// Notified when the Works may have other kinds.
    pub kinds_changed: Arc<Notify>,
    /// Sends the kinds of Works that could not be read and now can: what their objects reported
    /// meanwhile was nobody's.
    pub readable: broadcast::Sender<GroupVersionKind>,
}

impl Watches {
    /// Listens to the Works for kinds to watch.
    pub fn listen(self) -> Arc<Self> {
        let (changed, readable) = (Arc::clone(&self.kinds_changed), self.readable.clone());
        self.store.works.cache.on_change(move |change| {
            if let Change::Applied { old, new } = change {
                let old = old.as_deref();
                if !CachedWork::concerns_us(old, new) {
                    return;
                }
                if CachedWork::becomes_readable(old, new) {
                    // A send fails only while no kind is watched, when no watch needs it.
                    new.kinds()
                        .for_each(|kind| drop(readable.send(kind.clone())));
                }
            }
            changed.notify_one();
        });
        Arc::new(self)
    }

    /// Keeps one watch for each kind that Works mention, until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        self.store.works.cache.synced().await;
        self.store.interpreters.known().await;
        let tasks = TaskTracker::new();
        let mut watches: HashMap<GroupVersionKind, DropGuard> = HashMap::new();
        loop {
            let wanted = self.kinds();
            // A watch stops when its guard is dropped.
            watches.retain(|kind, _| wanted.contains(kind));
            for kind in wanted {
                watches.entry(kind).or_insert_with_key(|kind| {
                    let stop = shutdown.child_token();
                    let (watches, kind, ends) = (Arc::clone(&self), kind.clone(), stop.clone());
                    tasks.spawn(muster_shared::clock::inherited(async move {
                        let watch = |is_behind| watches.watch(&kind, &ends, is_behind);
                        restart(&kind, &ends, watch).await;
                    }));
                    stop.drop_guard()
                });
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.kinds_changed.notified() => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Watches a kind until `stop`, whenever the member serves it. `is_behind` says whether another
    /// watch of it broke, since when objects may have been lost.
    async fn watch(
        self: &Arc<Self>,
        kind: &GroupVersionKind,
        stop: &CancellationToken,
        mut is_behind: bool,
    ) {
        loop {
            match self.discovery.resolve(kind).await {
                Err(error) => tracing::debug!(kind = kind.kind, %error, "cannot watch yet"),
                Ok(Some(place)) if place.watchable => {
                    let watched = Watched {
                        kind: kind.clone(),
                        namespaced: place.namespaced,
                    };
                    let _counted = Counted::new();
                    let stream = Stream::new(self, watched, place.resource, is_behind);
                    stream.run(stop.clone()).await;
                    is_behind = true;
                }
                // A kind that cannot be watched, or is not served, is not listed.
                Ok(_) => self.store.listed(kind, []),
            }
            let pause = tokio::time::sleep(CHECK_AGAIN);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Returns the Work of this name, from `opened` where it is the last one that was opened: a
    /// list shows the objects of one Work together, and a Work may have thousands. A change of its
    /// status alone is no reason to open it again.
    ///
    /// # Errors
    /// When the cache does not keep its text, and it cannot be read now.
    pub(super) async fn open<'a>(
        &self,
        watched: &Watched,
        name: &str,
        opened: &'a mut Option<Opened>,
    ) -> Result<Option<&'a Opened>, Unread> {
        let Some(cached) = self.store.works.cached(name) else {
            return Ok(None);
        };
        match opened {
            Some(open) if open.is_of(&cached) => open.cached = cached,
            _ => {
                // Two large ones are not held at a time.
                *opened = None;
                let whole = self.store.works.open_promptly(&cached).await?;
                *opened = Opened::new(watched, cached, whole);
            }
        }
        Ok(opened.as_ref())
    }

    /// Has all Works applied that have objects of a kind, whatever its first list has shown.
    pub(super) fn apply_all(&self, kind: &GroupVersionKind) {
        self.store.drift.doubt_all(kind);
        for work in self.store.works.cache.list() {
            if work.kinds().any(|it| it == kind) {
                self.store.waits.to_apply.add(work.name_any());
            }
        }
    }

    fn kinds(&self) -> HashSet<GroupVersionKind> {
        let works = self.store.works.cache.list();
        works
            .iter()
            .flat_map(|work| work.kinds())
            .cloned()
            .collect()
    }
}

/// A watch in the gauge of watched kinds, until it is dropped.
struct Counted(Gauge);

impl Counted {
    fn new() -> Self {
        let gauge = metrics::gauge!("muster_watched_kinds");
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Runs the watch of a kind until `stop`. One that breaks is started again after growing pauses,
/// without touching the others, and informed that it replaces another one.
async fn restart<F: Future<Output = ()>>(
    kind: &GroupVersionKind,
    stop: &CancellationToken,
    watch: impl Fn(bool) -> F,
) {
    let mut times = 0;
    loop {
        let begun = Instant::now();
        let ended = AssertUnwindSafe(watch(times > 0)).catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        let panicked = ended.is_err();
        times = if begun.elapsed() < SOUND {
            times + 1
        } else {
            1
        };
        let pause = backoff(times);
        tracing::error!(?kind, panicked, times, again_in = ?pause, "a watch broke");
        metrics::counter!("muster_member_watches_broken_total").increment(1);
        _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_breaks_is_started_again_with_growing_pauses_until_it_ran_for_long() {
        let kind = GroupVersionKind::gvk("", "v1", "Pod");
        let (stop, begun, starts) = (CancellationToken::new(), Instant::now(), Mutex::default());
        let watch = |is_behind| {
            let mut starts: parking_lot::MutexGuard<'_, Vec<_>> = starts.lock();
            assert_eq!(is_behind, !starts.is_empty());
            starts.push(begun.elapsed().as_millis());
            let (runs, ends) = (starts.len(), stop.clone());
            async move {
                match runs {
                    3 => tokio::time::sleep(SOUND).await, // allowed: paused time, the work itself
                    5 => ends.cancel(),
                    _ => {}
                }
                assert!(runs == 5, "breaks");
            }
        };
        restart(&kind, &stop, watch).await;
        let sound = SOUND.as_millis();
        let expected = [0, 100, 300, 400 + sound, 600 + sound];
        assert_eq!(*starts.lock(), expected);
    }
}
