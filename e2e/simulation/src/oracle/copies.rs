//! Safety contract 1 as users see it: never fewer ready copies than without the control plane, but
//! for the policy's own word.
//!
//! Each write of the product in a member that takes ready replicas away (a deletion, or fewer
//! replicas) leaves as many ready ones in all members together as the template asks for, or as
//! there were. Members that are cut off count: what runs there serves its users, until its agent
//! stops what the policy has fenced.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::moves::{self, What};
use super::objects::{self, Binding};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Key, Phase, Request};

const NAME: &str = "copies";

/// The oracle.
#[derive(Debug, Default)]
pub struct Copies {
    /// Bindings and clusters whose copies go by the word of the policy: `Directly`, or after a
    /// grace period. With the time at which the cluster became a target again.
    given_up: BTreeMap<(Key, String), Option<Timestamp>>,
    /// The same for those that a promoted store, which says what was so at its snapshot, gives less
    /// than they have: they lose it once.
    restored: BTreeSet<(Key, String)>,
}

impl Oracle for Copies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        if let Some((request, before, after)) = moves::of_binding(entry) {
            self.note(&request.key(), before, after, scene);
        }
        let restored = entry.commit().filter(|it| it.actor == Actor::Setup);
        if let Some(request) = restored.filter(|_| scene.phase != Phase::Setup) {
            self.note_restored(request);
        }
        let lost = entry.commit().and_then(|request| {
            let why = self.lost(scene, request)?;
            Some(scene.violation(NAME, &request.key(), &why))
        });
        lost.into_iter().collect()
    }
}

impl Copies {
    /// Notes the places to which a promoted store gives less than they have. It may have lost a
    /// binding, which is made and placed anew.
    fn note_restored(&mut self, request: &Request) {
        let Some(before) = request.before.as_deref().map(Binding) else {
            return;
        };
        let after = request.after.as_deref().map(Binding);
        let has = after.map_or_else(BTreeMap::new, Binding::clusters);
        let had = before.clusters().into_iter();
        let less = had.filter(|(name, had)| has.get(name).is_none_or(|has| has < had));
        let less = less.map(|(name, _)| (request.key(), name.to_owned()));
        self.restored.extend(less);
    }

    fn note(&mut self, key: &Key, before: Binding<'_>, after: Binding<'_>, scene: &Scene) {
        for target in after.clusters().into_keys() {
            let known = self.given_up.get_mut(&(key.clone(), target.to_owned()));
            if let Some(taken_back) = known {
                taken_back.get_or_insert(scene.now);
            }
        }
        for it in moves::between(before, after) {
            let by_policy = match it.what {
                What::Evicted(task) => task.purge_mode() == "Directly",
                What::Purged => true,
                What::Dropped => scene.is_wished(key, before),
                What::Ended(task) => {
                    // What is removed once its member is back was replaced at this moment.
                    !scene.is_reachable(it.cluster)
                        || !task.0["gracePeriodSeconds"].is_null()
                        || task.0["suppressDeletion"] == false
                        || task.purge_mode() == "Directly"
                }
            };
            if by_policy {
                let place = (key.clone(), it.cluster.to_owned());
                self.given_up.insert(place, None);
            }
        }
    }

    fn lost(&mut self, scene: &Scene, request: &Request) -> Option<String> {
        let Api::Member(cluster) = &request.api else {
            return None;
        };
        let (before, after) = (request.before.as_deref()?, request.after.as_deref());
        if !matches!(request.actor, Actor::Process(_)) || objects::is_deleting(before) {
            return None;
        }
        let ready = ready(before);
        let lost = match after.filter(|after| !objects::is_deleting(after)) {
            None => ready,
            Some(after) => ready - objects::number(after, "/spec/replicas").unwrap_or(ready),
        };
        if lost <= 0 || after.is_some_and(objects::is_stopped) {
            return None;
        }
        let binding = objects::binding_of(before)?;
        let place = (binding.clone(), cluster.clone());
        if self.is_asked(scene, &binding, cluster, request) || self.restored.remove(&place) {
            return None;
        }
        let elsewhere: i64 = scene
            .members()
            .filter(|member| *member != cluster)
            .map(|member| lately_ready(scene, &request.key(), member))
            .sum();
        let left = elsewhere + ready - lost;
        let wanted = desired(scene, &request.key());
        (left < wanted.min(elsewhere + ready)).then(|| {
            format!("{left} ready copies are left of {wanted} that are wanted, after {lost} went")
        })
    }

    /// Returns whether a person, or the policy, wants the copy to go whatever there is elsewhere.
    fn is_asked(&self, scene: &Scene, key: &Key, cluster: &str, request: &Request) -> bool {
        let place = (key.clone(), cluster.to_owned());
        let given_up = self.given_up.get(&place);
        if scene.has_left(cluster)
            || given_up.is_some_and(|back| back.is_none_or(|at| scene.is_on_its_way(at)))
        {
            return true;
        }
        let template = template(&request.key());
        let binding = scene.objects.get(key).map(|value| Binding(value));
        binding.is_none_or(|binding| {
            objects::is_deleting(binding.0)
                || scene.is_wished(key, binding)
                || binding.0["spec"]["placement"].is_null()
        }) || !scene.objects.contains_key(&template)
    }
}

fn template(key: &Key) -> Key {
    Key {
        api: Api::Fleet,
        ..key.clone()
    }
}

/// Returns the number of ready replicas that the template asks for; 1 of what has no replicas.
fn desired(scene: &Scene, key: &Key) -> i64 {
    let template = scene.objects.get(&template(key));
    template
        .and_then(|template| objects::number(template, "/spec/replicas"))
        .unwrap_or(1)
}

/// Returns the number of ready replicas of an object; 1 for what has none and is there.
fn ready(object: &Value) -> i64 {
    if object.pointer("/spec/replicas").is_some() {
        return objects::number(object, "/status/readyReplicas").unwrap_or_default();
    }
    objects::number(object, "/status/numberReady").unwrap_or(1)
}

/// Returns the most that was ready in a member within the moments that nobody may know of yet;
/// nothing in a member that has been down for longer.
fn lately_ready(scene: &Scene, key: &Key, member: &str) -> i64 {
    let known: SignedDuration = scene.rules.grace + scene.rules.lag;
    let down = scene.down.get(member);
    if down.is_some_and(|since| scene.now.duration_since(*since) > known) {
        return 0;
    }
    let there = Key {
        api: Api::Member(member.to_owned()),
        ..key.clone()
    };
    let states = scene.recently(&there).flatten();
    states.map(ready).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::World;

    fn story(elsewhere: i64) -> Story<Copies> {
        let mut story = Story::new(Copies::default());
        for name in ["m1", "m2"] {
            story.write(control_plane(), &cluster_key(name), cluster("True", &[]));
        }
        let template = json!({"spec": {"replicas": 2}});
        story.write(person(), &deployment_key(&Api::Fleet), template);
        story.write(control_plane(), &binding_key("web"), binding(&["m2"]));
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story.write(agent("m2"), &member_key("m2"), deployment("m2", elsewhere));
        story.wait(3_600);
        story
    }

    #[test]
    fn an_old_copy_goes_when_the_new_one_is_ready() {
        for (elsewhere, is_kept) in [(2, true), (1, false), (0, false)] {
            let mut story = story(elsewhere);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, elsewhere);
        }
    }

    #[test]
    fn fewer_replicas_are_as_bad_as_a_deletion() {
        for (replicas, is_kept) in [(2, true), (1, false)] {
            let mut story = story(0);
            let patch = json!({"spec": {"replicas": replicas}});
            story.patch(agent("m1"), &member_key("m1"), &patch);
            story.keeps(is_kept, replicas);
        }
    }

    #[test]
    fn copies_of_a_cluster_that_is_down_count_until_that_can_be_known() {
        for (seconds, is_kept) in [(30, true), (120, false)] {
            let mut story = story(2);
            story.world(World::Down("m2".to_owned())).wait(seconds);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, seconds);
        }
    }

    #[test]
    fn what_a_person_or_the_policy_asks_for_goes() {
        let mut deleted = story(0);
        deleted.write(person(), &deployment_key(&Api::Fleet), Value::Null);
        deleted.write(agent("m1"), &member_key("m1"), Value::Null);
        assert_eq!(deleted.reported(), [""; 0]);

        let mut expired = story(0);
        let task = json!([{"fromCluster": "m1", "gracePeriodSeconds": 60}]);
        let with = json!({"spec": {"gracefulEvictionTasks": task}});
        expired.patch(control_plane(), &binding_key("web"), &with);
        let without = json!({"spec": {"gracefulEvictionTasks": null}});
        expired.patch(control_plane(), &binding_key("web"), &without);
        expired.write(agent("m1"), &member_key("m1"), Value::Null);
        assert_eq!(expired.reported(), [""; 0]);
    }

    #[test]
    fn a_place_to_which_a_promoted_store_gives_less_loses_it_once() {
        for (restored, is_kept) in [
            (binding(&[]), true),
            (Value::Null, true),
            (binding(&["m1"]), false),
        ] {
            let mut story = story(0);
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.world(World::Phase(Phase::Busy));
            story.write(Actor::Setup, &binding_key("web"), restored.clone());
            story.world(World::Promoted);
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.wait(3_600);
            let mut lose = |replicas: i64| {
                let fewer =
                    json!({"spec": {"replicas": replicas}, "status": {"readyReplicas": replicas}});
                story.patch(agent("m1"), &member_key("m1"), &fewer);
                story.reported().len()
            };
            assert_eq!(lose(1) == 0, is_kept, "{restored}");
            assert_eq!(lose(0), if is_kept { 1 } else { 2 }, "{restored}");
        }
    }

    #[test]
    fn what_a_person_asks_of_another_workload_takes_no_copy_away() {
        for (name, is_kept) in [("web", true), ("api", false)] {
            let mut story = story(0);
            let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
            let policy = json!({"spec": {"resourceSelectors": [selector]}});
            let plural = "propagationpolicies";
            let key = objects::key(&Api::Fleet, objects::POLICY, plural, "default", name);
            story.write(person(), &key, policy);
            story.write(agent("m1"), &member_key("m1"), Value::Null);
            story.keeps(is_kept, name);
        }
    }
}
