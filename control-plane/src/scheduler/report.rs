//! What a pass reports in a binding's status, and the patch that says it.

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingStatus;
use muster_shared::conditions;
use muster_shared::k8s::Time;
use muster_shared::names::condition::SCHEDULED;
use serde_json::{Map, Value, json};

/// What a pass reports; `None` leaves a field alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The condition `Scheduled`.
    pub scheduled: Option<Verdict>,
    /// `schedulerObservedGeneration`: the generation that was handled to the end.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime`
    pub scheduled_at: Option<Timestamp>,
    /// `schedulerObservingAffinityName`: the affinity group in use.
    pub affinity_name: Option<String>,
}

/// Status, reason and message of the condition `Scheduled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the binding is scheduled.
    pub scheduled: bool,
    /// The reason, as Karmada has it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Verdict {
    /// The binding is where it should be.
    pub fn success() -> Self {
        Self {
            scheduled: true,
            reason: "Success",
            message: "Binding has been scheduled successfully.".to_owned(),
        }
    }
}

impl Report {
    /// The status with this report in it.
    pub fn on(&self, status: &ResourceBindingStatus, now: Timestamp) -> ResourceBindingStatus {
        let mut status = status.clone();
        if let Some(verdict) = &self.scheduled {
            let value = if verdict.scheduled {
                conditions::TRUE
            } else {
                conditions::FALSE
            };
            let condition =
                conditions::new(SCHEDULED, value, verdict.reason, &verdict.message, now);
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

    /// The merge patch that brings the report into the status, or `None` when it is no news. A time alone is none: a
    /// binding that is looked at often and stays where it is would be written each time.
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
        if fields.is_empty() {
            return None;
        }
        if after.last_scheduled_time != status.last_scheduled_time {
            fields.insert(
                "lastScheduledTime".to_owned(),
                json!(after.last_scheduled_time),
            );
        }
        Some(json!({ "status": fields }))
    }
}
