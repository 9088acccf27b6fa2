//! Suspension of a workload in a queue of Kueue in the member. Pure.
//!
//! Kueue starts what it admits, and suspends what waits, by `.spec.suspend`. API servers fill that
//! field in for each Job, so that every manifest of one has it: an agent that applied its value
//! would start what waits, or stop what was admitted, and Kueue would undo that, without end.

use std::borrow::Cow;

use muster_shared::fencing::is_queued;
use serde_json::Value;

use crate::work::managed_fields::{entries, is_of_subresource};
use crate::work::member::FIELD_MANAGER;

/// Returns the desired state with the suspension on which Kueue has decided, if the object is in
/// one of its queues. A value that the agent has set is sent as it is in the member: an apply
/// without it would remove it. Any other is left out.
pub fn with_queued<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    let (wanted, decided) = (&desired["spec"]["suspend"], &observed["spec"]["suspend"]);
    let is_decided = wanted.is_boolean() && decided.is_boolean() && is_queued(observed);
    let is_own = is_own(observed);
    // Kueue has the Jobs of a CronJob in its queues, and no CronJob.
    if !is_decided || desired["kind"] == "CronJob" || (is_own && wanted == decided) {
        return desired;
    }
    let mut queued = desired.into_owned();
    if is_own {
        queued["spec"]["suspend"] = decided.clone();
    } else if let Some(spec) = queued["spec"].as_object_mut() {
        spec.remove("suspend");
    }
    Cow::Owned(queued)
}

/// Returns whether the agent has set the suspension of an object as it is.
fn is_own(observed: &Value) -> bool {
    let mut entries = entries(observed).iter();
    entries.any(|entry| {
        let is_agents = entry["manager"] == FIELD_MANAGER && !is_of_subresource(entry);
        is_agents && entry["fieldsV1"]["f:spec"]["f:suspend"].is_object()
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::names::label::KUEUE_QUEUE;
    use serde_json::json;

    use super::*;

    #[test]
    fn kueue_decides_whether_a_workload_in_its_queues_is_suspended() {
        let (queue, none) = (json!({KUEUE_QUEUE: "team"}), json!({}));
        let (agent, other) = ((FIELD_MANAGER, "Apply"), ("kueue", "Update"));
        let patch = (FIELD_MANAGER, "Update");
        let (starts, stops) = (Some(false), Some(true));
        for (what, kind, labels, by, wanted, there, expected) in [
            ("it waits", "Job", &queue, agent, starts, stops, stops),
            ("preempted", "Job", &queue, other, starts, stops, None),
            ("admitted", "Job", &queue, other, stops, starts, None),
            ("both agree", "Job", &queue, agent, starts, starts, starts),
            ("patched", "JobSet", &queue, patch, starts, stops, stops),
            ("no queue", "Job", &none, other, starts, stops, starts),
            ("no Job", "CronJob", &queue, other, stops, starts, stops),
            ("nothing wanted", "Job", &queue, other, None, stops, None),
            ("nothing there", "Job", &queue, other, starts, None, starts),
        ] {
            let object = |suspend: Option<bool>| json!({"apiVersion": "batch/v1", "kind": kind, "spec": {"suspend": suspend, "x": 1}});
            let (manager, operation) = by;
            let mut observed = object(there);
            observed["metadata"] = json!({"labels": labels, "managedFields": [
                {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:suspend": {}}}},
            ]});
            let desired = object(wanted);
            let after = with_queued(Cow::Borrowed(&desired), &observed);
            assert_eq!(after["spec"]["suspend"].as_bool(), expected, "{what}");
            assert_eq!(after["spec"]["x"], 1, "{what}");
        }
    }
}
