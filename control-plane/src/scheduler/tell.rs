//! What operators hear of a decision: events, log lines, metrics. All but the metrics only when it is news.

use std::time::Instant;

use muster_shared::api::binding::{Binding, TargetCluster};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::CoreObjectReference;
use muster_shared::names::condition::SCHEDULED;

use super::kinds::Key;
use super::need::Need;
use super::outcome::Outcome;
use crate::fleet::Fleet;

/// Says what happened, when it is news.
pub(super) fn tell<B: Binding>(fleet: &Fleet, binding: &B, outcome: &Outcome) {
    let spec = binding.spec();
    let template = CoreObjectReference {
        api_version: Some(spec.resource.api_version.clone()),
        kind: Some(spec.resource.kind.clone()),
        namespace: spec.resource.namespace.clone(),
        name: Some(spec.resource.name.clone()),
        uid: spec.resource.uid.clone(),
        ..CoreObjectReference::default()
    };
    let publish = |kind, reason, note: String| {
        fleet.events.publish(binding, kind, reason, note.clone());
        fleet
            .events
            .publish_about(template.clone(), kind, reason, note);
    };
    let known = conditions::get(&binding.status().conditions, SCHEDULED)
        .map_or("", |condition| condition.message.as_str());
    if let Some(failure) = &outcome.failure {
        let note = failure.to_string();
        if note != known {
            tracing::warn!(binding = %Key::of(binding), need = ?outcome.need, reason = failure.kind().reason(), note, "no placement");
            publish(EventType::Warning, "ScheduleBindingFailed", note);
        }
        return;
    }
    let Some(placed) = &outcome.placed else {
        return;
    };
    if placed.clusters == spec.clusters {
        return;
    }
    for attempt in &outcome.attempts {
        if let Some(failure) = &attempt.failure {
            let note = format!("affinity group {}: {failure}", attempt.group);
            publish(EventType::Warning, "ScheduleBindingFailed", note);
        }
    }
    let result = result_text(&placed.clusters);
    tracing::info!(binding = %Key::of(binding), need = ?outcome.need, result, "placed");
    publish(
        EventType::Normal,
        "ScheduleBindingSucceed",
        success_note(&placed.clusters),
    );
}

/// What is said of a binding that was placed.
pub(super) fn success_note(clusters: &[TargetCluster]) -> String {
    format!(
        "Binding has been scheduled successfully. Result: {}",
        result_text(clusters)
    )
}

/// `{m1:2, m2:1}`, as Karmada writes it.
fn result_text(clusters: &[TargetCluster]) -> String {
    let parts: Vec<String> = clusters
        .iter()
        .map(|target| format!("{}:{}", target.name, target.replicas))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// Counts what is put on the queue, under Karmada's name.
pub(super) fn count_incoming(event: &'static str, bindings: u64) {
    metrics::counter!("karmada_scheduler_queue_incoming_bindings_total", "event" => event)
        .increment(bindings);
}

/// Counts and times under Karmada's names.
pub(super) fn measure(outcome: &Outcome, started: Instant) {
    let Some(need) = outcome.need else { return };
    let schedule_type = if need == Need::ReplicasChanged {
        "ScaleSchedule"
    } else {
        "ReconcileSchedule"
    };
    let result = if outcome.failure.is_some() {
        "error"
    } else {
        "scheduled"
    };
    let labels = [("result", result), ("schedule_type", schedule_type)];
    metrics::counter!("karmada_scheduler_schedule_attempts_total", &labels).increment(1);
    metrics::histogram!("karmada_scheduler_e2e_scheduling_duration_seconds", &labels)
        .record(started.elapsed().as_secs_f64());
}
