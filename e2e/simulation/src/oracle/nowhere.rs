//! Safety contract 1: never evict into nowhere.
//!
//! A cluster ceases to be the target of a workload only by an eviction, which needs another target
//! that is ready and not tainted against the workload, or because a person asked for it. A fenced
//! workload, of which two copies must not run, is placed anew without a task: that needs such a
//! target as well. A task
//! that keeps the old copy ends only when all targets report healthy copies, when the policy's own
//! grace period is over and a target lives, or when a person releases it.

use jiff::SignedDuration;
use serde_json::Value;

use super::moves::{self, What};
use super::objects::{self, Binding, Task};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Key};

const NAME: &str = "nowhere";

/// The oracle.
#[derive(Debug, Default)]
pub struct Nowhere;

impl Oracle for Nowhere {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let Some((request, before, after)) = moves::of_binding(entry) else {
            return Vec::new();
        };
        let by_product = matches!(request.actor, Actor::Process(_));
        if !by_product || objects::is_deleting(before.0) {
            return Vec::new();
        }
        let key = request.key();
        let faulty = moves::between(before, after).into_iter().filter_map(|it| {
            let problem = match it.what {
                What::Evicted(task) => evicted(scene, before, after, task),
                What::Purged => purged(scene, before, after),
                What::Dropped => dropped(scene, &key, (before, after), it.cluster),
                What::Ended(task) => ended(scene, &key, before, task),
            };
            let message = format!("{}: {}", it.cluster, problem?);
            Some(scene.violation(NAME, &key, &message))
        });
        faulty.collect()
    }
}

/// Returns whether a copy in one of the targets counts, by what may be known of the clusters.
fn replaces(scene: &Scene, binding: Binding<'_>) -> bool {
    binding.clusters().into_keys().any(|target| {
        scene.cluster_recently(target, |state| {
            state.is_some_and(|cluster| cluster.holds(binding))
        })
    })
}

fn is_ours(binding: Binding<'_>) -> bool {
    ["", "default-scheduler"].contains(&objects::text(binding.0, "/spec/schedulerName"))
}

fn evicted(
    scene: &Scene,
    before: Binding<'_>,
    after: Binding<'_>,
    task: Task<'_>,
) -> Option<String> {
    if task.purge_mode() == "Directly" {
        let asked = before.application_purge_mode() == "Directly" || asks_for_purge(scene, before);
        if !asked {
            return Some("its copy goes Directly, which the policy does not say".to_owned());
        }
    }
    // Nothing has a copy afterwards, and the tasks keep all that there are.
    let is_withdrawn = after.clusters().is_empty() && task.purge_mode() != "Directly";
    let by_scheduler = objects::text(task.0, "/reason") == "NoClusterFit";
    // A copy that follows a new placement is kept; the eviction that causes one is judged itself.
    let follows =
        objects::text(task.0, "/reason") == "PlacementChanged" && task.purge_mode() != "Directly";
    if (is_withdrawn && by_scheduler) || follows || !is_ours(before) || replaces(scene, after) {
        return None;
    }
    Some("evicted, and none of the targets is ready and untainted".to_owned())
}

/// Returns whether an eviction by a taint removes the old copy at once, by the policy or the flag.
fn asks_for_purge(scene: &Scene, binding: Binding<'_>) -> bool {
    // The purge mode of a policy counts before its binding says the same.
    let policy = objects::policy_of(binding.0);
    let mut states = policy.iter().flat_map(|key| scene.recently(key)).flatten();
    let said = |it: &Value| {
        let mode = objects::text(it, "/spec/failover/cluster/purgeMode");
        ["Directly", "Immediately"].contains(&mode)
    };
    // With fencing at most one copy runs, so that `Gracefully` acts as `Directly`.
    if states.any(said) || scene.is_fenced(binding) {
        return true;
    }
    let behavior = binding.0.pointer("/spec/failover/cluster");
    match (
        behavior.is_some_and(|it| !it.is_null()),
        binding.cluster_purge_mode(),
    ) {
        (true, mode) => mode == "Directly",
        (false, _) => scene.rules.purge_mode == "Directly",
    }
}

fn purged(scene: &Scene, before: Binding<'_>, after: Binding<'_>) -> Option<String> {
    if !asks_for_purge(scene, before) {
        return Some("nothing keeps the old copy, and the policy does not say Directly".to_owned());
    }
    (!replaces(scene, after))
        .then(|| "its copy goes at once, and none of the targets is ready and untainted".to_owned())
}

fn dropped(
    scene: &Scene,
    key: &Key,
    (before, after): (Binding<'_>, Binding<'_>),
    cluster: &str,
) -> Option<String> {
    let asked = scene.is_wished(key, before) || scene.has_left(cluster);
    let is_moved = || scene.is_fenced(before) && replaces(scene, after);
    (!asked && !is_moved())
        .then(|| "no target any more without an eviction, and nobody asked for it".to_owned())
}

fn ended(scene: &Scene, key: &Key, binding: Binding<'_>, task: Task<'_>) -> Option<String> {
    // The copy of such a task is gone already, or goes as soon as clusters are chosen.
    if task.purge_mode() == "Directly" || scene.has_left(task.from()) {
        return None;
    }
    match task.0["suppressDeletion"].as_bool() {
        Some(true) => return Some("a task that suppresses deletion ended by itself".to_owned()),
        Some(false) => return None,
        None => {}
    }
    if asks_for_none(scene, key, binding) {
        return None;
    }
    // A clock that is wrong is so for times in whole seconds.
    let error = match scene.clock_error() {
        SignedDuration::ZERO => SignedDuration::ZERO,
        error => error + SignedDuration::from_secs(1),
    };
    let now = scene.now + error;
    let late = objects::number(task.0, "/gracePeriodSeconds").is_some_and(|seconds| {
        objects::time(task.0, "/creationTimestamp")
            .is_some_and(|created| now >= created + SignedDuration::from_secs(seconds))
    });
    let sent = || {
        let mut targets = binding.clusters().into_keys();
        targets.any(|target| scene.has_work(key, target))
    };
    if late && replaces(scene, binding) && sent() {
        return None;
    }
    let grace = if late {
        "its grace period is over and no target lives"
    } else {
        "its grace period is not over"
    };
    not_replaced(scene, key, binding)
        .map(|why| format!("the task that keeps the copy ended: {grace}, and {why}"))
}

/// Returns whether a person wants no copies of a workload: its template asks for 0 replicas, or did
/// when the binding was written.
pub fn asks_for_none(scene: &Scene, key: &Key, binding: Binding<'_>) -> bool {
    let template = binding.template();
    let template = template.and_then(|template| scene.objects.get(&template));
    let asked = template.and_then(|it| objects::number(it, "/spec/replicas"));
    let known = objects::number(binding.0, "/spec/replicas").unwrap_or_default();
    known == 0 && asked.is_some_and(|asked| asked == 0 || scene.is_wished(key, binding))
}

/// Returns the reason why the targets do not replace an old copy, if they do not.
pub fn not_replaced(scene: &Scene, key: &Key, binding: Binding<'_>) -> Option<String> {
    let targets = binding.clusters();
    if targets.is_empty() {
        return Some("there is no target".to_owned());
    }
    for (target, replicas) in targets {
        let Some(report) = binding.report(target) else {
            return Some(format!("{target} reports nothing"));
        };
        if report["health"] != "Healthy" {
            return Some(format!("{target} reports {}", report["health"]));
        }
        let heard = scene.cluster_recently(target, |state| {
            state.is_some_and(|cluster| cluster.ready() == Some("True"))
        });
        if !heard {
            return Some(format!("{target} is not ready"));
        }
        let counts = report.pointer("/status/replicas").is_some() && !scales_itself(scene, binding);
        // The Work of the target says it first, and the binding as soon as it is written.
        let work = scene.work_of(key, target);
        let said = work.and_then(|work| objects::items(work, "/status/manifestStatuses").next());
        if work.is_some() && said.is_none() {
            return Some(format!("the Work of {target} reports nothing"));
        }
        let ready = [Some(report), said].into_iter().flatten().filter_map(|it| {
            objects::number(it, "/status/readyReplicas")
                .or_else(|| objects::number(it, "/status/availableReplicas"))
        });
        let ready = ready.max();
        if counts && ready.unwrap_or_default() < replicas {
            return Some(format!("{target} has {ready:?} ready of {replicas}"));
        }
    }
    (!replaces(scene, binding)).then(|| "no target is ready and untainted".to_owned())
}

/// Returns whether the members decide on the number of replicas.
fn scales_itself(scene: &Scene, binding: Binding<'_>) -> bool {
    let template = binding
        .template()
        .and_then(|template| scene.objects.get(&template));
    template.is_some_and(|template| {
        objects::label(template, "resourcetemplate.karmada.io/retain-replicas") == Some("true")
    })
}

impl Scene {
    /// Returns whether there is a Work of a binding for a cluster.
    pub fn has_work(&self, binding: &Key, cluster: &str) -> bool {
        self.work_of(binding, cluster).is_some()
    }

    /// Returns the Work of a binding for a cluster.
    pub fn work_of(&self, binding: &Key, cluster: &str) -> Option<&Value> {
        let namespace = format!("{}{cluster}", objects::EXECUTION);
        let first = objects::key(&Api::Fleet, objects::WORK, "works", &namespace, "");
        self.objects
            .range(first.clone()..)
            .take_while(|(key, _)| key.namespace == namespace && key.plural == first.plural)
            .map(|(_, work)| &**work)
            .find(|work| objects::binding_of(work).as_ref() == Some(binding))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    /// Returns the story of three clusters of which `m1` is tainted and `m3` is silent, and of a
    /// workload on `m1`.
    fn story() -> Story<Nowhere> {
        let mut story = Story::new(Nowhere);
        for (name, state) in [
            ("m1", cluster("True", &["down:NoExecute"])),
            ("m2", cluster("True", &[])),
            ("m3", cluster("Unknown", &["gone:NoSchedule"])),
        ] {
            story.write(control_plane(), &cluster_key(name), state);
        }
        story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
        story.wait(3_600);
        story
    }

    fn task(more: &Value) -> Value {
        let mut task =
            json!({"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"});
        for (name, value) in more.as_object().into_iter().flatten() {
            task[name] = value.clone();
        }
        task
    }

    #[test]
    fn an_eviction_needs_a_target_that_is_ready_and_untainted() {
        for (targets, mode, is_kept) in [
            (&["m2"][..], "Gracefully", true),
            (&["m3"], "Gracefully", false),
            (&["m2", "m3"], "Gracefully", true),
            (&[], "Gracefully", false),
            (&["m2"], "Directly", false),
            (&["m2"], "Never", true),
        ] {
            let mut story = story();
            let mut after = binding(targets);
            after["spec"]["gracefulEvictionTasks"] = json!([task(&json!({"purgeMode": mode}))]);
            story.write(control_plane(), &binding_key("web"), after);
            story.keeps(is_kept, (targets, mode));
        }
    }

    #[test]
    fn a_copy_goes_at_once_only_where_the_policy_says_directly() {
        for (mode, target, is_kept) in [
            (json!(null), "m2", false),
            (json!("Gracefully"), "m2", false),
            (json!("Directly"), "m2", true),
            (json!("Immediately"), "m2", true),
            (json!("Directly"), "m3", false),
        ] {
            let mut story = story();
            let key = binding_key("web");
            let policy = json!({"spec": {"failover": {"cluster": {"purgeMode": mode}}}});
            story.patch(person(), &key, &policy).wait(3_600);
            let record = json!({"from": "m1", "to": target}).to_string();
            story.patch(
                control_plane(),
                &key,
                &json!({
                    "metadata": {"annotations": {objects::LAST_EVICTION: record}},
                    "spec": {"clusters": [{"name": target, "replicas": 2}]},
                }),
            );
            story.keeps(is_kept, (mode, target));
        }
    }

    #[test]
    fn a_target_is_dropped_only_when_a_person_asks_or_its_cluster_leaves() {
        let template = deployment_key(&Api::Fleet);
        let policy = policy_key();
        let (other, tainted) = (cluster_key("m2"), cluster("True", &["x:NoExecute"]));
        let leaving =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        for (what, write, is_kept) in [
            ("nothing", None, false),
            ("the template", Some((&template, json!({"spec": {}}))), true),
            ("a policy", Some((&policy, json!({"spec": {}}))), true),
            ("another cluster's taints", Some((&other, tainted)), false),
            ("the cluster", Some((&cluster_key("m1"), leaving)), true),
        ] {
            let mut story = story();
            if let Some((key, object)) = write {
                story.write(person(), key, object).wait(60);
            }
            story.write(control_plane(), &binding_key("web"), binding(&["m2"]));
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn no_mode_takes_other_old_copies_along() {
        for (targets, mode, is_kept) in [
            (&["m2", "m4", "m5"][..], "Directly", true),
            (&["m2"], "Directly", false),
            (&["m2", "m5"], "Directly", false),
            (&["m2"], "Gracefully", false),
        ] {
            let mut story = story();
            for name in ["m4", "m5"] {
                story.write(control_plane(), &cluster_key(name), cluster("True", &[]));
            }
            let old = |targets: &[&str]| {
                let mut binding = binding(targets);
                binding["spec"]["failover"] = json!({"cluster": {"purgeMode": mode}});
                binding
            };
            story.write(person(), &binding_key("web"), old(&["m1", "m4", "m5"]));
            story.wait(3_600);
            let mut after = old(targets);
            let record = json!({"from": "m1", "mode": mode}).to_string();
            after["metadata"]["annotations"] = json!({objects::LAST_EVICTION: record});
            let tasks = if mode == "Directly" {
                vec![]
            } else {
                vec![task(&json!({}))]
            };
            after["spec"]["gracefulEvictionTasks"] = json!(tasks);
            story.write(control_plane(), &binding_key("web"), after);
            story.keeps(is_kept, (targets, mode));
        }
    }

    #[test]
    fn a_task_ends_when_all_targets_are_healthy_or_its_grace_is_over_or_a_person_releases_it() {
        let report = |health: &str, ready: i64| json!({"clusterName": "m2", "health": health, "status": {"replicas": 2, "readyReplicas": ready}});
        let (none, healthy) = (json!({}), report("Healthy", 2));
        let (half, ill) = (report("Healthy", 1), report("Unhealthy", 2));
        let grace = json!({"gracePeriodSeconds": 60});
        let kept = |kept: bool| json!({ "suppressDeletion": kept });
        for (what, target, more, report, seconds, is_kept) in [
            ("replaced", "m2", &none, &healthy, 5, true),
            ("half replaced", "m2", &none, &half, 5, false),
            ("unhealthy", "m2", &none, &ill, 5, false),
            ("no report", "m3", &none, &healthy, 5, false),
            ("in grace", "m2", &grace, &none, 59, false),
            ("after grace", "m2", &grace, &none, 61, true),
            ("after grace, dead", "m3", &grace, &none, 61, false),
            ("never", "m2", &kept(true), &healthy, 5, false),
            ("released", "m2", &kept(false), &none, 5, true),
        ] {
            let mut story = story();
            let key = binding_key("web");
            let mut evicted = binding(&[target]);
            evicted["spec"]["gracefulEvictionTasks"] = json!([task(more)]);
            evicted["spec"]["gracefulEvictionTasks"][0]["creationTimestamp"] = json!(story.time());
            evicted["status"] = json!({"aggregatedStatus": [report]});
            story.write(person(), &key, evicted);
            story.write(control_plane(), &work_key(target), work());
            let ended = json!({"spec": {"gracefulEvictionTasks": null}});
            story.wait(seconds).patch(control_plane(), &key, &ended);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn the_last_copy_may_go_when_a_person_asks_for_no_replicas() {
        for (known, asked, is_kept) in [
            (json!(0), json!(0), true),
            (json!(null), json!(0), true),
            (json!(2), json!(0), false),
            // The template does not ask for the 0 replicas that its binding says.
            (json!(0), json!(2), false),
            (json!(0), json!(null), false),
        ] {
            let mut story = story();
            let key = binding_key("web");
            let mut evicted = binding(&[]);
            evicted["spec"]["replicas"] = known.clone();
            evicted["spec"]["gracefulEvictionTasks"] = json!([task(&json!({}))]);
            story.write(person(), &key, evicted);
            let template = json!({"spec": {"replicas": asked}});
            story.write(person(), &deployment_key(&Api::Fleet), template);
            let ended = json!({"spec": {"gracefulEvictionTasks": null}});
            story.wait(3_600).patch(control_plane(), &key, &ended);
            story.keeps(is_kept, (known, asked));
        }
    }
}
