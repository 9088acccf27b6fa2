//! Which bindings are reconciled when something around them changes, and what is reported of their
//! tasks.

use muster_shared::names::condition::WORKS_UP_TO_DATE;
use serde_json::Value;

use super::*;
use crate::fleet::binding::BindingKey;
use crate::fleet::lookups::Overridden;
use crate::fleet::testing::{Bench, binding, cluster, deployment, only_condition, pass, work};

#[tokio::test(start_paused = true)]
async fn bindings_with_tasks_are_reconciled_when_something_around_them_changes() {
    let task = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    let binding = |name: &str, namespace: Option<&str>, tasks: Value| {
        let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
        json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"resource": resource, "gracefulEvictionTasks": tasks},
        })
    };
    let bench = Bench::followed([
        (
            "resourcebindings",
            binding("leaves", Some("shop"), task.clone()),
        ),
        (
            "resourcebindings",
            binding("stays", Some("shop"), json!([])),
        ),
        ("clusterresourcebindings", binding("leaves", None, task)),
        ("clusterresourcebindings", binding("stays", None, json!([]))),
    ])
    .await;
    for namespace in [None, Some("shop".to_owned())] {
        for (name, expected) in [("leaves", true), ("stays", false), ("unknown", false)] {
            let (namespace, name) = (namespace.clone(), name.to_owned());
            let key = BindingKey { namespace, name };
            assert_eq!(waits(&bench.fleet, &key), expected, "{key}");
        }
    }
    assert_eq!(with_tasks(&bench.fleet).len(), 2, "bindings of both kinds");
}

#[tokio::test(start_paused = true)]
async fn how_an_eviction_ended_is_reported_of_the_binding_and_of_its_template() {
    use crate::movement::graceful_eviction::assess::Done;
    let resource =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "c"});
    let binding = json!({
        "metadata": {"namespace": "shop", "name": "c-configmap"}, "spec": {"resource": resource},
    });
    let bench = Bench::followed([("resourcebindings", binding)]).await;
    let binding = bench.binding("c-configmap");
    let binding = binding.unwrap();
    let assessment = Assessment {
        done: vec![
            ("m1".to_owned(), Done::Expired),
            ("m2".to_owned(), Done::Recovered),
        ],
        ..Assessment::default()
    };
    let key = BindingKey::of(binding.as_ref());
    report(&bench.fleet, binding.as_ref(), &key, &assessment);
    let mut reported = bench.api.reported().await;
    reported.sort();
    let reasons = [
        "EvictWorkloadFromClusterAbandoned",
        "EvictWorkloadFromClusterSucceed",
    ];
    let expected = ["c", "c-configmap"]
        .into_iter()
        .flat_map(|about| reasons.map(|reason| (about.to_owned(), reason.to_owned())));
    assert_eq!(reported, expected.collect::<Vec<_>>());
}

/// Starts the controller over an API that has these objects, and lets time pass.
async fn started<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>, seconds: u64) -> Bench {
    begun(Bench::new(objects), seconds).await
}

/// Starts the controller, and lets time pass.
async fn begun(mut bench: Bench, seconds: u64) -> Bench {
    let pace = Pace::of(&bench.fleet.settings);
    let start = |fleet: &Arc<Fleet>, tasks: &mut Tasks| start(fleet, &pace, tasks);
    bench.run(start, seconds).await;
    bench
}

/// Returns clusters `m1` and `m2`, a binding, and the Work of its copy in `m2`.
fn beside(binding: Value, work: Value) -> [(&'static str, Value); 4] {
    [
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("resourcebindings", binding),
        ("works", work),
    ]
}

/// Returns a binding whose copy in `m1` waits for the one in `m2`.
fn leaving(scheduler: &str, clusters: &Value) -> Value {
    let mut binding = binding();
    binding["metadata"]["generation"] = json!(1);
    binding["spec"]["schedulerName"] = json!(scheduler);
    binding["spec"]["clusters"] = clusters.clone();
    binding["spec"]["gracefulEvictionTasks"] = json!([{
        "fromCluster": "m1", "replicas": 2, "reason": "r", "producer": "p",
        "creationTimestamp": "2024-01-01T00:00:00Z",
    }]);
    binding["status"] = json!({
        "schedulerObservedGeneration": 1,
        "aggregatedStatus": [{"clusterName": "m2", "health": "Healthy"}],
    });
    binding
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_goes_as_soon_as_the_work_of_the_new_one_says_that_it_is_healthy() {
    let targets = json!([{"name": "m2", "replicas": 2}]);
    let ill = work("m2", "Unhealthy");
    let bench = started(beside(leaving("", &targets), ill), 30).await;
    assert_eq!(bench.api.writes(), []);
    bench.api.put("works", work("m2", "Healthy"));
    pass(1).await;
    let writes = bench.api.writes();
    let [(_, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert!(path.ends_with("/resourcebindings/web-deployment"), "{path}");
    assert_eq!(body["spec"], json!({"gracefulEvictionTasks": null}));
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_stays_for_a_pause_that_the_watch_has_not_shown() {
    let targets = json!([{"name": "m2", "replicas": 2}]);
    let ill = work("m2", "Unhealthy");
    let bench = started(beside(leaving("", &targets), ill), 10).await;
    let mut paused = cluster("m1");
    paused["metadata"]["annotations"] = json!({"failover.muster.io/paused": "x"});
    bench.api.put_unreported("clusters", paused.clone());
    bench.api.put("works", work("m2", "Healthy"));
    pass(30).await;
    assert!(!has_ended(&bench));
    paused["metadata"]["annotations"] = json!({});
    bench.api.put("clusters", paused);
    pass(1).await;
    assert!(has_ended(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_dead_target_that_a_person_removes_takes_the_place_of_no_living_copy() {
    for is_lost in [false, true] {
        let targets = json!([{"name": "m2", "replicas": 2}, {"name": "m3", "replicas": 2}]);
        let mut target = cluster("m2");
        if is_lost {
            target["status"]["conditions"][0]["status"] = json!("Unknown");
            target["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            target["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
        }
        let mut binding = leaving("", &targets);
        binding["spec"]["replicas"] = json!(4);
        let reports = ["m2", "m3"].map(|it| json!({"clusterName": it, "health": "Healthy"}));
        binding["status"]["aggregatedStatus"] = json!(reports);
        let objects = [
            ("clusters", cluster("m1")),
            ("clusters", target),
            ("clusters", cluster("m3")),
            ("resourcebindings", binding),
            ("works", work("m2", "Healthy")),
            ("works", work("m3", "Healthy")),
        ];
        let bench = started(objects, 60).await;
        let stays = bench.api.writes().is_empty();
        assert_eq!(stays, is_lost, "what m2 reported last does not count");
    }
}

#[tokio::test(start_paused = true)]
async fn time_ends_no_task_while_a_target_that_lives_is_still_to_get_its_copy() {
    let applied = work("m3", "Unhealthy");
    let mut updated = applied.clone();
    updated["status"]["conditions"] = json!([]);
    let mut sent = updated.clone();
    sent["status"]["manifestStatuses"] = json!([]);
    let mut refused = sent.clone();
    refused["status"]["conditions"] = only_condition("Applied", "False");
    let lives = cluster("m3");
    let (mut silent, mut deaf) = (lives.clone(), lives.clone());
    silent["status"]["conditions"][0]["status"] = json!("Unknown");
    let reads_none = only_condition(WORKS_UP_TO_DATE, "False")[0].take();
    let conditions = deaf["status"]["conditions"].as_array_mut();
    conditions.unwrap().push(reads_none);
    let suspended = json!({"dispatchingOnClusters": {"clusterNames": ["m3"]}});
    // `m2` had a copy before, and `m3` takes the place of `m1`.
    let none = Value::Null;
    for (what, share, target, made, suspension, goes) in [
        ("it is not made", 2, &lives, None, &none, false),
        ("it is not answered", 2, &lives, Some(&sent), &none, false),
        ("it is applied", 2, &lives, Some(&applied), &none, true),
        (
            "an update is not answered",
            2,
            &lives,
            Some(&updated),
            &none,
            true,
        ),
        ("it is refused", 2, &lives, Some(&refused), &none, true),
        ("nothing is to be sent", 2, &lives, None, &suspended, true),
        ("it has no share", 0, &lives, None, &none, true),
        ("its agent reads no Works", 2, &deaf, None, &none, true),
        ("it is silent", 2, &silent, None, &none, true),
    ] {
        let targets = json!([{"name": "m2", "replicas": 2}, {"name": "m3", "replicas": share}]);
        let mut binding = leaving("", &targets);
        binding["spec"]["gracefulEvictionTasks"][0]["gracePeriodSeconds"] = json!(60);
        binding["spec"]["suspension"] = suspension.clone();
        let objects = beside(binding, work("m2", "Healthy")).into_iter();
        let objects = objects.chain([("clusters", target.clone())]);
        let objects = objects.chain(made.map(|it| ("works", it.clone())));
        let bench = started(objects, 10).await;
        assert_eq!(has_ended(&bench), goes, "{what}");
        // It is not waited for any more once its agent says that it cannot read its Works.
        bench.api.put("clusters", deaf.clone());
        pass(1).await;
        assert!(has_ended(&bench), "{what}, and its agent reads none");
    }
}

#[tokio::test(start_paused = true)]
async fn time_ends_no_task_before_another_scheduler_has_placed_what_was_left() {
    for (scheduler, observed, goes) in [("", 0, true), ("other", 0, false), ("other", 1, true)] {
        let mut binding = leaving(scheduler, &json!([{"name": "m2", "replicas": 2}]));
        binding["spec"]["gracefulEvictionTasks"][0]["gracePeriodSeconds"] = json!(60);
        binding["status"]["schedulerObservedGeneration"] = json!(observed);
        // It had its copy before.
        let bench = started(beside(binding, work("m2", "Unhealthy")), 10).await;
        assert_eq!(has_ended(&bench), goes, "{scheduler} {observed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_health_rule_that_a_user_adds_meanwhile_does_not_vouch_for_what_was_said_without_it() {
    let kind = |object: &mut Value| {
        object["apiVersion"] = json!("example.com/v1");
        object["kind"] = json!("Training");
    };
    let mut binding = leaving("", &json!([{"name": "m2"}]));
    kind(&mut binding["spec"]["resource"]);
    let task = &mut binding["spec"]["gracefulEvictionTasks"][0];
    task["creationTimestamp"] = json!(muster_shared::clock::calendar());
    let said = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    binding["status"]["aggregatedStatus"] = json!([
        {"clusterName": "m1", "health": "Healthy", "applied": true, "status": said},
        {"clusterName": "m2", "health": "Healthy", "applied": true},
    ]);
    // The agent had no rule: whatever there is was healthy for it.
    let mut work = work("m2", "Healthy");
    let said = &mut work["status"]["manifestStatuses"][0];
    said["identifier"]["group"] = json!("example.com");
    said["identifier"]["version"] = json!("v1");
    said["identifier"]["kind"] = json!("Training");
    said["status"] = json!(null);
    let script = "function InterpretHealth(observedObj) return true end";
    let mut rule = json!({"metadata": {"name": "training"}, "spec": {
        "target": {}, "customizations": {"healthInterpretation": {"luaScript": script}},
    }});
    kind(&mut rule["spec"]["target"]);
    let rule = ("resourceinterpretercustomizations", rule);
    let bench = started(beside(binding, work).into_iter().chain([rule]), 200).await;
    let (api_version, hook) = ("example.com/v1", Operation::InterpretHealth);
    let has_rule = bench.fleet.interpreters.has(api_version, "Training", hook);
    assert!(has_rule, "the rule of the user is known");
    assert_eq!(bench.api.writes(), []);
    pass(120).await;
    assert_eq!(bench.api.writes().len(), 1, "it is believed after a while");
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_another_scheduler_that_runs_nowhere_is_put_back_in_its_cluster_again() {
    for (scheduler, reason, expected) in [
        ("other", "r", Some(json!([{"name": "m1", "replicas": 2}]))),
        // It has just left, and is about to be placed by that scheduler.
        ("other", "ApplicationFailure", None),
        // Our own scheduler takes care of its workloads.
        ("", "r", None),
        ("default-scheduler", "r", None),
    ] {
        let mut binding = leaving(scheduler, &json!([]));
        let task = &mut binding["spec"]["gracefulEvictionTasks"][0];
        task["reason"] = json!(reason);
        task["creationTimestamp"] = json!(muster_shared::clock::calendar());
        let objects = [("clusters", cluster("m1")), ("resourcebindings", binding)];
        let bench = started(objects, 10).await;
        let writes = bench.api.writes();
        let clusters: Vec<_> = writes.iter().map(|it| &it.2["spec"]["clusters"]).collect();
        assert_eq!(clusters, Vec::from_iter(&expected), "{scheduler} {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_goes_when_a_cluster_comes_into_sight_that_a_short_list_had_left_out() {
    let targets = json!([{"name": "m2", "replicas": 2}]);
    let objects = [
        ("clusters", cluster("m1")),
        ("resourcebindings", leaving("", &targets)),
        ("works", work("m2", "Healthy")),
    ];
    let bench = started(objects, 30).await;
    assert_eq!(bench.api.writes(), []);
    bench.api.put("clusters", cluster("m2"));
    pass(1).await;
    assert_eq!(bench.api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whether_members_scale_is_asked_again_where_a_list_had_left_the_template_out() {
    // One replica more than are ready.
    let binding = leaving("", &json!([{"name": "m2", "replicas": 3}]));
    let bench = Bench::new(beside(binding, work("m2", "Healthy")));
    bench.api.serve_deployments();
    let bench = begun(bench, 30).await;
    assert_eq!(bench.api.writes(), []);
    let labels = json!({ muster_shared::names::label::RETAIN_REPLICAS: "true" });
    let template = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web", "labels": labels},
    });
    bench.api.put("deployments", template);
    pass(10).await;
    assert_eq!(bench.api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_goes_where_the_new_one_runs_all_that_an_override_leaves_of_its_share() {
    let overridden = |replicas: i64, members_scale: bool| Overridden {
        asked: Some(4),
        replicas: Some(replicas),
        members_scale,
    };
    let two = json!({"replicas": 2, "readyReplicas": 2});
    // A Deployment without replicas is healthy, and does not report any.
    let none = json!({"observedGeneration": 1});
    for (status, made, goes) in [
        (&two, None, false),
        (&two, Some(overridden(4, false)), false),
        (&two, Some(overridden(3, false)), false),
        (&two, Some(overridden(2, false)), true),
        (&two, Some(overridden(4, true)), true),
        (&none, Some(overridden(0, false)), false),
    ] {
        let mut binding = leaving("", &json!([{"name": "m2", "replicas": 4}]));
        binding["spec"]["replicas"] = json!(4);
        let mut work = work("m2", "Healthy");
        work["status"]["manifestStatuses"][0]["status"] = status.clone();
        let template = ("deployments", deployment(4));
        let bench = Bench::new(beside(binding, work).into_iter().chain([template]));
        bench.api.serve_deployments();
        bench.fleet.override_lookup.answer(move |_, _| Ok(made));
        let bench = begun(bench, 30).await;
        let writes = bench.api.writes();
        let left = writes
            .iter()
            .any(|it| it.2["spec"]["gracefulEvictionTasks"].is_null());
        assert_eq!(left, goes, "{made:?} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_copy_of_a_divided_job_stays_while_nobody_else_takes_its_completions() {
    let running = json!({"active": 3, "ready": 3});
    let of = |name, asked| (name, Some(asked));
    // Completions that the Work of each target asks for, if it has one, and whether the copy in
    // `m1`, which has to do 27 of 40, may go.
    for (targets, grace, goes) in [
        (&[of("m2", 13)][..], None, false),
        (&[of("m2", 13), of("m3", 0)], None, false),
        (&[of("m2", 13), of("m3", 27)], None, true),
        // Time ends no task while nobody takes over what the old copy does.
        (&[of("m2", 13)], Some(60), false),
        (&[of("m2", 13), ("m3", None)], Some(60), false),
        (&[of("m2", 13), of("m3", 27)], Some(60), true),
    ] {
        let shares = targets.iter();
        let shares = shares.map(|(name, _)| json!({"name": name, "replicas": 1}));
        let mut binding = leaving_job(targets.len(), &shares.collect());
        binding["spec"]["gracefulEvictionTasks"][0]["gracePeriodSeconds"] = json!(grace);
        let reports = targets.iter();
        let reports = reports.map(|(name, _)| json!({"clusterName": name, "health": "Healthy"}));
        binding["status"]["aggregatedStatus"] = reports.collect();
        let clusters = ["m1", "m2", "m3"].map(|it| ("clusters", cluster(it)));
        let works = targets.iter();
        let works = works.filter_map(|(name, asked)| Some(job_work(name, (*asked)?, &running)));
        let bench = with_jobs(clusters.into_iter().chain(works).chain([
            job_work("m1", 27, &running),
            ("jobs", job(None)),
            ("resourcebindings", binding),
        ]));
        assert_eq!(has_ended(&bench.await), goes, "{targets:?} {grace:?}");
    }
}

/// Returns the Work of a part of a Job, of which its cluster reports this status.
fn job_work(cluster: &str, completions: u64, said: &Value) -> (&'static str, Value) {
    let mut work = work(cluster, "Healthy");
    work["spec"] = json!({"workload": {"manifests": [{
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"parallelism": 2, "completions": completions},
    }]}});
    let reported = &mut work["status"]["manifestStatuses"][0];
    reported["identifier"]["group"] = json!("batch");
    reported["identifier"]["kind"] = json!("Job");
    reported["status"] = said.clone();
    ("works", work)
}

/// Returns the binding of a divided Job that leaves `m1` for these clusters.
fn leaving_job(replicas: usize, targets: &Value) -> Value {
    let mut binding = leaving("", targets);
    binding["spec"]["replicas"] = json!(replicas);
    binding["spec"]["resource"]["apiVersion"] = json!("batch/v1");
    binding["spec"]["resource"]["kind"] = json!("Job");
    binding["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
    }});
    binding
}

/// Returns the binding of a Job that has to do 40 and left `m1`, which had to do 27 of them, when
/// nobody but `m2` was there, which has its own 13; and the Works of both. `m1` reports this
/// status.
fn job_without_a_refuge(said: &Value) -> [(&'static str, Value); 5] {
    let mut binding = leaving_job(3, &json!([{"name": "m2", "replicas": 3}]));
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    binding["status"]["aggregatedStatus"] = json!([
        {"clusterName": "m1", "health": "Healthy", "status": said},
        {"clusterName": "m2", "health": "Healthy", "status": done},
    ]);
    [
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        job_work("m1", 27, said),
        job_work("m2", 13, &done),
        ("resourcebindings", binding),
    ]
}

/// Returns the Job of that binding, whose status has this condition.
fn job(condition: Option<&str>) -> Value {
    let conditions = condition.map(|of| json!({"type": of, "status": "True"}));
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"parallelism": 3, "completions": 40, "template": {"spec": {"containers": []}}},
        "status": {"conditions": Vec::from_iter(conditions)},
    })
}

/// Returns whether the task of that binding has ended.
fn has_ended(bench: &Bench) -> bool {
    let bound = bench.binding("web-deployment").unwrap();
    bound.spec.graceful_eviction_tasks.is_empty()
}

/// Starts the controller with these objects, over an API that serves Jobs.
async fn with_jobs(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Bench {
    let bench = Bench::new(objects);
    bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
    begun(bench, 60).await
}

#[tokio::test(start_paused = true)]
async fn what_an_old_copy_has_done_of_a_job_is_not_thrown_away_before_the_job_is_complete() {
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let objects = job_without_a_refuge(&done).into_iter();
    let bench = with_jobs(objects.chain([("jobs", job(None))])).await;
    // Nothing else says that 27 of 40 are done.
    assert!(!has_ended(&bench), "the template does not say so yet");
    bench.api.put("jobs", job(Some("Complete")));
    pass(60).await;
    assert!(has_ended(&bench));
}

#[tokio::test(start_paused = true)]
async fn the_old_copy_of_a_divided_job_stays_while_a_list_lacks_its_template() {
    let bench = with_jobs(job_without_a_refuge(&json!({"active": 2}))).await;
    assert!(!has_ended(&bench), "it was left out, and not deleted");
    bench.api.put("jobs", job(None));
    pass(60).await;
    assert!(!has_ended(&bench), "nobody takes its 27 over");
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_job_that_has_failed_ends_although_nobody_takes_its_completions_over() {
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    // A drain would wait for ever; where the target has failed as well, nothing runs any more.
    for has_failed_there in [false, true] {
        let mut objects = job_without_a_refuge(&failed);
        if has_failed_there {
            let [_, _, _, (_, work), (_, binding)] = &mut objects;
            let made = &mut work["status"]["manifestStatuses"][0];
            let said = &mut binding["status"]["aggregatedStatus"][1];
            for report in [made, said] {
                report["status"] = failed.clone();
                report["health"] = json!("Unhealthy");
            }
        }
        let objects = objects.into_iter().chain([("jobs", job(Some("Failed")))]);
        let bench = with_jobs(objects).await;
        assert!(
            has_ended(&bench),
            "in the target as well: {has_failed_there}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_failed_job_says_where_it_failed_until_its_target_has_run_it() {
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    let [m1, m2, old, _, (kind, mut binding)] = job_without_a_refuge(&failed);
    // The Job has left m1 for m2 a moment ago, where no Work of it is made yet.
    binding["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Duplicated",
    }});
    let task = &mut binding["spec"]["gracefulEvictionTasks"][0];
    task["purgeMode"] = json!("Directly");
    task["reason"] = json!("ApplicationFailure");
    task["preservedLabelState"] = json!({"job": "7f"});
    task["clustersBeforeFailover"] = json!(["m1"]);
    let reports = binding["status"]["aggregatedStatus"].as_array_mut();
    reports.unwrap().truncate(1);
    // The template of a Job says so as soon as one cluster does, and for ever.
    let jobs = ("jobs", job(Some("Failed")));
    let bench = with_jobs([m1, m2, old, (kind, binding), jobs]).await;
    assert!(
        !has_ended(&bench),
        "nothing else has the state for the new copy"
    );
}
