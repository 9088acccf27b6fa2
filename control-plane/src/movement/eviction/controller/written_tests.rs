//! What a failed cluster leads to: what is reported of it and of its workloads.

use http::Method;
use muster_shared::names::annotation::DESELECTED;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{self, Bench, pass};
use crate::settings::Settings;

fn binding(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": format!("{name}-configmap")},
        "spec": {
            "resource": {
                "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name,
            },
            "clusters": [{"name": "m1"}],
            "placement": {},
        },
    })
}

/// Returns settings by which taints evict.
fn evicting() -> Settings {
    Settings {
        feature_gates: "Failover=true".parse().unwrap(),
        ..Settings::default()
    }
}

/// Starts the controller over some objects.
async fn started<'a>(
    settings: Settings,
    objects: impl IntoIterator<Item = (&'a str, Value)>,
) -> Bench {
    begun(Bench::with(settings, objects)).await
}

/// Starts the controller.
async fn begun(mut bench: Bench) -> Bench {
    let pace = Pace::of(&bench.fleet.settings);
    start(&bench.fleet, &pace, true, &mut bench.tasks);
    bench.follow().await;
    bench
}

/// Returns cluster `m1` with a taint that evicts.
fn failed() -> Value {
    let mut failed = testing::cluster("m1");
    failed["spec"]["taints"] = json!([{
        "key": "down", "effect": "NoExecute", "timeAdded": "2024-01-01T00:00:00Z",
    }]);
    failed
}

#[tokio::test(start_paused = true)]
async fn with_the_gate_off_it_is_reported_why_workloads_stay_in_a_tainted_cluster() {
    let cluster = json!({
        "metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull", "taints": [{"key": "down", "effect": "NoExecute"}]},
    });
    let objects = [
        ("clusters", cluster),
        ("resourcebindings", binding("a")),
        ("resourcebindings", binding("gone")),
    ];
    let bench = started(Settings::default(), objects).await;
    bench
        .api
        .delete("resourcebindings", "shop", "gone-configmap");
    pass(10).await;
    let reported = bench.api.reported().await;
    let is_reported =
        |about: &str, reason: &str| reported.contains(&(about.to_owned(), reason.to_owned()));
    assert!(is_reported("m1", "EvictionOff"), "{reported:?}");
    assert!(is_reported("a-configmap", "FailoverOff"), "{reported:?}");
    assert!(
        reported.iter().all(|(about, _)| !about.contains("gone")),
        "{reported:?}"
    );
    let writes = bench.api.writes();
    let [(Method::PATCH, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert!(
        path.ends_with("/resourcebindings/a-configmap/status"),
        "{path}"
    );
    assert_eq!(body["status"]["conditions"][0]["reason"], "FailoverOff");
}

#[tokio::test(start_paused = true)]
async fn a_workload_leaves_a_failed_cluster_in_one_write_and_that_is_reported_and_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut workload = testing::binding();
    workload["metadata"]["annotations"] = json!({DESELECTED: "m2,m9"});
    let bench = failed_beside_m2(failed(), [("resourcebindings", workload)]).await;
    let writes = bench.api.writes();
    let evictions: Vec<&Value> = writes
        .iter()
        .filter(|it| it.1.ends_with("/web-deployment"))
        .map(|it| &it.2["spec"])
        .collect();
    let [spec] = &evictions[..] else {
        panic!("{writes:?}");
    };
    assert_eq!(spec["clusters"], json!([{"name": "m2", "replicas": 2}]));
    assert_eq!(spec["gracefulEvictionTasks"][0]["fromCluster"], "m1");
    let annotations = &bench.api.binding("web-deployment")["metadata"]["annotations"];
    assert_eq!(annotations[DESELECTED], "m9", "m2 is chosen again");
    let reported = bench.api.reported().await;
    for about in ["m1", "web-deployment", "web"] {
        let evicted = (about.to_owned(), "Evicted".to_owned());
        assert!(reported.contains(&evicted), "{about}: {reported:?}");
    }
    let figures = recorder.handle().render();
    let counted = r#"eviction_processing_total{name="binding-eviction",result="success"} 1"#;
    for line in ["cluster_fault_num 1", counted] {
        assert!(figures.lines().any(|it| it == line), "{line}: {figures}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_leaves_a_failed_cluster_for_one_that_has_its_data_once_one_has() {
    let object = json!({"apiVersion": "r.example.com/v1", "kind": "Replication", "name": "web"});
    let mut workload = testing::binding();
    workload["spec"]["dataReplication"] = json!({"gates": [{
        "object": object, "ready": {"condition": {"type": "Ready"}},
    }]});
    let data = |clusters: &[&str]| {
        let mut resource = object.clone();
        resource["namespace"] = json!("shop");
        let clusters = clusters.iter().map(|it| json!({"name": it}));
        json!({
            "metadata": {"namespace": "shop", "name": "web-replication"},
            "spec": {
                "resource": resource, "clusters": clusters.collect::<Vec<_>>(), "placement": {},
            },
        })
    };
    let bindings = [workload, data(&[])].map(|it| ("resourcebindings", it));
    let bench = failed_beside_m2(failed(), bindings).await;
    assert_eq!(placed(&bench), ["m1"]);
    let reported = bench.api.binding("web-deployment")["status"]["conditions"].to_string();
    assert!(
        reported.contains("did not have Replication web"),
        "{reported}"
    );
    bench.api.put("resourcebindings", data(&["m2"]));
    pass(10).await;
    assert_eq!(placed(&bench), ["m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_stays_in_a_cluster_that_has_recovered_although_the_watch_was_cut_off() {
    for recovers in [true, false] {
        let mut tainted = failed();
        tainted["spec"]["taints"][0]["timeAdded"] = json!(muster_shared::clock::calendar());
        // A read of the whole object fails at a time that cannot be decoded.
        tainted["metadata"]["managedFields"] = json!([{"time": "yesterday"}]);
        let mut workload = testing::binding();
        workload["spec"]["placement"]["clusterTolerations"] = json!([{
            "key": "down", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30,
        }]);
        let objects = [
            ("clusters", tainted),
            ("clusters", testing::cluster("m2")),
            ("resourcebindings", workload),
        ];
        let bench = started(evicting(), objects).await;
        pass(5).await;
        if recovers {
            bench.api.put_unreported("clusters", testing::cluster("m1"));
        }
        pass(40).await;
        let expected = if recovers { "m1" } else { "m2" };
        assert_eq!(placed(&bench), [expected], "recovers: {recovers}");
        let asked = bench.api.asked().into_iter();
        let reads =
            asked.filter(|it| it.method == Method::GET && it.path.ends_with("/clusters/m1"));
        assert_eq!(reads.count(), 1, "recovers: {recovers}");
    }
}

/// Returns a policy that says something of failover and suspension, and a binding that bears its
/// claim and does not say so yet.
fn edited(says: &Value) -> [(&'static str, Value); 2] {
    let mut policy = testing::policy();
    muster_shared::merge::apply(&mut policy["spec"], says);
    let mut binding = testing::claimed(testing::binding());
    binding["spec"]["failover"] = json!({"cluster": {"purgeMode": "Directly"}});
    [
        ("propagationpolicies", policy),
        ("resourcebindings", binding),
    ]
}

/// Returns the clusters that the workload of [`testing::binding`] is placed in.
fn placed(bench: &Bench) -> Vec<String> {
    let binding = bench.binding("web-deployment").unwrap();
    let clusters = binding.spec.clusters.iter();
    clusters.map(|it| it.name.clone()).collect()
}

/// Starts the controller over a cluster `m1` that has failed, an empty `m2`, and more objects, and
/// lets a minute pass.
async fn failed_beside_m2(
    failed: Value,
    objects: impl IntoIterator<Item = (&'static str, Value)>,
) -> Bench {
    let clusters = [("clusters", failed), ("clusters", testing::cluster("m2"))];
    let bench = started(evicting(), clusters.into_iter().chain(objects)).await;
    pass(60).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_another_scheduler_may_choose_stays_one_that_an_edit_took_away() {
    let mut workload = testing::binding();
    workload["spec"]["schedulerName"] = json!("other");
    workload["metadata"]["annotations"] = json!({DESELECTED: "m2"});
    let bench = failed_beside_m2(failed(), [("resourcebindings", workload)]).await;
    let left = bench.api.binding("web-deployment");
    let task = &left["spec"]["gracefulEvictionTasks"][0];
    assert_eq!(task["fromCluster"], "m1", "{left}");
    assert_eq!(left["metadata"]["annotations"][DESELECTED], "m2", "{left}");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_obeys_what_the_policy_says_although_the_binding_does_not_say_so_yet() {
    let never = json!({"failover": {"cluster": {"purgeMode": "Never"}}});
    let suspended = json!({
        "failover": {"cluster": {"purgeMode": "Directly"}},
        "suspension": {"dispatchingOnClusters": {"clusterNames": ["m2"]}},
    });
    for (says, expected) in [(never, Some(json!("Never"))), (suspended, None)] {
        let bench = failed_beside_m2(failed(), edited(&says)).await;
        let writes = bench.api.writes();
        let mut evictions = writes.iter().filter(|it| it.1.ends_with("/web-deployment"));
        let eviction = evictions.next().map(|it| &it.2["spec"]);
        let mode = eviction.map(|spec| spec["gracefulEvictionTasks"][0]["purgeMode"].clone());
        assert_eq!(mode, expected, "{says}: {writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_leaves_once_its_namespace_is_no_longer_being_removed_where_it_would_go() {
    use muster_shared::names;

    let (lies_in, name) = (
        names::execution_namespace("m2"),
        names::work("Namespace", "shop", ""),
    );
    let leaving = json!({
        "metadata": {
            "namespace": lies_in, "name": name, "uid": "u",
            "deletionTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["f"],
            "annotations": {"clusterresourcebinding.karmada.io/name": "shop-namespace"},
        },
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "Namespace"}]}},
    });
    let workload = ("resourcebindings", testing::binding());
    let bench = failed_beside_m2(failed(), [("works", leaving), workload]).await;
    assert_eq!(placed(&bench), ["m1"]);
    bench.api.delete("works", &lies_in, &name);
    pass(600).await;
    assert_eq!(placed(&bench), ["m2"], "{:?}", bench.api.reported().await);
}

/// Places three hundred workloads in three classes in a cluster that is lost, with room for half of
/// them elsewhere, and returns how many of each class are there in the end, the most important
/// class last. `tolerations` says for how many seconds each class bears the loss.
async fn moved_of_many(tolerations: [u64; 3]) -> [usize; 3] {
    const PRIORITIES: [i32; 3] = [0, 100, 1_000];
    let workloads = (0..300).map(|n: usize| {
        let class = n % 3;
        let mut binding = testing::binding();
        binding["metadata"]["name"] = json!(format!("w{n}-deployment"));
        let spec = &mut binding["spec"];
        spec["resource"]["name"] = json!(format!("w{n}"));
        spec["replicas"] = json!(1);
        spec["clusters"] = json!([{"name": "m1", "replicas": 1}]);
        spec["replicaRequirements"] = json!({"resourceRequest": {"cpu": "1"}});
        spec["schedulePriority"] = json!({"priority": PRIORITIES[class]});
        spec["placement"]["replicaScheduling"] = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        });
        spec["placement"]["clusterTolerations"] = json!([{
            "key": "down", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": tolerations[class],
        }]);
        ("resourcebindings", binding)
    });
    let mut refuge = testing::cluster("m2");
    refuge["status"]["resourceSummary"]["allocatable"] = json!({"cpu": "150", "pods": "5000"});
    let settings = Settings {
        resource_eviction_rate: 60.0,
        ..evicting()
    };
    let objects = [("clusters", testing::cluster("m1")), ("clusters", refuge)];
    let bench = started(settings, objects.into_iter().chain(workloads)).await;
    pass(5).await;
    let mut lost = failed();
    lost["spec"]["taints"][0]["timeAdded"] = json!(bench.fleet.clock.now());
    bench.api.put("clusters", lost);
    pass(50).await;
    let mut moved = [0; 3];
    for n in 0..300 {
        let bound = bench.binding(&format!("w{n}-deployment")).unwrap();
        moved[n % 3] += usize::from(bound.spec.target("m2").is_some());
    }
    moved
}

#[tokio::test(start_paused = true)]
async fn of_many_workloads_the_most_important_get_the_room_whoever_leaves_first() {
    for tolerations in [[0, 0, 0], [0, 15, 30], [30, 15, 0]] {
        let moved = moved_of_many(tolerations).await;
        assert_eq!(
            moved,
            [0, 50, 100],
            "seconds of toleration: {tolerations:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_workload_stays_once_its_policy_preserves_the_copy_that_would_run_on() {
    let (fenced, unfenced) = (json!({"afterSeconds": 100}), Value::Null);
    for (fencing, preserves, expected) in [
        (&fenced, false, true),
        (&fenced, true, false),
        (&unfenced, true, true),
    ] {
        let failover = json!({"cluster": {"fencing": fencing}});
        let says = json!({"failover": failover, "preserveResourcesOnDeletion": preserves});
        let [policy, mut workload] = edited(&says);
        workload.1["spec"]["failover"] = failover;
        let bench = failed_beside_m2(failed(), [policy, workload]).await;
        let is_left = !placed(&bench).contains(&"m1".to_owned());
        assert_eq!(is_left, expected, "{fencing} preserves: {preserves}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_leaves_once_its_policy_waits_for_no_override_policy_any_more() {
    let waits_for = |overrides: Value| {
        let mut policy = testing::policy();
        policy["spec"]["dependentOverrides"] = overrides;
        policy
    };
    let objects = [
        ("clusters", failed()),
        ("clusters", testing::cluster("m2")),
        ("propagationpolicies", waits_for(json!(["gone"]))),
        ("resourcebindings", testing::binding()),
    ];
    let bench = Bench::with(evicting(), objects);
    let policies = bench.fleet.policies.clone();
    bench.fleet.override_lookup.answer(move |_, _| {
        let mut all = policies.iter();
        let waits = all.any(|it| !it.spec.dependent_overrides.is_empty());
        if waits {
            Err("its policy waits".to_owned())
        } else {
            Ok(None)
        }
    });
    let bench = begun(bench).await;
    pass(60).await;
    assert_eq!(placed(&bench), ["m1"]);
    bench.api.put("propagationpolicies", waits_for(json!([])));
    pass(60).await;
    assert_eq!(placed(&bench), ["m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_policy_is_stricter_than_its_binding_stays_and_says_so() {
    for (has, says, leaves) in [
        (None, Some(100), false),
        (Some(50), Some(100), false),
        (Some(100), Some(50), true),
        (Some(100), None, true),
    ] {
        let fenced = |after: Option<i32>| {
            let fencing = after.map(|seconds| json!({"afterSeconds": seconds}));
            json!({"cluster": {"fencing": fencing}})
        };
        let [policy, mut workload] = edited(&json!({"failover": fenced(says)}));
        workload.1["spec"]["failover"] = fenced(has);
        let bench = failed_beside_m2(failed(), [policy, workload]).await;
        let expected = if leaves { "m2" } else { "m1" };
        assert_eq!(placed(&bench), [expected], "{has:?} {says:?}");
        let reported = bench.api.binding("web-deployment")["status"]["conditions"].to_string();
        let why = "its policy says more of tolerations, failover, fencing";
        assert_eq!(
            reported.contains(why),
            !leaves,
            "{has:?} {says:?}: {reported}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_stays_as_its_policy_tolerates_the_taint_or_asks_for_time_or_no_failover_says_so() {
    let tolerates = |seconds: Option<i64>| {
        let toleration = json!({"key": "down", "operator": "Exists", "tolerationSeconds": seconds});
        json!({"placement": {"clusterTolerations": [toleration]}})
    };
    let asks = |seconds: Option<i32>| {
        let behaviour = json!({"purgeMode": "Directly", "tolerationSeconds": seconds});
        json!({"failover": {"cluster": behaviour}})
    };
    for (effect, says, expected) in [
        ("NoExecute", json!({}), true),
        ("NoExecute", tolerates(Some(60)), true),
        ("NoExecute", tolerates(Some(i64::from(i32::MAX))), false),
        ("NoExecute", tolerates(None), false),
        ("PreferNoExecute", asks(None), true),
        ("PreferNoExecute", asks(Some(i32::MAX)), false),
        ("PreferNoExecute", json!({}), false),
    ] {
        let mut failed = failed();
        failed["spec"]["taints"][0]["effect"] = json!(effect);
        let bench = failed_beside_m2(failed, edited(&says)).await;
        let is_left = !placed(&bench).contains(&"m1".to_owned());
        assert_eq!(is_left, expected, "{effect}: {says}");
        let reported = bench.api.binding("web-deployment")["status"]["conditions"].to_string();
        let why = "its policy says more of tolerations";
        assert_eq!(
            reported.contains(why),
            !expected,
            "{effect}: {says}: {reported}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_stays_in_the_group_it_left_for_although_the_note_of_the_group_was_lost() {
    let group =
        |name: &str, cluster: &str| json!({"affinityName": name, "clusterNames": [cluster]});
    let mut workload = testing::binding();
    workload["metadata"]["generation"] = json!(1);
    workload["spec"]["placement"] = json!({
        "clusterAffinities": [group("primary", "m1"), group("backup", "m2")],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        },
    });
    let applied = workload["spec"]["placement"].to_string();
    workload["metadata"]["annotations"] = json!({"policy.karmada.io/applied-placement": applied});
    workload["status"] = json!({
        "schedulerObservingAffinityName": "primary", "schedulerObservedGeneration": 1,
        "lastScheduledTime": "2024-01-01T00:00:00Z",
    });
    let objects = [
        ("clusters", failed()),
        ("clusters", testing::cluster("m2")),
        ("resourcebindings", workload),
    ];
    let mut bench = Bench::with(evicting(), objects);
    let pace = Pace::of(&bench.fleet.settings);
    start(&bench.fleet, &pace, true, &mut bench.tasks);
    crate::scheduler::controller::start(&bench.fleet, pace, &mut bench.tasks);
    // The status is not written in the minute of the failover, or the process ends before.
    let (method, path) = (Method::PATCH, "/web-deployment/status");
    bench.api.refuse(method, path, 500, "web-deployment");
    bench.follow_for(60).await;
    bench.api.answer_truly();
    bench.api.put("clusters", testing::cluster("m1"));
    pass(120).await;
    assert_eq!(placed(&bench), ["m2"]);
    let mut scaled = bench.api.binding("web-deployment");
    scaled["spec"]["replicas"] = json!(4);
    scaled["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", scaled);
    pass(60).await;
    assert_eq!(placed(&bench), ["m2"], "it was scaled, and not sent home");
}

#[tokio::test(start_paused = true)]
async fn a_divided_job_goes_at_once_if_another_cluster_can_take_what_it_has_to_do() {
    let job = |completions: u64| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"parallelism": 3, "completions": completions},
        })
    };
    let work = |(cluster, completions): (&str, u64)| {
        let mut work = testing::work(cluster, "Healthy");
        work["spec"] = json!({"workload": {"manifests": [job(completions)]}});
        let said = &mut work["status"]["manifestStatuses"][0];
        said["identifier"]["group"] = json!("batch");
        said["identifier"]["kind"] = json!("Job");
        said["status"] = json!({"active": 1});
        ("works", work)
    };
    let runs_jobs = |mut cluster: Value| {
        cluster["status"]["apiEnablements"] = json!([{
            "groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}],
        }]);
        ("clusters", cluster)
    };
    // A Job that is there takes no more completions: those of `m1` need a cluster that has none.
    for (mode, division, others, leaves) in [
        ("Directly", "Weighted", &["m2"][..], false),
        ("Directly", "Weighted", &["m2", "m3"], true),
        // By itself it would go to the cluster that has a part.
        ("Directly", "Aggregated", &["m2", "m3"], true),
        // The old copy stays until it has done its part.
        ("Gracefully", "Weighted", &["m2"], true),
    ] {
        let mut binding = testing::binding();
        binding["spec"]["resource"]["apiVersion"] = json!("batch/v1");
        binding["spec"]["resource"]["kind"] = json!("Job");
        binding["spec"]["failover"] = json!({"cluster": {"purgeMode": mode}});
        binding["spec"]["replicas"] = json!(3);
        binding["spec"]["clusters"] =
            json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}]);
        binding["spec"]["placement"] = json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": division,
        }});
        let reports = ["m1", "m2"].map(|it| {
            json!({"clusterName": it, "applied": true, "health": "Healthy", "status": {"active": 1}})
        });
        binding["status"]["aggregatedStatus"] = json!(reports);
        let clusters = others.iter().map(|it| runs_jobs(testing::cluster(it)));
        let works = [("m1", 27), ("m2", 13)].map(work);
        let objects = clusters.chain(works).chain([
            runs_jobs(failed()),
            ("jobs", job(40)),
            ("resourcebindings", binding),
        ]);
        let bench = Bench::with(evicting(), objects);
        bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
        let bench = begun(bench).await;
        pass(60).await;
        let bound = bench.binding("web-deployment").unwrap();
        assert_eq!(
            bound.spec.target("m1").is_none(),
            leaves,
            "{mode} {division} {others:?}"
        );
    }
}
