//! Status of a Job in a form that API servers accept.
//!
//! From 1.32 on, API servers validate each write of a Job's status: counters never fall, a finished
//! Job has no active pods and has the condition that announced its end, and an announcement is not
//! withdrawn. These rules are made for one controller that counts the pods of one Job. A total over
//! members breaks them when a Job is moved, or when it fails in one member and runs in another, and
//! the API server would reject the whole status.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::batch::{condition, holds};
use crate::read::field;

/// Returns the wanted status, changed as little as possible so that an API server that stores
/// `held` accepts it.
///
/// * Counters of ended pods keep the larger value: pods in a cluster that was left did run.
/// * A failure is announced (`FailureTarget`) at once, and the Job has failed when nothing is
///   active. An announced failure cannot become a success.
/// * Success is announced (`SuccessCriteriaMet`) together with `Complete`, also if members are too
///   old to announce it.
/// * A finished Job has a start time; a completed one has a completion time, not before its start,
///   and no other has one.
pub(super) fn accepted(
    held: Option<&Map<String, Value>>,
    mut wanted: Map<String, Value>,
    now: Timestamp,
) -> Map<String, Value> {
    let held = held.cloned().map(Value::Object).unwrap_or_default();
    for counter in ["succeeded", "failed"] {
        let stored = field(&held, &[counter])
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if stored > wanted.get(counter).and_then(Value::as_i64).unwrap_or(0) {
            wanted.insert(counter.to_owned(), stored.into());
        }
    }
    let active = wanted.get("active").and_then(Value::as_i64).unwrap_or(0) > 0;
    let conditions = Conditions {
        held: list(&held["conditions"]),
        wanted: list(wanted.get("conditions").unwrap_or(&Value::Null)),
        now,
    };
    let announced_success = conditions.stored("SuccessCriteriaMet");
    let announced_failure = conditions.stored("FailureTarget");
    let fails = !announced_success && (announced_failure || conditions.wanted("Failed"));
    let completes = !fails && !active && conditions.wanted("Complete");
    let ends: &[&str] = match (fails, completes) {
        (true, _) if active => &["FailureTarget"],
        (true, _) => &["FailureTarget", "Failed"],
        (false, true) => &["SuccessCriteriaMet", "Complete"],
        (false, false) if announced_success => &["SuccessCriteriaMet"],
        (false, false) => &[],
    };
    let ends: Vec<Value> = ends.iter().map(|of| conditions.take(of)).collect();
    if (fails && !active) || completes {
        wanted
            .entry("startTime")
            .or_insert_with(|| json!(now.to_string()));
    }
    if completes {
        let time = |status: &Map<String, Value>, key: &str| {
            status.get(key)?.as_str()?.parse::<Timestamp>().ok()
        };
        let start = time(&wanted, "startTime");
        let end = time(&wanted, "completionTime").unwrap_or(now);
        let end = start.map_or(end, |start| end.max(start));
        wanted.insert("completionTime".to_owned(), json!(end.to_string()));
    } else {
        wanted.remove("completionTime");
    }
    wanted.remove("conditions");
    if !ends.is_empty() {
        wanted.insert("conditions".to_owned(), Value::Array(ends));
    }
    wanted
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Conditions that are stored, and those that the members amount to.
struct Conditions<'a> {
    held: &'a [Value],
    wanted: &'a [Value],
    now: Timestamp,
}

impl Conditions<'_> {
    fn stored(&self, of: &str) -> bool {
        self.held.iter().any(|condition| holds(condition, of))
    }

    fn wanted(&self, of: &str) -> bool {
        self.wanted.iter().any(|condition| holds(condition, of))
    }

    /// Returns a condition as it is stored, so that its times stay; else as it is wanted; else with
    /// the reason of the end that it announces.
    fn take(&self, of: &str) -> Value {
        let find = |of: &str| {
            let mut all = self.held.iter().chain(self.wanted);
            all.find(|condition| holds(condition, of)).cloned()
        };
        let (announces, reason, message) = match of {
            "FailureTarget" => (
                "Failed",
                "JobFailed",
                "Job executed failed in a member cluster",
            ),
            "SuccessCriteriaMet" => ("Complete", "CompletionsReached", "Job completed"),
            "Failed" => ("FailureTarget", "JobFailed", "Job executed failed"),
            _ => ("SuccessCriteriaMet", "Completed", "Job completed"),
        };
        if let Some(found) = find(of) {
            return found;
        }
        let message = match (of, find(announces)) {
            ("FailureTarget" | "Failed", Some(end)) => {
                end["message"].as_str().unwrap_or(message).to_owned()
            }
            _ => message.to_owned(),
        };
        condition(of, reason, &message, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn accept(held: &Value, wanted: &Value) -> Value {
        let wanted = wanted.as_object().unwrap().clone();
        Value::Object(accepted(held.as_object(), wanted, NOW.parse().unwrap()))
    }

    fn conditions(types: &[&str], since: &str) -> Value {
        let since: Timestamp = since.parse().unwrap();
        types
            .iter()
            .map(|of| condition(of, "Reason", "in m1", since))
            .collect()
    }

    /// Returns the types of the conditions, and the rest.
    fn split(mut status: Value) -> (Vec<String>, Value) {
        let types = list(&status["conditions"])
            .iter()
            .map(|condition| condition["type"].as_str().unwrap().to_owned())
            .collect();
        status.as_object_mut().unwrap().remove("conditions");
        (types, status)
    }

    #[test]
    fn what_an_api_server_would_refuse_is_not_asked_of_it() {
        let failed = conditions(&["Failed"], NOW);
        let complete = conditions(&["Complete"], NOW);
        let target = conditions(&["FailureTarget"], "2026-01-01T00:00:00Z");
        let criteria = conditions(&["SuccessCriteriaMet"], "2026-01-01T00:00:00Z");
        let (start, end) = ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z");
        for (what, held, wanted, types, rest) in [
            (
                "a failure is announced, and the job has a start",
                json!({}),
                json!({ "failed": 1, "conditions": failed }),
                &["FailureTarget", "Failed"][..],
                json!({ "failed": 1, "startTime": NOW }),
            ),
            (
                "while something is active, it is announced only",
                json!({}),
                json!({ "active": 2, "failed": 1, "startTime": start, "conditions": failed }),
                &["FailureTarget"],
                json!({ "active": 2, "failed": 1, "startTime": start }),
            ),
            (
                "and it has failed when nothing is active",
                json!({ "active": 2, "failed": 1, "startTime": start, "conditions": target }),
                json!({ "failed": 1, "startTime": start, "conditions": failed }),
                &["FailureTarget", "Failed"],
                json!({ "failed": 1, "startTime": start }),
            ),
            (
                "an announced failure stays when the member that failed is left",
                json!({ "active": 1, "failed": 1, "startTime": start, "conditions": target }),
                json!({ "active": 1, "startTime": start }),
                &["FailureTarget"],
                json!({ "active": 1, "failed": 1, "startTime": start }),
            ),
            (
                "and does not become a success",
                json!({ "active": 1, "failed": 1, "startTime": start, "conditions": target }),
                json!({ "succeeded": 1, "startTime": start, "completionTime": end, "conditions": complete }),
                &["FailureTarget", "Failed"],
                json!({ "failed": 1, "succeeded": 1, "startTime": start }),
            ),
            (
                "success is announced for members that are too old to do it",
                json!({ "active": 1, "startTime": start }),
                json!({ "succeeded": 1, "startTime": start, "completionTime": end, "conditions": complete }),
                &["SuccessCriteriaMet", "Complete"],
                json!({ "succeeded": 1, "startTime": start, "completionTime": end }),
            ),
            (
                "an end is not before the start, whatever the members' clocks say",
                json!({ "startTime": end }),
                json!({ "startTime": end, "completionTime": start, "conditions": complete }),
                &["SuccessCriteriaMet", "Complete"],
                json!({ "startTime": end, "completionTime": end }),
            ),
            (
                "a complete job has an end",
                json!({}),
                json!({ "startTime": start, "conditions": complete }),
                &["SuccessCriteriaMet", "Complete"],
                json!({ "startTime": start, "completionTime": NOW }),
            ),
            (
                "and no other has one",
                json!({}),
                json!({ "active": 1, "startTime": start, "completionTime": end }),
                &[],
                json!({ "active": 1, "startTime": start }),
            ),
            (
                "counters do not fall when the job is moved",
                json!({ "active": 1, "succeeded": 3, "failed": 1, "startTime": start }),
                json!({ "active": 5, "startTime": start }),
                &[],
                json!({ "active": 5, "succeeded": 3, "failed": 1, "startTime": start }),
            ),
            (
                "announced success is not taken back, and no failure beside it",
                json!({ "startTime": start, "conditions": criteria }),
                json!({ "active": 1, "startTime": start, "conditions": failed }),
                &["SuccessCriteriaMet"],
                json!({ "active": 1, "startTime": start }),
            ),
        ] {
            let got = split(accept(&held, &wanted));
            let types = types.iter().map(|of| (*of).to_owned()).collect();
            assert_eq!(got, (types, rest), "{what}");
        }
    }

    #[test]
    fn a_condition_that_is_stored_keeps_its_times_so_that_nothing_is_written_twice() {
        let target = conditions(&["FailureTarget"], "2026-01-01T00:00:00Z");
        let held = json!({ "active": 1, "failed": 1, "conditions": target });
        let wanted =
            json!({ "active": 1, "failed": 1, "conditions": conditions(&["Failed"], NOW) });
        assert_eq!(accept(&held, &wanted), held);
    }
}
