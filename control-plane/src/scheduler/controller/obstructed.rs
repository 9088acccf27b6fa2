//! Keeps a move away from clusters in which the order for the workload could not be carried out.

use std::cell::Cell;

use muster_shared::api::policy::Placement;

use super::movement::losers_of;
use crate::fleet::copy::Obstacle;
use crate::scheduler::core::Snapshot;
use crate::scheduler::core::around::place_around;
use crate::scheduler::core::divide::Strategy;
use crate::scheduler::core::need::Need;
use crate::scheduler::core::outcome::{Outcome, Subject};
use crate::scheduler::core::replacement::can_keep;

/// Returns what `place` comes to without new targets in which `obstacle` keeps the order from being
/// carried out; and why the first result has to wait, if there is no other. First placements and
/// growth do not wait, nor does what a cluster that is being removed takes with it. An edit does
/// not wait for an override policy: the old copy stays until the new one can be rendered, and an
/// event says which policy keeps it from that.
///
/// A result that leaves out a copy which the first one has is no other one: the old copy would go
/// for nothing. Nor is it an answer to a request to stay where the workload is, while what is in
/// the way ends by itself.
pub(super) fn pass_around(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    pass: impl Fn(&Snapshot) -> Outcome,
    obstacle: impl Fn(&str) -> Option<Obstacle>,
) -> (Outcome, Option<String>) {
    let is_new = |name: &str| subject.spec.target(name).is_none();
    let new = |outcome: &Outcome| new_targets(subject, outcome, snapshot);
    // Whether something is in the way that ends by itself.
    let passes = Cell::new(false);
    let obstacle = |name: &str| {
        let found = obstacle(name).filter(|_| is_new(name));
        let ends = matches!(
            found,
            Some(Obstacle::CopyLeaves | Obstacle::NamespaceLeaves(_))
        );
        passes.set(passes.get() || ends);
        found
    };
    let (spec, held) = (subject.spec, subject.spec.clusters.len());
    let is_free = |it: &Placement| it.is_divided() && !Strategy::ignores_spread(it);
    let shares = spec.is_workload() && spec.placement.as_deref().is_some_and(is_free);
    // The number of clusters that another result has to have, where their number counts: as many
    // as the first, as far as there are as many now.
    let fewest = Cell::new(0);
    let place = |snapshot: &Snapshot| {
        let outcome = pass(snapshot);
        let placed = outcome.placed.as_ref();
        let count = placed.map_or(held, |it| it.clusters.len());
        // To leave a copy out is no way around, and to stay is no answer to a request.
        let drops = !shares && count < fewest.get();
        let is_asked = outcome.need == Some(Need::RescheduleRequested) && passes.get();
        let stays = is_asked && placed.is_none_or(|it| it.clusters == spec.clusters);
        if outcome.failure.is_some() || drops || stays {
            return Err(Box::new(outcome));
        }
        fewest.set(fewest.get().max(count.min(held)));
        Ok(outcome)
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
        .filter(|(_, why)| !(is_edit && is_by_override(why)))
        .map(|(name, why)| format!("{name} {why}"));
    let reasons: Vec<String> = waits_for.collect();
    let waits = (!reasons.is_empty()).then(|| reasons.join(", "));
    (first, waits)
}

/// Returns whether an override policy is in the way.
fn is_by_override(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::Override(_) | Obstacle::Emptied)
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
    use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
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
            ("emptied", &edited, on_m1, (7, &Obstacle::Emptied), "m2", 0),
        ] {
            let shut = &all[1..=shut];
            let spec = placed(deployment(2, &placement), targets);
            let applied = record(&placed(deployment(2, before), targets));
            let status = ResourceBindingStatus::default();
            let obstacle = |name: &str| shut.contains(&name).then(|| by.clone());
            let (chosen, waits) = around(&spec, &applied, &status, &all, obstacle);
            let reasons = shut.iter().take(waits_for).map(|it| format!("{it} {by}"));
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            assert_eq!(chosen.join(" "), expected, "{what}");
            assert_eq!(waits.unwrap_or_default(), reasons, "{what}");
        }
    }

    #[test]
    fn to_leave_a_copy_out_is_no_way_around() {
        let names = |all: [&str; 2]| json!({"clusterAffinity": {"clusterNames": all}});
        let (before, after) = (names(["m1", "m2"]), names(["m2", "m3"]));
        let targets = &[("m1", 2), ("m2", 2)][..];
        for (by, waits) in [
            (Obstacle::CopyLeaves, true),
            (Obstacle::Suspended, true),
            (Obstacle::Override("broken".to_owned()), false),
        ] {
            let spec = placed(deployment(2, &after), targets);
            let applied = record(&placed(deployment(2, &before), targets));
            let status = ResourceBindingStatus::default();
            let obstacle = |name: &str| (name == "m3").then(|| by.clone());
            let (chosen, held) = around(&spec, &applied, &status, &["m1", "m2", "m3"], obstacle);
            assert_eq!(chosen, ["m2", "m3"], "{by}");
            assert_eq!(held.is_some(), waits, "{by}");
        }
    }

    #[test]
    fn a_request_waits_for_what_is_still_being_removed_where_it_would_go() {
        let group =
            |name: &str, cluster: &str| json!({"affinityName": name, "clusterNames": [cluster]});
        let groups = [group("primary", "m1"), group("backup", "m2")];
        let placement = json!({"clusterAffinities": groups});
        let mut spec = placed(deployment(2, &placement), &[("m2", 2)]);
        spec.reschedule_triggered_at =
            serde_json::from_value(json!("2024-01-01T00:00:10Z")).unwrap();
        let applied = record(&spec);
        let status: ResourceBindingStatus = serde_json::from_value(json!({
            "schedulerObservingAffinityName": "backup",
            "lastScheduledTime": "2024-01-01T00:00:00Z",
        }))
        .unwrap();
        for (by, waits) in [(Obstacle::CopyLeaves, true), (Obstacle::Suspended, false)] {
            let obstacle = |name: &str| (name == "m1").then(|| by.clone());
            let (_, held) = around(&spec, &applied, &status, &["m1", "m2"], obstacle);
            assert_eq!(held.is_some(), waits, "{by}");
        }
    }

    /// Returns the clusters of what a binding comes to of which this placement was applied last,
    /// and why that waits.
    fn around(
        spec: &ResourceBindingSpec,
        applied: &str,
        status: &ResourceBindingStatus,
        clusters: &[&str],
        obstacle: impl Fn(&str) -> Option<Obstacle>,
    ) -> (Vec<String>, Option<String>) {
        let subject = Subject {
            generation: 2,
            applied_placement: Some(applied),
            spec,
            status,
        };
        let clusters: Vec<_> = clusters.iter().map(|it| cluster(it, 10)).collect();
        let options = Options::default();
        let place = |it: &Snapshot| pass(&subject, it, &options, Timestamp::UNIX_EPOCH);
        let (outcome, held) = pass_around(&subject, &snapshot(&clusters), place, obstacle);
        let chosen = outcome.placed.map(|it| it.clusters).unwrap_or_default();
        (chosen.into_iter().map(|it| it.name).collect(), held)
    }
}
