//! Status of a binding after a schedule, and the patch that writes it.

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingStatus;
use muster_shared::k8s::{Condition, Time};
use muster_shared::names::condition::SCHEDULED;
use muster_shared::{client, conditions};
use serde_json::{Map, Value, json};

use super::fit_error::Kind;

/// Reason of a refusal by Karmada's webhook for quotas, and of the condition `Scheduled` then.
const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// Report of a pass; `None` leaves a field alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The condition `Scheduled`.
    pub scheduled: Option<Verdict>,
    /// `schedulerObservedGeneration`: the generation that was handled to the end.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime`
    pub scheduled_at: Option<Timestamp>,
    /// Whether `scheduled_at` answers a request, so that it is written by itself.
    pub is_answer: bool,
    /// `schedulerObservingAffinityName`: the affinity group in use.
    pub affinity_name: Option<String>,
}

/// Status, reason and message of the condition `Scheduled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the binding is scheduled.
    pub scheduled: bool,
    /// Generation of the binding that it is about; `None` where nobody has to know.
    pub generation: Option<i64>,
    /// The reason, as Karmada has it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Verdict {
    /// Returns the verdict that the binding is where it should be.
    pub fn success() -> Self {
        Self {
            scheduled: true,
            generation: None,
            reason: "Success",
            message: "Binding has been scheduled successfully.".to_owned(),
        }
    }

    /// Returns the verdict that the API does not take the result, such as where a quota of the
    /// fleet says no: it is tried again, and what is placed stays. It is `None` when the API did
    /// not say anything about it.
    pub fn refused(error: &kube::Error, generation: Option<i64>) -> Option<Self> {
        let kube::Error::Api(answer) = error else {
            return None;
        };
        // Of a server in trouble it says nothing about the result, and so of one that does not
        // serve bindings now.
        let is_refusal = (400..500).contains(&answer.code) && !client::is_not_found(error);
        is_refusal.then(|| Self {
            scheduled: false,
            generation,
            reason: if answer.code == 403 && answer.reason == QUOTA_EXCEEDED {
                QUOTA_EXCEEDED
            } else {
                Kind::SchedulerError.reason()
            },
            message: client::brief(error),
        })
    }
}

impl Report {
    /// Returns the status with this report in it.
    pub fn on(&self, status: &ResourceBindingStatus, now: Timestamp) -> ResourceBindingStatus {
        let mut status = status.clone();
        if let Some(verdict) = &self.scheduled {
            let value = if verdict.scheduled {
                conditions::TRUE
            } else {
                conditions::FALSE
            };
            let condition = Condition {
                observed_generation: verdict.generation,
                ..conditions::new(SCHEDULED, value, verdict.reason, &verdict.message, now)
            };
            conditions::set(&mut status.conditions, condition);
        }
        if let Some(generation) = self.observed_generation {
            status.scheduler_observed_generation = generation;
        }
        if let Some(time) = self.scheduled_at {
            status.last_scheduled_time = Some(Time(time));
        }
        if let Some(name) = &self.affinity_name {
            status.scheduler_observed_affinity_name = Some(name.clone());
        }
        status
    }

    /// Returns whether the report says more than that a binding which was scheduled before has been
    /// scheduled again: what decides next, or waits for a decision, goes by that.
    pub fn changes_more_than_times(&self, status: &ResourceBindingStatus, now: Timestamp) -> bool {
        let after = self.on(status, now);
        after.conditions != status.conditions
            || after.scheduler_observed_affinity_name != status.scheduler_observed_affinity_name
    }

    /// Returns the merge patch that brings the report into the status, or `None` when nothing
    /// changed. A time alone is no change unless it answers a request: a binding that is reconciled
    /// often and stays where it is would be written each time.
    pub fn patch(&self, status: &ResourceBindingStatus, now: Timestamp) -> Option<Value> {
        let after = self.on(status, now);
        let mut fields = Map::new();
        if after.conditions != status.conditions {
            fields.insert("conditions".to_owned(), json!(after.conditions));
        }
        if after.scheduler_observed_generation != status.scheduler_observed_generation {
            fields.insert(
                "schedulerObservedGeneration".to_owned(),
                json!(after.scheduler_observed_generation),
            );
        }
        if after.scheduler_observed_affinity_name != status.scheduler_observed_affinity_name {
            fields.insert(
                "schedulerObservingAffinityName".to_owned(),
                json!(after.scheduler_observed_affinity_name),
            );
        }
        let is_update = !fields.is_empty() || self.is_answer;
        if is_update && after.last_scheduled_time != status.last_scheduled_time {
            fields.insert(
                "lastScheduledTime".to_owned(),
                json!(after.last_scheduled_time),
            );
        }
        (!fields.is_empty()).then(|| json!({ "status": fields }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::at;

    fn success(generation: i64, second: i64) -> Report {
        Report {
            scheduled: Some(Verdict::success()),
            observed_generation: Some(generation),
            scheduled_at: Some(at(second)),
            ..Report::default()
        }
    }

    #[test]
    fn only_changes_are_written_and_a_time_alone_is_none() {
        let blank = ResourceBindingStatus::default();
        let scheduled = success(1, 5).on(&blank, at(5));
        assert!(success(1, 5).patch(&blank, at(5)).is_some());
        assert_eq!(success(1, 9).patch(&scheduled, at(9)), None);
        assert_eq!(
            success(2, 9).patch(&scheduled, at(9)),
            Some(json!({ "status": {
                "schedulerObservedGeneration": 2,
                "lastScheduledTime": "1970-01-01T00:00:09Z",
            } }))
        );
    }

    #[test]
    fn conditions_of_others_survive_and_the_time_of_ours_moves_with_its_status() {
        let mut status = ResourceBindingStatus::default();
        status
            .conditions
            .push(conditions::new("FullyApplied", "True", "r", "m", at(1)));
        let status = success(1, 5).on(&status, at(5));
        let failure = Report {
            scheduled: Some(Verdict {
                scheduled: false,
                generation: None,
                reason: "NoClusterFit",
                message: "m".to_owned(),
            }),
            ..Report::default()
        };
        let failed = failure.on(&status, at(7));
        let times = |status: &ResourceBindingStatus| -> Vec<i64> {
            status
                .conditions
                .iter()
                .map(|it| it.last_transition_time.0.as_second())
                .collect()
        };
        assert_eq!(times(&status), [1, 5]);
        assert_eq!(times(&failed), [1, 7]);
        assert_eq!(times(&failure.on(&failed, at(8))), [1, 7]);
    }

    #[test]
    fn a_refused_result_is_reported_if_the_api_said_so() {
        let answer = |code: u16, reason: &str| {
            let status =
                json!({ "status": "Failure", "code": code, "reason": reason, "message": "no" });
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        for (code, reason, expected) in [
            (403, "QuotaExceeded", Some("QuotaExceeded")),
            (403, "Forbidden", Some("SchedulerError")),
            (422, "Invalid", Some("SchedulerError")),
            (404, "NotFound", None),
            (500, "InternalError", None),
            (503, "ServiceUnavailable", None),
        ] {
            let verdict = Verdict::refused(&answer(code, reason), None);
            assert_eq!(verdict.as_ref().map(|it| it.reason), expected, "{code}");
            let reported = format!("no ({code} {reason})");
            assert!(verdict.is_none_or(|it| it.message == reported && !it.scheduled));
        }
    }
}
