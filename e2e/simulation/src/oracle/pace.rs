//! Safety contract 3: a bounded blast radius.
//!
//! All moves, evictions and new placements that were requested, share one rate: the primary one
//! while at most the threshold's fraction of the clusters has failed, beyond that the secondary one
//! in a large fleet and none in a small one. The oracle keeps an account that is filled at the
//! highest rate that anybody may have believed to apply, and never holds more than one move and
//! what may have been paid for and not been carried out yet.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::asked;
use super::moves::{self, Move, What};
use super::objects::{self, Binding};
use super::scene::Scene;
use super::{Oracle, Rules, Violation};
use crate::history::{Actor, Entry};

const NAME: &str = "pace";

/// Annotation of a binding with the placement by which it was scheduled.
const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";

/// The oracle.
#[derive(Debug, Default)]
pub struct Pace {
    /// Rates with the time at which each began to apply, the oldest first.
    rates: VecDeque<(Timestamp, f64)>,
    /// Evictions that may be made now.
    saved: f64,
    /// When the account was filled last.
    filled: Option<Timestamp>,
}

impl Oracle for Pace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        self.fill(scene);
        if self.rates.is_empty()
            || entry
                .commit()
                .is_some_and(|it| it.resource.plural == "clusters")
        {
            self.note(scene);
        }
        let evicted = evictions(entry, scene);
        if evicted == 0 {
            return Vec::new();
        }
        self.saved -= f64::from(evicted);
        if self.saved > -0.001 {
            return Vec::new();
        }
        let message = format!(
            "{:.2} evictions beyond the rate, which is {} a second",
            -self.saved,
            self.highest(),
        );
        // One excess is reported once.
        self.saved = 0.0;
        let key = entry.request().map(crate::history::Request::key);
        let subject = key.map_or_else(String::new, |key| key.to_string());
        vec![scene.violation(NAME, &subject, &message)]
    }
}

impl Pace {
    fn fill(&mut self, scene: &Scene) {
        let oldest = scene.now - scene.rules.lag;
        // The rate before the window still counts if it ended within the window.
        while self.rates.get(1).is_some_and(|(began, _)| *began < oldest) {
            self.rates.pop_front();
        }
        let highest = self.highest();
        let passed = self
            .filled
            .map_or(0.0, |filled| scene.now.duration_since(filled).as_secs_f64());
        let most = 1.0 + highest * scene.rules.lag.as_secs_f64();
        self.saved = if self.filled.is_none() {
            1.0
        } else {
            (self.saved + passed * highest).min(most)
        };
        self.filled = Some(scene.now);
    }

    fn note(&mut self, scene: &Scene) {
        let rate = rate(scene);
        if self
            .rates
            .back()
            .is_none_or(|(_, last)| (last - rate).abs() > f64::EPSILON)
        {
            self.rates.push_back((scene.now, rate));
        }
    }

    fn highest(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }
}

/// Returns the number of evictions that an entry carries out.
fn evictions(entry: &Entry, scene: &Scene) -> u32 {
    let Some((request, before, after)) = moves::of_binding(entry) else {
        return 0;
    };
    if !matches!(request.actor, Actor::Process(_)) {
        return 0;
    }
    let moves = moves::between(before, after);
    let paid = moves.iter().filter(|it| match it.what {
        What::Purged => true,
        // Copies that are withdrawn are kept and nothing is placed, and copies that follow
        // belong to the eviction of the same write: neither is paid for.
        What::Evicted(task) => {
            !["NoClusterFit", "PlacementChanged"].contains(&objects::text(task.0, "/reason"))
        }
        What::Dropped | What::Ended(_) => false,
    });
    let paid = u32::try_from(paid.count()).unwrap_or(u32::MAX);
    // A new placement that was requested is one move, whatever it takes away. A cluster that leaves
    // the fleet takes its copies with it, asked or not.
    let follows = |it: &Move<'_>| match it.what {
        _ if scene.has_left(it.cluster) => false,
        What::Evicted(task) => objects::text(task.0, "/reason") == "PlacementChanged",
        What::Dropped => true,
        What::Purged | What::Ended(_) => false,
    };
    // Nor is it a move that a workload ends which asks for no replicas.
    let is_none = objects::number(after.0, "/spec/replicas").unwrap_or_default() == 0;
    let ends = is_none && after.clusters().is_empty();
    let is_requested = asked::is_requested(before) && !is_placed_otherwise(before, after) && !ends;
    paid.max(u32::from(is_requested && moves.iter().any(follows)))
}

/// Returns whether a write follows another placement than the one before it.
fn is_placed_otherwise(before: Binding<'_>, after: Binding<'_>) -> bool {
    let applied = |it: Binding<'_>| objects::annotation(it.0, APPLIED_PLACEMENT).map(str::to_owned);
    applied(before) != applied(after)
}

/// Returns the rate for the clusters as they are.
fn rate(scene: &Scene) -> f64 {
    let counted = scene
        .clusters()
        .filter(|(_, cluster)| !objects::is_deleting(cluster.0))
        .filter(|(_, cluster)| cluster.ready().is_some() || cluster.has_failed());
    let (mut all, mut failed) = (0_u32, 0_u32);
    for (_, cluster) in counted {
        all += 1;
        failed += u32::from(cluster.has_failed());
    }
    by_health(&scene.rules, all, failed)
}

fn by_health(rules: &Rules, all: u32, failed: u32) -> f64 {
    if f64::from(failed) <= rules.unhealthy_threshold * f64::from(all) {
        rules.primary_rate
    } else if usize::try_from(all).is_ok_and(|all| all > rules.large_threshold) {
        rules.secondary_rate
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::*;
    use super::*;

    #[test]
    fn the_rate_follows_from_the_health_of_the_fleet() {
        let rules = Rules::default();
        for (failed, all, expected) in [
            (0, 10, 0.5),
            (5, 10, 0.5),
            (6, 10, 0.0),
            (11, 20, 0.5),
            (12, 20, 0.1),
            (7, 11, 0.1),
            (1, 1, 0.0),
        ] {
            let rate = by_health(&rules, all, failed);
            assert!((rate - expected).abs() < 0.001, "{failed} of {all}: {rate}");
        }
    }

    /// Evicts so many workloads, one in each pause.
    fn evict(story: &mut Story<Pace>, workloads: usize, pause: i64) {
        for number in 0..workloads {
            let key = binding_key(&format!("web-{number}"));
            story.write(person(), &key, binding(&["m0"]));
            let task = json!([{"fromCluster": "m0", "reason": "TaintUntolerated"}]);
            let mut after = binding(&["m9"]);
            after["spec"]["gracefulEvictionTasks"] = task;
            story.wait(pause).write(control_plane(), &key, after);
        }
    }

    fn fleet(all: usize, failed: usize) -> Story<Pace> {
        let mut story = Story::new(Pace::default());
        for number in 0..all {
            let ready = if number < failed { "Unknown" } else { "True" };
            let key = cluster_key(&format!("m{number}"));
            story.write(agent("m"), &key, cluster(ready, &[]));
        }
        story.wait(60);
        story
    }

    #[test]
    fn more_evictions_than_the_rate_of_the_fleet_allows_are_reported() {
        for (all, failed, pause, is_kept) in [
            (10, 1, 2, true),
            (10, 1, 1, false),
            (12, 8, 10, true),
            (12, 8, 5, false),
            (10, 6, 60, false),
        ] {
            let mut story = fleet(all, failed);
            evict(&mut story, 20, pause);
            story.keeps(is_kept, (failed, all, pause));
        }
    }

    #[test]
    fn new_placements_that_were_requested_are_moves_and_count_when_they_are_carried_out() {
        for (asked, pause, is_kept) in [
            ("2020-01-01T00:00:00Z", 2, true),
            ("2020-01-01T00:00:00Z", 0, false),
            ("", 0, true),
        ] {
            let mut story = fleet(10, 0);
            for number in 0..20 {
                let key = binding_key(&format!("web-{number}"));
                let mut before = binding(&["m0"]);
                before["spec"]["rescheduleTriggeredAt"] = json!(asked);
                story.write(person(), &key, before.clone());
                before["spec"]["clusters"] = json!([{"name": "m9"}]);
                before["spec"]["gracefulEvictionTasks"] =
                    json!([{"fromCluster": "m0", "reason": "PlacementChanged"}]);
                story.wait(pause).write(control_plane(), &key, before);
            }
            story.keeps(is_kept, (asked, pause));
        }
    }

    #[test]
    fn what_was_asked_to_move_is_free_where_its_cluster_leaves_the_fleet() {
        let mut leaving = cluster("True", &[]);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (what, state, is_kept) in [
            ("stays", cluster("True", &[]), false),
            ("leaves", leaving, true),
            ("has left", Value::Null, true),
        ] {
            let mut story = fleet(10, 0);
            story.write(person(), &cluster_key("m0"), state);
            for number in 0..20 {
                let key = binding_key(&format!("web-{number}"));
                let mut binding = binding(&["m0"]);
                binding["spec"]["rescheduleTriggeredAt"] = json!("2020-01-01T00:00:00Z");
                story.write(person(), &key, binding.clone());
                binding["spec"]["clusters"] = json!([{"name": "m9"}]);
                story.write(control_plane(), &key, binding);
            }
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn a_change_of_the_fleet_counts_once_everybody_can_know_of_it() {
        for (seconds, is_kept) in [(3, true), (30, false)] {
            let mut story = fleet(10, 5);
            story.write(agent("m"), &cluster_key("m5"), cluster("Unknown", &[]));
            story.wait(seconds);
            evict(&mut story, 2, 0);
            story.keeps(is_kept, seconds);
        }
    }
}
