//! Jobs and cron jobs: their pods do not restart always, what they do does not change, and from
//! 1.32 on what was counted and announced is not taken back, and an end is complete.

use serde_json::Value;

use super::{Check, pods};
use crate::wire::field_error::FieldError;

/// Restart policies of pods that come to an end.
const ENDS: &[&str] = &["OnFailure", "Never"];

/// Checks a job.
pub fn job(check: &mut Check<'_>) {
    check.at_least(
        0,
        &["spec.parallelism", "spec.completions", "spec.backoffLimit"],
    );
    if check.old.is_none() {
        pods::spec(check, "spec.template.spec", ENDS);
    }
    let mode = check.at("spec.completionMode");
    check.one_of("spec.completionMode", mode, &["NonIndexed", "Indexed"]);
    check.immutable("spec.selector");
    check.immutable("spec.completionMode");
    if mode != "Indexed" {
        check.immutable("spec.completions");
    }
    // While a job is suspended, where and how its pods will run may still be decided.
    if check.was("spec.suspend").is_none_or(|it| *it != true) {
        check.immutable("spec.template");
    }
    if let Some(old) = check.was("status").filter(|old| *old != check.at("status")) {
        status(check, old);
    }
}

/// Checks a job by the clock.
pub fn cron_job(check: &mut Check<'_>) {
    let schedule = check.at("spec.schedule");
    if check.required("spec.schedule", schedule) {
        let text = schedule.as_str().unwrap_or_default();
        let fields: Vec<&str> = text.split_whitespace().collect();
        if !text.starts_with('@') && fields.len() != 5 {
            let detail = format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            );
            check.invalid("spec.schedule", schedule, &detail);
        }
    }
    pods::spec(check, "spec.jobTemplate.spec.template.spec", ENDS);
}

/// Checks a status that changes.
fn status(check: &mut Check<'_>, old: &Value) {
    let new = check.at("status");
    let is = |status: &Value, condition: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.any(|it| it["type"] == condition && it["status"] == "True")
    };
    let mut refuse = |wrong: bool, detail: String| {
        if wrong {
            let error = FieldError::omitted("status.conditions", detail);
            check.push(error);
        }
    };
    for of in ["Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"] {
        let detail = format!("cannot disable the terminal {of}=True condition");
        refuse(is(old, of) && !is(new, of), detail);
    }
    for (end, before) in [
        ("Failed", "FailureTarget"),
        ("Complete", "SuccessCriteriaMet"),
    ] {
        let detail = format!("cannot set {end}=True condition without the {before}=true condition");
        refuse(!is(old, end) && is(new, end) && !is(new, before), detail);
    }
    for (one, other) in [
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("SuccessCriteriaMet", "Failed"),
        ("SuccessCriteriaMet", "FailureTarget"),
    ] {
        let detail = format!("cannot set {one}=True and {other}=true conditions");
        let before = is(old, one) && is(old, other);
        refuse(!before && is(new, one) && is(new, other), detail);
    }
    let number = |status: &Value, key: &str| status[key].as_i64().unwrap_or(0);
    for key in ["failed", "succeeded"] {
        if number(new, key) < number(old, key) {
            let detail = format!("cannot decrease the {key} counter");
            check.invalid(&format!("status.{key}"), &new[key], &detail);
        }
    }
    let complete = is(new, "Complete");
    let ends = !is(old, "Complete") && complete || !is(old, "Failed") && is(new, "Failed");
    if ends && number(new, "active") > 0 {
        let detail = "active>0 is invalid for finished job";
        check.invalid("status.active", &new["active"], detail);
    }
    if number(new, "ready") > number(new, "active").max(number(old, "ready")) {
        let detail = "cannot set more ready pods than active";
        check.invalid("status.ready", &new["ready"], detail);
    }
    if ends && new["startTime"].is_null() {
        let detail = "startTime is required for finished job";
        check.push(FieldError::required("status.startTime", detail));
    }
    let end = &new["completionTime"];
    if !old["completionTime"].is_null() && old["completionTime"] != *end {
        check.invalid("status.completionTime", end, "cannot be mutated");
    } else if complete && end.is_null() {
        let detail = "completionTime is required for Complete jobs";
        check.push(FieldError::required("status.completionTime", detail));
    } else if !complete && !end.is_null() {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        check.invalid("status.completionTime", end, detail);
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
        status(&mut check, &old["status"]);
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
                Some(
                    "status.succeeded: Invalid value: null: cannot decrease the succeeded counter",
                ),
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
