//! Changes of a cluster that may let waiting bindings be scheduled.

use muster_shared::api::cluster::{Cluster, ResourceSummary};
use muster_shared::k8s::Taint;
use muster_shared::taints::keeps_away;

use crate::fleet::availability::reads_works;
use crate::scheduler::core::capacity::Capacity;

/// Change of a cluster, as far as placements depend on it.
#[derive(Debug)]
pub struct ClusterChange<'a> {
    /// The cluster before the change.
    pub(super) before: Option<&'a Cluster>,
    /// The cluster now.
    pub(super) now: Option<&'a Cluster>,
    /// Meaning of the change for bindings that may be placed anew, although they are settled.
    pub(super) effect: Option<Effect>,
    /// The room before and now, where there may be more of it.
    room: Option<(Option<Capacity>, Capacity)>,
}

impl<'a> ClusterChange<'a> {
    /// Compares two states of a cluster; an absent one does not exist (yet, or any more). `None`
    /// where nothing changed that a placement depends on.
    pub fn between(before: Option<&'a Cluster>, now: Option<&'a Cluster>) -> Option<Self> {
        let effect = effect(before, now);
        let room = more_room(before, now);
        (effect.is_some() || room.is_some()).then_some(Self {
            before,
            now,
            effect,
            room,
        })
    }

    /// Returns whether the cluster lets in what it did not let in.
    pub(super) fn admits_more(&self) -> bool {
        matches!(self.effect, Some(Effect::Moved | Effect::AdmitsMore))
    }

    /// Returns the room before and now, where there may be more of it.
    pub(super) fn room(&self) -> Option<(Option<&Capacity>, &Capacity)> {
        let (before, now) = self.room.as_ref()?;
        Some((before.as_ref(), now))
    }
}

/// Change of the workloads that a cluster admits.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// The cluster is being deleted, or gone.
    Leaves,
    /// The cluster may be chosen where it was not, and no more where it was: it joined, or its
    /// labels or location changed.
    Moved,
    /// The cluster may be chosen where it was not: a taint that keeps work away is gone, the
    /// cluster serves more kinds, or its agent reads its Works again.
    AdmitsMore,
    /// The cluster can only be chosen less than before: it has a taint that keeps work away, serves
    /// fewer kinds, or its agent does not read its Works any more.
    AdmitsLess,
}

fn effect(old: Option<&Cluster>, new: Option<&Cluster>) -> Option<Effect> {
    let present = |cluster: Option<&'_ Cluster>| -> bool {
        cluster.is_some_and(|it| it.metadata.deletion_timestamp.is_none())
    };
    match (old, new) {
        _ if present(old) && !present(new) => Some(Effect::Leaves),
        _ if !present(new) => (old.is_some() != new.is_some()).then_some(Effect::Leaves),
        (Some(old), Some(new)) if present(Some(old)) => {
            let moved = old.metadata.labels != new.metadata.labels
                || old.spec.provider != new.spec.provider
                || old.spec.region != new.spec.region
                || !old.zones().eq(new.zones());
            if moved {
                Some(Effect::Moved)
            } else if takes_more(old, new) {
                Some(Effect::AdmitsMore)
            } else {
                let less = takes_more(new, old);
                less.then_some(Effect::AdmitsLess)
            }
        }
        _ => Some(Effect::Moved),
    }
}

/// Returns whether something is gone that kept work away, or a kind has come.
fn takes_more(old: &Cluster, new: &Cluster) -> bool {
    is_less_tainted(old, new) || serves_more(old, new) || (reads_works(new) && !reads_works(old))
}

/// Returns whether a taint that keeps work away is gone.
fn is_less_tainted(old: &Cluster, new: &Cluster) -> bool {
    let same =
        |a: &Taint, b: &Taint| (&a.key, &a.value, &a.effect) == (&b.key, &b.value, &b.effect);
    let kept = |taint: &Taint| new.spec.taints.iter().any(|other| same(taint, other));
    let mut taints = old.spec.taints.iter();
    taints.any(|taint| keeps_away(taint) && !kept(taint))
}

/// Returns whether there is a kind that was not served before.
fn serves_more(old: &Cluster, new: &Cluster) -> bool {
    // Most reports say what the last one said.
    old.enablements() != new.enablements()
        && new.enablements().iter().any(|group| {
            let known = old.enablements().iter();
            let mut known = known
                .filter(|known| known.group_version == group.group_version)
                .flat_map(|known| &known.resources);
            let served = |kind: &str| known.any(|resource| resource.kind == kind);
            !group
                .resources
                .iter()
                .map(|it| it.kind.as_str())
                .all(served)
        })
}

/// Returns what a cluster had room for and has room for, if that may be more for somebody.
fn more_room(old: Option<&Cluster>, new: Option<&Cluster>) -> Option<(Option<Capacity>, Capacity)> {
    fn summary(cluster: &Cluster) -> Option<&ResourceSummary> {
        cluster.status.as_ref()?.resource_summary.as_ref()
    }
    let new = new?;
    let unchanged = old.is_some_and(|old| {
        summary(old) == summary(new) && old.spec.resource_models == new.spec.resource_models
    });
    if unchanged {
        return None;
    }
    let mut now = Capacity::of(new)?;
    let before = old.and_then(Capacity::of);
    now.share(before.iter());
    let more = before.as_ref().is_none_or(|before| now.exceeds(before));
    more.then_some((before, now))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::only_condition;
    use crate::scheduler::controller::waiting::Waiting;
    use crate::scheduler::controller::waits_for::{Wait, WaitsFor};
    use crate::scheduler::tests::fixtures::{cluster, decoded, deployment, tainted};
    use crate::settings::grade_rule::GradeRule;

    /// Returns which of the bindings that wait a change wakes: for a cluster in general, for
    /// regions, for room in general, and for anything, each with whether it may go to that cluster
    /// at all.
    fn woken(old: Option<&Cluster>, new: Option<&Cluster>) -> Vec<&'static str> {
        let here = json!({ "clusterAffinity": { "clusterNames": ["m"] } });
        let elsewhere = json!({ "clusterAffinity": { "clusterNames": ["other"] } });
        let labelled =
            json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { "a": "b" } } } });
        let mut hungry = deployment(3, &here);
        hungry.replica_requirements =
            serde_json::from_value(json!({ "resourceRequest": { "memory": "1Gi" } })).unwrap();
        let waiting = [
            ("admission", WaitsFor::Admission, deployment(3, &here)),
            ("label", WaitsFor::Admission, deployment(3, &labelled)),
            ("room", WaitsFor::Room, deployment(3, &here)),
            ("memory", WaitsFor::Room, hungry),
            ("any", WaitsFor::Anything, deployment(3, &here)),
            ("nothing", WaitsFor::Nothing, deployment(3, &here)),
            ("elsewhere", WaitsFor::Anything, deployment(3, &elsewhere)),
        ];
        let changes = ClusterChange::between(old, new);
        let queue = Waiting::default();
        for (name, wish, spec) in &waiting {
            let wait = Wait {
                wish: *wish,
                lacking: 1,
            };
            queue.put(name, Some((spec, wait)));
        }
        let changes: Vec<_> = changes.into_iter().collect();
        let mut helped = queue.helped(&changes, GradeRule::Minimums);
        helped.extend(queue.next_round());
        let is_helped = |name| helped.iter().any(|(helped, _)| *helped == name);
        let names = waiting.iter().map(|(name, ..)| *name);
        names.filter(|name| is_helped(*name)).collect()
    }

    #[test]
    fn only_what_may_help_wakes_who_waits() {
        let before = cluster("m", 10);
        let changed = |path: &str, value: Value| {
            let mut after = before.clone();
            *after.pointer_mut(path).unwrap() = value;
            after
        };
        let deleting = json!({ "name": "m", "deletionTimestamp": "2024-01-01T00:00:00Z" });
        let ready = {
            let mut after = before.clone();
            after["status"]["conditions"] = only_condition("Ready", "True");
            after
        };
        let unread = {
            let mut unread = before.clone();
            let conditions = unread["status"]["conditions"].as_array_mut().unwrap();
            let mut works = conditions[0].clone();
            (works["type"], works["status"]) = (json!("WorksUpToDate"), json!("False"));
            conditions.push(works);
            unread
        };
        let mut roomier_in_memory = before.clone();
        roomier_in_memory["status"]["resourceSummary"]["allocatable"]["memory"] = json!("8Gi");
        let mut growing_kinds = before.clone();
        growing_kinds["status"]["apiEnablements"][1]["resources"] = json!([{ "name": "secrets", "kind": "Secret" }, { "name": "configmaps", "kind": "ConfigMap" }]);
        let graded = |least: &str| {
            let mut graded = before.clone();
            let range = json!([{ "name": "cpu", "min": least, "max": "64" }]);
            graded["spec"]["resourceModels"] = json!([{ "grade": 0, "ranges": range }]);
            let counts = json!([{ "grade": 0, "count": 3 }]);
            graded["status"]["resourceSummary"]["allocatableModelings"] = counts;
            graded
        };
        let blind = changed("/status/apiEnablements", json!([]));
        let unreported = changed("/status", json!({}));
        let no_schedule = tainted("m", 10, "x", "NoSchedule");
        let soft = tainted("m", 10, "x", "PreferNoSchedule");
        let free_cpu =
            |cores: &str| changed("/status/resourceSummary/allocatable/cpu", json!(cores));
        let (half, more, fewer) = (free_cpu("10500m"), free_cpu("11"), free_cpu("9"));
        let labels = json!({ "name": "m", "labels": { "a": "b" } });
        let labelled = changed("/metadata", labels);
        let regional = changed("/spec", json!({ "region": "r" }));
        let (small, large) = (graded("1"), graded("2"));
        let going = changed("/metadata", deleting);
        let mut going_and_tainted = no_schedule.clone();
        going_and_tainted["metadata"] = going["metadata"].clone();
        let mut one_group = before.clone();
        let groups = one_group["status"]["apiEnablements"].as_array_mut();
        groups.unwrap().truncate(1);
        let none = Value::Null;
        let all = "admission room memory any";
        let each = "admission label room memory any";
        // What happens, the cluster before and after, and who wakes.
        for (what, old, new, expected) in [
            ("nothing changed", &before, &before, ""),
            ("a heartbeat", &before, &ready, ""),
            ("it joined", &none, &before, all),
            ("it joined and has not reported", &none, &unreported, all),
            ("it reported first", &unreported, &before, all),
            ("a taint went", &no_schedule, &before, all),
            ("a taint became a soft one", &no_schedule, &soft, all),
            ("its Works can be read again", &unread, &before, all),
            ("its Works cannot be read any more", &before, &unread, "any"),
            ("a soft taint went", &soft, &before, ""),
            ("a taint came", &before, &no_schedule, "any"),
            ("a label came", &before, &labelled, each),
            ("it has a region", &before, &regional, all),
            ("it serves more kinds", &before, &growing_kinds, all),
            ("it serves fewer kinds", &before, &blind, "any"),
            ("more cores, not a whole replica", &before, &half, ""),
            ("more cores", &before, &more, "room any"),
            ("more memory", &before, &roomier_in_memory, "memory"),
            ("its grades have more cores", &small, &large, "room any"),
            ("fewer cores", &before, &fewer, ""),
            ("it is being deleted", &before, &going, "any"),
            ("it is first seen being deleted", &none, &going, "room any"),
            ("it changes meanwhile", &going, &going_and_tainted, ""),
            ("another one of its name has come", &going, &before, all),
            ("it serves one group fewer", &before, &one_group, "any"),
            ("it is gone", &before, &none, "any"),
        ] {
            let seen = |it: &Value| (!it.is_null()).then(|| decoded(it));
            let (old, new) = (seen(old), seen(new));
            let woken = woken(old.as_ref(), new.as_ref());
            assert_eq!(woken.join(" "), expected, "{what}");
        }
    }
}
