//! Who is reported silent, when, and what is asked before.

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{Bench, only_condition, pass};
use crate::settings::Settings;

fn cluster(name: &str, mode: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"syncMode": mode},
        "status": {"conditions": only_condition("Ready", "True")},
    })
}

fn lease(name: &str, minute: u64) -> Value {
    let renewed = format!("2024-01-02T00:{minute:02}:00.000000Z");
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": CLUSTER_NAMESPACE, "name": name},
        "spec": {"renewTime": renewed},
    })
}

/// Returns a fleet in which the heartbeats of the clusters are listened to.
async fn bench(objects: Vec<(&str, Value)>) -> Bench {
    let mut bench = Bench::new(objects);
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    bench
}

/// Returns a fleet in which those of `m1` are, which has just renewed its lease.
async fn of_one() -> Bench {
    let m1 = ("clusters", cluster("m1", "Pull"));
    bench(vec![m1, ("leases", lease("m1", 0))]).await
}

/// Returns the clusters for which it was written that they are silent.
fn silent(bench: &Bench) -> Vec<String> {
    let writes = bench.api.writes().into_iter();
    let silent = writes.filter_map(|(_, path, body)| {
        let name = path.strip_suffix("/status")?.rsplit('/').next()?;
        let is_ready = &body["status"]["conditions"][0];
        (is_ready["status"] == json!("Unknown")).then(|| name.to_owned())
    });
    silent.collect()
}

/// Returns how often a path with this end was read.
fn reads(bench: &Bench, end: &str) -> usize {
    let asked = bench.api.asked().into_iter();
    let reads = asked.filter(|it| it.method == Method::GET && it.path.ends_with(end));
    reads.count()
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_is_reported_once_when_its_grace_is_over_and_its_lease_was_read_once() {
    let bench = bench(vec![
        ("clusters", cluster("m1", "Pull")),
        ("clusters", cluster("pushed", "Push")),
        ("leases", lease("m1", 0)),
    ])
    .await;
    pass(38).await;
    assert_eq!(silent(&bench), [""; 0]);
    pass(4).await;
    assert_eq!(silent(&bench), ["m1"]);
    assert_eq!(reads(&bench, "/leases/m1"), 1);
    assert!(
        reads(&bench, "/leases") > 5,
        "the API is asked all the time"
    );
    assert_eq!(bench.api.reported().await.len(), 1);
    pass(300).await;
    assert_eq!(silent(&bench), ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn that_an_agent_lives_and_does_not_renew_its_lease_is_reported() {
    let bench = of_one().await;
    for (what, expected) in [("it fell silent", 0), ("its status came again", 1)] {
        pass(45).await;
        let reported = bench.api.reported().await;
        let reported = reported.iter().filter(|it| it.1 == "LeaseNotRenewed");
        assert_eq!(reported.count(), expected, "{what}");
        bench.api.put("clusters", cluster("m1", "Pull"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_shorter_the_grace_the_more_often_the_api_is_asked() {
    let settings = Settings {
        cluster_monitor_grace_period: "8s".parse().unwrap(),
        ..Settings::default()
    };
    let mut bench = Bench::with(settings, []);
    bench.run(start, 10).await;
    assert!(reads(&bench, "/leases") > 8);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_renewals_are_seen_is_alive_whatever_is_read() {
    let bench = of_one().await;
    let stale = lease("m1", 0);
    bench.api.answer(Method::GET, "/leases/m1", 200, stale);
    for minute in 1..20 {
        pass(10).await;
        bench.api.put("leases", lease("m1", minute));
    }
    assert_eq!(silent(&bench), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_after_its_lease_is_given_one_grace() {
    let bench = bench(vec![("leases", lease("m1", 0))]).await;
    pass(10).await;
    bench.api.put("clusters", cluster("m1", "Pull"));
    pass(37).await;
    assert_eq!(silent(&bench), [""; 0]);
    pass(8).await;
    assert_eq!(silent(&bench), ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_is_not_missed() {
    let bench = bench(vec![("clusters", cluster("m1", "Pull"))]).await;
    pass(10).await;
    bench.api.delete("clusters", "", "m1");
    pass(10).await;
    bench.api.forget();
    pass(100).await;
    assert_eq!(reads(&bench, "/leases/m1"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_falls_silent_while_it_is_removed_is_reported() {
    let bench = of_one().await;
    pass(10).await;
    let mut leaving = cluster("m1", "Pull");
    leaving["metadata"]["deletionTimestamp"] = json!("2024-01-02T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    bench.api.put("clusters", leaving);
    pass(60).await;
    assert_eq!(silent(&bench), ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_silent_while_the_api_does_not_answer_and_that_time_is_given_back() {
    let bench = of_one().await;
    for path in ["/leases", "/leases/m1"] {
        bench.api.refuse(Method::GET, path, 500, "m1");
    }
    pass(300).await;
    assert_eq!(silent(&bench), [""; 0]);
    bench.api.answer_truly();
    pass(20).await;
    assert_eq!(silent(&bench), [""; 0], "it has its grace again");
    pass(40).await;
    assert_eq!(silent(&bench), ["m1"]);
}

#[test]
fn a_silence_is_believed_while_the_api_is_in_reach_and_was_asked_about_it() {
    let now = Instant::now();
    let grace = Duration::from_secs(40);
    let graces = Graces {
        monitor: grace,
        startup: grace,
    };
    for (in_reach, asked, expected) in [
        (true, true, true),
        // The answer is still to come when the grace is over.
        (true, false, false),
        (false, true, false),
        (false, false, false),
    ] {
        let mut state = State {
            tracker: LivenessTracker::new(graces, now),
            contact: Contact::new(grace, now),
        };
        state.tracker.cluster("m", None, Duration::ZERO, now);
        if asked {
            state.tracker.confirmed("m", now);
        }
        if !in_reach {
            state.contact.failed();
        }
        let found = state.believes_silence("m", now);
        assert_eq!(found, expected, "{in_reach} {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_many_are_read_together() {
    let names: Vec<String> = (0..MANY).map(|it| format!("m{it}")).collect();
    let clusters = names.iter().map(|it| ("clusters", cluster(it, "Pull")));
    let leases = names.iter().map(|it| ("leases", lease(it, 0)));
    let bench = bench(clusters.chain(leases).collect()).await;
    pass(50).await;
    assert_eq!(silent(&bench).len(), MANY);
    let asked = bench.api.asked().into_iter();
    let alone = asked.filter(|it| it.path.contains("/leases/"));
    assert_eq!(alone.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_cannot_be_written_is_tried_again_each_second_and_holds_no_other_up() {
    for breaks in [false, true] {
        let bench = bench(vec![
            ("clusters", cluster("m1", "Pull")),
            ("clusters", cluster("m2", "Pull")),
            ("leases", lease("m1", 0)),
            ("leases", lease("m2", 0)),
        ])
        .await;
        let path = "/clusters/m1/status";
        if breaks {
            bench.api.cut(Method::PATCH, path);
        } else {
            bench.api.refuse(Method::PATCH, path, 403, "m1");
        }
        pass(30).await;
        bench.api.put("leases", lease("m2", 1));
        pass(38).await;
        let tried = silent(&bench);
        assert!(tried.iter().all(|it| it == "m1"), "{tried:?}");
        assert!((20..40).contains(&tried.len()), "{tried:?}");
        pass(4).await;
        assert!(silent(&bench).contains(&"m2".to_owned()), "{breaks}");
        bench.api.answer_truly();
        bench.api.forget();
        pass(3).await;
        assert_eq!(silent(&bench), ["m1"], "{breaks}");
    }
}

/// Times that the API takes, and that the type for times does not hold: it ends a day before the
/// year 9999 does.
const UNREADABLE: &str = "9999-12-31T23:59:59.000000Z";

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_is_no_sign_of_life_and_holds_no_other_up() {
    for many in [false, true] {
        let others = if many { MANY } else { 1 };
        let names: Vec<String> = (0..others).map(|it| format!("m{it}")).collect();
        let mut odd = lease("a", 0);
        odd["spec"]["renewTime"] = json!(UNREADABLE);
        let clusters = names.iter().map(|it| ("clusters", cluster(it, "Pull")));
        let leases = names.iter().map(|it| ("leases", lease(it, 0)));
        let odd = [("leases", odd), ("clusters", cluster("a", "Pull"))];
        let bench = bench(clusters.chain(leases).chain(odd).collect()).await;
        pass(60).await;
        assert_eq!(silent(&bench).len(), others + 1, "{many}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_which_its_member_wrote_what_cannot_be_read_is_reported_all_the_same() {
    let bench = of_one().await;
    let mut odd = cluster("m1", "Pull");
    let conditions = &mut odd["status"]["conditions"];
    conditions.as_array_mut().unwrap().push(json!({
        "type": "Odd", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": UNREADABLE,
    }));
    odd["metadata"]["managedFields"] = json!([{
        "manager": "x", "operation": "Update", "time": UNREADABLE, "fieldsType": "FieldsV1",
    }]);
    bench.api.put("clusters", odd);
    pass(60).await;
    assert_eq!(silent(&bench), ["m1"], "once");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_refused_the_credentials_is_reported_silent_as_of_its_silence() {
    let mut refused = cluster("m1", "Pull");
    let ready = &mut refused["status"]["conditions"][0];
    ready["status"] = json!("Unknown");
    ready["reason"] = json!("ClusterCredentialsRefused");
    let bench = bench(vec![("clusters", refused), ("leases", lease("m1", 0))]).await;
    pass(60).await;
    assert_eq!(silent(&bench), ["m1"]);
    let writes = bench.api.writes();
    let written = writes.iter().find(|it| it.1.ends_with("/m1/status"));
    let ready = &written.unwrap().2["status"]["conditions"][0];
    assert_eq!(ready["reason"], json!("ClusterStatusUnknown"));
    assert_ne!(ready["lastTransitionTime"], json!("2024-01-01T00:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_cluster_with_two_ready_conditions_is_written_as_the_api_takes_it() {
    let mut odd = cluster("m1", "Pull");
    let conditions = odd["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(conditions[0].clone());
    let bench = bench(vec![("clusters", odd), ("leases", lease("m1", 0))]).await;
    pass(60).await;
    assert_eq!(silent(&bench), ["m1"]);
    let writes = bench.api.writes();
    let written = writes.iter().find(|it| it.1.ends_with("/m1/status"));
    let conditions = written.unwrap().2["status"]["conditions"].as_array();
    let statuses = conditions.unwrap().iter().map(|it| &it["status"]);
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses, ["Unknown", "True"]);
}
