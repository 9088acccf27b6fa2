//! Reports of the eviction queue: its rate band, and the state of each waiting item.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::taints::{self, is_drain};

use super::{ClusterNote, Evictor, Key, Now};
use crate::fleet::budget::rate::Band;
use crate::movement::eviction::backlog::{Depth, Slot};
use crate::movement::eviction::explain::{CONDITION, EvictionState, Note, names_cluster};
use crate::movement::eviction::fleet_view::evicts;
use crate::movement::eviction::judge::Judgement;
use crate::movement::eviction::record::{Record, bounded};

/// Last report about a cluster's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Workloads that left.
    pub left: usize,
    /// The number above and what remained, when it was reported last.
    reported: Option<(usize, Depth)>,
}

impl Evictor {
    /// Says what a cluster's taints mean for its workloads.
    pub(super) fn report_queue(&mut self, cluster: &Arc<str>) {
        let all = self.on.get(cluster).map_or(0, HashSet::len);
        if all == 0 {
            return;
        }
        if !self.switches.failover && !self.fleet.taints(cluster).iter().any(is_drain) {
            let message = format!(
                "its taints move none of its workloads ({all}): the feature gate Failover is off"
            );
            return self.note_cluster(cluster, "EvictionOff", message);
        }
        let depth = self.backlog.depth(cluster);
        // Each was judged anew a moment ago: what is stranded has an old copy that nothing stops.
        let queued = depth.ready + depth.stranded;
        let (reason, stay) = match (queued, depth.waiting) {
            (0, 0) => ("EvictionTolerated", all),
            (0, waiting) => ("EvictionAwaitsToleration", all - waiting),
            (queued, waiting) => ("EvictionQueued", all - queued - waiting),
        };
        let unfenced = match depth.stranded {
            0 => String::new(),
            unfenced => format!(" ({unfenced} of them have an old copy that nothing stops)"),
        };
        let message = format!(
            "workloads in it: {all}; to leave it now: {queued}{unfenced}, when tolerations have run out: {}, to stay: {stay}",
            depth.waiting
        );
        self.note_cluster(cluster, reason, message);
    }

    /// Says how far the queue of a cluster has come, once there is nothing to be done in it for
    /// the moment.
    pub(super) fn report_progress(&mut self, cluster: &Arc<str>) {
        let depth = self.backlog.depth(cluster);
        if depth.ready > 0 || self.in_hand.values().any(|from| from == cluster) {
            return;
        }
        let known = self.tallies.get(cluster).copied().unwrap_or_default();
        let now = Some((known.left, depth));
        if known.reported == now || known.left == 0 && depth.stranded == 0 {
            return;
        }
        let tally = self.tallies.entry(Arc::clone(cluster)).or_default();
        tally.reported = now;
        let reason = if depth.stranded > 0 {
            "EvictionNowhereToGo"
        } else {
            "Evicted"
        };
        let message = format!(
            "workloads that have left it: {}; that cannot leave it: {}, waiting for tolerations to run out: {}",
            tally.left, depth.stranded, depth.waiting
        );
        self.note_cluster(cluster, reason, message);
    }

    pub(super) fn state_of_ready(
        &self,
        cluster: &str,
        cause: &impl fmt::Display,
        now: Now,
    ) -> EvictionState {
        let cause = bounded(cause.to_string());
        if let Some(pause) = self.pauses.of(cluster, now.wall) {
            let why = pause.to_string();
            return EvictionState::Paused { cause, why };
        }
        match self.band {
            Band::Stopped => EvictionState::Stopped { cause },
            Band::Primary | Band::Secondary => EvictionState::Queued { cause },
        }
    }

    pub(super) fn settle_band(&mut self, now: Now) {
        let health = self.health();
        let band = self.pace.band();
        if band == self.band {
            return;
        }
        let before = std::mem::replace(&mut self.band, band);
        let per_second = self.pace.per_second();
        let (reason, what) = match band {
            Band::Primary => (
                "EvictionResumed",
                "workloads are evicted at the primary rate",
            ),
            Band::Secondary => (
                "EvictionSlowed",
                "workloads are evicted at the secondary rate",
            ),
            Band::Stopped => ("EvictionStopped", "no workload is evicted"),
        };
        let message = format!(
            "{} of {} clusters have failed: {what} ({per_second} per second)",
            health.failed, health.total
        );
        let failed: Vec<Arc<str>> = self
            .fleet
            .failed()
            .map(|cluster| Arc::from(cluster.name_any()))
            .collect();
        for cluster in failed {
            self.note_cluster(&cluster, reason, message.clone());
        }
        if before == Band::Stopped || band == Band::Stopped {
            self.explain_ready_items(now);
        }
    }

    /// Tells workloads that wait that a pause began, changed or ended. What is told of a pause to a
    /// cluster stands beside its condition.
    pub fn pauses_changed(&mut self, now: Now) {
        if !self.open {
            return;
        }
        // An eviction that takes from other clusters as well waits for their pauses, too.
        self.wake = Some(now.tick);
        self.explain_ready_items(now);
    }

    pub(super) fn explain_ready_items(&mut self, now: Now) {
        self.report_failing();
        for cluster in self.backlog.clusters() {
            let ready: Vec<Key> = self
                .backlog
                .items(&cluster)
                .filter(|(_, place)| matches!(place, Slot::Ready(_)))
                .map(|(key, _)| key.clone())
                .collect();
            for key in ready {
                self.review(&cluster, &key, now);
            }
        }
    }

    /// Reports what was not reported because no process was running, or because the cache lacked
    /// the binding or the cluster meanwhile: an eviction that took place, or that none is pending
    /// now since the cluster recovered, or the workload was moved.
    pub(super) fn report_missed(&mut self, binding: &AnyBinding) {
        let conditions = &binding.status().conditions;
        if let Some(Note { cluster, state }) = to_publish(binding) {
            return self.note(self.key_of(binding), &cluster, state);
        }
        let Some(reported) = conditions::get(conditions, CONDITION) else {
            return;
        };
        let targets = &binding.spec.clusters;
        // A cluster that a list lacks may drive it out: it is judged again with that.
        if targets.iter().any(|it| self.fleet.get(&it.name).is_none()) {
            return;
        }
        let is_pending = targets
            .iter()
            .any(|target| self.fleet.taints(&target.name).iter().any(evicts));
        if reported.status != conditions::TRUE || is_pending {
            return;
        }
        let named = targets
            .iter()
            .find(|target| names_cluster(&reported.message, &target.name));
        let (cluster, state) = match named {
            Some(target) => (target.name.clone(), EvictionState::Recovered),
            None => (
                "the cluster it had to leave".to_owned(),
                EvictionState::Moved,
            ),
        };
        self.note(self.key_of(binding), &cluster, state);
    }

    /// Notes that a workload does not have to leave a cluster any more, for another reason than an
    /// eviction that was answered: an eviction whose answer was lost, because somebody else moved
    /// it, because the cluster recovered or is not known any more.
    pub(super) fn note_end(&mut self, key: &Key, cluster: &str) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        let state = if binding.spec.target(cluster).is_none() {
            let evicted = to_publish(&binding).filter(|note| note.cluster == cluster);
            evicted.map_or(EvictionState::Moved, |note| note.state)
        } else if self.fleet.get(cluster).is_some() {
            EvictionState::Recovered
        } else {
            self.state_without(cluster)
        };
        self.note(Arc::clone(key), cluster, state);
    }

    /// Returns the state of an eviction out of a cluster that is not known any more.
    pub(super) fn state_without(&self, cluster: &str) -> EvictionState {
        if self.fleet.has_left(cluster) {
            EvictionState::ClusterGone
        } else {
            EvictionState::ClusterUnseen
        }
    }

    /// Returns why a workload that was to leave a cluster is not there any more: somebody moved it,
    /// or it was evicted by a write whose answer was lost, or by another process.
    pub(super) fn state_of_moved(
        &mut self,
        old: Option<&AnyBinding>,
        new: &AnyBinding,
        cluster: &str,
    ) -> EvictionState {
        let record = |binding: &AnyBinding| Record::read(binding.metadata.annotations.as_ref());
        let is_new =
            |found: &Record| found.from == cluster && old.and_then(record) != Some(found.clone());
        match record(new).filter(is_new) {
            Some(record) => {
                self.count_left(cluster);
                record.note().state
            }
            None => EvictionState::Moved,
        }
    }

    pub(super) fn count_left(&mut self, cluster: &str) {
        let cluster = self.share(cluster);
        self.tallies.entry(cluster).or_default().left += 1;
    }

    /// Notes for all clusters that drive others out why the workload stays there. All are noted at
    /// once, so that the explanation does not depend on which cluster changed last.
    pub(super) fn note_stays(&mut self, key: &Key, now: Now) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        let mut stays = Vec::new();
        for target in &binding.spec.clusters {
            let taints = self.fleet.taints(&target.name).iter();
            let taints: Vec<&Taint> = taints.filter(|it| evicts(it)).collect();
            if taints.is_empty() {
                continue;
            }
            let added = |taint: &&Taint| taint.time_added.as_ref().map(|it| it.0);
            let since: Option<Vec<_>> = taints.iter().map(added).collect();
            let since = since.and_then(|all| all.into_iter().max());
            let taints: Vec<String> = taints.into_iter().map(taints::describe).collect();
            if let Judgement::Stay(rule) = self.judge(&target.name, &binding, now) {
                let taints = bounded(format!("taint {}", taints.join(" and ")));
                stays.push((
                    target.name.clone(),
                    EvictionState::Stays {
                        rule,
                        taints,
                        since,
                    },
                ));
            }
        }
        for (cluster, state) in stays {
            self.note(key.clone(), &cluster, state);
        }
    }

    pub(super) fn note(&mut self, key: Key, cluster: &str, state: EvictionState) {
        self.reports.bindings.push((
            key,
            Note {
                cluster: cluster.to_owned(),
                state,
            },
        ));
    }

    pub(super) fn note_cluster(
        &mut self,
        cluster: &Arc<str>,
        reason: &'static str,
        message: String,
    ) {
        self.reports.clusters.push(ClusterNote {
            cluster: Arc::clone(cluster),
            reason,
            message,
        });
    }
}

/// Returns the note of the last eviction of a workload, if it has not been reported yet.
fn to_publish(binding: &AnyBinding) -> Option<Note> {
    let record = Record::read(binding.metadata.annotations.as_ref())?;
    let reported = record.is_reported(&binding.status().conditions);
    (!reported).then(|| record.note())
}
