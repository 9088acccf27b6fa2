//! Loss of the host: a fleet obeys one store.
//!
//! After a standby was promoted, an agent that has written to its store writes nothing to the
//! former one but which epoch it has seen, and neither makes nor deletes objects in its member for
//! Works which the promoted store never had. The control plane of the former host decides nothing
//! any more soon after it could learn of the promotion.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, WORK};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::fault_kind::FaultKind;
use crate::history::{Actor, Api, Entry, Key, Outcome, Phase, Process, Request, World};

const NAME: &str = "hosts";

/// Time within which the control plane of a former host that reaches the other ones has given up:
/// it asks every 15 seconds, for as long as a request may take, and then brings to an end what it
/// does.
const GIVEN_UP: SignedDuration = SignedDuration::from_mins(1);

/// The oracle.
#[derive(Debug, Default)]
pub struct Hosts {
    is_promoted: bool,
    /// When each agent first wrote to the promoted store.
    found: BTreeMap<String, Timestamp>,
    /// Faults that last.
    faults: BTreeMap<u64, FaultKind>,
    /// Works that the former store alone has, and does not delete.
    lost: BTreeSet<Key>,
    /// Time since which each process of the control plane could learn of the promotion.
    could_learn: BTreeMap<u8, Timestamp>,
}

impl Oracle for Hosts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let problem = match (entry.world(), entry.request()) {
            (Some(world), _) => {
                self.happen(world, entry.at);
                None
            }
            (_, Some(request)) => {
                self.note_lost(request, scene);
                if self.is_promoted {
                    self.judge(request, scene)
                } else {
                    None
                }
            }
            _ => None,
        };
        let reported = entry.request().zip(problem);
        let reported =
            reported.map(|(request, problem)| scene.violation(NAME, &request.key(), &problem));
        reported.into_iter().collect()
    }
}

impl Hosts {
    /// Returns whether an entry belongs to a store that does not count, so that the promises about
    /// the fleet do not concern it.
    pub fn is_of_former(&self, entry: &Entry, scene: &Scene) -> bool {
        let Some(request) = entry.request() else {
            return false;
        };
        match (&request.api, &request.actor) {
            (Api::Standby, _) => true,
            (Api::Member(_), Actor::Process(process)) => {
                self.is_promoted && !self.obeys(process, scene)
            }
            _ => false,
        }
    }

    /// Notes the Works that a promotion loses, and those that the former store deletes later.
    fn note_lost(&mut self, request: &Request, scene: &Scene) {
        if request.resource.plural != "works" || request.outcome != Outcome::Committed {
            return;
        }
        let api = Api::Fleet;
        let key = Key {
            api,
            ..request.key()
        };
        let after = request.after.as_deref();
        let is_lost = request.actor == Actor::Setup && scene.phase != Phase::Setup;
        let before = request.before.as_deref().filter(|_| is_lost);
        if after.is_none() && before.is_some_and(|it| !objects::is_deleting(it)) {
            self.lost.insert(key);
        } else if request.api == Api::Fleet || after.is_none_or(objects::is_deleting) {
            self.lost.remove(&key);
        }
    }

    fn happen(&mut self, world: &World, now: Timestamp) {
        match world {
            World::Promoted => {
                self.is_promoted = true;
                for since in self.could_learn.values_mut() {
                    *since = now;
                }
            }
            World::FaultBegins { id, detail, .. } => {
                let kind = serde_json::from_value(detail.clone());
                self.faults.extend(kind.ok().map(|kind| (*id, kind)));
            }
            World::FaultEnds { id } => {
                let ended = self.faults.remove(id);
                let hinders = |number: u8| ended.as_ref().is_some_and(|it| hinders(it, number));
                for (number, since) in &mut self.could_learn {
                    if hinders(*number) {
                        *since = now;
                    }
                }
            }
            World::Started(Process::ControlPlane(number)) => {
                self.could_learn.entry(*number).or_insert(now);
            }
            World::Stopped {
                process: Process::ControlPlane(number),
                killed: true,
            } => {
                self.could_learn.remove(number);
            }
            _ => {}
        }
    }

    /// Returns whether a process obeys the promoted store, or is of its host.
    fn obeys(&self, process: &Process, scene: &Scene) -> bool {
        match process {
            Process::ControlPlane(number) => *number >= scene.rules.replicas,
            Process::Agent(member) => {
                let found = self.found.get(member);
                // What was on its way when the agent changed to this store may still arrive.
                found.is_some_and(|at| scene.now.duration_since(*at) > scene.rules.lag)
            }
        }
    }

    fn judge(&mut self, request: &Request, scene: &Scene) -> Option<String> {
        let Actor::Process(process) = &request.actor else {
            return None;
        };
        match (&request.api, process) {
            _ if request.outcome == Outcome::Lost => None,
            (Api::Fleet, Process::Agent(member)) => {
                self.found.entry(member.clone()).or_insert(scene.now);
                None
            }
            (Api::Standby, Process::Agent(_)) => (self.obeys(process, scene)
                && !is_note_of_epoch(request))
            .then(|| format!("{process} writes to a store that is older than one it has obeyed")),
            (Api::Standby | Api::Member(_), Process::ControlPlane(number))
                if *number < scene.rules.replicas =>
            {
                self.leads(request, *number, scene)
            }
            (Api::Member(_), _) => self.unknown(request, self.obeys(process, scene), scene),
            _ => None,
        }
    }

    /// Returns what is wrong where an object is made or deleted for a Work that the promoted store
    /// never had.
    fn unknown(&self, request: &Request, obeys: bool, scene: &Scene) -> Option<String> {
        let ends = request.after.as_deref().is_none_or(objects::is_deleting);
        let begins = request.before.is_none();
        let object = request.before.as_deref().or(request.after.as_deref())?;
        let work = work_of(object)?;
        // An agent that obeys the former store still goes by what that one deletes.
        let is_judged = (obeys && (begins || ends)) || (ends && self.lost.contains(&work));
        if request.outcome != Outcome::Committed || !is_judged || scene.is_known(object) {
            return None;
        }
        let what = if begins { "made" } else { "deleted" };
        Some(format!(
            "{what} for Work {}, which the promoted store never had",
            work.name
        ))
    }

    /// Returns what is wrong where a control plane of the former host decides something.
    fn leads(&self, request: &Request, number: u8, scene: &Scene) -> Option<String> {
        let since = *self.could_learn.get(&number)?;
        let is_hindered = self.faults.values().any(|kind| hinders(kind, number));
        let passed = scene.now.duration_since(since);
        let decides = !["leases", "events"].contains(&request.resource.plural.as_str());
        let is_late = passed > GIVEN_UP + scene.rules.lag;
        (decides && is_late && !is_hindered).then(|| {
            format!("control-plane/{number} of the former host decides {passed:#} after it could learn of the promotion")
        })
    }
}

/// Returns whether a fault may keep a control plane of the former host from learning of a
/// promotion.
fn hinders(kind: &FaultKind, number: u8) -> bool {
    let actor = Actor::Process(Process::ControlPlane(number));
    [Api::Fleet, Api::Standby]
        .iter()
        .any(|api| kind.concerns(&actor, api))
}

/// Returns whether a write leaves everything but the annotations of a lease as it is.
fn is_note_of_epoch(request: &Request) -> bool {
    let spec = |state: &Option<Arc<Value>>| state.as_deref().map(|it| it["spec"].clone());
    request.resource.plural == "leases" && spec(&request.before) == spec(&request.after)
}

impl Scene {
    /// Returns whether the store that counts has had the Work of an object in a member, since it
    /// was promoted; true of what has no Work, and where nothing was promoted.
    pub fn is_known(&self, object: &Value) -> bool {
        let works = self.works_since_promotion.as_ref();
        let known = works.zip(work_of(object));
        known.is_none_or(|(works, work)| works.contains(&work))
    }
}

/// Returns the Work of an object in a member.
fn work_of(object: &Value) -> Option<Key> {
    let named = |field: &str| objects::annotation(object, &format!("work.karmada.io/{field}"));
    let (namespace, name) = (named("namespace")?, named("name")?);
    Some(objects::key(&Api::Fleet, WORK, "works", namespace, name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Rules;
    use super::super::testing::*;
    use super::*;

    fn story() -> Story<Hosts> {
        let mut story = Story::with(
            Hosts::default(),
            Rules {
                replicas: 1,
                ..Rules::default()
            },
        );
        for number in 0..2 {
            story.world(World::Started(Process::ControlPlane(number)));
        }
        story.write(control_plane(), &work_key("m1"), work());
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        story
    }

    /// Promotes a standby, which has the Work or not, and lets the agent find it or not.
    fn promoted(has_work: bool, is_found: bool) -> Story<Hosts> {
        let mut story = story();
        if !has_work {
            story.write(Actor::Setup, &work_key("m1"), Value::Null);
        }
        story.world(World::Promoted);
        if is_found {
            let renewed = json!({"spec": {"renewTime": "1"}});
            story.write(agent("m1"), &lease_key(&Api::Fleet), renewed);
        }
        story
    }

    #[test]
    fn an_agent_that_has_found_the_promoted_store_writes_nothing_to_the_former_one() {
        let former = lease_key(&Api::Standby);
        let renewal = json!({"spec": {"renewTime": "2"}});
        let epoch = json!({"metadata": {"annotations": {"seen": "1"}}});
        for (what, is_found, seconds, patch, is_kept) in [
            ("before it has found it", false, 60, &renewal, true),
            ("on its way", true, 5, &renewal, true),
            ("a renewal", true, 60, &renewal, false),
            ("the epoch", true, 60, &epoch, true),
        ] {
            let mut story = promoted(true, is_found);
            story.write(Actor::Setup, &former, json!({"spec": {"renewTime": "1"}}));
            story.wait(seconds).patch(agent("m1"), &former, patch);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn what_the_promoted_store_does_not_know_is_neither_deleted_nor_made() {
        for (what, has_work, seconds, is_made, is_kept) in [
            ("known and deleted", true, 60, false, true),
            ("unknown and deleted", false, 60, false, false),
            ("unknown and deleted at once", false, 1, false, false),
            ("known and made", true, 60, true, true),
            ("unknown and made", false, 60, true, false),
            ("on its way", false, 1, true, true),
        ] {
            let mut story = promoted(has_work, true);
            if is_made {
                story.write(Actor::Workloads, &member_key("m1"), Value::Null);
            }
            let object = if is_made {
                deployment("m1", 2)
            } else {
                Value::Null
            };
            story
                .wait(seconds)
                .write(agent("m1"), &member_key("m1"), object);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn the_control_plane_of_the_former_host_gives_up_once_it_could_learn_of_the_promotion() {
        let apart = |api| FaultKind::Partition {
            actor: control_plane(),
            api,
            silent: true,
        };
        let member = Api::Member("m1".to_owned());
        for (what, fault, number, seconds, is_kept) in [
            ("at once", None, 0, 30, true),
            ("too late", None, 0, 120, false),
            ("the promoted one", None, 1, 120, true),
            ("apart", Some(apart(Api::Fleet)), 0, 120, true),
            ("another one apart", Some(apart(member)), 0, 120, false),
        ] {
            let mut story = promoted(true, true);
            if let Some(kind) = fault {
                let detail = serde_json::to_value(&kind).unwrap();
                let (id, kind) = (1, kind.name());
                story.world(World::FaultBegins { detail, id, kind });
            }
            let writer = Actor::Process(Process::ControlPlane(number));
            let key = Key {
                api: Api::Standby,
                ..work_key("m1")
            };
            story.wait(seconds).write(writer, &key, work());
            story.keeps(is_kept, what);
        }
    }
}
