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

    /// Statuses before and after, with the conditions that are true, and what is refused. An old
    /// object that breaks a rule may be written as long as that stays as it is.
    const CASES: &str = r#"
{} | {"startTime": "noon", "failed": 1, "conditions": ["FailureTarget", "Failed"]} |
{} | {"startTime": "noon", "completionTime": "one", "conditions": ["SuccessCriteriaMet", "Complete"]} |
{} | {"startTime": "noon", "conditions": ["Failed"]} | status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition
{} | {"startTime": "noon", "completionTime": "one", "conditions": ["Complete"]} | status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition
{} | {"active": 1, "startTime": "noon", "conditions": ["FailureTarget", "Failed"]} | status.active: Invalid value: 1: active>0 is invalid for finished job
{} | {"conditions": ["FailureTarget", "Failed"]} | status.startTime: Required value: startTime is required for finished job
{"failed": 2} | {"failed": 1} | status.failed: Invalid value: 1: cannot decrease the failed counter
{"succeeded": 2} | {} | status.succeeded: Invalid value: null: cannot decrease the succeeded counter
{"conditions": ["FailureTarget"]} | {} | status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition
{} | {"completionTime": "one"} | status.completionTime: Invalid value: "one": cannot set completionTime when there is no Complete=True condition
{"active": 1, "conditions": ["Failed"]} | {"active": 1, "failed": 1, "conditions": ["Failed"]} |
"#;

    fn job(status: &str) -> Value {
        let mut status: Value = serde_json::from_str(status).expect(status);
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            *condition = json!({ "type": condition.take(), "status": "True" });
        }
        json!({ "spec": {}, "status": status })
    }

    #[test]
    fn what_a_job_says_of_itself_is_complete_and_stays() {
        for case in CASES.trim().lines() {
            let parts: Vec<&str> = case.split('|').map(str::trim).collect();
            let (old, new) = (job(parts[0]), job(parts[1]));
            let mut check = Check {
                new: &new,
                old: Some(&old),
                errors: Vec::new(),
            };
            status(&mut check, &old["status"]);
            let refusals: Vec<String> = check.errors.iter().map(ToString::to_string).collect();
            assert_eq!(refusals.join("; "), parts[2], "{case}");
        }
    }
}
