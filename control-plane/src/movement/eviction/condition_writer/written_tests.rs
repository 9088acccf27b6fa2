//! What is written and reported of evictions.

use http::Method;
use serde_json::json;

use super::super::judge::Stay;
use super::super::pending_notes::tests::nowhere;
use super::*;
use crate::fleet::testing::{self, Bench, REFUSALS, pass};

fn key() -> Key {
    Key::new(testing::key("web-deployment"))
}

/// Returns a fleet with a cluster that has a taint and a binding with some conditions, and a writer
/// of conditions for it.
async fn bench(conditions: Option<Vec<Condition>>) -> (Bench, ConditionWriter) {
    let mut bench = Bench::new([
        (
            "clusters",
            json!({
                "metadata": {"name": "m1"},
                "spec": {"syncMode": "Pull", "taints": [{"key": "x", "effect": "NoExecute"}]},
            }),
        ),
        (
            "resourcebindings",
            json!({
                "metadata": {"namespace": "shop", "name": "web-deployment"},
                "spec": {"resource": {
                    "apiVersion": "apps/v1", "kind": "Deployment",
                    "namespace": "shop", "name": "web",
                }},
                "status": {"conditions": conditions.unwrap_or_default()},
            }),
        ),
    ]);
    let writer = ConditionWriter::start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    (bench, writer)
}

fn note(state: EvictionState) -> Note {
    let cluster = "m1".to_owned();
    Note { cluster, state }
}

/// Returns the note that the workload stays in spite of a taint.
fn stays() -> Note {
    note(EvictionState::Stays {
        rule: Stay::Tolerated,
        taints: "x".to_owned(),
        since: None,
    })
}

fn evicted() -> Note {
    note(EvictionState::Evicted {
        cause: "taint x:NoExecute".into(),
        to: "m2".into(),
        mode: "Gracefully".into(),
        at: jiff::Timestamp::from_second(1_000).unwrap(),
    })
}

#[tokio::test(start_paused = true)]
async fn what_has_nowhere_to_go_is_written_and_reported_of_the_binding_and_the_workload() {
    let (bench, writer) = bench(None).await;
    writer.report(vec![(key(), nowhere("m1", "full"))]);
    let reported = bench.api.reported().await;
    let expected = ["web-deployment", "web"].map(|it| (it.to_owned(), "NowhereToGo".to_owned()));
    assert_eq!(reported, expected);
    let written = bench.api.writes();
    let [(Method::PATCH, path, body)] = &written[..] else {
        panic!("{written:?}");
    };
    assert!(path.ends_with("/shop/resourcebindings/web-deployment/status"));
    let said = &body["status"]["conditions"][0];
    assert_eq!(
        (&said["reason"], &said["status"]),
        (&json!("NowhereToGo"), &json!("True"))
    );
    assert_eq!(writer.pending.lock().len(), 1, "it is pending still");
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_forgotten_once_it_was_reported_and_nothing_is_reported_of_what_never_began()
 {
    let (bench, writer) = bench(None).await;
    writer.report(vec![(key(), note(EvictionState::Recovered))]);
    assert_eq!(bench.api.reported().await, []);
    assert_eq!(bench.api.writes(), []);
    assert!(writer.pending.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn that_a_cluster_was_left_is_an_event_although_the_condition_says_so_already() {
    let said = explain::condition(&[evicted()], jiff::Timestamp::from_second(1_000).unwrap());
    let (bench, writer) = bench(said.map(|it| vec![it])).await;
    writer.report(vec![(key(), evicted())]);
    let reported = bench.api.reported().await;
    let expected = ["web-deployment", "web"].map(|it| (it.to_owned(), "Evicted".to_owned()));
    assert_eq!(reported, expected);
    assert_eq!(bench.api.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_note_that_comes_too_late_is_read_again_or_dropped_and_others_are_tried_again() {
    for (code, _) in REFUSALS {
        let (bench, writer) = bench(None).await;
        let (method, path) = (Method::PATCH, "/web-deployment/status");
        bench.api.refuse(method, path, code, "web-deployment");
        let unwritten = |unwritten: &mut PendingNotes| {
            _ = unwritten.take(nowhere("m1", "full"), Instant::now());
        };
        unwritten(writer.pending.lock().entry(key()).or_default());
        let next = writer.write(&bench.fleet, key()).await;
        let expected = match code {
            409 => Some(Next::Again),
            404 => Some(Next::Done),
            _ => None,
        };
        assert_eq!(next.ok(), expected, "{code}");
        assert_eq!(bench.api.reported().await, [], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_process_before_reported_is_reported_again_only_later_than_its_start() {
    for (seconds, expected) in [(10, 0), (60, 1), (70, 1)] {
        let said = explain::condition(&[evicted()], jiff::Timestamp::from_second(1_000).unwrap());
        let (bench, writer) = bench(said.map(|it| vec![it])).await;
        writer.begin();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let unwritten = |unwritten: &mut PendingNotes| _ = unwritten.take(stays(), Instant::now());
        unwritten(writer.pending.lock().entry(key()).or_default());
        let next = writer.write(&bench.fleet, key()).await;
        assert_eq!(next.unwrap(), Next::Done, "{seconds}");
        pass(1).await;
        assert_eq!(bench.api.writes().len(), expected, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_by_a_binding_of_before_our_own_last_write() {
    let (bench, writer) = bench(None).await;
    let held = bench.binding("web-deployment");
    let held = held.unwrap();
    let mut after = held.metadata.clone();
    after.resource_version = Some("99".to_owned());
    writer.written.written(key(), &held.metadata, &after, ());
    bench.api.put(
        "clusters",
        json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}}),
    );
    pass(1).await;
    let unwritten = |unwritten: &mut PendingNotes| _ = unwritten.take(stays(), Instant::now());
    unwritten(writer.pending.lock().entry(key()).or_default());
    let next = writer.write(&bench.fleet, key()).await;
    assert!(matches!(next, Ok(Next::After(_))), "{next:?}");
    assert_eq!(writer.pending.lock().len(), 1, "the note is there still");
}
