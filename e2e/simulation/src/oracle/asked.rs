//! Safety contract 2: nothing moves that nobody asked to move.
//!
//! With the gate `Failover` off no taint moves anything. With it on, an eviction from a cluster
//! needs a taint there that evicts, is not tolerated, and has been there for as long as the policy
//! wants; that of a failing application needs a policy that asks for it, and a report that has been
//! unhealthy for as long as it says. A workload that was moved to a cluster leaves it where its
//! Work has not been applied for half a minute. Copies that a new placement gives up leave with an
//! eviction of the same write, by a request, because a person changed the clusters, because the
//! placement does not let the cluster in, or because the workload asks for more replicas than it
//! has, which fit in others only.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::moves::{self, What};
use super::objects::{self, Binding, Cluster};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Entry, Key};

const NAME: &str = "asked";
/// Seconds for which `failover.cluster` tolerates a taint, and `failover.application` an unhealthy
/// report, where they do not say (the API's defaults).
const TOLERATION: i64 = 300;

/// Seconds for which a Work has to have been refused before its workload is moved on.
const REFUSED: i64 = 30;

/// The oracle.
#[derive(Debug, Default)]
pub struct Asked {
    /// Since when a cluster reports a workload unhealthy.
    unhealthy: BTreeMap<(Key, String), Timestamp>,
    /// Since when the Work of a workload for a cluster says that it is not applied.
    unapplied: BTreeMap<(Key, String), Timestamp>,
}

impl Oracle for Asked {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        self.note_work(entry);
        let Some((request, before, after)) = moves::of_binding(entry) else {
            return Vec::new();
        };
        let key = request.key();
        let by_product = matches!(request.actor, Actor::Process(_));
        let mut reported = Vec::new();
        for it in moves::between(before, after) {
            let problem = match it.what {
                _ if !by_product => None,
                What::Evicted(task) => match objects::text(task.0, "/reason") {
                    "TaintUntolerated" => taint(scene, before, it.cluster),
                    "ApplicationFailure" => self.application(scene, &key, before, it.cluster),
                    "NotApplied" => self.refused(scene, &key, before, it.cluster),
                    "NoClusterFit" => {
                        let asked = scene.is_wished(&key, before);
                        (!asked).then(|| "withdrawn, and nobody changed a thing".to_owned())
                    }
                    "PlacementChanged" => {
                        let asked = is_led(before, after)
                            || is_requested(before)
                            || !is_reported(before)
                            || scene.are_clusters_changed_by_person()
                            || is_ruled_out(scene, before, it.cluster)
                            || is_grown(before);
                        (!asked).then(|| {
                            "placed anew without a request, and no other cluster is left in the write".to_owned()
                        })
                    }
                    other => Some(format!("evicted for an unknown reason, {other:?}")),
                },
                What::Purged => taint(scene, before, it.cluster),
                // What a person asks for, or follows an eviction that is judged itself.
                What::Dropped | What::Ended(_) => None,
            };
            reported.extend(problem.map(|problem| {
                let message = format!("{}: {problem}", it.cluster);
                scene.violation(NAME, &key, &message)
            }));
        }
        self.note(&key, after, scene.now);
        reported
    }
}

/// Returns whether a write evicts from a cluster for a reason of its own.
fn is_led(before: Binding<'_>, after: Binding<'_>) -> bool {
    let reasons = ["TaintUntolerated", "ApplicationFailure", "NotApplied"];
    moves::between(before, after)
        .iter()
        .any(|it| match it.what {
            What::Evicted(task) => reasons.contains(&objects::text(task.0, "/reason")),
            What::Purged => true,
            What::Dropped | What::Ended(_) => false,
        })
}

/// Returns whether the scheduler has said which of a placement's groups of clusters it uses. Where
/// the answer to its first write was lost, it begins with the first group again.
fn is_reported(binding: Binding<'_>) -> bool {
    let groups = &binding.0["spec"]["placement"]["clusterAffinities"];
    groups.is_null() || !binding.0["status"]["lastScheduledTime"].is_null()
}

/// Returns whether the placement of a workload does not let its cluster in. A copy stays there
/// while the cluster cannot be judged, and leaves once it can be, however long ago the placement
/// changed.
fn is_ruled_out(scene: &Scene, binding: Binding<'_>, name: &str) -> bool {
    let affinity = &binding.0["spec"]["placement"]["clusterAffinity"];
    let cluster = scene.cluster(name);
    cluster.is_some_and(|cluster| objects::rules_out(affinity, name, cluster.0))
}

/// Returns whether a workload asks for more replicas than its clusters have.
fn is_grown(binding: Binding<'_>) -> bool {
    let held = objects::items(binding.0, "/spec/clusters");
    let held: i64 = held.filter_map(|it| it["replicas"].as_i64()).sum();
    objects::number(binding.0, "/spec/replicas").is_some_and(|asked| asked > held)
}

/// Returns whether a new placement was requested since the last one.
pub(super) fn is_requested(binding: Binding<'_>) -> bool {
    let time = |field: &str| -> Option<Timestamp> { objects::text(binding.0, field).parse().ok() };
    let asked = time("/spec/rescheduleTriggeredAt");
    asked.is_some() && asked > time("/status/lastScheduledTime")
}

impl Asked {
    fn note(&mut self, key: &Key, after: Binding<'_>, now: Timestamp) {
        for report in objects::items(after.0, "/status/aggregatedStatus") {
            let place = (
                key.clone(),
                objects::text(report, "/clusterName").to_owned(),
            );
            if report["health"] == "Unhealthy" {
                self.unhealthy.entry(place).or_insert(now);
            } else {
                self.unhealthy.remove(&place);
            }
        }
    }

    fn note_work(&mut self, entry: &Entry) {
        let Some(request) = entry.commit().filter(|it| it.resource.plural == "works") else {
            return;
        };
        let state = request.after.as_deref().or(request.before.as_deref());
        let cluster = request.namespace.as_deref().unwrap_or_default();
        let cluster = cluster.strip_prefix(objects::EXECUTION);
        let binding = state.and_then(objects::binding_of);
        let Some(place) = binding.zip(cluster.map(str::to_owned)) else {
            return;
        };
        let applied = request.after.as_deref();
        let applied = applied.and_then(|work| objects::condition(work, "Applied"));
        if applied.is_some_and(|it| it["status"] == "False") {
            self.unapplied.entry(place).or_insert(entry.at);
        } else {
            self.unapplied.remove(&place);
        }
    }

    /// Returns why a workload should not have been moved on from a cluster that refuses it.
    fn refused(
        &self,
        scene: &Scene,
        key: &Key,
        binding: Binding<'_>,
        cluster: &str,
    ) -> Option<String> {
        let asked = !objects::text(binding.0, "/spec/rescheduleTriggeredAt").is_empty();
        let evicted = objects::annotation(binding.0, objects::LAST_EVICTION).is_some();
        if !asked && !evicted && binding.tasks().next().is_none() {
            return Some("moved on from where it was placed first".to_owned());
        }
        let Some(since) = self.unapplied.get(&(key.clone(), cluster.to_owned())) else {
            return Some("moved on, and its Work is not refused there".to_owned());
        };
        early(scene, *since, REFUSED).map(|early| format!("moved on {early}"))
    }

    fn application(
        &self,
        scene: &Scene,
        key: &Key,
        binding: Binding<'_>,
        cluster: &str,
    ) -> Option<String> {
        let Some(behavior) = binding.0.pointer("/spec/failover/application") else {
            return Some("evicted as a failing application, which no policy asks for".to_owned());
        };
        let wanted = objects::number(behavior, "/decisionConditions/tolerationSeconds");
        let place = (key.clone(), cluster.to_owned());
        let Some(since) = self.unhealthy.get(&place) else {
            return Some("evicted as a failing application, and it is not unhealthy".to_owned());
        };
        early(scene, *since, wanted.unwrap_or(TOLERATION))
            .map(|early| format!("evicted as a failing application {early}"))
    }
}

/// Says by how much something happens too early that needs seconds from a time on.
fn early(scene: &Scene, since: Timestamp, seconds: i64) -> Option<String> {
    let due = since
        .saturating_add(SignedDuration::from_secs(seconds))
        .ok()?;
    // Times in objects are whole seconds.
    let slack = scene.clock_error() + SignedDuration::from_secs(1);
    (scene.now + slack < due).then(|| format!("{:#} too early", due.duration_since(scene.now)))
}

fn taint(scene: &Scene, binding: Binding<'_>, name: &str) -> Option<String> {
    if !scene.rules.failover {
        return Some("evicted with the gate Failover off".to_owned());
    }
    let mut problem = "evicted without a taint that evicts".to_owned();
    let is_founded = scene.cluster_recently(name, |state| {
        state.is_some_and(|cluster| match reasons(scene, binding, cluster) {
            Ok(()) => true,
            Err(why) => {
                if let Some(why) = why {
                    problem = why;
                }
                false
            }
        })
    });
    (!is_founded).then_some(problem)
}

/// Returns whether a taint of the cluster drives the workload out now, or why the nearest does not.
fn reasons(
    scene: &Scene,
    binding: Binding<'_>,
    cluster: Cluster<'_>,
) -> Result<(), Option<String>> {
    let mut problem = None;
    for taint in cluster.taints().filter(|taint| objects::evicts(taint)) {
        let seconds = if taint["effect"] == "NoExecute" {
            binding.tolerated_for(taint)
        } else {
            let behavior = binding.0.pointer("/spec/failover/cluster");
            behavior.filter(|it| it.is_object()).map(|behavior| {
                objects::number(behavior, "/tolerationSeconds").unwrap_or(TOLERATION)
            })
        };
        let name = describe(taint);
        let Some(seconds) = seconds else {
            problem = Some(format!("evicted although {name} does not move it"));
            continue;
        };
        let early =
            objects::time(taint, "/timeAdded").and_then(|since| early(scene, since, seconds));
        match early {
            Some(early) => problem = Some(format!("evicted by {name} {early}")),
            None => return Ok(()),
        }
    }
    Err(problem)
}

fn describe(taint: &Value) -> String {
    format!(
        "{}:{}",
        objects::text(taint, "/key"),
        objects::text(taint, "/effect")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Rules;
    use super::super::testing::*;
    use super::*;

    fn evict(story: &mut Story<Asked>, reason: &str) {
        let task = json!([{"fromCluster": "m1", "reason": reason, "producer": "x"}]);
        let spec = json!({"clusters": [{"name": "m2"}], "gracefulEvictionTasks": task});
        let patch = json!({ "spec": spec });
        story.patch(control_plane(), &binding_key("web"), &patch);
    }

    #[test]
    fn an_eviction_needs_a_taint_that_moves_the_workload_now() {
        let soft = json!({"failover": {"cluster": {"tolerationSeconds": 60}}});
        let limited = json!({"placement": {"clusterTolerations":
            [{"key": "down", "operator": "Exists", "tolerationSeconds": 60}]}});
        let tolerant = json!({"placement": {"clusterTolerations": [{"operator": "Exists"}]}});
        for (what, effect, spec, seconds, is_kept) in [
            ("no taint", "", json!({}), 90, false),
            ("NoSchedule", "NoSchedule", json!({}), 90, false),
            ("NoExecute", "NoExecute", json!({}), 0, true),
            ("tolerated", "NoExecute", tolerant.clone(), 90, false),
            ("tolerated still", "NoExecute", limited.clone(), 30, false),
            ("tolerated long enough", "NoExecute", limited, 60, true),
            ("not asked", "PreferNoExecute", tolerant, 90, false),
            ("asked, early", "PreferNoExecute", soft.clone(), 30, false),
            ("asked", "PreferNoExecute", soft, 60, true),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.patch(person(), &binding_key("web"), &json!({ "spec": spec }));
            let mut tainted = cluster("True", &[&format!("down:{effect}")]);
            tainted["spec"]["taints"][0]["timeAdded"] = json!(story.time());
            story
                .write(person(), &cluster_key("m1"), tainted)
                .wait(seconds);
            evict(&mut story, "TaintUntolerated");
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn healthy_copies_follow_an_eviction_of_the_same_write_or_a_request() {
        let request = json!({"rescheduleTriggeredAt": "2026-01-01T00:00:01Z"});
        let along = ["TaintUntolerated", "PlacementChanged"];
        for (reasons, spec, is_kept) in [
            (&along[..], json!({}), true),
            (&along[1..], json!({}), false),
            (&along[1..], request, true),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(control_plane(), &binding_key("web"), binding(&["m1", "m2"]));
            story.patch(person(), &binding_key("web"), &json!({ "spec": spec }));
            story.write(person(), &cluster_key("m1"), cluster("True", &[]));
            story.wait(3_600);
            let tainted = cluster("True", &["down:NoExecute"]);
            story.write(person(), &cluster_key("m1"), tainted);
            let tasks: Vec<_> = reasons
                .iter()
                .zip(["m1", "m2"])
                .map(|(reason, from)| json!({"fromCluster": from, "reason": reason}))
                .collect();
            let mut after = binding(&["m3"]);
            after["spec"]["gracefulEvictionTasks"] = json!(tasks);
            story.write(control_plane(), &binding_key("web"), after);
            story.keeps(is_kept, reasons);
        }
    }

    #[test]
    fn copies_that_a_new_placement_gives_up_may_follow_from_a_change_of_the_clusters() {
        for (patch, is_kept) in [
            (json!({"metadata": {"labels": {"tier": "gold"}}}), true),
            (json!({"metadata": {"annotations": {"note": "x"}}}), false),
            (json!({"spec": {"taints": [{"key": "a"}]}}), false),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(person(), &cluster_key("m1"), cluster("True", &[]));
            story.wait(3_600);
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.patch(person(), &cluster_key("m1"), &patch);
            evict(&mut story, "PlacementChanged");
            story.keeps(is_kept, patch);
        }
    }

    #[test]
    fn a_copy_leaves_a_cluster_where_the_workload_asks_for_more_replicas() {
        for (asked, is_kept) in [(2, true), (1, false)] {
            let mut story = Story::new(Asked::default());
            let mut placed = binding(&["m1"]);
            placed["spec"]["clusters"][0]["replicas"] = json!(1);
            placed["spec"]["replicas"] = json!(asked);
            story.write(control_plane(), &binding_key("web"), placed);
            evict(story.wait(3_600), "PlacementChanged");
            story.keeps(is_kept, asked);
        }
    }

    #[test]
    fn a_copy_leaves_a_cluster_that_the_placement_does_not_let_in_however_late() {
        for (affinity, is_kept) in [
            (json!({"clusterNames": ["m2"]}), true),
            (json!({"exclude": ["m1"]}), true),
            (
                json!({"labelSelector": {"matchLabels": {"tier": "gold"}}}),
                true,
            ),
            (
                json!({"clusterNames": ["m1", "m2"], "exclude": ["m3"]}),
                false,
            ),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "tier"}]}}),
                false,
            ),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(person(), &cluster_key("m1"), cluster("True", &[]));
            let mut placed = binding(&["m1"]);
            placed["spec"]["placement"] = json!({ "clusterAffinity": affinity });
            story.write(control_plane(), &binding_key("web"), placed);
            evict(story.wait(3_600), "PlacementChanged");
            story.keeps(is_kept, affinity);
        }
    }

    #[test]
    fn a_workload_moves_on_from_where_it_was_moved_and_has_been_refused_for_long() {
        let moved = json!({"rescheduleTriggeredAt": "2026-01-01T00:00:01Z"});
        for (what, spec, status, seconds, is_kept) in [
            ("refused for long", &moved, "False", 30, true),
            ("early", &moved, "False", 20, false),
            ("applied", &moved, "True", 90, false),
            ("placed there first", &json!({}), "False", 90, false),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.patch(person(), &binding_key("web"), &json!({ "spec": spec }));
            let mut sent = work();
            sent["status"]["conditions"] = json!([{"type": "Applied", "status": status}]);
            story.write(agent("m1"), &work_key("m1"), sent);
            evict(story.wait(seconds), "NotApplied");
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn with_the_gate_off_taints_move_nothing() {
        for (failover, is_kept) in [(true, true), (false, false)] {
            let rules = Rules {
                failover,
                ..Rules::default()
            };
            let mut story = Story::with(Asked::default(), rules);
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            let tainted = cluster("True", &["down:NoExecute"]);
            story.write(person(), &cluster_key("m1"), tainted);
            evict(&mut story, "TaintUntolerated");
            story.keeps(is_kept, failover);
        }
    }

    #[test]
    fn an_application_moves_only_when_it_was_unhealthy_for_as_long_as_the_policy_says() {
        let asks = json!({"failover": {"application":
            {"decisionConditions": {"tolerationSeconds": 60}}}});
        for (what, spec, health, seconds, is_kept) in [
            ("nobody asks", json!({}), "Unhealthy", 90, false),
            ("healthy", asks.clone(), "Healthy", 90, false),
            ("early", asks.clone(), "Unhealthy", 30, false),
            ("due", asks, "Unhealthy", 60, true),
        ] {
            let mut story = Story::new(Asked::default());
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.patch(person(), &binding_key("web"), &json!({ "spec": spec }));
            let status = json!({"aggregatedStatus": [{"clusterName": "m1", "health": health}]});
            let patch = json!({ "status": status });
            story.patch(control_plane(), &binding_key("web"), &patch);
            story.wait(seconds);
            evict(&mut story, "ApplicationFailure");
            story.keeps(is_kept, what);
        }
    }
}
