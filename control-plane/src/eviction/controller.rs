//! Passes every change of clusters and bindings to the eviction desk, and carries out its
//! decisions.

use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::clock::Clock;
use muster_shared::events::Events;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::carry::{carry_out, may_be_written};
use super::desk::{Desk, Errand, News, Now, Outcome, Step};
use super::judge::Switches;
use super::measure::{self, INTERVAL, Meter};
use super::motive::Motive;
use super::pace::Pace;
use super::plan::{Departure, Nowhere, plan};
use super::subject::Subject;
use super::teller::Teller;
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, BindingKind};
use crate::scheduler::Options;
use crate::settings::STATEFUL_FAILOVER_INJECTION;

/// Evictions in flight at a time: the rate limits them, this limits what a slow API can pile up.
const IN_FLIGHT: usize = 32;

struct Office {
    desk: Mutex<Desk>,
    meter: Mutex<Meter>,
    changed: Arc<Notify>,
    teller: Teller,
    events: Events,
    clusters: Informer<Cluster>,
    clock: Arc<Clock>,
    options: Options,
}

/// Starts the controller. With the gate `Failover` off it evicts nothing: it counts failed
/// clusters, and says of workloads in tainted ones why they stay.
pub fn start(fleet: &Arc<Fleet>, pace: &Pace, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    measure::describe();
    let office = Arc::new(Office {
        desk: Mutex::new(Desk::sharing(Switches::of(settings), pace.clone())),
        meter: Mutex::new(Meter::new(tokio::time::Instant::now())),
        changed: Arc::new(Notify::new()),
        teller: Teller::start(fleet, tasks),
        events: fleet.events.clone(),
        clusters: fleet.clusters.clone(),
        clock: Arc::clone(&fleet.clock),
        options: Options::of(settings).for_departure(),
    });
    pace.wakes(Arc::clone(&office.changed));
    fleet.clusters.on_change({
        let office = Arc::clone(&office);
        move |change| match change {
            Change::Applied { new, .. } => office.with(|desk, now| desk.cluster(new, now)),
            Change::Deleted { old } => {
                let name = old.name_any();
                let left = office.clusters.presence(None, &name).is_gone();
                office.with(|desk, now| desk.cluster_gone(&name, left, now));
            }
        }
    });
    fleet.clusters.on_unread_departure({
        let office = Arc::clone(&office);
        move |_, name| office.with(|desk, now| desk.cluster_gone(name, true, now))
    });
    follow(&office, &fleet.bindings);
    follow(&office, &fleet.cluster_bindings);
    tasks.spawn("eviction", run(Arc::clone(&office), Arc::clone(fleet)));
    tasks.spawn("eviction figures", show(office, Arc::clone(fleet)));
}

fn follow<B: BindingKind>(office: &Arc<Office>, bindings: &Informer<B>)
where
    Subject: From<Arc<B>>,
{
    let office = Arc::clone(office);
    bindings.on_change(move |change| match change {
        Change::Applied { new, .. } => {
            office.with(|desk, now| desk.binding(&Arc::clone(new).into(), now));
        }
        Change::Deleted { old } => {
            office.with(|desk, _| desk.binding_gone(&BindingKey::of(old.as_ref())));
        }
    });
}

impl Office {
    /// Does something at the desk, and passes its news on.
    fn with(&self, act: impl FnOnce(&mut Desk, Now)) {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut desk, Now::by(&self.clock));
        self.tell(desk.take_news());
        drop(desk);
        self.changed.notify_one();
    }

    fn next(&self) -> Step {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let step = desk.next(Now::by(&self.clock));
        self.tell(desk.take_news());
        step
    }

    /// Called with the desk locked: of two notes about one binding the later must be told last.
    fn tell(&self, news: News) {
        self.teller.forget(&news.gone);
        self.teller.tell(news.bindings);
        for note in news.clusters {
            tracing::info!(cluster = %note.cluster, reason = note.reason, "{}", note.message);
            if let Some(cluster) = self.clusters.get(None, &note.cluster) {
                self.events
                    .publish(&*cluster, note.severity(), note.reason, note.message);
            }
        }
    }
}

async fn run(office: Arc<Office>, fleet: Arc<Fleet>) {
    if !fleet.ready().await {
        return;
    }
    office.with(Desk::open);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    loop {
        let permit = tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            permit = Arc::clone(&in_flight).acquire_owned() => permit,
        };
        let wait = match office.next() {
            Step::Evict(errand) => {
                let (office, fleet) = (Arc::clone(&office), Arc::clone(&fleet));
                tokio::spawn(async move {
                    let errand = Arc::new(*errand);
                    let work = evict(Arc::clone(&office), Arc::clone(&fleet), Arc::clone(&errand));
                    let outcome = settle(tokio::spawn(work)).await;
                    let mut meter = office.meter.lock().unwrap_or_else(PoisonError::into_inner);
                    meter.count(&errand, &outcome, fleet.clock.now());
                    drop(meter);
                    office.with(|desk, now| desk.done(&errand, outcome, now));
                    drop(permit);
                });
                continue;
            }
            Step::Wait(wait) => wait,
        };
        drop(permit);
        let timer = async {
            match wait {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            () = office.changed.notified() => {}
            () = timer => {}
        }
    }
}

async fn evict(office: Arc<Office>, fleet: Arc<Fleet>, errand: Arc<Errand>) -> Outcome {
    match &errand.subject {
        Subject::Namespaced(_) => go::<ResourceBinding>(&office, &fleet, &errand).await,
        Subject::Cluster(_) => go::<ClusterResourceBinding>(&office, &fleet, &errand).await,
    }
}

/// The outcome of an errand, one that panicked on odd data included: it has failed, is told of, and
/// is tried again with back-off. Without an outcome its binding would never be evicted, and nobody
/// would learn why.
async fn settle(errand: JoinHandle<Outcome>) -> Outcome {
    errand.await.unwrap_or_else(|error| {
        Outcome::Failed(format!("the eviction could not be planned: {error}"))
    })
}

/// Runs one errand: plan, one patch, and what that means.
async fn go<B: BindingKind>(office: &Office, fleet: &Fleet, errand: &Errand) -> Outcome
where
    Subject: From<Arc<B>>,
{
    let (key, spec) = (errand.subject.key(), errand.subject.spec());
    let ours = fleet.settings.schedules(spec.scheduler_name.as_deref());
    let departure = Departure {
        spec,
        status: errand.subject.status(),
        cluster: &errand.cluster,
        motive: Motive::Taint(&errand.cause),
        purge_mode: &errand.purge_mode,
        preserves_state: fleet.settings.gate(&STATEFUL_FAILOVER_INJECTION),
        ours,
    };
    let plan = match plan(
        &departure,
        &errand.snapshot,
        &office.options,
        fleet.clock.now(),
    ) {
        Ok(plan) => plan,
        Err(nowhere) => {
            return match nowhere {
                Nowhere::State(why) => Outcome::Unpreserved(why.to_string()),
                nowhere => Outcome::Nowhere(nowhere.to_string()),
            };
        }
    };
    if !fleet.leadership.is_current() {
        return Outcome::Conflict;
    }
    let to = plan.destination();
    let version = errand.subject.meta().resource_version.as_deref();
    match carry_out::<B>(fleet, &key, version, plan).await {
        Ok(binding) => {
            tracing::info!(binding = %key, cluster = %errand.cluster, cause = %errand.cause, to, mode = %errand.purge_mode, "evicted");
            Outcome::Evicted {
                // Until the cache shows it, and after an outage there are as many as it hit.
                subject: B::cache(fleet).kept(binding).into(),
                to,
            }
        }
        Err(error) if client::is_conflict(&error) => Outcome::Conflict,
        Err(error) if client::is_not_found(&error) => Outcome::Gone,
        Err(error) => {
            let why = client::brief(&error);
            tracing::warn!(binding = %key, cluster = %errand.cluster, error = why, "cannot evict");
            if may_be_written(&error) {
                Outcome::Unclear(why)
            } else {
                Outcome::Failed(why)
            }
        }
    }
}

/// Sets the gauges from time to time.
async fn show(office: Arc<Office>, fleet: Arc<Fleet>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            () = fleet.shutdown.cancelled() => return,
            _ = interval.tick() => {}
        }
        let desk = office.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut meter = office.meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.show(&desk, tokio::time::Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_errand_that_panics_has_failed_and_says_so() {
        let gone = tokio::spawn(async { Outcome::Gone });
        assert!(matches!(settle(gone).await, Outcome::Gone));
        let odd = tokio::spawn(async { panic!("odd data") });
        let Outcome::Failed(why) = settle(odd).await else {
            panic!("it has failed")
        };
        assert!(why.contains("odd data"), "{why}");
    }
}
