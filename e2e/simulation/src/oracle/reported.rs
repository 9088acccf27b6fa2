//! Safety contract 7: each movement is reported, and each refusal.
//!
//! A task has a reason and a message. Each eviction has an event, or a condition of the binding,
//! that is no older than it. Where a workload stays on a cluster with a taint that evicts, the
//! condition `EvictionPending` says why.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::moves::{self, What};
use super::objects::{self, Binding};
use super::scene::Scene;
use super::{End, Oracle, Violation};
use crate::history::{Actor, Entry, Key, Request, World};

const NAME: &str = "reported";

/// The oracle.
#[derive(Debug, Default)]
pub struct Reported {
    /// Evictions that neither an event nor a condition has reported yet, with their times.
    unreported: BTreeMap<Key, Timestamp>,
}

impl Oracle for Reported {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        // What was reported since the snapshot is lost with the rest.
        if matches!(entry.world(), Some(World::Promoted)) {
            self.unreported.clear();
        }
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        if request.resource.plural == "events" {
            self.note(request);
        }
        let mut reported = Vec::new();
        let Some((request, before, after)) = moves::of_binding(entry) else {
            return reported;
        };
        let key = request.key();
        if request.after.as_deref().is_some_and(objects::is_deleting) {
            self.unreported.remove(&key);
        }
        let is_reported = |at: &Timestamp| says(after, *at, scene.clock_error());
        if self.unreported.get(&key).is_some_and(is_reported) {
            self.unreported.remove(&key);
        }
        if !matches!(request.actor, Actor::Process(_)) {
            return reported;
        }
        for it in moves::between(before, after) {
            let What::Evicted(task) = it.what else {
                if matches!(it.what, What::Purged) {
                    self.unreported.insert(key.clone(), entry.at);
                }
                continue;
            };
            for field in ["/reason", "/message", "/producer"] {
                if objects::text(task.0, field).is_empty() {
                    let message = format!("{}: the task has no {}", it.cluster, &field[1..]);
                    reported.push(scene.violation(NAME, &key, &message));
                }
            }
            // The scheduler reports its own results, and a copy follows an eviction that is
            // reported.
            let reason = objects::text(task.0, "/reason");
            if !["NoClusterFit", "PlacementChanged"].contains(&reason) {
                self.unreported.insert(key.clone(), entry.at);
            }
        }
        reported
    }

    fn end(&mut self, _: &End, scene: &Scene) -> Vec<Violation> {
        let mut reported = Vec::new();
        for (key, at) in &self.unreported {
            if scene.objects.contains_key(key) && scene.now.duration_since(*at) > scene.rules.prompt
            {
                let message = format!("the eviction of {at} has neither event nor condition");
                reported.push(scene.violation(NAME, key, &message));
            }
        }
        for (key, binding) in scene.bindings() {
            let pending = objects::condition(binding.0, "EvictionPending");
            for cluster in binding.clusters().into_keys() {
                let old = |cluster: &str| scene.evicts_for(cluster) > scene.rules.prompt;
                if pending.is_none() && old(cluster) && !objects::is_deleting(binding.0) {
                    let message =
                        format!("{cluster} has a taint that evicts, and nothing says why it stays");
                    reported.push(scene.violation(NAME, key, &message));
                }
            }
        }
        reported
    }
}

impl Reported {
    /// Takes note of an event about a binding, or about its template, that reports its eviction.
    fn note(&mut self, request: &Request) {
        let Some(event) = request.after.as_deref() else {
            return;
        };
        let reason = objects::text(event, "/reason");
        if !(reason.contains("Evict") || reason.contains("Failover")) {
            return;
        }
        for about in [&event["involvedObject"], &event["regarding"]] {
            self.unreported.retain(|key, _| {
                let is_binding = about["name"] == key.name.as_str();
                let is_template = objects::referent(&key.api, about)
                    .is_some_and(|template| key.name == binding_name(&template, about));
                let is_there = objects::text(about, "/namespace") == key.namespace;
                !(is_there && (is_binding || is_template))
            });
        }
    }
}

/// Returns the name of a template's binding: its name and its kind in small letters.
fn binding_name(template: &Key, reference: &Value) -> String {
    let kind = objects::text(reference, "/kind").to_lowercase();
    format!("{}-{kind}", template.name)
}

/// Returns whether a condition reports the eviction that was written at a moment, however much
/// later it says so.
fn says(binding: Binding<'_>, written: Timestamp, error: SignedDuration) -> bool {
    // Conditions have whole seconds, and the writer's clock. An eviction has the date of its
    // decision, and may be written some time after it.
    let recent = |condition: &Value| {
        objects::time(condition, "/lastTransitionTime")
            .is_none_or(|at| written.duration_since(at) <= SignedDuration::from_secs(60) + error)
    };
    ["EvictionPending", "ApplicationFailoverPending"]
        .iter()
        .filter_map(|kind| objects::condition(binding.0, kind))
        .filter(|condition| {
            ["Evicted", "ApplicationMoved"].contains(&objects::text(condition, "/reason"))
        })
        .any(recent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::Api;

    fn evict(story: &mut Story<Reported>, task: &Value) {
        story.write(
            control_plane(),
            &binding_key("web-deployment"),
            binding(&["m1"]),
        );
        let spec = json!({"clusters": [{"name": "m2"}], "gracefulEvictionTasks": [task]});
        let patch = json!({ "spec": spec });
        story.patch(control_plane(), &binding_key("web-deployment"), &patch);
    }

    #[test]
    fn a_task_says_why() {
        let whole = json!({"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager", "message": "taint x"});
        for field in ["reason", "message", "producer", "nothing"] {
            let mut task = whole.clone();
            task[field] = json!("");
            let mut story = Story::new(Reported::default());
            evict(&mut story, &task);
            story.keeps(field == "nothing", field);
        }
    }

    #[test]
    fn an_eviction_has_an_event_or_a_condition() {
        let event = |name: &str, kind: &str| {
            let about = json!({"apiVersion": "apps/v1", "kind": kind, "namespace": "default", "name": name});
            Some(json!({"reason": "EvictWorkloadFromClusterSucceed", "involvedObject": about}))
        };
        let of_binding = event("web-deployment", "ResourceBinding");
        let of_template = event("web", "Deployment");
        let moved = Some("ApplicationMoved");
        for (what, event, reason, is_kept) in [
            ("nothing", None, None, false),
            ("another's event", event("api", "Deployment"), None, false),
            ("an event of the binding", of_binding, None, true),
            ("an event of the template", of_template, None, true),
            ("a condition", None, Some("Evicted"), true),
            ("that of an application", None, moved, true),
            ("another condition", None, Some("WaitingForRate"), false),
        ] {
            let mut story = Story::new(Reported::default());
            let task = json!({"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "x", "message": "x"});
            evict(&mut story, &task);
            if let Some(event) = event {
                let key = objects::key(&Api::Fleet, "", "events", "default", "e");
                story.write(control_plane(), &key, event);
            }
            if let Some(reason) = reason {
                let condition = json!({"type": "EvictionPending", "reason": reason,
                    "lastTransitionTime": story.time()});
                let patch = json!({"status": {"conditions": [condition]}});
                story.patch(control_plane(), &binding_key("web-deployment"), &patch);
            }
            story.wait(600).ends(is_kept, what);
        }
    }

    #[test]
    fn a_condition_reports_an_eviction_by_its_date_however_late_it_is_written() {
        // Seconds before the eviction, and seconds after it until the condition is written.
        for (before, after, is_kept) in [(2, 0, true), (2, 300, true), (300, 0, false)] {
            let mut story = Story::new(Reported::default());
            let dated = story.time();
            story.wait(before);
            let task = json!({
                "fromCluster": "m1", "reason": "TaintUntolerated", "producer": "x", "message": "x",
            });
            evict(&mut story, &task);
            story.wait(after);
            let condition = json!({"type": "EvictionPending", "reason": "Evicted", "lastTransitionTime": dated});
            let patch = json!({"status": {"conditions": [condition]}});
            story.patch(control_plane(), &binding_key("web-deployment"), &patch);
            story.wait(600).ends(is_kept, (before, after));
        }
    }

    #[test]
    fn who_stays_on_a_cluster_that_is_to_be_left_says_why() {
        for (effect, condition, is_kept) in [
            ("NoExecute", json!([]), false),
            ("NoExecute", json!([{"type": "EvictionPending"}]), true),
            ("NoSchedule", json!([]), true),
        ] {
            let mut story = Story::new(Reported::default());
            let tainted = cluster("True", &[&format!("x:{effect}")]);
            story.write(person(), &cluster_key("m1"), tainted);
            let mut stays = binding(&["m1"]);
            stays["status"] = json!({"conditions": condition});
            story.write(control_plane(), &binding_key("web"), stays);
            story.wait(600).ends(is_kept, effect);
        }
    }
}
