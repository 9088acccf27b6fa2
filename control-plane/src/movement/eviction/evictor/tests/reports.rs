use muster_shared::api::any_binding::AnyBinding;
use muster_shared::events::EventType;

use super::*;

/// Returns what is reported of the binding and the cluster when the eviction of a workload comes to
/// that end.
fn ends(more: &Value, effect: &str, end: impl Fn(&Eviction) -> Outcome) -> [Vec<&'static str>; 2] {
    let workload = binding("w", &["c0"], more);
    let mut world = World::pair(cluster("c0", &json!([])), [workload]);
    world.set(&cluster("c0", &taint(effect, 1_000)));
    world.pass(2.5, end);
    world.reasons()
}

#[test]
fn every_end_and_every_wait_is_reported_of_the_workload_and_of_its_cluster() {
    let plain = json!({});
    let tolerating = |seconds: Option<i64>| json!({"placement": {"clusterTolerations": [{"operator": "Exists", "tolerationSeconds": seconds}]}});
    let nowhere = |_: &Eviction| Outcome::Nowhere("full".into());
    let lost = |_: &Eviction| Outcome::Unpreserved("no status yet".into());
    let failed = |_: &Eviction| Outcome::Failed("500".into());
    for (got, binding, cluster) in [
        (
            ends(&plain, "NoExecute", leave),
            vec!["WaitingForRate", "Evicted"],
            vec!["EvictionQueued", "Evicted"],
        ),
        (
            ends(&plain, "NoExecute", nowhere),
            vec!["WaitingForRate", "NowhereToGo"],
            vec!["EvictionQueued", "EvictionNowhereToGo"],
        ),
        (
            ends(&plain, "NoExecute", lost),
            vec!["WaitingForRate", "StateNotPreserved"],
            vec!["EvictionQueued", "EvictionNowhereToGo"],
        ),
        (
            ends(&plain, "NoExecute", failed),
            vec!["WaitingForRate", "EvictWorkloadFromClusterFailed"],
            vec!["EvictionQueued"],
        ),
        (
            ends(&tolerating(Some(60)), "NoExecute", leave),
            vec!["WaitingForToleration"],
            vec!["EvictionAwaitsToleration"],
        ),
        (
            ends(&tolerating(None), "NoExecute", leave),
            vec!["Tolerated"],
            vec!["EvictionTolerated"],
        ),
        (
            ends(&plain, "PreferNoExecute", leave),
            vec!["FailoverNotRequested"],
            vec!["EvictionTolerated"],
        ),
    ] {
        assert_eq!(got, [binding, cluster]);
    }
}

#[test]
fn a_stop_a_slow_pace_and_a_recovery_are_reported_of_the_workloads_and_of_the_clusters() {
    let reasons = |world: &mut World| -> [HashSet<&'static str>; 2] {
        world.reasons().map(|them| them.into_iter().collect())
    };
    let mut world = World::new(8, 4, 1);
    world.reported();
    world.set(&cluster("c4", &down(0)));
    let reports = world.evictor.take_reports();
    let bindings = reports.bindings.iter();
    let bindings: HashSet<_> = bindings
        .map(|(key, note)| (&*key.name, note.reason()))
        .collect();
    let waits = ["w0-0", "w1-0", "w2-0", "w3-0", "w4-0"];
    assert_eq!(
        bindings,
        HashSet::from(waits.map(|name| (name, "StoppedByThreshold")))
    );
    let clusters: HashSet<_> = reports.clusters.iter().map(|note| note.reason).collect();
    assert_eq!(
        clusters,
        HashSet::from(["EvictionStopped", "EvictionQueued"])
    );

    world.set(&cluster("c4", &json!([])));
    let [bindings, clusters] = reasons(&mut world);
    assert_eq!(
        bindings,
        HashSet::from(["WaitingForRate", "AbandonedOnRecovery"])
    );
    assert_eq!(
        clusters,
        HashSet::from(["EvictionResumed", "EvictionAbandoned"])
    );

    let mut large = World::new(12, 7, 1);
    let [_, clusters] = reasons(&mut large);
    assert_eq!(
        clusters,
        HashSet::from(["EvictionSlowed", "EvictionQueued"]),
        "said after a restart, too"
    );
}

#[test]
fn with_a_switch_off_each_workload_and_its_cluster_are_reported_why_nothing_moves() {
    let reported = |switches: Switches| {
        let mut world = World::new(3, 0, 2);
        world.evictor.switches = switches;
        world.set(&cluster("c0", &taint("NoExecute", 1_000)));
        assert!(world.evict(100.0).is_empty());
        let reports = world.evictor.take_reports();
        let bindings: Vec<_> = reports
            .bindings
            .iter()
            .map(|(_, note)| note.message())
            .collect();
        let clusters: Vec<_> = reports.clusters.iter().map(|note| note.reason).collect();
        (bindings, clusters)
    };
    let (bindings, clusters) = reported(switches(false));
    assert_eq!(
        bindings,
        ["stays on c0, which has taint down:NoExecute: feature gate Failover is off"; 2]
    );
    assert_eq!(clusters, ["EvictionOff"]);
    let (bindings, clusters) = reported(Switches {
        no_execute: false,
        ..switches(true)
    });
    let why = "taints of effect NoExecute do not evict (--enable-no-execute-taint-eviction=false)";
    assert_eq!(
        bindings,
        vec![format!("stays on c0, which has taint down:NoExecute: {why}"); 2]
    );
    assert_eq!(clusters, ["EvictionTolerated"]);
}

#[test]
fn an_eviction_whose_answer_was_lost_is_reported_as_one_when_it_shows() {
    for (recorded, expected) in [
        (Some("c0"), "Evicted"),
        (Some("c7"), "AbandonedOnMove"),
        (None, "AbandonedOnMove"),
    ] {
        let mut world = World::new(3, 1, 1);
        world.pass(2.5, |_| Outcome::Unclear("no answer in time".into()));
        world.reported();
        let mut moved = AnyBinding::clone(&binding("w0-0", &["c1"], &json!({})));
        if let Some(from) = recorded {
            let now = world.now().wall;
            let record = Record::new(from, "c1", "Directly", "taint down:NoExecute", now).write();
            let annotations = moved.metadata.annotations.get_or_insert_default();
            annotations.insert(LAST_EVICTION.to_owned(), record);
        }
        // What reported the failure is newer than the eviction.
        moved.status = serde_json::from_value(json!({"conditions": [
            {"type": "EvictionPending", "status": "True", "reason": "EvictWorkloadFromClusterFailed", "message": "",
             "lastTransitionTime": "2030-01-01T00:00:00Z"},
        ]}))
        .unwrap();
        world.put(&Arc::new(moved));
        assert_eq!(world.reported(), [("w0-0".to_owned(), expected)]);
    }
}

/// Returns the binding of a Job in `c0` that has this condition according to the report of the
/// cluster `reporter`.
fn job(reporter: &str, condition: &str) -> Arc<AnyBinding> {
    let resource = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "sum"});
    let mut job = binding("sum", &["c0"], &json!({"resource": resource}))
        .as_ref()
        .clone();
    let conditions = json!([{"type": condition, "status": "True"}]);
    job.status = serde_json::from_value(json!({"aggregatedStatus": [
        {"clusterName": reporter, "status": {"conditions": conditions}},
    ]}))
    .unwrap();
    Arc::new(job)
}

#[test]
fn a_job_that_has_completed_in_a_cluster_does_not_run_again_in_another_one() {
    for (binding, leaves) in [
        (job("c0", "Complete"), false),
        (job("c0", "SuccessCriteriaMet"), false),
        (job("c0", "Failed"), true),
        (job("c0", "Suspended"), true),
        (job("c1", "Complete"), true),
    ] {
        let mut world = World::pair(cluster("c0", &down(0)), [binding.clone()]);
        let left = world.evict(10.0).len();
        assert_eq!(left == 1, leaves, "{:?}", binding.status);
        assert!(leaves || world.has_reported("JobCompleted"));
    }
}

#[test]
fn a_share_of_zero_replicas_stays_in_a_failed_cluster_and_leaves_a_drained_one() {
    let drain = json!([{"key": "failover.muster.io/drain", "effect": "NoExecute"}]);
    for (taints, shares, leaves) in [
        (down(0), [0, 3], false),
        (down(0), [1, 2], true),
        // Nobody has divided them yet, so that pods may run.
        (down(0), [0, 0], true),
        (drain, [0, 3], true),
    ] {
        let [c0, c1] = shares;
        let clusters = json!([{"name": "c0", "replicas": c0}, {"name": "c1", "replicas": c1}]);
        let binding = binding("web", &[], &json!({"replicas": 3, "clusters": clusters}));
        let mut world = World::pair(cluster("c0", &taints), [binding]);
        let left = world.evict(10.0).len();
        assert_eq!(left == 1, leaves, "{taints} {shares:?}");
        assert_eq!(
            world.has_reported("NoReplicas"),
            !leaves,
            "{taints} {shares:?}"
        );
    }
}

#[test]
fn a_job_that_completes_while_it_waits_stays() {
    let mut world = World::pair(cluster("c0", &json!([])), [job("c0", "Suspended")]);
    world.set(&cluster("c0", &taint("NoExecute", 1_000)));
    world.put(&job("c0", "Complete"));
    assert!(world.evict(10.0).is_empty());
}

#[test]
fn a_job_that_completes_while_it_is_stranded_is_reported_so_and_one_that_begins_anew_leaves() {
    let mut world = World::pair(cluster("c0", &down(0)), [job("c0", "Suspended")]);
    let stranded = world.pass(10.0, |_| Outcome::Nowhere("full".into()));
    assert_eq!(stranded.len(), 1);
    world.reported();
    world.put(&job("c0", "Complete"));
    assert!(world.has_reported("JobCompleted"));
    world.put(&job("c0", "Suspended"));
    assert_eq!(world.evict(10.0).len(), 1);
}

#[test]
fn a_cluster_is_reported_how_many_of_its_workloads_leave_wait_and_stay() {
    let tolerating = |seconds: Option<i64>| json!({"placement": {"clusterTolerations": [{"operator": "Exists", "tolerationSeconds": seconds}]}});
    for (plain, for_a_time, expected) in [
        (
            1,
            3,
            "workloads in it: 6; to leave it now: 1, when tolerations have run out: 3, to stay: 2",
        ),
        (
            0,
            3,
            "workloads in it: 5; to leave it now: 0, when tolerations have run out: 3, to stay: 2",
        ),
        (
            0,
            0,
            "workloads in it: 2; to leave it now: 0, when tolerations have run out: 0, to stay: 2",
        ),
    ] {
        let kinds = [
            (plain, json!({})),
            (for_a_time, tolerating(Some(60))),
            (2, tolerating(None)),
        ];
        let bindings = kinds.iter().enumerate().flat_map(|(kind, (count, more))| {
            (0..*count).map(move |n| binding(&format!("w{kind}-{n}"), &["c0"], more))
        });
        let mut world = World::pair(cluster("c0", &json!([])), bindings);
        world.set(&cluster("c0", &taint("NoExecute", 1_000)));
        let reports = world.evictor.take_reports();
        let messages: Vec<&str> = reports
            .clusters
            .iter()
            .map(|note| note.message.as_str())
            .collect();
        assert_eq!(messages, [expected]);
    }
}

#[test]
fn a_cluster_is_reported_of_its_evictions_when_the_last_is_over_whatever_leaves_others() {
    let reported = |world: &mut World| -> Vec<String> {
        let reports = world.evictor.take_reports();
        let evicted = reports
            .clusters
            .iter()
            .filter(|note| note.reason == "Evicted");
        evicted.map(|note| note.cluster.to_string()).collect()
    };
    let mut world = World::new(4, 1, 2);
    assert_eq!(world.evict(2.5).len(), 1);
    assert!(reported(&mut world).is_empty(), "one is ready");
    assert_eq!(world.evict(2.0).len(), 1);
    assert_eq!(reported(&mut world), ["c0"]);
    let mut world = World::new(8, 2, 1);
    let under_way = [10.0, 20.0].map(|second| {
        world.second = second;
        world.begin_eviction()
    });
    for eviction in under_way {
        world.evictor.done(&eviction, leave(&eviction), world.now());
        assert_eq!(reported(&mut world), [eviction.cluster.to_string()]);
    }
}

#[test]
fn what_stops_evictions_is_a_warning_to_the_cluster() {
    for (reason, severity) in [
        ("EvictionStopped", EventType::Warning),
        ("EvictionNowhereToGo", EventType::Warning),
        ("DrainRateUnreadable", EventType::Warning),
        ("EvictionQueued", EventType::Normal),
        ("Evicted", EventType::Normal),
    ] {
        let note = ClusterNote {
            cluster: Arc::from("m1"),
            reason,
            message: String::new(),
        };
        assert_eq!(note.severity(), severity, "{reason}");
    }
}
