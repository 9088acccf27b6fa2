//! Aggregates the status of Jobs and CronJobs.

use jiff::Timestamp;
use muster_shared::api::binding::AggregatedStatusItem;
use serde_json::{Map, Value, json};

use super::{Collected, Error, JOB, put_sums};
use crate::read::{field, list, text, wrong_type};

/// Returns whether the template has finished: it is never changed again.
pub(super) fn is_finished(template: &Value) -> Result<bool, Error> {
    Ok(outcome(list(template, &["status", "conditions"])?).is_some())
}

/// Returns the aggregated status of a Job that has not finished.
pub(super) fn job(
    template: &Value,
    members: &[AggregatedStatusItem],
    collected: &[Collected<'_>],
    now: Timestamp,
) -> Result<Option<Value>, Error> {
    let mut status = Map::new();
    put_sums(&mut status, &JOB, collected)?;

    let (mut failed, mut complete, mut criteria_met) = (Vec::new(), 0, 0);
    let (mut started, mut completed) = (Vec::new(), Vec::new());
    for member in collected {
        let conditions = member.blame(list(member.status, &["conditions"]))?;
        match outcome(conditions) {
            Some("Failed") => failed.push(member.cluster),
            Some(_) => complete += 1,
            None => {}
        }
        criteria_met += usize::from(
            conditions
                .iter()
                .any(|condition| holds(condition, "SuccessCriteriaMet")),
        );
        started.extend(member.blame(time(member.status, "startTime"))?);
        completed.extend(member.blame(time(member.status, "completionTime"))?);
    }

    let everywhere = |number: usize| number > 0 && number == members.len();
    let mut conditions = Vec::new();
    if !failed.is_empty() {
        let message = format!(
            "Job executed failed in member clusters {}",
            failed.join(",")
        );
        conditions.push(condition("Failed", "JobFailed", &message, now));
    }
    if everywhere(complete) {
        conditions.push(condition("Complete", "Completed", "Job completed", now));
        if everywhere(criteria_met) {
            let message = "All member clusters have met success criteria";
            conditions.push(condition(
                "SuccessCriteriaMet",
                "CompletionsReached",
                message,
                now,
            ));
        }
    }
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    let first_start = everywhere(started.len())
        .then(|| started.iter().min())
        .flatten();
    if let Some(start) = field(template, &["status", "startTime"])
        .cloned()
        .or_else(|| first_start.map(|time| json!(time.to_string())))
    {
        status.insert("startTime".to_owned(), start);
    }
    if let Some(end) = completed
        .iter()
        .max()
        .filter(|_| everywhere(completed.len()))
    {
        status.insert("completionTime".to_owned(), json!(end.to_string()));
    }
    Ok(Some(Value::Object(status)))
}

/// Returns the aggregated status of a CronJob: all active Jobs, the latest times.
pub(super) fn cron_job(collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut status = Map::new();
    let mut active = Vec::new();
    for member in collected {
        active.extend_from_slice(member.blame(list(member.status, &["active"]))?);
    }
    if !active.is_empty() {
        status.insert("active".to_owned(), Value::Array(active));
    }
    for key in ["lastScheduleTime", "lastSuccessfulTime"] {
        let mut times = Vec::new();
        for member in collected {
            times.extend(member.blame(time(member.status, key))?);
        }
        if let Some(latest) = times.iter().max() {
            status.insert(key.to_owned(), json!(latest.to_string()));
        }
    }
    Ok(Some(Value::Object(status)))
}

/// Returns `Complete` or `Failed`, whichever condition is true first; `None` while the Job runs.
fn outcome(conditions: &[Value]) -> Option<&'static str> {
    conditions.iter().find_map(|condition| {
        ["Complete", "Failed"]
            .into_iter()
            .find(|of| holds(condition, of))
    })
}

pub(super) fn holds(condition: &Value, of: &str) -> bool {
    condition["type"] == of && condition["status"] == "True"
}

pub(super) fn condition(of: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = now.to_string();
    json!({ "type": of, "status": "True", "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now })
}

fn time(status: &Value, key: &str) -> Result<Option<Timestamp>, Error> {
    let Some(text) = text(status, &[key])? else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| wrong_type(&[key], "a time", &Value::from(text)).into())
}
