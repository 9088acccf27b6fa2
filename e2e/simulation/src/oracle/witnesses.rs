//! Witnesses make a failover more certain, and cause none.
//!
//! A taint of a policy that asks for `SeenByPeers` goes on a cluster that is neither ready nor
//! seen, by what may be known of it. A cluster becomes unseen only if a witness lost it that does
//! not lie.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, Cluster, POLICY};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::fault_kind::FaultKind;
use crate::history::{Actor, Api, Entry, Process, Request, World};

const NAME: &str = "witnesses";
/// Name of the condition.
pub const SEEN: &str = "SeenByPeers";
/// Time within which a witness that reaches a cluster again has said so: two calls and a report.
const SAID: SignedDuration = SignedDuration::from_mins(3);

/// The oracle.
#[derive(Debug, Default)]
pub struct Witnesses {
    /// Faults by their numbers, and when each ended.
    faults: BTreeMap<u64, (FaultKind, Option<Timestamp>)>,
}

impl Oracle for Witnesses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        match entry.world() {
            Some(World::FaultBegins { id, detail, .. }) => {
                let kind = serde_json::from_value(detail.clone()).ok();
                self.faults.extend(kind.map(|kind| (*id, (kind, None))));
            }
            Some(World::FaultEnds { id }) => {
                if let Some((_, ended)) = self.faults.get_mut(id) {
                    *ended = Some(entry.at);
                }
            }
            _ => {}
        }
        let Some(request) = entry.commit().filter(|it| {
            let by_us = matches!(it.actor, Actor::Process(Process::ControlPlane(_)));
            by_us && it.api == Api::Fleet && it.resource.plural == "clusters"
        }) else {
            return Vec::new();
        };
        let reported = self.unfounded(request, scene).into_iter();
        let reported = reported.chain(alone(request, scene));
        reported
            .map(|why| scene.violation(NAME, &request.key(), &why))
            .collect()
    }
}

impl Witnesses {
    /// Returns what is wrong where a cluster becomes unseen.
    fn unfounded(&self, request: &Request, scene: &Scene) -> Option<String> {
        let turned = is_unseen(request.after.as_deref()) && !is_unseen(request.before.as_deref());
        let mut witnesses = scene.members().filter(|it| *it != request.name);
        let founded = witnesses.any(|it| self.has_lost(it, &request.name, scene.now));
        (turned && !founded).then(|| "turns unseen, and no witness lost it but by a lie".to_owned())
    }

    /// Returns whether a member that does not lie could not reach another one lately.
    fn has_lost(&self, witness: &str, cluster: &str, now: Timestamp) -> bool {
        let actor = Actor::Process(Process::Agent(witness.to_owned()));
        let member = Api::Member(cluster.to_owned());
        let lately = self
            .faults
            .values()
            .filter(|(_, ended)| ended.is_none_or(|ended| now.duration_since(ended) <= SAID));
        let mut lately = lately.map(|(kind, _)| kind);
        let lies = |kind: &FaultKind| matches!(kind, FaultKind::Lie { member, reaches: false } if member == witness);
        let parts = |kind: &FaultKind| {
            let is_cut = matches!(kind, FaultKind::Partition { .. } | FaultKind::Down { .. });
            is_cut && kind.concerns(&actor, &member)
        };
        lately.clone().any(parts) && !lately.any(lies)
    }
}

/// Returns what is wrong where a taint goes on a cluster that is ready or seen.
fn alone(request: &Request, scene: &Scene) -> Option<String> {
    let wanted: BTreeSet<&str> = scene
        .all(&Api::Fleet, POLICY, "clustertaintpolicies")
        .filter(|(_, policy)| {
            let mut conditions = objects::items(policy, "/spec/matchConditions");
            conditions.any(|it| it["conditionType"] == SEEN)
        })
        .flat_map(|(_, policy)| objects::items(policy, "/spec/taintsToAdd"))
        .map(|taint| objects::text(taint, "/key"))
        .collect();
    let has = |state: Option<&Value>| {
        let mut taints = state.into_iter().flat_map(|it| Cluster(it).taints());
        taints.any(|it| wanted.contains(objects::text(it, "/key")))
    };
    if has(request.before.as_deref()) || !has(request.after.as_deref()) {
        return None;
    }
    let founded = scene.cluster_recently(&request.name, |state| {
        state.is_some_and(|it| it.ready() != Some("True") && is_unseen(Some(it.0)))
    });
    (!founded).then(|| "is tainted as unseen, and is ready or not unseen".to_owned())
}

fn is_unseen(cluster: Option<&Value>) -> bool {
    let seen = cluster.and_then(|it| objects::condition(it, SEEN));
    seen.is_some_and(|it| it["status"] == "False")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    fn apart(witness: &str) -> FaultKind {
        FaultKind::Partition {
            actor: agent(witness),
            api: Api::Member("m1".to_owned()),
            silent: true,
        }
    }

    fn lie(witness: &str) -> FaultKind {
        FaultKind::Lie {
            member: witness.to_owned(),
            reaches: false,
        }
    }

    fn conditions(ready: &str, seen: &str) -> Value {
        json!({"status": {"conditions": [
            {"type": "Ready", "status": ready}, {"type": SEEN, "status": seen}]}})
    }

    fn story(faults: &[FaultKind]) -> Story<Witnesses> {
        let mut story = Story::new(Witnesses::default());
        for member in ["m1", "m2", "m3"] {
            story.write(agent(member), &member_key(member), deployment(member, 1));
        }
        for (id, kind) in (1..).zip(faults) {
            let (detail, kind) = (serde_json::to_value(kind).unwrap(), kind.name());
            story.world(World::FaultBegins { detail, id, kind });
        }
        story.write(Actor::Setup, &cluster_key("m1"), cluster("True", &[]));
        story
    }

    #[test]
    fn a_cluster_becomes_unseen_by_a_witness_that_does_not_lie() {
        for (what, faults, is_kept) in [
            ("nothing fails", vec![], false),
            ("one lies", vec![lie("m2")], false),
            ("a liar is apart", vec![lie("m2"), apart("m2")], false),
            ("one has lost it", vec![apart("m2")], true),
            ("another has lost it", vec![lie("m2"), apart("m3")], true),
        ] {
            let mut story = story(&faults);
            let unseen = conditions("Unknown", "False");
            story.patch(control_plane(), &cluster_key("m1"), &unseen);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn a_taint_as_unseen_needs_a_cluster_that_is_not_ready_either() {
        let policy = json!({"spec": {
            "matchConditions": [{"conditionType": SEEN}],
            "taintsToAdd": [{"key": "a", "effect": "NoExecute"}]}});
        let key = objects::key(&Api::Fleet, POLICY, "clustertaintpolicies", "", "unseen");
        for (ready, seen, taint, is_kept) in [
            ("Unknown", "False", "a", true),
            ("True", "False", "a", false),
            ("Unknown", "True", "a", false),
            ("True", "True", "b", true),
        ] {
            let mut story = story(&[apart("m2")]);
            story.write(person(), &key, policy.clone());
            let state = conditions(ready, seen);
            story.patch(control_plane(), &cluster_key("m1"), &state);
            let taints = json!({"spec": {"taints": [{"key": taint, "effect": "NoExecute"}]}});
            story
                .wait(60)
                .patch(control_plane(), &cluster_key("m1"), &taints);
            story.keeps(is_kept, (ready, seen, taint));
        }
    }
}
