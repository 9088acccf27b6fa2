//! State that the tasks of Works share. All of it is a cache: a restart loses nothing.

use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::Interpreters;
use muster_shared::controller::Watched as _;
use muster_shared::k8s::{Api, GroupVersionKind, ResourceExt};
use muster_shared::queue::Next;
use muster_shared::watch::{Change, Informer};

use super::cached::CachedWork;
use super::desired::ObjectKey;
use super::drift::Drift;
use super::observed::ObjectStatuses;
use super::waits::{Event, Waits};
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
    /// Works that wait, and the queues that they return to.
    pub waits: Waits,
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
        let waits = Waits::default();
        Arc::new(Self {
            works: Works::new(cache, api),
            drift: Arc::new(Drift::new(lists_come, Arc::clone(&interpreters))),
            statuses: ObjectStatuses::new(waits.to_report.clone()),
            waits,
            interpreters,
            fleet,
        })
    }

    /// Adds Works that change to the queues: to be applied, and to be reported, where that is done
    /// at all.
    pub fn follow(self: &Arc<Self>, applies: bool, reports: bool) {
        let cache = &self.works.cache;
        cache.informs(self, move |store, change| match change {
            Change::Applied { old, new } => {
                let (name, old) = (new.name_any(), old.as_deref());
                let is_own = store.works.observe(new);
                let is_lost = !is_own && CachedWork::changes_applied(old, new);
                if applies && (is_lost || CachedWork::concerns_us(old, new)) {
                    store.waits.changed(&name);
                }
                // The status was lost, or another writer changed it.
                let is_lost = !is_own && CachedWork::changes_reported(old, new);
                if reports && (is_lost || CachedWork::becomes_readable(old, new)) {
                    store.waits.to_report.add(name);
                }
            }
            Change::Deleted { old } => {
                let name = old.name_any();
                store.works.forget(&name);
                store.statuses.forget(&name);
                // A reconciliation that is under way may still record something about the
                // Work, so it is forgotten when the queue comes to it.
                if applies {
                    store.waits.to_apply.add(name);
                } else {
                    store.waits.forget(&name);
                }
            }
        });
    }

    /// Records a complete list of a kind in the member, or that there will be none. The first time
    /// it has the Works go on that waited for one. `as_desired` has the objects that are as
    /// desired, with the digests of their desired states.
    pub fn listed(
        &self,
        kind: &GroupVersionKind,
        as_desired: impl IntoIterator<Item = (ObjectKey, u64)>,
    ) {
        if self.drift.listed(kind, as_desired) {
            self.waits.wake(Event::Listed, Duration::ZERO);
        }
    }

    /// Returns the pause of a Work that waits for the first lists of its kinds.
    pub fn wait_for_lists(&self, work: &CachedWork) -> Option<Next> {
        self.wait_while(&work.name_any(), || self.drift.wait(work.kinds()))
    }

    fn wait_while(&self, work: &str, pause: impl Fn() -> Option<Duration>) -> Option<Next> {
        pause()?;
        self.waits.wait(work, Event::Listed);
        // A list that became complete in between has not woken this Work.
        let pause = pause();
        if pause.is_none() {
            self.waits.go_on(work, Event::Listed);
        }
        pause.map(Next::After)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::work::works::tests::{Fleet, store_with_lists, work};

    fn kind(name: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("", "v1", name)
    }

    async fn store() -> Arc<Store> {
        let fleet = Arc::new(Fleet::default());
        fleet.put(work("w", 1));
        store_with_lists(&fleet.start()).await
    }

    #[tokio::test(start_paused = true)]
    async fn works_that_wait_are_woken_by_the_first_list_of_a_kind_and_by_no_other() {
        let store = store().await;
        let cached = store.works.cached("w").unwrap();
        let ask = || store.drift.wait(cached.kinds());
        for (work, listed, woken) in [
            ("a", "Secret", 1),
            ("b", "Secret", 1),
            ("c", "ConfigMap", 3),
        ] {
            assert!(store.wait_while(work, ask).is_some());
            store.listed(&kind(listed), []);
            assert_eq!(store.waits.to_apply.len(), woken, "{work}");
        }
        assert!(store.wait_for_lists(&cached).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_does_not_wait_for_a_list_that_comes_while_it_asks() {
        let store = store().await;
        let (kind, is_listed) = (kind("ConfigMap"), Cell::new(false));
        let ask = || {
            let pause = store.drift.wait([&kind].into_iter());
            if !is_listed.replace(true) {
                store.listed(&kind, []);
            }
            pause
        };
        assert!(store.wait_while("w", ask).is_none());
        store.waits.wake(Event::Listed, Duration::ZERO);
        assert!(store.waits.to_apply.is_empty());
    }
}
