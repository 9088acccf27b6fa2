//! Safety contract 5: stale knowledge deletes nothing.
//!
//! An object in a member is deleted by the product only after the fleet API held a state in which
//! its Work is gone, is being deleted, or does not list it; and not where that Work asks for its
//! objects to be preserved.

use serde_json::Value;

use super::objects::{self, WORK};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Request};

const NAME: &str = "stale";

/// The oracle.
#[derive(Debug, Default)]
pub struct Stale;

impl Oracle for Stale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let deleted = entry.commit().and_then(|request| {
            let why = unfounded(scene, request)?;
            Some(scene.violation(NAME, &request.key(), &why))
        });
        deleted.into_iter().collect()
    }
}

fn unfounded(scene: &Scene, request: &Request) -> Option<String> {
    let Api::Member(_) = request.api else {
        return None;
    };
    let before = request.before.as_deref()?;
    let ends = request.after.as_deref().is_none_or(objects::is_deleting);
    if !matches!(request.actor, Actor::Process(_)) || !ends || objects::is_deleting(before) {
        return None;
    }
    let namespace = objects::annotation(before, "work.karmada.io/namespace")?;
    let name = objects::annotation(before, "work.karmada.io/name")?;
    let key = objects::key(&Api::Fleet, WORK, "works", namespace, name);
    let released = scene
        .recently(&key)
        .any(|state| state.is_none_or(|work| objects::is_deleting(work) || !lists(work, request)));
    if !released {
        return Some(format!("deleted, and {key} lists it"));
    }
    let last = scene.objects.get(&key).map(|work| &**work);
    let last = last.or_else(|| scene.former(&key))?;
    (last["spec"]["preserveResourcesOnDeletion"] == true)
        .then(|| format!("deleted, and {key} preserves it"))
}

/// Returns whether a Work has an object among its manifests.
fn lists(work: &Value, request: &Request) -> bool {
    objects::items(work, "/spec/workload/manifests").any(|manifest| {
        objects::referent(&request.api, manifest).is_some_and(|key| key == request.key())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn an_object_goes_after_its_work_and_not_before() {
        let preserving = json!({"spec": {"preserveResourcesOnDeletion": true}});
        let dropping = json!({"spec": {"workload": {"manifests": []}}});
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for (what, patch, goes, is_kept) in [
            ("there", json!({}), false, false),
            ("gone", json!({}), true, true),
            ("preserving", preserving.clone(), false, false),
            ("gone and preserving", preserving, true, false),
            ("without it", dropping, false, true),
            ("being deleted", deleting, false, true),
        ] {
            let mut story = Story::new(Stale);
            story.write(control_plane(), &work_key("m1"), work());
            story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
            story
                .wait(60)
                .patch(control_plane(), &work_key("m1"), &patch);
            if goes {
                story.write(control_plane(), &work_key("m1"), Value::Null);
            }
            story
                .wait(60)
                .write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn knowledge_that_is_older_than_the_delay_of_the_network_is_stale() {
        for (seconds, is_kept) in [(5, true), (60, false)] {
            let mut story = Story::new(Stale);
            story.write(control_plane(), &work_key("m1"), work());
            story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
            story
                .wait(60)
                .write(control_plane(), &work_key("m1"), Value::Null);
            story
                .wait(60)
                .write(control_plane(), &work_key("m1"), work());
            story.wait(seconds);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, seconds);
        }
    }

    #[test]
    fn what_others_delete_is_their_affair() {
        let mut story = Story::new(Stale);
        story.write(control_plane(), &work_key("m1"), work());
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story
            .wait(60)
            .write(person(), &member_key("m1"), Value::Null);
        assert_eq!(story.reported(), [""; 0]);
    }
}
