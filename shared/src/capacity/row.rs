//! One node of the census and the requests of its pods.

use std::sync::Arc;

use super::amounts::{Id, PODS, nano_per_unit};
use crate::quantity::Quantity;

/// The number of a list. A list that breaks off has one, too, so that what only an older list saw
/// is not taken for seen by the one after.
pub(super) type Round = u32;

/// A node name: what is known of the node, and what pods on it ask for. A row exists as long as
/// there is either.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub name: Arc<str>,
    pub node: Option<NodeRecord>,
    /// Pods that say they are here.
    pub pods: u32,
    pub used: Vec<(Id, i128)>,
}

#[derive(Debug, PartialEq)]
pub(super) struct NodeRecord {
    pub ready: bool,
    /// Whether it takes new pods.
    pub takes_pods: bool,
    pub allocatable: Vec<(Id, Quantity)>,
    pub round: Round,
}

impl Row {
    /// Returns whether another pod fits. A node that has not said what it offers takes none; places
    /// are read only once there are pods, as in Karmada.
    pub fn has_room(&self, node: &NodeRecord) -> bool {
        !node.allocatable.is_empty()
            && (self.pods == 0 || node.offer(PODS) > Some(self.used(PODS) * nano_per_unit(PODS)))
    }

    /// Returns what is left of a resource, in nano units; negative when more is asked for than
    /// there is. Of what the node does not have nothing can be left.
    pub fn free(&self, node: &NodeRecord, id: Id) -> i128 {
        node.offer(id).map_or(0, |offer| {
            offer.saturating_sub(self.used(id).saturating_mul(nano_per_unit(id)))
        })
    }

    pub fn used(&self, id: Id) -> i128 {
        self.used
            .iter()
            .find(|(known, _)| *known == id)
            .map_or(0, |(_, used)| *used)
    }
}

impl NodeRecord {
    /// Returns what the node offers of a resource, in nano units.
    pub fn offer(&self, id: Id) -> Option<i128> {
        let offer = self.allocatable.iter().find(|(known, _)| *known == id);
        offer.map(|(_, quantity)| quantity.nano())
    }
}
