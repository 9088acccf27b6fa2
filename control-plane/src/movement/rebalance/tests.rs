//! What requests move, and what is said of them, with the scheduler that carries them out.

use std::sync::Arc;

use muster_shared::api::rebalancer::{RebalanceResult, WorkloadRebalancer};
use muster_shared::conditions;
use muster_shared::names::annotation::ORDERED_BY;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fleet::testing::{Bench, binding, cluster, pass, paused};
use crate::settings::Settings;

const MANY: usize = 40;
/// Moves within five seconds at the default rate of one in two seconds, with the one that may be
/// paid for already.
const AT_THE_RATE: usize = 4;

fn name(number: usize) -> String {
    format!("w{number}-deployment")
}

/// Returns workload `w<number>`, scheduled to `m1` long ago.
fn workload(number: usize) -> Value {
    let mut it = binding();
    it["metadata"]["name"] = json!(name(number));
    it["metadata"]["generation"] = json!(1);
    it["spec"]["resource"]["name"] = json!(format!("w{number}"));
    it["status"] = json!({
        "lastScheduledTime": "2024-01-01T00:00:00Z", "schedulerObservedGeneration": 1,
        "conditions": [{
            "type": "Scheduled", "status": "True", "reason": "Success", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }],
    });
    let placement = it["spec"]["placement"].clone();
    placed_by(it, placement)
}

/// Gives a workload a placement by which the scheduler has placed it.
fn placed_by(mut workload: Value, placement: Value) -> Value {
    let applied = placement.to_string();
    workload["metadata"]["annotations"]["policy.karmada.io/applied-placement"] = json!(applied);
    workload["spec"]["placement"] = placement;
    workload
}

/// Returns a rebalancer of all workloads.
fn rebalancer(ttl: Option<i32>) -> Value {
    let workloads: Vec<Value> = (0..MANY)
        .map(|number| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
                "name": format!("w{number}"),
            })
        })
        .collect();
    json!({
        "metadata": {
            "name": "all", "uid": "u", "generation": 1,
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": { "workloads": workloads, "ttlSecondsAfterFinished": ttl },
    })
}

/// Returns a cluster with much room, to which nothing new goes if it is `closed`.
fn roomy(name: &str, is_closed: bool) -> Value {
    let mut it = cluster(name);
    it["spec"]["id"] = json!(name);
    it["status"]["resourceSummary"]["allocatable"] =
        json!({ "cpu": "10000", "memory": "10000Gi", "pods": "10000" });
    if is_closed {
        it["spec"]["taints"] = json!([{ "key": "node.cordon", "effect": "NoSchedule" }]);
    }
    it
}

/// Returns a fleet with a scheduler, and with the controller of rebalancers if there are any.
async fn follow(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Bench {
    started(Bench::with(Settings::default(), objects)).await
}

/// Starts these controllers.
async fn started(mut bench: Bench) -> Bench {
    let fleet = Arc::clone(&bench.fleet);
    let pace = crate::fleet::budget::budget(&fleet, &mut bench.tasks);
    super::start(&fleet, pace.clone(), &mut bench.tasks);
    crate::scheduler::controller::start(&fleet, pace.clone(), &mut bench.tasks);
    bench.follow().await;
    pace.begin(Instant::now());
    bench
}

/// Returns a fleet with a scheduler, with these clusters, and with more objects.
async fn beside(
    clusters: [Value; 2],
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> Bench {
    let clusters = clusters.map(|it| ("clusters", it));
    follow(clusters.into_iter().chain(more)).await
}

/// Returns a fleet with a scheduler, with these clusters, and with workloads that are made from
/// their numbers.
async fn follow_all(clusters: [Value; 2], workloads: impl Fn(usize) -> Value) -> Bench {
    follow(fleet_of(clusters, workloads)).await
}

/// Returns such a fleet with a rebalancer.
async fn rebalanced(
    clusters: [Value; 2],
    workloads: impl Fn(usize) -> Value,
    rebalancer: Value,
) -> Bench {
    let rebalancer = ("workloadrebalancers", rebalancer);
    let objects = fleet_of(clusters, workloads).into_iter();
    follow(objects.chain([rebalancer])).await
}

/// Returns `m1`, to which nothing new goes, and `m2`.
fn to_m2() -> [Value; 2] {
    [roomy("m1", true), roomy("m2", false)]
}

/// Returns `m1` and `m2`, with room in both.
fn open() -> [Value; 2] {
    ["m1", "m2"].map(|it| roomy(it, false))
}

/// Returns clusters, and workloads that are made from their numbers.
fn fleet_of(
    clusters: [Value; 2],
    workloads: impl Fn(usize) -> Value,
) -> Vec<(&'static str, Value)> {
    let clusters = clusters.into_iter().map(|it| ("clusters", it));
    let workloads = (0..MANY).map(|it| ("resourcebindings", workloads(it)));
    clusters.chain(workloads).collect()
}

/// Takes all clusters from a workload, because none fits; its copy in `m1` is kept.
fn kept(mut workload: Value) -> Value {
    workload["spec"]["clusters"] = json!([]);
    workload["spec"]["gracefulEvictionTasks"] = json!([{
        "fromCluster": "m1", "reason": "NoClusterFit", "producer": "p", "replicas": 2,
    }]);
    workload["status"]["conditions"][0]["status"] = json!("False");
    workload
}

/// Returns workload `w<number>`, whose policy was edited to name `m2` only.
fn edited(number: usize) -> Value {
    let mut it = workload(number);
    it["spec"]["placement"]["clusterAffinity"] = json!({ "clusterNames": ["m2"] });
    it
}

/// Returns how many workloads a new placement is requested of, and how many have left `m1`.
fn asked_and_moved(bench: &Bench) -> (usize, usize) {
    let all = (0..MANY).map(|it| bench.binding(&name(it)).unwrap());
    let all: Vec<_> = all.collect();
    let asked = all
        .iter()
        .filter(|it| it.spec.reschedule_triggered_at.is_some());
    let moved = all.iter().filter(|it| it.spec.target("m1").is_none());
    (asked.count(), moved.count())
}

fn stored(bench: &Bench) -> Option<WorkloadRebalancer> {
    let object = bench.api.object("workloadrebalancers", "", "all")?;
    Some(serde_json::from_value(object).unwrap())
}

/// Workloads with a result.
fn results(bench: &Bench) -> usize {
    let status = stored(bench).unwrap().status.unwrap_or_default();
    let done = |it: &&_| matches!(it, Some(RebalanceResult::Successful));
    let results = status.observed_workloads.iter().map(|it| &it.result);
    results.filter(done).count()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_lets_nothing_go_that_was_saved_up() {
    let clusters = [paused(roomy("m1", true)), roomy("m2", false)];
    let bench = rebalanced(clusters, workload, rebalancer(None)).await;
    pass(100).await;
    assert_eq!(asked_and_moved(&bench), (0, 0));
    bench.api.put("clusters", roomy("m1", true));
    pass(5).await;
    let (asked, moved) = asked_and_moved(&bench);
    assert_eq!(asked, MANY);
    assert!((1..=AT_THE_RATE).contains(&moved), "{moved} moved");
    pass(90).await;
    assert_eq!(asked_and_moved(&bench), (MANY, MANY), "all get their turn");
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_former_leader_move_at_the_rate_and_wait_for_a_pause() {
    for is_paused in [false, true] {
        let m1 = roomy("m1", true);
        let m1 = if is_paused { paused(m1) } else { m1 };
        let bench = follow_all([m1, roomy("m2", false)], |it| {
            let mut it = workload(it);
            it["spec"]["rescheduleTriggeredAt"] = json!("2025-01-01T00:00:00Z");
            it
        })
        .await;
        pass(5).await;
        let (_, moved) = asked_and_moved(&bench);
        let expected = if is_paused { 0..=0 } else { 1..=AT_THE_RATE };
        assert!(expected.contains(&moved), "{moved} moved, {is_paused}");
        let last = bench.binding(&name(MANY - 1)).unwrap();
        let reported = conditions::get(&last.status.as_ref().unwrap().conditions, "Scheduled");
        let reason = if is_paused {
            "Paused"
        } else {
            "WaitingForRate"
        };
        let reported = reported.unwrap();
        assert_eq!(
            (&*reported.reason, &*reported.status),
            (reason, "True"),
            "{reported:?}"
        );
        bench.api.put("clusters", roomy("m1", true));
        pass(5).await;
        let (_, more) = asked_and_moved(&bench);
        assert!(
            more > moved && more <= moved + AT_THE_RATE,
            "{moved}, then {more}"
        );
        pass(90).await;
        let last = bench.binding(&name(MANY - 1)).unwrap();
        let reported = conditions::get(&last.status.as_ref().unwrap().conditions, "Scheduled");
        assert_eq!(reported.unwrap().reason, "Success");
    }
}

#[tokio::test(start_paused = true)]
async fn workloads_that_change_to_another_affinity_group_move_at_the_rate() {
    let labelled = |is_home: bool| {
        let mut it = roomy("m1", false);
        it["metadata"]["labels"] = json!({ "home": is_home.to_string() });
        it
    };
    let group = |name: &str, more: Value| {
        let mut group = more;
        group["affinityName"] = json!(name);
        group
    };
    let home = json!({ "labelSelector": { "matchLabels": { "home": "true" } } });
    let groups = json!([
        group("home", home),
        group("away", json!({ "clusterNames": ["m2"] }))
    ]);
    let bench = follow_all([labelled(true), roomy("m2", false)], |it| {
        let mut it = placed_by(workload(it), json!({ "clusterAffinities": groups }));
        it["status"]["schedulerObservingAffinityName"] = json!("home");
        it
    })
    .await;
    pass(20).await;
    assert_eq!(asked_and_moved(&bench), (0, 0));
    bench.api.put("clusters", labelled(false));
    pass(5).await;
    let (_, moved) = asked_and_moved(&bench);
    assert!((1..=AT_THE_RATE).contains(&moved), "{moved} moved");
    pass(90).await;
    assert_eq!(asked_and_moved(&bench), (0, MANY));
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_policy_and_a_removed_cluster_wait_for_no_turn() {
    let bench = follow_all(open(), edited).await;
    pass(5).await;
    assert_eq!(asked_and_moved(&bench), (0, MANY));
    let mut leaving = roomy("m1", false);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    let bench = follow_all([leaving, roomy("m2", false)], workload).await;
    pass(5).await;
    assert_eq!(asked_and_moved(&bench), (0, MANY));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_the_scheduler_reports_is_not_taken_for_answered() {
    let mut late = workload(0);
    // Something is to be reported of it.
    late["status"]["schedulerObservedGeneration"] = json!(0);
    let bench = Bench::with(
        Settings::default(),
        [
            ("clusters", roomy("m1", true)),
            ("clusters", roomy("m2", false)),
            ("resourcebindings", late.clone()),
        ],
    );
    let mut bench = bench;
    let fleet = Arc::clone(&bench.fleet);
    let pace = crate::fleet::budget::budget(&fleet, &mut bench.tasks);
    crate::scheduler::controller::start(&fleet, pace, &mut bench.tasks);
    bench.follow().await;
    // The first report meets a conflict, since the request is in the API by then.
    late["spec"]["rescheduleTriggeredAt"] = json!("2025-01-01T00:00:00Z");
    bench.api.put("resourcebindings", late);
    pass(10).await;
    let binding = bench.binding(&name(0)).unwrap();
    assert!(
        binding.spec.target("m2").is_some(),
        "{:?}",
        binding.spec.clusters
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_changes_nothing_waits_for_nothing() {
    let clusters = [roomy("m1", false), roomy("m2", true)];
    let bench = rebalanced(clusters, workload, rebalancer(None)).await;
    pass(5).await;
    assert_eq!(asked_and_moved(&bench), (MANY, 0));
    assert_eq!(results(&bench), MANY);
}

#[tokio::test(start_paused = true)]
async fn a_rebalancer_says_why_it_places_something_not_anew_yet() {
    let suspended = |number: usize| {
        let mut it = workload(number);
        if number < 3 {
            it["spec"]["suspension"] = json!({ "scheduling": true });
        }
        it
    };
    for (cluster, expected) in [
        (
            roomy("m1", false),
            vec!["Deployment w0 and 2 more are not placed anew yet: scheduling is suspended"],
        ),
        (
            paused(roomy("m1", false)),
            vec![
                "Deployment w0 and 2 more are not placed anew yet: scheduling is suspended",
                "Deployment w3 and 36 more are not placed anew yet: movement out of a cluster in which it is placed is paused",
            ],
        ),
    ] {
        let clusters = [cluster, roomy("m2", true)];
        let bench = rebalanced(clusters, suspended, rebalancer(None)).await;
        pass(30).await;
        let reported = bench.api.events().await.into_iter();
        let reported = reported.filter(|it| it.1 == "RebalancePending");
        let mut reported: Vec<String> = reported.map(|(_, _, note)| note).collect();
        reported.sort();
        assert_eq!(reported, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rebalancer_is_finished_when_its_moves_are_made_and_is_written_seldom() {
    let mut asked = rebalancer(Some(10));
    let orders = json!([{"order": "rebalance", "by": "alice", "reason": "an upgrade"}]);
    asked["metadata"]["annotations"] = json!({ ORDERED_BY: orders.to_string() });
    let bench = rebalanced(to_m2(), workload, asked).await;
    pass(40).await;
    let reported = bench.api.events().await;
    let reported = reported.into_iter().filter(|it| it.1 == "Ordered");
    let reported: Vec<String> = reported
        .map(|(about, _, note)| format!("{about}: {note}"))
        .collect();
    let expected = "all: 40 workloads are placed anew by alice: an upgrade";
    assert_eq!(reported, [expected], "who ordered it is reported once");
    let (asked, moved) = asked_and_moved(&bench);
    assert!(asked == MANY && moved < MANY, "{moved} moved");
    let done = results(&bench);
    assert!(
        done <= moved && done + 4 >= moved,
        "{done} results for {moved}"
    );
    let reported = stored(&bench).unwrap().status.unwrap();
    assert_eq!(
        reported.observed_workloads.len(),
        MANY,
        "what is asked for is listed"
    );
    assert_eq!(reported.finish_time, None);
    while asked_and_moved(&bench).1 < MANY {
        assert!(stored(&bench).is_some(), "it is not deleted before its end");
        pass(1).await;
    }
    pass(5).await;
    assert_eq!(results(&bench), MANY);
    let writes = bench.api.writes();
    let statuses = writes
        .iter()
        .filter(|it| it.1.contains("workloadrebalancers/all/status"));
    assert!(statuses.count() <= 20, "not one for each of {MANY} turns");
    pass(12).await;
    assert!(stored(&bench).is_none(), "its time is over");
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_a_cluster_that_waits_to_move_has_not_answered_a_rebalancer() {
    for (reported, m1) in [
        ("WaitingForRate", roomy("m1", true)),
        ("Paused", paused(roomy("m1", true))),
    ] {
        let waiting = |it| {
            let mut it = kept(workload(it));
            it["status"]["conditions"][0]["reason"] = json!(reported);
            it
        };
        let bench = rebalanced([m1, roomy("m2", false)], waiting, rebalancer(None)).await;
        pass(20).await;
        let is_placed = |it: &usize| {
            bench
                .binding(&name(*it))
                .unwrap()
                .spec
                .target("m2")
                .is_some()
        };
        let placed = (0..MANY).filter(is_placed).count();
        assert!(placed < MANY, "{reported}");
        let done = results(&bench);
        assert!(done <= placed, "{reported}: {done} results for {placed}");
    }
}

/// Returns a rebalancer of workload `w0`.
fn of_one() -> Value {
    let mut one = rebalancer(None);
    one["spec"]["workloads"] = json!([one["spec"]["workloads"][0]]);
    one
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_asked_for_an_edited_rebalancer_is_not_asked_for_again() {
    let mut edited = of_one();
    edited["metadata"]["generation"] = json!(2);
    edited["metadata"]["managedFields"] =
        json!([{"operation": "Update", "time": "2025-06-01T00:00:00Z"}]);
    let mut answered = workload(0);
    let asked = json!("2025-06-01T00:00:05Z");
    answered["spec"]["rescheduleTriggeredAt"] = asked.clone();
    answered["status"]["lastScheduledTime"] = json!("2025-06-01T00:00:06Z");
    let edited = ("workloadrebalancers", edited);
    let bench = beside(to_m2(), [("resourcebindings", answered), edited]).await;
    pass(20).await;
    let spec = bench.api.binding(&name(0))["spec"].clone();
    assert_eq!(spec["rescheduleTriggeredAt"], asked);
    assert_eq!(results(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_asked_for_is_not_answered_before_the_cache_shows_it() {
    for is_behind in [true, false] {
        let clusters = [roomy("m1", false), roomy("m2", true)];
        let bench = beside(clusters, [("resourcebindings", workload(0))]).await;
        if is_behind {
            let mut asked = workload(0);
            asked["spec"]["rescheduleTriggeredAt"] = json!("2025-01-01T00:00:00Z");
            bench.api.put_unreported("resourcebindings", asked);
        }
        let mut listed = of_one();
        listed["status"] = json!({
            "observedWorkloads": [{"workload": listed["spec"]["workloads"][0]}],
            "observedGeneration": 1,
        });
        bench.api.put("workloadrebalancers", listed);
        pass(5).await;
        // Karmada lists a workload without a result, too, before it is placed anew.
        assert_eq!(results(&bench), usize::from(!is_behind), "{is_behind}");
        let spec = bench.api.binding(&name(0))["spec"].clone();
        assert!(spec["rescheduleTriggeredAt"].is_string(), "{is_behind}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_asked_for_by_a_clock_ahead_is_asked_for_once_more_and_no_oftener() {
    let future = "2099-01-01T00:00:00Z";
    let mut answered = workload(0);
    answered["spec"]["rescheduleTriggeredAt"] = json!(future);
    answered["status"]["lastScheduledTime"] = json!(future);
    let mut listed = of_one();
    listed["status"] = json!({
        "observedWorkloads": [{"workload": listed["spec"]["workloads"][0]}],
        "observedGeneration": 1,
    });
    let listed = ("workloadrebalancers", listed);
    let clusters = [roomy("m1", false), roomy("m2", true)];
    let bench = beside(clusters, [("resourcebindings", answered), listed]).await;
    pass(20).await;
    assert_eq!(results(&bench), 1);
    let spec = bench.api.binding(&name(0))["spec"].clone();
    assert_eq!(spec["rescheduleTriggeredAt"], "2099-01-01T00:00:01Z");
}

#[tokio::test(start_paused = true)]
async fn a_completed_job_is_answered_for_and_stays_where_it_is() {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "name": "w0",
    });
    let mut bound = workload(0);
    bound["metadata"]["name"] = json!("w0-job");
    bound["spec"]["resource"] = job.clone();
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    bound["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "status": done}]);
    let mut one = of_one();
    one["spec"]["workloads"] = json!([job]);
    let one = ("workloadrebalancers", one);
    let bench = beside(to_m2(), [("resourcebindings", bound), one]).await;
    pass(20).await;
    assert_eq!(results(&bench), 1);
    let clusters = bench.api.binding("w0-job")["spec"]["clusters"].clone();
    assert_eq!(clusters, json!([{"name": "m1", "replicas": 2}]));
}

mod moves;
