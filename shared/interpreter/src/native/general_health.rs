//! Health of kinds without a rule of their own, from what Kubernetes' conventions let every
//! controller say.

use serde_json::Value;

use super::kind::Kind;

/// Conditions that are true while an object is not in order, by the conventions of kstatus
/// (sigs.k8s.io/cli-utils).
const TROUBLES: [&str; 2] = ["Reconciling", "Stalled"];
/// Conditions that are true once an object is in order. The first that is there decides.
const WELL: [&str; 2] = ["Ready", "Available"];

/// Returns whether the object in a member is healthy by what it says of itself; `None` if it says
/// nothing. For kinds of which [`health`](super::health()) knows nothing.
///
/// * A Job is healthy when it is complete or suspended, and also when its pods run: as many as may
///   run at a time are ready or have succeeded. A failed Job is not.
/// * Other kinds are not healthy while `status.observedGeneration` is behind, while the condition
///   `Reconciling` or `Stalled` is true, or while `Ready` is not true. Where there is no `Ready`,
///   `Available` counts.
///
/// A field of an unexpected type says nothing. Karmada calls all of these kinds healthy once they
/// are applied.
pub fn general_health(object: &Value) -> Option<bool> {
    if Kind::of(object) == Some(Kind::Job) {
        return Some(job(object));
    }
    let status = &object["status"];
    let observed = status["observedGeneration"].as_i64();
    let generation = object["metadata"]["generation"].as_i64();
    let is_behind = observed
        .zip(generation)
        .is_some_and(|(observed, generation)| observed < generation);
    if is_behind || TROUBLES.iter().any(|trouble| is(status, trouble)) {
        return Some(false);
    }
    WELL.iter()
        .find_map(|word| condition(status, word))
        .map(|status| status == "True")
}

/// Returns whether a status alone says that a copy of a kind without a rule is not healthy: its
/// reporter may call every such copy healthy, as Karmada's agent does.
pub fn denies_health(status: &Value) -> bool {
    let is_failed = is(status, "Failed") || is(status, "FailureTarget");
    let word = WELL.iter().find_map(|word| condition(status, word));
    is_failed
        || TROUBLES.iter().any(|trouble| is(status, trouble))
        || word.is_some_and(|status| status != "True")
}

/// Returns whether a status says that the object does not run on purpose, such as a Job that waits
/// for a quota.
pub fn is_suspended(status: &Value) -> bool {
    is(status, "Suspended")
}

/// Returns whether a status holds what [`general_health`] reads: a controller that writes it does
/// so whenever it has read an object, so that a copy without it was not read yet.
pub fn reports_health(status: &Value) -> bool {
    let has_condition = WELL.iter().any(|word| condition(status, word).is_some());
    has_condition || status["observedGeneration"].is_i64() || status["startTime"].is_string()
}

fn job(object: &Value) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    if is(status, "Failed") || is(status, "FailureTarget") {
        return false;
    }
    if ["Complete", "SuccessCriteriaMet", "Suspended"]
        .iter()
        .any(|end| is(status, end))
    {
        return true;
    }
    let parallel = spec["parallelism"].as_i64().unwrap_or(1);
    let wanted = match spec["completions"].as_i64() {
        Some(completions) => parallel.min(completions),
        None => parallel,
    };
    // A server that counts no ready pods reports the active ones only.
    let ready = status["ready"]
        .as_i64()
        .or_else(|| status["active"].as_i64());
    let succeeded = status["succeeded"].as_i64().unwrap_or(0);
    status["startTime"].is_string() && ready.unwrap_or(0).saturating_add(succeeded) >= wanted
}

/// Returns whether a condition is true.
fn is(status: &Value, name: &str) -> bool {
    condition(status, name) == Some("True")
}

/// Returns the status of a condition; `None` if the object does not have it.
fn condition<'a>(status: &'a Value, name: &str) -> Option<&'a str> {
    let mut conditions = status["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == name)?["status"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn widget(generation: i64, status: &Value) -> Value {
        json!({"apiVersion": "example.org/v1", "kind": "Widget",
            "metadata": {"name": "w", "generation": generation}, "status": status})
    }

    #[test]
    fn a_kind_without_a_rule_is_as_healthy_as_its_conditions_say() {
        let said =
            |name: &str, status: &str| json!({"conditions": [{"type": name, "status": status}]});
        let say = |two: [(&str, &str); 2]| {
            let two = two.map(|(name, status)| json!({"type": name, "status": status}));
            json!({ "conditions": two })
        };
        let mut old = said("Ready", "True");
        old["observedGeneration"] = json!(2);
        for (status, expected) in [
            (json!(null), None),
            (json!({}), None),
            (json!("Bound"), None),
            (json!({"phase": "Running"}), None),
            (json!({"conditions": "none"}), None),
            (said("Ready", "True"), Some(true)),
            (said("Ready", "False"), Some(false)),
            (said("Ready", "Unknown"), Some(false)),
            (said("Available", "True"), Some(true)),
            (said("Available", "False"), Some(false)),
            (said("Reconciling", "True"), Some(false)),
            (said("Reconciling", "False"), None),
            (said("Stalled", "True"), Some(false)),
            (said("Degraded", "True"), None),
            (say([("Available", "False"), ("Ready", "True")]), Some(true)),
            (
                say([("Ready", "True"), ("Reconciling", "True")]),
                Some(false),
            ),
            (json!({"observedGeneration": 2}), Some(false)),
            (json!({"observedGeneration": 3}), None),
            (json!({"observedGeneration": "2"}), None),
            (old, Some(false)),
        ] {
            let found = general_health(&widget(3, &status));
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn a_job_is_healthy_when_its_pods_run_or_have_succeeded_and_not_once_it_failed() {
        let begun = "2024-01-01T00:00:00Z";
        let ended = |name: &str| json!({"startTime": begun, "conditions": [{"type": name, "status": "True"}]});
        let ready =
            |active: i64, ready: i64| json!({"startTime": begun, "active": active, "ready": ready});
        let of = |completions: i64| json!({"parallelism": 4, "completions": completions});
        let mut ended_one = ready(4, 3);
        ended_one["succeeded"] = json!(1);
        for (spec, status, expected) in [
            (json!({}), json!(null), false),
            (json!({}), json!({}), false),
            (json!({}), ready(1, 0), false),
            (json!({}), ready(1, 1), true),
            (json!({}), json!({"startTime": begun, "active": 1}), true),
            (json!({}), json!({"active": 1, "ready": 1}), false),
            (of(9), ready(4, 3), false),
            (of(9), ended_one, true),
            (of(2), ready(2, 2), true),
            (json!({"parallelism": 0}), json!({"startTime": begun}), true),
            (json!({}), ended("Complete"), true),
            (json!({}), ended("SuccessCriteriaMet"), true),
            (json!({"suspend": true}), ended("Suspended"), true),
            (json!({}), ended("FailureTarget"), false),
            (json!({}), ended("Failed"), false),
        ] {
            let job =
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec, "status": status});
            assert_eq!(general_health(&job), Some(expected), "{job}");
        }
    }
}
