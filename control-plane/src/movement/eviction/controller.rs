//! Passes every change of clusters and bindings to the evictor, and carries out its
//! decisions.

use std::sync::{Arc, OnceLock, Weak};

use muster_shared::api::cluster::Cluster;
use muster_shared::clock::Clock;
use muster_shared::events::Events;
use muster_shared::queue::wait_until;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Fate, Informer};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::applications::Applications;
use super::backlog::Rank;
use super::explain::EvictionState;
use super::fence;
use super::fleet_view::FleetView;
use super::judge::Switches;
use super::measure::{INTERVAL, Meter};
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::budget::pace::Pace;
use crate::fleet::completion::has_completed_by_template;
use crate::fleet::works::{self, Role};
use crate::movement::eviction::condition_writer::ConditionWriter;
use crate::movement::eviction::evictor::{Evictor, Now, Outcome, Reports, Step};
use crate::scheduler::controller::gains_clusters;
use crate::scheduler::core::{DataPlaces, Options};

mod evict;

use self::evict::evict;

/// Evictions in flight at a time: the rate limits them, this limits what a slow API can pile up.
const IN_FLIGHT: usize = 32;

/// Handle on the evictor for the controller that follows applications. Cheap to clone.
#[derive(Clone)]
pub struct EvictorHandle(Arc<Controller>);

impl EvictorHandle {
    /// Asks a controller of failing applications from now on. Only the first one counts.
    pub fn follow_applications(&self, applications: Weak<dyn Applications>) {
        let _ = self.0.applications.set(applications);
    }

    /// Takes in that an application is to leave a cluster, where it has failed for too long.
    /// Returns what keeps it there, if that is known.
    pub fn fails(&self, key: &BindingKey, cluster: &str, rank: Rank) -> Option<EvictionState> {
        let mut state = None;
        self.0
            .with(|evictor, now| state = evictor.fails(key, cluster, rank, now));
        state
    }

    /// Takes in that an application does not have to leave any cluster because it fails.
    pub fn fails_no_more(&self, key: &BindingKey) {
        self.0.with(|evictor, _| evictor.fails_no_more(key));
    }
}

struct Controller {
    evictor: Mutex<Evictor>,
    /// Held while a move is planned: each plan takes its room before the next one searches for
    /// some.
    planning: tokio::sync::Mutex<()>,
    meter: Mutex<Meter>,
    changed: Arc<Notify>,
    writer: ConditionWriter,
    events: Events,
    clusters: Informer<Cluster>,
    clock: Arc<Clock>,
    options: Options,
    switches: Switches,
    applications: OnceLock<Weak<dyn Applications>>,
    /// Whether taints are judged (controller `taintmanager`).
    judges_taints: bool,
}

/// Starts the controller. With the gate `Failover` off it evicts nothing because of taints: it
/// counts failed clusters, and says of workloads in tainted ones why they stay. Without
/// `judges_taints` it knows of no taint.
pub fn start(
    fleet: &Arc<Fleet>,
    pace: &Pace,
    judges_taints: bool,
    tasks: &mut Tasks,
) -> EvictorHandle {
    // The template of a Job says whether it has completed where no cluster does, and what it has
    // to do.
    fleet.follow_templates();
    let settings = &fleet.settings;
    let mut evictor = Evictor::sharing(Switches::of(settings), pace.clone());
    evictor.keep_beside(&fleet.bindings);
    evictor.fleet = FleetView::new(DataPlaces::of(&fleet.bindings), judges_taints);
    evictor.fence = fence::of(fleet);
    evictor.completed_by_template = {
        let fleet = Arc::downgrade(fleet);
        Box::new(move |it| has_completed_by_template(&*fleet.upgrade()?, &it.spec))
    };
    evictor.pauses = fleet.pauses.clone();
    evictor.options = Options::of(settings).for_departure();
    let controller = Arc::new(Controller {
        options: evictor.options,
        evictor: Mutex::new(evictor),
        planning: tokio::sync::Mutex::default(),
        meter: Mutex::new(Meter::new(tokio::time::Instant::now())),
        changed: Arc::new(Notify::new()),
        writer: ConditionWriter::start(fleet, tasks),
        events: fleet.events.clone(),
        clusters: fleet.clusters.clone(),
        clock: Arc::clone(&fleet.clock),
        switches: Switches::of(settings),
        applications: OnceLock::new(),
        judges_taints,
    });
    pace.wakes(Arc::clone(&controller.changed));
    fleet.pauses.on_change({
        let controller = Arc::clone(&controller);
        move || controller.with(Evictor::pauses_changed)
    });
    fleet.clusters.on_fate({
        let controller = Arc::clone(&controller);
        move |fate| {
            controller.with(|evictor, now| match fate {
                Fate::Applied(new) => evictor.cluster(new, now),
                Fate::Gone(name) => evictor.cluster_gone(name, true, now),
                Fate::Lost(name) => evictor.cluster_gone(name, false, now),
            });
        }
    });
    follow(&controller, &fleet.bindings);
    fleet.works.on_change({
        let controller = Arc::clone(&controller);
        move |change| {
            // A copy that was being removed is gone now, or a namespace, for which everything in it
            // may wait.
            if let Change::Deleted { old } = change {
                let key = works::binding_of(old).filter(|_| old.role != Role::Container);
                controller.with(|evictor, now| evictor.order_may_fit(key.as_ref(), now));
            }
        }
    });
    fleet.override_policies.on_change({
        let controller = Arc::clone(&controller);
        move |_| controller.with(|evictor, now| evictor.order_may_fit(None, now))
    });
    fleet.policies.on_change({
        let controller = Arc::clone(&controller);
        move |change| {
            // No binding reports the override policies that a policy waits for.
            let (old, new) = change.sides();
            let [was, is] = [old, new].map(|it| {
                let awaited = it.map(|it| &it.spec.dependent_overrides);
                awaited.filter(|it| !it.is_empty())
            });
            if was != is {
                controller.with(|evictor, now| evictor.order_may_fit(None, now));
            }
        }
    });
    tasks.spawn("eviction", run(Arc::clone(&controller), Arc::clone(fleet)));
    if judges_taints {
        let figures = show(Arc::clone(&controller), Arc::clone(fleet));
        tasks.spawn("eviction figures", figures);
    }
    EvictorHandle(controller)
}

fn follow(controller: &Arc<Controller>, bindings: &Bindings) {
    let (controller, followers) = (Arc::clone(controller), bindings.followers().clone());
    bindings.on_change(move |change| match change {
        Change::Applied { old, new } => {
            controller.with(|evictor, now| evictor.binding(new, now));
            if gains_clusters(old.as_deref(), new) {
                for workload in followers.of(&BindingKey::of(new.as_ref())) {
                    controller.with(|evictor, now| evictor.order_may_fit(Some(&workload), now));
                }
            }
        }
        Change::Deleted { old } => {
            controller.with(|evictor, _| evictor.binding_gone(&BindingKey::of(old.as_ref())));
        }
    });
}

impl Controller {
    /// Does something with the evictor, and publishes its reports.
    fn with(&self, act: impl FnOnce(&mut Evictor, Now)) {
        let mut evictor = self.evictor.lock();
        act(&mut evictor, Now::by(&self.clock));
        self.report(evictor.take_reports());
        drop(evictor);
        self.changed.notify_one();
    }

    fn applications(&self) -> Option<Arc<dyn Applications>> {
        self.applications.get()?.upgrade()
    }

    fn next(&self) -> Step {
        let mut evictor = self.evictor.lock();
        let step = evictor.next(Now::by(&self.clock));
        self.report(evictor.take_reports());
        step
    }

    /// Passes the reports to the writer of conditions, and publishes events about clusters. It is
    /// called with the evictor locked: of two notes about one binding the later must be reported
    /// last.
    fn report(&self, reports: Reports) {
        if let Some(applications) = self.applications() {
            for key in &reports.applications {
                applications.changed(key);
            }
        }
        if !self.judges_taints {
            return;
        }
        self.writer.forget(&reports.gone);
        self.writer.report(reports.bindings);
        for note in reports.clusters {
            tracing::info!(cluster = %note.cluster, reason = note.reason, "{}", note.message);
            if let Some(cluster) = self.clusters.get(None, &note.cluster) {
                self.events
                    .publish(&*cluster, note.severity(), note.reason, note.message);
            }
        }
    }
}

async fn run(controller: Arc<Controller>, fleet: Arc<Fleet>) {
    if !fleet.ready().await {
        return;
    }
    controller.writer.begin();
    controller.with(Evictor::open);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    loop {
        let permit = tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            permit = Arc::clone(&in_flight).acquire_owned() => permit,
        };
        let wait = match controller.next() {
            Step::Evict(eviction) => {
                let (controller, fleet) = (Arc::clone(&controller), Arc::clone(&fleet));
                muster_shared::clock::spawn(async move {
                    let eviction = Arc::new(*eviction);
                    let work = evict(
                        Arc::clone(&controller),
                        Arc::clone(&fleet),
                        Arc::clone(&eviction),
                    );
                    let outcome = settle(muster_shared::clock::spawn(work)).await;
                    let mut meter = controller.meter.lock();
                    meter.count(&eviction, &outcome, fleet.clock.now());
                    drop(meter);
                    controller.with(|evictor, now| evictor.done(&eviction, outcome, now));
                    drop(permit);
                });
                continue;
            }
            Step::Wait(wait) => wait,
        };
        drop(permit);
        tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            () = controller.changed.notified() => {}
            () = wait_until(wait) => {}
        }
    }
}

/// Waits for an eviction and returns its outcome, also of one that panicked on odd data: that has
/// failed, is reported, and is tried again with back-off. Without an outcome its binding would
/// never be evicted, and nobody would learn why.
async fn settle(eviction: JoinHandle<Outcome>) -> Outcome {
    eviction.await.unwrap_or_else(|error| {
        Outcome::Failed(format!("the eviction could not be planned: {error}"))
    })
}

/// Sets the gauges from time to time while this replica leads: another one decides nothing, and
/// figures of what it does not decide would be counted twice.
async fn show(controller: Arc<Controller>, fleet: Arc<Fleet>) {
    if !fleet.ready().await {
        return;
    }
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            _ = interval.tick() => {}
        }
        let evictor = controller.evictor.lock();
        let mut meter = controller.meter.lock();
        meter.show(&evictor, tokio::time::Instant::now());
    }
}

#[cfg(test)]
mod written_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_eviction_that_panics_has_failed_and_says_so() {
        let gone = tokio::spawn(async { Outcome::Gone });
        assert!(matches!(settle(gone).await, Outcome::Gone));
        let odd = tokio::spawn(async { panic!("odd data") });
        let Outcome::Failed(why) = settle(odd).await else {
            panic!("it has failed")
        };
        assert!(why.contains("odd data"), "{why}");
    }
}
