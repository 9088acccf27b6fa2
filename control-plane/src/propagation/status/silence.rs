//! Reports of silent clusters count as unknown.
//!
//! The last report of a cluster that is silent stays in its Works, and says that all is well. It
//! is shown for what it is: health `Unknown`, not applied, with the time and the last report in
//! words; the reported status stays, since state preservation and completed Jobs are read from it.
//! Copies on silent clusters count on the template as Kubernetes counts Pods on a silent node: they
//! exist, and are neither ready nor available. Pure.
//!
//! Everything follows from the Cluster object: a restart of the control plane changes nothing, and
//! one change of the condition is one change here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceHealth};
use muster_shared::api::cluster::Cluster;
use muster_shared::check::few;
use muster_shared::conditions;
use muster_shared::names::condition::READY;
use serde_json::{Map, Value};

use crate::fleet::silent_reports::UNKNOWN_SINCE;

/// The reason of `Ready=False` with which the collector says that it cannot reach the member.
const NOT_REACHABLE: &str = "ClusterNotReachable";
/// Maximum number of clusters that a condition names.
const MOST_NAMED: usize = 10;

/// Counters of copies that are known to run: 0 on a silent cluster. The last ones are those of
/// kinds of Kruise and Ray.
const KNOWN_TO_RUN: [&str; 11] = [
    "readyReplicas",
    "availableReplicas",
    "numberReady",
    "numberAvailable",
    "currentHealthy",
    "disruptionsAllowed",
    "ready",
    "updatedReadyReplicas",
    "readyPods",
    "readyWorkerReplicas",
    "availableWorkerReplicas",
];
/// Counters of copies that are not available, each with the counter of all copies.
const UNAVAILABLE: [(&str, &str); 2] = [
    ("unavailableReplicas", "replicas"),
    ("numberUnavailable", "desiredNumberScheduled"),
];

/// Silence of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// The transition time of the cluster's Ready condition.
    since: Timestamp,
    /// The reason of that condition.
    reason: String,
}

impl Silence {
    /// Returns the silence of a cluster whose agent is silent, or whose API the collector cannot
    /// reach. `None` for a cluster that says that it is not ready: its reports arrive.
    pub(super) fn of(cluster: &Cluster) -> Option<Self> {
        let ready = cluster.condition(READY)?;
        let is_silent = ready.status == conditions::UNKNOWN
            || (ready.status == conditions::FALSE && ready.reason == NOT_REACHABLE);
        is_silent.then(|| Self {
            since: ready.last_transition_time.0,
            reason: ready.reason.clone(),
        })
    }

    /// Returns the message of an item, with the last report in words.
    fn message(&self, last: &AggregatedStatusItem) -> String {
        let words = match (&last.health, &last.applied_message) {
            (_, Some(message)) if !last.applied => format!("not applied: {message}"),
            (Some(health), _) if last.applied => format!("{health:?}"),
            _ => "nothing".to_owned(),
        };
        let (since, reason) = (self.since, &self.reason);
        format!(
            "{UNKNOWN_SINCE}{since:.0} ({reason}): the cluster is silent; it last reported: {words}"
        )
    }
}

/// The silent clusters of a binding, by name.
pub(super) type Silent = BTreeMap<String, Silence>;

/// Shows the reports of silent clusters as unknown.
pub(super) fn mark(items: &mut [AggregatedStatusItem], silent: &Silent) {
    for item in items {
        let Some(silence) = silent.get(&item.cluster_name) else {
            continue;
        };
        item.applied_message = Some(silence.message(item));
        item.applied = false;
        item.health = Some(ResourceHealth::Unknown);
    }
}

/// Returns the message of the condition `FullyApplied` when only silence leaves it open.
pub(super) fn all_silent(silent: &Silent) -> String {
    let words = silent.iter();
    let words = words.map(|(name, it)| format!("{name} (unknown since {:.0})", it.since));
    let words: Vec<String> = words.collect();
    let named = few(&words, MOST_NAMED, ", ", |more| {
        format!(", and {more} more")
    });
    format!("clusters are silent: {named}")
}

/// Returns the items as they are counted on the template.
pub(super) fn counted<'i>(
    items: &'i [AggregatedStatusItem],
    silent: &Silent,
) -> Cow<'i, [AggregatedStatusItem]> {
    if silent.is_empty() {
        return Cow::Borrowed(items);
    }
    let mut items = items.to_vec();
    for item in &mut items {
        if silent.contains_key(&item.cluster_name)
            && let Some(Value::Object(status)) = item.status.as_mut().map(|status| &mut status.0)
        {
            discount(status);
        }
    }
    Cow::Owned(items)
}

/// Counts no copy of a status as running.
fn discount(status: &mut Map<String, Value>) {
    for key in KNOWN_TO_RUN {
        if let Some(count) = status.get_mut(key).filter(|count| count.is_number()) {
            *count = 0.into();
        }
    }
    for (key, all) in UNAVAILABLE {
        if let Some(all) = status.get(all).filter(|count| count.is_number()).cloned() {
            status.insert(key.to_owned(), all);
        }
    }
    for key in ["containerStatuses", "initContainerStatuses"] {
        let containers = status.get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(ready) = container.get_mut("ready") {
                *ready = false.into();
            }
        }
    }
}

#[cfg(test)]
mod tests;
