use muster_shared::k8s::Condition;

use super::condition::is_older;
use super::*;
use crate::fleet::testing::at;
use crate::movement::eviction::record::Record;

#[test]
fn a_note_names_cluster_taint_and_rule() {
    let note = |state| note("member1", state);
    let cause = || "taint down:NoExecute, which is not tolerated".to_owned();
    for (state, status, reason, message) in [
        (
            EvictionState::Queued { cause: cause() },
            "True",
            "WaitingForRate",
            "member1 has taint down:NoExecute, which is not tolerated: it leaves when the eviction rate allows",
        ),
        (
            EvictionState::Stopped { cause: cause() },
            "True",
            "StoppedByThreshold",
            "member1 has taint down:NoExecute, which is not tolerated: it stays until enough clusters return, since more have failed than --unhealthy-cluster-threshold allows",
        ),
        (
            EvictionState::Evicted {
                cause: cause(),
                to: "member2".into(),
                mode: "Gracefully".into(),
                at: Timestamp::UNIX_EPOCH,
            },
            "False",
            "Evicted",
            "left member1 for member2 (Gracefully): member1 has taint down:NoExecute, which is not tolerated",
        ),
        (
            stays("", Stay::Tolerated, None).state,
            "False",
            "Tolerated",
            "stays on member1, which has taint down:NoExecute: every taint of the cluster is tolerated",
        ),
    ] {
        let condition = condition(&[note(state)], Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            (&*condition.status, &*condition.reason, &*condition.message),
            (status, reason, message)
        );
    }
}

#[test]
fn each_reason_is_that_of_a_wait_of_a_hindrance_or_of_what_stays() {
    let (cause, until) = (|| "taint x:NoExecute".to_owned(), Timestamp::UNIX_EPOCH);
    let waits = vec![
        EvictionState::Tolerated {
            cause: cause(),
            until,
        },
        EvictionState::Queued { cause: cause() },
        EvictionState::Stopped { cause: cause() },
        of(|cause, why| EvictionState::Paused { cause, why }),
        of(|cause, why| EvictionState::Unread { cause, why }),
        of(|cause, why| EvictionState::Fencing { cause, why }),
    ];
    let hindered = vec![
        of(|cause, why| EvictionState::Unfenced { cause, why }),
        of(|cause, why| EvictionState::Nowhere { cause, why }),
        of(|cause, why| EvictionState::Unpreserved { cause, why }),
    ];
    // The next attempt may succeed; what it needs is not known.
    let failed = vec![EvictionState::Failed { why: "full".into() }];
    for (all, states) in [
        (&WAITING[..], waits),
        (&STRANDED[..], hindered),
        (&["EvictWorkloadFromClusterFailed"], failed),
    ] {
        for state in states {
            let note = note("m1", state);
            assert!(
                note.is_pending() && all.contains(&note.reason()),
                "{note:?}"
            );
        }
    }
    for rule in [
        Stay::SwitchedOff,
        Stay::NoExecuteOff,
        Stay::NoTaint,
        Stay::Tolerated,
        Stay::NotAsked,
        Stay::NoPlacement,
        Stay::Empty,
        Stay::Completed,
    ] {
        let note = stays("m1", rule, None);
        assert!(
            !note.is_pending() && STAYING.contains(&note.reason()),
            "{note:?}"
        );
    }
}

fn note(cluster: &str, state: EvictionState) -> Note {
    Note {
        cluster: cluster.into(),
        state,
    }
}

/// Returns a state with a cause and a reason.
fn of(state: impl FnOnce(String, String) -> EvictionState) -> EvictionState {
    state("taint x:NoExecute".to_owned(), "full".to_owned())
}

fn nowhere(cluster: &str) -> Note {
    let state = of(|cause, why| EvictionState::Nowhere { cause, why });
    note(cluster, state)
}

fn stays(cluster: &str, rule: Stay, since: Option<i64>) -> Note {
    let (taints, since) = ("taint down:NoExecute".to_owned(), since.map(at));
    note(
        cluster,
        EvictionState::Stays {
            rule,
            taints,
            since,
        },
    )
}

fn evicted(cluster: &str, second: i64) -> Note {
    note(
        cluster,
        EvictionState::Evicted {
            cause: "taint x:NoExecute, which is not tolerated".into(),
            to: "m9".into(),
            mode: "Directly".into(),
            at: at(second),
        },
    )
}

#[test]
fn the_condition_names_every_cluster_that_has_to_be_left_whichever_was_seen_last() {
    let queued = note(
        "m1",
        EvictionState::Queued {
            cause: "taint x:NoExecute".into(),
        },
    );
    let one = condition(&[queued.clone(), nowhere("m2")], at(5)).unwrap();
    assert_eq!((&*one.status, &*one.reason), ("True", "NowhereToGo"));
    assert_eq!(
        one.message,
        "has to leave m2 and stays: full; m2 has taint x:NoExecute; m1 has taint x:NoExecute: it leaves when the eviction rate allows"
    );
    let half = condition(&[evicted("m1", 3), nowhere("m2")], at(5)).unwrap();
    assert_eq!((&*half.status, &*half.reason), ("True", "NowhereToGo"));
    let alone = condition(&[nowhere("m2")], at(5)).unwrap();
    assert_eq!(half.message, alone.message, "what is over is no part of it");
    assert_eq!(half.last_transition_time.0, at(4), "after the eviction");
    let stays = [note("m1", EvictionState::Recovered), nowhere("m2")];
    let stays = condition(&stays, at(5)).unwrap();
    assert_eq!(
        stays.message,
        "has to leave m2 and stays: full; m2 has taint x:NoExecute"
    );
}

#[test]
fn each_eviction_is_dated_by_itself_although_the_status_stays_the_same() {
    let first = merge(&[], &[evicted("m1", 100)], false, at(101)).unwrap();
    assert_eq!(first[0].last_transition_time.0, at(100));
    let second = merge(&first, &[evicted("m9", 500)], false, at(501)).unwrap();
    assert_eq!(second.len(), 1);
    assert_eq!(
        (&*second[0].status, second[0].last_transition_time.0),
        ("False", at(500))
    );
    assert_eq!(merge(&second, &[evicted("m9", 500)], false, at(502)), None);
}

#[test]
fn what_is_said_after_an_eviction_is_dated_after_it_although_the_status_stays_the_same() {
    let record = Record::new("m1", "m2", "Gracefully", "taint", at(100));
    let stays = |since| [stays("m2", Stay::NotAsked, since)];
    let first = merge(&[], &[evicted("m1", 100)], false, at(101)).unwrap();
    for since in [None, Some(99), Some(100)] {
        let reported = merge(&first, &stays(since), true, at(900));
        assert_eq!(
            reported, None,
            "taints since {since:?} are nothing new at a start"
        );
        assert!(
            merge(&first, &stays(since), false, at(900)).is_some(),
            "{since:?}"
        );
    }
    let pending = merge(&first, &[nowhere("m3")], false, at(500)).unwrap();
    let again = merge(&pending, &stays(None), false, at(900)).unwrap();
    assert_eq!(again[0].reason, "FailoverNotRequested", "nothing waits");
    let stays = stays(Some(101));
    for (now, expected) in [(900, 900), (100, 101)] {
        let second = merge(&first, &stays, false, at(now)).unwrap();
        assert_eq!(second[0].last_transition_time.0, at(expected));
        assert!(record.is_reported(&second), "{}", second[0].message);
        assert_eq!(merge(&second, &stays, false, at(950)), None, "said once");
    }
    let both = merge(&[], &[evicted("m1", 100), nowhere("m2")], false, at(101)).unwrap();
    assert!(record.is_reported(&both), "{}", both[0].message);
    let one = merge(&both, &[nowhere("m2")], true, at(900));
    assert_eq!(one, None, "a process that starts says the same");
    // Another cluster is left, and the pending notes stay the same.
    for (second, expected) in [(100, None), (101, Some(102)), (500, Some(501))] {
        let next = [evicted("m9", second), nowhere("m2")];
        let next = merge(&both, &next, false, at(900));
        let date = next.map(|it| it[0].last_transition_time.0);
        assert_eq!(date, expected.map(at), "{second}");
        let record = Record::new("m9", "m2", "Gracefully", "taint", at(second));
        assert_eq!(record.is_reported(&both), expected.is_none(), "{second}");
    }
}

#[test]
fn what_a_workload_need_not_leave_is_reported_with_its_eviction_and_not_again_by_the_next_process()
{
    // When the taint of the other cluster was added, and how the condition is dated.
    for (since, expected) in [
        (None, 100),
        (Some(90), 100),
        (Some(150), 150),
        (Some(950), 100),
    ] {
        let stays = stays("m2", Stay::NotAsked, since);
        let reported = [evicted("m1", 100), stays.clone()];
        let reported = merge(&[], &reported, false, at(900)).unwrap();
        assert_eq!(reported[0].reason, "Evicted");
        assert!(
            !reported[0].message.contains("stays"),
            "{}",
            reported[0].message
        );
        assert_eq!(
            reported[0].last_transition_time.0,
            at(expected),
            "{since:?}"
        );
        let again = merge(&reported, &[stays], true, at(990));
        assert_eq!(again.is_some(), since == Some(950), "{since:?}");
    }
}

#[test]
fn several_evictions_at_once_are_reported_in_one_condition() {
    let reported = condition(&[evicted("m1", 100), evicted("m9", 90)], at(200)).unwrap();
    for cluster in ["m1", "m9"] {
        let left = format!("left {cluster} for");
        assert!(reported.message.contains(&left), "{}", reported.message);
    }
}

#[test]
fn only_what_stays_beside_an_eviction_is_nothing_new_to_a_process_that_starts() {
    let stays = |since| stays("m2", Stay::NotAsked, Some(since));
    let left = condition(&[evicted("m1", 100)], at(100)).unwrap();
    let pending = condition(&[nowhere("m1")], at(100)).unwrap();
    let both = Condition {
        message: format!("{}; {}", pending.message, left.message),
        ..pending.clone()
    };
    let over = condition(&[note("m1", EvictionState::Recovered)], at(100)).unwrap();
    for (known, note, expected) in [
        (&left, stays(90), true),
        (&left, stays(150), false),
        (&left, note("m2", EvictionState::Recovered), false),
        (&pending, stays(90), false),
        (&both, stays(90), false),
        (&over, stays(90), false),
    ] {
        let notes = [note];
        let found = is_older(known, &notes);
        assert_eq!(found, expected, "{known:?} {notes:?}");
    }
}

#[test]
fn that_nothing_is_to_be_left_is_reported_only_where_something_was() {
    for state in [
        EvictionState::Recovered,
        EvictionState::Moved,
        EvictionState::ClusterGone,
        EvictionState::ClusterUnseen,
    ] {
        let over = [note("m1", state)];
        assert_eq!(merge(&[], &over, false, at(1)), None);
        let pending = merge(&[], &[nowhere("m1")], false, at(1)).unwrap();
        let reported = merge(&pending, &over, false, at(2)).unwrap();
        assert_eq!(reported[0].status, "False");
    }
}

fn pending() -> [EvictionState; 8] {
    let cause = || "taint x:NoExecute".to_owned();
    // From what passes by itself to what needs somebody.
    [
        EvictionState::Tolerated {
            cause: cause(),
            until: at(9),
        },
        EvictionState::Queued { cause: cause() },
        of(|cause, why| EvictionState::Fencing { cause, why }),
        EvictionState::Stopped { cause: cause() },
        of(|cause, why| EvictionState::Unfenced { cause, why }),
        of(|cause, why| EvictionState::Unpreserved { cause, why }),
        of(|cause, why| EvictionState::Nowhere { cause, why }),
        EvictionState::Failed { why: "full".into() },
    ]
}

#[test]
fn of_several_clusters_the_one_that_needs_somebody_most_gives_the_reason() {
    let turns = pending();
    for pair in turns.windows(2) {
        let (less, more) = (note("m1", pair[0].clone()), note("m2", pair[1].clone()));
        let expected = more.reason();
        for notes in [[less.clone(), more.clone()], [more, less]] {
            let condition = condition(&notes, at(0)).unwrap();
            assert_eq!(condition.reason, expected);
        }
    }
}

#[test]
fn what_needs_somebody_is_a_warning_and_what_concerns_many_can_wait() {
    let [
        tolerated,
        queued,
        fencing,
        stopped,
        unfenced,
        unpreserved,
        nowhere,
        failed,
    ] = pending();
    let stays = |rule| stays("m1", rule, None).state;
    for (state, is_urgent, severity) in [
        (tolerated, true, EventType::Normal),
        (queued, false, EventType::Normal),
        (fencing, true, EventType::Normal),
        (stopped, false, EventType::Warning),
        (unfenced, true, EventType::Warning),
        (unpreserved, true, EventType::Warning),
        (nowhere, true, EventType::Warning),
        (failed, true, EventType::Warning),
        (EvictionState::Recovered, true, EventType::Normal),
        (stays(Stay::Tolerated), false, EventType::Normal),
        (stays(Stay::NoPlacement), false, EventType::Warning),
    ] {
        let note = note("m1", state);
        assert_eq!(note.is_urgent(), is_urgent, "{note:?}");
        assert_eq!(note.severity(), severity, "{note:?}");
    }
}

#[test]
fn a_condition_names_five_clusters_and_counts_the_others() {
    for (clusters, ending) in [
        (5, "NoExecute"),
        (6, "; and 1 more clusters"),
        (100, "; and 95 more clusters"),
    ] {
        let notes: Vec<Note> = (0..clusters).map(|n| nowhere(&format!("m{n}"))).collect();
        let condition = condition(&notes, at(0)).unwrap();
        assert!(condition.message.ends_with(ending), "{}", condition.message);
    }
}

#[test]
fn a_message_names_a_cluster_and_not_one_whose_name_begins_or_ends_with_it() {
    for (message, expected) in [
        ("left m1 for m2 (Directly)", true),
        ("it stays on m1.", true),
        ("left m1, m3", true),
        ("left eu.m1 for m10", false),
        ("left m1.eu for m-m1", false),
    ] {
        let found = names_cluster(message, "m1");
        assert_eq!(found, expected, "{message}");
    }
}

#[test]
fn what_is_said_of_a_workload_that_left_nowhere_is_nothing_older() {
    let stays = |cluster| [stays(cluster, Stay::Tolerated, Some(10))];
    let queued = note("m1", EvictionState::Queued { cause: "x".into() });
    let pending = merge(&[], &[queued], false, at(100));
    let stayed = merge(&[], &stays("m1"), false, at(100));
    for known in [pending, stayed] {
        let known = known.unwrap();
        let reported = merge(&known, &stays("m2"), true, at(900));
        assert!(reported.is_some(), "{known:?}");
    }
}
