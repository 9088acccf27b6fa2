//! Nodes and pods that are there and do not decode.
//!
//! What is known of them stays, as if they had not changed. Of a node that was never read nothing
//! is known: it is left out of the counts, unless no other node is known. Then there are no counts,
//! which would say that the cluster has no nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Census, uid};
use crate::watch::pages::Rejected;

impl Census {
    /// Keeps what is known of a pod that does not decode, or forgets it if it was deleted. Returns
    /// whether the counts may have changed.
    pub fn keep_pod(&mut self, rejected: &Rejected) -> bool {
        let text = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
        let uid = uid(&ObjectMeta {
            name: text(&rejected.name),
            namespace: text(&rejected.namespace),
            uid: rejected.uid.as_deref().map(str::to_owned),
            ..ObjectMeta::default()
        });
        if rejected.deleted {
            return self.remove_pod(uid);
        }
        if let Some(known) = self.pods.get_mut(&uid) {
            known.round = self.pod_list.round;
        }
        false
    }

    /// Keeps what is known of a node that does not decode, or forgets it if it was deleted. Returns
    /// whether the counts may have changed.
    pub fn keep_node(&mut self, rejected: &Rejected) -> bool {
        if rejected.deleted {
            return self.forget_node(&rejected.name);
        }
        let round = self.node_list.round;
        if let Some(id) = self.known_node(&rejected.name)
            && let Some(known) = &mut self.rows[id as usize].node
        {
            known.round = round;
        } else {
            self.unread.insert(rejected.name.clone(), round);
        }
        false
    }

    /// Returns whether there are nodes, and nothing is known of any of them.
    pub(super) fn is_all_unread(&self) -> bool {
        !self.unread.is_empty() && self.rows.iter().all(|row| row.node.is_none())
    }

    /// Forgets the unread nodes that the list that ends did not contain. Returns whether there were
    /// any.
    pub(super) fn forget_unread(&mut self) -> bool {
        let (before, round) = (self.unread.len(), self.node_list.round);
        self.unread.retain(|_, seen| *seen == round);
        self.unread.len() < before
    }
}
