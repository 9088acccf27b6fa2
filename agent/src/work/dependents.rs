//! Finds what runs on although the object that made it is stopped. Pure.
//!
//! A CronJob that is suspended starts no Jobs any more, and the Jobs that it has started go on. A
//! StatefulSet that is scaled to zero ends its pods one after the other, each within its grace
//! period, and none of them while another one is not ready, as pods without a network may be.

use muster_shared::fencing::{self, Orders};
use muster_shared::k8s::GroupVersionKind;
use serde_json::{Value, json};

use super::raw::text;

/// Action on a dependent object that still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A merge patch stops it.
    Patch(Value),
    /// The object is deleted.
    Delete,
}

/// Returns the kind of the objects that run on when an object of a kind is stopped; `None` if it
/// has none.
pub fn of(kind: &GroupVersionKind) -> Option<GroupVersionKind> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("batch", "CronJob") => Some(GroupVersionKind::gvk("batch", "v1", "Job")),
        ("apps", "StatefulSet") => Some(GroupVersionKind::gvk("", "v1", "Pod")),
        _ => None,
    }
}

/// Returns whether an object belongs to another one.
pub fn is_of(object: &Value, owner: &Value) -> bool {
    let uid = text(owner, "uid");
    let owners = object.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    uid.is_some() && owners.any(|it| it["controller"] == true && it["uid"].as_str() == uid)
}

/// Returns what stops an object that belongs to one that is stopped; `None` if it runs no more, or
/// ends.
pub fn action(object: &Value, kind: &GroupVersionKind) -> Option<Action> {
    if object.pointer("/metadata/deletionTimestamp").is_some() || has_ended(object) {
        return None;
    }
    if kind.kind == "Pod" || fencing::is_queued(object) {
        return Some(Action::Delete);
    }
    fencing::stop(object, &json!({ "spec": { "suspend": true } })).map(Action::Patch)
}

/// Returns whether a pod or a Job has run to its end, as its status says.
pub fn has_ended(object: &Value) -> bool {
    let status = &object["status"];
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
        || conditions.any(|it| {
            it["status"] == "True" && (it["type"] == "Complete" || it["type"] == "Failed")
        })
}

/// Returns whether an object is one that the agent has stopped, so that what it has made is stopped
/// as well.
pub fn has_stopped(object: &Value) -> bool {
    fencing::stopped(object).is_some() && Orders::of(object).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_cron_job_are_suspended_and_pods_of_a_stateful_set_deleted() {
        let kinds = |kind: &str| {
            of(&GroupVersionKind::gvk(
                kind.split_once('/').unwrap().0,
                "v1",
                kind.split_once('/').unwrap().1,
            ))
        };
        let job = kinds("batch/CronJob").unwrap();
        let pod = kinds("apps/StatefulSet").unwrap();
        assert_eq!((kinds("apps/Deployment"), kinds("batch/Job")), (None, None));

        let suspends = json!({
            "metadata": { "annotations": { "failover.muster.io/stopped": r#"{"spec":{"suspend":null}}"# } },
            "spec": { "suspend": true },
        });
        let suspend = Some(Action::Patch(suspends));
        let active = json!({ "metadata": {}, "spec": {}, "status": { "active": 1 } });
        let delete = || Some(Action::Delete);
        let ended =
            |kind| json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let queued = json!({
            "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "team" } },
            "spec": { "suspend": true },
        });
        for (what, object, expected) in [
            ("active", active, suspend),
            ("suspended", json!({ "spec": { "suspend": true } }), None),
            ("one that a queue would start again", queued, delete()),
            ("complete", ended("Complete"), None),
            ("failed", ended("Failed"), None),
            ("deleted", json!({ "metadata": deleted }), None),
        ] {
            assert_eq!(action(&object, &job), expected, "{what}");
        }
        let in_phase = |phase| json!({ "status": { "phase": phase } });
        let ending = json!({ "metadata": deleted, "status": { "phase": "Running" } });
        for (what, object, expected) in [
            ("running", in_phase("Running"), delete()),
            ("new", json!({}), delete()),
            ("ended", in_phase("Failed"), None),
            ("ending", ending, None),
        ] {
            assert_eq!(action(&object, &pod), expected, "{what}");
        }
    }

    #[test]
    fn an_object_is_of_the_owner_that_controls_it() {
        let owner = json!({ "metadata": { "uid": "1" } });
        for (uid, controller, expected) in
            [("1", true, true), ("1", false, false), ("2", true, false)]
        {
            let owners = json!([{ "uid": uid, "controller": controller }]);
            let object = json!({ "metadata": { "ownerReferences": owners } });
            assert_eq!(is_of(&object, &owner), expected, "{uid} {controller}");
        }
        assert!(!is_of(&json!({}), &json!({})));
    }
}
