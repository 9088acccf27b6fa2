//! Events and log lines about schedules that changed something.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::names::condition::SCHEDULED;
use muster_shared::selectors::MOST_REQUIREMENTS;

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::scheduler::core::bounds::{MOST_AFFINITIES, size_of_groups, size_of_weights};
use crate::scheduler::core::outcome::{Outcome, Placed};
use crate::scheduler::core::record::is_digest;
use crate::scheduler::core::report::Verdict;

/// Affinity groups that failed before the one in use, of which so many are said.
const MOST_NOTES: usize = 10;

/// Reports what came of a pass, when it has changed. `binding` is as it was before.
pub(super) fn report(fleet: &Fleet, binding: &AnyBinding, outcome: &Outcome) {
    if outcome.failure.is_some() {
        if let Some(verdict) = &outcome.report.scheduled {
            report_failure(fleet, binding, verdict);
        }
        return;
    }
    let Some(placed) = &outcome.placed else {
        return;
    };
    if placed.clusters == binding.spec.clusters {
        return;
    }
    for attempt in outcome.attempts.iter().take(MOST_NOTES) {
        if let Some(failure) = &attempt.failure {
            let note = format!("affinity group {}: {failure}", attempt.group);
            publish(fleet, binding, EventType::Warning, note);
        }
    }
    let result = result_text(&placed.clusters);
    tracing::info!(binding = %BindingKey::of(binding), need = ?outcome.need, result, "placed");
    let note = success_note(&placed.clusters);
    publish(fleet, binding, EventType::Normal, note);
    for reservation in reservations(&binding.spec, placed) {
        publish(fleet, binding, EventType::Warning, reservation);
    }
}

/// Returns what of a placement was not done, or not as usual.
fn reservations(spec: &ResourceBindingSpec, placed: &Placed) -> Vec<String> {
    let Some(placement) = spec.placement.as_deref() else {
        return Vec::new();
    };
    let mut reported = Vec::new();
    if placement.workload_affinity.is_some() {
        reported.push(
            "placement.workloadAffinity has no effect: workloads are placed without regard to each other".to_owned(),
        );
    }
    if is_digest(&placed.applied_placement) {
        reported.push(
            "the placement is too long for the annotation that keeps the one applied last: a digest stands there, \
             and any change of the placement counts as one that concerns the result".to_owned(),
        );
    }
    let weights = placement.replica_scheduling.as_ref();
    let weights = weights.and_then(|scheduling| scheduling.weight_preference.as_ref());
    let weights = weights.map_or(&[][..], |weights| &weights.static_weight_list);
    for (field, size) in [
        (
            "clusterAffinities",
            size_of_groups(&placement.cluster_affinities),
        ),
        (
            "replicaScheduling.weightPreference.staticWeightList",
            size_of_weights(weights),
        ),
    ] {
        if !size.fits() {
            reported.push(format!(
                "placement.{field} selects clusters in {} ways with {} requirements, of which one decision looks at the first \
                 {MOST_AFFINITIES} with {MOST_REQUIREMENTS} requirements; the others have no effect: \
                 select by fewer labels, or name the clusters",
                size.affinities, size.requirements
            ));
        }
    }
    reported
}

/// Says why a binding has no result, or not the one that it was to get, when that has changed.
pub(super) fn report_failure(fleet: &Fleet, binding: &AnyBinding, verdict: &Verdict) {
    let Verdict {
        reason, message, ..
    } = verdict;
    let known = conditions::get(&binding.status().conditions, SCHEDULED);
    if known.is_none_or(|known| known.message != *message) {
        tracing::warn!(binding = %BindingKey::of(binding), reason, message, "no placement");
        publish(fleet, binding, EventType::Warning, message.clone());
    }
}

/// Says that a task is not placed because nobody can say whether it has completed.
pub(super) fn report_unread(fleet: &Fleet, binding: &AnyBinding) {
    let note = "its clusters do not report whether it has completed, and the fleet API does not show its template, which would say so: \
                it is placed nowhere else meanwhile, since what has completed would run again. Is its kind served, and readable for the \
                control plane?";
    tracing::warn!(binding = %BindingKey::of(binding), "{note}");
    publish(fleet, binding, EventType::Warning, note.to_owned());
}

/// Publishes an event on the binding and one on its template.
fn publish(fleet: &Fleet, binding: &AnyBinding, kind: EventType, note: String) {
    let reason = match kind {
        EventType::Normal => "ScheduleBindingSucceed",
        EventType::Warning => "ScheduleBindingFailed",
    };
    fleet.publish(binding, kind, reason, note);
}

/// Returns what is said of a binding that was placed.
pub(super) fn success_note(clusters: &[TargetCluster]) -> String {
    format!(
        "Binding has been scheduled successfully. Result: {}",
        result_text(clusters)
    )
}

/// Returns a result as Karmada writes it: `{m1:2, m2:1}`.
fn result_text(clusters: &[TargetCluster]) -> String {
    let parts: Vec<String> = clusters
        .iter()
        .map(|target| format!("{}:{}", target.name, target.replicas))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::core::record::record;
    use crate::scheduler::tests::fixtures::deployment;

    #[test]
    fn what_of_a_placement_has_no_effect_is_said() {
        let said = |placement| {
            let spec = deployment(1, &placement);
            let placed = Placed {
                clusters: Vec::new(),
                applied_placement: record(&spec),
                tasks: None,
            };
            let said = reservations(&spec, &placed);
            said.iter()
                .map(|it| it.split(' ').take(3).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert!(said(json!({})).is_empty());
        let together = json!({ "affinity": { "groupByLabelKey": "app" } });
        assert_eq!(
            said(json!({ "workloadAffinity": together })),
            ["placement.workloadAffinity has no"]
        );
        let select = |n| json!({ "labelSelector": { "matchLabels": { "rack": format!("r{n}") } } });
        let group = |n: usize| {
            let mut group = select(n);
            group["affinityName"] = json!(format!("g{n}"));
            group
        };
        let groups = |count: usize| json!({ "clusterAffinities": (0..count).map(group).collect::<Vec<_>>() });
        assert!(said(groups(100)).is_empty());
        assert_eq!(
            said(groups(101)),
            ["placement.clusterAffinities selects clusters"]
        );
        let weight = |n| json!({ "targetCluster": select(n), "weight": 1 });
        let weights: Vec<_> = (0..101).map(weight).collect();
        let preference = json!({ "staticWeightList": weights });
        assert_eq!(
            said(json!({ "replicaScheduling": { "weightPreference": preference } })),
            ["placement.replicaScheduling.weightPreference.staticWeightList selects clusters"]
        );
        let names = vec!["a-cluster"; 20_000];
        assert_eq!(
            said(json!({ "clusterAffinity": { "clusterNames": names } })),
            ["the placement is"]
        );
    }
}
