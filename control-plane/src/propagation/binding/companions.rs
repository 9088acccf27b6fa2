//! Keeps what a policy places beside a workload in a cluster for as long as the workload may be
//! there.
//!
//! A Service, a ConfigMap or a role counts as replaced as soon as it is applied elsewhere, long
//! before the pods that use it have left. Removing it then would leave the kept copy without its
//! address or its configuration. So a Work of such an object goes after the Works of the workloads
//! of the same policy (and namespace, where it has one) in that cluster, and after those that
//! depend on it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::names::label;
use muster_shared::queue::Queue;
use muster_shared::watch::Change;
use parking_lot::Mutex;

use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::claim::Claim;
use crate::fleet::fencing;
use crate::fleet::sets::take;
use crate::fleet::works::{CachedWork, binding_of, cluster_of, in_cluster};

/// Returns whether nothing runs by the resource of a binding itself: it is there for what runs. A
/// custom resource may run something.
pub fn runs_nothing(spec: &ResourceBindingSpec) -> bool {
    let resource = &spec.resource;
    !spec.is_workload() && fencing::runs_nothing(&resource.api_version, &resource.kind)
}

/// The workloads of each policy, and what waits for them to leave a cluster. Cheap to clone.
#[derive(Clone, Default)]
pub struct Companions(Arc<Mutex<State>>);

/// Permanent id of a policy, with the policy's name where that is known.
type PolicyId = String;

/// Takes the place of the policies of bindings that none claims, as far as this process has not
/// seen them.
const UNCLAIMED: &str = "";

#[derive(Default)]
struct State {
    /// The bindings of workloads by policy, and by namespace within it.
    workloads: HashMap<PolicyId, HashMap<Option<String>, BTreeSet<Arc<BindingKey>>>>,
    /// The policies of bindings whose claim was taken off: what a deleted policy placed stays
    /// together.
    former: HashMap<BindingKey, PolicyId>,
    /// Bindings with a Work that stays for a workload's sake, by that workload.
    waiting: HashMap<BindingKey, BTreeSet<BindingKey>>,
    /// Number of times that a binding was to wait for a workload.
    waits: u64,
}

impl State {
    fn put(&mut self, id: &PolicyId, key: &BindingKey) {
        let policy = self.workloads.entry(id.clone()).or_default();
        let workloads = policy.entry(key.namespace.clone()).or_default();
        workloads.insert(key.clone().shared());
    }

    fn take(&mut self, id: &PolicyId, key: &BindingKey) {
        let Some(policy) = self.workloads.get_mut(id) else {
            return;
        };
        take(policy, &key.namespace, key);
        if policy.is_empty() {
            self.workloads.remove(id);
        }
    }
}

impl Companions {
    /// Follows the bindings and the Works of workloads; adds what waits for them to the queue.
    pub fn follow(&self, fleet: &Fleet, queue: &Queue<BindingKey>) {
        self.follow_bindings(&fleet.bindings, queue);
        let (followed, queue) = (self.clone(), queue.clone());
        fleet.works.on_change(move |change| {
            if let Change::Deleted { old } = change
                && let Some(key) = binding_of(old)
            {
                followed.wake(&key, &queue);
            }
        });
    }

    fn follow_bindings(&self, bindings: &Bindings, queue: &Queue<BindingKey>) {
        let (companions, queue, cache) = (self.clone(), queue.clone(), bindings.clone());
        bindings.on_change(move |change| {
            let key = BindingKey::of(change.object().as_ref());
            let is_gone = || cache.presence(&key).is_gone();
            // A list may have lacked it.
            if matches!(change, Change::Deleted { .. }) && !is_gone() {
                return;
            }
            let (old, new) = change.sides();
            let generation = |it: &AnyBinding| it.metadata.generation;
            let place = |it: &AnyBinding| (policy_id(it), runs_nothing(&it.spec));
            let (was, is) = (old.map(place), new.map(place));
            if was == is && old.map(generation) == new.map(generation) {
                return;
            }
            companions.change(&key, was, is);
            companions.wake(&key, &queue);
        });
    }

    /// Takes in a change of a binding: its policy, and whether nothing runs by it, before and
    /// after.
    fn change(
        &self,
        key: &BindingKey,
        was: Option<(Option<PolicyId>, bool)>,
        now: Option<(Option<PolicyId>, bool)>,
    ) {
        let mut state = self.0.lock();
        let former = state.former.remove(key);
        let before = was.and_then(|(id, _)| id).or(former);
        let Some((claim, runs_nothing)) = now else {
            if let Some(id) = before {
                state.take(&id, key);
            }
            return;
        };
        let policy = claim.clone().or_else(|| before.clone());
        let policy = policy.unwrap_or_else(|| UNCLAIMED.to_owned());
        if let Some(id) = before.filter(|id| *id != policy || runs_nothing) {
            state.take(&id, key);
        }
        if !runs_nothing {
            state.put(&policy, key);
        }
        if claim.is_none() {
            state.former.insert(key.clone(), policy);
        }
    }

    /// Adds what waits for a workload to the queue.
    fn wake(&self, workload: &BindingKey, queue: &Queue<BindingKey>) {
        for key in self.0.lock().waiting.remove(workload).into_iter().flatten() {
            queue.add(key);
        }
    }

    /// Returns the clusters in which Works of a binding stay because a workload that it serves may
    /// be there; the binding is reconciled again when that workload changes.
    pub fn kept<'a>(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
        leaving: impl Iterator<Item = &'a Arc<CachedWork>>,
    ) -> BTreeSet<String> {
        let mut leaving = leaving.filter_map(|work| cluster_of(work)).peekable();
        if leaving.peek().is_none() || !runs_nothing(&binding.spec) {
            return BTreeSet::new();
        }
        let served = self.served(key, binding);
        let is_kept = |cluster: &&str| self.waits(fleet, key, &served, cluster);
        leaving.filter(is_kept).map(str::to_owned).collect()
    }

    /// Has a binding wait for a workload of those that it serves which may be in a cluster; returns
    /// whether there is one. It is any of them: of n that leave in their order, what waits for the
    /// first of those that are left would be read n times.
    fn waits(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        served: &[Arc<BindingKey>],
        cluster: &str,
    ) -> bool {
        let (before, after) = served.split_at(self.any_of(served.len()));
        after.iter().chain(before).any(|workload| {
            if !may_be_in(fleet, workload, cluster) {
                return false;
            }
            let mut state = self.0.lock();
            let waiting = state
                .waiting
                .entry(BindingKey::clone(workload))
                .or_default();
            waiting.insert(key.clone());
            drop(state);
            // It may have left before the binding began to wait for it.
            may_be_in(fleet, workload, cluster)
        })
    }

    /// Returns a number below `count`, another one each time.
    fn any_of(&self, count: usize) -> usize {
        let mut state = self.0.lock();
        state.waits = state.waits.wrapping_add(1);
        // The numbers that follow each other are far apart.
        let mixed = u128::from(state.waits.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        usize::try_from((mixed * count as u128) >> 64).unwrap_or_default()
    }

    /// Returns the workloads that a binding serves: those of its policy, in its namespace where it
    /// has one, and those that depend on it.
    fn served(&self, key: &BindingKey, binding: &AnyBinding) -> Vec<Arc<BindingKey>> {
        let state = self.0.lock();
        let is_placed = binding.spec.placement.is_some();
        let former = state.former.get(key).cloned();
        let former = former.filter(|id| is_placed || id != UNCLAIMED);
        let id = policy_id(binding).or(former);
        let policy = id.and_then(|id| state.workloads.get(&id));
        let near = policy
            .into_iter()
            .flatten()
            .filter(|(namespace, _)| key.namespace.is_none() || **namespace == key.namespace);
        let referrers = binding.spec.required_by.iter();
        let referrers = referrers.map(|it| Arc::new(BindingKey::of_snapshot(it)));
        near.flat_map(|(_, workloads)| workloads.iter().cloned())
            .chain(referrers)
            .collect()
    }
}

/// Returns whether a workload is to be in a cluster, is leaving it, or has a Work there.
fn may_be_in(fleet: &Fleet, workload: &BindingKey, cluster: &str) -> bool {
    let is_named = fleet.bindings.get(workload).is_some_and(|it| {
        it.spec.target(cluster).is_some() || it.spec.eviction_task(cluster).is_some()
    });
    let has_work = || in_cluster(&fleet.work_index.of(workload), cluster).is_some();
    is_named || has_work()
}

/// Returns what identifies the policy that claims a binding: its permanent id and its name, since a
/// copy of a policy may bear the id of the original.
fn policy_id(binding: &AnyBinding) -> Option<PolicyId> {
    if let Some(claim) = Claim::on(&binding.metadata) {
        return Some(format!("{} {}", claim.id, claim.policy));
    }
    let labels = binding.labels();
    let id = |label: &str| labels.get(label).filter(|id| !id.is_empty()).cloned();
    id(label::PROPAGATION_POLICY_ID).or_else(|| id(label::CLUSTER_PROPAGATION_POLICY_ID))
}
