//! Which Cluster gets the condition that its member has one already, and what that rests upon.

use http::Method;
use serde_json::Value;

use super::*;
use crate::fleet::testing::{Bench, REFUSALS, pass};

/// Returns a Cluster with an id, created on a day of January.
fn cluster(name: &str, id: &str, day: u8) -> Value {
    let created = format!("2024-01-{day:02}T00:00:00Z");
    let kept = json!(["other"]);
    let metadata = json!({"name": name, "creationTimestamp": created, "finalizers": kept});
    json!({"metadata": metadata, "spec": {"syncMode": "Pull", "id": id}})
}

/// Returns an execution namespace on which an id may be recorded.
fn namespace(cluster: &str, record: Option<&str>) -> Value {
    let annotations = record.map(|id| json!({identity::RECORD: id}));
    let name = execution_namespace(cluster);
    json!({"metadata": {"name": name, "annotations": annotations, "finalizers": ["other"]}})
}

/// Returns a fleet, the account of the identities in it, and the queue of its clusters.
async fn bench(objects: Vec<(&str, Value)>) -> (Bench, Arc<Identities>, Queue<String>) {
    let mut bench = Bench::new(objects);
    let queue = Queue::new("clusters");
    let fleet = &bench.fleet;
    let identities = listen(&fleet.clusters, &fleet.namespaces, &queue);
    bench.follow().await;
    (bench, identities, queue)
}

async fn check(bench: &Bench, identities: &Identities, name: &str) -> Result<Next, kube::Error> {
    let cluster = bench.fleet.clusters.get(None, name).unwrap();
    report_duplicate(&bench.fleet, &cluster, identities).await
}

/// Returns the status of the condition that was written upon a Cluster.
fn said(bench: &Bench, name: &str) -> Option<String> {
    let writes = bench.api.writes().into_iter();
    let path = format!("/clusters/{name}/status");
    let mut said = writes.filter(|it| it.1.ends_with(&path));
    let (.., body) = said.next()?;
    let status = body["status"]["conditions"][0]["status"].as_str()?;
    Some(status.to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_cluster_that_came_later_is_reported_and_the_id_of_the_first_is_recorded() {
    let (bench, identities, _) = bench(vec![
        ("clusters", cluster("a", "x", 1)),
        ("clusters", cluster("b", "x", 2)),
        ("namespaces", namespace("a", None)),
        ("namespaces", namespace("b", None)),
    ])
    .await;
    check(&bench, &identities, "a").await.unwrap();
    let writes = bench.api.writes();
    let [(Method::PATCH, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert_eq!(path, "/api/v1/namespaces/karmada-es-a");
    assert_eq!(
        body["metadata"]["annotations"],
        json!({identity::RECORD: "x"})
    );
    bench.api.forget();
    check(&bench, &identities, "b").await.unwrap();
    assert_eq!(said(&bench, "b").as_deref(), Some("False"));
    assert_eq!(bench.api.writes().len(), 1, "nothing is recorded for it");
    let reported = [("b".to_owned(), "DuplicateRegistration".to_owned())];
    assert_eq!(bench.api.reported().await, reported);
}

#[tokio::test(start_paused = true)]
async fn that_a_cluster_is_the_only_one_again_is_written_and_warns_nobody() {
    let mut refused = cluster("b", "x", 2);
    refused["status"] = json!({"conditions": [{
        "type": "UniqueIdentity", "status": "False", "reason": "RegisteredAlready",
        "message": "", "lastTransitionTime": "2024-01-02T00:00:00Z",
    }]});
    let (bench, identities, _) = bench(vec![("clusters", refused)]).await;
    check(&bench, &identities, "b").await.unwrap();
    assert_eq!(said(&bench, "b").as_deref(), Some("True"));
    assert_eq!(bench.api.reported().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_comes_too_late_is_none_and_one_that_is_refused_is_tried_again() {
    for (code, is_usual) in REFUSALS {
        for (name, path) in [
            ("b", "/clusters/b/status"),
            ("a", "/namespaces/karmada-es-a"),
        ] {
            let (bench, identities, _) = bench(vec![
                ("clusters", cluster("a", "x", 1)),
                ("clusters", cluster("b", "x", 2)),
                ("namespaces", namespace("a", None)),
            ])
            .await;
            bench.api.refuse(Method::PATCH, path, code, name);
            let looked = check(&bench, &identities, name).await;
            assert_eq!(looked.is_ok(), is_usual, "{path} {code}");
            assert_eq!(bench.api.reported().await, [], "{path} {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_counts_while_its_cluster_has_that_id_or_cannot_be_seen() {
    let mut unreadable = cluster("a", "x", 1);
    unreadable["spec"]["taints"] = json!("none");
    let there = cluster("a", "x", 1);
    let metadata = Some(json!({"metadata": {"name": "a"}}));
    for (what, seen, answered, expected) in [
        ("it has it", Some(there), None, Some("False")),
        ("it has another", Some(cluster("a", "y", 1)), None, None),
        ("it cannot be read", Some(unreadable), None, Some("False")),
        ("only the API has it", None, metadata, Some("False")),
        ("nobody has it", None, None, None),
    ] {
        let mut objects = vec![
            ("clusters", cluster("b", "x", 2)),
            ("namespaces", namespace("a", Some("x"))),
            ("namespaces", namespace("b", None)),
        ];
        objects.extend(seen.map(|it| ("clusters", it)));
        let (bench, identities, _) = bench(objects).await;
        if let Some(answer) = answered {
            bench.api.answer(Method::GET, "/clusters/a", 200, answer);
        }
        check(&bench, &identities, "b").await.unwrap();
        assert_eq!(said(&bench, "b").as_deref(), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_cluster_that_takes_the_id_of_another_comes_later() {
    let (bench, identities, queue) = bench(vec![("clusters", cluster("b", "x", 2))]).await;
    bench.api.put("clusters", cluster("a", "x", 1));
    pass(5).await;
    assert_eq!(queue.len(), 1, "the other is looked at");
    check(&bench, &identities, "b").await.unwrap();
    assert_eq!(said(&bench, "b"), None);
    check(&bench, &identities, "a").await.unwrap();
    assert_eq!(said(&bench, "a").as_deref(), Some("False"));
}

#[tokio::test(start_paused = true)]
async fn what_a_list_lacks_keeps_its_claim_and_what_was_deleted_does_not() {
    let record = || vec![("namespaces", namespace("a", Some("x")))];
    let claim = || vec![("clusters", cluster("a", "x", 1))];
    let (space, name) = (execution_namespace("a"), "a".to_owned());
    for (objects, plural, name) in [(record(), "namespaces", space), (claim(), "clusters", name)] {
        for (is_deleted, expected) in [(true, &["b"][..]), (false, &["a", "b"])] {
            let rest = [("clusters", cluster("b", "x", 2))];
            let all = objects.clone().into_iter().chain(rest).collect();
            let (bench, identities, _) = bench(all).await;
            pass(5).await;

            if is_deleted {
                bench.api.delete(plural, "", &name);
            } else {
                bench.api.lose(plural, "", &name);
            }
            pass(120).await;
            let mut holders: Vec<String> =
                identities.holders("b").into_iter().map(|it| it.0).collect();
            holders.sort();
            assert_eq!(holders, expected, "{plural} {is_deleted}");
        }
    }
}
