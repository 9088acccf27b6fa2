//! Safety contract 1, one step further: a Work goes only when its binding has given the cluster up.
//!
//! The binding and its policy count as they are, and as they were up to [`Rules::lag`] ago: the
//! watch of a control plane may be so far behind.
//!
//! [`Rules::lag`]: super::Rules::lag

use super::objects::{self, Binding};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Request};

const NAME: &str = "works";

/// The oracle.
#[derive(Debug, Default)]
pub struct Works;

impl Oracle for Works {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let deleted = entry.commit().and_then(|request| {
            let why = unasked(scene, request)?;
            Some(scene.violation(NAME, &request.key(), &why))
        });
        deleted.into_iter().collect()
    }
}

fn unasked(scene: &Scene, request: &Request) -> Option<String> {
    let before = request.before.as_deref()?;
    let ends = request.after.as_deref().is_none_or(objects::is_deleting);
    let by_product = matches!(request.actor, Actor::Process(_));
    let is_work = request.api == Api::Fleet
        && request.resource.group == objects::WORK
        && request.resource.plural == "works";
    if !is_work || !by_product || !ends || objects::is_deleting(before) {
        return None;
    }
    let cluster = request
        .namespace
        .as_deref()?
        .strip_prefix(objects::EXECUTION)?;
    let binding = objects::binding_of(before)?;
    let given_up = scene.recently(&binding).any(|state| {
        state.is_none_or(|state| {
            objects::is_deleting(state) || gives_up(scene, Binding(state), cluster)
        })
    });
    (!scene.has_left(cluster) && !given_up)
        .then(|| format!("deleted, and {binding} wants it in {cluster}"))
}

fn gives_up(scene: &Scene, binding: Binding<'_>, cluster: &str) -> bool {
    let wanted = binding.clusters().contains_key(cluster) || binding.required().contains(cluster);
    let kept = binding
        .task(cluster)
        .is_some_and(|task| task.purge_mode() != "Directly");
    !wanted && (!kept || scene.is_fenced(binding))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_work_goes_only_when_its_binding_has_given_the_cluster_up() {
        let leaving = |mode: &str| {
            let mut binding = binding(&["m2"]);
            binding["spec"]["gracefulEvictionTasks"] =
                json!([{"fromCluster": "m1", "purgeMode": mode}]);
            binding
        };
        let mut fenced = leaving("Gracefully");
        fenced["spec"]["failover"] = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
        let mut of_policy = leaving("Gracefully");
        of_policy["metadata"]["annotations"] = claimed();
        let policy = policy_key();
        let required = json!({"spec": {"requiredBy": [{"clusters": [{"name": "m1"}]}]}});
        for (what, after, seconds, is_kept) in [
            ("a target", binding(&["m1"]), 60, false),
            ("no target", binding(&["m2"]), 60, true),
            ("being left", leaving("Gracefully"), 60, false),
            ("being left at once", leaving("Immediately"), 60, true),
            ("being left with fencing", fenced.clone(), 60, true),
            ("being left with fencing of its policy", of_policy, 60, true),
            ("a dependency", required, 60, false),
            ("no binding", Value::Null, 60, true),
        ] {
            let mut story = Story::new(Works);
            let key = binding_key("web");
            story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
            story.write(control_plane(), &key, after);
            story.write(person(), &policy, fenced.clone());
            story.write(control_plane(), &work_key("m1"), work());
            story.wait(seconds);
            story.write(control_plane(), &work_key("m1"), Value::Null);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn fencing_that_was_unset_a_moment_ago_is_no_lie() {
        for (seconds, is_kept) in [(5, true), (15, false)] {
            let mut story = Story::new(Works);
            let mut leaving = binding(&["m2"]);
            leaving["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1"}]);
            leaving["metadata"]["annotations"] = claimed();
            let policy = policy_key();
            let fencing = |it: Value| json!({"spec": {"failover": {"cluster": {"fencing": it}}}});
            story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
            story.write(control_plane(), &work_key("m1"), work());
            story.write(control_plane(), &binding_key("web"), leaving);
            story.write(person(), &policy, fencing(json!({"afterSeconds": 60})));
            story
                .wait(60)
                .patch(person(), &policy, &fencing(Value::Null));
            story.wait(seconds);
            story.write(control_plane(), &work_key("m1"), Value::Null);
            story.keeps(is_kept, seconds);
        }
    }

    #[test]
    fn what_was_true_a_moment_ago_is_no_lie() {
        for (seconds, is_kept) in [(5, true), (15, false)] {
            let mut story = Story::new(Works);
            let key = binding_key("web");
            story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
            story.write(control_plane(), &work_key("m1"), work());
            story
                .write(control_plane(), &key, binding(&["m2"]))
                .wait(60);
            story.write(control_plane(), &key, binding(&["m1"]));
            story.wait(seconds);
            story.write(control_plane(), &work_key("m1"), Value::Null);
            story.keeps(is_kept, seconds);
        }
    }
}
