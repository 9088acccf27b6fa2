//! What a record counts, and when what it speaks of began and ended.

use super::*;
use crate::movement::failovers::cause::LONGEST_LIST;
use crate::movement::failovers::episode::add_all;

#[test]
fn what_left_and_what_is_still_there_is_affected_and_nothing_twice() {
    let mut ledger = lost(0, None, 10);
    show(&mut ledger, &moved("a", "m1", "m2", 20), 20);
    show(&mut ledger, &moved("b", "m1", "m2", 21), 21);
    let affected = |ledger: &mut Ledger| {
        let status = one(ledger, 30).status.unwrap();
        (status.workloads.affected, status.workloads.moved)
    };
    assert_eq!(affected(&mut ledger), (2, 2));
    // One that left may be placed there still, where its old copy is kept.
    let name = ledger.episodes.keys().next().unwrap().clone();
    assert_eq!(ledger.failed_cluster(&name).as_deref(), Some("m1"));
    ledger.affects(&name, &["a", "c"].map(key), None, at(30));
    assert_eq!(affected(&mut ledger), (3, 2));
    let targets = one(&mut ledger, 40).status.unwrap().targets;
    assert_eq!(json!(targets), json!([{"cluster": "m2", "workloads": 2}]));
}

#[test]
fn a_workload_that_moves_again_when_the_cause_returns_counts_once_whoever_counts() {
    let mut ledger = lost(0, None, 10);
    show(&mut ledger, &healthy(moved("a", "m1", "m2", 20)), 25);
    show(&mut ledger, &healthy(moved("b", "m1", "m2", 21)), 26);
    ledger.cluster(&well("m1", 40), None, at(40));
    write(&mut ledger, 50);
    ledger.cluster(&silent("m1", 100), None, at(110));
    let again = healthy(moved("a", "m1", "m3", 120));
    show(&mut ledger, &again, 130);
    let counts = |ledger: &mut Ledger, now| {
        let status = one(ledger, now).status.unwrap();
        let counts = status.workloads;
        let counts = (counts.affected, counts.moved, counts.healthy);
        (counts, status.moves.len(), status.relapses)
    };
    assert_eq!(counts(&mut ledger, 140), ((2, 2, 2), 3, 1));
    // The next process reads the record, and sees what bindings remember.
    let mut next = new([one(&mut ledger, 150)], 150);
    let all = [again, healthy(moved("b", "m1", "m2", 21))];
    load(&mut next, &silent("m1", 100), &all, 160);
    assert_eq!(counts(&mut next, 170), ((2, 2, 2), 3, 1));
    show(&mut next, &healthy(moved("b", "m1", "m3", 180)), 190);
    assert_eq!(counts(&mut next, 200), ((2, 2, 2), 4, 1));
}

#[test]
fn a_relapse_keeps_the_cause_of_a_failover_that_moved_or_stranded_something() {
    let fails_again = cluster("m1", ("False", 100), &json!([]));
    for (observed, kind, silent_since, not_ready) in [
        (None, CauseType::ClusterNotReady, None, 100),
        (
            Some(moved("a", "m1", "m2", 20)),
            CauseType::ClusterUnreachable,
            Some(0),
            5,
        ),
        (
            Some(stranded("a", "m1", "NowhereToGo")),
            CauseType::ClusterUnreachable,
            Some(0),
            5,
        ),
    ] {
        let mut ledger = lost(5, Some(at(0)), 10);
        if let Some(observed) = &observed {
            show(&mut ledger, observed, 20);
        }
        write(&mut ledger, 30);
        ledger.cluster(&well("m1", 40), None, at(40));
        write(&mut ledger, 50);
        ledger.cluster(&fails_again, None, at(100));
        let status = one(&mut ledger, 110).status.unwrap();
        let reported = (
            status.cause.kind,
            second(status.times.silent_since.as_ref()),
        );
        assert_eq!(reported, (kind, silent_since), "{observed:?}");
        assert_eq!(second(status.times.not_ready.as_ref()), Some(not_ready));
        assert_eq!(status.relapses, 1, "{observed:?}");
    }
}

#[test]
fn a_cluster_recovered_when_it_says_so_if_that_can_be() {
    for (since, expected) in [(30, 30), (40, 40), (50, 40), (10, 40), (5, 40)] {
        let mut ledger = lost(10, None, 20);
        write(&mut ledger, 20);
        ledger.cluster(&well("m1", since), None, at(40));
        let status = one(&mut ledger, 45).status.unwrap();
        let recovered = second(status.times.recovered.as_ref());
        assert_eq!(recovered, Some(expected), "{since}");
    }
}

#[test]
fn reasons_are_reported_with_the_number_of_workloads_that_each_keeps() {
    let mut ledger = lost(0, None, 10);
    for (name, reason) in [("a", "Full"), ("b", "Full"), ("c", "Stopped")] {
        show(&mut ledger, &stranded(name, "m1", reason), 20);
    }
    let reported = |ledger: &mut Ledger, now| {
        let status = one(ledger, now).status.unwrap();
        let now = (status.workloads.stranded_now, status.workloads.stranded);
        (now, json!(status.stranded_reasons))
    };
    let first = json!([{"reason": "Full", "workloads": 2}, {"reason": "Stopped", "workloads": 1}]);
    assert_eq!(reported(&mut ledger, 21), ((3, 3), first));
    // The same number for other reasons is reported, fewer are not.
    show(&mut ledger, &stranded("b", "m1", "Stopped"), 30);
    let second = json!([{"reason": "Full", "workloads": 1}, {"reason": "Stopped", "workloads": 2}]);
    assert_eq!(reported(&mut ledger, 31), ((3, 3), second.clone()));
    show(&mut ledger, &on("a", "m1"), 40);
    assert_eq!(reported(&mut ledger, 41), ((2, 3), second));
}

#[test]
fn a_list_of_causes_has_each_once_and_an_end() {
    let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let mut known = names(&["a"]);
    add_all(&mut known, &names(&["a", "b", "b"]));
    assert_eq!(known, names(&["a", "b"]));
    let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    add_all(&mut known, &many);
    assert_eq!(known.len(), LONGEST_LIST);
    assert_eq!(known[..3], names(&["a", "b", "0"]));
}

#[test]
fn a_workload_that_the_threshold_or_a_pause_holds_is_held_and_not_stranded() {
    let mut ledger = lost(0, None, 10);
    for (name, reason) in [
        ("a", "StoppedByThreshold"),
        ("b", "Paused"),
        ("c", "NowhereToGo"),
    ] {
        show(&mut ledger, &stranded(name, "m1", reason), 20);
    }
    let reported = |ledger: &mut Ledger, now| {
        let status = one(ledger, now).status.unwrap();
        let counts = status.workloads;
        (
            (counts.stranded, counts.stranded_now),
            (counts.held, counts.held_now),
            json!(status.stranded_reasons),
        )
    };
    let reasons = json!([{"reason": "NowhereToGo", "workloads": 1}]);
    assert_eq!(reported(&mut ledger, 21), ((1, 1), (2, 2), reasons.clone()));
    let counted = ledger.take_tally().counted;
    let counted: Vec<_> = counted
        .iter()
        .map(|(_, it)| (it.stranded, it.held))
        .collect();
    assert_eq!(counted, [(1, 2)]);
    show(&mut ledger, &on("a", "m1"), 30);
    show(&mut ledger, &on("c", "m1"), 30);
    assert_eq!(reported(&mut ledger, 31), ((1, 0), (2, 1), reasons));
}

#[test]
fn a_record_is_counted_anew_when_a_workload_is_placed_in_its_cluster_while_that_fails() {
    let mut ledger = lost(0, None, 10);
    write(&mut ledger, 20);
    ledger.take_dirty();
    // The cache lacked it when the record was written.
    for (observed, expected) in [(on("a", "m2"), 0), (on("a", "m1"), 1)] {
        show(&mut ledger, &observed, 30);
        assert_eq!(
            ledger.take_dirty().len(),
            expected,
            "{:?}",
            observed.clusters
        );
    }
    ledger.cluster(&well("m1", 40), None, at(40));
    ledger.take_dirty();
    show(&mut ledger, &on("b", "m1"), 50);
    assert_eq!(ledger.take_dirty().len(), 0, "it is over");
}

#[test]
fn copies_that_their_policies_stop_in_a_silent_cluster_are_reported_once_they_stop() {
    let after = Some(SignedDuration::from_secs(60));
    for (what, fenced, back, expected) in [
        ("silent for long enough", after, 61, Some(60)),
        ("back before", after, 59, None),
        ("no policy asks for it", None, 61, None),
    ] {
        let mut ledger = lost(40, Some(at(0)), 40);
        let name = ledger.episodes.keys().next().unwrap().clone();
        let left = ledger.affects(&name, &[key("a")], fenced, at(41));
        assert_eq!(
            left,
            fenced.map(|_| SignedDuration::from_secs(19)),
            "{what}"
        );
        let stopped = |ledger: &mut Ledger, now| {
            let times = one(ledger, now).status.unwrap().times;
            second(times.stopped.as_ref())
        };
        assert_eq!(stopped(&mut ledger, 50), None, "{what}");
        ledger.cluster(&well("m1", back), Some(at(back)), at(back));
        assert_eq!(stopped(&mut ledger, 90), expected, "{what}");
    }
}

#[test]
fn a_failover_ends_without_what_is_not_to_come() {
    let moved = || moved("a", "m1", "m2", 20);
    let beside = |kept: &[&str]| Observed {
        leaving: vec!["m1".to_owned()],
        kept: kept.iter().map(|it| (*it).to_owned()).collect(),
        ..healthy(moved())
    };
    let alone = |needs_no_health| Observed {
        clusters: Vec::new(),
        leaving: Vec::new(),
        needs_no_health,
        ..moved()
    };
    // Whether it ends, and whether it says that all are healthy and that all old copies are gone.
    for (what, observed, expected) in [
        ("its old copy is to go", beside(&[]), (false, true, false)),
        ("it is kept for ever", beside(&["m1"]), (true, true, false)),
        ("it has no cluster", alone(false), (false, false, true)),
        ("it is scaled to zero", alone(true), (true, false, true)),
    ] {
        let has_copy = |_: &str| !observed.leaving.is_empty();
        let mut ledger = lost(0, None, 10);
        ledger.binding(&moved(), &|_| true, &|_| None, at(20));
        ledger.binding(&observed, &has_copy, &|_| None, at(25));
        ledger.cluster(&well("m1", 40), None, at(40));
        let record = one(&mut ledger, 45);
        let status = record.status.clone().unwrap();
        let times = &status.times;
        let reported = (times.healthy.is_some(), times.cleaned.is_some());
        let is_ended = status.state == State::Ended;
        assert_eq!((is_ended, reported.0, reported.1), expected, "{what}");
        // The next process finds nothing to write.
        let mut next = new([record], 50);
        next.cluster(&well("m1", 40), None, at(50));
        next.binding(&observed, &has_copy, &|_| None, at(50));
        next.loaded(at(50));
        assert_eq!(one(&mut next, 55).status.unwrap(), status, "{what}");
    }
}
