//! Suspension of a workload in a queue of Kueue in the member. Pure.
//!
//! Kueue starts what it admits, and suspends what waits, by `suspend` in the spec. API servers fill
//! that field in for each Job, so that every manifest of one has it: an agent that applied its
//! value would start what waits, or stop what was admitted, and Kueue would undo that, without end.

use std::borrow::Cow;

use muster_shared::fencing::is_queued;
use serde_json::Value;

use crate::work::managed_fields::{entries, is_of_subresource};
use crate::work::member::FIELD_MANAGER;

/// The objects that have the field, and its path in the fields of a manager: Jobs and most other
/// kinds have it in their spec, those of Kubeflow in the policy of their runs.
const PLACES: [(&str, &str); 2] = [
    ("/spec", "/f:spec/f:suspend"),
    ("/spec/runPolicy", "/f:spec/f:runPolicy/f:suspend"),
];

/// Returns the desired state with the suspension on which Kueue has decided, if the object is in
/// one of its queues. A value that the agent has set is sent as it is in the member: an apply
/// without it would remove it. Any other is left out.
pub fn with_queued<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    // Kueue has the Jobs of a CronJob in its queues, and no CronJob.
    if !is_queued(observed) || desired["kind"] == "CronJob" {
        return desired;
    }
    let places = PLACES.into_iter();
    places.fold(desired, |desired, place| {
        with_decided(desired, observed, place)
    })
}

/// Returns the desired state with the suspension of a queued object as Kueue has decided on it.
fn with_decided<'a>(
    desired: Cow<'a, Value>,
    observed: &Value,
    (place, path): (&str, &str),
) -> Cow<'a, Value> {
    let Some(wanted) = suspension(&desired, place) else {
        return desired;
    };
    // Some kinds leave the field out where they are not suspended.
    let decided = suspension(observed, place).filter(|_| is_own(observed, path));
    if decided == Some(wanted) {
        return desired;
    }
    let mut queued = desired.into_owned();
    let fields = queued.pointer_mut(place).and_then(Value::as_object_mut);
    let is_left_empty = fields.is_some_and(|fields| {
        match decided {
            Some(decided) => _ = fields.insert("suspend".to_owned(), decided.into()),
            None => _ = fields.remove("suspend"),
        }
        fields.is_empty()
    });
    // An empty object would differ from the member's, which is not empty, and be applied each time.
    if is_left_empty
        && let Some((around, name)) = place.rsplit_once('/')
        && let Some(around) = queued.pointer_mut(around).and_then(Value::as_object_mut)
    {
        around.remove(name);
    }
    Cow::Owned(queued)
}

fn suspension(object: &Value, place: &str) -> Option<bool> {
    object.pointer(place)?.get("suspend")?.as_bool()
}

/// Returns whether the agent has set the suspension of an object as it is.
fn is_own(observed: &Value, path: &str) -> bool {
    let mut entries = entries(observed).iter();
    entries.any(|entry| {
        let is_agents = entry["manager"] == FIELD_MANAGER && !is_of_subresource(entry);
        is_agents && entry["fieldsV1"].pointer(path).is_some()
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
            ("left out", "RayJob", &queue, other, stops, None, None),
        ] {
            let (manager, operation) = by;
            for is_in_policy in [false, true] {
                let inside = |fields: Value, policy: &str| {
                    if is_in_policy {
                        json!({ policy: fields })
                    } else {
                        fields
                    }
                };
                let object = |fields: Value| json!({"apiVersion": "example.com/v1", "kind": kind, "spec": inside(fields, "runPolicy")});
                let fields = |suspend: Option<bool>| match suspend {
                    Some(suspend) => json!({"suspend": suspend, "x": 1}),
                    None => json!({"x": 1}),
                };
                let owned = match there {
                    Some(_) => json!({"f:suspend": {}}),
                    None => json!({}),
                };
                let mut observed = object(fields(there));
                observed["metadata"] = json!({"labels": labels, "managedFields": [{
                    "manager": manager, "operation": operation,
                    "fieldsV1": {"f:spec": inside(owned, "f:runPolicy")},
                }]});
                let desired = object(fields(wanted));
                let after = with_queued(Cow::Borrowed(&desired), &observed);
                let expected = object(fields(expected));
                assert_eq!(*after, expected, "{what}, in a policy: {is_in_policy}");
            }
        }
    }

    #[test]
    fn a_policy_of_runs_that_only_suspends_is_left_out_with_that() {
        let spec = |policy: Value| json!({"kind": "MPIJob", "spec": {"runPolicy": policy, "x": 1}});
        let mut observed = spec(json!({"suspend": false}));
        observed["metadata"] = json!({"labels": {KUEUE_QUEUE: "team"}});
        let (only, more) = (
            json!({"suspend": true}),
            json!({"suspend": true, "backoffLimit": 1}),
        );
        for (policy, expected) in [(only, Value::Null), (more, json!({"backoffLimit": 1}))] {
            let desired = spec(policy);
            let after = with_queued(Cow::Borrowed(&desired), &observed);
            let left = after["spec"].get("runPolicy").cloned();
            assert_eq!(left.unwrap_or_default(), expected, "{desired}");
            assert_eq!(after["spec"]["x"], 1);
        }
    }
}
