//! Writes a schedule to the binding.

use std::borrow::Cow;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::k8s::{Api, ResourceExt};
use muster_shared::names::annotation::{ANSWERED_REQUEST, APPLIED_PLACEMENT, DESELECTED};
use serde_json::{Value, json};

use super::movement::Permit;
use crate::fleet::write::merge;
use crate::scheduler::core::cycle::is_reschedule_requested;
use crate::scheduler::core::deselected;
use crate::scheduler::core::outcome::Placed;

/// Writes the result and the placement it was made for at once, on the state that they were decided
/// on. What was paid for it is taken back if it is known that nothing was written.
pub(super) async fn write(
    api: &Api<AnyBinding>,
    binding: &AnyBinding,
    placed: &Placed,
    permit: Permit,
) -> Result<AnyBinding, kube::Error> {
    let patch = result_patch(binding, placed);
    let written = merge(api, &binding.name_any(), &patch).await;
    permit.settle(&written);
    written
}

/// Leaves a binding no other clusters than those in which it stays. It is no result: the placement
/// that was applied last stays the record, and no request is answered.
pub(super) async fn write_stay(
    api: &Api<AnyBinding>,
    binding: &AnyBinding,
    stays: &[TargetCluster],
) -> Result<AnyBinding, kube::Error> {
    let clusters = stored(stays);
    let patch = json!({
        "metadata": { "resourceVersion": binding.resource_version() },
        "spec": { "clusters": clusters },
    });
    merge(api, &binding.name_any(), &patch).await
}

/// Returns the clusters as they are written. An empty list is not stored: null takes the field
/// away, as Go leaves it out.
fn stored(clusters: &[TargetCluster]) -> Option<&[TargetCluster]> {
    Some(clusters).filter(|it| !it.is_empty())
}

fn result_patch(binding: &AnyBinding, placed: &Placed) -> Value {
    let clusters = stored(&placed.clusters);
    let mut patch = json!({
        "metadata": {
            "resourceVersion": binding.resource_version(),
            "annotations": { APPLIED_PLACEMENT: placed.applied_placement },
        },
        "spec": { "clusters": clusters },
    });
    if let Some(tasks) = &placed.tasks {
        patch["spec"]["gracefulEvictionTasks"] = json!(tasks);
    }
    if let Some(names) = deselected::written(binding, placed) {
        patch["metadata"]["annotations"][DESELECTED] = names;
    }
    if is_reschedule_requested(&binding.spec, binding.status()) {
        patch["metadata"]["annotations"][ANSWERED_REQUEST] = json!(request(binding));
    }
    patch
}

/// Returns a binding as if the report of its last result had been written, where that result
/// answered a request: the process may have died between the two writes, and the workload would
/// move once more.
pub(super) fn with_answer(binding: &AnyBinding) -> Cow<'_, AnyBinding> {
    let is_answered = request(binding).as_ref() == binding.annotations().get(ANSWERED_REQUEST);
    if !is_answered || !is_reschedule_requested(&binding.spec, binding.status()) {
        return Cow::Borrowed(binding);
    }
    let mut reported = binding.clone();
    let status = reported.status.get_or_insert_default();
    let requested = &binding.spec.reschedule_triggered_at;
    status.last_scheduled_time.clone_from(requested);
    Cow::Owned(reported)
}

/// Returns the request for a new placement, as the annotation of the binding names it.
fn request(binding: &AnyBinding) -> Option<String> {
    let requested = binding.spec.reschedule_triggered_at.as_ref()?;
    Some(requested.0.to_string())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_result_is_written_only_on_the_state_that_it_was_decided_on() {
        let mut binding = AnyBinding::default();
        binding.metadata.resource_version = Some("7".into());
        for tasks in [None, Some(Vec::new())] {
            let placed = Placed {
                clusters: Vec::new(),
                applied_placement: "{}".into(),
                tasks: tasks.clone(),
            };
            let patch = result_patch(&binding, &placed);
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            assert_eq!(patch["metadata"]["annotations"][APPLIED_PLACEMENT], "{}");
            assert_eq!(patch["spec"]["clusters"], Value::Null, "Go leaves it out");
            // Nothing else is touched, an eviction that runs least of all.
            let has_tasks = patch["spec"].get("gracefulEvictionTasks").is_some();
            assert_eq!(has_tasks, tasks.is_some());
        }
    }

    #[test]
    fn the_targets_of_a_result_are_written() {
        let target = json!({ "name": "m1", "replicas": 2 });
        let placed = Placed {
            clusters: vec![serde_json::from_value(target.clone()).unwrap()],
            applied_placement: "{}".into(),
            tasks: None,
        };
        let patch = result_patch(&AnyBinding::default(), &placed);
        assert_eq!(patch["spec"]["clusters"], json!([target]));
        let edited = json!({
            "metadata": { "annotations": { APPLIED_PLACEMENT: "null" } },
            "spec": { "clusters": [{ "name": "m2" }], "preserveResourcesOnDeletion": true },
        });
        let edited: AnyBinding = serde_json::from_value(edited).unwrap();
        let patch = result_patch(&edited, &placed);
        assert_eq!(patch["metadata"]["annotations"][DESELECTED], "m2");
    }
}
