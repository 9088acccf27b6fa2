//! What is told of taints that policies want and that do not come.

use serde_json::Value;

use super::*;
use crate::fleet::testing::{Stand, pass, refusal};

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

/// A fleet with a cluster and three policies.
async fn stand() -> (Stand, Arc<Cluster>) {
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    let policies =
        ["one", "other-effect", "other-key"].map(|it| ("clustertaintpolicies", named(it)));
    let objects = [("clusters", named("m1"))].into_iter().chain(policies);
    let stand = Stand::followed(objects).await;
    let cluster = stand.fleet.clusters.get(None, "m1").unwrap();
    (stand, cluster)
}

#[tokio::test(start_paused = true)]
async fn a_refused_taint_is_told_of_the_cluster_and_of_the_policies_that_want_it() {
    let (stand, cluster) = stand().await;
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
    tell_refused(&stand.fleet, &cluster, &outcome, &refused, &error);
    let expected = ["m1", "one"].map(|it| (it.to_owned(), "TaintRefused".to_owned()));
    assert_eq!(stand.api.told().await, expected);
}

#[tokio::test(start_paused = true)]
async fn that_policies_are_left_out_is_told_of_the_cluster() {
    let (stand, cluster) = stand().await;
    let outcome = Outcome {
        left_out: ["one".to_owned(), "two".to_owned()].into(),
        ..Outcome::default()
    };
    tell_left_out(&stand.fleet, &cluster, &outcome);
    let events = stand.api.events().await;
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
    let objects = ["listed", "left"].map(|it| ("clustertaintpolicies", policy(it)));
    let stand = Stand::followed(objects).await;
    stand.api.delete("clustertaintpolicies", "", "left");
    pass(1).await;
    // The cache does not hear of it.
    let path = "/clustertaintpolicies/unlisted";
    stand
        .api
        .answer(http::Method::GET, path, 200, policy("unlisted"));
    let held = json!(["listed", "unlisted", "left", "absent"]);
    let taints = json!([{"key": "a", "effect": "NoExecute", "heldBy": held}]);
    let record = Record::read(Some(&json!({ "taints": taints }).to_string())).unwrap();
    let found = gone(&stand.fleet, Some(&record)).await.unwrap();
    let expected = ["left", "absent"].map(str::to_owned);
    assert_eq!(found, HashSet::from(expected));
    assert_eq!(gone(&stand.fleet, None).await.unwrap(), HashSet::new());
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_cannot_mean_is_told_once_for_each_of_its_versions_and_its_taints_are_told() {
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "R", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    });
    let cluster = json!({
        "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
        "status": {"conditions": [ready]},
    });
    let mut stand = Stand::new([("clusters", cluster)]);
    start(&stand.fleet, &mut stand.tasks);
    stand.follow().await;
    let policy = |generation: u8, effect: &str, label: &str| {
        let on = json!({"conditionType": "Ready", "operator": "In", "statusValues": ["False"]});
        let taints = ["NoExecute", effect].map(|effect| json!({"key": "a", "effect": effect}));
        json!({
            "metadata": {"name": "p", "generation": generation, "labels": {"seen": label}},
            "spec": {"addOnConditions": [on], "taints": taints},
        })
    };
    for (generation, effect, label) in [(1, "Never", "a"), (1, "Never", "b"), (2, "Ever", "b")] {
        stand
            .api
            .put("clustertaintpolicies", policy(generation, effect, label));
        pass(5).await;
    }
    let events = stand.api.events().await;
    let told = |reason: &str| events.iter().filter(|it| it.1 == reason).count();
    assert_eq!(told("InvalidClusterTaintPolicy"), 2, "{events:?}");
    assert_eq!(told("TaintClusterSucceed"), 1, "{events:?}");
}
