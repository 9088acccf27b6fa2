//! Whether a binding has to be scheduled, or is where it should be.

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::policy::{Placement, ReplicaSchedulingType};

use super::affinity::term;
use super::pass::is_reschedule_requested;
use super::snapshot::Snapshot;

/// Why a binding has to be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The placement is not the one that was applied last.
    PlacementChanged,
    /// The targets do not add up to the replicas of the workload.
    ReplicasChanged,
    /// Somebody asked for it since it was scheduled last.
    RescheduleRequested,
    /// Nothing that is divided: each event may change which clusters fit (Karmada behaviour).
    NotDivided,
    /// A target is being deleted.
    TargetDeleting,
}

/// The first reason to schedule a binding, or none. `applied` is the placement that was applied last, as the
/// annotation has it.
pub fn need(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    applied: Option<&str>,
    snapshot: &Snapshot,
) -> Option<Need> {
    let placement = spec.placement.as_ref()?;
    let observed = status
        .scheduler_observed_affinity_name
        .as_deref()
        .unwrap_or_default();
    if is_placement_changed(placement, applied.unwrap_or_default(), observed) {
        Some(Need::PlacementChanged)
    } else if is_replicas_changed(spec, placement) {
        Some(Need::ReplicasChanged)
    } else if is_reschedule_requested(spec, status) {
        Some(Need::RescheduleRequested)
    } else if !spec.is_workload() || !is_divided(placement) {
        Some(Need::NotDivided)
    } else if is_target_deleting(spec, snapshot) {
        Some(Need::TargetDeleting)
    } else {
        None
    }
}

/// Whether a part of the placement changed that the result depends on.
///
/// Of ordered affinity groups only the one in use matters: editing the others moves nothing (Karmada behaviour).
/// A record that cannot be read counts as changed, since nobody knows what was applied.
fn is_placement_changed(placement: &Placement, applied: &str, observed: &str) -> bool {
    let Ok(applied) = serde_json::from_str::<Placement>(applied) else {
        return true;
    };
    if *placement == applied {
        return false;
    }
    placement.cluster_affinity != applied.cluster_affinity
        || placement.cluster_tolerations != applied.cluster_tolerations
        || placement.spread_constraints != applied.spread_constraints
        || placement.replica_scheduling != applied.replica_scheduling
        || match (term(placement, observed), term(&applied, observed)) {
            (Some(now), Some(then)) => now != then,
            _ => true,
        }
}

/// Whether the replicas are divided over clusters, rather than all given to each.
pub(super) fn is_divided(placement: &Placement) -> bool {
    placement
        .replica_scheduling
        .as_ref()
        .is_some_and(|scheduling| {
            scheduling.replica_scheduling_type != Some(ReplicaSchedulingType::Duplicated)
        })
}

fn is_replicas_changed(spec: &ResourceBindingSpec, placement: &Placement) -> bool {
    if is_divided(placement) {
        let placed: i64 = spec
            .clusters
            .iter()
            .map(|target| i64::from(target.replicas))
            .sum();
        placed != i64::from(spec.replicas)
    } else {
        placement.replica_scheduling.is_some()
            && spec
                .clusters
                .iter()
                .any(|target| target.replicas != spec.replicas)
    }
}

fn is_target_deleting(spec: &ResourceBindingSpec, snapshot: &Snapshot) -> bool {
    spec.clusters.iter().any(|target| {
        snapshot
            .get(&target.name)
            .is_some_and(super::snapshot::Facts::is_deleting)
    })
}
