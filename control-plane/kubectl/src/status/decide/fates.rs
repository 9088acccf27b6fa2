//! Where the workloads are that were in a cluster that is not well.

use std::collections::BTreeMap;

use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::movement::eviction::explain::{COMPLETED, CONDITION};
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use serde::Serialize;

use super::{cluster_of, is_waiting, service};
use crate::old_copies::OldCopies;
use crate::view::State;

/// Workloads that are in a cluster that is not well, or have left it and are not confirmed gone
/// from there. What runs nothing counts only while it waits or is stranded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Fates {
    /// Workloads that run in other clusters.
    pub elsewhere: usize,
    /// Workloads that are placed in other clusters, and not healthy there yet.
    pub starting: usize,
    /// Workloads that wait to leave, by reason.
    pub waiting: BTreeMap<String, usize>,
    /// Workloads that have to leave and cannot, by reason.
    pub stranded: BTreeMap<String, usize>,
    /// Workloads that nothing moves.
    pub staying: usize,
    /// Those that are still placed there, and that their policies have stopped where the cluster is
    /// cut off.
    pub fenced: usize,
    /// Workloads of `elsewhere` that also count for another cluster in the same state.
    #[serde(skip)]
    pub elsewhere_again: usize,
    /// Workloads of `starting` that also count for another cluster in the same state.
    #[serde(skip)]
    pub starting_again: usize,
}

impl Fates {
    /// Returns the number of all workloads.
    pub fn all(&self) -> usize {
        let pending = self.waiting.values().chain(self.stranded.values());
        self.elsewhere + self.starting + self.staying + pending.sum::<usize>()
    }
}

/// States and fates by cluster. Holds each cluster that is not well.
pub(super) type ByCluster = BTreeMap<String, (State, Fates)>;

/// Takes note of one workload. `ready` says of each cluster whether it is ready and not silent.
pub(super) fn take(
    fates: &mut ByCluster,
    binding: &AnyBinding,
    old: Option<&OldCopies>,
    ready: &BTreeMap<String, bool>,
) {
    if fates.is_empty() {
        return;
    }
    let (spec, conditions) = (&binding.spec, &binding.status().conditions);
    let pending = conditions::get(conditions, CONDITION);
    let waits = pending.filter(|it| it.status == conditions::TRUE);
    let waits = waits.and_then(|it| Some((cluster_of(&it.message)?, it.reason.as_str())));
    let is_over = pending.is_some_and(|it| it.reason == COMPLETED) || service::is_over(binding);
    // One that is in several of them counts once: where it waits, or else in the first.
    let mut is_reported =
        waits.is_some_and(|(name, _)| fates.contains_key(name) && spec.target(name).is_some());
    // States of the clusters for which it is counted.
    let mut states: Vec<State> = Vec::new();
    for target in &spec.clusters {
        let name = target.name.as_str();
        let Some((state, fates)) = fates.get_mut(name) else {
            continue;
        };
        let cluster = spec.cluster_failover();
        fates.fenced += usize::from(cluster.is_some_and(|it| it.fencing.is_some()));
        match waits.filter(|(cluster, _)| *cluster == name) {
            Some((_, reason)) => {
                let reasons = if is_waiting(reason) {
                    &mut fates.waiting
                } else {
                    &mut fates.stranded
                };
                *reasons.entry(reason.to_owned()).or_default() += 1;
                states.push(*state);
            }
            None if runs_nothing(spec) || is_over || is_reported || !spec.has_copy(name) => {}
            None => {
                is_reported = true;
                fates.staying += 1;
                states.push(*state);
            }
        }
    }
    if runs_nothing(spec) {
        return;
    }
    let tasks = spec.graceful_eviction_tasks.iter();
    let leaving = tasks.map(|it| it.from_cluster.as_str());
    let old = old.and_then(|it| it.get(&BindingKey::of(binding)));
    let old = old.into_iter().flatten().map(String::as_str);
    let mut left: Vec<&str> = leaving
        .chain(old)
        .filter(|it| spec.target(it).is_none() && fates.contains_key(*it))
        .collect();
    left.sort_unstable();
    left.dedup();
    let runs = runs(binding, ready);
    for cluster in left {
        let Some((state, fates)) = fates.get_mut(cluster) else {
            continue;
        };
        let (all, again) = if runs {
            (&mut fates.elsewhere, &mut fates.elsewhere_again)
        } else {
            (&mut fates.starting, &mut fates.starting_again)
        };
        *all += 1;
        *again += usize::from(states.contains(state));
        states.push(*state);
    }
}

/// Returns whether all copies of a workload run, by what clusters reported that are ready.
fn runs(binding: &AnyBinding, ready: &BTreeMap<String, bool>) -> bool {
    let mut targets = binding.spec.copies().map(|it| it.name.as_str()).peekable();
    let runs = |name: &str| binding.status().report(name).is_some_and(service::runs);
    let is_ready = |name: &str| ready.get(name).is_some_and(|it| *it);
    targets.peek().is_some() && targets.all(|it| is_ready(it) && runs(it))
}
