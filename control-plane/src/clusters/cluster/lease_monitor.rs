//! Watches the leases of all clusters and reports those that went silent.
//!
//! Renewals come from the watch, and timers fire when a silence has lasted for the grace period.
//! Before a cluster is reported, its lease is read once from the API: this detects a watch that
//! lags, and if the read fails, it is the control plane that is cut off. The lease is read just
//! before the grace period ends, so that the report is not delayed.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client;
use muster_shared::k8s::Lease;
use muster_shared::names::{CLUSTER_NAMESPACE, condition};
use muster_shared::queue::wait_until;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::api_call::write_condition;
use super::monitor::{Graces, Silence};
use crate::clusters::cluster::api_contact::Contact;
use crate::clusters::cluster::liveness::{Due, LivenessTracker};
use crate::clusters::cluster::renewal::Renewal;
use crate::fleet::Fleet;

/// Deadline of the reads that test our own contact.
const READ: Duration = Duration::from_secs(3);
/// Pause before a silence that could not be confirmed or written is checked again.
const RETRY: Duration = Duration::from_secs(1);
/// Silences confirmed and reported at a time.
const REPORTERS: usize = 32;
/// So many silences are confirmed by reading all leases, page by page, instead of one by one: after
/// a takeover everyone's grace ends in the same moment.
const MANY: usize = 64;

struct LeaseMonitor {
    fleet: Arc<Fleet>,
    /// `None` until this process leads: renewals before that do not count.
    state: Mutex<Option<State>>,
    changed: Notify,
    reporters: Arc<Semaphore>,
}

struct State {
    tracker: LivenessTracker,
    contact: Contact,
}

/// Starts to listen once this process leads and knows the fleet.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let monitor = Arc::new(LeaseMonitor {
        fleet: Arc::clone(fleet),
        state: Mutex::new(None),
        changed: Notify::new(),
        reporters: Arc::new(Semaphore::new(REPORTERS)),
    });
    fleet.clusters.on_change({
        let monitor = Arc::clone(&monitor);
        move |change| monitor.cluster_changed(change)
    });
    fleet.leases.on_change({
        let monitor = Arc::clone(&monitor);
        move |change| monitor.lease_changed(change)
    });
    tasks.spawn("cluster monitor", monitor.run());
}

impl State {
    /// Returns whether the silence of a cluster is its own and not that of the API: the API can be
    /// reached, and was asked a moment ago.
    fn believes_silence(&self, name: &str, now: Instant) -> bool {
        self.contact.is_good() && self.tracker.is_confirmed(name, now)
    }
}

impl LeaseMonitor {
    async fn run(self: Arc<Self>) {
        if !self.fleet.ready().await {
            return;
        }
        let settings = &self.fleet.settings;
        let graces = Graces {
            monitor: *settings.cluster_monitor_grace_period,
            startup: *settings.cluster_startup_grace_period,
        };
        // Often enough that several attempts fall into one grace.
        let interval =
            (graces.monitor / 8).clamp(Duration::from_millis(200), Duration::from_secs(5));
        self.begin(graces, interval);
        let mut probe = tokio::time::interval(interval);
        probe.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let changed = self.changed.notified();
            let next = self.with(|state, _| state.tracker.next_timer()).flatten();
            // "Longer than the grace" begins after the deadline.
            let next = next.map(|at| at + Duration::from_millis(1));
            tokio::select! {
                () = self.fleet.shutdown.cancelled() => return,
                () = changed => continue,
                _ = probe.tick() => {
                    let monitor = Arc::clone(&self);
                    muster_shared::clock::spawn(async move { monitor.probe().await });
                    continue;
                }
                () = wait_until(next) => {}
            }
            let Due { confirm, silent } = self
                .with(|state, now| state.tracker.due(now))
                .unwrap_or_default();
            if confirm.len() >= MANY {
                let monitor = Arc::clone(&self);
                muster_shared::clock::spawn(async move { monitor.ask_about_all(confirm).await });
            } else {
                for name in confirm {
                    self.spawn(|monitor| async move {
                        monitor.ask_about(&name).await;
                    });
                }
            }
            for name in silent {
                self.spawn(|monitor| async move { monitor.report(&name).await });
            }
        }
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) {
        let monitor = Arc::clone(self);
        muster_shared::clock::spawn(async move {
            let _permit = Arc::clone(&monitor.reporters).acquire_owned().await;
            act(monitor).await;
        });
    }

    /// Begins to count heartbeats; every cluster starts with a full grace.
    fn begin(&self, graces: Graces, interval: Duration) {
        let now = Instant::now();
        *self.state.lock() = Some(State {
            tracker: LivenessTracker::new(graces, now),
            contact: Contact::new(2 * interval, now),
        });
        for cluster in self.fleet.clusters.list() {
            self.see(&cluster);
        }
        for lease in self.fleet.leases.list() {
            self.renewed(&Renewal::from(&*lease));
        }
    }

    fn cluster_changed(&self, change: &Change<Cluster>) {
        match change {
            Change::Applied { new, .. } => self.see(new),
            Change::Deleted { old } => {
                self.with(|state, _| state.tracker.forget(&old.name_any()));
            }
        }
        self.changed.notify_one();
    }

    fn see(&self, cluster: &Cluster) {
        let name = cluster.name_any();
        let is_new = self.with(|state, now| {
            // Only agents renew leases. A cluster that is being deleted is followed as well: its
            // removal waits for the agent, unless the cluster is silent.
            if cluster.spec.sync_mode != ClusterSyncMode::Pull {
                state.tracker.forget(&name);
                return false;
            }
            let today = self.fleet.clock.now();
            let created = cluster.creation_timestamp().map_or(today, |at| at.0);
            let age = Duration::try_from(today.duration_since(created)).unwrap_or_default();
            state.tracker.identify(&name, cluster.meta().uid.as_deref());
            state
                .tracker
                .cluster(&name, cluster.condition(condition::READY), age, now)
        });
        // A lease that came before its cluster is noted now: first read when the cluster falls
        // silent, it would count as a sign of life then.
        if is_new == Some(true)
            && let Some(lease) = self.fleet.leases.get(Some(CLUSTER_NAMESPACE), &name)
        {
            self.renewed(&Renewal::from(&*lease));
        }
    }

    fn lease_changed(&self, change: &Change<Lease>) {
        match change {
            Change::Applied { new, .. } => {
                self.reached();
                self.renewed(&Renewal::from(&**new));
            }
            Change::Deleted { old } => {
                self.with(|state, now| state.tracker.lease(&old.name_any(), None, now));
            }
        }
    }

    fn renewed(&self, lease: &Renewal) {
        self.with(|state, now| state.tracker.lease(&lease.name_any(), lease.renewed, now));
    }

    /// Notes that the API was reached, and gives the time in which it was not back to every
    /// cluster.
    fn reached(&self) {
        self.with(|state, now| {
            let lost = state.contact.reached(now);
            if !lost.is_zero() {
                tracing::warn!(
                    lost_seconds = lost.as_secs_f64(),
                    "the fleet API was out of reach: every cluster gets that time back"
                );
                state.tracker.give_back(lost, now);
            }
        });
    }

    fn unreached(&self, error: &str) {
        self.with(|state, _| {
            if state.contact.is_good() {
                tracing::warn!(
                    error,
                    "the fleet API is out of reach: no cluster is judged silent"
                );
            }
            state.contact.failed();
        });
    }

    fn leases(&self) -> Api<Renewal> {
        Api::namespaced(self.fleet.urgent_client.clone(), CLUSTER_NAMESPACE)
    }

    /// Waits for the answer to a read, and notes whether the API was reached.
    async fn read<T>(&self, read: impl Future<Output = Result<T, kube::Error>>) -> Option<T> {
        match client::in_time(timeout(READ, read).await) {
            Ok(answer) => {
                self.reached();
                Some(answer)
            }
            Err(error) => {
                self.unreached(&error);
                None
            }
        }
    }

    /// Reads something that the API has to fetch from its store, so that a cache in front of a dead
    /// store does not count.
    async fn probe(&self) {
        let one = ListParams::default().limit(1);
        self.read(self.leases().list(&one)).await;
    }

    /// Asks the API itself for the lease of one cluster. Says whether it answered.
    async fn ask_about(&self, name: &str) -> bool {
        let asked = Instant::now();
        let Some(lease) = self.read(client::get_opt(&self.leases(), name)).await else {
            return false;
        };
        if let Some(lease) = lease {
            self.renewed(&lease);
        }
        self.with(|state, _| state.tracker.confirmed(name, asked));
        true
    }

    /// Asks the API about the heartbeats of many clusters at once.
    async fn ask_about_all(&self, names: Vec<String>) {
        let asked = Instant::now();
        let leases = self.leases();
        let mut page = ListParams::default().limit(500);
        loop {
            let Some(list) = self.read(leases.list(&page)).await else {
                return;
            };
            for lease in &list.items {
                self.renewed(lease);
            }
            page.continue_token = list.metadata.continue_.filter(|it| !it.is_empty());
            if page.continue_token.is_none() {
                break;
            }
        }
        self.with(|state, _| {
            for name in &names {
                state.tracker.confirmed(name, asked);
            }
        });
    }

    /// Reports one silent cluster, unless a last reading of its lease says otherwise.
    async fn report(&self, name: &str) {
        let believed = self.with(|state, now| state.believes_silence(name, now));
        if believed != Some(true) && !self.ask_about(name).await {
            return self.check_again(name);
        }
        let silence = self
            .with(|state, now| state.tracker.silence(name, now))
            .flatten();
        let (Some(silence), Some(cluster)) = (silence, self.fleet.clusters.get(None, name)) else {
            self.with(|state, now| state.tracker.arm(name, now));
            self.changed.notify_one();
            return;
        };
        if !self.fleet.leadership.is_current() {
            return;
        }
        if let Err(error) = self.write(&cluster, silence).await {
            if !client::is_conflict(&error) && !client::is_gone(&error) {
                let why = client::brief(&error);
                tracing::warn!(cluster = name, error = why, "cannot report the silence");
                // A report that never gets through must not keep those of other clusters from being
                // made. The read that follows shows whether the control plane itself is cut off.
            }
            self.check_again(name);
        }
    }

    async fn write(&self, cluster: &Cluster, silence: Silence) -> Result<(), kube::Error> {
        let observation = silence.condition(self.fleet.clock.now());
        let name = cluster.name_any();
        let client = &self.fleet.urgent_client;
        // The silence begins now, also where Ready was Unknown for another reason.
        let mut cluster = cluster.clone();
        let mut conditions = cluster.status.iter_mut().flat_map(|it| &mut it.conditions);
        // The one that is replaced: another one of that type is written as it is.
        if let Some(ready) = conditions.find(|it| it.type_ == condition::READY) {
            ready.status.clear();
        }
        let cluster = &cluster;
        let written = write_condition(client, cluster, observation).await?;
        let (reason, message) = (&written.reason, &written.message);
        tracing::warn!(cluster = name, reason, "Ready is Unknown: {message}");
        self.fleet.events.warn(cluster, reason, message.clone());
        if self.with(|state, _| state.tracker.lacks_renewals(&name)) == Some(true) {
            let note = format!(
                "the agent reports the cluster's status and does not renew its lease {CLUSTER_NAMESPACE}/{name}, so that Ready changes between True and Unknown, and taints come and go: its log says why. `kubectl muster token create --cluster-name {name}` gives an agent of Muster the right again"
            );
            self.fleet.events.warn(cluster, "LeaseNotRenewed", note);
        }
        self.with(|state, _| state.tracker.wrote(&name, written));
        Ok(())
    }

    fn check_again(&self, name: &str) {
        self.with(|state, now| state.tracker.set_timer(name, Some(now + RETRY)));
        self.changed.notify_one();
    }

    fn with<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> Option<T> {
        self.state
            .lock()
            .as_mut()
            .map(|state| act(state, Instant::now()))
    }
}

#[cfg(test)]
mod written_tests;
