//! What is told of taints that policies want and that do not come.

use serde_json::Value;

use super::*;
use crate::fleet::testing::{Stand, refusal};

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
