//! What the scheduler moves by itself: paid for, held by pauses, and not to where no order could be
//! carried out.

use muster_shared::names;

use super::*;
use crate::fleet::testing::{claimed, policy, refusal};

/// Returns workload [`edited`] of which this was said before the edit.
fn edited_after(number: usize, reason: &str) -> Value {
    let mut it = edited(number);
    it["status"]["conditions"][0]["reason"] = json!(reason);
    it
}

fn moved(bench: &Bench) -> usize {
    asked_and_moved(bench).1
}

fn reason(bench: &Bench, number: usize) -> (String, String) {
    let binding = bench.binding(&name(number));
    let status = binding.unwrap().status.clone().unwrap_or_default();
    let reported = conditions::get(&status.conditions, "Scheduled").unwrap();
    (reported.reason.clone(), reported.message.clone())
}

/// Has the API refuse each write of a binding.
fn refuse_writes(bench: &Bench, code: u16, reason: &str) {
    for number in 0..MANY {
        let path = format!("/resourcebindings/{}", name(number));
        let body = refusal(code, reason, &name(number));
        bench.api.answer(http::Method::PATCH, &path, code, body);
    }
}

/// Returns a cluster with room that is labelled as one for an environment.
fn labelled(name: &str, env: &str) -> Value {
    let mut it = roomy(name, false);
    it["metadata"]["labels"] = json!({ "env": env });
    it
}

/// Returns the clusters that a workload leaves and that keep their copies for now.
fn left(bench: &Bench, number: usize) -> Vec<String> {
    let binding = bench.binding(&name(number)).unwrap();
    let tasks = binding.spec.graceful_eviction_tasks.iter();
    tasks.map(|it| it.from_cluster.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn edits_that_were_held_back_move_at_the_rate_under_a_new_leader_too() {
    for (reported, is_held) in [
        ("Success", false),
        ("Paused", true),
        ("WaitingForRate", true),
        ("StoppedByThreshold", true),
        ("TargetObstructed", true),
    ] {
        let bench = follow_all(open(), |it| edited_after(it, reported)).await;
        pass(5).await;
        let expected = if is_held {
            1..=AT_THE_RATE
        } else {
            MANY..=MANY
        };
        let moved = moved(&bench);
        assert!(expected.contains(&moved), "{reported}: {moved} moved");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_was_held_back_and_whose_write_is_refused_is_no_fresh_edit() {
    let clusters = [paused(roomy("m1", false)), roomy("m2", false)];
    let bench = follow_all(clusters, edited).await;
    pass(5).await;
    assert_eq!(moved(&bench), 0);
    refuse_writes(&bench, 409, "Conflict");
    bench.api.put("clusters", roomy("m1", false));
    pass(60).await;
    assert_eq!(moved(&bench), 0);
    bench.api.answer_truly();
    for number in 0..MANY {
        let mut it = bench.api.binding(&name(number));
        it["metadata"]["labels"] = json!({ "written-by": "another" });
        bench.api.put("resourcebindings", it);
    }
    pass(6).await;
    let moved = moved(&bench);
    assert!(moved <= AT_THE_RATE, "{moved} moved");
    pass(150).await;
    assert_eq!(asked_and_moved(&bench), (0, MANY));
}

#[tokio::test(start_paused = true)]
async fn a_label_takes_copies_away_at_the_rate_and_not_in_a_pause_and_each_stays_for_now() {
    let both = |number| {
        let affinity = json!({ "labelSelector": { "matchLabels": { "env": "prod" } } });
        let mut it = placed_by(workload(number), json!({ "clusterAffinity": affinity }));
        it["spec"]["clusters"] =
            json!([{ "name": "m1", "replicas": 2 }, { "name": "m2", "replicas": 2 }]);
        it
    };
    let clusters = ["m1", "m2"].map(|it| labelled(it, "prod"));
    let bench = follow_all(clusters, both).await;
    pass(20).await;
    assert_eq!(moved(&bench), 0);
    bench.api.put("clusters", paused(roomy("m1", false)));
    pass(60).await;
    assert_eq!(
        (moved(&bench), reason(&bench, 0).0),
        (0, "Paused".to_owned())
    );
    bench.api.put("clusters", roomy("m1", false));
    pass(5).await;
    let some = moved(&bench);
    assert!((1..=AT_THE_RATE).contains(&some), "{some} moved");
    pass(90).await;
    for number in 0..MANY {
        let binding = bench.binding(&name(number)).unwrap();
        assert_eq!(binding.spec.clusters.len(), 1, "{number}");
        assert_eq!(left(&bench, number), ["m1"], "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_while_its_former_copy_is_being_removed_where_it_would_go() {
    let work = names::work("Deployment", "w0", "shop");
    let namespace = names::execution_namespace("m2");
    let leaving = json!({
        "metadata": {
            "namespace": namespace, "name": work, "uid": "u",
            "deletionTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["f"],
        },
    });
    let bindings = [0, 1].map(|it| ("resourcebindings", edited(it)));
    let objects = bindings.into_iter().chain([("works", leaving)]);
    let bench = beside(open(), objects).await;
    pass(60).await;
    let is_at = |number: usize, cluster: &str| {
        let binding = bench.binding(&name(number)).unwrap();
        binding.spec.target(cluster).is_some()
    };
    assert!(is_at(0, "m1") && is_at(1, "m2"));
    let (reported, why) = reason(&bench, 0);
    assert_eq!(reported, "TargetObstructed");
    assert!(
        why.ends_with("m2 is still removing its former copy."),
        "{why}"
    );
    bench.api.delete("works", &namespace, &work);
    pass(60).await;
    assert!(is_at(0, "m2"));
    assert_eq!(reason(&bench, 0).0, "Success");
}

#[tokio::test(start_paused = true)]
async fn workloads_that_were_asked_for_and_that_a_pause_holds_keep_no_others_waiting() {
    // More than are asked for at a time; the last ones are in another cluster.
    const HELD: usize = 220;
    const OTHERS: usize = 10;
    let on = |number: usize, cluster: &str| {
        let it = workload(number);
        let mut placement = it["spec"]["placement"].clone();
        placement["clusterAffinity"] = json!({});
        let mut it = placed_by(it, placement);
        it["spec"]["clusters"][0]["name"] = json!(cluster);
        ("resourcebindings", it)
    };
    let mut all = rebalancer(None);
    let names = (0..HELD + OTHERS).map(|it| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
            "name": format!("w{it}"),
        })
    });
    all["spec"]["workloads"] = names.collect();
    let mut objects = vec![
        ("clusters", roomy("m1", true)),
        ("clusters", roomy("m2", false)),
        ("clusters", roomy("m3", true)),
        ("workloadrebalancers", all),
    ];
    objects.extend((0..HELD).map(|it| on(it, "m1")));
    objects.extend((HELD..HELD + OTHERS).map(|it| on(it, "m3")));
    let bench = follow(objects).await;
    pass(5).await;
    bench.api.put("clusters", paused(roomy("m1", true)));
    pass(300).await;
    let moved = (HELD..HELD + OTHERS).filter(|it| {
        let held = bench.binding(&name(*it)).unwrap();
        held.spec.target("m2").is_some()
    });
    assert_eq!(moved.count(), OTHERS);
}

#[tokio::test(start_paused = true)]
async fn edits_that_no_cluster_could_take_move_at_the_rate_under_a_new_leader_too() {
    for reported in ["NoClusterFit", "Unschedulable", "SchedulerError"] {
        let bench = follow_all(open(), |it| {
            let mut it = edited_after(it, reported);
            it["status"]["conditions"][0]["status"] = json!("False");
            it
        })
        .await;
        pass(5).await;
        let moved = moved(&bench);
        assert!(
            (1..=AT_THE_RATE).contains(&moved),
            "{reported}: {moved} moved"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_whose_write_the_api_refused_is_still_an_edit() {
    let bench = follow_all(open(), workload).await;
    refuse_writes(&bench, 403, "QuotaExceeded");
    for number in 0..MANY {
        let mut it = bench.api.binding(&name(number));
        it["spec"]["placement"]["clusterAffinity"] = json!({ "clusterNames": ["m2"] });
        it["metadata"]["generation"] = json!(2);
        bench.api.put("resourcebindings", it);
    }
    pass(10).await;
    assert_eq!(moved(&bench), 0);
    bench.api.answer_truly();
    pass(30).await;
    assert_eq!(moved(&bench), MANY);
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_kept_copy_goes_with_its_cluster_waits_for_no_pause_and_no_rate() {
    for (what, is_paused, failed) in [("a pause", true, 0), ("the rate", false, 3)] {
        let mut m1 = roomy("m1", false);
        if is_paused {
            m1 = paused(m1);
        }
        let kept = kept(edited_after(0, "NoClusterFit"));
        let mut objects = vec![
            ("clusters", m1.clone()),
            ("clusters", roomy("m2", false)),
            ("resourcebindings", kept),
        ];
        objects.extend((0..failed).map(|it| {
            let mut failed = roomy(&format!("failed-{it}"), false);
            failed["status"]["conditions"][0]["status"] = json!("False");
            ("clusters", failed)
        }));
        let bench = follow(objects).await;
        let is_placed = || bench.binding(&name(0)).unwrap().spec.target("m2").is_some();
        pass(30).await;
        assert!(!is_placed(), "it waits for {what}");
        m1["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        m1["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
        bench.api.put("clusters", m1);
        pass(30).await;
        assert!(is_placed(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_to_move_returns_to_its_kept_copy_once_that_may_stay() {
    for scheduling in [
        json!({ "replicaSchedulingType": "Duplicated" }),
        json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        }),
    ] {
        let placement = json!({
            "clusterAffinity": { "labelSelector": { "matchLabels": { "env": "prod" } } },
            "replicaScheduling": scheduling,
        });
        let kept = placed_by(kept(edited_after(0, "NoClusterFit")), placement);
        let clusters = [paused(labelled("m1", "test")), labelled("m2", "prod")];
        let bench = beside(clusters, [("resourcebindings", kept)]).await;
        pass(30).await;
        assert_eq!(reason(&bench, 0).0, "Paused", "{scheduling}");
        bench.api.put("clusters", labelled("m2", "test"));
        bench.api.put("clusters", paused(labelled("m1", "prod")));
        pass(30).await;
        let binding = bench.binding(&name(0)).unwrap();
        assert!(binding.spec.target("m1").is_some(), "{scheduling}");
    }
}

/// Returns workload `w<number>` with a binding that was made again a moment ago: it names the
/// clusters that have its copies, and nobody has scheduled it.
fn made_again(number: usize, clusters: &[&str]) -> Value {
    let mut it = workload(number);
    let targets = clusters
        .iter()
        .map(|it| json!({ "name": it, "replicas": 2 }));
    it["spec"]["clusters"] = targets.collect();
    it["metadata"]["annotations"] = Value::Null;
    it["status"] = Value::Null;
    it
}

#[tokio::test(start_paused = true)]
async fn bindings_that_were_made_again_move_at_the_rate_and_keep_their_copies_until_others_run() {
    let bench = follow_all(open(), |number| {
        let mut it = made_again(number, &["m1"]);
        it["spec"]["placement"]["clusterAffinity"] = json!({ "clusterNames": ["m2"] });
        it
    })
    .await;
    pass(5).await;
    let some = moved(&bench);
    assert!((1..=AT_THE_RATE).contains(&some), "{some} moved");
    pass(90).await;
    assert_eq!(moved(&bench), MANY);
    for number in 0..MANY {
        assert_eq!(left(&bench, number), ["m1"], "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_made_again_amid_a_move_keeps_the_copy_that_it_leaves() {
    let made_again = ("resourcebindings", made_again(0, &["m1", "m2"]));
    let bench = beside(to_m2(), [made_again]).await;
    pass(30).await;
    let mut all = left(&bench, 0);
    assert_eq!(all.len(), 1);
    let targets = &bench.binding(&name(0)).unwrap().spec.clusters;
    all.extend(targets.iter().map(|it| it.name.clone()));
    all.sort();
    assert_eq!(all, ["m1", "m2"]);
}

/// Returns a workload that was not counted before, so that all its replicas run in `m1`, with this
/// status, and that is to be divided between `m1` and `m2`.
fn undivided(preference: &str, status: &Value) -> Value {
    let placement = json!({
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": preference,
        },
    });
    let mut it = placed_by(workload(0), placement);
    it["spec"]["clusters"] = json!([{"name": "m1", "replicas": 0}]);
    it["status"]["aggregatedStatus"] =
        json!([{"clusterName": "m1", "health": "Healthy", "status": status}]);
    it
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_divided_at_last_take_no_copy_away_from_where_the_workload_runs() {
    // `m1` takes nothing new.
    for (ready, kept) in [(2, 1), (0, 0)] {
        let it = undivided("Aggregated", &json!({"readyReplicas": ready}));
        let bench = beside(to_m2(), [("resourcebindings", it)]).await;
        pass(120).await;
        let spec = &bench.binding(&name(0)).unwrap().spec;
        assert!(spec.target("m2").is_some(), "{:?}", spec.clusters);
        let tasks = &spec.graceful_eviction_tasks;
        assert_eq!(tasks.len(), kept, "{ready} replicas run: {tasks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_replicas_are_divided_at_last_keeps_the_pods_that_run() {
    // `m1` takes nothing new; each kind counts its pods in its own way.
    for (api_version, kind, status) in [
        ("apps/v1", "Deployment", json!({"readyReplicas": 2})),
        ("batch/v1", "Job", json!({"active": 2, "ready": 2})),
    ] {
        let mut it = undivided("Aggregated", &status);
        it["spec"]["resource"]["apiVersion"] = json!(api_version);
        it["spec"]["resource"]["kind"] = json!(kind);
        let jobs = json!([{
            "groupVersion": api_version,
            "resources": [{"name": "x", "kind": kind}],
        }]);
        let roomy = |name, is_closed| {
            let mut it = roomy(name, is_closed);
            it["status"]["apiEnablements"] = jobs.clone();
            it
        };
        let mut template = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"namespace": "shop", "name": "w0"},
            "spec": {"template": {"spec": {"containers": []}}},
        });
        let field = if kind == "Job" {
            "parallelism"
        } else {
            "replicas"
        };
        template["spec"][field] = json!(2);
        let plural = if kind == "Job" { "jobs" } else { "deployments" };
        let bench = Bench::with(
            Settings::default(),
            [
                ("clusters", roomy("m1", true)),
                ("clusters", roomy("m2", false)),
                ("resourcebindings", it),
                (plural, template),
            ],
        );
        bench.api.serve_deployments();
        bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
        let bench = started(bench).await;
        pass(120).await;
        let spec = &bench.binding(&name(0)).unwrap().spec;
        assert!(spec.target("m2").is_some(), "{kind}: {:?}", spec.clusters);
        let tasks = spec.graceful_eviction_tasks.len();
        assert_eq!(tasks, 1, "{kind}: pods run in m1, and nothing keeps them");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_run_undivided_are_not_divided_over_others_while_movement_is_paused() {
    for (ready, is_paused, moves) in [(4, false, true), (0, true, true), (4, true, false)] {
        let mut it = undivided("Weighted", &json!({"readyReplicas": ready}));
        it["spec"]["replicas"] = json!(4);
        let m1 = roomy("m1", false);
        let m1 = if is_paused { paused(m1) } else { m1 };
        let clusters = [m1, roomy("m2", false)];
        let bench = beside(clusters, [("resourcebindings", it)]).await;
        pass(120).await;
        let spec = &bench.binding(&name(0)).unwrap().spec;
        assert_eq!(
            spec.target("m2").is_some(),
            moves,
            "{ready} run in m1, paused: {is_paused}: {:?}",
            spec.clusters
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_request_is_no_answer_to_it() {
    let mut objects = fleet_of([roomy("m1", true), roomy("m2", false)], |it| {
        let mut it = workload(it);
        let condition = &mut it["status"]["conditions"][0];
        condition["status"] = json!("False");
        condition["reason"] = json!("Unschedulable");
        condition["observedGeneration"] = json!(1);
        it
    });
    objects.push(("workloadrebalancers", rebalancer(None)));
    let mut bench = Bench::with(Settings::default(), objects);
    let fleet = Arc::clone(&bench.fleet);
    let pace = crate::fleet::budget::budget(&fleet, &mut bench.tasks);
    crate::movement::rebalance::start(&fleet, pace, &mut bench.tasks);
    bench.follow_for(20).await;
    assert_eq!(asked_and_moved(&bench), (MANY, 0));
    assert_eq!(results(&bench), 0, "no scheduler has looked at any of them");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_a_list_lacks_is_not_taken_for_one_that_there_is_not() {
    let mut kept = workload(0);
    kept["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    let clusters = [roomy("m1", false), roomy("m2", true)];
    let bench = beside(clusters, [("resourcebindings", kept)]).await;
    pass(5).await;
    bench.api.hide("resourcebindings", "shop", &name(0));
    pass(5).await;
    bench.api.put("workloadrebalancers", of_one());
    pass(10).await;
    let status = stored(&bench).unwrap().status.unwrap_or_default();
    let results = status.observed_workloads.iter().map(|it| &it.result);
    let failed = results.filter(|it| **it == Some(RebalanceResult::Failed));
    assert_eq!(failed.count(), 0, "{:?}", status.observed_workloads);
}

#[tokio::test(start_paused = true)]
async fn a_move_keeps_the_copy_that_its_policy_keeps_although_the_binding_does_not_say_so_yet() {
    for (mode, suppressed) in [("Never", json!(true)), ("Gracefully", Value::Null)] {
        let mut keeps = policy();
        keeps["spec"]["failover"] = json!({"cluster": {"purgeMode": mode}});
        let mut asked = claimed(workload(0));
        asked["spec"]["rescheduleTriggeredAt"] = json!("2025-01-01T00:00:00Z");
        let policy = ("propagationpolicies", keeps);
        let bench = beside(to_m2(), [policy, ("resourcebindings", asked)]).await;
        pass(20).await;
        let spec = bench.api.binding(&name(0))["spec"].clone();
        assert_eq!(spec["clusters"][0]["name"], "m2");
        assert!(spec["failover"].is_null(), "who binds writes it");
        let task = &spec["gracefulEvictionTasks"][0];
        let kept = (&task["purgeMode"], &task["suppressDeletion"]);
        assert_eq!(kept, (&json!(mode), &suppressed));
    }
}
