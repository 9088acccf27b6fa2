//! Whoever had a living copy has one, unless a person's word or the policy's own says otherwise.
//!
//! A copy lives where a member has the object with ready replicas. The write of the product that
//! takes away the last living copy of a workload needs a word:
//!
//! * A copy elsewhere died by no write of the product, at a moment that nobody may know of yet.
//! * A person deleted the template; unless its policy, not a lazy one, preserved the objects by
//!   then, and still does.
//! * A person wants no replicas: the template asks for 0.
//! * A person took the cluster out of the fleet; or, of a copy whose task had ended before, that of
//!   another copy, which lived until then: a silent cluster removes its own once it returns.
//! * A person changed the placement when the cluster was given up: a policy that may select the
//!   workload, or the labels and places of clusters. A policy that says anything else anew does not
//!   count.
//! * A person changed or deleted the binding by hand.
//! * The policy says `Directly`, or has `fencing`, and dispatching to some target is not suspended:
//!   the workload was evicted, or somebody asked for a new placement.
//! * The policy's grace period is over, and some target has a Work that is not suspended.
//! * A person released the task: `suppressDeletion` is false.
//! * The policy has `fencing`, and the write says that it stops the copy.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::asked;
use super::moves::{self, Move, What};
use super::objects::{self, Binding, Task};
use super::scene::Scene;
use super::shown::ready;
use super::{Oracle, Violation};
use crate::feature::WORKLOADS;
use crate::history::{Actor, Api, Entry, Key, Request};

const NAME: &str = "living";

/// Annotation of an object in a member with the uid of its template.
const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";

/// Time within which the report of a member reaches the fleet.
const REPORTED: SignedDuration = SignedDuration::from_secs(30);

/// The oracle.
#[derive(Debug, Default)]
pub struct Living {
    /// When copies ceased to live by no write of the product, by their objects in members.
    died: BTreeMap<Key, Timestamp>,
    /// Words for copies that go, by their binding and cluster.
    words: BTreeMap<(Key, String), Word>,
    /// When living copies went with their clusters, by their templates: the last one of each.
    taken_out: BTreeMap<Key, Timestamp>,
    /// Templates that people deleted: those of one name one after the other.
    deleted: BTreeMap<Key, Vec<Deletion>>,
}

/// Why a copy may go, or why it may not.
#[derive(Debug)]
struct Word {
    says: Result<&'static str, String>,
    /// When the cluster became a target again: what was ordered before may still be on its way.
    taken_back: Option<Timestamp>,
    /// When the task of the copy ended, if it had one.
    ended: Option<Timestamp>,
}

/// A deletion of a template.
#[derive(Debug)]
struct Deletion {
    at: Timestamp,
    /// The template's uid: one that is made anew is another.
    uid: String,
    /// The policy that preserved its objects.
    preserved_by: Option<Key>,
}

impl Oracle for Living {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        self.note_deletion(request, scene);
        if let Some((request, before, after)) = moves::of_binding(entry) {
            self.note_moves(request, before, after, scene);
        }
        let lost = self.lost(scene, request);
        let lost = lost.map(|why| scene.violation(NAME, &request.key(), &why));
        lost.into_iter().collect()
    }
}

impl Living {
    /// Notes a template that somebody deletes: by then its policy preserves its objects, or not.
    fn note_deletion(&mut self, request: &Request, scene: &Scene) {
        let is_template =
            request.api == Api::Fleet && WORKLOADS.contains(&request.resource.plural.as_str());
        let Some(before) = request.before.as_deref().filter(|_| is_template) else {
            return;
        };
        let ends = request.after.as_deref().is_none_or(objects::is_deleting);
        if ends && !objects::is_deleting(before) {
            let deletion = Deletion {
                at: scene.now,
                uid: objects::text(before, "/metadata/uid").to_owned(),
                preserved_by: objects::policy_of(before).filter(|key| preserves(scene, key)),
            };
            let all = self.deleted.entry(request.key()).or_default();
            all.push(deletion);
        }
    }

    fn note_moves(
        &mut self,
        request: &Request,
        before: Binding<'_>,
        after: Binding<'_>,
        scene: &Scene,
    ) {
        let key = request.key();
        for target in after.clusters().into_keys() {
            let known = self.words.get_mut(&(key.clone(), target.to_owned()));
            if let Some(word) = known {
                word.taken_back.get_or_insert(scene.now);
            }
        }
        for it in moves::between(before, after) {
            let place = (key.clone(), it.cluster.to_owned());
            if let Some(says) = word_for(scene, &key, before, after, &it) {
                let word = Word {
                    says,
                    taken_back: None,
                    ended: matches!(it.what, What::Ended(_)).then_some(scene.now),
                };
                self.words.insert(place, word);
            }
        }
    }

    /// Returns why the last living copy of a workload should not have gone, if this is what a write
    /// does.
    fn lost(&mut self, scene: &Scene, request: &Request) -> Option<String> {
        let Api::Member(cluster) = &request.api else {
            return None;
        };
        if !WORKLOADS[..3].contains(&request.resource.plural.as_str()) {
            return None;
        }
        let (before, after) = (request.before.as_deref()?, request.after.as_deref());
        let key = request.key();
        let lives = |object: &Value| ready(object) > 0 && !objects::is_deleting(object);
        let after = after.filter(|after| !objects::is_deleting(after));
        let by_product = matches!(request.actor, Actor::Process(_));
        let is_taken = after.is_none_or(|it| objects::number(it, "/spec/replicas") == Some(0));
        if !lives(before) {
            return None;
        }
        if !by_product && !after.is_some_and(lives) {
            self.died.insert(key, scene.now);
            return None;
        }
        if !by_product || !is_taken || objects::number(before, "/spec/replicas") == Some(0) {
            return None;
        }
        if after.is_some_and(objects::is_stopped) {
            return None;
        }
        if scene.has_left(cluster) {
            let template = Key {
                api: Api::Fleet,
                ..key.clone()
            };
            self.taken_out.insert(template, scene.now);
        }
        let binding = objects::binding_of(before)?;
        if scene
            .members()
            .any(|it| it != cluster && self.may_live(scene, &key, it))
        {
            return None;
        }
        let why = self.unwanted(scene, (&key, before), &binding, cluster)?;
        Some(format!("the last living copy went: {why}"))
    }

    /// Returns whether a copy lives in another member, or did until a moment that nobody may know
    /// of yet.
    fn may_live(&self, scene: &Scene, key: &Key, member: &str) -> bool {
        let known = scene.rules.grace + scene.rules.lag + REPORTED;
        let is_recent = |at: &Timestamp| scene.now.duration_since(*at) <= known;
        let there = Key {
            api: Api::Member(member.to_owned()),
            ..key.clone()
        };
        let lives = scene
            .objects
            .get(&there)
            .is_some_and(|it| ready(it) > 0 && !objects::is_deleting(it));
        let is_down = scene
            .down
            .get(member)
            .is_some_and(|since| !is_recent(since));
        (lives && !is_down) || self.died.get(&there).is_some_and(is_recent)
    }

    /// Returns why nothing that a person or the policy said lets the last living copy of a workload
    /// go; `None` if something does.
    fn unwanted(
        &self,
        scene: &Scene,
        (key, copy): (&Key, &Value),
        binding: &Key,
        cluster: &str,
    ) -> Option<String> {
        let template = Key {
            api: Api::Fleet,
            ..key.clone()
        };
        if scene.has_left(cluster) || scene.is_wished_of(binding) {
            return None;
        }
        // One that was made anew since is another workload, whose copy names it.
        let made_of = objects::annotation(copy, TEMPLATE_UID);
        let is_deleted = !scene.objects.contains_key(&template);
        let mut deletions = self.deleted.get(&template).into_iter().flatten().rev();
        let deletion = deletions.find(|it| made_of.map_or(is_deleted, |uid| uid == it.uid));
        if let Some(Deletion {
            at, preserved_by, ..
        }) = deletion
        {
            let policy = preserved_by.as_ref().filter(|it| preserves(scene, it))?;
            return Some(format!(
                "{policy} preserves it, and did when the template was deleted at {at}"
            ));
        }
        let wanted = scene.recently(&template);
        let mut wanted = wanted.filter_map(|it| objects::number(it?, "/spec/replicas"));
        if wanted.any(|replicas| replicas == 0) {
            return None;
        }
        let word = self.words.get(&(binding.clone(), cluster.to_owned()));
        let lasts = |word: &&Word| word.taken_back.is_none_or(|at| scene.is_on_its_way(at));
        let taken_out = self.taken_out.get(&template);
        let is_outlived = |word: &Word| word.ended.is_some_and(|at| Some(&at) <= taken_out);
        match word.filter(lasts) {
            Some(word) if is_outlived(word) => None,
            Some(Word { says, .. }) => says.clone().err(),
            None => {
                let Some(state) = scene.objects.get(binding).map(|it| Binding(it)) else {
                    return Some(format!("{binding} is gone, and nobody deleted it"));
                };
                // Fencing that was set after the workload was evicted.
                if scene.is_fenced(state) && state.task(cluster).is_some() {
                    return at_once(state).err();
                }
                Some("nobody gave the cluster up".to_owned())
            }
        }
    }
}

/// Returns why a copy may go after a write of a binding, or why it may not; `None` where the copy
/// stays for now.
fn word_for(
    scene: &Scene,
    key: &Key,
    before: Binding<'_>,
    after: Binding<'_>,
    it: &Move<'_>,
) -> Option<Result<&'static str, String>> {
    if scene.has_left(it.cluster) {
        return Some(Ok("the cluster was taken out of the fleet"));
    }
    if scene.is_placed_by_person(key, before) {
        return Some(Ok("the placement was changed"));
    }
    match it.what {
        What::Evicted(task) => (task.purge_mode() == "Directly").then(|| at_once(after)),
        What::Purged => Some(at_once(after)),
        What::Dropped if scene.is_fenced(before) => Some(at_once(after)),
        What::Dropped if asked::is_requested(before) && goes_first(before) => Some(at_once(after)),
        What::Dropped => Some(Err("no target any more, and nobody asked for it".to_owned())),
        What::Ended(task) => Some(ended(scene, key, before, task)),
    }
}

/// Returns whether a policy allows no old copy beside a new one: one of its modes is `Directly`,
/// clusters that fail may be left, and there is one copy.
fn goes_first(binding: Binding<'_>) -> bool {
    let of_cluster = binding.cluster_purge_mode();
    let modes = [of_cluster, binding.application_purge_mode()];
    binding.clusters().len() == 1 && of_cluster != "Never" && modes.contains(&"Directly")
}

/// Returns why a copy may go whether or not another one lives, or why it may not.
fn at_once(binding: Binding<'_>) -> Result<&'static str, String> {
    if may_be_sent(binding) {
        Ok("Directly")
    } else {
        Err("it goes at once, and dispatching to every target is suspended".to_owned())
    }
}

fn ended(
    scene: &Scene,
    key: &Key,
    before: Binding<'_>,
    task: Task<'_>,
) -> Result<&'static str, String> {
    if task.0["suppressDeletion"] == false {
        return Ok("the task was released");
    }
    let is_sent = |target: &str| {
        let work = scene.work_of(key, target);
        work.is_some_and(|work| work["spec"]["suspendDispatching"] != true)
    };
    if task.purge_mode() == "Directly" || scene.is_fenced(before) {
        return at_once(before);
    }
    let slack = scene.clock_error() + SignedDuration::from_secs(1);
    let is_over = objects::number(task.0, "/gracePeriodSeconds").is_some_and(|seconds| {
        objects::time(task.0, "/creationTimestamp").is_some_and(|created| {
            scene.now + slack >= created + SignedDuration::from_secs(seconds)
        })
    });
    match (is_over, before.clusters().into_keys().any(is_sent)) {
        (true, true) => Ok("the grace period is over"),
        (true, false) => {
            Err("its grace period is over, and no target was sent the workload".to_owned())
        }
        (false, _) => Err("its task ended, and no other copy lives".to_owned()),
    }
}

/// Returns whether dispatching to some target is not suspended.
fn may_be_sent(binding: Binding<'_>) -> bool {
    let mut targets = binding.clusters().into_keys();
    targets.any(|it| !binding.is_suspended_in(it))
}

/// Returns whether a policy preserves objects. A lazy one does with the next change of the
/// template.
fn preserves(scene: &Scene, policy: &Key) -> bool {
    scene.objects.get(policy).is_some_and(|policy| {
        policy["spec"]["preserveResourcesOnDeletion"] == true
            && policy["spec"]["activationPreference"] != "Lazy"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    fn story(elsewhere: i64) -> Story<Living> {
        let mut story = Story::new(Living::default());
        for name in ["m1", "m2"] {
            story.write(control_plane(), &cluster_key(name), cluster("True", &[]));
        }
        let mut template = json!({"spec": {"replicas": 2}});
        template["metadata"]["annotations"] = claimed();
        story.write(person(), &policy_key(), json!({"spec": {}}));
        story.write(person(), &deployment_key(&Api::Fleet), template);
        story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story.write(agent("m2"), &member_key("m2"), deployment("m2", elsewhere));
        story.wait(3_600);
        story
    }

    /// Moves the workload to `m2` with a task, which ends after a while.
    fn moved(story: &mut Story<Living>, task: &Value, suspension: &Value) {
        let mut after = binding(&["m2"]);
        let mut kept = json!({"fromCluster": "m1", "creationTimestamp": story.time()});
        for (field, value) in task.as_object().into_iter().flatten() {
            kept[field.as_str()] = value.clone();
        }
        after["spec"]["gracefulEvictionTasks"] = json!([kept]);
        after["spec"]["suspension"] = suspension.clone();
        let mut sent = work();
        sent["spec"]["suspendDispatching"] = json!(!suspension.is_null());
        story.write(control_plane(), &work_key("m2"), sent);
        story.write(control_plane(), &binding_key("web"), after.clone());
        after["spec"]["gracefulEvictionTasks"] = json!([]);
        story
            .wait(60)
            .write(control_plane(), &binding_key("web"), after);
        story
            .wait(60)
            .write(agent("m1"), &member_key("m1"), Value::Null);
    }

    #[test]
    fn the_last_living_copy_goes_by_the_word_of_the_policy_only_where_another_is_on_its_way() {
        let suspended = || json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}});
        for (task, elsewhere, suspension, is_kept) in [
            (json!({}), 2, json!(null), true),
            (json!({}), 0, json!(null), false),
            (json!({"gracePeriodSeconds": 30}), 0, json!(null), true),
            (json!({"gracePeriodSeconds": 90}), 0, json!(null), false),
            (json!({"gracePeriodSeconds": 30}), 0, suspended(), false),
            (json!({"purgeMode": "Directly"}), 0, json!(null), true),
            (json!({"purgeMode": "Immediately"}), 0, suspended(), false),
            (json!({"suppressDeletion": false}), 0, json!(null), true),
        ] {
            let mut story = story(elsewhere);
            moved(&mut story, &task, &suspension);
            story.keeps(is_kept, (task, suspension));
        }
    }

    #[test]
    fn a_new_placement_that_was_asked_for_takes_the_last_copy_only_where_no_two_may_run() {
        let mode = |cluster: &str, application: &str| json!({"cluster": {"purgeMode": cluster}, "application": {"purgeMode": application}});
        let asked = "2026-01-01T00:00:00Z";
        for (asked, failover, suspended, is_kept) in [
            (asked, mode("Directly", ""), false, true),
            (asked, mode("", "Immediately"), false, true),
            (asked, mode("Never", "Directly"), false, false),
            (asked, mode("Gracefully", ""), false, false),
            (asked, mode("Directly", ""), true, false),
            ("", mode("Directly", ""), false, false),
        ] {
            let mut story = story(0);
            let mut moved = binding(&["m1"]);
            moved["spec"]["failover"] = failover.clone();
            moved["spec"]["rescheduleTriggeredAt"] = json!(asked);
            moved["spec"]["suspension"] = json!({"dispatching": suspended});
            story.write(control_plane(), &binding_key("web"), moved.clone());
            moved["spec"]["clusters"] = json!([{"name": "m2"}]);
            story.write(control_plane(), &binding_key("web"), moved);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, (asked, failover, suspended));
        }
    }

    #[test]
    fn a_template_that_is_deleted_takes_its_copies_along_unless_they_are_preserved() {
        let preserving = || json!({"spec": {"preserveResourcesOnDeletion": true}});
        let released = json!({"spec": {"preserveResourcesOnDeletion": null}});
        let lazy = json!({"spec": {
            "preserveResourcesOnDeletion": true, "activationPreference": "Lazy",
        }});
        for (before, after, is_kept) in [
            (json!({}), json!({}), true),
            (preserving(), json!({}), false),
            (json!({}), preserving(), true),
            (lazy, json!({}), true),
            (preserving(), released, true),
        ] {
            let mut story = story(0);
            story.patch(person(), &policy_key(), &before);
            story.write(person(), &deployment_key(&Api::Fleet), Value::Null);
            // The server collects what belonged to it, which is no person's word.
            let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            story.patch(Actor::Server, &binding_key("web"), &gone);
            story.wait(1).patch(person(), &policy_key(), &after);
            story
                .wait(1)
                .write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, (before, after));
        }
    }

    #[test]
    fn a_copy_goes_with_the_template_that_it_was_made_of_and_not_with_one_before_it() {
        for (made_of, is_kept) in [("old", true), ("new", false)] {
            let mut story = story(0);
            let key = deployment_key(&Api::Fleet);
            story.patch(person(), &key, &json!({"metadata": {"uid": "old"}}));
            let made_of = json!({"metadata": {"annotations": {TEMPLATE_UID: made_of}}});
            story.patch(agent("m1"), &member_key("m1"), &made_of);
            story.write(person(), &key, Value::Null);
            let anew = json!({"metadata": {"uid": "new"}, "spec": {"replicas": 2}});
            story.write(person(), &key, anew).wait(3_600);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, made_of);
        }
    }

    #[test]
    fn people_may_take_the_last_copy_away_and_the_product_may_not() {
        let gone = |story: &mut Story<Living>| {
            let word = story
                .write(agent("m1"), &member_key("m1"), Value::Null)
                .reported();
            word.is_empty()
        };
        assert!(!gone(&mut story(0)));
        assert!(gone(story(0).patch(
            person(),
            &deployment_key(&Api::Fleet),
            &json!({"spec": {"replicas": 0}}),
        )));
        assert!(gone(story(0).write(
            person(),
            &cluster_key("m1"),
            Value::Null
        )));
        let mut cleaned = story(0);
        cleaned.write(person(), &member_key("m1"), Value::Null);
        assert_eq!(cleaned.reported(), [""; 0]);
    }

    #[test]
    fn a_copy_whose_task_ended_goes_after_the_other_one_went_with_its_cluster() {
        for is_taken_out in [true, false] {
            let mut story = story(2);
            let mut after = binding(&["m2"]);
            let task = json!({"fromCluster": "m1", "creationTimestamp": story.time()});
            after["spec"]["gracefulEvictionTasks"] = json!([task]);
            story.write(control_plane(), &binding_key("web"), after.clone());
            after["spec"]["gracefulEvictionTasks"] = json!([]);
            story.write(control_plane(), &binding_key("web"), after);
            story.wait(3_600);
            if is_taken_out {
                story.write(person(), &cluster_key("m2"), Value::Null);
            }
            story.write(agent("m2"), &member_key("m2"), Value::Null);
            story.wait(3_600);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_taken_out, is_taken_out);
        }
    }

    #[test]
    fn a_binding_that_a_person_changes_by_hand_is_his_word_and_one_that_he_holds_is_none() {
        for (patch, is_kept) in [
            (json!({"spec": {"clusters": []}}), true),
            (json!({"spec": {"suspension": {"scheduling": true}}}), false),
        ] {
            let mut story = story(0);
            story.patch(person(), &binding_key("web"), &patch);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, patch);
        }
    }

    #[test]
    fn a_copy_that_died_elsewhere_a_moment_ago_may_be_believed_to_live() {
        for (seconds, is_kept) in [(30, true), (120, false)] {
            let mut story = story(2);
            let dead = deployment("m2", 0);
            story.write(Actor::Workloads, &member_key("m2"), dead);
            story.wait(seconds);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, seconds);
        }
    }
}
