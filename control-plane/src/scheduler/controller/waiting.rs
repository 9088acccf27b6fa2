//! Bindings that could not be scheduled, and what would have to change.
//!
//! A fleet reports all the time and thousands of bindings may wait, so that the cost of a report
//! must not grow with their number. Bindings that may go to the same clusters and request the same
//! amounts form one class. A change is evaluated once per class, and a class wakes only the
//! bindings for which there is enough capacity now.

mod choices;
mod demands;
mod group;
mod line;
mod wake_order;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::queue::doubled;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::cluster_change::ClusterChange;
use super::measure;
use super::waits_for::{Wait, WaitsFor};
use crate::scheduler::core::capacity::Demand;
use crate::settings::grade_rule::GradeRule;
use choices::{ChoiceId, Choices};
use demands::{DemandId, Demands};
use group::{Group, GroupKey};
use wake_order::{RoundSize, WakeOrder};

/// Time between a change and the first round, and between two rounds: many reports of many clusters
/// are answered by one decision.
const GATHER_ROOM: Duration = Duration::from_millis(300);
/// The longest time that a binding waits for its next decision when any room may help it. It
/// doubles with each decision in vain.
const LONGEST_GATHER: Duration = Duration::from_mins(1);
/// Different demands that a report is compared with one by one; what has a further one is decided
/// after any growth of room, ever more rarely, and after the others of its priority.
const MOST_DEMANDS: usize = 256;

/// Bindings that wait, each with the change that may help it; `K` names a binding.
#[derive(Debug)]
pub struct Waiting<K> {
    state: Mutex<State<K>>,
    /// Some binding is to be woken.
    due: Notify,
    /// Whether priorities count.
    ranked: bool,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self::new(false, MOST_DEMANDS)
    }
}

#[derive(Debug)]
struct State<K> {
    /// Bindings that are being decided, each with whether room appeared meanwhile, which may have
    /// come too late for that decision.
    deciding: HashMap<K, bool>,
    entries: HashMap<K, Entry>,
    choices: Choices<K>,
    demands: Demands,
    wake_order: WakeOrder,
    round_size: RoundSize,
}

#[derive(Debug)]
struct Entry {
    choice: ChoiceId,
    group: GroupKey,
    wish: WaitsFor,
    /// The value of the group's count with which it is woken.
    due: i64,
    /// Whether it has been woken, and not been decided since.
    woken: bool,
    /// Decisions in vain, one after the other.
    vain: u32,
}

impl<K> Waiting<K> {
    /// Returns a `Waiting` in which nobody waits. `ranked` says whether bindings of a higher
    /// priority are woken first.
    pub fn ranked(ranked: bool) -> Self {
        Self::new(ranked, MOST_DEMANDS)
    }

    fn new(ranked: bool, most_demands: usize) -> Self {
        Self {
            state: Mutex::new(State {
                deciding: HashMap::new(),
                entries: HashMap::new(),
                choices: Choices::default(),
                demands: Demands::new(most_demands),
                wake_order: WakeOrder::default(),
                round_size: RoundSize::default(),
            }),
            due: Notify::new(),
            ranked,
        }
    }
}

impl<K: Clone + Ord + Hash> Waiting<K> {
    /// Records that a decision about the binding begins. Call it before the clusters are read, and
    /// [`put`](Self::put) when the decision has ended.
    pub fn begin(&self, key: K) {
        self.state.lock().deciding.insert(key, false);
    }

    /// Records that a decision has ended: the binding waits for this, or, for `None`, waits no
    /// more.
    pub fn put(&self, key: &K, wait: Option<(&ResourceBindingSpec, Wait)>) {
        let mut state = self.state.lock();
        let has_grown = state.deciding.remove(key).unwrap_or(false);
        let former = state.take(key);
        if former.as_ref().is_some_and(|entry| entry.woken) {
            state.round_size.decided(wait.is_some());
        }
        if let Some((spec, wait)) = wait {
            let lacking = if has_grown { 0 } else { wait.lacking.max(1) };
            let vain = former.map_or(0, |entry| entry.vain).saturating_add(1);
            let priority = Reverse(if self.ranked { spec.priority() } else { 0 });
            state.insert(key, spec, (wait.wish, lacking), priority, vain);
        }
        measure::waiting(state.entries.len());
        if !state.wake_order.is_empty() {
            self.due.notify_one();
        }
    }

    /// Takes in changes of clusters. Returns the bindings that are to be decided now: those that
    /// are just being decided, and, when a cluster lets in what it did not let in, the first of
    /// those that it may help; [`wake`](Self::wake) names the others.
    pub fn helped(&self, changes: &[ClusterChange<'_>], rule: GradeRule) -> Vec<(K, Duration)> {
        let mut state = self.state.lock();
        let compared = changes
            .iter()
            .map(|change| state.observe(change, rule))
            .sum();
        measure::compared(compared);
        let mut helped = Vec::new();
        if changes.iter().any(|it| it.effect.is_some()) {
            let deciding = state.deciding.keys();
            helped.extend(deciding.map(|key| (key.clone(), Duration::ZERO)));
            if changes.iter().any(ClusterChange::admits_more) {
                helped.extend(state.next_round());
            }
        } else if !changes.is_empty() {
            state.deciding.values_mut().for_each(|grown| *grown = true);
        }
        if !state.wake_order.is_empty() {
            self.due.notify_one();
        }
        helped
    }

    /// Returns the bindings that are to be decided next, each with the time after which it is.
    /// They are not named again before they have been decided.
    pub fn next_round(&self) -> Vec<(K, Duration)> {
        self.state.lock().next_round()
    }

    /// Passes the bindings to `wake` that changes may have helped, round by round, for ever.
    pub async fn wake(&self, wake: impl Fn(K, Duration)) {
        loop {
            self.due.notified().await;
            loop {
                tokio::time::sleep(GATHER_ROOM).await;
                let woken = self.next_round();
                if woken.is_empty() {
                    break;
                }
                for (key, after) in woken {
                    wake(key, after);
                }
            }
        }
    }
}

impl<K: Clone + Ord + Hash> State<K> {
    fn insert(
        &mut self,
        key: &K,
        spec: &ResourceBindingSpec,
        (wish, lacking): (WaitsFor, i64),
        priority: Reverse<i32>,
        vain: u32,
    ) {
        let requirements = spec.replica_requirements.as_ref();
        let demand = requirements.map(|it| Demand::new(&it.resource_request));
        let choice = self.choices.insert(spec);
        // No report is compared with what a set of components asks for: any growth may help it.
        let is_set = !spec.components.is_empty();
        let demand = (!is_set).then(|| self.demands.insert(demand)).flatten();
        let wish = match wish {
            WaitsFor::Room if demand.is_none() => WaitsFor::Anything,
            wish => wish,
        };
        let group = GroupKey { priority, demand };
        let due = self.in_group(choice, group, |it| {
            it.members += 1;
            it.join(key.clone(), wish, lacking)
        });
        let entry = Entry {
            choice,
            group,
            wish,
            due: due.unwrap_or(0),
            woken: false,
            vain,
        };
        self.entries.insert(key.clone(), entry);
    }

    fn take(&mut self, key: &K) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.demands.remove(entry.group.demand);
        if let Some(choice) = self.choices.get_mut(entry.choice)
            && let Some(group) = choice.groups.get_mut(&entry.group)
        {
            group.leave(key, entry.wish, entry.due);
            group.members -= 1;
            if group.members == 0 {
                choice.groups.remove(&entry.group);
            }
        }
        self.choices.remove_unused(entry.choice);
        Some(entry)
    }

    /// Changes a group, which is made where there is none, and puts it into the order if it has
    /// somebody to wake by then.
    fn in_group<T>(
        &mut self,
        choice: ChoiceId,
        key: GroupKey,
        change: impl FnOnce(&mut Group<K>) -> T,
    ) -> Option<T> {
        let group = self.choices.get_mut(choice)?.groups.entry(key).or_default();
        let result = change(group);
        if group.is_due() && !std::mem::replace(&mut group.is_in_order, true) {
            self.wake_order.add((key, choice));
        }
        Some(result)
    }

    /// Takes in one change. Returns how many comparisons that took.
    fn observe(&mut self, change: &ClusterChange<'_>, rule: GradeRule) -> usize {
        let now = change.now.map(|now| self.choices.of(now));
        let (now, mut compared) = now.unwrap_or_default();
        let mut touched: HashSet<ChoiceId> = HashSet::new();
        if change.effect.is_some() {
            touched.extend(&now);
            if let Some(before) = change.before {
                let (before, tried) = self.choices.of(before);
                compared += tried;
                touched.extend(before);
            }
        }
        let mut growths: HashMap<DemandId, i64> = HashMap::new();
        for &id in touched
            .iter()
            .chain(now.iter().filter(|id| !touched.contains(id)))
        {
            let Some(choice) = self.choices.get_mut(id) else {
                continue;
            };
            let is_now = now.binary_search(&id).is_ok();
            let room = change.room().filter(|_| is_now);
            for (key, group) in &mut choice.groups {
                compared += 1;
                if change.admits_more() && is_now {
                    group.admit();
                }
                if touched.contains(&id) {
                    group.touch();
                }
                if let Some((before, now)) = room {
                    let growth = growths.entry(key.demand).or_insert_with(|| {
                        compared += 1;
                        self.demands.growth(key.demand, before, now, rule)
                    });
                    group.grow(*growth);
                }
                if group.is_due() && !std::mem::replace(&mut group.is_in_order, true) {
                    self.wake_order.add((*key, id));
                }
            }
        }
        compared
    }

    fn next_round(&mut self) -> Vec<(K, Duration)> {
        if self.wake_order.is_empty() {
            return Vec::new();
        }
        let size = self.round_size.step();
        let mut woken = Vec::new();
        while woken.len() < size
            && let Some((key, id)) = self.wake_order.take()
        {
            let groups = self.choices.get_mut(id).map(|choice| &mut choice.groups);
            let Some(group) = groups.and_then(|groups| groups.get_mut(&key)) else {
                continue;
            };
            group.is_in_order = false;
            if let Some((binding, is_likely)) = group.pop()
                && let Some(entry) = self.entries.get_mut(&binding)
            {
                entry.woken = true;
                let after = if is_likely {
                    Duration::ZERO
                } else {
                    pause(entry.vain).saturating_sub(GATHER_ROOM)
                };
                if !after.is_zero() {
                    group.rest(binding.clone());
                }
                woken.push((binding, after));
            }
            if group.is_due() {
                group.is_in_order = true;
                self.wake_order.add((key, id));
            }
        }
        woken
    }
}

/// Returns the time after which a binding is decided that may be helped by room anywhere: many
/// reports are answered by one decision, and the more decisions were in vain, the more reports.
fn pause(vain: u32) -> Duration {
    doubled((GATHER_ROOM, LONGEST_GATHER), vain.saturating_sub(1))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
