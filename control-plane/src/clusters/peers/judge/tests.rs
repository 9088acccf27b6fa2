//! What reports add up to, as a table.

use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::at;

/// Moment at which the trouble of the cluster began.
const TROUBLE: i64 = 10_000;

/// Returns a witness that is not silent, with a report since some seconds after that moment.
fn reporting(name: &str, reach: Reach, after: i64) -> Witness {
    Witness {
        name: name.to_owned(),
        is_reporting: true,
        has_lost_all: false,
        is_cut_off: false,
        report: Some((reach, at(TROUBLE + after))),
    }
}

fn silent(mut witness: Witness) -> Witness {
    witness.is_reporting = false;
    witness
}

fn alone(mut witness: Witness) -> Witness {
    witness.has_lost_all = true;
    witness.is_cut_off = true;
    witness
}

fn without_report(mut witness: Witness) -> Witness {
    witness.report = None;
    witness
}

#[test]
fn one_that_sees_the_cluster_is_enough_and_one_that_does_not_is_not() {
    use Reach::{Lost, Never, Reached};
    let (a, b) = (
        |reach, after| reporting("a", reach, after),
        |reach, after| reporting("b", reach, after),
    );
    let c = |reach, after| reporting("c", reach, after);
    for (witnesses, expected) in [
        (vec![], UNKNOWN),
        (vec![a(Reached, 0)], TRUE),
        (vec![a(Reached, 0), b(Reached, -500)], TRUE),
        (vec![a(Lost, 1), b(Lost, 2), c(Reached, -9_000)], TRUE),
        (vec![a(Lost, 1), b(Lost, 2), c(Lost, 3)], FALSE),
        (vec![a(Lost, 1), b(Lost, 2)], FALSE),
        // They lost it a little before.
        (vec![a(Lost, -250), b(Lost, -299)], FALSE),
        // One never saw it, or is silent.
        (vec![a(Lost, 1), b(Lost, 2), c(Never, 0)], FALSE),
        (vec![a(Lost, 1), b(Lost, 2), silent(c(Reached, 0))], FALSE),
        // One alone says that it has lost it, and others never saw it, are silent, have not
        // reported, have lost everybody, or lost it long before.
        (vec![a(Lost, 1)], UNKNOWN),
        (vec![a(Lost, 1), b(Never, 0), c(Never, 0)], UNKNOWN),
        (
            vec![a(Lost, 1), silent(b(Lost, 0)), silent(c(Lost, 0))],
            UNKNOWN,
        ),
        (vec![a(Lost, 1), without_report(b(Lost, 0))], UNKNOWN),
        (vec![a(Lost, 1), alone(b(Lost, 0))], UNKNOWN),
        (vec![a(Lost, 1), b(Lost, -301)], UNKNOWN),
        (vec![a(Lost, -301), b(Lost, -5_000)], UNKNOWN),
        // All are silent.
        (
            vec![
                silent(a(Reached, 0)),
                silent(b(Lost, 1)),
                silent(c(Lost, 1)),
            ],
            UNKNOWN,
        ),
        (vec![a(Never, 0), b(Never, 0), c(Never, 0)], UNKNOWN),
    ] {
        let what = format!("{witnesses:?}");
        let verdict = judge(&witnesses, Some(at(TROUBLE)), at(TROUBLE + 60));
        let Condition {
            status, message, ..
        } = &verdict.condition;
        assert_eq!(status, expected, "{what}: {message}");
        assert_eq!(verdict.again, None, "{what}");
        // The same two days later: nothing but reports changes the verdict of a cluster in trouble.
        let later = judge(&witnesses, Some(at(TROUBLE)), at(TROUBLE + 172_800));
        assert_eq!(later.condition.status, expected, "{what}");
        assert_eq!(later.condition.message, *message, "{what}");
    }
}

#[test]
fn whatever_one_of_three_says_it_does_not_make_false_of_what_two_others_say() {
    use Reach::{Lost, Never, Reached};
    let reports = [Some(Reached), Some(Lost), Some(Never), None];
    let witness = |name: &str, reach: Option<Reach>| Witness {
        report: reach.map(|reach| (reach, at(TROUBLE))),
        ..reporting(name, Reached, 0)
    };
    for first in reports {
        for second in reports {
            let honest = [witness("a", first), witness("b", second)];
            let is_lost = judge(&honest, Some(at(TROUBLE)), at(TROUBLE))
                .condition
                .status
                == FALSE;
            for lie in reports {
                let mut all = honest.to_vec();
                all.push(witness("liar", lie));
                let verdict = judge(&all, Some(at(TROUBLE)), at(TROUBLE)).condition;
                let loses = [first, second].contains(&Some(Lost));
                assert!(
                    verdict.status != FALSE || loses,
                    "{first:?} {second:?} {lie:?}"
                );
                assert!(!is_lost || lie == Some(Reached) || verdict.status == FALSE);
            }
        }
    }
}

#[test]
fn a_loss_counts_for_some_time_only_while_the_cluster_is_ready() {
    let witnesses = [
        reporting("a", Reach::Lost, 0),
        reporting("b", Reach::Lost, 20),
    ];
    for (after, expected, again) in [
        (30, FALSE, Some(at(TROUBLE + 300))),
        (300, FALSE, Some(at(TROUBLE + 300))),
        (301, UNKNOWN, Some(at(TROUBLE + 320))),
        (321, UNKNOWN, None),
    ] {
        let verdict = judge(&witnesses, None, at(TROUBLE + after));
        assert_eq!(verdict.condition.status, expected, "{after}");
        assert_eq!(verdict.again, again, "{after}");
    }
}

#[test]
fn the_message_says_who_and_since_when() {
    let since = "1970-01-01T02:46:4";
    for (witnesses, expected) in [
        (
            vec![
                reporting("a", Reach::Reached, 0),
                reporting("b", Reach::Lost, 0),
            ],
            "reached by a".to_owned(),
        ),
        (
            vec![
                reporting("a", Reach::Lost, 0),
                reporting("b", Reach::Lost, 1),
            ],
            format!("not reached by a since {since}0Z, b since {since}1Z"),
        ),
        (
            vec![
                reporting("a", Reach::Lost, 0),
                silent(reporting("b", Reach::Lost, 1)),
            ],
            format!("b is silent, not reached by a since {since}0Z"),
        ),
    ] {
        let verdict = judge(&witnesses, Some(at(TROUBLE)), at(TROUBLE));
        assert_eq!(verdict.condition.message, expected);
    }
}

fn cluster(conditions: &Value, peers: &[&str]) -> Cluster {
    let peers: Vec<Value> = peers
        .iter()
        .map(|it| json!({"name": it, "address": "https://a"}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "w", "annotations": {PEERS: json!(peers).to_string()}},
        "spec": {"syncMode": "Pull"}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let time = at(TROUBLE).to_string();
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time})
}

#[test]
fn a_witness_counts_unless_it_is_silent_new_leaving_or_registered_twice() {
    for (ready, expected) in [
        (json!([]), false),
        (json!([condition("Ready", "True", "R")]), true),
        (json!([condition("Ready", "False", "R")]), true),
        (
            json!([condition("Ready", "Unknown", "ClusterStatusUnknown")]),
            false,
        ),
        (
            json!([condition("Ready", "Unknown", "ClusterStatusNeverUpdated")]),
            false,
        ),
        (
            json!([condition("Ready", "Unknown", CREDENTIALS_REFUSED)]),
            true,
        ),
        (
            json!([
                condition("Ready", "True", "R"),
                condition(UNIQUE_IDENTITY, "False", "R")
            ]),
            false,
        ),
    ] {
        let mut witness = cluster(&ready, &[]);
        let is_reporting = |witness: &Cluster| Witness::of(witness, "m1", |_| true).is_reporting;
        assert_eq!(is_reporting(&witness), expected, "{ready}");
        let now = muster_shared::k8s::Time(at(0));
        witness.metadata.deletion_timestamp = Some(now);
        assert!(!is_reporting(&witness));
    }
}

#[test]
fn a_witness_that_has_lost_all_of_several_peers_is_cut_off_itself_if_one_of_them_lives() {
    let report = |peer: &str, status| condition(&format!("reaches.muster.io/{peer}"), status, "R");
    for (peers, reports, expected) in [
        (&["m1"][..], json!([report("m1", "False")]), false),
        (
            &["m1", "m2"],
            json!([report("m1", "False"), report("m2", "True")]),
            false,
        ),
        (
            &["m1", "m2"],
            json!([report("m1", "False"), report("m2", "False")]),
            true,
        ),
        (&["m1", "m2"], json!([report("m1", "False")]), false),
        (
            &[],
            json!([report("m1", "False"), report("m2", "False")]),
            false,
        ),
    ] {
        let cluster = cluster(&reports, peers);
        let witness = Witness::of(&cluster, "m1", |peer| peer == "m2");
        assert_eq!(witness.has_lost_all, expected, "{peers:?} {reports}");
        assert_eq!(witness.is_cut_off, expected, "{peers:?} {reports}");
        let none_lives = Witness::of(&cluster, "m1", |_| false);
        assert!(!none_lives.is_cut_off, "{peers:?} {reports}");
        assert_eq!(witness.report.unwrap().0, Reach::Lost);
    }
}

#[test]
fn the_trouble_of_a_cluster_begins_when_it_is_not_ready_or_was_lost_after_that() {
    let reported = |kind: &str, status: &str, second| {
        let mut reported = condition(kind, status, "R");
        reported["lastTransitionTime"] = json!(at(second).to_string());
        reported
    };
    for (conditions, expected) in [
        (json!([]), None),
        (json!([reported(READY, "True", 7)]), None),
        (
            json!([
                reported(READY, "True", 7),
                reported(SEEN_BY_PEERS, "False", 5)
            ]),
            None,
        ),
        (json!([reported(READY, "False", 7)]), Some(7)),
        (
            json!([
                reported(READY, "Unknown", 7),
                reported(SEEN_BY_PEERS, "True", 5)
            ]),
            Some(7),
        ),
        (
            json!([
                reported(READY, "Unknown", 7),
                reported(SEEN_BY_PEERS, "False", 5)
            ]),
            Some(5),
        ),
        (
            json!([
                reported(READY, "Unknown", 7),
                reported(SEEN_BY_PEERS, "False", 9)
            ]),
            Some(7),
        ),
    ] {
        let found = troubled_since(&cluster(&conditions, &[]));
        assert_eq!(found, expected.map(at), "{conditions}");
    }
}

#[test]
fn the_loss_of_one_region_of_two_is_seen_by_the_other() {
    use crate::clusters::peers::choose::{Candidate, choose};
    let mut wrong = Vec::new();
    for (each, per_cluster) in [(2, 2), (3, 2), (3, 3), (5, 3), (20, 3)] {
        let fleet: Vec<Candidate> = ["eu", "us"]
            .iter()
            .flat_map(|place| {
                (0..each).map(move |n| Candidate {
                    name: format!("{place}{n}"),
                    place: (*place).to_owned(),
                    has_agent: true,
                })
            })
            .collect();
        let choice = choose(&fleet, per_cluster);
        let witness = |name: &String| -> Cluster {
            let watched = &choice.watched[name];
            let peers: Vec<Value> = watched
                .iter()
                .map(|it| json!({"name": it, "address": "https://a"}))
                .collect();
            let at = at(TROUBLE + 20);
            let mut conditions = vec![
                json!({"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}),
            ];
            conditions.extend(watched.iter().map(|it| {
                let status = if it.starts_with("eu") { "False" } else { "True" };
                json!({"type": format!("reaches.muster.io/{it}"), "status": status, "reason": "", "message": "", "lastTransitionTime": at})
            }));
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {PEERS: json!(peers).to_string()}},
                "spec": {"syncMode": "Pull"}, "status": {"conditions": conditions},
            }))
            .unwrap()
        };
        for n in 0..each {
            let lost = format!("eu{n}");
            let witnesses: Vec<Witness> = choice.witnesses[&lost]
                .iter()
                .map(|it| Witness::of(&witness(it), &lost, |peer| peer.starts_with("us")))
                .collect();
            let verdict = judge(&witnesses, Some(at(TROUBLE)), at(TROUBLE + 600));
            if verdict.condition.status != FALSE {
                wrong.push(format!(
                    "2x{each}, {per_cluster} per cluster: {lost}: {} {}",
                    verdict.condition.status, verdict.condition.message
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
