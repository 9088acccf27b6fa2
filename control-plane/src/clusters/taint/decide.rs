//! Decides which taints a cluster should have, by all policies together.
//!
//! Policies apply in the order of their creation, then of their names. `taints` (the released form)
//! follow the present conditions, and the last policy that applies counts. `taintsToAdd` (the
//! proposed form) hold from the end of the first window to the end of the second, and a taint is
//! removed when the last policy that holds it releases it. A policy that is deleted or no longer
//! selects the cluster releases its `taintsToAdd` at once; its `taints` stay, as in Karmada, until
//! a policy has them in its `taintsToAdd` and follows them from then on.

use std::collections::{BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterAffinity;
use muster_shared::api::taint_policy::{ClusterTaintPolicy, Taint as PolicyTaint, TaintToAdd};
use muster_shared::clock::later;
use muster_shared::k8s::{Condition, Taint, Time};
use muster_shared::taints;
use serde::Serialize;

use super::policy::{all_match, fault, has_two_targets, verdict};
use super::record::{self, Owned, Record};
use super::window::Window;

/// Facts on which the taints of a cluster depend.
pub struct Scene<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The record it carries; `None`: nobody has kept one, so what is there may be Karmada's work
    /// and is adopted.
    pub record: Option<Record>,
    /// All policies.
    pub policies: &'a [&'a ClusterTaintPolicy],
    /// Whether an affinity selects the cluster.
    pub selects: &'a dyn Fn(&ClusterAffinity) -> bool,
    /// Whether a policy that is not among them is known to be gone, rather than unreadable or not
    /// listed yet.
    pub is_gone: &'a dyn Fn(&str) -> bool,
    /// Whether some policy exists and cannot be read, so that it is not among them.
    pub lacks_some: bool,
    /// Whether the API refused to put a taint on a cluster a short time ago.
    pub is_refused: &'a dyn Fn(&Taint) -> bool,
    /// Whether this process decides about the cluster for the first time.
    pub is_first: bool,
    /// Whether the taints that follow the Ready condition are the cluster controller's.
    pub reserves: bool,
}

/// Changes of the taints of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The complete new list of taints, if it differs.
    pub taints: Option<Vec<Taint>>,
    /// The new record, if it differs.
    pub record: Option<Record>,
    /// Time at which the next window ends.
    pub again: Option<Timestamp>,
    /// What each policy changed: its name, the taint, and whether it was added.
    pub changes: Vec<(String, Taint, bool)>,
    /// The policies that are not followed here, because the record holds no more.
    pub left_out: BTreeSet<String>,
}

impl Outcome {
    /// Returns whether there is nothing to write.
    pub fn is_settled(&self) -> bool {
        self.taints.is_none() && self.record.is_none()
    }

    /// Returns whether policies are not followed, and another number of them was reported
    /// last.
    pub fn leaves_out_others(&self, reported: Option<usize>) -> bool {
        !self.left_out.is_empty() && reported != Some(self.left_out.len())
    }
}

/// Decides about a cluster.
pub fn decide(scene: &Scene<'_>, now: Timestamp) -> Outcome {
    let mut policies: Vec<&ClusterTaintPolicy> = scene.policies.to_vec();
    policies.sort_by_key(|p| (p.creation_timestamp().map(|t| t.0), p.name_any()));
    let conditions = scene.cluster.conditions();
    let selected = |policy: &ClusterTaintPolicy| policy.spec.target().is_none_or(scene.selects);
    let speaking = policies.iter().filter(|it| selected(it));
    let shipped = speaking.flat_map(|it| it.spec.taints.iter().map(PolicyTaint::taint));
    let record = scene.record.clone().unwrap_or_default();
    let mut work = Work {
        taints: scene.cluster.spec.taints.clone(),
        size: record.size(),
        record,
        adopting: scene.record.is_none(),
        named: shipped.map(|it| (it.key, it.effect)).collect(),
        asked_for: HashSet::new(),
        now,
        again: None,
        changes: Vec::new(),
        left_out: BTreeSet::new(),
        is_refused: scene.is_refused,
        reserves: scene.reserves,
    };
    work.notice_withdrawals();
    let names: HashSet<String> = policies.iter().map(|policy| policy.name_any()).collect();
    let stays = |name: &str| names.contains(name) || !(scene.is_gone)(name);
    work.record.windows.retain(|name, _| stays(name));
    for policy in &policies {
        if has_two_targets(&policy.spec) {
            continue;
        }
        let selected = selected(policy);
        if selected {
            work.shipped(policy, conditions);
        }
        work.proposed(policy, conditions, scene, selected);
    }
    work.let_go_of_all_but(|name| stays(name));
    work.forget_withdrawals();
    let record_changed = scene.record.as_ref() != Some(&work.record);
    Outcome {
        taints: (work.taints != scene.cluster.spec.taints).then_some(work.taints),
        record: record_changed.then_some(work.record),
        again: work.again,
        changes: work.changes,
        left_out: work.left_out,
    }
}

struct Work<'a> {
    taints: Vec<Taint>,
    record: Record,
    /// Bytes that the record's text comes to at most: as it was, and with what was added since.
    size: usize,
    adopting: bool,
    /// Taints of the policies of the shipped form that select the cluster, as key and effect.
    named: HashSet<(String, String)>,
    /// What a policy of the shipped form asks for now, as key and effect.
    asked_for: HashSet<(String, String)>,
    now: Timestamp,
    again: Option<Timestamp>,
    changes: Vec<(String, Taint, bool)>,
    left_out: BTreeSet<String>,
    is_refused: &'a dyn Fn(&Taint) -> bool,
    reserves: bool,
}

impl Work<'_> {
    /// Takes room in the record for something a policy wants; leaves the policy out where there is
    /// none.
    fn reserve(&mut self, policy: &str, part: &impl Serialize, limit: usize) -> bool {
        let bytes = record::size_of(part);
        let fits = self.size + bytes <= limit;
        if fits {
            self.size += bytes;
        } else {
            self.left_out.insert(policy.to_owned());
        }
        fits
    }

    fn present(&self, taint: &Taint) -> Option<usize> {
        self.taints
            .iter()
            .position(|t| t.key == taint.key && t.effect == taint.effect)
    }

    fn notice_withdrawals(&mut self) {
        for owned in &mut self.record.taints {
            let there = taints::find(&self.taints, &owned.key, &owned.effect).is_some();
            if !there && owned.withdrawn.is_none() {
                owned.withdrawn = Some(self.now);
            }
        }
    }

    /// Forgets what a person took off, so that it may come back with the next match, once the
    /// present one is over.
    fn forget_withdrawals(&mut self) {
        let asked_for = &self.asked_for;
        for owned in self
            .record
            .taints
            .iter_mut()
            .filter(|owned| owned.withdrawn.is_some())
        {
            owned.shipped &= asked_for.contains(&(owned.key.clone(), owned.effect.clone()));
        }
        self.drop_free("");
    }

    fn shipped(&mut self, policy: &ClusterTaintPolicy, conditions: &[Condition]) {
        let spec = &policy.spec;
        let adds = all_match(&spec.add_on_conditions, conditions);
        let removes = all_match(&spec.remove_on_conditions, conditions);
        let reserves = self.reserves;
        for taint in spec
            .taints
            .iter()
            .map(PolicyTaint::taint)
            .filter(|t| fault(t, &spec.add_on_conditions, reserves).is_none())
        {
            let present = self.present(&taint).is_some();
            if self.adopting && present && self.record.owned(&taint.key, &taint.effect).is_none() {
                self.record.entry(&taint.key, &taint.effect).shipped = true;
            }
            let owned = self.record.owned(&taint.key, &taint.effect).is_some();
            let is_refused = !present && (self.is_refused)(&taint);
            if adds
                && !is_refused
                && (owned
                    || !present
                        && self.reserve(
                            &policy.name_any(),
                            &Owned::longest(&taint.key, &taint.effect),
                            record::LIMIT,
                        ))
            {
                self.record.entry(&taint.key, &taint.effect).shipped = true;
                self.asked_for
                    .insert((taint.key.clone(), taint.effect.clone()));
                self.add(policy, &taint);
            }
            if removes && self.record.owned(&taint.key, &taint.effect).is_some() {
                self.record.entry(&taint.key, &taint.effect).shipped = false;
            }
            self.drop_free(&policy.name_any());
        }
    }

    fn proposed(
        &mut self,
        policy: &ClusterTaintPolicy,
        conditions: &[Condition],
        scene: &Scene<'_>,
        selected: bool,
    ) {
        let (name, spec) = (policy.name_any(), &policy.spec);
        if spec
            .match_conditions
            .iter()
            .any(|c| !["In", "NotIn"].contains(&c.operator.as_str()))
        {
            // Its verdict is unknown: what it holds stays as it is.
            return;
        }
        if spec.taints_to_add.is_empty() || !selected {
            self.record.windows.remove(&name);
            self.let_go(&name, |_| true);
            return;
        }
        // A policy that cannot be read may be one of the shipped form that wants the taint there.
        if !scene.lacks_some {
            self.take_over(policy);
        }
        let verdict = verdict(&spec.match_conditions, conditions);
        let before = self.record.windows.get(&name);
        let is_new = before.is_none();
        let (edition, is_first) = (&policy.metadata, scene.is_first);
        let window = Window::next(before, verdict, edition, is_first, self.now);
        if is_new && self.awaits(policy, window.matched) {
            let limit = record::WINDOWS_LIMIT;
            if !self.reserve(&name, &(&name, &window), limit) {
                return;
            }
        }
        for wanted in &spec.taints_to_add {
            let taint = wanted.taint();
            let held = self
                .record
                .owned(&taint.key, &taint.effect)
                .is_some_and(|o| o.held_by.contains(&name));
            // A taint that an edit of its policy has made impossible is not put on, and still goes.
            if !held && fault(&taint, &spec.match_conditions, self.reserves).is_some() {
                continue;
            }
            let (wait, ripe) = match (window.matched, held) {
                (true, false) => (wanted.add_on_match_seconds(), true),
                (false, true) => (wanted.remove_on_mismatch_seconds(), false),
                _ => {
                    if held {
                        self.add(policy, &taint);
                        self.change_value(policy, &taint);
                    }
                    continue;
                }
            };
            let due = later(window.since, SignedDuration::from_secs(wait.into()));
            if due > self.now {
                self.again = Some(self.again.map_or(due, |again| again.min(due)));
            } else if ripe {
                self.hold(policy, &taint);
            } else {
                self.record
                    .entry(&taint.key, &taint.effect)
                    .held_by
                    .remove(&name);
                self.drop_free(&name);
            }
        }
        // A window that nothing waits for says nothing: a fleet at rest has none.
        if self.awaits(policy, window.matched) {
            self.record.windows.insert(name.clone(), window);
        } else {
            self.record.windows.remove(&name);
        }
        // Taints that an edit took out of the policy.
        self.let_go(&name, |owned| {
            !spec
                .taints_to_add
                .iter()
                .any(|t| t.key == owned.key && t.effect == owned.effect)
        });
    }

    /// Holds for a policy what one of the shipped form has left behind, such as itself before an
    /// edit: its own conditions say from now on whether that stays.
    fn take_over(&mut self, policy: &ClusterTaintPolicy) {
        let (name, spec) = (policy.name_any(), &policy.spec);
        for taint in spec.taints_to_add.iter().map(TaintToAdd::taint) {
            let owned = self.record.owned(&taint.key, &taint.effect);
            let is_left = owned.is_some_and(|it| it.shipped)
                && !self
                    .named
                    .contains(&(taint.key.clone(), taint.effect.clone()));
            let is_possible = fault(&taint, &spec.match_conditions, self.reserves).is_none();
            let part = (&name, None::<Owned>);
            if is_left && is_possible && self.reserve(&name, &part, record::LIMIT) {
                let entry = self.record.entry(&taint.key, &taint.effect);
                entry.shipped = false;
                entry.held_by.insert(name.clone());
            }
        }
    }

    /// Returns whether a taint of the policy is to come, while its conditions match, or to go,
    /// while they do not.
    fn awaits(&self, policy: &ClusterTaintPolicy, matched: bool) -> bool {
        let name = policy.name_any();
        policy.spec.taints_to_add.iter().any(|wanted| {
            let taint = wanted.taint();
            let owned = self.record.owned(&taint.key, &taint.effect);
            let held = owned.is_some_and(|owned| owned.held_by.contains(&name));
            let conditions = &policy.spec.match_conditions;
            let is_possible = || fault(&taint, conditions, self.reserves).is_none();
            held != matched && (held || is_possible())
        })
    }

    /// Holds a taint for a policy, unless a person put it there: then there is nothing to hold.
    fn hold(&mut self, policy: &ClusterTaintPolicy, taint: &Taint) {
        let owned = self.record.owned(&taint.key, &taint.effect).is_some();
        let present = self.present(taint).is_some();
        if !owned && present || !present && (self.is_refused)(taint) {
            return;
        }
        let entry = (!owned).then(|| Owned::longest(&taint.key, &taint.effect));
        let name = policy.name_any();
        if !self.reserve(&name, &(&name, entry), record::LIMIT) {
            return;
        }
        self.record
            .entry(&taint.key, &taint.effect)
            .held_by
            .insert(name);
        self.add(policy, taint);
    }

    fn add(&mut self, policy: &ClusterTaintPolicy, taint: &Taint) {
        let withdrawn = self
            .record
            .entry(&taint.key, &taint.effect)
            .withdrawn
            .is_some();
        if withdrawn || self.present(taint).is_some() {
            return;
        }
        let taint = Taint {
            time_added: Some(Time(self.now)),
            ..taint.clone()
        };
        self.taints.push(taint.clone());
        self.changes.push((policy.name_any(), taint, true));
    }

    /// Gives a taint that a policy holds alone the value that an edit of the policy gave it. It
    /// counts as put on now: other tolerations match it from now on.
    fn change_value(&mut self, policy: &ClusterTaintPolicy, taint: &Taint) {
        let spec = &policy.spec;
        let owned = self.record.owned(&taint.key, &taint.effect);
        let is_alone =
            owned.is_some_and(|it| it.withdrawn.is_none() && !it.shipped && it.held_by.len() == 1);
        // Of several entries for one taint the first counts.
        let mut wanted = spec.taints_to_add.iter().map(TaintToAdd::taint);
        let first = wanted.find(|it| it.key == taint.key && it.effect == taint.effect);
        let is_first = first.as_ref() == Some(taint);
        let Some(at) = self.present(taint).filter(|_| is_alone && is_first) else {
            return;
        };
        let is_possible = fault(taint, &spec.match_conditions, self.reserves).is_none();
        if value(&self.taints[at]) == value(taint) || !is_possible || (self.is_refused)(taint) {
            return;
        }
        let taint = Taint {
            time_added: Some(Time(self.now)),
            ..taint.clone()
        };
        self.taints[at] = taint.clone();
        self.changes.push((policy.name_any(), taint, true));
    }

    /// Takes taints off that no policy wants any more; the word of `by` was the last.
    fn drop_free(&mut self, by: &str) {
        let mut free = Vec::new();
        self.record.taints.retain(|owned| {
            let is_free = owned.is_free();
            if is_free && owned.withdrawn.is_none() {
                free.push((owned.key.clone(), owned.effect.clone()));
            }
            !is_free
        });
        for (key, effect) in free {
            if let Some(at) = self
                .taints
                .iter()
                .position(|t| t.key == key && t.effect == effect)
            {
                let taint = self.taints.remove(at);
                // Added and removed in one go is no change.
                let added = self
                    .changes
                    .iter()
                    .position(|(_, t, added)| *added && *t == taint);
                match added {
                    Some(at) => drop(self.changes.remove(at)),
                    None => self.changes.push((by.to_owned(), taint, false)),
                }
            }
        }
    }

    fn let_go(&mut self, name: &str, of: impl Fn(&Owned) -> bool) {
        let mut any = false;
        for owned in self.record.taints.iter_mut().filter(|owned| of(owned)) {
            any |= owned.held_by.remove(name);
        }
        if any {
            self.drop_free(name);
        }
    }

    fn let_go_of_all_but(&mut self, stays: impl Fn(&str) -> bool) {
        let holders: Vec<String> = self
            .record
            .taints
            .iter()
            .flat_map(|owned| &owned.held_by)
            .filter(|name| !stays(name))
            .cloned()
            .collect();
        for name in holders {
            self.let_go(&name, |_| true);
        }
    }
}

/// Returns the value of a taint, which is empty where there is none.
fn value(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
