//! Decides in which clusters an application has been unhealthy for too long.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingSpec, ResourceHealth};
use muster_shared::api::policy::ApplicationFailoverBehavior;
use muster_shared::clock::later;

/// How long an application may be unhealthy when the policy does not say, in seconds (the default
/// of Karmada's schema).
const DEFAULT_TOLERATION_SECONDS: i32 = 300;

/// Since when an application is unhealthy, by cluster.
pub type Since = BTreeMap<String, Timestamp>;

/// Decision that follows from the reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Where it is unhealthy, and since when. What it leaves is among them until it has left.
    pub since: Since,
    /// The clusters that it is to leave, in the order of the reports.
    pub leave: Vec<String>,
    /// The moment after which the next cluster is to be left, if nothing changes.
    pub next: Option<Timestamp>,
}

/// Returns how long an application may be unhealthy.
pub fn toleration(behavior: &ApplicationFailoverBehavior) -> Duration {
    let seconds = behavior
        .decision_conditions
        .toleration_seconds
        .unwrap_or(DEFAULT_TOLERATION_SECONDS);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Reads the reports, with what was known before.
///
/// The time starts with the first report `Unhealthy` of a cluster that the workload is assigned to
/// and is not leaving. `Healthy` and `Unknown` end it: nobody may be moved for what is not known to
/// be wrong. No report, or one without a health, changes nothing (Karmada:
/// `pkg/controllers/applicationfailover`). For a cluster that the workload is not assigned to, no
/// clock is kept; that it is reconciled again is Karmada's, too. One with a share of zero replicas
/// is none: nothing could move from there.
pub fn decide(
    toleration: Duration,
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    known: &Since,
    now: Timestamp,
) -> Verdict {
    let assigned = |cluster: &String| spec.has_copy(cluster);
    let mut verdict = Verdict {
        since: known.clone(),
        ..Verdict::default()
    };
    verdict.since.retain(|cluster, _| assigned(cluster));
    for report in reports {
        let cluster = &report.cluster_name;
        match report.health {
            Some(ResourceHealth::Unhealthy) if spec.eviction_task(cluster).is_none() => {}
            Some(ResourceHealth::Unhealthy) | None => continue,
            Some(_) => {
                verdict.since.remove(cluster);
                continue;
            }
        }
        // A time to come is that of another clock.
        let since = known.get(cluster).map_or(now, |since| (*since).min(now));
        let due = later(since, toleration);
        if now <= due {
            verdict.next = Some(verdict.next.map_or(due, |next| next.min(due)));
        } else if assigned(cluster) {
            verdict.leave.push(cluster.clone());
        }
        if assigned(cluster) {
            verdict.since.insert(cluster.clone(), since);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn a_cluster_that_is_to_have_no_replicas_is_not_left() {
        let reports = json!([{ "clusterName": "m1", "health": "Unhealthy" }]);
        let reports: Vec<AggregatedStatusItem> = serde_json::from_value(reports).unwrap();
        let known = Since::from([("m1".to_owned(), at(0))]);
        for (share, leave) in [(0, &[][..]), (1, &["m1"])] {
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "replicas": 2 + share,
                "clusters": [{"name": "m1", "replicas": share}, {"name": "m2", "replicas": 2}],
            }))
            .unwrap();
            let got = decide(Duration::from_secs(30), &spec, &reports, &known, at(99));
            assert_eq!(got.leave, leave, "{share}");
            assert_eq!(got.since.len(), leave.len(), "{share}");
        }
    }

    #[test]
    fn a_policy_that_says_nothing_tolerates_five_minutes() {
        for (seconds, expected) in [
            (json!({}), 300),
            (json!({"tolerationSeconds": 0}), 0),
            (json!({"tolerationSeconds": 7}), 7),
        ] {
            let behavior = serde_json::from_value(json!({"decisionConditions": seconds})).unwrap();
            assert_eq!(toleration(&behavior), Duration::from_secs(expected));
        }
    }
}
