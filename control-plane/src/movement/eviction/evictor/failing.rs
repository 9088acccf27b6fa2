//! Applications that are to leave a cluster in which they fail: what reports them is another
//! controller, the queue, the budget, pauses, fences and the way out are those of taints.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::queue::again;

use super::{Eviction, Evictor, Key, Now, QueueReason, UNFENCED};
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Paid;
use crate::movement::eviction::backlog::{Backlog, Rank, Slot};
use crate::movement::eviction::explain::EvictionState;
use crate::movement::eviction::fence::FenceGate;
use crate::movement::eviction::record::bounded;

/// The applications that are to leave. Each leaves one cluster at a time.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// The queue of each cluster that is to be left.
    pub backlog: Backlog,
    leaving: HashMap<Key, Leaving>,
    /// Whether the last item that was taken out of a queue was one of these.
    was_last: bool,
}

/// State of an application that is to leave.
#[derive(Debug)]
struct Leaving {
    cluster: Arc<str>,
    /// State of its last attempt, which failed.
    held: Option<EvictionState>,
}

impl Failing {
    /// Removes an application from those that are to leave.
    pub fn remove(&mut self, key: &Key) {
        if let Some(leaving) = self.leaving.remove(key) {
            self.backlog.remove(&leaving.cluster, key);
        }
    }

    /// Removes all that were to leave a cluster, and returns them.
    pub fn drop_cluster(&mut self, cluster: &str) -> Vec<Key> {
        let dropped = self.leaving.iter().filter(|it| *it.1.cluster == *cluster);
        let dropped: Vec<Key> = dropped.map(|(key, _)| Arc::clone(key)).collect();
        for key in &dropped {
            self.remove(key);
        }
        dropped
    }

    /// Returns whether an application is to leave a cluster.
    pub fn leaves(&self, cluster: &str, key: &Key) -> bool {
        let leaving = self.leaving.get(key);
        leaving.is_some_and(|leaving| *leaving.cluster == *cluster)
    }

    /// Keeps the state of an attempt that failed.
    pub fn hold(&mut self, key: &Key, state: EvictionState) {
        if let Some(leaving) = self.leaving.get_mut(key) {
            leaving.held = Some(state);
        }
    }

    /// Notes that the last item that was taken out of a queue was none of these.
    pub fn rests(&mut self) {
        self.was_last = false;
    }

    /// Returns all applications that are to leave.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.leaving.keys()
    }
}

impl Evictor {
    /// Takes in that an application is to leave a cluster, where it has failed for too long.
    /// Returns what keeps it there; `None` while nothing is known of that: it may leave at once, or
    /// is leaving.
    pub fn fails(
        &mut self,
        key: &BindingKey,
        cluster: &str,
        rank: Rank,
        now: Now,
    ) -> Option<EvictionState> {
        let binding = self.bindings.get(key)?;
        binding.spec.target(cluster)?;
        let key = self.key_of(&binding);
        if self.failing.leaves(cluster, &key) {
            let held = self.failing.leaving.get(&key)?.held.clone();
            let is_same =
                |known: Rank| (known.priority(), known.since()) == (rank.priority(), rank.since());
            match self.failing.backlog.place(cluster, &key) {
                // It is being evicted.
                None => return held,
                Some(slot) if is_same(slot.rank()) => {
                    return held.or_else(|| {
                        Some(self.state_of_ready(cluster, &QueueReason::Failure, now))
                    });
                }
                Some(_) => {}
            }
        }
        self.failing.remove(&key);
        let cluster = self.share(cluster);
        let leaving = Leaving {
            cluster: Arc::clone(&cluster),
            held: None,
        };
        self.failing.leaving.insert(Arc::clone(&key), leaving);
        self.failing.backlog.put(&cluster, key, Slot::Ready(rank));
        None
    }

    /// Takes in that an application does not have to leave any cluster because it fails.
    pub fn fails_no_more(&mut self, key: &BindingKey) {
        if let Some((key, _)) = self.failing.leaving.get_key_value(key) {
            let key = Arc::clone(key);
            self.failing.remove(&key);
        }
    }

    /// Has an application tried again soon, if it stays because no other cluster could take it.
    pub(super) fn retry_failing(&mut self, key: &Key, now: Now) {
        let Some(leaving) = self.failing.leaving.get(key) else {
            return;
        };
        let place = self.failing.backlog.place(&leaving.cluster, key);
        if matches!(place, Some(Slot::Stranded(_))) {
            self.failing.backlog.wake(&leaving.cluster, key);
            self.retry.get_or_insert(now.tick);
        }
    }

    /// Returns the cluster that is left next, and whether by a failing application; `None` if
    /// nothing is ready in a cluster that is not held. The higher priority comes first; among
    /// equals those that fail and those that leave because of taints take turns, so that neither
    /// wait for all of the others.
    pub(super) fn next_to_leave(&self, held: &BTreeSet<Arc<str>>) -> Option<(bool, Arc<str>)> {
        let taints = self.backlog.next_but(held);
        let failing = self.failing.backlog.next_but(held);
        let priority = |next: Option<(i32, &Arc<str>)>| next.map(|(priority, _)| priority);
        let is_failing = if priority(taints) == priority(failing) {
            !self.failing.was_last
        } else {
            priority(failing) > priority(taints)
        };
        let (_, cluster) = if is_failing { failing } else { taints }?;
        Some((is_failing, Arc::clone(cluster)))
    }

    /// Takes the next failing application out of its queue, if it may leave. Otherwise the payment
    /// is taken back.
    pub(super) fn next_failing(
        &mut self,
        held: &BTreeSet<Arc<str>>,
        paid: Paid,
        now: Now,
    ) -> Option<Eviction> {
        self.failing.was_last = true;
        let (cluster, key, rank) = self.failing.backlog.pop_but(held)?;
        if self.in_hand.contains_key(&key) {
            let until = now.tick + again(0);
            let place = Slot::Waiting { until, rank };
            self.failing.backlog.put(&cluster, key, place);
            return None;
        }
        let binding = self.bindings.get(&key)?;
        let (why, until) = match self.fence_gate(&cluster, &binding, now) {
            FenceGate::Open => {
                let item = (&cluster, key, rank);
                return Some(self.start_eviction(item, binding, QueueReason::Failure, paid, now));
            }
            FenceGate::Until(until, why) => (why, until),
            FenceGate::Shut(why) => (why, now.tick + UNFENCED),
        };
        let cause = QueueReason::Failure.to_string();
        let why = bounded(why);
        self.failing
            .hold(&key, EvictionState::Unfenced { cause, why });
        self.reports.applications.push(Arc::clone(&key));
        let place = Slot::Waiting { until, rank };
        self.failing.backlog.put(&cluster, key, place);
        None
    }

    /// Has all failing applications reported anew: what keeps them has changed.
    pub(super) fn report_failing(&mut self) {
        self.reports
            .applications
            .extend(self.failing.keys().cloned());
    }
}
