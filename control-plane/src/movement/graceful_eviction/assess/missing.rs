//! What a task still waits for, in words for people.

use jiff::Timestamp;
use muster_shared::api::binding::{GracefulEvictionTask, ResourceHealth, TargetCluster};

use super::{Age, FIRST_STATUS, Facts, Situation, end};
use crate::fleet::copy::{WorkState, ready_replicas};
use crate::fleet::place_state::PlaceState;

/// Reasons why a task is not complete by the health of the replacement, each a sentence without a
/// stop, and when the policy's grace period would end it. Empty if nothing is missing.
pub fn missing(task: &GracefulEvictionTask, facts: &Facts<'_>, now: Timestamp) -> Vec<String> {
    match task.suppress_deletion {
        Some(true) => {
            return vec![
                "suppressDeletion of the task is true: somebody has to set it to false".to_owned(),
            ];
        }
        Some(false) => return Vec::new(),
        None => {}
    }
    if facts.is_unwanted() {
        return Vec::new();
    }
    if facts.clusters.is_empty() {
        return vec!["no cluster has been chosen to take it".to_owned()];
    }
    let created = task.creation_timestamp.as_ref().map_or(now, |it| it.0);
    let situation = Situation::of(facts);
    let age = Age {
        task,
        age: now.duration_since(created),
    };
    if situation.is_replaced(&age) {
        return Vec::new();
    }
    let mut missing = Vec::new();
    if !facts.scheduled {
        missing.push("the scheduler has not dealt with its latest change".to_owned());
    }
    let of_copies = facts.copies();
    missing.extend(of_copies.filter_map(|target| situation.lacks(target)));
    if missing.is_empty() && !situation.available {
        missing.push("every chosen cluster has to be left itself".to_owned());
    }
    if missing.is_empty() {
        // The copies are healthy by what they say, and say less than the old one.
        let counts = created.saturating_add(FIRST_STATUS).ok();
        let until = counts.filter(|it| *it > now && !facts.has_rule);
        let until = until.map_or_else(String::new, |it| format!(", or {it:.0} to pass"));
        missing.push(format!(
            "the new copies have to report a status that shows their health, as the old one did{until}"
        ));
    }
    if let Some(end) = end(task, created) {
        missing.push(if end > now {
            format!("at {end:.0} the grace period of the policy ends it whatever their health is, if a chosen cluster is available and has applied its Work, and each other available one has applied or refused its own")
        } else {
            "the grace period of the policy is over: it ends when a chosen cluster is available and has applied its Work, and each other available one has applied or refused its own".to_owned()
        });
    }
    missing
}

impl Situation<'_> {
    /// Returns the reason why the copy in a chosen cluster does not count as a replacement; `None`
    /// if it does.
    fn lacks(&self, target: &TargetCluster) -> Option<String> {
        let name = &target.name;
        match (self.facts.cluster)(name) {
            PlaceState::Silent => {
                return Some(format!(
                    "{name} is not ready: its last report does not count"
                ));
            }
            PlaceState::Gone => return Some(format!("{name} has left the fleet")),
            PlaceState::Sound | PlaceState::Left => {}
        }
        let Some(report) = self.reports.get(name.as_str()) else {
            return Some(format!("{name} has not reported its copy yet"));
        };
        match report.health {
            Some(ResourceHealth::Healthy) => {}
            Some(ResourceHealth::Unhealthy) => {
                return Some(format!("the copy on {name} is not healthy"));
            }
            _ => return Some(format!("the health of the copy on {name} is not known")),
        }
        let facts = self.facts;
        if facts.runs(name, Some(report), target.replicas) {
            return None;
        }
        if (facts.work)(name) == WorkState::Refused {
            return Some(format!("the copy on {name} could not be applied"));
        }
        let status = report.status.as_ref();
        let ready = status.and_then(|it| ready_replicas(&it.0));
        Some(format!(
            "the copy on {name} has {} of {} replicas ready",
            ready.unwrap_or(0),
            target.replicas
        ))
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::AggregatedStatusItem;
    use muster_shared::k8s::{RawExtension, Time};
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::at;
    use crate::movement::graceful_eviction::assess::tests::facts;

    fn report(health: Option<ResourceHealth>, status: Option<Value>) -> AggregatedStatusItem {
        AggregatedStatusItem {
            cluster_name: "new".to_owned(),
            health,
            status: status.map(RawExtension),
            ..AggregatedStatusItem::default()
        }
    }

    #[test]
    fn what_a_task_waits_for_is_reported_of_each_chosen_cluster() {
        use PlaceState::{Left, Silent, Sound};
        use ResourceHealth::{Healthy, Unhealthy};
        let two = &[TargetCluster {
            name: "new".to_owned(),
            replicas: 2,
            ..TargetCluster::default()
        }][..];
        let counted = |ready| json!({"replicas": 2, "readyReplicas": ready});
        let [well, fewer] = [2, 1].map(|it| [report(Some(Healthy), Some(counted(it)))]);
        let ill = [report(Some(Unhealthy), None)];
        let unchosen = Some("no cluster has been chosen to take it");
        let unreported = Some("new has not reported its copy yet");
        let silent = Some("new is not ready: its last report does not count");
        let unhealthy = Some("the copy on new is not healthy");
        let few = Some("the copy on new has 1 of 2 replicas ready");
        let left = Some("every chosen cluster has to be left itself");
        let late = Some("the scheduler has not dealt with its latest change");
        for (clusters, reports, state, scheduled, expected) in [
            (&[][..], &[][..], Sound, true, unchosen),
            (two, &[], Sound, true, unreported),
            (two, &well, Silent, true, silent),
            (two, &ill, Sound, true, unhealthy),
            (two, &fewer, Sound, true, few),
            (two, &well, Left, true, left),
            (two, &well, Sound, false, late),
            (two, &well, Sound, true, None),
        ] {
            let facts = Facts {
                scheduled,
                cluster: &|name| match name {
                    "old" => Silent,
                    _ => state,
                },
                has_rule: true,
                counts_replicas: false,
                ..facts(clusters, reports)
            };
            let mut task = GracefulEvictionTask {
                from_cluster: "old".to_owned(),
                creation_timestamp: Some(Time(at(0))),
                ..GracefulEvictionTask::default()
            };
            let said = missing(&task, &facts, at(10));
            assert_eq!(said.first().map(String::as_str), expected);
            // The control plane decides by the same reasons.
            let done = super::super::assess(std::slice::from_ref(&task), &facts, at(10)).done;
            assert_eq!(done.is_empty(), !said.is_empty(), "{expected:?}");
            task.grace_period_seconds = Some(60);
            let with_grace = missing(&task, &facts, at(10));
            if expected.is_some() && !clusters.is_empty() {
                assert_eq!(with_grace.len(), 2, "{with_grace:?}");
                assert!(with_grace[1].starts_with("at 1970-01-01T00:01:00Z the grace period"));
            }
        }
    }

    #[test]
    fn until_when_a_copy_that_says_less_than_the_old_one_is_not_enough_is_reported() {
        let clusters = [TargetCluster {
            name: "new".to_owned(),
            ..TargetCluster::default()
        }];
        let mut old = report(
            Some(ResourceHealth::Healthy),
            Some(json!({"conditions": [{"type": "Ready", "status": "True"}]})),
        );
        old.cluster_name = "old".to_owned();
        let reports = [old, report(Some(ResourceHealth::Healthy), Some(json!({})))];
        let first = FIRST_STATUS.as_secs();
        // Seconds since the task began, and of its grace period.
        for (now, grace, until, end) in [
            (10, None, Some(", or 1970-01-01T00:05:00Z to pass"), None),
            (10, Some(10), Some("Z to pass"), Some("is over")),
            (
                9,
                Some(10),
                Some("Z to pass"),
                Some("at 1970-01-01T00:00:10Z"),
            ),
            (first, None, None, None),
        ] {
            let facts = facts(&clusters, &reports);
            let task = GracefulEvictionTask {
                from_cluster: "old".to_owned(),
                creation_timestamp: Some(Time(at(0))),
                grace_period_seconds: grace,
                ..GracefulEvictionTask::default()
            };
            let said = missing(&task, &facts, at(now));
            let first = said.first().map_or("", String::as_str);
            assert!(first.contains(until.unwrap_or("")), "{now}: {said:?}");
            assert_eq!(
                first.contains("to pass"),
                until.is_some(),
                "{now}: {said:?}"
            );
            assert_eq!(said.get(1).is_some(), end.is_some(), "{now}: {said:?}");
            assert!(
                end.is_none_or(|end| said[1].contains(end)),
                "{now}: {said:?}"
            );
        }
    }
}
