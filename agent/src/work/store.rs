//! State that the tasks of Works share. All of it is a cache: a restart loses nothing.

use std::sync::Arc;

use muster_shared::interpreter::Interpreters;
use muster_shared::k8s::{Api, ResourceExt};
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};

use super::cached::CachedWork;
use super::drift::Drift;
use super::observed::ObjectStatuses;
use super::repairs::Repairs;
use super::works::Works;
use crate::fleet_id;

/// The Works of one member, and what is known of their objects.
pub struct Store {
    /// Works of the member.
    pub works: Works,
    /// Memory that says whether an object has to be applied.
    pub drift: Arc<Drift>,
    /// Last seen statuses of objects.
    pub statuses: ObjectStatuses,
    /// Times of repairs, and ranks of Works.
    pub repairs: Arc<Repairs>,
    /// Works to apply.
    pub to_apply: Queue<String>,
    /// Works to report.
    pub to_report: Queue<String>,
    /// Meaning of resources.
    pub interpreters: Arc<Interpreters>,
    /// The id of the fleet.
    pub fleet: fleet_id::Known,
}

impl Store {
    /// Makes a store over a cache of Works, and the API for those that the cache does not keep.
    /// `lists_come` says whether watches will list the kinds of the Works.
    pub fn new(
        cache: Informer<CachedWork>,
        api: Api<CachedWork>,
        lists_come: bool,
        interpreters: Arc<Interpreters>,
        fleet: fleet_id::Known,
    ) -> Arc<Self> {
        let repairs = Arc::new(Repairs::default());
        let ranks = Arc::clone(&repairs);
        let to_report = Queue::new("work-status");
        Arc::new(Self {
            works: Works::new(cache, api),
            drift: Arc::new(Drift::new(lists_come, Arc::clone(&interpreters))),
            statuses: ObjectStatuses::new(to_report.clone()),
            repairs,
            to_apply: Queue::ranked("works", move |work: &String| ranks.rank(work)),
            to_report,
            interpreters,
            fleet,
        })
    }

    /// Adds Works that change to the queues: to be applied, and to be reported, where that is done
    /// at all.
    pub fn follow(self: &Arc<Self>, applies: bool, reports: bool) {
        // The store holds the cache, which holds the closure.
        let store = Arc::downgrade(self);
        self.works.cache.on_change(move |change| {
            let Some(store) = store.upgrade() else {
                return;
            };
            match change {
                Change::Applied { old, new } => {
                    let (name, old) = (new.name_any(), old.as_deref());
                    let is_own = store.works.observe(new);
                    let is_lost = !is_own && CachedWork::tells_otherwise(old, new);
                    if applies && (is_lost || CachedWork::concerns_us(old, new)) {
                        store.repairs.ask(&name);
                        store.to_apply.add(name.clone());
                    }
                    // The status was lost, or another writer changed it.
                    let is_lost = !is_own && CachedWork::reports_otherwise(old, new);
                    if reports && (is_lost || CachedWork::becomes_readable(old, new)) {
                        store.to_report.add(name);
                    }
                }
                Change::Deleted { old } => {
                    let name = old.name_any();
                    store.works.forget(&name);
                    store.statuses.forget(&name);
                    // A reconciliation that is under way may still record something about the
                    // Work, so it is forgotten in its turn on the queue.
                    if applies {
                        store.to_apply.add(name);
                    }
                }
            }
        });
    }
}
