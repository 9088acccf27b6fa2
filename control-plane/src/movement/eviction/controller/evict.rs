//! Carries out one eviction.

use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::k8s::Taint;

use super::Controller;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::fencing;
use crate::fleet::protection::{policy_of, protected_by};
use crate::movement::eviction::evictor::{Eviction, Now, Outcome, QueueReason};
use crate::movement::eviction::execute::{carry_out, plan_in};
use crate::movement::eviction::fleet_view::effective_taints;
use crate::movement::eviction::homes;
use crate::movement::eviction::judge::{self, Judgement};
use crate::movement::eviction::plan::{Departure, Nowhere};
use crate::movement::eviction::reason::EvictionReason;

/// Returns whether an eviction that was judged by the settings of a binding keeps the rules of its
/// policy as well, which the binding may not have yet.
fn is_as_strict(judged: &ResourceBindingSpec, policy: &ResourceBindingSpec) -> bool {
    let keeps = fencing::keeps_data(policy);
    let fences = fencing::asked(policy);
    // A workload without fencing leaves whether its policy preserves the copy or not.
    let is_preserved = fences.is_some() && policy.is_preserved_on_deletion();
    fences.is_none_or(|after| fencing::asked(judged).is_some_and(|it| it >= after))
        && (keeps.is_none() || keeps == fencing::keeps_data(judged))
        && (!fencing::runs_alone(policy) || fencing::runs_alone(judged))
        && (!is_preserved || judged.is_preserved_on_deletion())
}

/// Reason for which a workload stays whose policy is stricter than its binding.
const STRICTER: &str = "its policy says more of tolerations, failover, fencing, preservation or \
    replicated data than its binding, which follows: if that takes long, the conditions of the \
    policy say what it waits for";

/// Returns what becomes of an eviction that the policy of a workload does not ask for. `is_asked`
/// says whether its binding does, which has still to follow; otherwise it is judged anew.
fn overruled(is_asked: bool) -> Outcome {
    if is_asked {
        Outcome::Failed(STRICTER.to_owned())
    } else {
        Outcome::Conflict
    }
}

/// Runs one eviction: plan, one patch, and what that means.
pub(super) async fn evict(
    controller: Arc<Controller>,
    fleet: Arc<Fleet>,
    eviction: Arc<Eviction>,
) -> Outcome {
    let (controller, fleet) = (&*controller, &*fleet);
    let key = BindingKey::of(&eviction.binding);
    // A setting that protects counts from the moment at which it is in the policy.
    let policy = policy_of(fleet, &eviction.binding);
    let spec = &*protected_by(fleet, &eviction.binding, policy.as_ref());
    if !is_as_strict(&eviction.binding.spec, spec) {
        // The binding is about to say so, too, and is judged anew then.
        return Outcome::Failed(STRICTER.to_owned());
    }
    let now = fleet.clock.now();
    let applications = controller.applications();
    let judge = |said: &ResourceBindingSpec| {
        let applications = applications.as_ref()?;
        applications.judge(&eviction.binding, said, &eviction.cluster, now)
    };
    let failure = match eviction.reason {
        QueueReason::Taint(_) => None,
        QueueReason::Failure => judge(spec),
    };
    let (reason, purge_mode) = match (&eviction.reason, &failure) {
        (QueueReason::Taint(cause), _) => {
            let cluster = fleet.clusters.get(None, &eviction.cluster);
            let own = judge::placement(spec, eviction.binding.applied_placement());
            let placement = policy.as_ref().map(|it| &it.spec().placement);
            let placed = (spec, placement.or(own.as_deref()));
            if let Some(cluster) = cluster {
                let goes = |said| leaves(&cluster, said, &cause.taint, controller, now);
                if !goes(placed) {
                    return overruled(goes((&eviction.binding.spec, own.as_deref())));
                }
            }
            let purge_mode = judge::purge_mode(spec, &controller.switches, cause);
            (EvictionReason::Taint(cause), purge_mode)
        }
        (QueueReason::Failure, Some(failure)) => (failure.reason, failure.purge_mode.clone()),
        (QueueReason::Failure, None) => {
            return overruled(judge(&eviction.binding.spec).is_some());
        }
    };
    match fleet
        .confirmations
        .confirm(fleet, &[&eviction.cluster])
        .await
    {
        Ok(true) => {}
        Ok(false) => return Outcome::Conflict,
        Err(error) => return Outcome::Failed(error.to_string()),
    }
    let status = eviction.binding.status();
    let departure = Departure::new(spec, status, &eviction.cluster, reason, &purge_mode);
    let planning = controller.planning.lock().await;
    let snapshot = controller.evictor.lock().fleet_for(&eviction);
    let plan = match plan_in(fleet, &key, &departure, &snapshot, &controller.options, now) {
        Ok(mut plan) => {
            let to = plan.destination();
            let annotations = &mut plan.patch["metadata"]["annotations"];
            if let Some(failure) = &failure {
                let (name, value) = (failure.annotation)(to);
                annotations[name] = value;
            } else {
                let (meta, settings) = (&eviction.binding.metadata, &fleet.settings);
                let homes = homes::departed(meta, spec, &eviction.cluster, now, settings);
                for (name, value) in homes {
                    annotations[name] = value;
                }
            }
            plan
        }
        Err(nowhere) => return unplanned(fleet, &eviction.cluster, nowhere, now),
    };
    // A snapshot that nobody else reads is not copied when it changes.
    drop(snapshot);
    if fleet.settings.schedules(spec.scheduler_name.as_deref()) {
        let mut evictor = controller.evictor.lock();
        evictor.take_planned_room(&eviction, &plan.clusters, Now::by(&controller.clock));
    }
    drop(planning);
    let to = plan.destination();
    match carry_out(fleet, &eviction.binding, plan, &eviction.paid).await {
        Ok(binding) => {
            tracing::info!(binding = %key, cluster = %eviction.cluster, cause = %eviction.reason, to, mode = %purge_mode, "evicted");
            if let (Some(_), Some(applications)) = (&failure, &applications) {
                applications.moved(&binding);
            }
            Outcome::Evicted {
                // Until the cache shows it, and after an outage there are as many as it hit.
                binding: fleet.bindings.kept(binding),
                to,
                mode: purge_mode,
            }
        }
        Err(not_written) => {
            tracing::info!(binding = %key, cluster = %eviction.cluster, ?not_written, "not evicted");
            not_written
        }
    }
}

/// Returns what becomes of an eviction out of a cluster for which there is no plan.
fn unplanned(fleet: &Fleet, cluster: &str, nowhere: Nowhere, now: Timestamp) -> Outcome {
    match nowhere {
        Nowhere::State(why) => Outcome::Unpreserved(why),
        // No event tells when the template can be read, so that the eviction is tried again.
        Nowhere::Unread => Outcome::Failed(nowhere.to_string()),
        // The queue of the cluster is stopped by now, and says so of all that wait in it.
        Nowhere::Paused(_) if fleet.pauses.of(cluster, now).is_some() => Outcome::Conflict,
        Nowhere::Paused(why) => Outcome::Paused(why),
        nowhere => Outcome::Nowhere(nowhere.to_string()),
    }
}

/// Returns whether a workload still leaves a cluster because of a taint: the caches show a change
/// of a cluster or of a policy before the evictor is given it, and a pause may end between the two.
fn leaves(
    cluster: &Cluster,
    (spec, placement): (&ResourceBindingSpec, Option<&Placement>),
    taint: &Taint,
    controller: &Controller,
    now: Timestamp,
) -> bool {
    let judged = judge::judge(
        &effective_taints(cluster),
        spec,
        placement,
        &controller.switches,
        now,
    );
    let is_it = |it: &Taint| it.key == taint.key && it.effect == taint.effect;
    matches!(judged, Judgement::Leave { due, cause } if due <= now && is_it(&cause.taint))
}
