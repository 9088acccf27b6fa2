use muster_shared::k8s::Time;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{at, deleting};
use crate::scheduler::core::record::record;
use crate::scheduler::tests::fixtures::{
    aggregated, cluster, config_map, deployment, dynamic, leaving, placed, snapshot, tainted,
};

/// Returns the subject of a workload of generation 2, of which this placement was applied last.
fn subject<'a>(
    spec: &'a ResourceBindingSpec,
    applied_placement: Option<&'a str>,
    status: &'a ResourceBindingStatus,
) -> Subject<'a> {
    let generation = 2;
    Subject {
        generation,
        applied_placement,
        spec,
        status,
    }
}

/// Returns the outcome of a pass over a subject in these clusters.
fn pass_over(subject: &Subject<'_>, clusters: &Snapshot) -> Outcome {
    pass(
        subject,
        clusters,
        &Options::default(),
        Timestamp::UNIX_EPOCH,
    )
}

/// Returns the outcome of a pass over a workload in these clusters, of which this placement was
/// applied last.
fn decide(
    spec: &ResourceBindingSpec,
    applied: &str,
    status: &ResourceBindingStatus,
    clusters: &Snapshot,
) -> Outcome {
    pass_over(&subject(spec, Some(applied), status), clusters)
}

/// Returns the names of the clusters.
fn names(clusters: &[TargetCluster]) -> Vec<&str> {
    clusters.iter().map(|it| &*it.name).collect()
}

/// Returns what a pass leaves of a Deployment on `m`, when its policy names `allowed` only: the
/// targets, and the tasks it adds.
fn withdrawn(allowed: &[&str], clusters: &[Value], tasks: Value) -> Option<(usize, Value)> {
    withdrawn_from(allowed, &snapshot(clusters), tasks)
}

fn withdrawn_from(allowed: &[&str], clusters: &Snapshot, tasks: Value) -> Option<(usize, Value)> {
    let mut placement = dynamic();
    placement["clusterAffinity"] = json!({"clusterNames": allowed});
    let mut spec = deployment(2, &placement);
    spec.clusters = serde_json::from_value(json!([{"name": "m", "replicas": 2}])).unwrap();
    spec.graceful_eviction_tasks = serde_json::from_value(tasks).unwrap();
    let status = ResourceBindingStatus::default();
    let placed = decide(&spec, "{}", &status, clusters).placed?;
    Some((placed.clusters.len(), json!(placed.tasks)))
}

#[test]
fn a_state_that_no_copy_has_used_goes_on_although_no_cluster_fits_meanwhile() {
    let mut placement = dynamic();
    placement["clusterAffinity"] = json!({"clusterNames": ["nobody"]});
    let mut spec = placed(deployment(2, &placement), &[("m", 2)]);
    let brought = json!([{
        "fromCluster": "m0", "purgeMode": "Directly", "reason": "ApplicationFailure",
        "producer": "p", "preservedLabelState": {"job": "7f"}, "clustersBeforeFailover": ["m0"],
    }]);
    spec.graceful_eviction_tasks = serde_json::from_value(brought).unwrap();
    for (health, last) in [("Unhealthy", "m0"), ("Healthy", "m")] {
        let status = json!({"aggregatedStatus": [{"clusterName": "m", "health": health}]});
        let status: ResourceBindingStatus = serde_json::from_value(status).unwrap();
        let outcome = decide(&spec, "{}", &status, &snapshot(&[cluster("m", 10)]));
        let tasks = outcome.placed.and_then(|it| it.tasks).unwrap();
        let from: Vec<&str> = tasks.iter().map(|it| &*it.from_cluster).collect();
        assert_eq!(from.len(), 2, "{from:?}");
        assert_eq!(from[1], last, "{health}");
    }
}

#[test]
fn a_workload_is_scaled_to_zero_although_its_policy_asks_for_clusters_that_there_are_not() {
    let mut placement = dynamic();
    placement["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]);
    for (replicas, share, expected) in [(0, 4, Some(0)), (0, 0, None), (2, 4, None)] {
        let spec = placed(deployment(replicas, &placement), &[("m", share)]);
        let status = ResourceBindingStatus::default();
        let outcome = decide(&spec, "{}", &status, &snapshot(&[cluster("m", 10)]));
        assert!(outcome.failure.is_some(), "{replicas}");
        let placed = outcome.placed.map(|placed| {
            assert_eq!(placed.applied_placement, "{}");
            placed.clusters[0].replicas
        });
        assert_eq!(placed, expected, "{replicas} {share}");
    }
}

#[test]
fn a_workload_that_is_scaled_to_zero_keeps_no_copy_for_want_of_a_cluster() {
    let kept = |reason: &str, suppressed: bool| {
        json!([{
            "fromCluster": "m", "reason": reason, "producer": "p", "replicas": 2,
            "suppressDeletion": suppressed,
        }])
    };
    let target = [("m", 2)];
    for (what, replicas, targets, tasks, suspended, expected) in [
        ("its target goes", 0, &target[..], json!([]), false, 0),
        (
            "its copy goes",
            0,
            &[],
            kept("NoClusterFit", false),
            false,
            0,
        ),
        ("it asks for some", 2, &target[..], json!([]), false, 1),
        (
            "its copy runs",
            2,
            &[],
            kept("NoClusterFit", false),
            false,
            1,
        ),
        ("a move", 0, &[], kept("TaintUntolerated", false), false, 1),
        (
            "a person keeps it",
            0,
            &[],
            kept("NoClusterFit", true),
            false,
            1,
        ),
        ("nothing is sent", 0, &target[..], json!([]), true, 1),
    ] {
        let mut placement = dynamic();
        placement["clusterAffinity"] = json!({"clusterNames": ["nobody"]});
        let mut spec = placed(deployment(replicas, &placement), targets);
        spec.graceful_eviction_tasks = serde_json::from_value(tasks).unwrap();
        spec.suspension = serde_json::from_value(json!({"dispatching": suspended})).unwrap();
        let status = ResourceBindingStatus::default();
        let recorded = record(&spec);
        for applied in ["{}", recorded.as_str()] {
            let outcome = decide(&spec, applied, &status, &snapshot(&[cluster("m", 10)]));
            // With the placement as it was applied, nothing is decided anew.
            let before = (spec.clusters.len(), spec.graceful_eviction_tasks.len());
            let (targets, tasks) = outcome.placed.map_or(before, |placed| {
                let tasks = placed.tasks.as_ref().map_or(before.1, Vec::len);
                (placed.clusters.len(), tasks)
            });
            assert_eq!(targets + tasks, expected, "{what} {applied}");
        }
    }

    // The rule of its kind is gone for a moment.
    let mut spec = deployment(0, &dynamic());
    (spec.resource.api_version, spec.resource.kind) = ("x.io/v1".to_owned(), "Thing".to_owned());
    spec.replica_requirements = None;
    spec.graceful_eviction_tasks = serde_json::from_value(kept("NoClusterFit", false)).unwrap();
    assert_eq!(released::left(&spec), None);

    // It is no cluster that fails, but their number.
    let mut twice = dynamic();
    twice["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]);
    let mut spec = deployment(0, &twice);
    spec.graceful_eviction_tasks = serde_json::from_value(kept("NoClusterFit", false)).unwrap();
    let status = ResourceBindingStatus::default();
    let subject = subject(&spec, Some("{}"), &status);
    let result = pass_over(&subject, &snapshot(&[cluster("m", 10)])).placed;
    let result = result.unwrap();
    assert_eq!(result.tasks, Some(Vec::new()));
    assert!(!result.is_known(&subject), "it is written");
}

#[test]
fn no_copy_is_removed_because_no_cluster_may_have_the_workload() {
    let down = || {
        let mut down = cluster("down", 10);
        down["spec"]["taints"] =
            json!([{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}]);
        down
    };
    let leaving = || deleting(cluster("m", 10));
    let task = |why: &str| {
        json!([{
            "fromCluster": "m", "purgeMode": "Gracefully", "replicas": 2, "reason": "NoClusterFit",
            "message": format!("m is no target any more, and no cluster fits instead: {why}"),
            "producer": "Scheduler", "creationTimestamp": "1970-01-01T00:00:00Z",
        }])
    };
    let unmatched = "cluster(s) did not match the placement cluster affinity constraint";
    let both = format!(
        "0/2 clusters are available: 1 {unmatched}, 1 cluster(s) had untolerated taint {{cluster.karmada.io/unreachable:NoSchedule}}."
    );
    let one = format!("0/1 clusters are available: 1 {unmatched}.");
    let old =
        json!([{"fromCluster": "m", "reason": "TaintUntolerated", "producer": "TaintManager"}]);
    // The policy now names a cluster that happens to be down.
    assert_eq!(
        withdrawn(&["down"], &[cluster("m", 10), down()], json!([])),
        Some((0, task(&both)))
    );
    assert_eq!(
        withdrawn(&["nobody"], &[cluster("m", 10)], json!([])),
        Some((0, task(&one)))
    );
    assert_eq!(
        withdrawn(&["nobody"], &[cluster("m", 10)], old),
        Some((0, Value::Null)),
        "its copy is kept already"
    );
    // Whoever removes a cluster, or has removed it, wants nothing to stay there.
    assert_eq!(
        withdrawn(&["m"], &[leaving()], json!([])),
        Some((0, Value::Null))
    );
    let mut left = snapshot(&[]);
    left.depart("m");
    assert_eq!(
        withdrawn_from(&["m"], &left, json!([])),
        Some((0, Value::Null))
    );
    // Of a cluster that cannot be read nobody knows whether it left: nothing is changed, unless
    // the policy gives it up by name.
    assert_eq!(withdrawn(&["m"], &[], json!([])), Some((1, Value::Null)));
    assert_eq!(
        withdrawn(&["nobody"], &[], json!([]))
            .map(|(targets, tasks)| (targets, tasks[0]["fromCluster"].clone())),
        Some((0, json!("m")))
    );
    assert_eq!(
        withdrawn(&["m"], &[cluster("m", 10)], json!([])).map(|(targets, _)| targets),
        Some(1),
        "a cluster that may keep it does"
    );
}

#[test]
fn another_order_of_the_same_clusters_is_no_change() {
    let spec = placed(deployment(2, &json!({})), &[("m2", 2), ("m1", 2)]);
    let (applied, status) = (record(&spec), ResourceBindingStatus::default());
    let subject = subject(&spec, Some(&applied), &status);
    let outcome = pass_over(&subject, &snapshot(&[cluster("m1", 10), cluster("m2", 5)]));
    assert!(outcome.need.is_some());
    assert!(outcome.placed.unwrap().is_known(&subject));
}

#[test]
fn a_request_from_a_clock_that_is_ahead_is_answered_once() {
    let ahead = Timestamp::from_second(60).unwrap();
    let mut spec = deployment(2, &dynamic());
    spec.reschedule_triggered_at = Some(Time(ahead));
    let status = ResourceBindingStatus {
        last_scheduled_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..ResourceBindingStatus::default()
    };
    let clusters = snapshot(&[cluster("m1", 10)]);
    let applied = record(&spec);
    let first = decide(&spec, &applied, &status, &clusters);
    spec.clusters = first.placed.unwrap().clusters;
    let status = first.report.on(&status, Timestamp::UNIX_EPOCH);
    assert_eq!(decide(&spec, &applied, &status, &clusters).need, None);
}

#[test]
fn a_result_is_known_if_the_binding_has_its_targets_and_its_placement() {
    let spec = placed(deployment(2, &json!({})), &[("m1", 2)]);
    let status = ResourceBindingStatus::default();
    for (targets, applied, held, expected) in [
        (&[("m1", 2)][..], "{}", Some("{}"), true),
        (&[("m1", 1)], "{}", Some("{}"), false),
        (&[("m1", 2)], "{}", Some("{ }"), false),
        (&[("m1", 2)], "{}", None, false),
        (&[("m2", 2)], "{}", None, false),
    ] {
        let subject = subject(&spec, held, &status);
        let result = Placed {
            clusters: placed(deployment(2, &json!({})), targets).clusters,
            applied_placement: applied.to_owned(),
            tasks: None,
        };
        assert_eq!(result.is_known(&subject), expected, "{targets:?} {held:?}");
    }
}

#[test]
fn a_report_says_at_once_the_generation_of_its_own_write_if_that_settles_it() {
    let status = ResourceBindingStatus::default();
    let spec = deployment(2, &dynamic());
    let clusters = snapshot(&[cluster("m1", 10)]);
    let check = |spec: &ResourceBindingSpec, generation, applied: Option<&str>, clusters| {
        let subject = Subject {
            generation,
            ..subject(spec, applied, &status)
        };
        pass_over(&subject, clusters)
    };
    let result = check(&spec, 2, None, &clusters).placed.unwrap();
    let mut written = spec.clone();
    written.clusters = result.clusters;
    let applied = Some(&*result.applied_placement);
    let subject = Subject {
        generation: 3,
        ..subject(&written, applied, &status)
    };
    let elsewhere = snapshot(&[cluster("m2", 10)]);
    let settled = || check(&written, 3, applied, &clusters);
    let placed = || check(&spec, 2, None, &clusters);
    let none = snapshot(&[]);
    let failed = |generation| check(&spec, generation, None, &none);
    let moves = check(&spec, 3, None, &elsewhere);
    for (what, first, next, reported) in [
        ("settled", placed(), settled(), Some(3)),
        ("the next fails", placed(), failed(3), Some(2)),
        ("the next moves it", placed(), moves, Some(2)),
        ("the first failed", failed(2), settled(), None),
    ] {
        let report = first.followed_by(&next, &subject);
        assert_eq!(report.observed_generation, reported, "{what}");
    }
}

#[test]
fn the_affinity_group_in_use_stays_known_although_the_report_of_it_was_lost() {
    let mut placement = dynamic();
    placement["clusterAffinities"] = json!([
        {"affinityName": "a", "clusterNames": ["m1"]},
        {"affinityName": "b", "clusterNames": ["m2"]},
    ]);
    // Group a had no room when the workload was placed, and the API did not take the report.
    let mut spec = placed(deployment(2, &placement), &[("m2", 2)]);
    let applied = record(&spec);
    let clusters = snapshot(&[cluster("m1", 10), cluster("m2", 10)]);
    for observed in [None, Some("a".to_owned())] {
        let mut status = ResourceBindingStatus {
            scheduler_observed_affinity_name: observed,
            ..ResourceBindingStatus::default()
        };
        let again = decide(&spec, &applied, &status, &clusters);
        assert!(again.need.is_none());
        status = again.report.on(&status, Timestamp::UNIX_EPOCH);
        assert_eq!(
            status.scheduler_observed_affinity_name.as_deref(),
            Some("b")
        );
        // It is scaled.
        spec.replicas = 3;
        let placed = decide(&spec, &applied, &status, &clusters).placed.unwrap();
        assert_eq!(names(&placed.clusters), ["m2"], "a fallback sticks");
        spec.replicas = 2;
    }
}

/// Returns the tasks of a pass over a Duplicated workload on `a1` and `a2` of affinity group `a`,
/// after `a1` has left the fleet: `from=reason`, and the group in use afterwards.
fn switched(applied: &Value, observed: Option<&str>) -> (String, Option<String>) {
    let placement = groups();
    let mut spec = placed(deployment(2, &placement), &[("a1", 2), ("a2", 2)]);
    spec.placement = serde_json::from_value(placement).unwrap();
    let status = ResourceBindingStatus {
        scheduler_observed_affinity_name: observed.map(str::to_owned),
        ..ResourceBindingStatus::default()
    };
    let mut clusters = snapshot(&[cluster("a2", 10), cluster("b1", 10), cluster("b2", 10)]);
    clusters.depart("a1");
    let outcome = decide(&spec, &applied.to_string(), &status, &clusters);
    let placed = outcome.placed.expect("another group takes it");
    assert_eq!(names(&placed.clusters), ["b1", "b2"]);
    let tasks = placed.tasks.unwrap_or_default();
    let reported = tasks
        .iter()
        .map(|task| format!("{}={}", task.from_cluster, task.reason));
    (
        reported.collect::<Vec<_>>().join(" "),
        outcome.report.affinity_name,
    )
}

/// Returns two affinity groups of two clusters each, of which a workload needs both.
fn groups() -> Value {
    json!({
        "clusterAffinities": [
            {"affinityName": "a", "clusterNames": ["a1", "a2"]},
            {"affinityName": "b", "clusterNames": ["b1", "b2"]},
        ],
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
        "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
    })
}

#[test]
fn what_another_affinity_group_drops_stays_unless_the_policy_was_edited() {
    let kept = ("a2=PlacementChanged".to_owned(), Some("b".to_owned()));
    let at_once = (String::new(), Some("b".to_owned()));
    let mut edited = groups();
    edited["clusterAffinities"][0]["clusterNames"] = json!(["a1", "a2", "a3"]);
    let record = serde_json::to_value(
        serde_json::from_value::<muster_shared::api::policy::Placement>(groups()).unwrap(),
    );
    let record = record.unwrap();
    assert_eq!(switched(&record, Some("a")), kept);
    assert_eq!(
        switched(&edited, Some("a")),
        at_once,
        "the policy was edited"
    );
    assert_eq!(switched(&record, None), kept, "no group was in use");
}

#[test]
fn what_has_completed_is_taken_off_clusters_that_leave_and_goes_nowhere_else() {
    let mut spec = deployment(2, &dynamic());
    let targets = json!([{"name": "m", "replicas": 1}, {"name": "n", "replicas": 1}]);
    spec.clusters = serde_json::from_value(targets).unwrap();
    let leaving = deleting(cluster("m", 10));
    let well = || ["m", "n"].map(|name| cluster(name, 10)).to_vec();
    let mut gone = snapshot(&well());
    gone.depart("m");
    for (what, snapshot, kept) in [
        ("both stay", snapshot(&well()), None),
        (
            "one is leaving",
            snapshot(&[leaving, cluster("n", 10)]),
            Some("n"),
        ),
        ("one has left", gone, Some("n")),
    ] {
        let status = ResourceBindingStatus::default();
        let subject = subject(&spec, Some("{}"), &status);
        let placed = stay(&subject, &snapshot, Timestamp::UNIX_EPOCH).placed;
        let left = placed.as_ref().map(|it| names(&it.clusters));
        assert_eq!(left, kept.map(|name| vec![name]), "{what}");
    }
}

#[test]
fn what_cannot_be_placed_anew_does_not_hold_the_clusters_that_leave() {
    let leaving = deleting(cluster("gone", 10));
    let clusters = snapshot(&[cluster("m", 10), leaving]);
    let twice = json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]);
    let divided = dynamic()["replicaScheduling"].clone();
    for (what, scheduling) in [("each has all", Value::Null), ("divided", divided)] {
        let mut placement = json!({"spreadConstraints": twice});
        if !scheduling.is_null() {
            placement["replicaScheduling"] = scheduling;
        }
        let spec = placed(deployment(2, &placement), &[("gone", 1), ("m", 1)]);
        let status = ResourceBindingStatus::default();
        let applied = record(&spec);
        let outcome = decide(&spec, &applied, &status, &clusters);
        assert!(
            outcome.failure.is_some(),
            "{what}: it asks for two clusters"
        );
        let left = outcome.placed.unwrap();
        assert_eq!(names(&left.clusters), ["m"], "{what}");
        // It goes on asking for them, and nothing else is taken away.
        let mut spec = spec.clone();
        spec.clusters = left.clusters;
        let again = decide(&spec, &applied, &status, &clusters);
        assert!(again.failure.is_some(), "{what}");
        assert_eq!(again.placed, None, "{what}");
    }
}

#[test]
fn a_workload_without_a_cluster_returns_where_it_failed_if_no_other_cluster_takes_it() {
    let status = ResourceBindingStatus::default();
    let spec = placed(deployment(2, &dynamic()), &[("m1", 2)]);
    for reason in ["ApplicationFailure", "NotApplied"] {
        let spec = leaving(spec.clone(), "m1", reason);
        let (m1, m2) = (cluster("m1", 10), cluster("m2", 10));
        let down = tainted("m1", 10, "down", "NoExecute");
        for (what, clusters, expected) in [
            ("another takes it", vec![m1.clone(), m2], Some("m2")),
            ("no other is there", vec![m1], Some("m1")),
            ("it is driven out there", vec![down], None),
        ] {
            let outcome = decide(&spec, &record(&spec), &status, &snapshot(&clusters));
            let clusters = outcome.placed.map(|it| it.clusters).unwrap_or_default();
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(names(&clusters), expected, "{reason}: {what}");
            assert_eq!(outcome.failure.is_some(), expected.is_empty(), "{what}");
        }
    }
}

#[test]
fn a_workload_stays_where_it_was_placed_again_although_its_task_is_not_over() {
    let status = ResourceBindingStatus::default();
    for reason in ["ApplicationFailure", "NotApplied", "TaintUntolerated"] {
        let spec = leaving(deployment(2, &json!({})), "m1", reason);
        let spec = placed(spec, &[("m1", 2)]);
        let m1 = snapshot(&[cluster("m1", 10)]);
        let outcome = decide(&spec, &record(&spec), &status, &m1);
        let found = outcome.placed.map(|it| it.clusters);
        assert_eq!(found.as_ref(), Some(&spec.clusters), "{reason}");
    }
}

/// Returns the targets and the tasks, with their messages, after `m1` has lost its label and its
/// region.
fn unmatched(spec: &ResourceBindingSpec, applied: &str, clusters: &[Value]) -> (String, Value) {
    let status = ResourceBindingStatus::default();
    let placed = decide(spec, applied, &status, &snapshot(clusters)).placed;
    let placed = placed.expect("there is a cluster that matches");
    let tasks = placed.tasks.unwrap_or_default();
    let tasks = tasks.iter();
    let tasks = tasks.map(|it| json!([it.from_cluster, it.purge_mode, it.reason, it.message]));
    (names(&placed.clusters).join(" "), tasks.collect())
}

#[test]
fn a_cluster_that_does_not_match_any_more_keeps_its_copy_until_the_others_are_healthy() {
    let mut m2 = cluster("m2", 10);
    m2["metadata"]["labels"] = json!({"env": "prod"});
    m2["spec"]["region"] = json!("north");
    let clusters = [cluster("m1", 10), m2];
    let by_label = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}});
    let by_region = json!({"spreadConstraints": [
        {"spreadByField": "region", "minGroups": 1, "maxGroups": 2},
    ]});
    let with = |placement: &Value, scheduling: Value| {
        let mut placement = placement.clone();
        placement["replicaScheduling"] = scheduling;
        placement
    };
    let duplicated = with(&by_label, json!({"replicaSchedulingType": "Duplicated"}));
    let divided = with(&by_label, dynamic()["replicaScheduling"].clone());
    let both = [("m1", 2), ("m2", 2)];
    let mut fenced = placed(deployment(2, &by_label), &both);
    let fencing = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
    fenced.failover = serde_json::from_value(fencing).unwrap();
    let kept = json!([[
        "m1",
        "Gracefully",
        "PlacementChanged",
        "m1 does not match the placement any more",
    ]]);
    for (what, spec) in [
        ("by a label", placed(deployment(2, &by_label), &both)),
        ("by its region", placed(deployment(2, &by_region), &both)),
        (
            "an object",
            placed(config_map(&by_label), &[("m1", 0), ("m2", 0)]),
        ),
        ("scaled since", placed(deployment(3, &duplicated), &both)),
        (
            "divided and scaled since",
            placed(deployment(5, &divided), &both),
        ),
        ("fenced", fenced),
    ] {
        let found = unmatched(&spec, &record(&spec), &clusters);
        assert_eq!(found, ("m2".to_owned(), kept.clone()), "{what}");
    }
    let spec = placed(deployment(2, &by_label), &both);
    let at_once = ("m2".to_owned(), json!([]));
    assert_eq!(
        unmatched(&spec, "{}", &clusters),
        at_once,
        "the policy was edited"
    );
    // Whoever wants fewer replicas gives up clusters that match.
    let by_name = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    let aggregated = with(&by_name, aggregated()["replicaScheduling"].clone());
    let spec = placed(deployment(1, &aggregated), &[("m1", 1), ("m2", 1)]);
    let (names, tasks) = unmatched(&spec, &record(&spec), &clusters);
    assert_eq!((names.len(), tasks), (2, json!([])), "scaled down");
}

#[test]
fn a_workload_that_grows_beyond_its_cluster_keeps_its_copy_there_until_the_new_one_is_healthy() {
    let mut placement = aggregated();
    placement["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
    let directly = json!({"cluster": {"purgeMode": "Directly"}});
    let status = ResourceBindingStatus::default();
    // `m1` has no room beside the two that it has.
    for (what, replicas, failover, expected) in [
        ("up", 3, json!({}), json!([["m1", "Gracefully", 2]])),
        ("up, alone", 3, directly, json!([])),
        ("down", 1, json!({}), json!([])),
    ] {
        let mut spec = placed(deployment(replicas, &placement), &[("m1", 2)]);
        spec.failover = serde_json::from_value(failover).unwrap();
        let clusters = snapshot(&[cluster("m1", 0), cluster("m2", 10)]);
        let placed = decide(&spec, &record(&spec), &status, &clusters).placed;
        let placed = placed.expect("it is scaled");
        let chosen = if replicas > 2 { "m2" } else { "m1" };
        let targets = json!([{"name": chosen, "replicas": replicas}]);
        assert_eq!(json!(placed.clusters), targets, "{what}");
        let tasks = placed.tasks.unwrap_or_default();
        let tasks = tasks
            .iter()
            .map(|it| json!([it.from_cluster, it.purge_mode, it.replicas]));
        assert_eq!(tasks.collect::<Value>(), expected, "{what}");
    }
}

#[test]
fn a_workload_that_is_scaled_to_zero_leaves_its_clusters_at_once() {
    let one = json!({"spreadConstraints": [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1},
    ]});
    let never = json!({"cluster": {"purgeMode": "Never"}});
    let status: ResourceBindingStatus = serde_json::from_value(json!({
        "lastScheduledTime": "2024-01-01T00:00:00Z",
    }))
    .unwrap();
    for (what, placement, failover, requested) in [
        ("each has all", json!({}), json!({}), Value::Null),
        ("one has all", one, json!({}), Value::Null),
        ("divided", dynamic(), json!({}), Value::Null),
        ("old copies stay", json!({}), never, Value::Null),
        (
            "placed anew",
            json!({}),
            json!({}),
            json!("2024-01-01T00:00:01Z"),
        ),
    ] {
        let mut spec = placed(deployment(0, &placement), &[("m1", 2)]);
        spec.failover = serde_json::from_value(failover).unwrap();
        spec.reschedule_triggered_at = serde_json::from_value(requested).unwrap();
        let clusters = snapshot(&[cluster("m1", 10), cluster("m2", 10)]);
        let placed = decide(&spec, &record(&spec), &status, &clusters).placed;
        let placed = placed.expect("it has clusters");
        assert_eq!(placed.clusters, [], "{what}");
        assert_eq!(placed.tasks, None, "{what}");
    }
}

#[test]
fn to_stay_is_an_answer_to_a_request_for_a_new_placement() {
    let time = |second: i64| Time(at(second));
    // Times of the request and of the last scheduling, and the time that is reported at 20.
    for (requested, scheduled, expected) in [
        (None, Some(5), None),
        (Some(4), Some(5), None),
        (Some(9), Some(5), Some(20)),
        // The clock of whoever asked is ahead.
        (Some(30), Some(5), Some(30)),
    ] {
        let mut spec = placed(deployment(2, &dynamic()), &[("m", 2)]);
        spec.reschedule_triggered_at = requested.map(time);
        let status = ResourceBindingStatus {
            last_scheduled_time: scheduled.map(time),
            ..ResourceBindingStatus::default()
        };
        let subject = subject(&spec, None, &status);
        let report = stay(&subject, &snapshot(&[cluster("m", 10)]), at(20)).report;
        assert_eq!(report.scheduled_at, expected.map(at), "{requested:?}");
        assert_eq!(report.observed_generation, Some(2));
        // A former version reported all but the time, and left the request open.
        let reported = ResourceBindingStatus {
            last_scheduled_time: status.last_scheduled_time.clone(),
            ..report.on(&status, at(10))
        };
        let answer = |second| json!({"status": {"lastScheduledTime": time(second)}});
        let expected = expected.map(answer);
        assert_eq!(report.patch(&reported, at(20)), expected, "{requested:?}");
    }
}
