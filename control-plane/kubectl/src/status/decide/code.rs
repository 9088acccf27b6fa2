//! Whether something needs attention, as the exit code of the command.

use super::not_well::Ordered;
use super::{PAUSED, Report, WAITING_FOR_RATE, WAITING_FOR_TOLERATION, Waiting, cluster_of};
use crate::output::UNREAD;

/// Reasons of a failing application that does not have to leave yet: it is tolerated, or its
/// cluster is not ready, so that taints decide, or was so until a moment ago.
const NOT_YET: [&str; 3] = [WAITING_FOR_TOLERATION, "ClusterNotReady", "ClusterReturned"];

impl Report {
    /// Returns whether a control plane has led and none does. One that acts without an election has
    /// no lease.
    pub(in super::super) fn nobody_leads(&self) -> bool {
        !self.leader.acts && self.leader.renewed.is_some()
    }

    /// Returns whether the fleet API answers, and lets the caller read too little.
    pub(in super::super) fn is_refused(&self) -> bool {
        self.is_blind && self.unread.iter().all(|it| it.contains("(403 "))
    }

    /// Returns the failing applications that have to leave a cluster, and stay.
    pub(in super::super) fn stuck(&self) -> impl Iterator<Item = &Waiting> {
        let all = self.applications.iter();
        all.filter(|it| !NOT_YET.contains(&it.reason.as_str()))
    }

    /// Returns whether a workload waits for the end of a pause, or for its turn to leave a cluster
    /// that is drained.
    fn is_ordered(&self, waiting: &Waiting) -> bool {
        let mut drained = self.drained();
        match waiting.reason.as_str() {
            PAUSED => true,
            WAITING_FOR_RATE => cluster_of(&waiting.message)
                .is_some_and(|cluster| drained.any(|it| it.name == cluster)),
            _ => false,
        }
    }

    /// Returns what [`Self::code_without`] does, of everything.
    #[cfg(test)]
    pub(in super::super) fn code(&self) -> u8 {
        self.code_without(false)
    }

    /// Returns whether something needs attention: 2 if clusters or workloads could not be read, 1
    /// if something is not well or a pause of the fleet could not be read, else 0. What people
    /// ordered is left out if `orders` says so.
    pub(in super::super) fn code_without(&self, orders: bool) -> u8 {
        let waits = |it: &Waiting| !(orders && self.is_ordered(it));
        let is_in_need = |it: &Ordered| it.fault.is_some() || it.is_incomplete();
        let is_well = self.leader.acts
            && self.not_well.is_empty()
            && (orders || self.ordered.is_empty() && self.paused.is_empty())
            && !self.ordered.iter().any(is_in_need)
            && self.unknown == 0
            && !self.may_be_paused
            && self.expires.is_empty()
            && !self.waiting.iter().any(waits)
            && self.stranded.is_empty()
            && self.unplaced.is_empty()
            && !self.stuck().any(waits)
            && self.held_back.is_empty()
            && self.without_dependencies.is_empty()
            && self.unpublished.is_empty()
            && self.service.without.count == 0
            && self.service.failing.count == 0;
        match (self.is_blind, is_well) {
            (true, _) => UNREAD,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
}
