//! Which clusters count as failed.

use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::names::condition;
use muster_shared::taints;

/// Returns whether a taint can make workloads leave.
pub fn evicts(taint: &Taint) -> bool {
    taints::evicts(&taint.effect)
}

/// Returns whether a cluster has failed: a taint evicts from it, whoever put it there (the
/// proposal's definition: a person who drains most of a fleet is as likely to be mistaken as a
/// monitor), or it is known not to be ready. Readiness counts because clusters that fail together
/// get their taints one after the other, and the first must not count as the only one. They return
/// one after the other, too: one that is back counts until its taints are gone, so that the first
/// ones do not set free what is in the last. A cluster that is still to report has not failed; it
/// has not begun. Its Ready is Unknown once its start-up grace is over.
pub fn has_failed(cluster: &Cluster) -> bool {
    let ready = cluster.condition_status(condition::READY);
    let not_ready = ready.is_some_and(|ready| ready != conditions::TRUE);
    not_ready || cluster.spec.taints.iter().any(evicts)
}

/// Returns whether a cluster counts when the failed part of the fleet is computed: it has begun,
/// and stays. Clusters that were registered and are still to report, and those that are being
/// removed, would make a failing fleet look healthy.
pub fn is_counted(cluster: &Cluster) -> bool {
    let has_begun = cluster.condition(condition::READY).is_some();
    cluster.metadata.deletion_timestamp.is_none() && (has_begun || has_failed(cluster))
}
