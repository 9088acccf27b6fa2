//! Plans and writes the eviction of a workload, whatever the reason for it is.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::policy::PurgeMode;
use muster_shared::client::{self, is_gone};
use muster_shared::names::annotation::DESELECTED;
use serde_json::json;

use super::evictor::Outcome;
use super::plan::{Departure, Nowhere, Plan, plan};
use crate::fleet::api_error::may_be_written;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Paid;
use crate::fleet::completion::{is_job, leaves_undone};
use crate::fleet::write::{merge, merge_status};
use crate::fleet::{Fleet, copy};
use crate::scheduler::core::{Options, Snapshot, deselected};
use crate::settings::STATEFUL_FAILOVER_INJECTION;

/// Returns what the error of a write says of an eviction.
fn not_written(error: &kube::Error) -> Outcome {
    match error {
        error if client::is_conflict(error) => Outcome::Conflict,
        error if is_gone(error) => Outcome::Gone,
        error if may_be_written(error) => Outcome::Unclear(client::brief(error)),
        error => Outcome::Failed(client::brief(error)),
    }
}

/// Plans how the workload of a binding leaves a cluster in the fleet as it is now, which says what
/// is in its way.
///
/// # Errors
/// The workload cannot leave now.
pub fn plan_in(
    fleet: &Fleet,
    key: &BindingKey,
    departure: &Departure<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
) -> Result<Plan, Nowhere> {
    let Departure { spec, status, .. } = *departure;
    let departure = Departure {
        preserves_state: fleet.settings.gate(&STATEFUL_FAILOVER_INJECTION),
        ours: fleet.settings.schedules(spec.scheduler_name.as_deref()),
        obstacle: &|cluster| copy::obstacle(fleet, spec, cluster),
        pause: &|cluster| fleet.pauses.of(cluster, fleet.clock.now()),
        ..*departure
    };
    plan_whole(&departure, snapshot, options, now, &|after| {
        let works = fleet.work_index.of(key);
        let works = works.iter().filter(|it| !fleet.deleted_works.is_to_go(it));
        let reports = &status.aggregated_status;
        leaves_undone(fleet, after, works.map(AsRef::as_ref), reports)
    })
}

/// Plans a departure after which each part of a Job runs somewhere. Where its copy goes at once,
/// `undone` says of the binding after it whether a part would run nowhere: a cluster with a Job of
/// its own takes no more completions. `None` means that this is not known.
///
/// # Errors
/// The workload cannot leave now.
pub fn plan_whole(
    departure: &Departure<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
    undone: &dyn Fn(&ResourceBindingSpec) -> Option<bool>,
) -> Result<Plan, Nowhere> {
    let Departure { spec, cluster, .. } = *departure;
    let goes_at_once = *departure.purge_mode == PurgeMode::Directly;
    let planned = |options: &Options| -> Result<(Plan, Option<bool>), Nowhere> {
        let plan = plan(departure, snapshot, options, now)?;
        if !goes_at_once || !is_job(&spec.resource) {
            return Ok((plan, Some(false)));
        }
        let after = ResourceBindingSpec {
            clusters: plan.clusters.clone(),
            ..spec.clone()
        };
        let undone = undone(&after);
        Ok((plan, undone))
    };
    let (mut plan, mut undone) = planned(options)?;
    // The part of a Job goes to a cluster without one, if such a cluster fits beside the others.
    // Where these do not stay, as in another affinity group, their parts would run again.
    if undone == Some(true)
        && let Ok(other) = planned(&options.elsewhere())
        && others_stay(spec, cluster, &other.0.clusters)
    {
        (plan, undone) = other;
    }
    match undone {
        Some(false) => Ok(plan),
        Some(true) => Err(Nowhere::Again),
        None => Err(Nowhere::Unread),
    }
}

/// Returns whether a workload stays in all of its clusters but the one that it leaves.
fn others_stay(spec: &ResourceBindingSpec, leaves: &str, chosen: &[TargetCluster]) -> bool {
    let mut others = spec.clusters.iter().filter(|it| it.name != leaves);
    others.all(|other| chosen.iter().any(|it| it.name == other.name))
}

/// Writes a plan upon the binding that it was made for; gives the binding as it is then. The
/// payment is kept, unless it is known that nothing was moved.
///
/// # Errors
/// The outcome of an eviction that did not take place, or of which that is not known.
pub async fn carry_out(
    fleet: &Fleet,
    binding: &AnyBinding,
    mut plan: Plan,
    paid: &Paid,
) -> Result<AnyBinding, Outcome> {
    if !fleet.leadership.is_current() {
        // Another replica leads by now.
        return Err(Outcome::Conflict);
    }
    plan.patch["metadata"]["resourceVersion"] = json!(binding.metadata.resource_version);
    // What another scheduler chooses is not known yet.
    let scheduler = binding.spec.scheduler_name.as_deref();
    if fleet.settings.schedules(scheduler)
        && let Some(names) = deselected::after_move(binding, &plan.clusters)
    {
        plan.patch["metadata"]["annotations"][DESELECTED] = names;
    }
    let key = BindingKey::of(binding);
    let api = key.api(&fleet.client);
    let written = merge(&api, &key.name, &plan.patch).await;
    paid.settle(&written);
    let binding = written.map_err(|error| not_written(&error))?;
    if let Some(note) = lost_state(&binding.spec) {
        fleet.warn(&binding, "StateNotHandedOn", note);
    }
    if let Some(name) = plan.affinity_name {
        // Where it is lost, the scheduler comes to the same group by itself.
        let status = json!({"status": {"schedulerObservingAffinityName": name}});
        if let Err(error) = merge_status(&api, &key.name, &status).await {
            tracing::debug!(binding = %key, error = client::brief(&error), "cannot note the affinity group");
        }
    }
    Ok(binding)
}

/// Returns what to say of a state that a move has preserved for a new copy and that this one is not
/// given, since the workload has other copies, too (as in Karmada).
fn lost_state(spec: &ResourceBindingSpec) -> Option<String> {
    // One copy is given it.
    spec.copies().nth(1)?;
    let is_meant = |target: &&TargetCluster| {
        let state = spec.state_given(&target.name);
        state.is_some_and(|it| !it.is_empty())
    };
    let meant = spec.copies().find(is_meant)?;
    Some(format!(
        "the new copy in {} gets none of the old one's state: statePreservation passes it on only where a workload has one target",
        meant.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_one_of_several_targets_would_need_is_reported_to_be_lost() {
        for (what, targets, state, mode, expected) in [
            (
                "one target",
                &["m3"][..],
                json!({"job": "7"}),
                "Directly",
                false,
            ),
            (
                "two",
                &["m2", "m3"],
                json!({"job": "7"}),
                "Immediately",
                true,
            ),
            (
                "none of them new",
                &["m1", "m2"],
                json!({"job": "7"}),
                "Directly",
                false,
            ),
            ("no state", &["m2", "m3"], json!({}), "Directly", false),
            (
                "no state for a new one",
                &["m2", "m3"],
                json!({"job": "7"}),
                "Gracefully",
                false,
            ),
        ] {
            let targets = targets
                .iter()
                .map(|it| json!({ "name": it, "replicas": 1 }));
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "clusters": targets.collect::<Vec<_>>(),
                "gracefulEvictionTasks": [{
                    "fromCluster": "m1", "purgeMode": mode, "reason": "r", "producer": "p",
                    "preservedLabelState": state, "clustersBeforeFailover": ["m1", "m2"],
                }],
            }))
            .unwrap();
            let note = lost_state(&spec);
            assert_eq!(note.is_some(), expected, "{what}: {note:?}");
        }
    }

    #[test]
    fn whoever_goes_to_another_group_leaves_more_than_one_cluster() {
        let targets = |names: &[&str]| -> Vec<TargetCluster> {
            let targets = names.iter().map(|it| json!({ "name": it, "replicas": 1 }));
            serde_json::from_value(targets.collect()).unwrap()
        };
        let spec = ResourceBindingSpec {
            clusters: targets(&["m1", "m2"]),
            ..ResourceBindingSpec::default()
        };
        for (chosen, expected) in [(&["m2", "m3"][..], true), (&["m3"], false), (&["m2"], true)] {
            assert_eq!(
                others_stay(&spec, "m1", &targets(chosen)),
                expected,
                "{chosen:?}"
            );
        }
    }

    #[test]
    fn the_answer_to_a_write_that_failed_says_whether_anything_was_evicted() {
        for (code, name, expected) in [
            (409, "web", "Conflict"),
            (404, "web", "Gone"),
            // The kind is not served now: the workload is still there.
            (404, "", "Failed"),
            (403, "web", "Failed"),
            (422, "web", "Failed"),
            (429, "", "Failed"),
            (500, "", "Unclear"),
            (504, "", "Unclear"),
        ] {
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                _ => "Other",
            };
            let details = serde_json::from_value(json!({ "name": name }));
            let status = kube::core::Status::failure("", reason).with_code(code);
            let status = status.with_details(details.unwrap());
            let outcome = not_written(&kube::Error::Api(status.boxed()));
            let outcome = format!("{outcome:?}");
            assert!(outcome.starts_with(expected), "{code} {name}: {outcome}");
        }
    }
}
