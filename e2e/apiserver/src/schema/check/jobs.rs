//! The status of Jobs, which API servers check from 1.32 on: what was counted and announced is not
//! taken back, and an end is complete.
//!
//! A rule is asked only where a write changes what it is about, so that objects from before the
//! rules can be written.

use serde_json::Value;

use super::Check;
use crate::wire::field_error::FieldError;

/// Conditions that say how a Job ends.
const ENDS: [&str; 4] = ["Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"];

/// Checks a write of the status.
pub fn status(check: &mut Check<'_>) {
    let Some(old) = check.old.map(|old| &old["status"]) else {
        return;
    };
    let new = check.at("status");
    if old == new {
        return;
    }
    conditions(check, old, new);
    counters(check, old, new);
    times(check, old, new);
}

fn is(status: &Value, condition: &str) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(|it| it["type"] == condition && it["status"] == "True")
}

fn is_finished(status: &Value) -> bool {
    is(status, "Complete") || is(status, "Failed")
}

fn conditions(check: &mut Check<'_>, old: &Value, new: &Value) {
    let [failed, complete, target, criteria] = ENDS.map(|of| is(new, of));
    let changed = |of: &str| is(old, of) != is(new, of);
    let [
        failed_changed,
        complete_changed,
        target_changed,
        criteria_changed,
    ] = ENDS.map(changed);
    let mut refuse = |wrong: bool, detail: &str| {
        if wrong {
            let error = FieldError::omitted("status.conditions", detail);
            check.push(error);
        }
    };
    for of in &ENDS[..3] {
        let detail = format!("cannot disable the terminal {of}=True condition");
        refuse(is(old, of) && !is(new, of), &detail);
    }
    refuse(
        is(old, "SuccessCriteriaMet") && !criteria,
        "cannot disable the SuccessCriteriaMet=True condition",
    );
    refuse(
        (failed_changed || complete_changed) && complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        (complete_changed || target_changed) && complete && target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (failed_changed || target_changed) && failed && !target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        (complete_changed || criteria_changed) && complete && !criteria,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(
        criteria && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    refuse(
        criteria && target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
}

fn counters(check: &mut Check<'_>, old: &Value, new: &Value) {
    let number = |status: &Value, key: &str| status[key].as_i64().unwrap_or(0);
    let spec = check.at("spec");
    // A Job that is scaled by its indexes may lose some.
    let scales = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    for key in ["failed", "succeeded"] {
        if number(new, key) < number(old, key) && !(scales && key == "succeeded") {
            let detail = format!("cannot decrease the {key} counter");
            check.invalid(&format!("status.{key}"), &number(new, key).into(), &detail);
        }
    }
    let finished = is_finished(new);
    for key in ["active", "terminating"] {
        let changed = number(old, key) != number(new, key) || is_finished(old) != finished;
        if finished && changed && number(new, key) > 0 {
            let detail = format!("{key}>0 is invalid for finished job");
            check.invalid(&format!("status.{key}"), &number(new, key).into(), &detail);
        }
    }
    let changed = ["ready", "active"]
        .iter()
        .any(|key| number(old, key) != number(new, key));
    if changed && number(new, "ready") > number(new, "active") {
        let detail = "cannot set more ready pods than active";
        check.invalid("status.ready", &number(new, "ready").into(), detail);
    }
}

fn times(check: &mut Check<'_>, old: &Value, new: &Value) {
    let instant = |status: &Value, key: &str| {
        status[key]
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
    };
    let start = instant(new, "startTime");
    let (ended, end) = (
        instant(old, "completionTime"),
        instant(new, "completionTime"),
    );
    let (finished, complete) = (is_finished(new), is(new, "Complete"));
    let start_changed = instant(old, "startTime") != start;
    if (start_changed || is_finished(old) != finished) && finished && start.is_none() {
        let detail = "startTime is required for finished job";
        check.push(FieldError::required("status.startTime", detail));
    }
    if start_changed && instant(old, "startTime").is_some() && check.at("spec.suspend") != true {
        let detail = "startTime cannot be removed for unsuspended job";
        check.push(FieldError::required("status.startTime", detail));
    }
    let end_changed = ended != end;
    if end.is_some() && ended.is_some() && end_changed {
        let detail = "completionTime cannot be mutated";
        check.invalid("status.completionTime", &new["completionTime"], detail);
    }
    let complete_changed = is(old, "Complete") != complete;
    if (complete_changed || end_changed) && end.is_some() && !complete {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        check.invalid("status.completionTime", &new["completionTime"], detail);
    }
    if (complete_changed || end_changed) && end.is_none() && complete {
        let detail = "completionTime is required for Complete jobs";
        check.push(FieldError::required("status.completionTime", detail));
    }
    if (start_changed || end_changed) && start.zip(end).is_some_and(|(start, end)| end < start) {
        let detail = "completionTime cannot be set before startTime";
        check.invalid("status.completionTime", &new["completionTime"], detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusals(old: &Value, new: &Value) -> Vec<String> {
        let job = |status: &Value| json!({ "spec": {}, "status": status });
        let (new, old) = (job(new), job(old));
        let mut check = Check {
            new: &new,
            old: Some(&old),
            errors: Vec::new(),
        };
        status(&mut check);
        check.errors.iter().map(ToString::to_string).collect()
    }

    fn conditions(types: &[&str]) -> Value {
        types
            .iter()
            .map(|of| json!({ "type": of, "status": "True" }))
            .collect()
    }

    #[test]
    fn what_a_job_says_of_itself_is_complete_and_stays() {
        let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        let failed = conditions(&["FailureTarget", "Failed"]);
        let complete = conditions(&["SuccessCriteriaMet", "Complete"]);
        for (old, new, expected) in [
            (
                json!({}),
                json!({ "startTime": start, "failed": 1, "conditions": failed }),
                None,
            ),
            (
                json!({}),
                json!({ "startTime": start, "completionTime": end, "conditions": complete }),
                None,
            ),
            (
                json!({}),
                json!({ "startTime": start, "conditions": conditions(&["Failed"]) }),
                Some(
                    "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
                ),
            ),
            (
                json!({}),
                json!({ "startTime": start, "completionTime": end, "conditions": conditions(&["Complete"]) }),
                Some(
                    "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                ),
            ),
            (
                json!({}),
                json!({ "active": 1, "startTime": start, "conditions": failed }),
                Some("status.active: Invalid value: 1: active>0 is invalid for finished job"),
            ),
            (
                json!({}),
                json!({ "conditions": failed }),
                Some("status.startTime: Required value: startTime is required for finished job"),
            ),
            (
                json!({ "failed": 2 }),
                json!({ "failed": 1 }),
                Some("status.failed: Invalid value: 1: cannot decrease the failed counter"),
            ),
            (
                json!({ "succeeded": 2 }),
                json!({}),
                Some("status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"),
            ),
            (
                json!({ "conditions": conditions(&["FailureTarget"]) }),
                json!({}),
                Some(
                    "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
                ),
            ),
            (
                json!({}),
                json!({ "completionTime": end }),
                Some(
                    "status.completionTime: Invalid value: \"2026-01-01T00:01:00Z\": cannot set completionTime when there is no Complete=True condition",
                ),
            ),
            (
                json!({}),
                json!({ "startTime": end, "completionTime": start, "conditions": complete }),
                Some(
                    "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": completionTime cannot be set before startTime",
                ),
            ),
            (
                json!({ "startTime": start }),
                json!({ "startTime": end }),
                Some(
                    "status.startTime: Required value: startTime cannot be removed for unsuspended job",
                ),
            ),
            // An old object that breaks a rule may be written as long as that stays as it is.
            (
                json!({ "active": 1, "conditions": conditions(&["Failed"]) }),
                json!({ "active": 1, "failed": 1, "conditions": conditions(&["Failed"]) }),
                None,
            ),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(refusals(&old, &new), expected, "{old} to {new}");
        }
    }
}
