use muster_shared::api::failover_record::Cause;
use serde_json::{Value, json};

use super::*;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn spec() -> FailoverSpec {
    FailoverSpec {
        cluster: "m1".to_owned(),
        start_time: Some(Time(at(0))),
        ..FailoverSpec::default()
    }
}

/// Returns a status with a state, the counts affected, moved, healthy, held, stranded, and times by
/// minute.
fn status(state: &str, counts: [u32; 5], times: &Value) -> FailoverStatus {
    let times: serde_json::Map<String, Value> = times
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, minute)| {
            (
                name.clone(),
                json!(at(minute.as_i64().unwrap()).to_string()),
            )
        })
        .collect();
    let mut times = times;
    times.insert("tainted".to_owned(), json!(at(0).to_string()));
    let [affected, moved, healthy, held, stranded] = counts;
    serde_json::from_value(json!({
        "state": state,
        "cause": { "type": "ClusterUnreachable" },
        "times": times,
        "workloads": {
            "affected": affected, "moved": moved, "healthy": healthy,
            "held": held, "heldNow": held, "stranded": stranded, "strandedNow": stranded,
        },
    }))
    .unwrap()
}

/// Sends all that is due, as `phase number`.
fn send_due(sent: &mut Sent, status: &FailoverStatus, minute: i64) -> Vec<String> {
    let mut all = Vec::new();
    while let Next::Now(notice) = next(sent, &spec(), status, at(minute)) {
        sent.note(&notice);
        all.push(format!("{} {}", notice.phase.name(), notice.number));
        assert!(all.len() < 10, "it never ends: {all:?}");
    }
    all
}

#[test]
fn each_moment_of_a_failover_is_reported_once() {
    let mut sent = Sent::default();
    let none = json!({});
    let moved = json!({ "lastMove": 3, "healthy": 4 });
    let back = json!({ "lastMove": 3, "healthy": 4, "recovered": 20 });
    let over = json!({ "lastMove": 3, "healthy": 4, "recovered": 20, "ended": 22 });
    for (minute, status, expected) in [
        (
            1,
            status("Active", [2, 0, 0, 0, 0], &none),
            &["began 1"][..],
        ),
        (1, status("Active", [2, 0, 0, 2, 0], &none), &["held 1"]),
        (1, status("Active", [2, 0, 0, 1, 0], &none), &[]),
        (1, status("Active", [2, 0, 0, 0, 1], &none), &[]),
        (2, status("Active", [2, 1, 0, 0, 0], &none), &["resumed 1"]),
        (2, status("Active", [2, 1, 0, 0, 1], &none), &["held 2"]),
        (3, status("Active", [2, 2, 1, 0, 0], &moved), &["resumed 2"]),
        (4, status("Active", [2, 2, 2, 0, 0], &moved), &["healed 1"]),
        (
            20,
            status("Settling", [2, 2, 2, 0, 0], &back),
            &["recovered 1"],
        ),
        (22, status("Ended", [2, 2, 2, 0, 0], &over), &["ended 1"]),
        (99, status("Ended", [2, 2, 2, 0, 0], &over), &[]),
    ] {
        assert_eq!(send_due(&mut sent, &status, minute), expected, "{status:?}");
    }
}

#[test]
fn what_came_and_went_while_no_process_ran_is_reported_by_its_end() {
    let over = json!({ "lastMove": 3, "healthy": 4, "recovered": 20, "ended": 20 });
    let ended = status("Ended", [2, 2, 2, 0, 0], &over);
    let mut sent = Sent::default();
    assert_eq!(send_due(&mut sent, &ended, 21), ["began 1", "ended 1"]);
    let held = Sent {
        began: 1,
        held: 1,
        ..Sent::default()
    };
    let mut sent = held;
    assert_eq!(
        send_due(&mut sent, &ended, 500),
        ["ended 1"],
        "however late"
    );
    assert_eq!(sent.resumed, 1, "what ended holds nothing");
}

#[test]
fn what_returns_and_what_belongs_to_it_later_is_reported_again() {
    let over = |minute: i64| json!({ "recovered": minute, "ended": minute });
    let mut sent = Sent::default();
    let first = status("Ended", [0; 5], &over(5));
    assert_eq!(send_due(&mut sent, &first, 6), ["began 1", "ended 1"]);
    let mut again = status("Active", [0; 5], &json!({}));
    again.relapses = 2;
    assert_eq!(send_due(&mut sent, &again, 8), ["began 3"]);
    let mut last = status("Ended", [0; 5], &over(9));
    last.relapses = 2;
    assert_eq!(send_due(&mut sent, &last, 9), ["ended 2"]);
    last.times.ended = Some(Time(at(10)));
    assert_eq!(send_due(&mut sent, &last, 11), ["ended 3"]);
}

#[test]
fn a_new_receiver_is_notified_of_what_goes_on_and_no_history() {
    let over = json!({ "recovered": 5, "ended": 5 });
    let ended = status("Ended", [0; 5], &over);
    assert_eq!(
        send_due(&mut Sent::default(), &ended, 66),
        Vec::<String>::new()
    );
    assert_eq!(send_due(&mut Sent::default(), &ended, 64).len(), 2);
    let active = status("Active", [0; 5], &json!({}));
    assert_eq!(send_due(&mut Sent::default(), &active, 9999), ["began 1"]);
    let unexplained = FailoverStatus {
        cause: Cause::default(),
        ..active
    };
    let found = next(&Sent::default(), &spec(), &unexplained, at(1));
    assert_eq!(found, Next::Nothing, "its writer has not given the cause");
}

#[test]
fn the_healing_waits_for_those_that_still_move() {
    let times = json!({ "lastMove": 3, "healthy": 4 });
    let part = status("Active", [9, 2, 2, 0, 0], &times);
    let mut sent = Sent {
        began: 1,
        ..Sent::default()
    };
    assert_eq!(next(&sent, &spec(), &part, at(4)), Next::At(at(8)));
    assert_eq!(
        send_due(&mut sent, &part, 8),
        ["healed 1"],
        "the rest tolerate"
    );
    for counts in [[2, 2, 1, 0, 0], [0, 0, 0, 0, 0]] {
        let mut sent = Sent {
            began: 1,
            ..Sent::default()
        };
        let found = send_due(&mut sent, &status("Active", counts, &times), 60);
        assert_eq!(found, Vec::<String>::new(), "{counts:?}");
    }
}

#[test]
fn the_severity_distinguishes_orders_moves_and_what_is_stuck() {
    for (cause, counts, expected) in [
        ("ClusterUnreachable", [0, 0, 0, 0, 0], Severity::Info),
        ("ClusterUnreachable", [2, 0, 0, 0, 0], Severity::Warning),
        ("ApplicationFailure", [0, 1, 0, 0, 0], Severity::Warning),
        ("Drain", [2, 1, 0, 0, 0], Severity::Info),
        ("Drain", [2, 1, 0, 0, 1], Severity::Critical),
        ("Taint", [2, 1, 0, 1, 0], Severity::Critical),
    ] {
        let mut status = status("Active", counts, &json!({}));
        status.cause.kind = serde_json::from_value(json!(cause)).unwrap();
        assert_eq!(severity(&status), expected, "{cause} {counts:?}");
    }
}

#[test]
fn a_cluster_that_is_unwell_for_a_moment_and_is_left_by_nothing_is_not_reported() {
    let over = json!({ "recovered": 1, "ended": 1 });
    for (mut status, tells) in [
        (status("Active", [5, 0, 0, 0, 0], &json!({})), false),
        (status("Ended", [5, 0, 0, 0, 0], &over), false),
        (status("Active", [5, 1, 0, 0, 0], &json!({})), true),
        (status("Active", [5, 0, 0, 0, 1], &json!({})), true),
        (status("Active", [5, 0, 0, 1, 0], &json!({})), true),
    ] {
        status.times.tainted = None;
        let found = send_due(&mut Sent::default(), &status, 2);
        assert_eq!(!found.is_empty(), tells, "{found:?}");
    }
    let mut status = status("Settling", [0; 5], &json!({}));
    status.times.tainted = None;
    let spec = FailoverSpec {
        subject: Subject::Applications,
        ..spec()
    };
    let found = next(&Sent::default(), &spec, &status, at(2));
    assert!(matches!(found, Next::Now(_)), "applications have no taint");
}

#[test]
fn a_failover_that_somebody_was_reported_of_has_an_end_although_the_cause_returned_for_a_moment() {
    // The cluster was tainted, nothing had moved yet, and the receiver was notified that it began.
    // Well again; then not ready for a moment, from which nothing followed.
    let mut sent = Sent {
        began: 1,
        ..Sent::default()
    };
    let time = |minute: i64| at(minute).to_string();
    let status: FailoverStatus = serde_json::from_value(json!({
        "state": "Ended",
        "cause": { "type": "ClusterNotReady" },
        "times": { "notReady": time(3), "recovered": time(4), "ended": time(4) },
        "relapses": 1,
        "returns": [{ "recovered": time(2), "returned": time(3) }],
        "workloads": { "affected": 3 },
    }))
    .unwrap();
    assert_eq!(send_due(&mut sent, &status, 5), ["ended 1"]);
}
