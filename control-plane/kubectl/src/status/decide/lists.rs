//! Entries of the lists of a report.

use jiff::Timestamp;
use muster_shared::k8s::Condition;
use serde::Serialize;

use super::Next;

/// A workload that is leaving a cluster, or has left it and keeps its old copy there.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Moving {
    pub workload: String,
    pub from: String,
    /// The clusters that it is placed on, those included that it had before.
    pub to: Vec<String>,
    /// Sentence about until when the old copy stays.
    pub why: String,
    pub since: Option<Timestamp>,
}

/// A workload that waits.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Waiting {
    pub workload: String,
    pub reason: String,
    /// Sentence about what the workload waits for, or what keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Clusters that the workload is to leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    pub message: String,
    pub since: Option<Timestamp>,
    /// Seconds until the last of those that wait for the pace has moved, or until the toleration
    /// has run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_seconds: Option<u64>,
    /// Seconds until its copy in a cluster that is silent has stopped itself at the latest,
    /// whether it may then start elsewhere or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops_seconds: Option<u64>,
    /// Event that comes to the workload by time alone; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// Something that ends.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Expiry {
    pub what: String,
    pub end: Timestamp,
}

impl Waiting {
    /// Returns the order in which what waits is listed: what time ends first, then by name.
    pub(super) fn rank(&self) -> (u64, &str) {
        let end = self.at_most_seconds.or(self.stops_seconds);
        (end.unwrap_or(u64::MAX), &self.workload)
    }

    pub(super) fn of(workload: String, condition: &Condition) -> Self {
        Self {
            workload,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: Some(condition.last_transition_time.0),
            ..Self::default()
        }
    }
}
