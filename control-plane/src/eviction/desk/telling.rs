//! What the desk tells people: the band it works in, and the turn that each waiting item takes.

use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::conditions;

use super::super::backlog::Place;
use super::super::explain::{CONDITION, Note, Turn};
use super::super::fleet_view::evicts;
use super::super::judge::Cause;
use super::super::rate::Band;
use super::super::subject::Subject;
use super::{ClusterNote, Desk, Key, Now};

impl Desk {
    pub(super) fn turn_of_ready(&self, cause: &Cause) -> Turn {
        match self.band {
            Band::Stopped => Turn::Stopped {
                health: self.fleet.health(),
            },
            Band::Primary | Band::Secondary => Turn::Queued {
                cause: cause.to_string(),
            },
        }
    }

    pub(super) fn settle_band(&mut self, now: Now) {
        let health = self.fleet.health();
        let band = self.rates.band(health);
        if band == self.band {
            return;
        }
        let before = std::mem::replace(&mut self.band, band);
        let per_second = self.rates.per_second(band);
        self.budget.set_rate(per_second, now.tick);
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
            self.tell_of(&cluster, reason, message.clone());
        }
        if before == Band::Stopped || band == Band::Stopped {
            self.explain_ready_items(now);
        }
    }

    pub(super) fn explain_ready_items(&mut self, now: Now) {
        let lanes: Vec<Arc<str>> = self
            .backlog
            .depths()
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for cluster in lanes {
            let ready: Vec<Key> = self
                .backlog
                .items(&cluster)
                .filter(|(_, place)| matches!(place, Place::Ready(_)))
                .map(|(key, _)| key.clone())
                .collect();
            for key in ready {
                self.review(&cluster, &key, now);
            }
        }
    }

    /// A binding that says an eviction is pending although none is: the cluster recovered while nobody looked.
    pub(super) fn clear_stale(&mut self, subject: &Subject) {
        if !conditions::is_true(&subject.status().conditions, CONDITION) {
            return;
        }
        let targets = &subject.spec().clusters;
        let pending = targets
            .iter()
            .any(|target| self.fleet.taints(&target.name).iter().any(evicts));
        if let Some(target) = targets.first().filter(|_| !pending) {
            let name = self.share(&target.name);
            self.note(self.key_of(subject), &name, Turn::Recovered);
        }
    }

    pub(super) fn note(&mut self, key: Key, cluster: &str, turn: Turn) {
        self.news.bindings.push((
            key,
            Note {
                cluster: cluster.to_owned(),
                turn,
            },
        ));
    }

    pub(super) fn tell_of(&mut self, cluster: &Arc<str>, reason: &'static str, message: String) {
        self.news.clusters.push(ClusterNote {
            cluster: Arc::clone(cluster),
            reason,
            message,
        });
    }
}
