//! Tests of which copies take the place of one that nobody wants any more, and which do not.

use std::sync::Arc;

use http::Method;
use muster_shared::names;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::leaving_tests::{bound, work_of, written};
use super::replacing_tests::{apply, to};
use super::start;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Bench, cluster, deployment, only_condition, pass, paused};

/// Starts with clusters m1 and `target`, a Deployment of two, and the Works of its binding.
fn of_two(target: Value, binding: Value, works: impl IntoIterator<Item = Value>) -> Bench {
    bound([cluster("m1"), target], deployment(2), binding, works)
}

/// Returns whether the copy in m1 is removed in so many seconds from such a start.
async fn removes(
    target: Value,
    binding: Value,
    works: impl IntoIterator<Item = Value>,
    seconds: u64,
) -> bool {
    let mut bench = of_two(target, binding, works);
    bench.follow_for(seconds).await;
    !written(&bench, "web-deployment").is_empty()
}

/// Returns a binding to m2 that was evicted from m1 directly.
fn evicted_directly() -> Value {
    let mut binding = to(&["m2"], 1);
    binding["spec"]["gracefulEvictionTasks"] = json!([{
        "fromCluster": "m1", "purgeMode": "Directly", "reason": "TaintUntolerated",
        "producer": "TaintManager",
    }]);
    binding
}

/// Reason of the event that reports the end of an eviction.
const EVICTED: &str = "EvictWorkloadFromClusterSucceed";

/// Follows the API for an hour in which graceful evictions are ended as well.
async fn evict_gracefully(bench: &mut Bench) {
    let pace = Pace::of(&bench.fleet.settings);
    let fleet = Arc::clone(&bench.fleet);
    crate::movement::graceful_eviction::start(&fleet, &pace, &mut bench.tasks);
    bench.follow().await;
    pace.begin(Instant::now());
    pass(60 * 60).await;
}

/// Returns a binding to m2 and m3 that has been evicted from m1, and that is healthy in m2.
fn evicted(task: &Value) -> Value {
    let mut binding = to(&["m2", "m3"], 1);
    binding["spec"]["replicas"] = json!(4);
    let mut tasks = json!([{
        "fromCluster": "m1", "purgeMode": "Gracefully", "reason": "TaintUntolerated",
        "producer": "TaintManager", "creationTimestamp": "2024-01-01T00:00:00Z",
    }]);
    muster_shared::merge::apply(&mut tasks[0], task);
    binding["spec"]["gracefulEvictionTasks"] = tasks;
    let report = json!({
        "clusterName": "m2", "applied": true, "health": "Healthy",
        "status": {"replicas": 2, "readyReplicas": 2},
    });
    binding["status"] = json!({"schedulerObservedGeneration": 1, "aggregatedStatus": [report]});
    binding
}

/// Returns a cluster with a status of its condition `Ready`.
fn ready(name: &str, status: &str) -> Value {
    let mut cluster = cluster(name);
    cluster["status"]["conditions"][0]["status"] = json!(status);
    cluster
}

/// Has the agent report of a Work that its member refuses the object.
fn refuse(work: &mut Value) {
    work["status"]["conditions"][0]["status"] = json!("False");
    work["status"]["manifestStatuses"] = Value::Null;
}

/// Returns the Work that gives a cluster its two replicas.
fn given(binding: &Value, cluster: &str) -> Value {
    let mut work = work_of(binding, cluster);
    work["metadata"]["name"] = json!(names::work("Deployment", "web", "shop"));
    work["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 2});
    work
}

#[tokio::test(start_paused = true)]
async fn the_last_copy_stays_where_the_target_that_it_waited_for_goes_before_it_has_its_own() {
    for leaves in [false, true] {
        // An edit moved the workload to m2, where the API refuses to make its Work.
        let mut binding = to(&["m2"], 1);
        binding["spec"]["placement"] =
            json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}});
        let applied = binding["spec"]["placement"].to_string();
        binding["metadata"]["annotations"] =
            json!({"policy.karmada.io/applied-placement": applied});
        let old = work_of(&binding, "m1");
        let mut target = cluster("m2");
        target["metadata"]["generation"] = json!(1);
        target["metadata"]["labels"] = json!({"env": "prod"});
        let mut bench = of_two(target.clone(), binding, [old]);
        let path = "/karmada-es-m2/works";
        bench.api.refuse(Method::POST, path, 403, "web");
        let pace = crate::fleet::budget::budget(&bench.fleet, &mut bench.tasks);
        let fleet = Arc::clone(&bench.fleet);
        crate::scheduler::controller::start(&fleet, pace.clone(), &mut bench.tasks);
        bench.follow().await;
        pace.begin(Instant::now());
        pass(60).await;
        assert_eq!(written(&bench, "web-deployment"), [], "it waits for m2");
        target["metadata"]["generation"] = json!(2);
        if leaves {
            // m2 is taken out of the fleet.
            target["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            target["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
        } else {
            // The label goes by which the policy selects m2.
            target["metadata"]["labels"] = Value::Null;
        }
        bench.api.put("clusters", target);
        pass(10 * 60).await;
        let bound = bench.binding("web-deployment").unwrap();
        let (clusters, tasks) = (&bound.spec.clusters, &bound.spec.graceful_eviction_tasks);
        assert_eq!(
            written(&bench, "web-deployment"),
            [],
            "leaves: {leaves}: it is the last living copy; targets {clusters:?}, tasks {tasks:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_living_copy_does_not_go_first_for_a_target_whose_agent_applies_nothing() {
    for (follows, stays) in [("True", false), ("False", true)] {
        // The workload was placed in m2, which fell silent before its Work was made. It is back,
        // and its agent cannot follow the fleet's API: of a promoted store, or without rights on
        // Works.
        let mut target = cluster("m2");
        let conditions = target["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(only_condition("WorksUpToDate", follows)[0].clone());
        let binding = evicted_directly();
        let old = work_of(&binding, "m1");
        assert_eq!(
            removes(target, binding, [old], 60).await,
            !stays,
            "WorksUpToDate={follows}: nothing is applied in m2, and the copy in m1 is the last one"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_living_copy_does_not_go_first_for_one_without_pods_whose_dispatching_is_suspended() {
    for is_suspended in [false, true] {
        // The workload ran in both clusters. In m2 a person suspended dispatching and scaled it to
        // zero by hand, or it was scaled up since. Now the policy names m2 alone.
        let mut binding = to(&["m2"], 1);
        binding["spec"]["failover"] = json!({"cluster": {"purgeMode": "Directly"}});
        let old = work_of(&binding, "m1");
        let mut new = given(&binding, "m2");
        new["status"]["manifestStatuses"][0]["status"] = json!({"replicas": 0});
        if is_suspended {
            binding["spec"]["suspension"] =
                json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}});
            new["spec"]["suspendDispatching"] = json!(true);
        }
        assert_eq!(
            removes(cluster("m2"), binding, [old, new], 10 * 60).await,
            !is_suspended,
            "suspended: {is_suspended}; no pod starts in m2 by order of the policy, and m1 has all"
        );
    }
}

/// Edits a policy for m1 and m2 to name m2 alone, and returns how many Works of m1 are deleted in
/// so many seconds. `report` changes the Work of a cluster as its agent does before the edit.
async fn withdrawn_from_m1(report: impl Fn(&str, &mut Value), seconds: u64) -> usize {
    let mut binding = to(&["m1", "m2"], 1);
    let name = names::work("Deployment", "web", "shop");
    let works = ["m1", "m2"].map(|cluster| {
        let mut work = work_of(&binding, cluster);
        work["metadata"]["name"] = json!(name);
        report(cluster, &mut work);
        work
    });
    binding["metadata"]["generation"] = json!(1);
    let mut bench = of_two(cluster("m2"), binding, works);
    bench.follow_for(10).await;
    bench.api.forget();
    bench.api.put("resourcebindings", to(&["m2"], 2));
    pass(seconds).await;
    let deleted = bench.api.writes().into_iter();
    let deleted = deleted.filter(|(method, path, _)| {
        *method == Method::DELETE && path.contains("/karmada-es-m1/works/")
    });
    deleted.count()
}

#[tokio::test(start_paused = true)]
async fn a_target_whose_agent_could_not_apply_the_object_takes_the_place_of_no_living_copy() {
    for is_refused in [false, true] {
        let report = |cluster: &str, work: &mut Value| {
            if cluster == "m2" && is_refused {
                // A quota, an admission webhook or a missing definition of the member refuses.
                refuse(work);
            }
        };
        assert_eq!(
            withdrawn_from_m1(report, 10 * 60).await,
            usize::from(!is_refused),
            "refused: {is_refused}; the agent of m2 has said that nothing runs there"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_does_not_ask_for_the_copy_yet_takes_the_place_of_no_living_one() {
    for (what, stays) in [
        ("asks for it", false),
        ("is suspended", true),
        ("asks for no replicas", true),
    ] {
        let name = names::work("Deployment", "web", "shop");
        let binding = to(&["m2"], 1);
        let old = work_of(&binding, "m1");
        let mut new = given(&binding, "m2");
        if what == "is suspended" {
            // It was made while the policy suspended dispatching, which has ended since.
            new["spec"]["suspendDispatching"] = json!(true);
            new["status"] = Value::Null;
        }
        if what == "asks for no replicas" {
            // It had no share until the workload was moved there.
            new["spec"]["workload"]["manifests"][0]["spec"]["replicas"] = json!(0);
            new["status"]["manifestStatuses"][0]["status"] = json!({"replicas": 0});
        }
        let mut bench = of_two(cluster("m2"), binding, [old, new]);
        // A webhook or a quota refuses every change of the Work.
        let path = format!("/karmada-es-m2/works/{name}");
        bench.api.refuse(Method::PATCH, &path, 403, &name);
        bench.follow_for(10 * 60).await;
        let is_left = written(&bench, "web-deployment").is_empty();
        assert_eq!(
            is_left, stays,
            "the Work in m2 {what}, and the API refuses to change that: m1 has the living copy"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_waits_for_others_is_not_removed_while_movement_is_paused() {
    for is_paused in [false, true] {
        // The target fell silent after the workload was placed there.
        let binding = to(&["m2"], 1);
        let old = work_of(&binding, "m1");
        let mut bench = of_two(ready("m2", "Unknown"), binding, [old]);
        bench.follow_for(60).await;
        assert_eq!(written(&bench, "web-deployment"), [], "it waits");
        if is_paused {
            bench.api.put("clusters", paused(cluster("m1")));
            pass(10).await;
            let now = bench.fleet.clock.now();
            assert!(bench.fleet.pauses.of("m1", now).is_some());
        }
        bench.api.put("clusters", ready("m2", "True"));
        pass(10).await;
        apply(&bench, "m2");
        pass(10 * 60).await;
        let is_removed = !written(&bench, "web-deployment").is_empty();
        assert_eq!(
            is_removed, !is_paused,
            "no old copy is removed while movement out of its cluster is paused"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_is_reported_why_a_copy_that_a_policy_has_taken_away_stays_for_hours() {
    for what in ["m2 is silent", "its former copy in m2 does not go"] {
        let mut target = cluster("m2");
        let mut former = None;
        let binding = to(&["m2"], 1);
        if what == "m2 is silent" {
            target = ready("m2", "Unknown");
        } else {
            let mut work = work_of(&binding, "m2");
            work["metadata"]["name"] = json!(names::work("Deployment", "web", "shop"));
            work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            work["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
            former = Some(work);
        }
        let old = work_of(&binding, "m1");
        let works = [old].into_iter().chain(former);
        let mut bench = of_two(target, binding, works);
        bench.follow_for(2 * 60 * 60).await;
        assert_eq!(written(&bench, "web-deployment"), [], "{what}: it stays");
        let bound = bench.binding("web-deployment").unwrap();
        let conditions = &bound.status().conditions;
        let reported = bench.api.reported().await;
        assert!(
            !reported.is_empty() || !conditions.is_empty(),
            "{what}: a copy stays where no policy has it, and nothing says why"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_has_been_given_its_share_takes_no_place_before_its_agent_has_applied_that() {
    // The second kind is not one of Kubernetes.
    for (version, kind, plural) in [
        ("apps/v1", "Deployment", "deployments"),
        ("argoproj.io/v1alpha1", "Rollout", "rollouts"),
    ] {
        let name = names::work(kind, "web", "shop");
        let mut binding = to(&["m2"], 1);
        binding["spec"]["resource"]["apiVersion"] = json!(version);
        binding["spec"]["resource"]["kind"] = json!(kind);
        let old = work_of(&binding, "m1");
        let mut new = work_of(&binding, "m2");
        new["metadata"]["name"] = json!(name);
        // The copy had no share until now: its agent has applied it with no replicas, and says so.
        new["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 0});
        new["status"]["manifestStatuses"][0]["status"] = json!({"replicas": 0});
        let mut template = deployment(2);
        template["apiVersion"] = json!(version);
        template["kind"] = json!(kind);
        let mut bench = Bench::new([
            ("clusters", cluster("m1")),
            ("clusters", cluster("m2")),
            (plural, template),
            ("resourcebindings", binding),
            ("works", old),
            ("works", new),
        ]);
        let path = format!("/apis/{version}");
        bench.api.serve(&path, version, plural, kind);
        start(&bench.fleet, &mut bench.tasks);
        bench.follow().await;
        // The agent of m2 renews its lease, and does not get to its Works.
        pass(10 * 60).await;
        let new = bench.api.object("works", "karmada-es-m2", &name).unwrap();
        let asked = &new["spec"]["workload"]["manifests"][0]["spec"]["replicas"];
        assert_eq!(asked, 2, "{kind}: it asks for its share by now");
        assert_eq!(
            written(&bench, "web-deployment"),
            [],
            "{kind}: m2 reports 0 replicas and m1 reports 2: m1 has the living copy"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_grace_period_is_over_goes_although_one_of_several_targets_refuses_its_own() {
    for is_refused in [false, true] {
        let binding = evicted(&json!({"gracePeriodSeconds": 60}));
        let old = work_of(&binding, "m1");
        let works = ["m2", "m3"].map(|cluster| {
            let mut new = given(&binding, cluster);
            if cluster == "m3" && is_refused {
                // A quota of m3 is used up.
                refuse(&mut new);
            }
            new
        });
        let works = works.into_iter().chain([old]);
        let mut bench = bound(
            ["m1", "m2", "m3"].map(cluster),
            deployment(4),
            binding,
            works,
        );
        evict_gracefully(&mut bench).await;
        let bound = bench.binding("web-deployment").unwrap();
        let tasks = &bound.spec.graceful_eviction_tasks;
        let reported = bench.api.reported().await;
        let reported = reported.iter().any(|it| it.1 == EVICTED);
        let is_removed = !written(&bench, "web-deployment").is_empty();
        assert_eq!(
            tasks.is_empty(),
            is_removed,
            "refused: {is_refused}: said to have left m1: {reported}; removed: {is_removed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_although_the_running_copy_of_the_only_other_target_refuses_an_update() {
    for is_refused in [false, true] {
        let report = |_: &str, work: &mut Value| {
            if is_refused {
                // The template was edited in a field that members do not let change. The copies run
                // on, and are reported as healthy.
                work["status"]["conditions"][0]["status"] = json!("False");
            }
        };
        let deleted = withdrawn_from_m1(report, 60 * 60).await;
        assert_eq!(deleted, 1, "refused: {is_refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_events_of_a_moment_neither_alarm_nor_delay_the_removal_of_an_old_copy() {
    let binding = to(&["m2"], 1);
    let old = work_of(&binding, "m1");
    let mut bench = of_two(cluster("m2"), binding, [old]);
    bench.follow().await;
    // The template is edited ten times within a second: a rollout tool that annotates it.
    for edit in 0..10 {
        let mut template = deployment(2);
        template["metadata"]["annotations"] = json!({"edit": edit.to_string()});
        bench.api.put("deployments", template);
        pass(0).await;
        // Time is paused: the edits are a twentieth of a second apart.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    apply(&bench, "m2");
    pass(3).await;
    let reported = bench.api.reported().await;
    let reported: Vec<_> = reported
        .iter()
        .filter(|it| it.1 == "OldCopyStays")
        .collect();
    let is_removed = !written(&bench, "web-deployment").is_empty();
    assert!(
        reported.is_empty(),
        "it waited for half a second: {reported:?}"
    );
    assert!(is_removed, "applied three seconds ago");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_withdrawn_goes_although_nothing_is_dispatched_to_another_new_target() {
    // A person moves the workload to m2 and m3, and has m3 left alone for the time being.
    for suspended in [
        Value::Null,
        json!({"dispatchingOnClusters": {"clusterNames": ["m3"]}}),
    ] {
        let mut binding = to(&["m2", "m3"], 1);
        binding["spec"]["suspension"] = suspended.clone();
        let old = work_of(&binding, "m1");
        let mut bench = bound(
            ["m1", "m2", "m3"].map(cluster),
            deployment(2),
            binding,
            [old],
        );
        bench.follow_for(10).await;
        apply(&bench, "m2");
        if suspended.is_null() {
            apply(&bench, "m3");
        }
        pass(60 * 60).await;
        assert_eq!(written(&bench, "web-deployment").len(), 1, "{suspended}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refused_its_first_replicas_takes_the_place_of_no_living_copy() {
    for pods in [2, 0] {
        let binding = to(&["m2"], 1);
        let old = work_of(&binding, "m1");
        let mut new = given(&binding, "m2");
        // An admission webhook of m2 refuses the order to run two. What it applied before asked for
        // `pods`, and is healthy: of none, none is ready.
        new["status"]["conditions"][0]["status"] = json!("False");
        new["status"]["manifestStatuses"][0]["status"] = json!({"replicas": pods});
        assert_eq!(
            removes(cluster("m2"), binding, [old, new], 10 * 60).await,
            pods > 0,
            "{pods} pods run in m2: m1 has the living copy"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_whose_status_is_not_known_counts_as_one_that_runs() {
    for status in [json!({"replicas": 2}), Value::Null] {
        let binding = to(&["m2"], 1);
        let mut old = work_of(&binding, "m1");
        if status.is_null() {
            // A script of an interpreter cannot reflect it: nothing is known of its pods.
            old["status"]["manifestStatuses"][0]["status"] = Value::Null;
            old["status"]["manifestStatuses"][0]["health"] = json!("Unknown");
        }
        let mut new = given(&binding, "m2");
        // A quota of m2 lets no pod be made.
        new["status"]["manifestStatuses"][0]["status"] = json!({"unavailableReplicas": 2});
        new["status"]["manifestStatuses"][0]["health"] = json!("Unhealthy");
        let is_removed = removes(cluster("m2"), binding, [old, new], 10 * 60).await;
        assert!(
            !is_removed,
            "m1 reports {status}, m2 has no pod: nobody has said that nothing runs in m1"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_goes_although_an_autoscaler_has_scaled_the_new_one_to_zero() {
    let binding = to(&["m2"], 1);
    // People use m1 for as long as it is there: its autoscaler keeps two.
    let old = work_of(&binding, "m1");
    let mut new = given(&binding, "m2");
    // Nobody uses m2: KEDA has scaled it to zero, which the policy lets members do. It is healthy.
    new["status"]["manifestStatuses"][0]["status"] = json!({"observedGeneration": 2});
    let mut template = deployment(2);
    template["metadata"]["labels"] = json!({"resourcetemplate.karmada.io/retain-replicas": "true"});
    let mut bench = bound(["m1", "m2"].map(cluster), template, binding, [old, new]);
    bench.follow_for(60 * 60).await;
    assert!(
        !written(&bench, "web-deployment").is_empty(),
        "m1 was taken out of the policy an hour ago; what is in m2 is as it is wanted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refuses_once_after_a_long_wait_has_not_gone_on_refusing() {
    let mut binding = to(&["m2", "m3"], 1);
    binding["spec"]["replicas"] = json!(4);
    let name = names::work("Deployment", "web", "shop");
    let mut old = work_of(&binding, "m1");
    old["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 4});
    old["status"]["manifestStatuses"][0]["status"] = json!({"replicas": 4, "readyReplicas": 4});
    let [there, sent] = ["m2", "m3"].map(|cluster| given(&binding, cluster));
    let mut waits = sent.clone();
    // The agent of m3 is slow.
    waits["status"] = Value::Null;
    let works = [old, there, waits];
    let mut bench = bound(
        ["m1", "m2", "m3"].map(cluster),
        deployment(4),
        binding,
        works,
    );
    bench.follow_for(60).await;
    assert_eq!(written(&bench, "web-deployment"), [], "it waits for m3");
    // Its first attempt comes a moment before the namespace is there; the next one succeeds.
    let mut refused = bench.api.object("works", "karmada-es-m3", &name).unwrap();
    refused["status"] = sent["status"].clone();
    refuse(&mut refused);
    bench.api.put("works", refused);
    pass(2).await;
    assert_eq!(
        written(&bench, "web-deployment"),
        [],
        "m3 has refused for two seconds, and m2 runs half of the replicas"
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_its_member_scales_up_from_a_template_of_none_is_a_living_one() {
    for pods in [0, 2] {
        // The template asks for none, and an autoscaler of the member decides how many run.
        let mut binding = to(&["m2"], 1);
        binding["spec"]["replicas"] = json!(0);
        binding["spec"]["clusters"] = json!([{"name": "m2"}]);
        let mut old = work_of(&binding, "m1");
        old["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 0});
        old["status"]["manifestStatuses"][0]["status"] = json!({"replicas": pods});
        let mut template = deployment(0);
        template["metadata"]["labels"] =
            json!({"resourcetemplate.karmada.io/retain-replicas": "true"});
        let mut bench = bound(["m1", "m2"].map(cluster), template, binding, [old]);
        // A quota or a webhook refuses the Work in m2.
        let path = "/karmada-es-m2/works";
        bench.api.refuse(Method::POST, path, 403, "web");
        bench.follow_for(10 * 60).await;
        let is_removed = !written(&bench, "web-deployment").is_empty();
        assert_eq!(
            is_removed,
            pods == 0,
            "{pods} pods run in m1, and there is no copy in m2"
        );
    }
}
