use http::Method;
use serde_json::json;

use super::*;
use crate::fleet::testing::{Bench, REFUSALS, refusal};

#[test]
fn a_cluster_is_monitored_by_its_lease_by_a_connection_or_not_at_all() {
    for (mode, connects, expected) in [
        ("Pull", true, Some(Monitoring::Lease)),
        ("Pull", false, Some(Monitoring::Lease)),
        ("Push", true, None),
        ("Push", false, Some(Monitoring::Off)),
    ] {
        let mode = serde_json::from_value(json!(mode)).unwrap();
        assert_eq!(monitoring(&mode, connects), expected);
    }
}

/// Returns a fleet with a cluster that has neither finalizer nor namespace.
async fn bench() -> (Bench, Arc<Cluster>) {
    let new = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    let bench = Bench::followed([("clusters", new)]).await;
    let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
    (bench, cluster)
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_cluster_from_getting_its_taints_is_reported_unless_it_has_changed_meanwhile()
{
    for (code, _) in REFUSALS {
        let (bench, cluster) = bench().await;
        bench.api.refuse(Method::PATCH, "/clusters/m1", code, "m1");
        let kept = keep(&bench.fleet, &cluster).await;
        let is_conflict = code == 409;
        let expected = is_conflict.then_some(Next::Again);
        assert_eq!(kept.ok(), expected, "{code}");
        let reported = [("m1".to_owned(), "TaintClusterFailed".to_owned())];
        let reported = if is_conflict { &[][..] } else { &reported };
        assert_eq!(bench.api.reported().await, reported, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_execution_namespace_is_created_with_the_label_of_the_system() {
    let (bench, cluster) = bench().await;
    ensure_namespace(&bench.fleet, &cluster).await.unwrap();
    let writes = bench.api.writes();
    let [(Method::POST, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert_eq!(path, "/api/v1/namespaces");
    let labels = json!({label::SYSTEM: "true"});
    let (name, found) = (&body["metadata"]["name"], &body["metadata"]["labels"]);
    assert_eq!((name, found), (&json!("karmada-es-m1"), &labels));
}

#[tokio::test(start_paused = true)]
async fn an_execution_namespace_that_is_there_already_is_no_failure() {
    for (code, reason, reported) in [
        (409, "AlreadyExists", None),
        (403, "Forbidden", Some("CreateExecutionSpaceFailed")),
        (404, "NotFound", Some("CreateExecutionSpaceFailed")),
    ] {
        let (bench, cluster) = bench().await;
        let answer = refusal(code, reason, "karmada-es-m1");
        bench.api.answer(Method::POST, "/namespaces", code, answer);
        let housed = ensure_namespace(&bench.fleet, &cluster).await;
        assert_eq!(housed.is_ok(), reported.is_none(), "{code}");
        let events = bench.api.reported().await;
        let reason = events.first().map(|it| &*it.1);
        assert_eq!(reason, reported, "{code}");
    }
}
