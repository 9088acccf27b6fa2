//! The place of a workload in the queue of a cluster that has taints.

use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::k8s::Taint;
use tokio::time::Instant;

use super::{Evictor, Key, Now, UNFENCED, UNREAD};
use crate::fleet::completion::is_task;
use crate::movement::eviction::backlog::{Rank, Slot};
use crate::movement::eviction::explain::EvictionState;
use crate::movement::eviction::fence::FenceGate;
use crate::movement::eviction::fleet_view::evicts;
use crate::movement::eviction::inputs;
use crate::movement::eviction::judge::{Cause, Judgement, Stay, judge_copy};
use crate::movement::eviction::record::bounded;

impl Evictor {
    pub(super) fn judge(&self, cluster: &str, binding: &AnyBinding, now: Now) -> Judgement {
        let placement = inputs::placement(binding);
        let judgement = judge_copy(
            cluster,
            self.fleet.taints(cluster),
            &binding.spec,
            placement.as_deref(),
            &self.switches,
            now.wall,
        );
        match judgement {
            Judgement::Leave { .. } if self.has_completed(binding, cluster) == Some(true) => {
                Judgement::Stay(Stay::Completed)
            }
            Judgement::Leave { cause, due } => {
                let returned = self.returned(cluster, &cause.taint, now);
                let due = due.max(returned.unwrap_or(due));
                Judgement::Leave { cause, due }
            }
            stay @ Judgement::Stay(_) => stay,
        }
    }

    /// Returns whether a workload is a task that has completed in a cluster; `None` means that it
    /// cannot be read yet. A cluster that reports something else runs the task anew, whatever its
    /// template says. The report is gone once the cluster's Works are, as when the cluster is taken
    /// out of the fleet; a task that left then would run a second time.
    pub(super) fn has_completed(&self, binding: &AnyBinding, cluster: &str) -> Option<bool> {
        if !is_task(&binding.spec.resource) {
            return Some(false);
        }
        let reported = inputs::has_completed(binding, cluster);
        reported.or_else(|| (self.completed_by_template)(binding))
    }

    /// Returns until when a cluster that has just become ready keeps its workloads: by then it is
    /// known whether the taint of its failure stays.
    pub(super) fn returned(&self, cluster: &str, taint: &Taint, now: Now) -> Option<Timestamp> {
        let rest = self.fleet.unjudged_for(cluster, taint, now.tick)?;
        Some(now.wall + jiff::SignedDuration::try_from(rest).ok()?)
    }

    pub(super) fn review_all(&mut self, binding: &AnyBinding, now: Now) {
        let key = self.key_of(binding);
        for target in &binding.spec.clusters {
            let name = self.share(&target.name);
            self.review(&name, &key, now);
        }
    }

    /// Puts a workload of a cluster where it belongs.
    pub(super) fn review(&mut self, cluster: &Arc<str>, key: &Key, now: Now) {
        let Some(binding) = self.bindings.get(key) else {
            self.backlog.remove(cluster, key);
            return;
        };
        if self.in_hand.contains_key(key) {
            self.missed.insert(key.clone());
            return;
        }
        if !self.fleet.taints(cluster).iter().any(evicts) {
            return;
        }
        let (state, place) = match self.judge(cluster, &binding, now) {
            Judgement::Stay(_) => {
                self.backlog.remove(cluster, key);
                self.note_stays(key, now);
                return;
            }
            Judgement::Leave { due, cause } => {
                let rank = Rank::new(binding.spec.priority(), due);
                if due <= now.wall {
                    self.state_of_due(cluster, &binding, &cause, rank, now)
                } else {
                    let is_back = self.returned(cluster, &cause.taint, now) == Some(due);
                    let mut cause = cause.to_string();
                    if is_back {
                        cause.push_str(", and is ready again, so that the taint may go");
                    }
                    let state = EvictionState::Tolerated {
                        cause: bounded(cause),
                        until: due,
                    };
                    (
                        state,
                        Slot::Waiting {
                            until: now.instant_of(due),
                            rank,
                        },
                    )
                }
            }
        };
        self.note(key.clone(), cluster, state);
        self.backlog.put(cluster, key.clone(), place);
    }

    /// Returns what becomes of a workload whose time has come: it waits while two copies of it
    /// might run.
    pub(super) fn state_of_due(
        &self,
        cluster: &str,
        binding: &AnyBinding,
        cause: &Cause,
        rank: Rank,
        now: Now,
    ) -> (EvictionState, Slot) {
        let waits = |state: fn(String, String) -> EvictionState, why: String, until: Instant| {
            let state = state(bounded(cause.to_string()), bounded(why));
            (state, Slot::Waiting { until, rank })
        };
        match self.fence_gate(cluster, binding, now) {
            FenceGate::Open if self.has_completed(binding, cluster).is_none() => {
                let why = "its template cannot be read, so that it is not known whether it \
                    has completed and would run again";
                let until = now.tick + UNREAD;
                waits(
                    |cause, why| EvictionState::Unread { cause, why },
                    why.to_owned(),
                    until,
                )
            }
            FenceGate::Open => (self.state_of_ready(cluster, cause, now), Slot::Ready(rank)),
            FenceGate::Until(until, why) => waits(
                |cause, why| EvictionState::Fencing { cause, why },
                why,
                until,
            ),
            FenceGate::Shut(why) => {
                let (cause, why) = (bounded(cause.to_string()), bounded(why));
                let until = now.tick + UNFENCED;
                (
                    EvictionState::Unfenced { cause, why },
                    Slot::Unfenced { until, rank },
                )
            }
        }
    }

    pub(super) fn fence_gate(&self, cluster: &str, binding: &AnyBinding, now: Now) -> FenceGate {
        let known = self.fleet.get(cluster);
        known.map_or(FenceGate::Open, |(_, cluster)| {
            (self.fence)(cluster, binding, now.tick)
        })
    }

    pub(super) fn is_on(&self, cluster: &str, key: &Key) -> bool {
        self.bindings
            .get(key)
            .is_some_and(|binding| binding.spec.target(cluster).is_some())
            && self.fleet.taints(cluster).iter().any(evicts)
    }

    /// Says whether the workload was to leave the cluster.
    pub(super) fn take_off(&mut self, cluster: &str, key: &Key) -> bool {
        let name = self.share(cluster);
        let waited = self.backlog.remove(&name, key);
        if self.failing.leaves(cluster, key) {
            self.failing.remove(key);
        }
        if let Some(keys) = self.on.get_mut(&name) {
            keys.remove(key);
            if keys.is_empty() {
                self.on.remove(&name);
            }
        }
        waited
    }
}
