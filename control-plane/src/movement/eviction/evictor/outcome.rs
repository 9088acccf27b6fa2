//! Changes of the queue after an eviction has ended.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::clock::whole_second;
use muster_shared::queue::{again, doubled};

use super::{BACKOFF, Evictor, Failures, Key};
use crate::movement::eviction::backlog::Slot;
use crate::movement::eviction::evictor::eviction::{Eviction, Now, Outcome, QueueReason};
use crate::movement::eviction::explain::EvictionState;
use crate::movement::eviction::record::bounded;
use crate::movement::eviction::room::KEPT;

impl Evictor {
    /// Takes in the outcome of an eviction that came to an end.
    pub fn done(&mut self, eviction: &Eviction, outcome: Outcome, now: Now) {
        let pauses = matches!(
            outcome,
            Outcome::Conflict | Outcome::Failed(_) | Outcome::Unclear(_)
        );
        self.take_outcome(eviction, outcome, now);
        self.settle_planned_room(eviction, now);
        self.review_missed(eviction, pauses, now);
        self.report_progress(&eviction.cluster);
    }

    /// Judges a workload whose binding or clusters changed during its eviction; `pauses`: not yet
    /// on the cluster of the eviction.
    fn review_missed(&mut self, eviction: &Eviction, pauses: bool, now: Now) {
        let key = self.key_of(&eviction.binding);
        if !self.missed.remove(&key) {
            return;
        }
        let Some(binding) = self.bindings.get(&key) else {
            return;
        };
        for target in &binding.spec.clusters {
            if !pauses || target.name != *eviction.cluster {
                let name = self.share(&target.name);
                self.review(&name, &key, now);
            }
        }
    }

    fn take_outcome(&mut self, eviction: &Eviction, outcome: Outcome, now: Now) {
        let key = self.key_of(&eviction.binding);
        let (cluster, rank) = (&eviction.cluster, eviction.rank);
        self.in_hand.remove(&key);
        let Failures {
            count: before,
            mut paid_for,
        } = self.failures.remove(&key).unwrap_or_default();
        let version = eviction.binding.metadata.resource_version.as_ref();
        // A write upon the same version was paid before: it was this one, or none. As long as none
        // succeeds at all the API is in trouble, and has to be spared.
        let is_paid_already = paid_for
            .as_ref()
            .is_some_and(|(paid, then)| Some(paid) == version && *then < self.successes);
        let may_be_written = matches!(outcome, Outcome::Evicted { .. } | Outcome::Unclear(_));
        if is_paid_already || !may_be_written {
            eviction.paid.refund();
            self.limits.refund(cluster);
        } else {
            eviction.paid.keep();
            paid_for = version.map(|version| (version.clone(), self.successes));
        }
        self.successes += u64::from(matches!(outcome, Outcome::Evicted { .. }));
        let failures = Failures {
            count: before.saturating_add(1),
            paid_for,
        };
        let has_failed = matches!(outcome, Outcome::Failed(_) | Outcome::Unclear(_));
        let rank = if has_failed { rank.failed() } else { rank };
        let cause = || bounded(eviction.reason.to_string());
        let pause = match outcome {
            Outcome::Evicted { binding, to, mode } => {
                match &eviction.reason {
                    QueueReason::Taint(_) => {
                        let state = EvictionState::Evicted {
                            cause: cause(),
                            to,
                            mode: mode.to_string(),
                            at: whole_second(now.wall),
                        };
                        self.note(key.clone(), cluster, state);
                        self.count_left(cluster);
                    }
                    QueueReason::Failure => {
                        self.failing.remove(&key);
                        self.reports.applications.push(key.clone());
                    }
                }
                self.retry_stranded(2);
                // Where the watch was faster, it may know a later version than the answer to our
                // write.
                let is_latest = |known: &Arc<AnyBinding>| {
                    known.metadata.resource_version == eviction.binding.metadata.resource_version
                };
                if self.bindings.get(&key).as_ref().is_some_and(is_latest) {
                    self.binding(&binding, now);
                }
                return;
            }
            Outcome::Gone => return self.take_gone(eviction, &key, now),
            Outcome::Nowhere(why) => {
                let why = if eviction.kept.workloads() > 0 {
                    self.hold_back(cluster, &key, rank.priority(), now);
                    format!("{why}{KEPT}")
                } else {
                    why
                };
                let (cause, why) = (cause(), bounded(why));
                return self.strand(eviction, &key, EvictionState::Nowhere { cause, why }, now);
            }
            Outcome::Paused(why) => {
                let (cause, why) = (cause(), bounded(why));
                return self.strand(eviction, &key, EvictionState::Paused { cause, why }, now);
            }
            Outcome::Unpreserved(why) => {
                let (cause, why) = (cause(), bounded(why));
                return self.strand(
                    eviction,
                    &key,
                    EvictionState::Unpreserved { cause, why },
                    now,
                );
            }
            Outcome::Conflict => {
                if eviction.reason == QueueReason::Failure {
                    self.reports.applications.push(key.clone());
                }
                self.failures.insert(key.clone(), failures);
                again(before)
            }
            Outcome::Failed(why) | Outcome::Unclear(why) => {
                let why = bounded(why);
                self.note_held(eviction, &key, EvictionState::Failed { why });
                self.failures.insert(key.clone(), failures);
                doubled(BACKOFF, before)
            }
        };
        let until = now.tick + pause;
        if !self.put_back(eviction, &key, Slot::Waiting { until, rank }) {
            if self.bindings.key(&key).is_none() {
                self.failures.remove(&key);
            }
            self.end_of(eviction, &key);
        }
    }

    /// Forgets a binding that is gone, unless another one of its name was made since.
    fn take_gone(&mut self, eviction: &Eviction, key: &Key, now: Now) {
        let uid = &eviction.binding.metadata.uid;
        match self.bindings.get(key) {
            Some(known) if known.metadata.uid != *uid => {
                if eviction.reason == QueueReason::Failure {
                    self.failing.remove(key);
                    self.reports.applications.push(key.clone());
                }
                self.review_all(&known, now);
            }
            _ => self.binding_gone(key),
        }
    }

    /// Returns whether the workload of an eviction is still to leave, and puts it back into its
    /// queue then.
    fn put_back(&mut self, eviction: &Eviction, key: &Key, place: Slot) -> bool {
        let cluster = &eviction.cluster;
        let (leaves, backlog) = match eviction.reason {
            QueueReason::Taint(_) => (self.is_on(cluster, key), &mut self.backlog),
            QueueReason::Failure => (self.failing.leaves(cluster, key), &mut self.failing.backlog),
        };
        if leaves {
            backlog.put(cluster, key.clone(), place);
        }
        leaves
    }

    /// Notes that a workload that was not evicted does not have to leave any more.
    fn end_of(&mut self, eviction: &Eviction, key: &Key) {
        match eviction.reason {
            QueueReason::Taint(_) => self.note_end(key, &eviction.cluster),
            QueueReason::Failure => self.reports.applications.push(key.clone()),
        }
    }

    /// Notes why a workload was not evicted.
    fn note_held(&mut self, eviction: &Eviction, key: &Key, state: EvictionState) {
        match eviction.reason {
            QueueReason::Taint(_) => self.note(key.clone(), &eviction.cluster, state),
            QueueReason::Failure => {
                self.failing.hold(key, state);
                self.reports.applications.push(key.clone());
            }
        }
    }

    fn strand(&mut self, eviction: &Eviction, key: &Key, state: EvictionState, now: Now) {
        let (cluster, rank) = (&eviction.cluster, eviction.rank);
        if self.put_back(eviction, key, Slot::Stranded(rank)) {
            self.note_held(eviction, key, state);
            // What woke the others meanwhile, or a change of the workload itself, may help this
            // one, which was judged by what was there before.
            if eviction.wakes != self.wakes || self.missed.contains(key) {
                self.backlog.wake(cluster, key);
                self.retry_failing(key, now);
                self.retry.get_or_insert(now.tick);
            }
        } else {
            self.end_of(eviction, key);
        }
    }
}
