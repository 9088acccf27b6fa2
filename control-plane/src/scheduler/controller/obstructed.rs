//! Keeps a move away from clusters in which the order for the workload could not be carried out.

use super::movement::losers_of;
use crate::fleet::copy::Obstacle;
use crate::scheduler::core::Snapshot;
use crate::scheduler::core::around::place_around;
use crate::scheduler::core::need::Need;
use crate::scheduler::core::outcome::{Outcome, Subject};
use crate::scheduler::core::replacement::can_keep;

/// Returns what `place` comes to without new targets in which `obstacle` keeps the order from being
/// carried out; and why the first result has to wait, if there is no other. First placements and
/// growth do not wait, nor does what a cluster that is being removed takes with it. An edit does
/// not wait for an override policy: the old copy stays until the new one can be rendered, and an
/// event says which policy keeps it from that.
pub(super) fn pass_around(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    pass: impl Fn(&Snapshot) -> Outcome,
    obstacle: impl Fn(&str) -> Option<Obstacle>,
) -> (Outcome, Option<String>) {
    let is_new = |name: &str| subject.spec.target(name).is_none();
    let new = |outcome: &Outcome| new_targets(subject, outcome, snapshot);
    let obstacle = |name: &str| obstacle(name).filter(|_| is_new(name));
    let place = |snapshot: &Snapshot| {
        let outcome = pass(snapshot);
        if outcome.failure.is_none() {
            Ok(outcome)
        } else {
            Err(Box::new(outcome))
        }
    };
    let obstructed = match place_around(snapshot, place, new, obstacle) {
        Ok(outcome) => return (outcome, None),
        Err(obstructed) => obstructed,
    };
    let Some(first) = obstructed.first else {
        return (*obstructed.failure, None);
    };
    let is_edit = first.need == Some(Need::PlacementChanged);
    let waits_for = obstructed
        .obstacles
        .iter()
        .filter(|(_, why)| !(is_edit && matches!(why, Obstacle::Override(_))))
        .map(|(name, why)| format!("{name} {why}"));
    let reasons: Vec<String> = waits_for.collect();
    let waits = (!reasons.is_empty()).then(|| reasons.join(", "));
    (first, waits)
}

/// Returns the clusters that a move gives the workload to.
fn new_targets(subject: &Subject<'_>, outcome: &Outcome, snapshot: &Snapshot) -> Vec<String> {
    let placed = outcome.placed.as_ref();
    let Some(placed) = placed.filter(|it| !it.is_known(subject)) else {
        return Vec::new();
    };
    let losers = losers_of(subject, outcome, snapshot);
    if losers.is_empty() || !losers.iter().all(|it| can_keep(snapshot, it)) {
        return Vec::new();
    }
    let names = placed.clusters.iter().map(|it| &it.name);
    let new = names.filter(|name| subject.spec.target(name).is_none());
    new.cloned().collect()
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
        let (leaves, broken) = (
            Obstacle::CopyLeaves,
            Obstacle::Override("broken".to_owned()),
        );
        let edited = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
        let (same, on_m1) = (&placement, &[("m1", 2)][..]);
        // Each case: the obstacle, and the number of clusters beside m1 that have it.
        for (what, before, targets, (shut, by), expected, waits_for) in [
            ("nothing is", same, on_m1, (0, &leaves), "m2", 0),
            ("in the first", same, on_m1, (1, &leaves), "m3", 0),
            ("in many", same, on_m1, (6, &leaves), "m8", 0),
            ("in all", same, on_m1, (7, &leaves), "m2", 3),
            ("it is new", same, &[][..], (1, &leaves), "m2", 0),
            ("no override", same, on_m1, (7, &broken), "m2", 3),
            ("an edit", &edited, on_m1, (1, &leaves), "m3", 0),
            ("to none", &edited, on_m1, (7, &leaves), "m2", 3),
            ("unfit", &edited, on_m1, (7, &broken), "m2", 0),
        ] {
            let shut = &all[1..=shut];
            let spec = placed(deployment(2, &placement), targets);
            let applied = record(&placed(deployment(2, before), targets));
            let status = ResourceBindingStatus::default();
            let subject = Subject {
                generation: 2,
                applied_placement: Some(&applied),
                spec: &spec,
                status: &status,
            };
            let clusters: Vec<_> = all.iter().map(|it| cluster(it, 10)).collect();
            let place = |snapshot: &Snapshot| {
                pass(
                    &subject,
                    snapshot,
                    &Options::default(),
                    Timestamp::UNIX_EPOCH,
                )
            };
            let obstacle = |name: &str| shut.contains(&name).then(|| by.clone());
            let snapshot = snapshot(&clusters);
            let (outcome, waits) = pass_around(&subject, &snapshot, place, obstacle);
            let chosen = outcome.placed.expect("there are clusters").clusters;
            let names: Vec<_> = chosen.iter().map(|it| it.name.as_str()).collect();
            let reasons = shut.iter().take(waits_for).map(|it| format!("{it} {by}"));
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            assert_eq!(names.join(" "), expected, "{what}");
            assert_eq!(waits.unwrap_or_default(), reasons, "{what}");
        }
    }
}
