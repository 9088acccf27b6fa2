use jiff::SignedDuration;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::clock::calendar;
use muster_shared::names::annotation::HOMES;
use serde_json::Value;

use super::*;
use crate::fleet::testing::{Bench, binding, claimed, cluster, deleting, key, pass, policy, work};
use crate::settings::Settings;

#[test]
fn workloads_are_found_by_each_cluster_that_they_left_until_they_leave_it_no_more() {
    let homes = Homes::default();
    let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    homes.change(&key("a"), &[], &names(&["m1", "m2"]));
    homes.change(&key("b"), &[], &names(&["m2"]));
    let of = |cluster: &str| {
        let mut of: Vec<String> = homes.of(cluster).into_iter().map(|it| it.name).collect();
        of.sort();
        of
    };
    assert_eq!((of("m1"), of("m2")), (names(&["a"]), names(&["a", "b"])));
    assert_eq!(homes.all(), HashSet::from([key("a"), key("b")]));
    homes.change(&key("a"), &names(&["m1", "m2"]), &names(&["m1"]));
    assert_eq!((of("m1"), of("m2")), (names(&["a"]), names(&["b"])));
    homes.change(&key("a"), &names(&["m1"]), &[]);
    assert_eq!((of("m1"), of("m3")), (names(&[]), names(&[])));
    assert_eq!(homes.all(), HashSet::from([key("b")]));
    homes.change(&key("b"), &names(&["m2"]), &[]);
    assert!(
        homes.0.lock().is_empty(),
        "nothing is kept of what came home"
    );
}

#[test]
fn a_process_trusts_what_it_reads_of_clusters_after_two_graces() {
    let (began, grace) = (Instant::now(), Duration::from_secs(40));
    for (second, rest) in [(0, Some(80)), (79, Some(1)), (80, None), (200, None)] {
        let now = began + Duration::from_secs(second);
        let expected = rest.map(Duration::from_secs);
        assert_eq!(untrusted(began, grace, now), expected, "{second}");
    }
}

#[test]
fn nothing_returns_while_something_else_is_under_way() {
    let task = |suppresses: Option<bool>| {
        json!({"spec": {"gracefulEvictionTasks": [{
            "fromCluster": "m1", "reason": "r", "producer": "p", "suppressDeletion": suppresses,
        }]}})
    };
    let asked = |scheduled: u8, conditions: Value| {
        json!({
            "spec": {"rescheduleTriggeredAt": "2026-01-01T00:00:10Z"},
            "status": {
                "lastScheduledTime": format!("2026-01-01T00:00:{scheduled:02}Z"),
                "conditions": conditions,
            },
        })
    };
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let unmet = json!([{
        "type": "Scheduled", "status": "False", "reason": "Unschedulable",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:10Z",
    }]);
    let suspended = json!({"spec": {"suspension": {"scheduling": true}}});
    for (what, more, expected) in [
        ("nothing", json!({}), true),
        ("deletion", deleted, false),
        ("a request", asked(9, json!([])), false),
        ("a request that could not be met", asked(9, unmet), true),
        ("a request that was answered", asked(11, json!([])), true),
        ("an eviction", task(None), false),
        ("an eviction that deletes", task(Some(false)), false),
        ("a copy that is kept for ever", task(Some(true)), true),
        ("a suspension", suspended, false),
    ] {
        let mut binding = json!({
            "metadata": {"name": "a"},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}},
        });
        json_patch::merge(&mut binding, &more);
        let binding: AnyBinding = serde_json::from_value(binding).unwrap();
        assert_eq!(is_settled(&binding), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_asked_and_waits_for_its_target_keeps_no_others_from_returning() {
    let bench = Bench::followed([("clusters", cluster("m1"))]).await;
    for (reason, expected) in [
        ("Success", true),
        ("WaitingForRate", true),
        ("TargetObstructed", false),
    ] {
        let mut asked = binding();
        asked["spec"]["rescheduleTriggeredAt"] = json!("2026-01-01T00:00:10Z");
        asked["status"] = json!({
            "lastScheduledTime": "2026-01-01T00:00:09Z",
            "conditions": [{
                "type": "Scheduled", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:10Z",
            }],
        });
        let asked: AnyBinding = serde_json::from_value(asked).unwrap();
        assert_eq!(may_return(&bench.fleet, &asked), expected, "{reason}");
    }
}

/// Returns cluster `m1`, by its condition `Ready` and since when it is recorded to be healthy.
fn home(ready: &str, since: Timestamp, healthy: Option<Timestamp>) -> Value {
    let mut it = cluster("m1");
    let condition = &mut it["status"]["conditions"][0];
    condition["status"] = json!(ready);
    condition["lastTransitionTime"] = json!(since);
    if let Some(healthy) = healthy {
        it["metadata"]["annotations"] = json!({ HEALTHY_SINCE: healthy.to_string() });
    }
    it
}

/// Returns one of the other clusters, ready or not.
fn other(number: usize, ready: &str) -> Value {
    let mut it = cluster(&format!("f{number}"));
    it["status"]["conditions"][0]["status"] = json!(ready);
    it
}

/// Returns a fleet that has run for a hundred seconds and in which nothing moves, because too many
/// clusters have failed. `web-deployment` left `m1`, which has been healthy for twice the hour
/// after which it may return.
async fn stopped() -> Bench {
    let long_ago = calendar() - SignedDuration::from_hours(2);
    // A new placement brings it home.
    let mut shelter = cluster("m2");
    shelter["spec"]["taints"] = json!([{ "key": "full", "effect": "NoSchedule" }]);
    let mut away = binding();
    away["metadata"]["generation"] = json!(1);
    away["spec"]["clusters"] = json!([{ "name": "m2", "replicas": 2 }]);
    away["spec"]["failover"] = json!({ "cluster": {
        "failback": { "mode": "WhenHealthy", "afterSeconds": 3600 },
    } });
    let left = json!({ "m1": long_ago.to_string() }).to_string();
    away["metadata"]["annotations"] = json!({
        HOMES: left,
        "policy.karmada.io/applied-placement": away["spec"]["placement"].to_string(),
    });
    away["status"] = json!({
        "lastScheduledTime": "2024-01-01T00:00:00Z", "schedulerObservedGeneration": 1,
    });
    let mut objects = vec![
        ("clusters", home("True", long_ago, Some(long_ago))),
        ("clusters", shelter),
        ("resourcebindings", away),
    ];
    objects.extend((0..4).map(|it| ("clusters", other(it, "False"))));
    let settings = Settings {
        feature_gates: "Failover=true".parse().unwrap(),
        ..Settings::default()
    };
    let mut bench = Bench::with(settings, objects);
    let fleet = Arc::clone(&bench.fleet);
    let pace = crate::fleet::budget::budget(&fleet, &mut bench.tasks);
    crate::movement::rebalance::start(&fleet, pace.clone(), &mut bench.tasks);
    crate::scheduler::controller::start(&fleet, pace.clone(), &mut bench.tasks);
    bench.follow().await;
    pace.begin(Instant::now());
    pass(100).await;
    bench
}

/// Brings the other clusters back, so that what waits may move.
fn resume(bench: &Bench) {
    for number in 0..4 {
        bench.api.put("clusters", other(number, "True"));
    }
}

fn is_home(bench: &Bench) -> bool {
    let binding = bench.binding("web-deployment").unwrap();
    binding.spec.target("m1").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_home_that_fails_while_nothing_may_move_has_to_be_healthy_anew() {
    let begun = calendar();
    let bench = stopped().await;
    let lost = begun + SignedDuration::from_secs(100);
    bench.api.put("clusters", home("Unknown", lost, None));
    pass(10).await;
    let back = begun + SignedDuration::from_secs(110);
    bench.api.put("clusters", home("True", back, None));
    resume(&bench);
    pass(120).await;
    assert!(!is_home(&bench), "m1 is healthy for two minutes of an hour");
}

#[tokio::test(start_paused = true)]
async fn a_return_waits_for_the_end_of_a_stop_and_follows_it() {
    let bench = stopped().await;
    pass(600).await;
    assert!(!is_home(&bench), "too many clusters have failed");
    resume(&bench);
    // Nothing but the end of the stop has it reconciled again; then it is paid for like all moves.
    pass(120).await;
    assert!(is_home(&bench), "movement has begun again");
}

#[tokio::test(start_paused = true)]
async fn nothing_returns_to_a_home_with_a_share_of_zero_that_is_still_removing_a_former_copy() {
    let weight = json!([{ "targetCluster": { "clusterNames": ["m1"] }, "weight": 1 }]);
    let placement = json!({
        "clusterAffinity": { "clusterNames": ["m1", "m2"] },
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": { "staticWeightList": weight },
        },
    });
    for is_removing in [true, false] {
        let bench = stopped().await;
        let mut copy = work("m1", "Healthy");
        copy["metadata"]["name"] = json!(muster_shared::names::work("Deployment", "web", "shop"));
        if is_removing {
            bench.api.put("works", deleting(copy));
        }
        let mut away = bench.api.binding("web-deployment");
        let shares = [("m1", 0), ("m2", 2)];
        let shares = shares.map(|(name, replicas)| json!({ "name": name, "replicas": replicas }));
        away["spec"]["clusters"] = json!(shares);
        away["spec"]["placement"] = placement.clone();
        let applied = &mut away["metadata"]["annotations"]["policy.karmada.io/applied-placement"];
        *applied = json!(placement.to_string());
        bench.api.put("resourcebindings", away);
        resume(&bench);
        pass(120).await;
        let away = bench.api.binding("web-deployment");
        let is_asked = away["spec"]["rescheduleTriggeredAt"].is_string();
        assert_eq!(is_asked, !is_removing, "{away}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_returns_once_its_policy_says_so_although_the_binding_does_not_say_so_yet() {
    for (mode, returns) in [("WhenHealthy", true), ("Never", false)] {
        let bench = stopped().await;
        let saying = |mode: &str| {
            let failback = json!({"mode": mode, "afterSeconds": 3600});
            let mut policy = policy();
            policy["spec"]["failover"] = json!({"cluster": {"failback": failback}});
            bench.api.put("propagationpolicies", policy);
        };
        let away = bench.api.binding("web-deployment");
        saying(mode);
        bench.api.put("resourcebindings", claimed(away));
        resume(&bench);
        pass(120).await;
        assert_eq!(is_home(&bench), returns, "{mode}");
        saying("WhenHealthy");
        pass(180).await;
        assert!(is_home(&bench), "{mode}: it was put back in time");
    }
}

/// Returns `web-deployment`, which was asked to return to `m1` and waits in `m2`, by the mode of
/// its policy, its condition `Scheduled`, and the mark of the request.
fn asked_to_return(mode: &str, placed: &str, mark: &str) -> Value {
    let long_ago = calendar() - SignedDuration::from_hours(2);
    let scheduled = "2024-01-01T00:00:00Z";
    let mut away = binding();
    away["spec"]["clusters"] = json!([{ "name": "m2", "replicas": 2 }]);
    away["spec"]["rescheduleTriggeredAt"] = json!(ASKED);
    let failback = json!({ "mode": mode, "afterSeconds": 3600 });
    away["spec"]["failover"] = json!({ "cluster": { "failback": failback } });
    let left = json!({ "m1": long_ago.to_string() }).to_string();
    away["metadata"]["annotations"] = json!({ HOMES: left, FAILBACK_ASKED: mark });
    away["status"] = json!({
        "lastScheduledTime": scheduled,
        "conditions": [{
            "type": "Scheduled", "status": placed, "reason": "", "message": "",
            "lastTransitionTime": scheduled,
        }],
    });
    away
}

/// Time of that request.
const ASKED: &str = "2025-01-01T00:00:00Z";

#[tokio::test(start_paused = true)]
async fn a_return_is_taken_back_that_was_asked_for_and_is_not_allowed_any_more() {
    let before = "2023-01-01T00:00:00Z";
    let marked = format!("{ASKED} {before}");
    let marked = marked.as_str();
    for (failover, mode, ready, placed, mark, expected) in [
        (true, "WhenHealthy", "True", "True", marked, json!(ASKED)),
        (true, "Never", "True", "True", marked, json!(before)),
        (
            true,
            "WhenHealthy",
            "Unknown",
            "True",
            marked,
            json!(before),
        ),
        (true, "Never", "True", "True", ASKED, Value::Null),
        // It waits for room.
        (true, "Never", "True", "False", marked, json!(before)),
        (false, "WhenHealthy", "True", "True", marked, json!(before)),
        // A person asked for it.
        (true, "Never", "True", "True", before, json!(ASKED)),
        (true, "Never", "True", "True", "", json!(ASKED)),
        (false, "WhenHealthy", "True", "True", "", json!(ASKED)),
    ] {
        let long_ago = calendar() - SignedDuration::from_hours(2);
        let settings = Settings {
            feature_gates: format!("Failover={failover}").parse().unwrap(),
            ..Settings::default()
        };
        let objects = [
            ("clusters", home(ready, long_ago, Some(long_ago))),
            ("clusters", cluster("m2")),
            ("resourcebindings", asked_to_return(mode, placed, mark)),
        ];
        let mut bench = Bench::with(settings, objects);
        bench.follow().await;
        let fleet = &bench.fleet;
        let controller = Failback::new(fleet, Pace::of(&fleet.settings));
        for _ in 0..2 {
            controller
                .check(fleet, &key("web-deployment"))
                .await
                .unwrap();
            // Clusters that were read a moment ago are trusted after a while only.
            pass(200).await;
        }
        let away = bench.api.binding("web-deployment");
        assert_eq!(
            away["spec"]["rescheduleTriggeredAt"], expected,
            "{failover} {mode} {ready} {placed} {mark:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_starts_without_failover_takes_back_what_was_asked_to_return() {
    let long_ago = calendar() - SignedDuration::from_hours(2);
    let mut bench = Bench::new([
        ("clusters", home("True", long_ago, Some(long_ago))),
        ("clusters", cluster("m2")),
        (
            "resourcebindings",
            asked_to_return("WhenHealthy", "True", ASKED),
        ),
    ]);
    let pace = crate::fleet::budget::budget(&bench.fleet, &mut bench.tasks);
    crate::movement::rebalance::start(&bench.fleet, pace, &mut bench.tasks);
    bench.follow_for(10).await;
    let away = bench.api.binding("web-deployment");
    assert!(away["spec"]["rescheduleTriggeredAt"].is_null(), "{away}");
}

#[tokio::test(start_paused = true)]
async fn the_return_of_a_job_is_taken_back_that_fails_before_it_moves() {
    for (condition, is_taken_back) in [("Failed", true), ("FailureTarget", false)] {
        let long_ago = calendar() - SignedDuration::from_hours(2);
        let mut job = asked_to_return("WhenHealthy", "True", ASKED);
        job["spec"]["resource"]["apiVersion"] = json!("batch/v1");
        job["spec"]["resource"]["kind"] = json!("Job");
        let status = json!({"conditions": [{"type": condition, "status": "True"}]});
        job["status"]["aggregatedStatus"] = json!([{"clusterName": "m2", "status": status}]);
        let settings = Settings {
            feature_gates: "Failover=true".parse().unwrap(),
            ..Settings::default()
        };
        let objects = [
            ("clusters", home("True", long_ago, Some(long_ago))),
            ("clusters", cluster("m2")),
            ("resourcebindings", job),
        ];
        let mut bench = Bench::with(settings, objects);
        bench.follow().await;
        let fleet = &bench.fleet;
        let controller = Failback::new(fleet, Pace::of(&fleet.settings));
        // The scheduler does not wait until what was read of clusters is trusted.
        let checked = controller.check(fleet, &key("web-deployment")).await;
        checked.unwrap();
        let job = bench.api.binding("web-deployment");
        let asked = &job["spec"]["rescheduleTriggeredAt"];
        assert_eq!(asked.is_null(), is_taken_back, "{condition}: {asked}");
        let events = bench.api.events().await;
        let mut notes = events.iter().filter(|it| it.1 == "Failback");
        let is_said = notes.any(|it| it.2.contains("it has failed"));
        assert_eq!(is_said, is_taken_back, "{condition}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_completed_job_without_a_cluster_to_return_to_is_not_written() {
    let mut done = binding();
    done["spec"]["clusters"] = json!([{ "name": "m2", "replicas": 2 }]);
    done["spec"]["resource"] = json!({
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "name": "sum",
    });
    done["spec"]["failover"] = json!({ "cluster": { "failback": { "mode": "WhenHealthy" } } });
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    done["status"]["aggregatedStatus"] = json!([{"clusterName": "m2", "status": complete}]);
    let bench = Bench::followed([("resourcebindings", done)]).await;
    let fleet = &bench.fleet;
    let controller = Failback::new(fleet, Pace::of(&fleet.settings));
    for _ in 0..2 {
        let looked = controller.check(fleet, &key("web-deployment")).await;
        looked.unwrap();
        // Clusters that were read a moment ago are trusted after a while only.
        pass(200).await;
    }
    assert!(bench.api.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn jobs_that_have_ended_stay_where_they_are_and_keep_no_others_from_returning() {
    for end in ["Complete", "Failed"] {
        jobs_stay(end).await;
    }
}

/// Plays the return of workloads of which some are Jobs that have ended with a condition.
async fn jobs_stay(end: &str) {
    let bench = stopped().await;
    let away = bench.api.binding("web-deployment");
    let mut settled = away.clone();
    let annotations = settled["metadata"]["annotations"].as_object_mut();
    annotations.unwrap().remove(HOMES);
    bench.api.put("resourcebindings", settled);
    // As many as may be asked to return at a time.
    let jobs = (0..8).map(|number| format!("sum{number}-job"));
    let jobs: Vec<String> = jobs.collect();
    for job in &jobs {
        let mut left = away.clone();
        left["metadata"]["name"] = json!(job);
        left["spec"]["resource"] = json!({
            "apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "name": job,
        });
        let done = json!({"conditions": [{"type": end, "status": "True"}]});
        left["status"]["aggregatedStatus"] = json!([{"clusterName": "m2", "status": done}]);
        bench.api.put("resourcebindings", left);
    }
    let long_ago = calendar() - SignedDuration::from_hours(2);
    let mut home = home("True", long_ago, Some(long_ago));
    let kinds = json!({"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]});
    let served = home["status"]["apiEnablements"].as_array_mut();
    served.unwrap().push(kinds);
    bench.api.put("clusters", home);
    resume(&bench);
    pass(120).await;
    for job in &jobs {
        let job = bench.api.binding(job);
        let asked = &job["spec"]["rescheduleTriggeredAt"];
        assert!(asked.is_null(), "it would run again: {asked}");
        assert!(job["metadata"]["annotations"][HOMES].is_null(), "{job}");
    }
    bench.api.put("resourcebindings", away);
    pass(120).await;
    assert!(is_home(&bench));
}
