//! Taints by policy: which ClusterTaintPolicy wants which taint on which cluster, since when, and who may take it off.

mod controller;
pub mod decide;
pub mod policy;
pub mod record;
pub mod window;

#[cfg(test)]
mod conformance;

pub use controller::start;

use std::sync::Arc;

use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterAffinity;

use crate::scheduler::Snapshot;
use crate::scheduler::affinity::Matcher;

/// Whether an affinity selects a cluster: the scheduler's own rule.
pub fn selects(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    let snapshot = Snapshot::new([Arc::new(cluster.clone())]);
    snapshot
        .iter()
        .all(|facts| Matcher::new(affinity).matches(facts))
}
