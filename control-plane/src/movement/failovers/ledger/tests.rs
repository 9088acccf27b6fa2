mod counts;

use muster_shared::api::failover_record::{CauseType, FailoverWorkload, State};
use muster_shared::names::taint::DRAIN;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::key;
use crate::movement::failovers::observed::Stranding;

const LIMITS: Limits = Limits {
    objects: 3,
    entries: 4,
    age: SignedDuration::from_hours(24),
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn cluster(name: &str, ready: (&str, i64), taints: &Value) -> Cluster {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "syncMode": "Pull", "taints": taints },
        "status": { "conditions": [{
            "type": "Ready", "status": ready.0, "reason": "R", "message": "m",
            "lastTransitionTime": at(ready.1).to_string(),
        }] },
    }))
    .unwrap()
}

fn silent(name: &str, since: i64) -> Cluster {
    cluster(name, ("Unknown", since), &json!([]))
}

fn well(name: &str, since: i64) -> Cluster {
    cluster(name, ("True", since), &json!([]))
}

/// Returns cluster `m1`, which is as said and has a taint that was added then.
fn tainted(ready: (&str, i64), key: &str, effect: &str, second: i64) -> Cluster {
    let added = at(second).to_string();
    let taint = json!([{ "key": key, "effect": effect, "timeAdded": added }]);
    cluster("m1", ready, &taint)
}

/// Returns what the binding of a workload on a cluster shows.
fn on(name: &str, cluster: &str) -> Observed {
    Observed {
        key: key(name),
        workload: FailoverWorkload {
            kind: "Deployment".to_owned(),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        },
        clusters: vec![cluster.to_owned()],
        moves: Vec::new(),
        is_applied: false,
        is_healthy: false,
        leaving: Vec::new(),
        kept: Vec::new(),
        needs_no_health: false,
        stranding: None,
    }
}

fn moved(name: &str, from: &str, to: &str, second: i64) -> Observed {
    let moved = Moved {
        subject: Subject::Cluster,
        from: from.to_owned(),
        to: to.to_owned(),
        at: at(second),
        since: None,
        cause: "taint x:NoExecute".to_owned(),
    };
    Observed {
        moves: vec![moved],
        leaving: vec![from.to_owned()],
        ..on(name, to)
    }
}

fn applied(observed: Observed) -> Observed {
    Observed {
        is_applied: true,
        ..observed
    }
}

fn healthy(observed: Observed) -> Observed {
    Observed {
        is_applied: true,
        is_healthy: true,
        leaving: Vec::new(),
        ..observed
    }
}

fn failing(name: &str, from: &str, to: &str, second: i64, since: i64) -> Observed {
    let mut observed = moved(name, from, to, second);
    observed.moves[0].subject = Subject::Applications;
    observed.moves[0].since = Some(at(since));
    observed
}

fn stranded(name: &str, cluster: &str, reason: &str) -> Observed {
    let stranding = Stranding {
        reason: reason.to_owned(),
        message: format!("has to leave {cluster} and stays"),
    };
    Observed {
        stranding: Some(stranding),
        ..on(name, cluster)
    }
}

fn new(objects: impl IntoIterator<Item = Failover>, now: i64) -> Ledger {
    Ledger::new(LIMITS, objects, at(now))
}

/// Returns a ledger that sees `m1` as silent, with the time of its last sign of life.
fn lost(since: i64, heard: Option<Timestamp>, now: i64) -> Ledger {
    let mut ledger = new([], 0);
    ledger.cluster(&silent("m1", since), heard, at(now));
    ledger
}

fn show_all(ledger: &mut Ledger, all: &[Observed], now: i64) {
    for observed in all {
        show(ledger, observed, now);
    }
}

fn show(ledger: &mut Ledger, observed: &Observed, now: i64) {
    ledger.binding(observed, &|_| false, &|_| None, at(now));
}

/// Writes all that the ledger wants, and returns the objects.
fn write(ledger: &mut Ledger, now: i64) -> Vec<Failover> {
    let names: Vec<String> = ledger.episodes.keys().cloned().collect();
    for name in names {
        if let Some(wanted) = ledger.wanted(&name, at(now)) {
            ledger.written(wanted);
        }
    }
    let objects = ledger.episodes.values().filter_map(|it| it.object.clone());
    objects.collect()
}

fn one(ledger: &mut Ledger, now: i64) -> Failover {
    let all = write(ledger, now);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

fn second(time: Option<&muster_shared::k8s::Time>) -> Option<i64> {
    time.map(|it| it.0.as_second() - at(0).as_second())
}

#[test]
fn a_lost_cluster_has_a_record_with_the_whole_story() {
    let mut ledger = lost(40, Some(at(10)), 40);
    let tainted = tainted(("Unknown", 40), "failed", "PreferNoExecute", 45);
    ledger.cluster(&tainted, Some(at(10)), at(45));
    ledger.affects(
        "m1-20270115-080010",
        &["a", "b", "c"].map(key),
        None,
        at(45),
    );
    show(&mut ledger, &moved("a", "m1", "m2", 50), 50);
    show(&mut ledger, &moved("b", "m1", "m3", 52), 52);
    show(&mut ledger, &stranded("c", "m1", "NowhereToGo"), 53);
    show(&mut ledger, &healthy(moved("a", "m1", "m2", 50)), 60);
    let record = one(&mut ledger, 61);
    let status = record.status.as_ref().unwrap();
    assert_eq!(record.name_any(), "m1-20270115-080010");
    assert_eq!(status.cause.kind, CauseType::ClusterUnreachable);
    assert_eq!(status.state, State::Active);
    assert_eq!(second(record.spec.start_time.as_ref()), Some(10));
    let times = &status.times;
    for (what, time, expected) in [
        ("silent", &times.silent_since, Some(10)),
        ("not ready", &times.not_ready, Some(40)),
        ("tainted", &times.tainted, Some(45)),
        ("first", &times.first_move, Some(50)),
        ("last", &times.last_move, Some(52)),
        ("healthy", &times.healthy, None),
        ("cleaned", &times.cleaned, None),
        ("recovered", &times.recovered, None),
    ] {
        assert_eq!(second(time.as_ref()), expected, "{what}");
    }
    let counts = status.workloads;
    assert_eq!((counts.affected, counts.moved, counts.healthy), (3, 2, 1));
    assert_eq!((counts.stranded, counts.stranded_now), (1, 1));
    let targets: Vec<_> = status
        .targets
        .iter()
        .map(|it| (&*it.cluster, it.workloads))
        .collect();
    assert_eq!(targets, [("m2", 1), ("m3", 1)]);
    assert_eq!(status.stranded[0].workload.name, "c");
    assert_eq!(status.time_to_healthy.as_ref().unwrap().median_seconds, 50);

    show(&mut ledger, &healthy(moved("b", "m1", "m3", 52)), 80);
    ledger.cluster(&well("m1", 100), None, at(100));
    let record = one(&mut ledger, 103);
    let status = record.status.unwrap();
    assert_eq!(status.state, State::Ended);
    assert_eq!(second(status.times.healthy.as_ref()), Some(80));
    assert_eq!(second(status.times.recovered.as_ref()), Some(100));
    assert_eq!(second(status.times.ended.as_ref()), Some(100));
    assert_eq!(status.workloads.stranded, 1, "the most that there were");
    assert_eq!(status.workloads.stranded_now, 0);
}

#[test]
fn a_move_keeps_the_time_at_which_it_was_first_seen_to_be_applied() {
    let mut ledger = lost(40, Some(at(10)), 40);
    show(&mut ledger, &moved("a", "m1", "m2", 50), 50);
    show(&mut ledger, &applied(moved("a", "m1", "m2", 50)), 53);
    // The report comes and goes.
    show(&mut ledger, &moved("a", "m1", "m2", 50), 54);
    show(&mut ledger, &applied(moved("a", "m1", "m2", 50)), 57);
    show(&mut ledger, &moved("b", "m1", "m2", 51), 57);
    show(&mut ledger, &healthy(moved("b", "m1", "m2", 51)), 58);
    let applied_at = |ledger: &mut Ledger, now| {
        let moves = one(ledger, now).status.unwrap().moves;
        let times = moves.iter().map(|it| second(it.applied.as_ref()));
        times.collect::<Vec<_>>()
    };
    assert_eq!(applied_at(&mut ledger, 60), [Some(53), Some(58)]);

    // A record of a version that did not know it is not completed with a time that is wrong.
    let mut old = one(&mut ledger, 60);
    for moved in &mut old.status.as_mut().unwrap().moves {
        moved.applied = None;
    }
    let mut next = new([old], 70);
    show(&mut next, &applied(moved("a", "m1", "m2", 50)), 70);
    show(&mut next, &healthy(moved("b", "m1", "m2", 51)), 70);
    next.loaded(at(70));
    assert_eq!(applied_at(&mut next, 71), [Some(70), None]);
}

#[test]
fn a_workload_that_a_short_list_leaves_out_is_followed_again_when_it_is_back() {
    let mut ledger = lost(10, None, 20);
    show(&mut ledger, &moved("web", "m1", "m2", 60), 60);
    ledger.binding_gone(&key("web"));
    let record = one(&mut ledger, 63).status.unwrap();
    assert!(record.times.healthy.is_some(), "nobody waits for it");
    show(&mut ledger, &moved("web", "m1", "m2", 60), 90);
    let record = one(&mut ledger, 93).status.unwrap();
    assert_eq!(record.workloads.moved, 1, "the move is counted once");
    assert_eq!(record.times.healthy, None, "it is waited for");
    show(&mut ledger, &healthy(moved("web", "m1", "m2", 60)), 100);
    let record = one(&mut ledger, 103).status.unwrap();
    assert_eq!(record.workloads.healthy, 1);
    assert_eq!(second(record.times.healthy.as_ref()), Some(100));
}

/// Checks that what a process that is killed at any moment wrote before is completed by the next
/// from what the bindings and clusters say, and comes to the same.
#[test]
fn a_process_that_is_killed_at_any_moment_loses_and_repeats_nothing() {
    type Step = (i64, fn(&mut Vec<Observed>, &mut Cluster));
    // What the API holds after each step.
    let steps: [Step; 8] = [
        (40, |_, cluster| *cluster = silent("m1", 40)),
        (50, |all, _| all[0] = moved("a", "m1", "m2", 50)),
        (51, |all, _| all[1] = moved("b", "m1", "m2", 51)),
        (52, |all, _| all[2] = stranded("c", "m1", "NowhereToGo")),
        (60, |all, _| all[0] = healthy(all[0].clone())),
        (61, |all, _| all[2] = moved("c", "m1", "m3", 61)),
        (62, |all, _| all[2] = healthy(all[2].clone())),
        (63, |all, _| all[1] = healthy(all[1].clone())),
    ];
    // The record is written after every step, or only before the death of the process.
    for (dies_after, writes_until) in
        (0..=steps.len()).flat_map(|it| (0..=it).map(move |w| (it, w)))
    {
        let mut all = ["a", "b", "c"].map(|it| on(it, "m1")).to_vec();
        let mut place = well("m1", 0);
        let mut ledger = new([], 0);
        let mut objects = Vec::new();
        for (n, (now, step)) in steps.iter().enumerate() {
            if n == dies_after {
                ledger = new(objects.clone(), *now);
                load(&mut ledger, &place, &all, *now);
            }
            step(&mut all, &mut place);
            ledger.cluster(&place, Some(at(10)), at(*now));
            show_all(&mut ledger, &all, *now);
            if n < writes_until || n >= dies_after {
                objects = write(&mut ledger, *now);
            }
        }
        if dies_after == steps.len() {
            ledger = new(objects.clone(), 64);
            load(&mut ledger, &place, &all, 64);
        }
        let record = one(&mut ledger, 64);
        let status = record.status.unwrap();
        let counts = status.workloads;
        let why = format!("killed after {dies_after}, written until {writes_until}");
        assert_eq!((counts.moved, counts.healthy), (3, 3), "{why}");
        assert_eq!(second(status.times.first_move.as_ref()), Some(50), "{why}");
        assert_eq!(second(status.times.last_move.as_ref()), Some(61), "{why}");
        assert_eq!(
            second(status.times.silent_since.as_ref()),
            Some(10),
            "{why}"
        );
        let targets: Vec<_> = status
            .targets
            .iter()
            .map(|it| (&*it.cluster, it.workloads))
            .collect();
        assert_eq!(targets, [("m2", 2), ("m3", 1)], "{why}");
        assert_eq!(status.moves.len(), 3, "{why}");
        let again = write(&mut ledger, 64);
        assert_eq!(
            Some(&again[0].status.clone().unwrap().workloads),
            Some(&counts),
            "{why}"
        );
    }
}

fn load(ledger: &mut Ledger, cluster: &Cluster, all: &[Observed], now: i64) {
    ledger.cluster(cluster, Some(at(10)), at(now));
    show_all(ledger, all, now);
    ledger.loaded(at(now));
}

#[test]
fn more_than_the_lists_hold_is_counted_once_whoever_counts() {
    let mut ledger = lost(40, Some(at(10)), 40);
    let names: Vec<String> = (0..10).map(|n| format!("w{n}")).collect();
    for name in &names {
        show(&mut ledger, &healthy(moved(name, "m1", "m2", 50)), 60);
    }
    let before = one(&mut ledger, 60);
    assert_eq!(before.status.as_ref().unwrap().moves.len(), LIMITS.entries);
    // Of the ten one is gone, one is ill again, and one more has moved.
    let mut next = new([before.clone()], 70);
    let mut all: Vec<Observed> = names[1..]
        .iter()
        .map(|name| healthy(moved(name, "m1", "m2", 50)))
        .collect();
    all[7].is_healthy = false;
    all.push(moved("w10", "m1", "m2", 69));
    load(&mut next, &silent("m1", 40), &all, 70);
    let after = one(&mut next, 70).status.unwrap();
    // The one that is gone hides the new one; never is more counted than there was.
    assert!(
        (10..=11).contains(&after.workloads.moved),
        "{:?}",
        after.workloads
    );
    assert_eq!(after.workloads.healthy, 10);
    show(&mut next, &healthy(all[7].clone()), 75);
    show(&mut next, &healthy(moved("w11", "m1", "m2", 76)), 77);
    let later = one(&mut next, 80).status.unwrap();
    assert_eq!(later.workloads.moved, after.workloads.moved + 1);
    assert_eq!(
        later.workloads.healthy, 11,
        "the ill one was counted before"
    );
}

#[test]
fn a_fleet_at_rest_writes_nothing_nor_does_the_next_process() {
    let mut ledger = lost(40, Some(at(10)), 40);
    let all = [
        healthy(moved("a", "m1", "m2", 50)),
        moved("b", "m1", "m2", 51),
        stranded("c", "m1", "NowhereToGo"),
    ];
    show_all(&mut ledger, &all, 60);
    let record = one(&mut ledger, 61);
    let name = record.name_any();
    for now in [70, 1_000, 1_000_000] {
        ledger.cluster(&silent("m1", 40), Some(at(10)), at(now));
        show_all(&mut ledger, &all, now);
        assert_eq!(ledger.wanted(&name, at(now)), None, "{now}");
        let mut next = new([record.clone()], now);
        load(&mut next, &silent("m1", 40), &all, now);
        assert_eq!(next.wanted(&name, at(now)), None, "{now}");
        assert_eq!(next.episodes.len(), 1);
        let tally = next.take_tally();
        assert_eq!(tally, Tally::default(), "nothing is counted again");
    }
}

#[test]
fn what_recovered_while_no_process_ran_is_recorded_from_the_bindings() {
    for (age, expected) in [(30, 1), (3_599, 1), (3_700, 0)] {
        let mut ledger = new([], 50 + age);
        ledger.cluster(&well("m1", 60), None, at(50 + age));
        show(&mut ledger, &healthy(moved("a", "m1", "m2", 50)), 50 + age);
        ledger.loaded(at(50 + age));
        let found = write(&mut ledger, 50 + age);
        assert_eq!(found.len(), expected, "{age}");
        for it in found {
            let status = it.status.unwrap();
            assert_eq!((status.state, status.workloads.moved), (State::Ended, 1));
            assert_eq!(status.cause.message, "taint x:NoExecute");
        }
    }
}

#[test]
fn a_drain_names_the_command_and_a_permanent_taint_is_no_failover() {
    let taint =
        |key: &str| json!([{ "key": key, "effect": "NoExecute", "timeAdded": at(5).to_string() }]);
    let mut ledger = new([], 0);
    ledger.cluster(&cluster("m1", ("True", 0), &taint(DRAIN)), None, at(6));
    let gpu = cluster("m2", ("True", 0), &taint("gpu"));
    ledger.cluster(&gpu, None, at(6));
    let record = one(&mut ledger, 7).status.unwrap();
    assert_eq!(record.cause.kind, CauseType::Drain);
    assert_eq!(record.cause.command.unwrap(), "kubectl muster drain m1");
    // It is one for a workload that leaves it, or cannot.
    for observed in [
        moved("a", "m2", "m3", 9),
        stranded("a", "m2", "NowhereToGo"),
    ] {
        let mut ledger = new([], 0);
        let found = |_: &str| trouble(&gpu, None, at(9));
        ledger.binding(&observed, &|_| false, &found, at(9));
        let record = one(&mut ledger, 9);
        assert_eq!(record.status.unwrap().cause.kind, CauseType::Taint);
        assert_eq!(second(record.spec.start_time.as_ref()), Some(5));
    }
}

#[test]
fn a_cluster_that_comes_and_goes_has_one_record() {
    let mut ledger = new([], 0);
    for n in 0..20 {
        let start = n * 60;
        ledger.cluster(&silent("m1", start), None, at(start));
        write(&mut ledger, start);
        ledger.cluster(&well("m1", start + 30), None, at(start + 30));
        write(&mut ledger, start + 30);
    }
    let record = one(&mut ledger, 1_200).status.unwrap();
    assert_eq!((record.relapses, record.state), (19, State::Ended));
    let last = record.returns.last().unwrap();
    let last = (
        second(last.recovered.as_ref()),
        second(last.returned.as_ref()),
    );
    assert_eq!(
        (record.returns.len(), last),
        (16, (Some(1_110), Some(1_140)))
    );
    // After a rest it is another one.
    ledger.cluster(&silent("m1", 2_000), None, at(2_000));
    assert_eq!(write(&mut ledger, 2_000).len(), 2);
}

#[test]
fn application_failovers_of_a_cluster_share_a_record() {
    let mut ledger = new([], 0);
    for n in 0..50 {
        let observed = failing(&format!("w{n}"), "m1", "m2", 100 + n, 10);
        show(&mut ledger, &observed, 100 + n);
        show(&mut ledger, &healthy(observed), 105 + n);
        write(&mut ledger, 105 + n);
    }
    let record = one(&mut ledger, 200);
    assert_eq!(record.name_any(), "m1-applications-20270115-080010");
    let status = record.status.unwrap();
    assert_eq!(status.cause.kind, CauseType::ApplicationFailure);
    assert_eq!((status.workloads.moved, status.workloads.healthy), (50, 50));
    assert_eq!(status.state, State::Ended);
    show(&mut ledger, &failing("w0", "m1", "m3", 2_000, 1_900), 2_000);
    assert_eq!(write(&mut ledger, 2_000).len(), 2);
}

#[test]
fn no_more_records_than_allowed_are_kept_and_those_of_what_goes_on_stay() {
    let mut ledger = new([], 0);
    let name = |n: i64| format!("m{n}");
    for n in 0..5 {
        ledger.cluster(&silent(&name(n), n * 10), None, at(n * 10));
        write(&mut ledger, n * 10);
    }
    assert_eq!(ledger.episodes.len(), 3, "the others are not recorded");
    assert_eq!(ledger.take_tally().refused, 2);
    // Those that end make room.
    ledger.cluster(&well("m1", 60), None, at(60));
    write(&mut ledger, 60);
    ledger.cluster(&silent("m3", 30), None, at(70));
    assert_eq!(ledger.surplus(), ["m1-20270115-080010"]);
    for name in ledger.surplus() {
        ledger.deleted(&name, at(70));
    }
    let kept: Vec<_> = write(&mut ledger, 70);
    let kept: Vec<_> = kept.iter().map(|it| &*it.spec.cluster).collect();
    assert_eq!(kept, ["m0", "m2", "m3"]);
    // What was pruned does not come again from what bindings remember.
    show(&mut ledger, &moved("a", "m1", "m2", 15), 75);
    assert_eq!(ledger.episodes.len(), 3);
    // Old ones go by their age.
    ledger.cluster(&well("m0", 80), None, at(80));
    write(&mut ledger, 80);
    ledger.prune(at(80 + 24 * 3_600));
    assert_eq!(ledger.surplus(), [""; 0]);
    ledger.prune(at(81 + 24 * 3_600));
    assert_eq!(ledger.surplus(), ["m0-20270115-080000"]);
}

#[test]
fn a_record_that_another_process_made_meanwhile_is_taken_over_and_its_moves_count_once() {
    let silence = silent("m1", 40);
    let moves: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .map(|it| moved(it, "m1", "m2", 50))
        .into();
    let mut other = new([], 0);
    other.cluster(&silence, None, at(40));
    show_all(&mut other, &moves, 50);
    let record = one(&mut other, 50);
    // This process read the records before that one was made, and has made none yet.
    let mut ledger = new([], 0);
    assert!(ledger.seen(&record, at(51)));
    show_all(&mut ledger, &moves, 51);
    ledger.loaded(at(51));
    assert!(!ledger.seen(&record, at(51)));
    ledger.cluster(&silence, None, at(52));
    let kept = one(&mut ledger, 52);
    assert_eq!(kept.name_any(), record.name_any());
    assert_eq!(kept.status.unwrap().workloads.moved, 6);
    // It ends, is pruned, and makes room as any other.
    let all: Vec<_> = moves.into_iter().map(healthy).collect();
    show_all(&mut ledger, &all, 60);
    ledger.cluster(&well("m1", 70), None, at(70));
    one(&mut ledger, 70);
    ledger.prune(at(71 + 24 * 3_600));
    assert_eq!(ledger.surplus(), [record.name_any()]);
}

#[test]
fn of_two_records_of_one_outage_the_earlier_one_ends() {
    let begun = |since: i64| {
        let mut ledger = lost(since, None, since);
        one(&mut ledger, since)
    };
    let (earlier, later) = (begun(40), begun(42));
    for objects in [[&earlier, &later], [&later, &earlier]] {
        let mut ledger = new(objects.map(Clone::clone), 50);
        ledger.loaded(at(50));
        ledger.cluster(&silent("m1", 42), None, at(50));
        let states: Vec<_> = write(&mut ledger, 50)
            .into_iter()
            .map(|it| it.status.unwrap().state)
            .collect();
        assert_eq!(states, [State::Ended, State::Active]);
        ledger.cluster(&well("m1", 60), None, at(60));
        let kept = write(&mut ledger, 60);
        let ended = |it: &Failover| it.status.as_ref().unwrap().state == State::Ended;
        assert!(kept.iter().all(ended), "{kept:?}");
    }
}

#[test]
fn a_record_that_is_deleted_by_hand_comes_again_while_the_failover_goes_on() {
    let mut ledger = lost(40, None, 40);
    show(&mut ledger, &moved("a", "m1", "m2", 50), 50);
    let record = one(&mut ledger, 50);
    ledger.deleted(&record.name_any(), at(55));
    assert_eq!(one(&mut ledger, 55).status, record.status);
    show(&mut ledger, &healthy(moved("a", "m1", "m2", 50)), 60);
    ledger.cluster(&well("m1", 70), None, at(70));
    one(&mut ledger, 70);
    ledger.deleted(&record.name_any(), at(75));
    show(&mut ledger, &healthy(moved("a", "m1", "m2", 50)), 76);
    assert_eq!(write(&mut ledger, 80), []);
}

#[test]
fn a_storm_of_ten_thousand_moves_is_one_record_of_bounded_size() {
    let mut ledger = lost(40, None, 40);
    for n in 0..10_000 {
        let observed = moved(
            &format!("w{n}"),
            "m1",
            &format!("m{}", n % 200),
            50 + n / 200,
        );
        show(&mut ledger, &observed, 50 + n / 200);
        show(&mut ledger, &healthy(observed), 60 + n / 200);
    }
    let record = one(&mut ledger, 200);
    let size = json!(record).to_string().len();
    assert!(size < 20_000, "{size}");
    let status = record.status.unwrap();
    assert_eq!(
        (status.workloads.moved, status.workloads.healthy),
        (10_000, 10_000)
    );
    let named: u32 = status.targets.iter().map(|it| it.workloads).sum();
    assert_eq!(named + status.other_targets, 10_000);
}

#[test]
fn moves_for_a_taint_of_a_person_soon_after_an_outage_are_not_counted_with_the_outage() {
    let tainted = tainted(("True", 30), "maintenance", "PreferNoExecute", 70);
    let found = |_: &str| trouble(&tainted, None, at(80));
    let mut ledger = lost(5, None, 10);
    show(&mut ledger, &moved("a", "m1", "m2", 12), 12);
    ledger.cluster(&well("m1", 30), None, at(30));
    // Known late.
    ledger.binding(&moved("b", "m1", "m2", 20), &|_| false, &found, at(80));
    ledger.cluster(&tainted, None, at(71));
    ledger.binding(&moved("c", "m1", "m2", 75), &|_| false, &found, at(80));
    let objects = write(&mut ledger, 81);
    let counts: Vec<_> = objects
        .iter()
        .map(|it| {
            let status = it.status.clone().unwrap();
            (status.cause.kind, status.workloads.moved)
        })
        .collect();
    assert_eq!(
        counts,
        [(CauseType::ClusterUnreachable, 2), (CauseType::Taint, 1)]
    );
    // The next process finds the same.
    let mut next = new(objects.clone(), 90);
    next.cluster(&tainted, None, at(91));
    for (name, second) in [("c", 75), ("b", 20), ("a", 12)] {
        next.binding(&moved(name, "m1", "m2", second), &|_| false, &found, at(91));
    }
    next.loaded(at(92));
    assert_eq!(write(&mut next, 93), objects);
}

#[test]
fn an_application_that_was_unhealthy_for_longer_than_one_before_it_has_one_record() {
    let first = healthy(failing("a", "m1", "m2", 600, 500));
    let second = healthy(failing("b", "m1", "m2", 1_700, 5));
    let mut ledger = new([], 0);
    show(&mut ledger, &first, 601);
    write(&mut ledger, 602);
    show(&mut ledger, &second, 1_701);
    // Any later report of the first, although the second one began with an older trouble.
    show(&mut ledger, &first, 1_702);
    let written = write(&mut ledger, 1_703);
    let moved = written
        .iter()
        .map(|it| it.status.as_ref().unwrap().workloads.moved);
    assert_eq!(moved.collect::<Vec<_>>(), [1, 1]);
    let mut objects = written.clone();
    for _ in 0..2 {
        let mut next = new(objects.clone(), 3_000);
        show(&mut next, &second, 3_001);
        show(&mut next, &first, 3_001);
        next.loaded(at(3_002));
        assert_eq!(write(&mut next, 3_003), written, "nothing to add");
        objects.reverse();
    }
}

#[test]
fn a_cluster_that_fails_soon_after_a_drain_has_a_record_of_its_own_and_so_has_the_reverse() {
    let drain = |second| tainted(("True", 0), DRAIN, "NoExecute", second);
    for (what, first, second, kinds) in [
        (
            "silent after a drain",
            drain(0),
            silent("m1", 70),
            [CauseType::Drain, CauseType::ClusterUnreachable],
        ),
        (
            "drained after a silence",
            silent("m1", 0),
            drain(70),
            [CauseType::ClusterUnreachable, CauseType::Drain],
        ),
    ] {
        for restarts in [false, true] {
            let mut ledger = new([], 0);
            let mut objects = Vec::new();
            for (failing, name, start) in [(&first, "a", 0), (&second, "b", 70)] {
                ledger.cluster(failing, None, at(start + 1));
                show(&mut ledger, &moved(name, "m1", "m2", start + 2), start + 2);
                objects = write(&mut ledger, start + 3);
                if restarts {
                    ledger = new(objects.clone(), start + 4);
                    ledger.cluster(failing, None, at(start + 4));
                    ledger.loaded(at(start + 4));
                }
                ledger.cluster(&well("m1", start + 30), None, at(start + 30));
                write(&mut ledger, start + 31);
            }
            let found: Vec<_> = objects
                .iter()
                .map(|it| {
                    let status = it.status.clone().unwrap();
                    (status.cause.kind, status.workloads.moved, status.relapses)
                })
                .collect();
            let [one, two] = kinds.clone();
            assert_eq!(found, [(one, 1, 0), (two, 1, 0)], "{what} {restarts}");
        }
    }
}

#[test]
fn a_taint_that_comes_back_ten_times_and_keeps_a_workload_is_one_record_whoever_reports() {
    let since = |second| tainted(("True", 0), "gpu", "NoExecute", second);
    let stays = stranded("a", "m1", "StoppedByThreshold");
    let mut free = stays.clone();
    free.stranding = None;
    for restarts in [false, true] {
        let mut ledger = new([], 0);
        for n in 0..11 {
            let start = n * 60;
            let tainted = since(start);
            let found = |_: &str| trouble(&tainted, None, at(start + 1));
            // Whichever of the two is shown first, and however often.
            for _ in 0..3 {
                ledger.binding(&stays, &|_| true, &found, at(start + 1));
                ledger.cluster(&tainted, None, at(start + 1));
            }
            let objects = write(&mut ledger, start + 2);
            if n == 1 {
                let status = objects[0].status.clone().unwrap();
                assert_eq!((status.times.recovered, status.relapses), (None, 1));
                let (stranded, held) = (status.workloads.stranded, status.workloads.held_now);
                assert_eq!((stranded, held), (0, 1));
                let [back] = &status.returns[..] else {
                    panic!("{:?}", status.returns);
                };
                let times = (
                    second(back.recovered.as_ref()),
                    second(back.returned.as_ref()),
                );
                assert_eq!(times, (Some(30), Some(60)));
            }
            if restarts {
                ledger = new(objects.clone(), start + 3);
                ledger.cluster(&tainted, None, at(start + 3));
                ledger.binding(&stays, &|_| true, &found, at(start + 3));
                ledger.loaded(at(start + 3));
                assert_eq!(write(&mut ledger, start + 4), objects, "nothing to add");
            }
            ledger.cluster(&well("m1", start + 30), None, at(start + 30));
            ledger.binding(&free, &|_| true, &|_| None, at(start + 30));
            write(&mut ledger, start + 30);
        }
        let record = one(&mut ledger, 700).status.unwrap();
        assert_eq!((record.relapses, record.state), (10, State::Ended));
        assert_eq!(record.workloads.stranded_now, 0);
        // Deleted by hand: the taint that comes again has a record of its own.
        let name = ledger.episodes.keys().next().unwrap().clone();
        ledger.episodes.remove(&name);
        let tainted = since(720);
        let found = |_: &str| trouble(&tainted, None, at(721));
        ledger.binding(&stays, &|_| true, &found, at(721));
        let record = one(&mut ledger, 722);
        assert_eq!(record.status.unwrap().relapses, 0);
    }
}

#[test]
fn a_drain_by_a_clock_that_is_behind_is_one_record_whoever_restarts() {
    let drained = tainted(("True", 130), DRAIN, "NoExecute", 0);
    let mut ledger = lost(100, None, 101);
    show(&mut ledger, &moved("a", "m1", "m2", 102), 102);
    ledger.cluster(&well("m1", 130), None, at(130));
    ledger.cluster(&drained, None, at(140));
    let mut objects = write(&mut ledger, 141);
    assert_eq!(objects.len(), 2);
    for restart in 0..3 {
        let now = 150 + restart;
        let mut next = new(objects.clone(), now);
        next.cluster(&drained, None, at(now));
        next.loaded(at(now));
        objects = write(&mut next, now);
    }
    assert_eq!(objects.len(), 2, "a restart adds none");
}

#[test]
fn a_record_that_a_clock_behind_dates_before_one_that_ended_goes_on_whoever_restarts() {
    let drained = tainted(("True", 130), DRAIN, "NoExecute", 10);
    let mut ledger = lost(100, None, 101);
    ledger.cluster(&well("m1", 130), None, at(130));
    write(&mut ledger, 131);
    ledger.cluster(&drained, None, at(11));
    let states = |objects: Vec<Failover>| {
        let state = |it: Failover| it.status.unwrap().state;
        objects.into_iter().map(state).collect::<Vec<_>>()
    };
    let objects = write(&mut ledger, 12);
    let expected = [State::Active, State::Ended];
    assert_eq!(states(objects.clone()), expected);
    for now in [13, 200] {
        for is_reversed in [false, true] {
            let mut shown = objects.clone();
            if is_reversed {
                shown.reverse();
            }
            let mut next = new(shown, now);
            next.cluster(&drained, None, at(now));
            next.loaded(at(now));
            let found = states(write(&mut next, now));
            assert_eq!(found, expected, "{now} {is_reversed}");
        }
    }
}

#[test]
fn a_record_that_was_read_without_its_cause_gets_it_later_or_says_that_nobody_wrote_it() {
    for is_written in [true, false] {
        let mut begun = lost(40, Some(at(10)), 40);
        let whole = one(&mut begun, 40);
        let bare = Failover {
            status: None,
            ..whole.clone()
        };
        let mut ledger = new([bare], 50);
        ledger.loaded(at(50));
        ledger.cluster(&well("m1", 60), None, at(60));
        let name = whole.name_any();
        let status = ledger.wanted(&name, at(60)).unwrap().status.unwrap();
        assert_eq!(status.cause.kind, CauseType::ClusterNotReady, "nobody says");
        let mut stored = whole;
        if is_written {
            stored.metadata.resource_version = Some("9".to_owned());
            ledger.seen(&stored, at(61));
        }
        let later = 60 + 24 * 3_600;
        let status = ledger.wanted(&name, at(later)).unwrap().status.unwrap();
        let expected = if is_written {
            CauseType::ClusterUnreachable
        } else {
            CauseType::ClusterNotReady
        };
        assert_eq!(status.cause.kind, expected);
        assert_eq!(second(status.times.recovered.as_ref()), Some(60));
    }
}

#[test]
fn a_record_without_its_cause_is_written_although_a_workload_never_becomes_healthy() {
    for subject in [Subject::Cluster, Subject::Applications] {
        let observed = match subject {
            Subject::Applications => failing("w", "m1", "m2", 45, 10),
            _ => moved("w", "m1", "m2", 45),
        };
        let mut begun = new([], 0);
        if subject == Subject::Cluster {
            begun.cluster(&silent("m1", 40), Some(at(10)), at(40));
        }
        show(&mut begun, &observed, 45);
        let whole = one(&mut begun, 46);
        let bare = Failover {
            status: None,
            ..whole.clone()
        };
        let mut ledger = new([bare], 50);
        ledger.cluster(&well("m1", 50), None, at(50));
        show(&mut ledger, &observed, 50);
        ledger.loaded(at(50));
        let wanted = ledger.wanted(&whole.name_any(), at(50 + 24 * 3_600));
        let status = wanted.expect("it is written").status.unwrap();
        assert_eq!((status.state, status.workloads.moved), (State::Settling, 1));
    }
}

#[test]
fn the_removal_of_a_cluster_by_a_person_is_no_failover() {
    let mut ledger = new([], 0);
    let mut leaving = silent("m1", 40);
    leaving.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(at(10)));
    ledger.cluster(&leaving, Some(at(30)), at(41));
    ledger.cluster_gone("m1", at(50));
    assert!(
        write(&mut ledger, 51).is_empty(),
        "its agent was ended with it"
    );
    // One that had failed before somebody gave it up has its record.
    ledger.cluster(&silent("m2", 40), Some(at(30)), at(41));
    let mut given_up = silent("m2", 40);
    given_up.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(at(60)));
    ledger.cluster(&given_up, Some(at(30)), at(61));
    assert_eq!(write(&mut ledger, 62).len(), 1);
}
