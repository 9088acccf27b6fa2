//! A pause holds: while a person pauses movement, nothing leaves a cluster, and no old copy is
//! removed, unless its workload is scaled to zero. That of a promotion ends by itself.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::moves::{self, What};
use super::nowhere::asks_for_none;
use super::objects::{self, Binding};
use super::scene::Scene;
use super::troubles::Troubles;
use super::{Oracle, Violation};
use crate::feature::{PAUSE, PAUSED};
use crate::history::{Actor, Api, Entry, Request};

const NAME: &str = "paused";

/// Time within which an undisturbed control plane knows of a pause.
const KNOWN: SignedDuration = SignedDuration::from_secs(10);

/// The oracle.
#[derive(Debug, Default)]
pub struct Paused {
    troubles: Troubles,
    /// Since when movement in the fleet is paused, and until when if the pause ends by itself.
    fleet: Option<(Timestamp, Option<Timestamp>)>,
    /// Since when movement out of clusters is paused.
    clusters: BTreeMap<String, Timestamp>,
}

impl Oracle for Paused {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        self.troubles.note(entry);
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        self.note(request, entry.at);
        let Some((request, before, after)) = moves::of_binding(entry) else {
            return Vec::new();
        };
        if !matches!(request.actor, Actor::Process(_)) || self.troubles.began_blindly(scene.now) {
            return Vec::new();
        }
        let key = request.key();
        let moved = moves::between(before, after).into_iter().filter_map(|it| {
            let pause = self.pause_of(scene, it.cluster)?;
            let what = match it.what {
                // A workload that a person scales to zero goes with its old copies, and moves
                // nowhere.
                What::Evicted(_) | What::Ended(_)
                    if !gains(before, after) && asks_for_none(scene, &key, after) =>
                {
                    return None;
                }
                What::Evicted(_) | What::Purged => "the workload leaves it",
                What::Ended(task) if removes(task) => "the old copy goes",
                What::Dropped if gains(before, after) => "the workload is placed elsewhere",
                What::Ended(_) | What::Dropped => return None,
            };
            let message = format!("{}: {what}, and movement {pause}", it.cluster);
            Some(scene.violation(NAME, &key, &message))
        });
        moved.collect()
    }
}

impl Paused {
    fn note(&mut self, request: &Request, now: Timestamp) {
        if request.api != Api::Fleet {
            return;
        }
        let place = (
            request.namespace.as_deref().unwrap_or_default(),
            request.name.as_str(),
        );
        match request.resource.plural.as_str() {
            "configmaps" if place == PAUSE => {
                let since = self.fleet.map_or(now, |(since, _)| since);
                let after = request.after.as_deref();
                self.fleet = after.map(|it| (since, objects::time(it, "/data/until")));
            }
            "clusters" => {
                let after = request.after.as_deref();
                if after.is_some_and(|it| objects::annotation(it, PAUSED).is_some()) {
                    self.clusters.entry(request.name.clone()).or_insert(now);
                } else {
                    self.clusters.remove(&request.name);
                }
            }
            _ => {}
        }
    }

    /// Returns which pause holds for what leaves a cluster, and since when, if everybody can know
    /// of it.
    fn pause_of(&self, scene: &Scene, cluster: &str) -> Option<String> {
        let known = if self.troubles.of_control_plane(scene.now) {
            scene.rules.lag.max(KNOWN)
        } else {
            KNOWN
        };
        let lasts = |until: Option<Timestamp>| {
            until.is_none_or(|until| scene.now + scene.clock_error() < until)
        };
        let of_fleet = self.fleet.filter(|(_, until)| lasts(*until));
        let of_fleet = of_fleet.map(|(since, _)| ("in the fleet", since));
        let own = self
            .clusters
            .get(cluster)
            .map(|since| ("out of it", *since));
        let pauses = [of_fleet, own].into_iter().flatten();
        let mut held = pauses.filter(|(_, since)| scene.now.duration_since(*since) > known);
        let (what, since) = held.next().filter(|_| !scene.has_left(cluster))?;
        Some(format!("{what} is paused since {since}"))
    }
}

/// Returns whether the end of a task removes a copy that was still there.
fn removes(task: objects::Task<'_>) -> bool {
    task.purge_mode() != "Directly"
}

/// Returns whether a cluster has more of a workload than before.
fn gains(before: Binding<'_>, after: Binding<'_>) -> bool {
    let had = before.clusters();
    let mut has = after.clusters().into_iter();
    has.any(|(name, replicas)| had.get(name).is_none_or(|had| *had < replicas))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::*;
    use super::*;
    use crate::history::Key;

    fn pause_key() -> Key {
        objects::key(&Api::Fleet, "", "configmaps", PAUSE.0, PAUSE.1)
    }

    fn story() -> Story<Paused> {
        let mut story = Story::new(Paused::default());
        for name in ["m1", "m2"] {
            story.write(control_plane(), &cluster_key(name), cluster("True", &[]));
        }
        story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
        story.wait(3_600);
        story
    }

    fn pause(story: &mut Story<Paused>, cluster: &str) {
        if cluster.is_empty() {
            story.write(person(), &pause_key(), json!({"data": {"reason": "x"}}));
        } else {
            let annotations = json!({"metadata": {"annotations": {PAUSED: "x"}}});
            story.patch(person(), &cluster_key(cluster), &annotations);
        }
    }

    fn leave(story: &mut Story<Paused>) {
        let mut after = binding(&["m2"]);
        after["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1"}]);
        story.write(control_plane(), &binding_key("web"), after);
    }

    #[test]
    fn nothing_leaves_a_cluster_while_a_pause_holds_for_it() {
        for (paused, seconds, is_kept) in [
            ("", 60, false),
            ("m1", 60, false),
            ("m2", 60, true),
            ("", 5, true),
        ] {
            let mut story = story();
            pause(&mut story, paused);
            leave(story.wait(seconds));
            story.keeps(is_kept, (paused, seconds));
        }
    }

    #[test]
    fn what_leaves_after_the_pause_may_leave() {
        let mut story = story();
        pause(&mut story, "");
        story.wait(60).write(person(), &pause_key(), Value::Null);
        leave(story.wait(1));
        assert_eq!(story.reported(), [""; 0]);
    }

    #[test]
    fn no_old_copy_goes_while_a_pause_holds_for_it() {
        for (mode, is_kept) in [("Gracefully", false), ("Directly", true)] {
            let mut story = story();
            let mut moved = binding(&["m2"]);
            moved["spec"]["gracefulEvictionTasks"] =
                json!([{"fromCluster": "m1", "purgeMode": mode}]);
            story.write(control_plane(), &binding_key("web"), moved);
            pause(&mut story, "m1");
            story
                .wait(60)
                .write(control_plane(), &binding_key("web"), binding(&["m2"]));
            story.keeps(is_kept, mode);
        }
    }

    #[test]
    fn a_workload_that_is_scaled_to_zero_may_leave_a_cluster_that_its_policy_gives_up() {
        for (replicas, is_kept) in [(0, true), (2, false)] {
            let mut story = story();
            let key = binding_key("web");
            story.write(control_plane(), &key, binding(&["m1", "m2"]));
            let template = json!({"spec": {"replicas": replicas}});
            story.write(person(), &deployment_key(&Api::Fleet), template);
            pause(&mut story, "");
            let mut after = binding(&["m2"]);
            after["spec"]["replicas"] = json!(replicas);
            after["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1"}]);
            story.wait(60).write(control_plane(), &key, after);
            story.keeps(is_kept, replicas);
        }
    }

    #[test]
    fn the_old_copy_of_a_workload_that_is_scaled_to_zero_may_go() {
        for (replicas, is_kept) in [(0, true), (2, false)] {
            let mut story = story();
            let key = binding_key("web");
            let template = json!({"spec": {"replicas": replicas}});
            story.write(person(), &deployment_key(&Api::Fleet), template);
            let mut after = binding(&[]);
            after["spec"]["replicas"] = json!(replicas);
            let mut moved = after.clone();
            moved["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1"}]);
            story.write(control_plane(), &key, moved);
            pause(&mut story, "");
            story.wait(60).write(control_plane(), &key, after);
            story.keeps(is_kept, replicas);
        }
    }

    #[test]
    fn a_workload_that_shrinks_leaves_nothing_to_others() {
        let mut story = story();
        let key = binding_key("web");
        story.write(control_plane(), &key, binding(&["m1", "m2"]));
        pause(&mut story, "");
        story
            .wait(60)
            .write(control_plane(), &key, binding(&["m2"]));
        assert_eq!(story.reported(), [""; 0]);
    }
}
