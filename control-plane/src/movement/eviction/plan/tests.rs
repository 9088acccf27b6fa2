use std::sync::{Arc, LazyLock};

use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::Time;

use super::*;
use crate::fleet::testing::{self, at};
use crate::movement::eviction::judge::{Cause, Rule};

fn cluster(name: &str, taints: &Value) -> Arc<Cluster> {
    standing(name, taints, "True")
}

/// Returns a cluster that workloads have to leave.
fn tainted(name: &str) -> Arc<Cluster> {
    cluster(name, &json!([{"key": "down", "effect": "NoExecute"}]))
}

fn standing(name: &str, taints: &Value, ready: &str) -> Arc<Cluster> {
    let mut cluster = testing::cluster(name);
    cluster["spec"]["taints"] = taints.clone();
    cluster["status"]["conditions"][0]["status"] = json!(ready);
    Arc::new(serde_json::from_value(cluster).unwrap())
}

fn fleet(failed: &[&str], healthy: &[&str]) -> Snapshot {
    let failed = failed.iter().map(|name| tainted(name));
    Snapshot::new(
        failed
            .chain(healthy.iter().map(|name| cluster(name, &json!([]))))
            .collect::<Vec<_>>(),
    )
}

/// Returns a fleet of which member1 has failed, and member2 is left.
fn one_of_two() -> Snapshot {
    fleet(&["member1"], &["member2"])
}

fn spec(replicas: i32, clusters: &Value, placement: &Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx", "uid": "u"},
        "replicas": replicas,
        "replicaRequirements": {},
        "clusters": clusters,
        "placement": placement,
    }))
    .unwrap()
}

/// Returns the divided workload of Karmada's failover overview: weights 1 and 2, three replicas.
fn divided() -> ResourceBindingSpec {
    let weight = |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    spec(
        3,
        &json!([{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 2}]),
        &json!({
            "clusterAffinity": {"clusterNames": ["member1", "member2"]},
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": [weight("member1", 1), weight("member2", 2)]},
            },
        }),
    )
}

/// Returns that workload where it is in member1 alone.
fn alone() -> ResourceBindingSpec {
    let mut spec = divided();
    spec.clusters.truncate(1);
    spec
}

/// Returns the duplicated workload of Karmada's failover overview: it is in two of four clusters.
fn duplicated() -> ResourceBindingSpec {
    spec(
        2,
        &json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 2}]),
        &json!({
            "clusterAffinity": {"clusterNames": ["member1", "member2", "member3", "member5"]},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
            "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
        }),
    )
}

/// Returns the departure of a workload from a cluster with a taint. Nothing is reported of the
/// workload, nothing is in its way, and nothing is paused.
fn departure<'a>(spec: &'a ResourceBindingSpec, cluster: &'a str) -> Departure<'a> {
    static UNREPORTED: LazyLock<ResourceBindingStatus> =
        LazyLock::new(ResourceBindingStatus::default);
    static CAUSE: LazyLock<Cause> = LazyLock::new(|| Cause {
        taint: testing::taint("down", "NoExecute"),
        rule: Rule::Untolerated,
    });
    let reason = EvictionReason::Taint(&CAUSE);
    Departure::new(spec, &UNREPORTED, cluster, reason, &PurgeMode::Gracefully)
}

/// Returns a status in which member1 reports a state, and an affinity group was used.
fn observed(group: Option<&str>) -> ResourceBindingStatus {
    serde_json::from_value(json!({
        "aggregatedStatus": [{"clusterName": "member1", "status": {"id": "7f"}}],
        "schedulerObservingAffinityName": group,
    }))
    .unwrap()
}

/// Returns a departure with that state, which is preserved.
fn stateful<'a>(spec: &'a ResourceBindingSpec, cluster: &'a str) -> Departure<'a> {
    static OBSERVED: LazyLock<ResourceBindingStatus> = LazyLock::new(|| observed(None));
    Departure {
        status: &OBSERVED,
        preserves_state: true,
        ..departure(spec, cluster)
    }
}

/// Returns such a departure from member1 in a purge mode.
fn in_mode<'a>(spec: &'a ResourceBindingSpec, purge_mode: &'a PurgeMode) -> Departure<'a> {
    Departure {
        purge_mode,
        ..stateful(spec, "member1")
    }
}

fn planned(departure: &Departure<'_>, snapshot: &Snapshot) -> Result<Plan, Nowhere> {
    plan(departure, snapshot, &Options::default(), at(50))
}

/// Returns the eviction tasks that a plan writes.
fn tasks(plan: &Plan) -> &[Value] {
    let tasks = plan.patch["spec"]["gracefulEvictionTasks"].as_array();
    tasks.map(Vec::as_slice).unwrap_or_default()
}

fn names(clusters: &[TargetCluster]) -> Vec<(&str, i32)> {
    clusters
        .iter()
        .map(|target| (target.name.as_str(), target.replicas))
        .collect()
}

#[test]
fn a_divided_workload_moves_to_the_survivor_in_one_patch() {
    let spec = divided();
    let snapshot = fleet(&["member1"], &["member2", "member3"]);
    let plan = planned(&stateful(&spec, "member1"), &snapshot).unwrap();
    assert_eq!(names(&plan.clusters), [("member2", 3)]);
    assert_eq!(
        plan.patch["spec"]["clusters"],
        json!([{"name": "member2", "replicas": 3}])
    );
    assert_eq!(
        plan.patch["spec"]["gracefulEvictionTasks"],
        json!([{
            "fromCluster": "member1",
            "purgeMode": "Gracefully",
            "replicas": 1,
            "reason": "TaintUntolerated",
            "message": "member1 has taint down:NoExecute, which is not tolerated",
            "producer": "TaintManager",
            "creationTimestamp": at(50),
        }])
    );
    let applied = plan.patch["metadata"]["annotations"][APPLIED_PLACEMENT]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<muster_shared::api::policy::Placement>(applied).unwrap(),
        *divided().placement.unwrap()
    );
}

#[test]
fn what_those_that_have_it_cannot_take_goes_to_a_cluster_without_it() {
    let copies = json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 1}]);
    let aggregated = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
    }});
    let spec = spec(3, &copies, &aggregated);
    let snapshot = fleet(&["member1"], &["member2", "member3"]);
    let options = Options::default();
    for (options, expected) in [
        (options, &[("member2", 3)][..]),
        (options.elsewhere(), &[("member2", 1), ("member3", 2)]),
    ] {
        let departure = in_mode(&spec, &PurgeMode::Directly);
        let plan = plan(&departure, &snapshot, &options, at(50)).unwrap();
        let mut got = names(&plan.clusters);
        got.sort_unstable();
        assert_eq!(got, expected);
    }
}

#[test]
fn a_duplicated_workload_keeps_its_healthy_cluster_and_gains_an_allowed_one() {
    let snapshot = fleet(&["member2"], &["member1", "member3", "member4", "member5"]);
    let plan = planned(&stateful(&duplicated(), "member2"), &snapshot).unwrap();
    let got = names(&plan.clusters);
    assert_eq!(got.len(), 2);
    assert!(got.contains(&("member1", 2)));
    assert!(
        got.contains(&("member3", 2)) || got.contains(&("member5", 2)),
        "{got:?}"
    );
}

#[test]
fn a_failing_application_leaves_only_where_another_cluster_takes_it_over() {
    let four = ["member1", "member2", "member3", "member5"];
    let everywhere = |placement: &Value| {
        let targets = four.map(|name| json!({"name": name, "replicas": 2}));
        spec(2, &json!(targets), placement)
    };
    let again = Err(Nowhere::Again);
    for (what, spec, expected) in [
        (
            "divided: the other gets more",
            divided(),
            Ok(vec![("member1", 3)]),
        ),
        (
            "another cluster fits",
            duplicated(),
            Ok(vec![("member1", 2), ("member3", 2)]),
        ),
        (
            "each that fits has it",
            everywhere(&json!({})),
            again.clone(),
        ),
        (
            "each that fits has it, duplicated",
            everywhere(&json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}})),
            again,
        ),
    ] {
        let departure = Departure {
            reason: EvictionReason::Failure {
                since: at(0),
                producer: "p",
                grace_seconds: None,
            },
            purge_mode: &PurgeMode::Directly,
            ..departure(&spec, "member2")
        };
        let clusters = fleet(&[], &four);
        let found = planned(&departure, &clusters);
        let found = found.map(|plan| plan.clusters);
        let found = found.as_ref().map(|it| names(it)).map_err(Clone::clone);
        assert_eq!(found, expected, "{what}");
    }
}

/// Returns a workload with a copy on each of two clusters.
fn copied(replicas: i32, constraints: &Value) -> ResourceBindingSpec {
    let targets = ["member1", "member2"].map(|it| json!({"name": it, "replicas": replicas}));
    let placement = json!({
        "clusterAffinity": {"clusterNames": ["member1", "member2"]},
        "spreadConstraints": constraints,
    });
    let mut spec = spec(replicas, &json!(targets), &placement);
    if replicas == 0 {
        spec.replica_requirements = None;
    }
    spec
}

/// Returns the constraint that so many of two copies are enough.
fn at_least(least: i64) -> Value {
    json!([{"spreadByField": "cluster", "minGroups": least, "maxGroups": 2}])
}

#[test]
fn a_copy_that_no_other_cluster_takes_over_stays_under_a_taint_and_leaves_a_drained_cluster() {
    let none = json!([]);
    // The scheduler has not placed the new replicas yet.
    let scaled = |spec: ResourceBindingSpec| ResourceBindingSpec {
        replicas: 2 * spec.replicas,
        ..spec
    };
    for (what, spec, tainted, drained) in [
        ("replicas", copied(2, &none), Err("has it already"), Ok(1)),
        (
            "no replicas",
            copied(0, &none),
            Err("has it already"),
            Ok(1),
        ),
        (
            "scaled up a moment ago",
            scaled(copied(2, &none)),
            Err("has it already"),
            Ok(1),
        ),
        ("one is enough", copied(2, &at_least(1)), Ok(1), Ok(1)),
        ("two have to be", copied(2, &at_least(2)), Err(""), Err("")),
        ("the survivor takes its replicas", divided(), Ok(1), Ok(1)),
        ("and more of them", scaled(divided()), Ok(1), Ok(1)),
    ] {
        for (key, expected) in [
            ("down", tainted),
            (muster_shared::names::taint::DRAIN, drained),
        ] {
            let taints = json!([{"key": key, "effect": "NoExecute"}]);
            let clusters = [cluster("member1", &json!([])), cluster("member2", &taints)];
            let cause = Cause {
                taint: clusters[1].spec.taints[0].clone(),
                rule: Rule::Untolerated,
            };
            let departure = Departure {
                reason: EvictionReason::Taint(&cause),
                ..departure(&spec, "member2")
            };
            let snapshot = Snapshot::new(clusters);
            let found = planned(&departure, &snapshot);
            match (found, expected) {
                (Ok(plan), Ok(number)) => assert_eq!(plan.clusters.len(), number, "{what}"),
                (Err(why), Err(text)) => {
                    assert!(why.to_string().contains(text), "{what}, {key}: {why}");
                }
                (found, _) => panic!("{what}, {key}: {found:?}"),
            }
        }
    }
}

#[test]
fn nobody_is_evicted_into_nowhere() {
    let stays = |spec: &ResourceBindingSpec, from: &str, snapshot: &Snapshot| {
        planned(&stateful(spec, from), snapshot).unwrap_err()
    };
    let full = fleet(&["member1", "member2"], &["member4"]);
    let unfit = stays(&duplicated(), "member2", &full);
    // Two groups are needed, one is left.
    assert!(matches!(unfit, Nowhere::FitError(_)), "{unfit}");

    let mut only_here = alone();
    only_here.replicas = 1;
    let unfit = stays(&only_here, "member1", &full);
    assert!(matches!(unfit, Nowhere::FitError(_)), "{unfit}");

    let mut suspended = divided();
    suspended.suspension = serde_json::from_value(json!({"scheduling": true})).unwrap();
    assert_eq!(
        stays(&suspended, "member1", &one_of_two()),
        Nowhere::Suspended
    );
}

#[test]
fn a_copy_on_a_cluster_that_is_dying_itself_is_no_refuge() {
    let lost = json!([{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}]);
    let preferred = json!([{"key": "down", "effect": "PreferNoExecute"}]);
    let mut leaving = (*cluster("member2", &json!([]))).clone();
    leaving.metadata.deletion_timestamp = Some(Time(at(1)));
    let mut deaf = (*cluster("member2", &json!([]))).clone();
    let conditions = &mut deaf.status.as_mut().unwrap().conditions;
    let reads = muster_shared::names::condition::WORKS_UP_TO_DATE;
    conditions.push(muster_shared::conditions::new(
        reads,
        "False",
        "R",
        "",
        at(1),
    ));
    for (what, second, goes) in [
        ("it never got its copy, and cannot", Arc::new(deaf), false),
        ("sound", cluster("member2", &json!([])), true),
        ("tainted as silent", cluster("member2", &lost), false),
        (
            "silent, not tainted yet",
            standing("member2", &json!([]), "Unknown"),
            false,
        ),
        (
            "ill, not tainted yet",
            standing("member2", &json!([]), "False"),
            false,
        ),
        ("to be left as well", tainted("member2"), false),
        ("to be left by some", cluster("member2", &preferred), false),
        ("leaving the fleet", Arc::new(leaving), false),
    ] {
        // Others are well, but the policy does not name them.
        let others = ["member3", "member4"].map(|name| cluster(name, &json!([])));
        let snapshot = Snapshot::new(others.into_iter().chain([tainted("member1"), second]));
        for replicas in [2, 0] {
            for mode in [PurgeMode::Gracefully, PurgeMode::Directly] {
                let spec = copied(replicas, &at_least(1));
                let got = planned(&in_mode(&spec, &mode), &snapshot);
                assert_eq!(
                    got.is_ok(),
                    goes,
                    "{what}, {replicas} replicas, {mode}: {got:?}"
                );
            }
        }
    }
}

#[test]
fn a_cluster_that_fell_silent_a_moment_ago_gets_nothing_that_flees() {
    let mut spec = copied(2, &at_least(1));
    spec.placement = Some(Arc::default());
    let drained = tainted("member1");
    let silent = |name| standing(name, &json!([]), "Unknown");
    let sound = cluster("member4", &json!([]));
    let snapshot = Snapshot::new([drained, silent("member2"), silent("member3"), sound]);
    let plan = planned(&stateful(&spec, "member1"), &snapshot).unwrap();
    assert_eq!(names(&plan.clusters), [("member2", 2), ("member4", 2)]);
}

#[test]
fn directly_leaves_no_task_and_no_way_back() {
    let mut tolerant = divided();
    Arc::make_mut(tolerant.placement.as_mut().unwrap()).cluster_tolerations =
        serde_json::from_value(json!([{"operator": "Exists", "tolerationSeconds": 30}])).unwrap();
    let departure = in_mode(&tolerant, &PurgeMode::Directly);
    let plan = planned(&departure, &one_of_two()).unwrap();
    assert_eq!(names(&plan.clusters), [("member2", 3)]);
    assert_eq!(plan.patch["spec"].get("gracefulEvictionTasks"), None);
}

#[test]
fn beside_another_scheduler_the_decision_is_a_check_only() {
    let spec = divided();
    let departure = Departure {
        ours: false,
        ..stateful(&spec, "member1")
    };
    let plan = planned(&departure, &one_of_two()).unwrap();
    assert_eq!(
        plan.patch["spec"]["clusters"],
        json!([{"name": "member2", "replicas": 2}])
    );
    let annotations = plan.patch["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.get(APPLIED_PLACEMENT), None);
}

#[test]
fn the_patch_that_evicts_says_why_and_where_to_in_every_purge_mode() {
    let spec = divided();
    for mode in [PurgeMode::Gracefully, PurgeMode::Directly, PurgeMode::Never] {
        let plan = planned(&in_mode(&spec, &mode), &one_of_two()).unwrap();
        let record = plan.patch["metadata"]["annotations"][LAST_EVICTION].as_str();
        let said: Record = serde_json::from_str(record.unwrap()).unwrap();
        let cause = "taint down:NoExecute, which is not tolerated";
        let expected = Record::new("member1", "member2", mode.as_str(), cause, at(50));
        assert_eq!(said, expected);
    }
}

#[test]
fn beside_another_scheduler_the_task_stays_in_every_purge_mode() {
    let spec = alone();
    for mode in [PurgeMode::Gracefully, PurgeMode::Directly, PurgeMode::Never] {
        let departure = Departure {
            ours: false,
            ..in_mode(&spec, &mode)
        };
        let plan = planned(&departure, &one_of_two()).unwrap();
        assert_eq!(plan.patch["spec"]["clusters"], Value::Null, "{mode}");
        let task = &tasks(&plan)[0];
        assert_eq!(task["fromCluster"], "member1", "{mode}");
        assert_eq!(task["purgeMode"], json!(mode));
    }
}

#[test]
fn a_task_left_over_from_an_earlier_eviction_does_not_swallow_the_new_one() {
    let mut spec = divided();
    spec.graceful_eviction_tasks = serde_json::from_value(
        json!([{"fromCluster": "member1", "reason": "Old", "producer": "x", "purgeMode": "Never"}]),
    )
    .unwrap();
    let plan = planned(&stateful(&spec, "member1"), &one_of_two()).unwrap();
    let tasks = tasks(&plan);
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0]["purgeMode"], "Gracefully");
}

/// Returns the graceful eviction task that a purge mode leads to.
fn task_of(mode: &PurgeMode, failover: &Value) -> Option<Value> {
    let mut spec = divided();
    spec.failover = serde_json::from_value(json!({"cluster": failover})).unwrap();
    let plan = planned(&in_mode(&spec, mode), &one_of_two()).unwrap();
    tasks(&plan).first().cloned()
}

#[test]
fn each_purge_mode_says_how_long_the_old_copy_stays() {
    let patient = json!({"gracePeriodSeconds": 30});
    for (mode, failover, grace, suppressed) in [
        (PurgeMode::Gracefully, json!({}), Value::Null, Value::Null),
        (
            PurgeMode::Gracefully,
            patient.clone(),
            json!(30),
            Value::Null,
        ),
        (PurgeMode::Never, patient.clone(), Value::Null, json!(true)),
    ] {
        let task = task_of(&mode, &failover).unwrap();
        assert_eq!(task["purgeMode"], json!(mode));
        assert_eq!(
            (&task["gracePeriodSeconds"], &task["suppressDeletion"]),
            (&grace, &suppressed),
            "{mode} with {failover}"
        );
    }
    assert_eq!(
        task_of(&PurgeMode::Directly, &patient),
        None,
        "the old copy goes at once"
    );
}

#[test]
fn the_state_of_the_old_copy_travels_in_the_task_whatever_becomes_of_that_copy() {
    let rules = |path: &str| json!({"statePreservation": {"rules": [{"aliasLabelName": "job", "jsonPath": path}]}});
    // The new copy gets it from the last task, whatever else is dropped.
    let mut spec = in_the_first_group();
    spec.failover = serde_json::from_value(json!({"cluster": rules("{.id}")})).unwrap();
    let plan = to_the_backup(&spec, &PurgeMode::Directly);
    let brought = tasks(&plan).iter();
    let brought = brought.map(|it| (it["fromCluster"].as_str(), &it["preservedLabelState"]));
    let (none, state) = (Value::Null, json!({"job": "7f"}));
    assert!(brought.eq([(Some("member2"), &none), (Some("member1"), &state)]));
    for mode in [PurgeMode::Gracefully, PurgeMode::Directly, PurgeMode::Never] {
        let task = task_of(&mode, &rules("{.id}")).unwrap();
        assert_eq!(task["preservedLabelState"], json!({"job": "7f"}), "{mode}");
        assert_eq!(
            task["clustersBeforeFailover"],
            json!(["member1", "member2"]),
            "member2 runs a copy already and gets no labels"
        );
    }
    // A state that is not there holds the workload only where the new copy would get it.
    let mut spec = divided();
    spec.failover = serde_json::from_value(json!({"cluster": rules("{.gone}")})).unwrap();
    for (mode, stays) in [
        (PurgeMode::Directly, true),
        (PurgeMode::Gracefully, false),
        (PurgeMode::Never, false),
    ] {
        let got = planned(&in_mode(&spec, &mode), &one_of_two());
        let held = matches!(got, Err(Nowhere::State(_)));
        assert_eq!(held, stays, "{mode}: {got:?}");
        assert!(held || got.is_ok());
    }
}

#[test]
fn a_copy_that_was_never_healthy_passes_on_the_state_that_it_was_given() {
    let mut spec = alone();
    // The workload was moved to member1 a moment ago, and keeps its task until it is healthy there.
    spec.graceful_eviction_tasks = serde_json::from_value(json!([{
        "fromCluster": "member3", "purgeMode": "Directly", "reason": "TaintUntolerated",
        "producer": "TaintManager", "preservedLabelState": {"job": "abc"},
        "clustersBeforeFailover": ["member3"],
    }]))
    .unwrap();
    // The copy reports no state of its own, or one of another name than the saved one.
    for path in ["{.gone}", "{.id}"] {
        let rules = json!([{"aliasLabelName": "job", "jsonPath": path}]);
        let failover = json!({"cluster": {"statePreservation": {"rules": rules}}});
        spec.failover = serde_json::from_value(failover).unwrap();
        let departure = in_mode(&spec, &PurgeMode::Directly);
        let plan = planned(&departure, &one_of_two()).unwrap();
        let last = tasks(&plan).last().unwrap();
        assert_eq!(last["fromCluster"], "member1");
        assert_eq!(last["preservedLabelState"], json!({"job": "abc"}), "{path}");
    }
}

#[test]
fn a_state_that_was_not_used_goes_on_although_the_next_eviction_preserves_none() {
    // The application failed in member7 a moment ago. Its policy says nothing of failing clusters.
    let brought: Vec<GracefulEvictionTask> = serde_json::from_value(json!([{
        "fromCluster": "member7", "purgeMode": "Directly", "reason": "ApplicationFailure",
        "producer": "p", "preservedLabelState": {"job": "abc"},
        "clustersBeforeFailover": ["member7"],
    }]))
    .unwrap();
    let reports = |cluster: &str, health: &str| -> ResourceBindingStatus {
        let report = json!([{"clusterName": cluster, "health": health}]);
        serde_json::from_value(json!({ "aggregatedStatus": report })).unwrap()
    };
    let given = |before: &ResourceBindingSpec, plan: &Plan, to: &str| {
        let mut after = before.clone();
        if let Some(tasks) = plan.patch["spec"].get("gracefulEvictionTasks") {
            after.graceful_eviction_tasks = serde_json::from_value(tasks.clone()).unwrap();
        }
        let state = after.state_given(to);
        state.and_then(|it| it.get("job").cloned())
    };
    let mut spec = alone();
    spec.graceful_eviction_tasks.clone_from(&brought);
    for (mode, health, expected) in [
        (PurgeMode::Gracefully, "Unhealthy", Some("abc")),
        (PurgeMode::Never, "Unhealthy", Some("abc")),
        (PurgeMode::Directly, "Unhealthy", Some("abc")),
        (PurgeMode::Gracefully, "Healthy", None),
    ] {
        let departure = Departure {
            status: &reports("member1", health),
            purge_mode: &mode,
            preserves_state: true,
            ..departure(&spec, "member1")
        };
        let plan = planned(&departure, &one_of_two()).unwrap();
        let state = given(&spec, &plan, "member2");
        assert_eq!(state.as_deref(), expected, "{mode} {health}");
    }
    // One that runs beside it has long done without.
    let mut spec = divided();
    spec.graceful_eviction_tasks.clone_from(&brought);
    for (health, expected) in [("Unhealthy", Some("abc")), ("Healthy", None)] {
        let departure = Departure {
            status: &reports("member2", health),
            ..departure(&spec, "member1")
        };
        let plan = planned(&departure, &one_of_two()).unwrap();
        let state = given(&spec, &plan, "member2");
        assert_eq!(state.as_deref(), expected, "{health} beside it");
    }
    // Copies that go with the failed one have no state to give.
    let mut spec = in_the_first_group();
    spec.graceful_eviction_tasks = brought;
    for mode in [PurgeMode::Gracefully, PurgeMode::Directly, PurgeMode::Never] {
        let plan = to_the_backup(&spec, &mode);
        let state = given(&spec, &plan, "member3");
        assert_eq!(state.as_deref(), Some("abc"), "{mode}");
    }
}

#[test]
fn a_copy_that_was_refused_leaves_the_last_place_to_another_although_it_was_left_before() {
    let mut spec = alone();
    let task = |from: &str| json!({"fromCluster": from, "reason": "r", "producer": "p"});
    let known = json!([task("member7"), task("member1")]);
    spec.graceful_eviction_tasks = serde_json::from_value(known).unwrap();
    let reason = EvictionReason::Refused {
        since: at(0),
        why: "it exists already",
    };
    let departure = Departure {
        reason,
        ..departure(&spec, "member1")
    };
    let plan = planned(&departure, &one_of_two()).unwrap();
    let from = tasks(&plan).iter().map(|it| &it["fromCluster"]);
    assert!(from.eq(["member1", "member7"]));
}

#[test]
fn a_decision_for_the_cluster_that_is_left_is_none() {
    let mut spec = alone();
    spec.placement = Some(Arc::new(
        serde_json::from_value(json!({"clusterAffinity": {"clusterNames": ["member1"]}})).unwrap(),
    ));
    // Without these filters the scheduler takes any cluster.
    let words = "*,-ClusterEviction,-TaintToleration".parse().unwrap();
    let options = Options::default().with_plugins(&words).unwrap();
    let departure = stateful(&spec, "member1");
    let stays = plan(&departure, &one_of_two(), &options, at(50));
    assert_eq!(stays.unwrap_err(), Nowhere::Empty);
}

#[test]
fn the_affinity_that_was_used_is_reported_if_it_is_another_one_and_ours() {
    let group =
        |name: &str, cluster: &str| json!({"affinityName": name, "clusterNames": [cluster]});
    let spec = spec(
        1,
        &json!([{"name": "member1", "replicas": 1}]),
        &json!({"clusterAffinities": [group("primary", "member1"), group("backup", "member2")]}),
    );
    for (ours, used, shown) in [
        (true, "primary", Some("backup")),
        (true, "backup", None),
        (false, "primary", None),
        (false, "backup", None),
    ] {
        let departure = Departure {
            ours,
            status: &observed(Some(used)),
            ..stateful(&spec, "member1")
        };
        let plan = planned(&departure, &one_of_two()).unwrap();
        assert_eq!(plan.affinity_name.as_deref(), shown, "{ours} {used}");
    }
}

#[test]
fn a_cluster_that_does_not_report_its_kinds_is_a_refuge_where_kinds_are_not_asked_for() {
    let mut blind = (*cluster("member2", &json!([]))).clone();
    blind.status = blind.status.map(|mut status| {
        status.api_enablements = Vec::new();
        status
    });
    let drained = tainted("member1");
    let snapshot = Snapshot::new([drained, Arc::new(blind)]);
    for (spec, plugins, goes) in [
        (&alone(), "*", false),
        (&alone(), "*,-APIEnablement", true),
        (&divided(), "*,-APIEnablement", true),
    ] {
        let options = Options::default();
        let options = options.with_plugins(&plugins.parse().unwrap()).unwrap();
        let got = plan(&stateful(spec, "member1"), &snapshot, &options, at(50));
        assert_eq!(got.is_ok(), goes, "{plugins}: {got:?}");
    }
}

#[test]
fn of_many_clusters_a_few_are_named_and_the_others_counted() {
    let drained = tainted("member1");
    for (count, ending) in [
        (LONGEST_LIST - 1, "has Ready=Unknown".to_owned()),
        (LONGEST_LIST, "has Ready=Unknown".to_owned()),
        (
            LONGEST_LIST + 2,
            "has Ready=Unknown, 2 more likewise".to_owned(),
        ),
    ] {
        let names: Vec<String> = (0..count).map(|n| format!("silent{n}")).collect();
        let silent = names
            .iter()
            .map(|name| standing(name, &json!([]), "Unknown"));
        let snapshot = Snapshot::new(silent.chain([drained.clone()]));
        // They hold it already, so that the scheduler counts on them.
        let held: Vec<Value> = names
            .iter()
            .map(String::as_str)
            .chain(["member1"])
            .map(|name| json!({"name": name, "replicas": 2}))
            .collect();
        let one_is_enough = json!([{"spreadByField": "cluster", "minGroups": 1}]);
        let placement = json!({"spreadConstraints": one_is_enough});
        let spec = spec(2, &json!(held), &placement);
        let stays = planned(&stateful(&spec, "member1"), &snapshot);
        let message = stays.unwrap_err().to_string();
        let beginning = "no other cluster could take it: silent";
        assert!(message.starts_with(beginning), "{message}");
        assert!(message.ends_with(&ending), "{count}: {message}");
        let shown = message.matches("Ready=Unknown").count();
        assert_eq!(shown, count.min(LONGEST_LIST), "{message}");

        let clusters: Vec<TargetCluster> = serde_json::from_value(json!(held)).unwrap();
        let plan = Plan {
            patch: Value::Null,
            clusters,
            affinity_name: None,
        };
        let (to, more) = (plan.destination(), (count + 1).saturating_sub(LONGEST_LIST));
        assert_eq!(
            to.matches("silent").count(),
            count.min(LONGEST_LIST),
            "{to}"
        );
        assert_eq!(to.contains(&format!(" and {more} more")), more > 0, "{to}");
    }
}

/// Returns a workload with two copies in the first affinity group, which holds two clusters and
/// needs both.
fn in_the_first_group() -> ResourceBindingSpec {
    let group =
        |name: &str, clusters: [&str; 2]| json!({"affinityName": name, "clusterNames": clusters});
    spec(
        2,
        &json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 2}]),
        &json!({
            "clusterAffinities": [
                group("primary", ["member1", "member2"]),
                group("backup", ["member3", "member5"]),
            ],
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
        }),
    )
}

/// Plans the departure of such a workload from member1, for the second group.
fn to_the_backup(spec: &ResourceBindingSpec, mode: &PurgeMode) -> Plan {
    let departure = Departure {
        status: &observed(Some("primary")),
        ..in_mode(spec, mode)
    };
    let fleet = fleet(&["member1"], &["member2", "member3", "member5"]);
    planned(&departure, &fleet).unwrap()
}

#[test]
fn healthy_copies_that_another_affinity_group_drops_stay_until_the_new_ones_are_healthy() {
    let spec = in_the_first_group();
    for (mode, kept) in [
        (PurgeMode::Gracefully, &["member2", "member1"][..]),
        (PurgeMode::Never, &["member2", "member1"]),
        // A workload that ran in two clusters may run in two.
        (PurgeMode::Directly, &["member2"]),
    ] {
        let plan = to_the_backup(&spec, &mode);
        assert_eq!(names(&plan.clusters), [("member3", 2), ("member5", 2)]);
        let from = tasks(&plan).iter().map(|it| it["fromCluster"].as_str());
        let from: Vec<&str> = from.flatten().collect();
        assert_eq!(from, kept, "{mode}");
        if let Some(follower) = tasks(&plan).first() {
            assert_eq!(follower["reason"], "PlacementChanged");
            assert_eq!(follower["producer"], "Scheduler");
            assert_eq!(follower["replicas"], 2);
            let follows = match mode {
                PurgeMode::Directly => PurgeMode::Gracefully,
                mode => mode,
            };
            assert_eq!(follower["purgeMode"], json!(follows));
            let message = follower["message"].as_str().unwrap();
            let expected = "member2 is no target any more since the workload left member1: member1 has taint down:NoExecute";
            assert!(message.starts_with(expected), "{message}");
        }
    }
}

#[test]
fn where_a_fence_is_asked_for_no_old_copy_stays_beside_a_new_one() {
    let mut spec = in_the_first_group();
    let failover = json!({"cluster": {"purgeMode": "Directly", "fencing": {"afterSeconds": 60}}});
    spec.failover = serde_json::from_value(failover).unwrap();
    let plan = to_the_backup(&spec, &PurgeMode::Directly);
    assert_eq!(names(&plan.clusters), [("member3", 2), ("member5", 2)]);
    assert_eq!(plan.patch["spec"].get("gracefulEvictionTasks"), None);
}

#[test]
fn directly_drops_no_healthy_copy_at_once_where_old_and_new_ones_run_beside_each_other_anyway() {
    let group =
        |name: &str, clusters: [&str; 3]| json!({"affinityName": name, "clusterNames": clusters});
    let spec = spec(
        2,
        &json!([
            {"name": "member1", "replicas": 2},
            {"name": "member2", "replicas": 2},
            {"name": "member3", "replicas": 2},
        ]),
        &json!({
            "clusterAffinities": [
                group("primary", ["member1", "member2", "member3"]),
                group("backup", ["member3", "member4", "member5"]),
            ],
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 3}],
        }),
    );
    let fleet = fleet(&["member1"], &["member2", "member3", "member4", "member5"]);
    let departure = Departure {
        status: &observed(Some("primary")),
        ..in_mode(&spec, &PurgeMode::Directly)
    };
    let plan = planned(&departure, &fleet).unwrap();
    let chosen = [("member3", 2), ("member4", 2), ("member5", 2)];
    assert_eq!(names(&plan.clusters), chosen);
    let [task] = tasks(&plan) else {
        panic!("{}", plan.patch);
    };
    assert_eq!(task["fromCluster"], "member2");
    assert_eq!(task["purgeMode"], "Gracefully");
}

#[test]
fn another_scheduler_chooses_what_is_dropped() {
    let spec = in_the_first_group();
    let departure = Departure {
        ours: false,
        ..stateful(&spec, "member1")
    };
    let fleet = fleet(&["member1"], &["member2", "member3", "member5"]);
    let plan = planned(&departure, &fleet).unwrap();
    assert_eq!(tasks(&plan).len(), 1);
}

/// Returns a workload of one cluster at a time, with three affinity groups of one cluster each.
fn in_groups() -> ResourceBindingSpec {
    let group = |name: &str| json!({"affinityName": name, "clusterNames": [name]});
    let groups = ["member1", "member2", "member3"].map(group);
    let clusters = json!([{"name": "member1", "replicas": 2}]);
    spec(2, &clusters, &json!({"clusterAffinities": groups}))
}

#[test]
fn a_cluster_in_which_the_order_could_not_be_carried_out_is_passed_over() {
    let fleet = fleet(&["member1"], &["member2", "member3"]);
    let spec = in_groups();
    for (obstructed, expected) in [
        (&[][..], Ok("member2")),
        (&["member2"], Ok("member3")),
        (
            &["member2", "member3"],
            Err(
                "no other cluster could take it: member2 gets nothing new: its dispatching is \
                 suspended, member3 gets nothing new: its dispatching is suspended; besides these: ",
            ),
        ),
    ] {
        for mode in [PurgeMode::Gracefully, PurgeMode::Directly] {
            let departure = Departure {
                purge_mode: &mode,
                obstacle: &|name| obstructed.contains(&name).then_some(Obstacle::Suspended),
                ..departure(&spec, "member1")
            };
            let found = planned(&departure, &fleet);
            match (found, expected) {
                (Ok(plan), Ok(to)) => assert_eq!(plan.destination(), to, "{mode} {obstructed:?}"),
                (Err(error), Err(text)) => {
                    assert!(error.to_string().starts_with(text), "{error}");
                }
                (found, _) => panic!("{mode} {obstructed:?}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_target_is_a_refuge_if_its_copy_runs_something_or_can_still_be_made() {
    let sharing = |shares: [i32; 2]| {
        let mut spec = divided();
        for (target, replicas) in spec.clusters.iter_mut().zip(shares) {
            target.replicas = replicas;
        }
        spec
    };
    let whole = || copied(2, &at_least(1));
    let well = (true, "Healthy", None);
    let refused = |health: &'static str| (false, health, Some("already exists"));
    let leaves = Some(Obstacle::CopyLeaves);
    let broken = Some(Obstacle::Override("broken".to_owned()));
    for (what, spec, (applied, health, message), obstacle, expected) in [
        ("no share", sharing([3, 0]), well, None, true),
        ("no share yet", sharing([3, 0]), well, leaves.clone(), false),
        ("a share", sharing([1, 2]), well, leaves.clone(), true),
        // Nobody has divided them yet, so that pods may run.
        ("undivided", sharing([0, 0]), well, leaves, true),
        ("nothing is in its way", divided(), well, None, true),
        // The copy that is there runs on as it is.
        ("its override is broken", divided(), well, broken, true),
        ("emptied", divided(), well, Some(Obstacle::Emptied), false),
        ("it runs", whole(), well, None, true),
        ("it was refused", whole(), refused("Unknown"), None, false),
        // A change was refused, and the copy of before runs.
        ("a change was", whole(), refused("Healthy"), None, true),
        ("not applied", whole(), (false, "Unknown", None), None, true),
    ] {
        let report = json!({
            "clusterName": "member2", "applied": applied, "health": health,
            "appliedMessage": message,
        });
        let status = serde_json::from_value(json!({ "aggregatedStatus": [report] })).unwrap();
        for purge_mode in [PurgeMode::Gracefully, PurgeMode::Directly] {
            let departure = Departure {
                status: &status,
                purge_mode: &purge_mode,
                obstacle: &|_| obstacle.clone(),
                ..departure(&spec, "member1")
            };
            let found = planned(&departure, &one_of_two());
            assert_eq!(found.is_ok(), expected, "{what}, {purge_mode}: {found:?}");
        }
    }
}

#[test]
fn a_cluster_that_gets_a_share_of_zero_is_no_refuge() {
    let mut spec = divided();
    let placement = Arc::make_mut(spec.placement.as_mut().unwrap());
    placement.cluster_affinity = None;
    let options = Options {
        keep_empty: true,
        ..Options::default()
    };
    let fleet = fleet(&["member1"], &["member2", "member3"]);
    for (applied, leaves) in [(true, true), (false, false)] {
        let status = json!({"aggregatedStatus": [
            {"clusterName": "member2", "applied": applied, "appliedMessage": "already exists"},
        ]});
        let departure = Departure {
            status: &serde_json::from_value(status).unwrap(),
            ..departure(&spec, "member1")
        };
        let found = plan(&departure, &fleet, &options, at(50));
        assert_eq!(found.is_ok(), leaves, "{applied}: {found:?}");
        let to = found.ok().map(|plan| plan.destination());
        assert!(to.is_none_or(|to| to == "member2"), "member3 gets nothing");
    }
}

#[test]
fn nothing_is_taken_from_a_cluster_out_of_which_movement_is_paused() {
    let fleet = fleet(&["member2"], &["member1", "member3"]);
    let edited = spec(
        2,
        &json!([
            {"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 2},
            {"name": "member3", "replicas": 2},
        ]),
        &json!({
            "clusterAffinity": {"clusterNames": ["member3"]},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        }),
    );
    let weight = |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let weighed = spec(
        3,
        &json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 1}]),
        &json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [weight("member1", 1), weight("member3", 2)]},
        }}),
    );
    // The scheduler has not taken the surplus replicas away yet.
    let fewer = spec(
        1,
        &json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 1}]),
        &json!({
            "clusterAffinity": {"clusterNames": ["member1", "member2"]},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            },
        }),
    );
    for (what, spec, is_taken) in [
        // A person took it out of the policy, and no other cluster gains by that.
        ("a target goes", &edited, false),
        ("a target shrinks for another", &weighed, true),
        ("a target shrinks", &fewer, false),
    ] {
        for (paused, ours, expected) in [
            ("", true, true),
            ("member1", true, !is_taken),
            // The other scheduler is asked to place it, and may do so as it likes.
            ("member1", false, true),
            ("member2", true, false),
            ("member2", false, false),
            ("member3", true, true),
        ] {
            let departure = Departure {
                ours,
                pause: &|name| (name == paused).then(Arc::default),
                ..departure(spec, "member2")
            };
            let found = planned(&departure, &fleet);
            let is_paused = matches!(found, Err(Nowhere::Paused(_)));
            assert_eq!(found.is_ok(), expected, "{what} {paused}: {found:?}");
            assert_eq!(is_paused, !expected, "{what} {paused}");
        }
    }
}

#[test]
fn a_healthy_copy_that_is_dropped_beside_one_that_goes_directly_waits_for_health_and_not_for_time()
{
    let spec = in_the_first_group();
    let status: ResourceBindingStatus =
        serde_json::from_value(json!({"schedulerObservingAffinityName": "primary"})).unwrap();
    let departure = Departure {
        status: &status,
        // As the controller of failing applications says it, whatever the purge mode is.
        reason: EvictionReason::Failure {
            since: at(0),
            producer: "p",
            grace_seconds: Some(600),
        },
        purge_mode: &PurgeMode::Directly,
        ..departure(&spec, "member1")
    };
    let clusters = fleet(&[], &["member1", "member2", "member3", "member5"]);
    let found = planned(&departure, &clusters).unwrap();
    assert_eq!(names(&found.clusters), [("member3", 2), ("member5", 2)]);
    let follower = &tasks(&found)[0];
    assert_eq!(follower["fromCluster"], "member2");
    assert_eq!(follower["purgeMode"], "Gracefully");
    assert_eq!(follower["gracePeriodSeconds"], Value::Null, "{follower}");
}

#[test]
fn an_eviction_carries_out_no_request_that_waits_in_a_queue_of_its_own() {
    let group =
        |name: &str, clusters: &[&str]| json!({"affinityName": name, "clusterNames": clusters});
    let asked = |at: Option<&str>| {
        let mut asked = spec(
            2,
            &json!([{"name": "member2", "replicas": 2}, {"name": "member3", "replicas": 2}]),
            &json!({
                "clusterAffinities": [
                    group("primary", &["member1", "member4"]),
                    group("backup", &["member2", "member3", "member5"]),
                ],
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
            }),
        );
        asked.reschedule_triggered_at = at.map(|at| Time(at.parse().unwrap()));
        asked
    };
    let status: ResourceBindingStatus = serde_json::from_value(json!({
        "schedulerObservingAffinityName": "backup", "lastScheduledTime": "2024-01-01T00:00:00Z",
    }))
    .unwrap();
    let clusters = fleet(&["member3"], &["member1", "member2", "member4", "member5"]);
    for at_time in [None, Some("2025-01-01T00:00:00Z")] {
        for paused in ["", "member2"] {
            let spec = asked(at_time);
            let departure = Departure {
                status: &status,
                pause: &|name| (name == paused).then(Arc::default),
                ..departure(&spec, "member3")
            };
            let found = planned(&departure, &clusters);
            let found = found.map(|plan| plan.clusters);
            let found = found.as_ref().map(|it| names(it));
            let expected = vec![("member2", 2), ("member5", 2)];
            assert_eq!(found, Ok(expected), "{at_time:?}, paused: {paused}");
        }
    }
}
