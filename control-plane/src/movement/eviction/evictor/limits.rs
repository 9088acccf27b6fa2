//! Limits of single clusters, beside the rate of the fleet: the own rate of a drain, and pauses.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use tokio::time::Instant;

use super::{Evictor, Now};
use crate::fleet::budget::rate::Budget;
use crate::movement::eviction::drain;

/// Budgets of the clusters that have a rate of their own.
#[derive(Debug, Default)]
pub(super) struct Limits {
    budgets: HashMap<Arc<str>, Budget>,
}

impl Limits {
    /// Sets the rate of a cluster from now on; with `None` the cluster has no rate of its own.
    fn set(&mut self, cluster: &Arc<str>, per_second: Option<f64>, now: Instant) {
        match (per_second, self.budgets.get_mut(cluster)) {
            (None, _) => {
                self.budgets.remove(cluster);
            }
            (Some(per_second), Some(known)) => known.set_rate(per_second, now),
            (Some(per_second), None) => {
                let budget = Budget::new(per_second, now);
                self.budgets.insert(Arc::clone(cluster), budget);
            }
        }
    }

    /// Evictions begin: what accrued before does not count.
    pub fn begin(&mut self, now: Instant) {
        for budget in self.budgets.values_mut() {
            *budget = Budget::new(budget.per_second(), now);
        }
    }

    /// Forgets a cluster that is not known any more.
    pub fn forget(&mut self, cluster: &str) {
        self.budgets.remove(cluster);
    }

    /// Pays for one workload that is about to leave a cluster.
    pub fn pay(&mut self, cluster: &str, now: Instant) {
        if let Some(budget) = self.budgets.get_mut(cluster) {
            // It was asked a moment ago whether the budget suffices.
            let _ = budget.pay(now);
        }
    }

    /// Returns whether the budget of a cluster suffices for one eviction. Nothing is paid.
    ///
    /// # Errors
    /// When it does again; `None` for never.
    fn suffices(&mut self, cluster: &str, now: Instant) -> Result<(), Option<Instant>> {
        let Some(budget) = self.budgets.get_mut(cluster) else {
            return Ok(());
        };
        if budget.suffices(now) {
            return Ok(());
        }
        budget.pay(now)
    }

    /// Refunds the payment for a workload that did not leave.
    pub fn refund(&mut self, cluster: &str) {
        if let Some(budget) = self.budgets.get_mut(cluster) {
            budget.refund();
        }
    }
}

/// Clusters that nothing may leave now, of those that were asked about.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub clusters: BTreeSet<Arc<str>>,
    /// Time at which the first of them may be left, if it depends on time alone.
    pub until: Option<Instant>,
}

impl Evictor {
    /// Returns whether nothing may leave a cluster now, which is among the held ones then.
    pub(super) fn is_held(&mut self, cluster: &Arc<str>, held: &mut Held, now: Now) -> bool {
        let when = if let Err(when) = self.limits.suffices(cluster, now.tick) {
            when
        } else if self.is_behind(cluster) {
            // Where the budget knows that a cluster is well, the change is on its way.
            None
        } else if let Some(pause) = self.pauses.of(cluster, now.wall) {
            pause.until.map(|until| now.instant_of(until))
        } else {
            return false;
        };
        held.until = held.until.into_iter().chain(when).min();
        held.clusters.insert(Arc::clone(cluster));
        true
    }

    /// Settles the rate of a cluster that is new or changed: it may have another rate now.
    pub(super) fn settle_limit(&mut self, name: &Arc<str>, cluster: &Cluster, now: Now) {
        match drain::rate(cluster, &self.switches) {
            Ok(rate) => self.limits.set(name, rate, now.tick),
            Err(fault) => {
                let known = self.limits.budgets.get(name);
                let is_update = known.is_none_or(|it| it.per_second() > 0.0);
                self.limits.set(name, Some(0.0), now.tick);
                if is_update && self.open {
                    self.report_rate(&Arc::from(cluster.name_any()), &fault.to_string());
                }
            }
        }
    }

    /// Reports that the rate of a drain cannot be read.
    pub(super) fn report_rate(&mut self, cluster: &Arc<str>, fault: &str) {
        let message = format!("no workload is evicted from it: {fault}");
        self.note_cluster(cluster, "DrainRateUnreadable", message);
    }

    /// Begins to apply the limits, and reports all clusters whose drain rate cannot be read:
    /// nothing was reported of them before evictions began.
    pub(super) fn begin_limits(&mut self, now: Now) {
        self.limits.begin(now.tick);
        let stopped: Vec<Arc<str>> = self
            .limits
            .budgets
            .iter()
            .filter(|(_, it)| it.per_second() <= 0.0)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in stopped {
            let known = self.fleet.get(&name);
            let fault = known.and_then(|(_, it)| drain::rate(it, &self.switches).err());
            if let Some(fault) = fault {
                self.report_rate(&name, &fault.to_string());
            }
        }
    }
}
