//! Once faults stop the fleet converges: at the end each template is what runs in its clusters.
//!
//! Each target has a Work; each Work's manifests are in its member as written; what a member runs
//! is what its Work, its binding and the template report. A template that asks for no replicas has
//! none, but where a person keeps a copy or what is sent, where a promoted store does not know of
//! the copy, in a cluster that left the fleet, or where the workload has no policy any more: it
//! stays as it is then.

use std::sync::Arc;

use jiff::SignedDuration;
use muster_shared::quantity::Quantity;
use serde_json::Value;

use super::objects::{self, Binding, WORK};
use super::scene::Scene;
use super::shown::ready;
use super::{End, Oracle, Violation};
use crate::history::{Api, Entry, Key};

const NAME: &str = "settled";

/// The oracle.
#[derive(Debug, Default)]
pub struct Settled;

impl Oracle for Settled {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let end = scene.before_fresh_start(entry);
        end.map_or_else(Vec::new, |end| self.end(&end, scene))
    }

    fn end(&mut self, end: &End, scene: &Scene) -> Vec<Violation> {
        let mut shown = Vec::new();
        let mut add = |key: &Key, message: String| {
            shown.push(scene.violation(NAME, key, &message));
        };
        for (key, binding) in scene.bindings() {
            if !objects::is_deleting(binding.0) {
                sent(scene, key, binding, &mut add);
                reported(end, scene, key, binding, &mut add);
                unwanted(end, scene, key, binding, &mut add);
            }
        }
        for (key, work) in scene.all(&Api::Fleet, WORK, "works") {
            let cluster = key.namespace.strip_prefix(objects::EXECUTION);
            if let Some(cluster) = cluster.filter(|it| end.reachable.contains(*it)) {
                applied(scene, key, work, cluster, &mut add);
            }
        }
        shown
    }
}

/// Checks that each target has a Work of the present template.
fn sent(scene: &Scene, key: &Key, binding: Binding<'_>, add: &mut impl FnMut(&Key, String)) {
    let suspension = &binding.0["spec"]["suspension"];
    if suspension["dispatching"] == true || !suspension["dispatchingOnClusters"].is_null() {
        return;
    }
    if waits_for_removal(scene, binding) {
        return;
    }
    let template = binding.template().and_then(|it| scene.objects.get(&it));
    let Some(template) = template else {
        return;
    };
    let targets = binding.clusters().into_keys().chain(binding.required());
    let stays = |name: &&str| {
        let cluster = scene.cluster(name);
        cluster.is_some_and(|it| !objects::is_deleting(it.0))
    };
    for cluster in targets.filter(stays) {
        let Some(work) = scene.work_of(key, cluster) else {
            add(key, format!("has no Work for {cluster}"));
            continue;
        };
        let overridden = ["applied-overrides", "applied-cluster-overrides"]
            .iter()
            .any(|it| objects::annotation(work, &format!("policy.karmada.io/{it}")).is_some());
        let mut manifests = objects::items(work, "/spec/workload/manifests");
        let Some(manifest) = manifests.find(|it| it["kind"] == template["kind"]) else {
            continue;
        };
        for part in ["/spec/template/spec/containers", "/data", "/spec/color"] {
            let (wanted, is) = (template.pointer(part), manifest.pointer(part));
            if !overridden && wanted.is_some_and(|wanted| !is.is_some_and(|is| holds(is, wanted))) {
                add(
                    key,
                    format!("{cluster} is sent another {part} than the template's"),
                );
            }
        }
    }
}

/// Returns whether new copies may still wait for the end of an old one: for the grace period of a
/// task `Directly`, or ten minutes.
fn waits_for_removal(scene: &Scene, binding: Binding<'_>) -> bool {
    let keeps = |task: objects::Task<'_>| task.0["suppressDeletion"] == true;
    if scene.is_fenced(binding) && binding.tasks().any(keeps) {
        return true;
    }
    let mut tasks = binding.tasks().filter(|it| it.purge_mode() == "Directly");
    tasks.any(|task| {
        let seconds = objects::number(task.0, "/gracePeriodSeconds").unwrap_or(600);
        let longest = SignedDuration::from_secs(seconds) + scene.rules.prompt;
        let since = objects::time(task.0, "/creationTimestamp");
        since.is_none_or(|since| scene.now.duration_since(since) <= longest)
    })
}

/// Checks that the manifests of a Work are in its member as written.
fn applied(
    scene: &Scene,
    key: &Key,
    work: &Value,
    cluster: &str,
    add: &mut impl FnMut(&Key, String),
) {
    if objects::is_deleting(work) || work["spec"]["suspendDispatching"] == true {
        return;
    }
    let is_reported = objects::condition(work, "Applied").is_some_and(|it| it["status"] == "False");
    let api = Api::Member(cluster.to_owned());
    for manifest in objects::items(work, "/spec/workload/manifests") {
        let Some(there) = objects::referent(&api, manifest) else {
            continue;
        };
        let object = scene.objects.get(&there);
        // Something else has the name, or the member refuses.
        let is_another = object.is_some_and(|object| {
            objects::annotation(object, "work.karmada.io/name") != Some(&key.name)
        });
        match object {
            _ if is_reported && (is_another || scene.is_refused(&there)) => {}
            _ if is_reported => add(
                key,
                format!("says that {there} is not applied, and nothing is in the way"),
            ),
            None if has_completed(work) => {}
            None => add(key, format!("{there} is not in the member")),
            Some(object) => {
                let is_retained =
                    objects::label(manifest, "resourcetemplate.karmada.io/retain-replicas")
                        == Some("true");
                let replicas = manifest.pointer("/spec/replicas");
                let other = replicas.is_some() && object.pointer("/spec/replicas") != replicas;
                if other && !is_retained {
                    add(key, format!("{there} has another number of replicas"));
                }
                for part in ["/spec/template/spec/containers", "/data", "/spec/color"] {
                    let (wanted, is) = (manifest.pointer(part), object.pointer(part));
                    if wanted.is_some_and(|wanted| !is.is_some_and(|is| holds(is, wanted))) {
                        add(key, format!("{there} has another {part}"));
                    }
                }
            }
        }
    }
}

/// Returns whether a Work reports a task that has run to its end: what is cleaned up then is not
/// made again.
fn has_completed(work: &Value) -> bool {
    let mut reports = objects::items(work, "/status/manifestStatuses");
    reports.any(|it| it["status"]["completedManifest"].is_string())
}

/// Reports where a copy runs although the template asks for no replicas.
fn unwanted(
    end: &End,
    scene: &Scene,
    key: &Key,
    binding: Binding<'_>,
    add: &mut impl FnMut(&Key, String),
) {
    let template = binding.template();
    let state = template.as_ref().and_then(|it| scene.objects.get(it));
    let asks_for_none = state.and_then(|it| objects::number(it, "/spec/replicas")) == Some(0);
    let is_held = binding.0["spec"]["suspension"]["scheduling"] == true;
    let is_followed = objects::policy_of(binding.0).is_some() && !is_held;
    let Some(template) = template.filter(|_| asks_for_none && is_followed) else {
        return;
    };
    let members = end.reachable.iter();
    for cluster in members.filter(|it| scene.cluster(it).is_some()) {
        let there = Key {
            api: Api::Member(cluster.clone()),
            ..template.clone()
        };
        let is_kept = binding.is_suspended_in(cluster)
            || binding
                .task(cluster)
                .is_some_and(|task| task.0["suppressDeletion"] == true);
        let object = scene.objects.get(&there).filter(|_| !is_kept);
        let is_of_binding = |it: &&Arc<Value>| objects::binding_of(it).as_ref() == Some(key);
        let object = object.filter(is_of_binding);
        // What the promoted store does not know is kept, and reported elsewhere.
        let Some(object) = object.filter(|it| scene.is_known(it)) else {
            continue;
        };
        let is_retained = objects::label(object, "resourcetemplate.karmada.io/retain-replicas");
        let runs = ready(object);
        if runs > 0 && is_retained.is_none() {
            add(
                key,
                format!("asks for no replicas, and {cluster} runs {runs}"),
            );
        }
    }
}

/// Checks that what reachable members run is what the binding says.
fn reported(
    end: &End,
    scene: &Scene,
    key: &Key,
    binding: Binding<'_>,
    add: &mut impl FnMut(&Key, String),
) {
    let Some(template) = binding.template() else {
        return;
    };
    for cluster in binding.clusters().into_keys() {
        let there = Key {
            api: Api::Member(cluster.to_owned()),
            ..template.clone()
        };
        let (Some(object), true) = (scene.objects.get(&there), end.reachable.contains(cluster))
        else {
            continue;
        };
        let report = binding.report(cluster);
        // Something else has the name there, which is reported.
        if report.is_some_and(|report| report["applied"] != true) {
            continue;
        }
        let status = report.map(|report| &report["status"]);
        for field in [
            "readyReplicas",
            "availableReplicas",
            "numberReady",
            "succeeded",
        ] {
            let truth = object["status"][field].as_i64().unwrap_or_default();
            let said = status.and_then(|it| it[field].as_i64()).unwrap_or_default();
            if truth != said {
                add(
                    key,
                    format!("says {field} {said} of {cluster}, where it is {truth}"),
                );
            }
        }
    }
}

/// Returns whether a value has what another asks for: all its fields, and its items in their order.
fn holds(value: &Value, asked: &Value) -> bool {
    match (value, asked) {
        (Value::Object(value), Value::Object(asked)) => asked.iter().all(|(name, asked)| {
            let is_amount = ["requests", "limits"].contains(&name.as_str());
            value.get(name).is_some_and(|value| {
                holds(value, asked) || (is_amount && are_as_much(value, asked))
            })
        }),
        (Value::Array(value), Value::Array(asked)) => {
            value.len() == asked.len() && value.iter().zip(asked).all(|(v, a)| holds(v, a))
        }
        _ => value == asked,
    }
}

/// Returns whether the amounts of resources are those that are asked for, however they are written.
fn are_as_much(value: &Value, asked: &Value) -> bool {
    let amount = |it: &Value| it.as_str()?.parse::<Quantity>().ok();
    let asked = asked.as_object().into_iter().flatten();
    let mut asked = asked.map(|(name, asked)| (value.get(name).and_then(amount), amount(asked)));
    asked.all(|(value, asked)| value.is_some() && value == asked)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::{Actor, Phase, World};

    fn image(name: &str) -> Value {
        json!({"spec": {"template": {"spec": {"containers": [{"image": name}]}}}})
    }

    /// Makes the story of a workload in `m1` that is as it should be.
    fn story() -> Story<Settled> {
        let mut story = Story::new(Settled);
        story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
        let template = deployment_key(&Api::Fleet);
        story.write(person(), &template, json!({"kind": "Deployment"}));
        story.patch(person(), &template, &image("a"));
        let mut placed = binding(&["m1"]);
        placed["metadata"]["annotations"] = claimed();
        placed["status"] = json!({"aggregatedStatus":
            [{"clusterName": "m1", "applied": true, "status": {"readyReplicas": 2}}]});
        story.write(control_plane(), &binding_key("web"), placed);
        let mut sent = work();
        sent["spec"]["workload"]["manifests"][0]["spec"]["template"] =
            image("a")["spec"]["template"].clone();
        story.write(control_plane(), &work_key("m1"), sent);
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story.patch(agent("m1"), &member_key("m1"), &image("a"));
        story
    }

    #[test]
    fn what_runs_is_what_the_template_says() {
        let ready = |number: i64| json!({"status": {"readyReplicas": number}});
        let more = json!({"spec": {"replicas": 3}});
        let template = deployment_key(&Api::Fleet);
        for (what, key, patch, expected) in [
            ("nothing", binding_key("web"), json!({}), ""),
            ("a new image", template, image("b"), "is sent another"),
            ("drift", member_key("m1"), image("b"), "has another"),
            ("more", member_key("m1"), more, "number of replicas"),
            ("a crash", member_key("m1"), ready(1), "says readyReplicas"),
        ] {
            let mut story = story();
            story.patch(person(), &key, &patch);
            let shown = story.end();
            assert_eq!(shown.is_empty(), expected.is_empty(), "{what}: {shown:?}");
            assert!(shown.iter().all(|it| it.contains(expected)), "{shown:?}");
        }
    }

    #[test]
    fn a_target_has_a_work_unless_its_cluster_leaves() {
        for (leaves, is_kept) in [(false, false), (true, true)] {
            let mut story = story();
            if leaves {
                let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
                story.patch(person(), &cluster_key("m1"), &leaving);
            }
            story.write(control_plane(), &work_key("m1"), Value::Null);
            story.ends(is_kept, leaves);
        }
    }

    #[test]
    fn a_template_that_asks_for_no_replicas_has_none_unless_a_person_keeps_them() {
        let task = |kept: Value| {
            let task = json!({"fromCluster": "m1", "suppressDeletion": kept});
            json!({"clusters": [], "gracefulEvictionTasks": [task]})
        };
        for (replicas, spec, is_kept) in [
            (2, json!({}), true),
            (0, json!({}), false),
            (0, task(Value::Null), false),
            (0, task(json!(true)), true),
            (0, json!({"suspension": {"scheduling": true}}), true),
            (0, json!({"suspension": {"dispatching": true}}), true),
        ] {
            let mut story = story();
            let scaled = json!({"spec": {"replicas": replicas}});
            story.patch(person(), &deployment_key(&Api::Fleet), &scaled);
            story.patch(
                control_plane(),
                &binding_key("web"),
                &json!({ "spec": spec }),
            );
            story.ends_without("no replicas", is_kept, (replicas, spec));
        }
    }

    #[test]
    fn a_workload_without_a_policy_does_not_follow_the_number_that_its_template_asks_for() {
        for (claim, is_kept) in [(claimed(), false), (Value::Null, true)] {
            let mut story = story();
            let claim = json!({"metadata": {"annotations": claim}});
            story.patch(control_plane(), &binding_key("web"), &claim);
            let scaled = json!({"spec": {"replicas": 0}});
            story.patch(person(), &deployment_key(&Api::Fleet), &scaled);
            story.ends_without("no replicas", is_kept, claim);
        }
    }

    #[test]
    fn a_copy_may_run_in_a_cluster_that_left_though_no_replicas_are_asked_for() {
        for (has_left, is_kept) in [(false, false), (true, true)] {
            let mut story = story();
            if has_left {
                story.write(person(), &cluster_key("m1"), Value::Null);
            }
            let scaled = json!({"spec": {"replicas": 0}});
            story.patch(person(), &deployment_key(&Api::Fleet), &scaled);
            story.ends_without("no replicas", is_kept, has_left);
        }
    }

    #[test]
    fn a_copy_that_a_promoted_store_does_not_know_may_run_though_no_replicas_are_asked_for() {
        for (has_work, is_kept) in [(true, false), (false, true)] {
            let mut story = story();
            if !has_work {
                story.write(Actor::Setup, &work_key("m1"), Value::Null);
            }
            story.world(World::Promoted);
            let scaled = json!({"spec": {"replicas": 0}});
            story.patch(person(), &deployment_key(&Api::Fleet), &scaled);
            story.ends_without("no replicas", is_kept, has_work);
        }
    }

    #[test]
    fn amounts_are_the_same_however_they_are_written() {
        for (value, asked, expected) in [
            ("1k", "1000", true),
            ("1", "1000m", true),
            ("2", "1", false),
            ("x", "x", true),
        ] {
            let of = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
            assert_eq!(holds(&of(value), &of(asked)), expected, "{value} {asked}");
            let image = |name: &str| json!({"image": name});
            assert_eq!(holds(&image(value), &image(asked)), value == asked);
        }
    }

    #[test]
    fn a_work_that_is_not_applied_has_something_in_its_way() {
        for (what, is_kept) in [("nothing", false), ("a refusal", true), ("another's", true)] {
            let mut story = story();
            let condition = json!([{"type": "Applied", "status": "False"}]);
            let shown = json!({"status": {"conditions": condition}});
            story.patch(agent("m1"), &work_key("m1"), &shown);
            match what {
                "a refusal" => {
                    story.refuse(agent("m1"), &member_key("m1"), 422);
                }
                "another's" => {
                    let other = json!({"metadata": {"annotations": null}});
                    story.patch(person(), &member_key("m1"), &other);
                }
                _ => {}
            }
            story.ends(is_kept, what);
        }
    }

    #[test]
    fn what_a_fresh_start_would_mend_is_reported_before_it() {
        let mut story = story();
        story.patch(person(), &member_key("m1"), &image("b"));
        story.world(World::Phase(Phase::Fresh));
        assert_eq!(story.reported().len(), 1);
    }

    #[test]
    fn what_is_missing_is_reported_unless_it_is_suspended() {
        let mut story = story();
        story.write(person(), &member_key("m1"), Value::Null);
        assert_eq!(story.end().len(), 1);
        story.write(person(), &work_key("m1"), Value::Null);
        assert_eq!(story.end().len(), 2);
        let suspended = json!({"spec": {"suspension": {"dispatching": true}}});
        story.patch(person(), &binding_key("web"), &suspended);
        assert_eq!(story.end().len(), 2, "nothing new");
    }
}
