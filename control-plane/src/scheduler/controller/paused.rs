//! Holds moves back while movement is paused.
//!
//! First placements, growth and shrinking go on: they take nothing from one cluster for another.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;
use muster_shared::api::binding::TargetCluster;
use muster_shared::events::EventType;

use super::{Scheduler, Subject};
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, BindingKind};
use crate::pause::Pause;
use crate::scheduler::core::outcome::Placed;

/// The clusters that lose a workload, or replicas of it, to others. A result without any cluster
/// takes from all.
fn losers<'a>(before: &'a [TargetCluster], after: &[TargetCluster]) -> Vec<&'a str> {
    let held = |list: &[TargetCluster], name: &str| {
        let target = list.iter().find(|it| it.name == name);
        target.map(|it| it.replicas)
    };
    let gains = |it: &TargetCluster| held(before, &it.name).is_none_or(|was| was < it.replicas);
    if !after.is_empty() && !after.iter().any(gains) {
        return Vec::new();
    }
    let loses = |it: &&TargetCluster| held(after, &it.name).is_none_or(|now| now < it.replicas);
    before
        .iter()
        .filter(loses)
        .map(|it| it.name.as_str())
        .collect()
}

/// The pause that holds a result back.
pub(super) fn pause_of(
    fleet: &Fleet,
    subject: &Subject<'_>,
    placed: Option<&Placed>,
    now: Timestamp,
) -> Option<Arc<Pause>> {
    let placed = placed?;
    let mut losers = losers(&subject.spec.clusters, &placed.clusters).into_iter();
    losers.find_map(|cluster| fleet.pauses.of(cluster, now))
}

impl Scheduler {
    /// Notes that a binding waits for the end of a pause.
    pub(super) fn hold<B: BindingKind>(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &B,
        pause: &Pause,
        now: Timestamp,
    ) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if paused.insert(key.clone()) {
            let note = format!("it would be placed anew and stays: {pause}");
            tracing::info!(binding = %key, "{note}");
            let events = &fleet.events;
            events.publish(binding, EventType::Warning, "MovementPaused", note);
        }
        drop(paused);
        // The pause may have ended meanwhile. By a later time than that of the decision, it would
        // be decided anew with the same result until the second is over.
        let clusters = &binding.spec().clusters;
        if clusters
            .iter()
            .all(|it| fleet.pauses.of(&it.name, now).is_none())
        {
            self.pauses_changed();
        }
    }

    /// Looks again at all bindings that waited.
    pub(super) fn pauses_changed(&self) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        for key in paused.drain() {
            self.queue.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_takes_from_one_cluster_for_another_and_growing_or_shrinking_is_none() {
        let list = |text: &str| -> Vec<TargetCluster> {
            let items = text.split_whitespace().map(|it| {
                let (name, replicas) = it.split_once('=').unwrap();
                TargetCluster {
                    name: name.to_owned(),
                    replicas: replicas.parse().unwrap(),
                    ..TargetCluster::default()
                }
            });
            items.collect()
        };
        for (before, after, expected) in [
            ("", "a=1", vec![]),
            ("a=1", "a=1", vec![]),
            ("a=1", "a=3 b=1", vec![]),
            ("a=3 b=1", "a=1", vec![]),
            ("a=3", "b=3", vec!["a"]),
            ("a=3 b=1", "a=2 b=2", vec!["a"]),
            ("a=0 b=0", "b=0 c=0", vec!["a"]),
            ("a=0 b=0", "b=0", vec![]),
            ("a=1 b=1", "", vec!["a", "b"]),
        ] {
            assert_eq!(
                losers(&list(before), &list(after)),
                expected,
                "{before} -> {after}"
            );
        }
    }
}
