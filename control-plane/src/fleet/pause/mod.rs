//! Pauses: while movement is paused, nothing is evicted, no application is moved, no placement is
//! taken from one cluster for another, and no old copy is removed.
//!
//! A pause of the fleet is ConfigMap [`NAME`] in the system namespace of the fleet API, that of a
//! cluster an annotation of the Cluster. Both are watched, so that a pause takes effect at once, in
//! every replica, and from the first moment of a new process: nothing is decided before both are
//! listed. What is being written in the moment of the pause may still be written; what was begun is
//! left as it is, with its old copy.
//!
//! A pause holds what a cluster would lose to another one ([`losers`]), and old copies that go for
//! others. What a template asks for no more goes all the same.
//!
//! The record of the fleet is read every five seconds besides: a pause is how people stop what goes
//! wrong, and a watch may be broken in that very moment. A pause whose record a list lacks has not
//! ended thereby: it ends when the API says that there is no such object.

pub mod state;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Api;
use kube::{Client, ResourceExt};
use muster_shared::api::binding::TargetCluster;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::says_absent;
use muster_shared::clock::Clock;
use muster_shared::k8s::ConfigMap;
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::queue::{until, wait_until};
use muster_shared::watch::{Change, Informer};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::state::{Pause, STEP};
use super::attribution::Attribution;

/// Name of the ConfigMap that pauses the fleet.
pub const NAME: &str = "muster-pause";

/// Time between two reads of the fleet's record, and of those that a list lacks.
const READ_AGAIN: Duration = Duration::from_secs(5);

type Listener = Box<dyn Fn() + Send + Sync>;

/// The pauses there are. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pauses {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: RwLock<State>,
    listeners: Mutex<Vec<Listener>>,
    changed: Notify,
    doubted: Notify,
}

#[derive(Default)]
struct State {
    fleet: Option<Arc<Pause>>,
    /// Order that ended the last pause of the fleet, if it is known.
    resumed: Option<Attribution>,
    /// Number of changes of the fleet's record that were seen: an answer from before the last one
    /// is out of date.
    changes: u64,
    /// Whether it was read the last time.
    is_read: bool,
    clusters: HashMap<String, Arc<Pause>>,
    /// Pauses whose records are missing from the caches and may exist: clusters by name, and `None`
    /// for the fleet.
    doubted: BTreeSet<Option<String>>,
}

impl Pauses {
    /// Follows the records. Call it before the informers run.
    pub fn follow(records: &Informer<ConfigMap>, clusters: &Informer<Cluster>) -> Self {
        let pauses = Self::default();
        records.on_change({
            let pauses = pauses.clone();
            move |change| {
                let is_ours = change.object().name_any() == NAME;
                match change {
                    Change::Applied { new, .. } if is_ours => {
                        pauses.set_fleet(Some(Pause::of_fleet(new)));
                    }
                    Change::Deleted { .. } if is_ours => pauses.doubt(None),
                    _ => {}
                }
            }
        });
        clusters.on_change({
            let pauses = pauses.clone();
            move |change| match change {
                Change::Applied { new, .. } => {
                    pauses.set_cluster(&new.name_any(), Pause::of_cluster(new));
                }
                Change::Deleted { old } => pauses.doubt(Some(old.name_any())),
            }
        });
        pauses
    }

    /// Changes the pause of the fleet.
    pub fn set_fleet(&self, pause: Option<Pause>) {
        let pause = pause.map(Arc::new);
        let mut state = self.write();
        state.changes += 1;
        state.doubted.remove(&None);
        if state.fleet == pause {
            return;
        }
        if let Some(pause) = &pause {
            tracing::warn!("{pause}");
        } else {
            tracing::warn!("movement is not paused any more");
        }
        let old = std::mem::replace(&mut state.fleet, pause);
        state.resumed = old.and_then(|it| it.resumed.clone());
        drop(state);
        self.notify();
    }

    /// Changes the pause of a cluster.
    pub fn set_cluster(&self, cluster: &str, pause: Option<Pause>) {
        let pause = pause.map(Arc::new);
        let mut state = self.write();
        state.doubted.remove(&Some(cluster.to_owned()));
        if state.clusters.get(cluster) == pause.as_ref() {
            return;
        }
        if let Some(pause) = pause {
            tracing::warn!(cluster, "{pause}");
            state.clusters.insert(cluster.to_owned(), pause);
        } else {
            tracing::warn!(cluster, "movement out of it is not paused any more");
            state.clusters.remove(cluster);
        }
        drop(state);
        self.notify();
    }

    /// Keeps a pause whose record, or whose cluster, the cache has lost until the API has said
    /// whether it exists.
    fn doubt(&self, cluster: Option<String>) {
        let mut state = self.write();
        state.changes += u64::from(cluster.is_none());
        let is_paused = match &cluster {
            None => state.fleet.is_some(),
            Some(name) => state.clusters.contains_key(name),
        };
        if is_paused {
            state.doubted.insert(cluster);
            drop(state);
            self.inner.doubted.notify_one();
        }
    }

    /// Reads the record of the fleet now and then, whatever its watch shows, and those that the
    /// caches have lost. Only what the API says of a lost record ends its pause.
    pub async fn confirm(self, client: Client, shutdown: CancellationToken) {
        let work = async {
            loop {
                let doubted = self.read().doubted.clone();
                self.fetch(&client, None).await;
                for cluster in doubted.into_iter().flatten() {
                    self.fetch(&client, Some(cluster)).await;
                }
                let doubt = self.inner.doubted.notified();
                _ = tokio::time::timeout(READ_AGAIN, doubt).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = work => {}
        }
    }

    /// Reads the record of a pause.
    async fn fetch(&self, client: &Client, cluster: Option<String>) {
        let changes = self.read().changes;
        let (name, read) = match &cluster {
            None => {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
                let read = api.get(NAME).await;
                (NAME, read.map(|it| Some(Pause::of_fleet(&it))))
            }
            Some(name) => {
                let api: Api<Cluster> = Api::all(client.clone());
                let read = api.get(name).await;
                (&**name, read.map(|it| Pause::of_cluster(&it)))
            }
        };
        let found = match read {
            Ok(found) => found,
            Err(error) if says_absent(&error, name) => None,
            Err(error) => {
                // A record that was never read is reported by the caches.
                let was_read = std::mem::replace(&mut self.write().is_read, false);
                if was_read {
                    tracing::warn!(name, %error, "cannot read the record of a pause: it is as it was");
                }
                return;
            }
        };
        self.write().is_read = true;
        // Changes that the watch showed while the record was read are newer than the answer.
        let is_old = cluster.is_none() && self.read().changes != changes;
        let is_doubted = self.read().doubted.contains(&cluster);
        match (found, cluster) {
            _ if is_old => {}
            (Some(pause), None) => self.show_fleet(pause),
            (Some(_), Some(cluster)) => {
                let note = "a list lacks a cluster that exists: its pause goes on";
                tracing::warn!(cluster, "{note}");
            }
            (None, None) if is_doubted => self.set_fleet(None),
            (None, Some(name)) if is_doubted => self.set_cluster(&name, None),
            // The watch may have missed its end: the next read ends it.
            (None, None) => self.doubt(None),
            (None, Some(_)) => {}
        }
    }

    /// Takes over the pause of the fleet as it was read. What the cache does not show yet it may
    /// never show, so that reading has to report the end, too.
    fn show_fleet(&self, pause: Pause) {
        let is_known = self.read().fleet.as_deref() == Some(&pause);
        if !is_known {
            self.set_fleet(Some(pause));
            self.write().doubted.insert(None);
        }
    }

    /// Returns the pause that holds for what is to leave a cluster: the fleet's, else the
    /// cluster's.
    pub fn of(&self, cluster: &str, now: Timestamp) -> Option<Arc<Pause>> {
        let state = self.read();
        let holds = |pause: &&Arc<Pause>| pause.holds(now);
        let fleet = state.fleet.as_ref().filter(holds);
        let own = || state.clusters.get(cluster).filter(holds);
        fleet.or_else(own).cloned()
    }

    /// Returns the pause of the fleet.
    pub fn of_fleet(&self, now: Timestamp) -> Option<Arc<Pause>> {
        let state = self.read();
        state.fleet.as_ref().filter(|it| it.holds(now)).cloned()
    }

    /// Returns the order that ended the last pause of the fleet, if it is known.
    pub fn resumed(&self) -> Option<Attribution> {
        self.read().resumed.clone()
    }

    /// Has a listener called whenever a pause begins, changes or ends. It must return quickly.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        let mut listeners = self.inner.listeners.lock();
        listeners.push(Box::new(listener));
    }

    /// Notifies the listeners when the time of a pause has run out, and sets the gauges.
    pub async fn run(self, clock: Arc<Clock>, shutdown: CancellationToken) {
        loop {
            let now = clock.now();
            let next = self.show(now);
            let next = next.map(|next| Instant::now() + until(next, now));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.inner.changed.notified() => {}
                () = wait_until(next) => {
                    tracing::warn!("the time of a pause is over");
                    self.notify();
                }
            }
        }
    }

    /// Sets the gauges; returns when the next pause ends by itself.
    fn show(&self, now: Timestamp) -> Option<Timestamp> {
        let state = self.read();
        let fleet = state.fleet.iter().filter(|it| it.holds(now));
        let own = state.clusters.values().filter(|it| it.holds(now));
        metrics::gauge!("muster_paused").set(if fleet.clone().count() > 0 { 1.0 } else { 0.0 });
        // As many as fit into a fleet: exact.
        #[expect(clippy::cast_precision_loss)]
        metrics::gauge!("muster_paused_clusters").set(own.clone().count() as f64);
        fleet.chain(own).filter_map(|it| it.until).min()
    }

    fn notify(&self) {
        self.inner.changed.notify_one();
        let listeners = self.inner.listeners.lock();
        for listener in &*listeners {
            listener();
        }
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, State> {
        self.inner.state.read()
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, State> {
        self.inner.state.write()
    }
}

/// Returns the clusters that lose a workload, or replicas of it, to others: a pause holds these,
/// and nothing that only grows or shrinks. A new placement without any cluster takes from all:
/// callers know whether the workload asks for none.
pub fn losers<'a>(before: &'a [TargetCluster], after: &[TargetCluster]) -> Vec<&'a str> {
    let held = |list: &[TargetCluster], name: &str| {
        let target = list.iter().find(|it| it.name == name);
        target.map(|it| it.replicas)
    };
    let gains = |it: &TargetCluster| held(before, &it.name).is_none_or(|was| was < it.replicas);
    if !after.is_empty() && !after.iter().any(gains) {
        return Vec::new();
    }
    let loses = |it: &&TargetCluster| held(after, &it.name).is_none_or(|now| now < it.replicas);
    before
        .iter()
        .filter(loses)
        .map(|it| it.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn the_pause_of_the_fleet_holds_for_every_cluster_and_that_of_a_cluster_for_itself() {
        let pauses = Pauses::default();
        let reported = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reported);
        pauses.on_change(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let pause = |until| {
            Some(Pause {
                until,
                ..Pause::default()
            })
        };
        let is = |cluster: &str, now: i64| pauses.of(cluster, at(now)).is_some();
        assert!(!is("a", 0));
        pauses.set_cluster("a", pause(Some(at(50))));
        assert!(is("a", 49) && !is("a", 50) && !is("b", 0));
        assert!(pauses.of_fleet(at(0)).is_none());
        pauses.set_fleet(pause(Some(at(9))));
        assert!(is("a", 0) && is("b", 8) && !is("b", 9) && is("a", 9));
        let of_fleet = |now| pauses.of_fleet(at(now)).is_some();
        assert!(of_fleet(0) && of_fleet(8) && !of_fleet(9));
        pauses.set_fleet(pause(Some(at(9))));
        assert_eq!(
            reported.load(Ordering::Relaxed),
            2,
            "the same is nothing new"
        );
        assert_eq!(pauses.show(at(0)), Some(at(9)), "the first that ends");
        assert_eq!(pauses.show(at(9)), Some(at(50)));
        pauses.set_fleet(None);
        pauses.set_cluster("a", None);
        assert!(!is("a", 0));
        assert_eq!(reported.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_move_takes_from_one_cluster_for_another_and_growing_or_shrinking_is_none() {
        let list = |text: &str| -> Vec<TargetCluster> {
            let items = text.split_whitespace().map(|it| {
                let (name, replicas) = it.split_once('=').unwrap();
                TargetCluster {
                    name: name.to_owned(),
                    replicas: replicas.parse().unwrap(),
                    ..TargetCluster::default()
                }
            });
            items.collect()
        };
        for (before, after, expected) in [
            ("", "a=1", vec![]),
            ("a=1", "a=1", vec![]),
            ("a=1", "a=3 b=1", vec![]),
            ("a=3 b=1", "a=1", vec![]),
            ("a=3", "b=3", vec!["a"]),
            ("a=3 b=1", "a=2 b=2", vec!["a"]),
            ("a=0 b=0", "b=0 c=0", vec!["a"]),
            ("a=0 b=0", "b=0", vec![]),
            ("a=1 b=1", "", vec!["a", "b"]),
        ] {
            assert_eq!(
                losers(&list(before), &list(after)),
                expected,
                "{before} -> {after}"
            );
        }
    }
}
