//! What is reported of taints that policies want and that do not come.

use serde_json::Value;

use super::*;
use crate::fleet::testing::{Bench, pass, refusal, taint};

/// Returns a fleet with a cluster and three policies.
async fn bench() -> (Bench, Arc<Cluster>) {
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    let policies =
        ["one", "other-effect", "other-key"].map(|it| ("clustertaintpolicies", named(it)));
    let objects = [("clusters", named("m1"))].into_iter().chain(policies);
    let bench = Bench::followed(objects).await;
    let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
    (bench, cluster)
}

#[tokio::test(start_paused = true)]
async fn a_refused_taint_is_reported_of_the_cluster_and_of_the_policies_that_want_it() {
    let (bench, cluster) = bench().await;
    let refused = taint("a", "PreferNoSchedule");
    let outcome = Outcome {
        changes: vec![
            ("one".to_owned(), refused.clone(), true),
            ("other-effect".to_owned(), taint("a", "NoSchedule"), true),
            ("other-key".to_owned(), taint("b", "PreferNoSchedule"), true),
        ],
        ..Outcome::default()
    };
    let status: Value = refusal(422, "Invalid", "m1");
    let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
    report_refused(&bench.fleet, &cluster, &outcome, &refused, &error);
    let expected = ["m1", "one"].map(|it| (it.to_owned(), "TaintRefused".to_owned()));
    assert_eq!(bench.api.reported().await, expected);
}

#[tokio::test(start_paused = true)]
async fn that_policies_are_left_out_is_reported_of_the_cluster() {
    let (bench, cluster) = bench().await;
    let outcome = Outcome {
        left_out: ["one".to_owned(), "two".to_owned()].into(),
        ..Outcome::default()
    };
    report_left_out(&bench.fleet, &cluster, &outcome);
    let events = bench.api.events().await;
    let [(about, reason, message)] = &events[..] else {
        panic!("{events:?}");
    };
    let named = (&**about, &**reason);
    assert_eq!(named, ("m1", "TooManyClusterTaintPolicies"));
    assert!(
        message.contains("among them one, two: use fewer"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_policy_that_the_api_does_not_have_is_gone() {
    let policy = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let objects = ["listed", "left", "remade"].map(|it| ("clustertaintpolicies", policy(it)));
    let bench = Bench::followed(objects).await;
    for name in ["left", "remade"] {
        bench.api.delete("clustertaintpolicies", "", name);
    }
    pass(1).await;
    // The cache does not see these.
    for name in ["unlisted", "remade"] {
        let path = format!("/clustertaintpolicies/{name}");
        let answer = policy(name);
        bench.api.answer(http::Method::GET, &path, 200, answer);
    }
    let held = json!(["listed", "unlisted", "left", "remade", "absent"]);
    let taints = json!([{"key": "a", "effect": "NoExecute", "heldBy": held}]);
    let record = Record::read(Some(&json!({ "taints": taints }).to_string())).unwrap();
    let found = gone(&bench.fleet, Some(&record)).await.unwrap();
    let expected = ["left", "absent"].map(str::to_owned);
    assert_eq!(found, HashSet::from(expected));
    assert_eq!(gone(&bench.fleet, None).await.unwrap(), HashSet::new());
    // An API server that has just started does not serve the kind yet.
    let path = "/clustertaintpolicies/absent";
    bench.api.refuse(http::Method::GET, path, 404, "");
    assert!(gone(&bench.fleet, Some(&record)).await.is_err());
    // The definition of the kind was removed, and the watch showed that the policy was deleted.
    let taints = json!([{"key": "a", "effect": "NoExecute", "heldBy": ["left"]}]);
    let record = Record::read(Some(&json!({ "taints": taints }).to_string())).unwrap();
    let path = "/clustertaintpolicies/left";
    bench.api.refuse(http::Method::GET, path, 404, "");
    let found = gone(&bench.fleet, Some(&record)).await.unwrap();
    assert_eq!(found, HashSet::from(["left".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_cannot_mean_is_reported_once_for_each_of_its_versions_and_its_taints_are_reported()
 {
    let mut bench = Bench::new([("clusters", conditioned("False", 0))]);
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    let policy = |generation: u8, effect: &str, label: &str| {
        let on = json!({"conditionType": "Ready", "operator": "In", "statusValues": ["False"]});
        let taints = ["NoExecute", effect].map(|effect| json!({"key": "a", "effect": effect}));
        json!({
            "metadata": {"name": "p", "generation": generation, "labels": {"seen": label}},
            "spec": {"addOnConditions": [on], "taints": taints},
        })
    };
    for (generation, effect, label) in [(1, "Never", "a"), (1, "Never", "b"), (2, "Ever", "b")] {
        bench
            .api
            .put("clustertaintpolicies", policy(generation, effect, label));
        pass(5).await;
    }
    let events = bench.api.events().await;
    let reported = |reason: &str| events.iter().filter(|it| it.1 == reason).count();
    assert_eq!(reported("InvalidClusterTaintPolicy"), 2, "{events:?}");
    assert_eq!(reported("TaintClusterSucceed"), 1, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn the_taint_of_a_policy_that_was_never_read_goes_when_that_is_deleted() {
    let taint = json!({"key": "a", "effect": "NoExecute"});
    let mut cluster = conditioned("True", 0);
    cluster["spec"]["taints"] = json!([taint.clone()]);
    let mut held = taint;
    held["heldBy"] = json!(["p"]);
    cluster["metadata"]["annotations"] = json!({ANNOTATION: json!({"taints": [held]}).to_string()});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"taintsToAdd": "none"}});
    let mut bench = Bench::new([("clusters", cluster), ("clustertaintpolicies", policy)]);
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    for (is_deleted, expected) in [(false, 1), (true, 0)] {
        if is_deleted {
            bench.api.delete("clustertaintpolicies", "", "p");
        }
        pass(5).await;
        let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
        assert_eq!(cluster.spec.taints.len(), expected, "{is_deleted}");
    }
}

/// Returns a cluster whose condition Ready has had the given status since the given minute.
fn conditioned(status: &str, minute: u8) -> Value {
    let ready = json!({
        "type": "Ready", "status": status, "reason": "R", "message": "",
        "lastTransitionTime": format!("2024-01-01T00:{minute:02}:00Z"),
    });
    json!({
        "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
        "status": {"conditions": [ready]},
    })
}

/// Returns a fleet with a cluster that is not ready, and a policy that taints clusters which have
/// not been ready for so long.
async fn tainting(seconds: u8) -> Bench {
    let on = json!({
        "conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"],
    });
    let taint = json!({
        "key": "a", "effect": "NoExecute",
        "addOnMatchSeconds": seconds, "removeOnMismatchSeconds": seconds,
    });
    let policy = json!({
        "metadata": {"name": "p"}, "spec": {"matchConditions": [on], "taintsToAdd": [taint]},
    });
    let mut bench = Bench::new([
        ("clusters", conditioned("False", 0)),
        ("clustertaintpolicies", policy),
    ]);
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    bench
}

/// Shows the cluster with a condition and taints, and with the record that it has.
fn report(bench: &Bench, status: &str, minute: u8, taints: &[Taint]) {
    let mut cluster = conditioned(status, minute);
    let held = bench.fleet.clusters.get(None, "m1").unwrap();
    cluster["metadata"]["annotations"] = json!(held.annotations());
    cluster["spec"]["taints"] = json!(taints);
    bench.api.put("clusters", cluster);
}

/// Returns the taints that the API has.
async fn taints(bench: &Bench) -> Vec<Taint> {
    let api = Api::<Cluster>::all(bench.fleet.client.clone());
    api.get("m1").await.unwrap().spec.taints
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_seen_breaks_no_window_and_taints_go_with_the_conditions() {
    let bench = tainting(30).await;
    pass(20).await;
    assert_eq!(taints(&bench).await, []);
    // From False to Unknown, under the eyes of this process.
    report(&bench, "Unknown", 1, &[]);
    pass(15).await;
    let found = taints(&bench).await;
    assert_eq!(found.len(), 1, "not ready for 35 s: {found:?}");
    report(&bench, "True", 2, &found);
    pass(25).await;
    assert_eq!(taints(&bench).await, found);
    pass(10).await;
    assert_eq!(taints(&bench).await, []);
}

#[tokio::test(start_paused = true)]
async fn that_somebody_took_off_a_taint_of_a_policy_is_reported_once() {
    let bench = tainting(30).await;
    pass(60).await;
    assert_eq!(taints(&bench).await.len(), 1);
    // A person, or a tool that keeps the Cluster as a repository has it.
    report(&bench, "False", 0, &[]);
    pass(600).await;
    assert_eq!(taints(&bench).await, []);
    let reported = bench.api.reported().await;
    let withdrawn = reported.iter().filter(|it| it.1 == "TaintWithdrawn");
    assert_eq!(withdrawn.count(), 1, "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_cannot_be_written_is_reported_of_the_cluster_and_tried_again() {
    for (code, name) in [
        (403, "m1"),
        // Nothing says that it is the taint which the API does not take.
        (422, "m1"),
        // The API does not serve clusters now.
        (404, ""),
    ] {
        let bench = tainting(30).await;
        let method = http::Method::PATCH;
        bench.api.refuse(method, "/clusters/m1", code, name);
        pass(60).await;
        let reported = bench.api.reported().await;
        assert!(!reported.is_empty(), "{code}");
        let expected = ("m1".to_owned(), "TaintClusterFailed".to_owned());
        assert!(
            reported.iter().all(|it| *it == expected),
            "{code} {reported:?}"
        );
        bench.api.answer_truly();
        pass(600).await;
        assert_eq!(taints(&bench).await.len(), 1, "{code}");
    }
}
