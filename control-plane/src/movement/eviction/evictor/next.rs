//! The next eviction, and the last check of it.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::queue::again;
use tokio::time::Instant;

use super::limits::Held;
use super::{Eviction, Evictor, Key, Now, QueueReason, RETRIES, RETRY_PAUSE, Step};
use crate::fleet::budget::pace::Paid;
use crate::movement::eviction::backlog::{Rank, Slot};
use crate::movement::eviction::fence::FenceGate;
use crate::movement::eviction::fleet_view::{has_failed, is_counted};
use crate::movement::eviction::judge::Judgement;

impl Evictor {
    /// Returns what to do next.
    pub fn next(&mut self, now: Now) -> Step {
        // Others inform the budget of clusters as well.
        self.settle_band(now);
        for (cluster, key) in self.backlog.mature(now.tick) {
            if !self.in_hand.contains_key(&key) {
                self.review(&cluster, &key, now);
            }
        }
        self.failing.backlog.mature(now.tick);
        if self.fleet.settle(now.tick) {
            self.wake = Some(now.tick);
        }
        self.retry_held_back(now);
        if self.wake.is_some_and(|wake| wake <= now.tick) {
            self.wake = None;
            self.wakes += 1;
            self.backlog.wake_stranded();
            self.failing.backlog.wake_stranded();
            self.retry.get_or_insert(now.tick);
        }
        if self.retry.is_some_and(|retry| retry <= now.tick) {
            self.retry_stranded(RETRIES);
            let more = self.backlog.has_due() || self.failing.backlog.has_due();
            self.retry = more.then(|| now.tick + RETRY_PAUSE);
        }
        let mut held = Held::default();
        while let Some((is_failing, cluster)) = self.next_to_leave(&held.clusters) {
            if self.is_held(&cluster, &mut held, now) {
                continue;
            }
            let paid = match self.pace.pay(now.tick) {
                Ok(paid) => paid,
                Err(when) => return self.wait(&held, when),
            };
            if is_failing {
                if let Some(eviction) = self.next_failing(&held.clusters, paid, now) {
                    return Step::Evict(Box::new(eviction));
                }
                continue;
            }
            self.failing.rests();
            let Some((cluster, key, rank)) = self.backlog.pop_but(&held.clusters) else {
                break;
            };
            if self.is_behind(&cluster) {
                self.backlog.put(&cluster, key, Slot::Ready(rank));
                return Step::Wait(Some(now.tick + again(0)));
            }
            if let Some(eviction) = self.judge_again((&cluster, key, rank), paid, now) {
                return Step::Evict(Box::new(eviction));
            }
        }
        self.pace.withdraw();
        self.wait(&held, None)
    }

    /// Returns the step to wait until a moment, or until something else is to be done before it.
    fn wait(&self, held: &Held, until: Option<Instant>) -> Step {
        let timers = self.next_timer().into_iter().chain(held.until);
        Step::Wait(timers.chain(until).min())
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let settles = self.fleet.next_settlement();
        let own = [self.wake, self.retry, self.look];
        let (taints, failing) = (&self.backlog, &self.failing.backlog);
        let backoffs = [taints.next_timer(), failing.next_timer()];
        let timers = own.into_iter().chain(backoffs).chain([settles]);
        timers.flatten().min()
    }

    /// Judges an item once more at the moment of its eviction, so that what changed meanwhile
    /// counts. Without an eviction the payment is taken back.
    pub(super) fn judge_again(
        &mut self,
        (cluster, key, rank): (&Arc<str>, Key, Rank),
        paid: Paid,
        now: Now,
    ) -> Option<Eviction> {
        if self.in_hand.contains_key(&key) {
            self.backlog.put(
                cluster,
                key,
                Slot::Waiting {
                    until: now.tick + again(0),
                    rank,
                },
            );
            return None;
        }
        let binding = self.bindings.get(&key)?;
        binding.spec.target(cluster)?;
        match self.judge(cluster, &binding, now) {
            Judgement::Leave { due, cause }
                if due <= now.wall
                    && self.fence_gate(cluster, &binding, now) == FenceGate::Open
                    && self.has_completed(&binding, cluster).is_some() =>
            {
                let reason = QueueReason::Taint(cause);
                let item = (cluster, key, rank);
                Some(self.start_eviction(item, binding, reason, paid, now))
            }
            Judgement::Leave { .. } | Judgement::Stay(_) => {
                self.review(cluster, &key, now);
                None
            }
        }
    }

    /// Begins the eviction of an item, for which the budget of its cluster pays as well.
    pub(super) fn start_eviction(
        &mut self,
        (cluster, key, rank): (&Arc<str>, Key, Rank),
        binding: Arc<AnyBinding>,
        reason: QueueReason,
        paid: Paid,
        now: Now,
    ) -> Eviction {
        self.in_hand.insert(key, Arc::clone(cluster));
        self.limits.pay(cluster, now.tick);
        let kept = self.keep(rank.priority(), now);
        Eviction {
            cluster: Arc::clone(cluster),
            binding,
            reason,
            kept,
            paid,
            wakes: self.wakes,
            rank,
        }
    }

    /// Makes stranded items ready that were not tried since something changed, so many of each
    /// kind.
    pub(super) fn retry_stranded(&mut self, most: usize) {
        self.backlog.retry(most);
        self.failing.backlog.retry(most);
    }

    /// Returns whether the budget knows already that a cluster is well which is still known as
    /// failed here. A rate that rises because the cluster is back must not evict from it.
    pub(super) fn is_behind(&self, cluster: &str) -> bool {
        let known = self.fleet.get(cluster);
        known.is_some_and(|(_, known)| is_counted(known) && has_failed(known))
            && self.pace.is_well(cluster)
    }
}
