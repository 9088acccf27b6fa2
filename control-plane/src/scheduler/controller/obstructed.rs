//! Keeps a move away from clusters in which the order for the workload could not be carried out.

use super::movement::losers_of;
use crate::scheduler::core::outcome::{Outcome, Subject};
use crate::scheduler::core::replacement::can_keep;
use crate::scheduler::core::{ClusterInfo, Snapshot};

/// Number of placements that are tried for a move, each without the clusters that could not have
/// carried out the ones before. Before the last one all clusters are asked.
const ROUNDS: usize = 5;

/// Returns what `place` comes to without new targets in which `obstacle` keeps the order from being
/// carried out; and why the first result has to wait, if there is no other. First placements and
/// growth do not wait, nor does what a cluster that is being removed takes with it.
pub(super) fn place_around(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    place: impl Fn(&Snapshot) -> Outcome,
    obstacle: impl Fn(&str) -> Option<String>,
) -> (Outcome, Option<String>) {
    let first = place(snapshot);
    let mut found = obstructed(subject, &first, snapshot, &obstacle);
    if found.is_empty() {
        return (first, None);
    }
    let (mut closing, mut reasons) = (snapshot.clone(), Vec::new());
    for round in 1..=ROUNDS {
        if round == ROUNDS {
            // Most clusters seem to be obstructed: the others are found at once.
            found = among(subject, &closing, &obstacle);
        }
        for (name, why) in found {
            closing = closing.closing(&name);
            reasons.push(format!("{name} {why}"));
        }
        let next = place(&closing);
        if next.failure.is_some() {
            break;
        }
        found = obstructed(subject, &next, snapshot, &obstacle);
        if found.is_empty() {
            return (next, None);
        }
    }
    (first, Some(reasons.join(", ")))
}

/// Returns the new targets of a move in which something keeps the order from being carried out.
fn obstructed(
    subject: &Subject<'_>,
    outcome: &Outcome,
    snapshot: &Snapshot,
    obstacle: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let placed = outcome.placed.as_ref();
    let Some(placed) = placed.filter(|it| !it.is_known(subject)) else {
        return Vec::new();
    };
    let losers = losers_of(subject, outcome, snapshot);
    if losers.is_empty() || !losers.iter().all(|it| can_keep(snapshot, it)) {
        return Vec::new();
    }
    let names = placed.clusters.iter().map(|it| it.name.as_str());
    let new = names.filter(|name| subject.spec.target(name).is_none());
    new.filter_map(|name| Some((name.to_owned(), obstacle(name)?)))
        .collect()
}

/// Returns the clusters that are not closed, do not have the workload, and in which something keeps
/// the order from being carried out.
fn among(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    obstacle: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let names = snapshot.iter().map(ClusterInfo::name);
    let new = names.filter(|name| !snapshot.is_closed(name) && subject.spec.target(name).is_none());
    new.filter_map(|name| Some((name.to_owned(), obstacle(name)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_shared::api::binding::ResourceBindingStatus;
    use serde_json::json;

    use super::*;
    use crate::scheduler::core::Options;
    use crate::scheduler::core::outcome::pass;
    use crate::scheduler::core::record::record;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    #[test]
    fn a_move_goes_to_the_next_cluster_or_waits_where_its_order_could_not_be_carried_out() {
        let one = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
        let placement = json!({
            "clusterAffinity": {"exclude": ["m1"]}, "spreadConstraints": one,
        });
        let all = ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8"];
        for (what, targets, shut, count, expected, why) in [
            (
                "nothing is in the way",
                &[("m1", 2)][..],
                &all[..0],
                3,
                "m2",
                "",
            ),
            ("the first is", &[("m1", 2)], &["m2"], 3, "m3", ""),
            (
                "all are",
                &[("m1", 2)],
                &["m2", "m3"],
                3,
                "m2",
                "m2 is shut, m3 is shut",
            ),
            ("many are", &[("m1", 2)], &all[1..7], 8, "m8", ""),
            (
                "all of many are",
                &[("m1", 2)],
                &all[1..8],
                8,
                "m2",
                "m2 is shut, m3 is shut, m4 is shut, m5 is shut, m6 is shut, m7 is shut, m8 is shut",
            ),
            ("a first placement", &[], &["m2"], 3, "m2", ""),
        ] {
            let spec = placed(deployment(2, &placement), targets);
            let applied = record(&spec);
            let status = ResourceBindingStatus::default();
            let subject = Subject {
                generation: 2,
                applied_placement: Some(&applied),
                spec: &spec,
                status: &status,
            };
            let clusters: Vec<_> = all[..count].iter().map(|it| cluster(it, 10)).collect();
            let place = |snapshot: &Snapshot| {
                pass(
                    &subject,
                    snapshot,
                    &Options::default(),
                    Timestamp::UNIX_EPOCH,
                )
            };
            let obstacle = |name: &str| shut.contains(&name).then(|| "is shut".to_owned());
            let snapshot = snapshot(&clusters);
            let (outcome, waits) = place_around(&subject, &snapshot, place, obstacle);
            let chosen = outcome.placed.expect("there are clusters").clusters;
            let names: Vec<_> = chosen.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(
                (names.join(" "), waits.unwrap_or_default()),
                (expected.to_owned(), why.to_owned()),
                "{what}"
            );
        }
    }
}
