//! Coverage of decisions: which branches of the deciding code a history shows.
//!
//! The product tells each of its decisions in an event, a condition or a task, and those are read
//! here: the product has no counters for tests. A branch that no run ever shows is one of which the
//! simulation says nothing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::history::{Actor, Api, History, Request};
use crate::oracle::objects::{items, text};

/// How often each branch was taken, by its name.
pub type Coverage = BTreeMap<String, u64>;

/// A decision that is known by what is told of it: its name, and a part of the message.
type Told = (&'static str, &'static str);

/// Decisions that messages of conditions and events tell. A message may tell several.
const MESSAGES: &[Told] = &[
    ("judge: untolerated", ", which is not tolerated"),
    (
        "judge: toleration ends",
        ", which is tolerated for a limited time only",
    ),
    (
        "judge: failover.cluster",
        ", on which failover.cluster moves",
    ),
    ("judge: gate off", "feature gate Failover is off"),
    (
        "judge: PreferNoExecute not asked",
        "its policy has no failover.cluster",
    ),
    (
        "judge: tolerated for ever",
        "every taint of the cluster is tolerated",
    ),
    ("judge: no taint", "the cluster has no taint that evicts"),
    ("judge: no placement", "so its tolerations are unknown"),
    ("judge: completed Job", "the Job has completed there"),
    ("plan: waits for toleration", ": it stays until 20"),
    (
        "plan: waits for the rate",
        "it leaves when the eviction rate allows",
    ),
    (
        "plan: stopped by threshold",
        "it stays until enough clusters return",
    ),
    (
        "plan: waits for a fence",
        "it leaves when its copy there is stopped",
    ),
    ("plan: not fenced", "because nothing stops that"),
    ("plan: left gracefully", "(Gracefully)"),
    ("plan: left directly", "(Directly)"),
    (
        "plan: recovered before",
        "recovered before the workload had to leave it",
    ),
    ("plan: moved before", "is none of its clusters any more"),
    (
        "plan: cluster gone before",
        "is not known in the fleet any more",
    ),
    ("plan: nowhere, no fit", "could take it: 0/"),
    (
        "plan: nowhere, constraints",
        "could take it: failed to select clusters",
    ),
    (
        "plan: nowhere, no room",
        "could take it: failed to assign replicas",
    ),
    ("plan: nowhere, empty", "the placement would be empty"),
    ("plan: suspended", "its scheduling is suspended"),
    ("plan: state not preserved", "its state cannot be preserved"),
    ("plan: write failed", "Evict from cluster "),
    (
        "schedule: placed",
        "Binding has been scheduled successfully",
    ),
    (
        "schedule: refused, no API",
        "cluster(s) did not have the API resource",
    ),
    (
        "schedule: refused, taint",
        "cluster(s) had untolerated taint",
    ),
    ("schedule: refused, not ready", "cluster(s) were not ready"),
    (
        "schedule: refused, Works unread",
        "cluster(s) could not read their Works",
    ),
    (
        "schedule: refused, affinity",
        "cluster(s) did not match the placement",
    ),
    (
        "schedule: refused, no provider",
        "cluster(s) did not have provider",
    ),
    (
        "schedule: refused, no region",
        "cluster(s) did not have region",
    ),
    (
        "schedule: refused, no zones",
        "cluster(s) did not have zones",
    ),
    (
        "schedule: refused, no label",
        "cluster(s) did not have the label",
    ),
    (
        "schedule: refused, evicting",
        "cluster(s) is in the process of eviction",
    ),
    ("schedule: no cluster exists", "no cluster exists"),
    (
        "schedule: too few clusters",
        "the number of feasible clusters is less",
    ),
    (
        "schedule: too few clusters in groups",
        "the number of clusters is less than the cluster",
    ),
    ("schedule: too few regions", "the number of feasible region"),
    (
        "schedule: too little room for a selection",
        "no enough resource when selecting",
    ),
    (
        "schedule: constraints in conflict",
        "the clusters that meet the other spread",
    ),
    (
        "schedule: constraints unsupported",
        "just support cluster and region",
    ),
    ("schedule: too little room", "are not enough to schedule"),
    (
        "schedule: weights closed",
        "no cluster with a weight admits",
    ),
    (
        "schedule: no candidates",
        "no clusters available to schedule",
    ),
    (
        "schedule: division unsupported",
        "unsupported replica scheduling",
    ),
    ("schedule: unknown clusters", "was not seen leaving"),
    (
        "application: tolerated",
        "the application has been unhealthy in",
    ),
    (
        "application: not ready",
        "so that its last report may be out of date",
    ),
    ("application: returned", "came back a moment ago"),
    ("application: rests", "times lately; it may leave again"),
    ("application: rate", "--resource-eviction-rate allows"),
    (
        "application: stopped",
        "beyond --unhealthy-cluster-threshold",
    ),
];

/// Decisions that reasons of conditions and events tell.
const REASONS: &[Told] = &[
    ("application: moved", "ApplicationMoved"),
    ("application: recovered", "ApplicationRecovered"),
    ("assess: copy removed", "EvictWorkloadFromClusterSucceed"),
    (
        "assess: task abandoned",
        "EvictWorkloadFromClusterAbandoned",
    ),
];

/// Decisions that tasks and placements tell.
const SHAPES: &[&str] = &[
    "assess: replaced",
    "assess: grace period over",
    "assess: released",
    "assess: back in place",
    "assess: no replacement",
    "assess: cluster gone",
    "schedule: duplicated",
    "schedule: divided by weights",
    "schedule: divided by room",
    "schedule: divided, aggregated",
    "schedule: spread by cluster",
    "schedule: spread by region",
    "schedule: spread by zone",
    "schedule: spread by provider",
    "schedule: spread by label",
    "schedule: another affinity group",
    "schedule: emptied",
];

/// Names of all known branches.
pub fn all() -> impl Iterator<Item = &'static str> {
    let told = MESSAGES.iter().chain(REASONS).map(|(name, _)| *name);
    told.chain(SHAPES.iter().copied())
}

/// Returns the branches that a history shows.
pub fn of(history: &History) -> Coverage {
    let mut coverage = Coverage::new();
    for entry in history.entries() {
        let request = entry.commit().filter(|it| it.api == Api::Fleet);
        if let Some(request) = request
            && matches!(request.actor, Actor::Process(_))
        {
            note(request, entry.at, &mut |branch| {
                *coverage.entry(branch.to_owned()).or_default() += 1;
            });
        }
    }
    coverage
}

fn note(request: &Request, at: Timestamp, take: &mut dyn FnMut(&'static str)) {
    let Some(after) = request.after.as_deref() else {
        return;
    };
    let before = request.before.as_deref().unwrap_or(&Value::Null);
    match request.resource.plural.as_str() {
        "events" => tell(after, take),
        "resourcebindings" | "clusterresourcebindings" => {
            let told: Vec<&Value> = items(before, "/status/conditions").collect();
            for condition in items(after, "/status/conditions") {
                if !told.contains(&condition) {
                    tell(condition, take);
                }
            }
            assessed(before, after, at, take);
            scheduled(before, after, take);
        }
        _ => {}
    }
}

/// Takes the branches that the words of a condition or an event show.
fn tell(words: &Value, take: &mut dyn FnMut(&'static str)) {
    let (message, reason) = (text(words, "/message"), text(words, "/reason"));
    for (branch, part) in MESSAGES {
        if message.contains(part) && (*branch != "plan: write failed" || message.contains("failed"))
        {
            take(branch);
        }
    }
    for (branch, whole) in REASONS {
        if reason == *whole {
            take(branch);
        }
    }
}

/// Takes, for each task that an update took off, the branch that says why it ended.
fn assessed(before: &Value, after: &Value, at: Timestamp, take: &mut dyn FnMut(&'static str)) {
    const TASKS: &str = "/spec/gracefulEvictionTasks";
    let is_in = |binding: &Value, path: &str, key: &str, name: &str| {
        items(binding, path).any(|it| text(it, key) == name)
    };
    for task in items(before, TASKS) {
        let from = text(task, "/fromCluster");
        if is_in(after, TASKS, "/fromCluster", from) {
            continue;
        }
        let begun = text(task, "/creationTimestamp").parse::<Timestamp>();
        let grace = task["gracePeriodSeconds"].as_i64();
        let is_over = begun.is_ok_and(|begun| {
            grace.is_some_and(|grace| at.duration_since(begun) >= SignedDuration::from_secs(grace))
        });
        take(if task["suppressDeletion"] == false {
            "assess: released"
        } else if is_in(before, "/spec/clusters", "/name", from) {
            "assess: back in place"
        } else if is_in(after, "/spec/clusters", "/name", from) {
            "assess: no replacement"
        } else if items(after, "/spec/clusters").next().is_none() {
            "assess: cluster gone"
        } else if is_over {
            "assess: grace period over"
        } else {
            "assess: replaced"
        });
    }
}

/// Takes the branches that say by which rules the clusters of a binding were chosen anew.
fn scheduled(before: &Value, after: &Value, take: &mut dyn FnMut(&'static str)) {
    let group = |binding: &Value| text(binding, "/status/schedulerObservedAffinityName").to_owned();
    if !group(before).is_empty() && group(before) != group(after) {
        take("schedule: another affinity group");
    }
    let clusters = |binding: &Value| binding["spec"]["clusters"].clone();
    if clusters(before) == clusters(after) {
        return;
    }
    if items(after, "/spec/clusters").next().is_none() {
        take("schedule: emptied");
        return;
    }
    let placement = &after["spec"]["placement"];
    let division = &placement["replicaScheduling"];
    take(
        match (
            text(division, "/replicaSchedulingType"),
            text(division, "/replicaDivisionPreference"),
        ) {
            ("Divided", "Aggregated") => "schedule: divided, aggregated",
            ("Divided", _) if division["weightPreference"]["dynamicWeight"].is_string() => {
                "schedule: divided by room"
            }
            ("Divided", _) => "schedule: divided by weights",
            _ => "schedule: duplicated",
        },
    );
    for constraint in items(placement, "/spreadConstraints") {
        take(match text(constraint, "/spreadByField") {
            "region" => "schedule: spread by region",
            "zone" => "schedule: spread by zone",
            "provider" => "schedule: spread by provider",
            "cluster" => "schedule: spread by cluster",
            _ => "schedule: spread by label",
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn taken(read: impl FnOnce(&mut dyn FnMut(&'static str))) -> BTreeSet<&'static str> {
        let mut taken = BTreeSet::new();
        read(&mut |branch| _ = taken.insert(branch));
        taken
    }

    #[test]
    fn each_branch_has_a_name_of_its_own_and_an_area() {
        let names: Vec<&str> = all().collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), different.len());
        for name in names {
            let area = name.split(": ").next().unwrap();
            let areas = ["judge", "plan", "assess", "schedule", "application"];
            assert!(areas.contains(&area), "{name}");
        }
    }

    #[test]
    fn a_message_tells_each_decision_that_it_names() {
        let message =
            "left m1 for m2 (Gracefully): m1 has taint a:NoExecute, which is not tolerated";
        let told = taken(|take| tell(&json!({ "message": message }), take));
        assert_eq!(
            told,
            BTreeSet::from(["judge: untolerated", "plan: left gracefully"])
        );
        let message = "Evict from cluster m1 succeed.";
        let reason = "EvictWorkloadFromClusterSucceed";
        let told = taken(|take| tell(&json!({ "message": message, "reason": reason }), take));
        assert_eq!(told, BTreeSet::from(["assess: copy removed"]));
    }

    #[test]
    fn a_task_that_ends_tells_why() {
        let at: Timestamp = "2030-01-01T00:10:00Z".parse().unwrap();
        let task = |more: Value| {
            let mut task =
                json!({ "fromCluster": "m1", "creationTimestamp": "2030-01-01T00:00:00Z" });
            task.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            task
        };
        let binding = |tasks: Vec<Value>, clusters: &[&str]| {
            let clusters: Vec<Value> = clusters.iter().map(|it| json!({ "name": it })).collect();
            json!({ "spec": { "gracefulEvictionTasks": tasks, "clusters": clusters } })
        };
        let plain = || vec![task(json!({}))];
        for (before, after, expected) in [
            (binding(plain(), &["m2"]), &["m2"][..], "assess: replaced"),
            (
                binding(vec![task(json!({ "gracePeriodSeconds": 600 }))], &["m2"]),
                &["m2"],
                "assess: grace period over",
            ),
            (
                binding(vec![task(json!({ "suppressDeletion": false }))], &["m2"]),
                &["m2"],
                "assess: released",
            ),
            (binding(plain(), &["m1"]), &["m1"], "assess: back in place"),
            (binding(plain(), &[]), &["m1"], "assess: no replacement"),
            (binding(plain(), &[]), &[], "assess: cluster gone"),
        ] {
            let after = binding(vec![], after);
            let told = taken(|take| assessed(&before, &after, at, take));
            assert_eq!(told, BTreeSet::from([expected]));
            let none = taken(|take| assessed(&before, &before, at, take));
            assert!(none.is_empty());
        }
    }

    #[test]
    fn a_schedule_tells_by_which_rules() {
        let binding = |clusters: &[&str]| {
            let clusters: Vec<Value> = clusters.iter().map(|it| json!({ "name": it })).collect();
            json!({ "spec": { "clusters": clusters, "placement": {
                "spreadConstraints": [{ "spreadByField": "zone" }],
                "replicaScheduling": { "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": { "dynamicWeight": "AvailableReplicas" } } } } })
        };
        let told = taken(|take| scheduled(&binding(&[]), &binding(&["m1"]), take));
        let expected = ["schedule: divided by room", "schedule: spread by zone"];
        assert_eq!(told, BTreeSet::from(expected));
        let told = taken(|take| scheduled(&binding(&["m1"]), &binding(&[]), take));
        assert_eq!(told, BTreeSet::from(["schedule: emptied"]));
    }
}
