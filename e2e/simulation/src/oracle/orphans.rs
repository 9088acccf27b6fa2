//! Nothing is left behind: at the end no Work without a binding that wants it, no object in a
//! reachable member without a Work, no task whose end has come, no taint without an owner, and
//! nothing whose deletion does not end.

use std::collections::BTreeSet;

use serde_json::Value;

use super::nowhere::not_replaced;
use super::objects::{self, Binding, CLUSTER, POLICY, WORK};
use super::scene::Scene;
use super::{End, Oracle, Violation};
use crate::feature::{PAUSE, PAUSED};
use crate::history::{Actor, Api, Entry, Key, Process};

const NAME: &str = "orphans";

/// The oracle.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Taints, by cluster, key and effect, that the control plane added.
    ours: BTreeSet<(String, String, String)>,
    /// Taints, by key and effect, of policies whose taints stay when the policy goes.
    kept: BTreeSet<(String, String)>,
    /// Clusters that were not ready at some moment in which they left the fleet: the Works of these
    /// are let go, and nothing is removed from their members any more.
    abandoned: BTreeSet<String>,
}

impl Oracle for Orphans {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        if let Some(end) = scene.before_fresh_start(entry) {
            return self.end(&end, scene);
        }
        let Some(request) = entry.commit().filter(|request| request.api == Api::Fleet) else {
            return Vec::new();
        };
        let after = request.after.as_deref().unwrap_or(&Value::Null);
        match request.resource.plural.as_str() {
            "clusters" => {
                let before = request.before.as_deref().unwrap_or(&Value::Null);
                let by_us = matches!(request.actor, Actor::Process(Process::ControlPlane(_)));
                self.note(&request.name, before, after, by_us);
                let last = if after.is_null() { before } else { after };
                if !after.is_null() && !objects::is_deleting(after) {
                    self.abandoned.remove(&request.name);
                } else if objects::Cluster(last).ready() != Some("True") {
                    self.abandoned.insert(request.name.clone());
                }
            }
            "clustertaintpolicies" => {
                self.kept
                    .extend(objects::items(after, "/spec/taints").map(spelled));
            }
            _ => {}
        }
        Vec::new()
    }

    fn end(&mut self, end: &End, scene: &Scene) -> Vec<Violation> {
        let mut said = Vec::new();
        let mut report = |key: &Key, message: &str| {
            said.push(scene.violation(NAME, key, &message));
        };
        works(end, scene, &mut report);
        self.copies(end, scene, &mut report);
        bindings(end, scene, &mut report);
        self.taints(scene, &mut report);
        stuck(end, scene, &mut report);
        said
    }
}

impl Orphans {
    fn note(&mut self, cluster: &str, before: &Value, after: &Value, by_us: bool) {
        let of = |state: &Value| objects::items(state, "/spec/taints").map(spelled).collect();
        let (before, after): (BTreeSet<_>, BTreeSet<_>) = (of(before), of(after));
        for (key, effect) in before.difference(&after) {
            self.ours
                .remove(&(cluster.to_owned(), key.clone(), effect.clone()));
        }
        for (key, effect) in after.difference(&before).filter(|_| by_us) {
            self.ours
                .insert((cluster.to_owned(), key.clone(), effect.clone()));
        }
    }

    fn copies(&self, end: &End, scene: &Scene, report: &mut impl FnMut(&Key, &str)) {
        for (key, object) in &scene.objects {
            let Api::Member(cluster) = &key.api else {
                continue;
            };
            let named = |name: &str| objects::annotation(object, name);
            let (Some(namespace), Some(name)) = (
                named("work.karmada.io/namespace"),
                named("work.karmada.io/name"),
            ) else {
                continue;
            };
            let is_ours = namespace == format!("{}{cluster}", objects::EXECUTION);
            // What a workload makes of a template of ours (a ReplicaSet, a Pod) may carry its
            // marks.
            let is_made = object["metadata"]["ownerReferences"].is_array();
            // What is being deleted there waits for somebody else's finalizer.
            let ends = objects::is_deleting(object);
            let is_reached = end.reachable.contains(cluster) && !self.abandoned.contains(cluster);
            if !is_ours || is_made || ends || !is_reached {
                continue;
            }
            match scene.fleet(WORK, "works", namespace, name) {
                // What was written since the snapshot of a promoted store is kept. A Cluster that
                // was deleted said so to the end.
                None if !scene.is_known(object) => {
                    let source = objects::key(&Api::Fleet, CLUSTER, "clusters", "", cluster);
                    let present = scene.objects.get(&source).map(|it| &**it);
                    let last = present.or_else(|| scene.former(&source));
                    let said = last.and_then(|it| objects::condition(it, "ObjectsWithoutWork"));
                    if said.is_none_or(|it| it["status"] != "True") {
                        report(
                            key,
                            "is unknown to the promoted store, and nothing tells so",
                        );
                    }
                }
                None => report(key, "is in the member without a Work"),
                Some(work) => {
                    let mut manifests = objects::items(work, "/spec/workload/manifests");
                    if !manifests.any(|it| objects::referent(&key.api, it).as_ref() == Some(key)) {
                        report(key, "is in the member, and its Work does not list it");
                    }
                }
            }
        }
    }

    fn taints(&self, scene: &Scene, report: &mut impl FnMut(&Key, &str)) {
        let wanted: BTreeSet<(String, String)> = scene
            .all(&Api::Fleet, POLICY, "clustertaintpolicies")
            .flat_map(|(_, policy)| objects::items(policy, "/spec/taintsToAdd").map(spelled))
            .collect();
        for (name, cluster) in scene.clusters() {
            let key = objects::key(&Api::Fleet, CLUSTER, "clusters", "", name);
            for taint in cluster.taints() {
                let (taint_key, effect) = spelled(taint);
                let is_state =
                    taint_key.starts_with("cluster.karmada.io/") && effect == "NoSchedule";
                if is_state && cluster.ready() == Some("True") {
                    report(&key, &format!("is ready and tainted {taint_key}"));
                }
                let place = (name.to_owned(), taint_key.clone(), effect.clone());
                let spelling = (taint_key.clone(), effect);
                let is_owned = is_state
                    || taint_key.starts_with("clusters.muster.io/")
                    || wanted.contains(&spelling)
                    || self.kept.contains(&spelling);
                if self.ours.contains(&place) && !is_owned {
                    report(&key, &format!("has the taint {taint_key} of no policy"));
                }
            }
        }
    }
}

fn spelled(taint: &Value) -> (String, String) {
    let text = |pointer| objects::text(taint, pointer).to_owned();
    (text("/key"), text("/effect"))
}

fn works(end: &End, scene: &Scene, report: &mut impl FnMut(&Key, &str)) {
    for (key, work) in scene.all(&Api::Fleet, WORK, "works") {
        let Some(cluster) = key.namespace.strip_prefix(objects::EXECUTION) else {
            continue;
        };
        if objects::is_deleting(work) {
            if end.reachable.contains(cluster) && !is_kept(scene, cluster, work) {
                report(key, "is being deleted and does not end");
            }
            continue;
        }
        let Some(binding_key) = objects::binding_of(work) else {
            continue;
        };
        match scene.objects.get(&binding_key) {
            None => report(key, "is a Work without a binding"),
            Some(binding)
                if !Binding(binding).keeps(cluster)
                    && !awaits_copies(scene, &binding_key, Binding(binding)) =>
            {
                report(key, "is a Work that its binding does not want");
            }
            Some(_) => {}
        }
    }
}

/// Returns whether a target of a binding, or of one that needs it, has no copy yet: until it has,
/// copies elsewhere may be the last, and what they need stays beside them.
fn awaits_copies(scene: &Scene, key: &Key, binding: Binding<'_>) -> bool {
    let mut referrers = objects::items(binding.0, "/spec/requiredBy").filter_map(|it| {
        let (namespace, name) = (objects::text(it, "/namespace"), objects::text(it, "/name"));
        let key = objects::key(&Api::Fleet, WORK, "resourcebindings", namespace, name);
        let referrer = scene.objects.get(&key)?;
        Some((key, Binding(referrer)))
    });
    lacks_copies(scene, key, binding)
        || referrers.any(|(key, referrer)| lacks_copies(scene, &key, referrer))
}

/// Returns whether a binding with a placement has no target, although it asks for something, or one
/// that has not applied its copy.
fn lacks_copies(scene: &Scene, key: &Key, binding: Binding<'_>) -> bool {
    let is_applied = |target: &str| {
        let work = scene.work_of(key, target);
        let applied = work.and_then(|work| objects::condition(work, "Applied"));
        applied.is_some_and(|it| it["status"] == "True")
    };
    let targets = binding.clusters().into_keys().chain(binding.required());
    let is_placed = binding.0["spec"]["placement"].is_object();
    let asks_for_none = objects::number(binding.0, "/spec/replicas") == Some(0)
        && binding.0["spec"]["replicaRequirements"].is_object();
    let mut targets = targets.peekable();
    if targets.peek().is_none() {
        return is_placed && !asks_for_none;
    }
    targets.any(|target| !is_applied(target))
}

/// Returns whether something in the member keeps an object of a Work: a finalizer that is not the
/// fleet's, or admission.
fn is_kept(scene: &Scene, cluster: &str, work: &Value) -> bool {
    let api = Api::Member(cluster.to_owned());
    let mut manifests = objects::items(work, "/spec/workload/manifests");
    manifests.any(|manifest| {
        let key = objects::referent(&api, manifest);
        let object = key.as_ref().and_then(|key| scene.objects.get(key));
        object.is_some_and(|object| objects::is_deleting(object))
            || key.is_some_and(|key| scene.is_refused(&key))
    })
}

fn bindings(end: &End, scene: &Scene, report: &mut impl FnMut(&Key, &str)) {
    for (key, binding) in scene.bindings() {
        if objects::is_deleting(binding.0) {
            continue;
        }
        let template = binding.template();
        if template.is_some_and(|template| !scene.objects.contains_key(&template)) {
            report(key, "is a binding without a template");
        }
        let generation = objects::number(binding.0, "/metadata/generation");
        let observed = objects::number(binding.0, "/status/schedulerObservedGeneration");
        if generation != observed || not_replaced(scene, key, binding).is_some() {
            continue;
        }
        for task in binding.tasks() {
            let is_held = task.0["suppressDeletion"] == true || is_paused(scene, task.from());
            if !is_held && end.reachable.contains(task.from()) {
                report(
                    key,
                    &format!("still leaves {}, and is replaced", task.from()),
                );
            }
        }
    }
}

/// Returns whether a person left movement in the fleet or out of a cluster paused.
fn is_paused(scene: &Scene, cluster: &str) -> bool {
    let (namespace, name) = PAUSE;
    let pause = scene.fleet("", "configmaps", namespace, name);
    let cluster = scene.cluster(cluster);
    pause.is_some_and(|it| it["data"]["until"].is_null())
        || cluster.is_some_and(|it| objects::annotation(it.0, PAUSED).is_some())
}

/// Returns whether a workload stays in a cluster because a person suspended its scheduling: the
/// cluster leaves once no binding names it.
fn is_held(scene: &Scene, cluster: &str) -> bool {
    let mut bindings = scene.bindings();
    bindings.any(|(_, binding)| {
        let is_suspended = binding.0["spec"]["suspension"]["scheduling"] == true;
        is_suspended && binding.clusters().contains_key(cluster)
    })
}

/// Reports what is being deleted and does not end, though nothing unreachable keeps it.
fn stuck(end: &End, scene: &Scene, report: &mut impl FnMut(&Key, &str)) {
    let waits_for_silent = |binding: &Key| {
        scene.all(&Api::Fleet, WORK, "works").any(|(key, work)| {
            let cluster = key.namespace.strip_prefix(objects::EXECUTION);
            objects::binding_of(work).as_ref() == Some(binding)
                && cluster.is_some_and(|cluster| !end.reachable.contains(cluster))
        })
    };
    for (key, object) in &scene.objects {
        if key.api != Api::Fleet || !objects::is_deleting(object) {
            continue;
        }
        let excused = match key.plural.as_str() {
            "resourcebindings" | "clusterresourcebindings" => waits_for_silent(key),
            "propagationpolicies" | "clusterpropagationpolicies" => false,
            "clusters" => !end.reachable.contains(&key.name) || is_held(scene, &key.name),
            _ => continue,
        };
        if !excused {
            report(key, "is being deleted and does not end");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::World;

    /// Returns the story of a workload in `m1`, as it should be.
    fn story() -> Story<Orphans> {
        let mut story = Story::new(Orphans::default());
        story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
        story.write(person(), &deployment_key(&Api::Fleet), json!({}));
        story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
        story.write(control_plane(), &work_key("m1"), work());
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story
    }

    /// Returns a Work of a binding, with this status of its condition Applied.
    fn reported(binding: &str, applied: &str) -> Value {
        let mut work = work();
        work["metadata"]["annotations"]["resourcebinding.karmada.io/name"] = json!(binding);
        work["status"]["conditions"] = json!([{"type": "Applied", "status": applied}]);
        work
    }

    #[test]
    fn what_has_no_owner_any_more_is_reported() {
        let gone = || Value::Null;
        let deleting = || {
            let mut work = work();
            work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            work
        };
        let (web, template) = (binding_key("web"), deployment_key(&Api::Fleet));
        for (what, key, state, expected) in [
            ("nothing", &template, json!({}), ""),
            ("the template", &template, gone(), "without a template"),
            ("the binding", &web, gone(), "without a binding"),
            ("the target", &web, binding(&["m2"]), "does not want"),
            ("the Work", &work_key("m1"), gone(), "without a Work"),
            ("the end", &work_key("m1"), deleting(), "does not end"),
            ("the copy", &member_key("m1"), gone(), ""),
        ] {
            let mut story = story();
            if what == "the target" {
                story.write(control_plane(), &work_key("m2"), reported("web", "True"));
            }
            story.write(person(), key, state);
            let said = story.end();
            assert_eq!(said.is_empty(), expected.is_empty(), "{what}: {said:?}");
            assert!(said.iter().all(|it| it.contains(expected)), "{said:?}");
        }
    }

    #[test]
    fn a_work_that_its_binding_does_not_want_is_excused_until_the_targets_have_applied_theirs() {
        let not_to = |cluster: &str| json!({"dispatchingOnClusters": {"clusterNames": [cluster]}});
        for (suspension, applied, is_excused) in [
            (json!(null), "False", true),
            (json!(null), "True", false),
            (json!({"dispatching": true}), "False", true),
            (json!({"dispatching": true}), "True", false),
            (not_to("m2"), "False", true),
            (not_to("m1"), "True", false),
        ] {
            let mut story = story();
            let mut moved = binding(&["m2"]);
            moved["spec"]["suspension"] = suspension.clone();
            story.write(control_plane(), &binding_key("web"), moved);
            story.write(control_plane(), &work_key("m2"), reported("web", applied));
            let by = json!({"namespace": "default", "name": "web", "clusters": [{"name": "m2"}]});
            let needed = json!({"spec": {"requiredBy": [by]}});
            story.write(control_plane(), &binding_key("settings"), needed);
            for (cluster, applied) in [("m2", applied), ("m1", "Unknown")] {
                let mut key = work_key(cluster);
                key.name = "settings".to_owned();
                story.write(control_plane(), &key, reported("settings", applied));
            }
            let said = story.end();
            let expected = if is_excused { 0 } else { 2 };
            assert_eq!(said.len(), expected, "{suspension}: {said:?}");
        }
    }

    #[test]
    fn a_cluster_does_not_leave_while_a_workload_is_held_in_it() {
        for (held, clusters, is_excused) in [
            (true, ["m1"], true),
            (false, ["m1"], false),
            (true, ["m2"], false),
        ] {
            let mut story = Story::new(Orphans::default());
            let mut leaving = cluster("True", &[]);
            leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            story.write(person(), &cluster_key("m1"), leaving);
            story.write(person(), &deployment_key(&Api::Fleet), json!({}));
            let mut binding = binding(&clusters);
            binding["spec"]["suspension"] = json!({"scheduling": held});
            story.write(person(), &binding_key("web"), binding);
            story.ends(is_excused, (held, clusters));
        }
    }

    #[test]
    fn copies_of_a_cluster_that_nobody_reaches_are_excused() {
        let mut story = story();
        story.write(person(), &binding_key("web"), Value::Null);
        story.write(person(), &work_key("m1"), Value::Null);
        story.world(World::CutOff("m1".to_owned()));
        assert_eq!(story.end(), [""; 0]);
    }

    #[test]
    fn copies_of_a_cluster_that_left_while_it_was_not_ready_are_excused() {
        for (ready, is_excused) in [
            (["Unknown", "Unknown"], true),
            (["False", "False"], true),
            (["Unknown", "True"], true),
            (["True", "True"], false),
        ] {
            let mut story = story();
            for ready in ready {
                let mut leaving = cluster(ready, &[]);
                leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                story.write(control_plane(), &cluster_key("m1"), leaving);
            }
            story.write(person(), &binding_key("web"), Value::Null);
            story.write(person(), &work_key("m1"), Value::Null);
            story.write(control_plane(), &cluster_key("m1"), Value::Null);
            story.ends(is_excused, ready);
        }
    }

    #[test]
    fn what_a_promoted_store_does_not_know_is_reported_as_long_as_there_is_a_cluster() {
        for (is_reported, leaves, is_kept) in [
            (false, false, false),
            (true, false, true),
            (true, true, true),
            (false, true, false),
        ] {
            let mut story = story();
            story.write(person(), &binding_key("web"), Value::Null);
            story.write(Actor::Setup, &work_key("m1"), Value::Null);
            story.world(World::Promoted);
            if is_reported {
                let mut leaving = cluster("True", &[]);
                let said = json!({"type": "ObjectsWithoutWork", "status": "True"});
                let conditions = leaving["status"]["conditions"].as_array_mut();
                conditions.unwrap().push(said);
                story.write(agent("m1"), &cluster_key("m1"), leaving);
            }
            if leaves {
                story.write(control_plane(), &cluster_key("m1"), Value::Null);
            }
            story.ends(is_kept, (is_reported, leaves));
        }
    }

    #[test]
    fn a_task_whose_end_has_come_is_reported() {
        let pause = objects::key(&Api::Fleet, "", "configmaps", PAUSE.0, PAUSE.1);
        for (health, suppressed, paused, is_kept) in [
            ("Healthy", json!(null), json!(null), false),
            ("Healthy", json!(true), json!(null), true),
            (
                "Healthy",
                json!(null),
                json!({"data": {"by": "somebody"}}),
                true,
            ),
            ("Unhealthy", json!(null), json!(null), true),
        ] {
            let mut story = story();
            story.write(person(), &pause, paused.clone());
            let task = json!({"fromCluster": "m2", "suppressDeletion": suppressed});
            story.write(control_plane(), &cluster_key("m2"), cluster("True", &[]));
            story.patch(
                control_plane(),
                &binding_key("web"),
                &json!({
                    "spec": {"gracefulEvictionTasks": [task]},
                    "status": {
                        "schedulerObservedGeneration": 1,
                        "aggregatedStatus": [{"clusterName": "m1", "health": health}],
                    },
                }),
            );
            story.ends(is_kept, (health, paused));
        }
    }

    #[test]
    fn taints_without_an_owner_are_reported() {
        let policy = objects::key(&Api::Fleet, POLICY, "clustertaintpolicies", "", "p");
        let proposed = json!({"spec": {"taintsToAdd": [{"key": "x", "effect": "NoExecute"}]}});
        let shipped = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
        let taint = "x:NoExecute";
        let of_state = "cluster.karmada.io/unreachable:NoSchedule";
        for (what, form, taint, stays, is_kept) in [
            ("a user's", None, taint, false, true),
            ("a policy's", Some(&proposed), taint, true, true),
            ("a former policy's", Some(&proposed), taint, false, false),
            ("of the form that stays", Some(&shipped), taint, false, true),
            ("of a state that is over", None, of_state, false, false),
        ] {
            let is_user = what == "a user's";
            let by = if is_user { person() } else { control_plane() };
            let mut story = story();
            if let Some(form) = form {
                story.write(person(), &policy, form.clone());
            }
            story.write(by, &cluster_key("m1"), cluster("True", &[taint]));
            if !stays {
                story.write(person(), &policy, Value::Null);
            }
            story.ends(is_kept, what);
        }
    }
}
