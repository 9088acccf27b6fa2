//! Keeps what a policy places beside a workload in a cluster for as long as the workload may be
//! there.
//!
//! A Service, a ConfigMap or a role counts as replaced as soon as it is applied elsewhere, long
//! before the pods that use it have left. Removing it then would leave the kept copy without its
//! address or its configuration. So a Work of such an object goes after the last Work of a workload
//! of the same policy (and namespace, where it has one) in that cluster.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use muster_shared::api::binding::{Binding, ResourceBindingSpec};
use muster_shared::names::label;
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};

use super::controller::cluster_of;
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, spec_of};
use crate::fleet::works::{CachedWork, binding_of};

/// Returns whether pods run for the resource of a binding, so that other objects may be there for
/// their sake.
pub fn runs_pods(spec: &ResourceBindingSpec) -> bool {
    let kind = spec.resource.kind.as_str();
    spec.is_workload() || matches!(kind, "DaemonSet" | "CronJob" | "Job" | "Pod")
}

/// The workloads of each policy, and what waits for them to leave a cluster. Cheap to clone.
#[derive(Clone, Default)]
pub struct Companions(Arc<Mutex<HashMap<PolicyId, Group>>>);

/// Permanent id of a policy.
type PolicyId = String;

/// The bindings of one policy, as far as they concern each other.
#[derive(Default)]
struct Group {
    workloads: BTreeSet<BindingKey>,
    /// Bindings with a Work that stays for a workload's sake.
    waiting: BTreeSet<BindingKey>,
}

impl Companions {
    /// Follows the bindings and the Works of workloads; adds what waits for them to the queue.
    pub fn follow(fleet: &Fleet, queue: &Queue<BindingKey>) -> Self {
        let companions = Self::default();
        companions.follow_bindings(&fleet.bindings, queue);
        companions.follow_bindings(&fleet.cluster_bindings, queue);
        let (followed, queue) = (companions.clone(), queue.clone());
        let (bindings, wide) = (fleet.bindings.clone(), fleet.cluster_bindings.clone());
        fleet.works.on_change(move |change| {
            let Change::Deleted { old } = change else {
                return;
            };
            let id = binding_of(old).and_then(|key| match &key.namespace {
                Some(namespace) => policy_id(bindings.get(Some(namespace), &key.name)?.as_ref()),
                None => policy_id(wide.get(None, &key.name)?.as_ref()),
            });
            if let Some(id) = id {
                followed.wake(&id, &queue);
            }
        });
        companions
    }

    fn follow_bindings<B: Binding>(&self, bindings: &Informer<B>, queue: &Queue<BindingKey>) {
        let (companions, queue) = (self.clone(), queue.clone());
        bindings.on_change(move |change| {
            let (old, new) = match change {
                Change::Applied { old, new } => (old.as_deref(), Some(new.as_ref())),
                Change::Deleted { old } => (Some(old.as_ref()), None),
            };
            let generation = |binding: &B| binding.meta().generation;
            if old.is_some() && old.map(generation) == new.map(generation) {
                return;
            }
            let place = |binding: &B| {
                let id = policy_id(binding).filter(|_| runs_pods(binding.spec()))?;
                Some((id, BindingKey::of(binding)))
            };
            companions.change(old.and_then(place), new.and_then(place), &queue);
        });
    }

    /// Takes in a change of a workload's binding: its policy and key before and after.
    fn change(
        &self,
        old: Option<(PolicyId, BindingKey)>,
        new: Option<(PolicyId, BindingKey)>,
        queue: &Queue<BindingKey>,
    ) {
        if let Some((id, _)) = &old {
            self.wake(id, queue);
        }
        let mut groups = self.lock();
        if let Some((id, key)) = old.filter(|old| new.as_ref() != Some(old))
            && let Some(group) = groups.get_mut(&id)
        {
            group.workloads.remove(&key);
            if group.workloads.is_empty() {
                groups.remove(&id);
            }
        }
        if let Some((id, key)) = new {
            groups.entry(id).or_default().workloads.insert(key);
        }
    }

    /// Adds what waits for the workloads of a policy to the queue.
    fn wake(&self, id: &PolicyId, queue: &Queue<BindingKey>) {
        for key in self.lock().get(id).iter().flat_map(|group| &group.waiting) {
            queue.add(key.clone());
        }
    }

    /// Returns the clusters in which Works of a binding stay because a workload of its policy may
    /// be there; the binding is looked at again when one of the workloads changes.
    pub fn kept<'a, B: Binding>(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &B,
        leaving: impl Iterator<Item = &'a Arc<CachedWork>>,
    ) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        let Some(id) = policy_id(binding).filter(|_| !runs_pods(binding.spec())) else {
            return kept;
        };
        let mut leaving = leaving.filter_map(|work| cluster_of(work)).peekable();
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(&id) else {
            return kept;
        };
        if leaving.peek().is_some() {
            let serves =
                |it: &&BindingKey| key.namespace.is_none() || it.namespace == key.namespace;
            let served: Vec<&BindingKey> = group.workloads.iter().filter(serves).collect();
            kept.extend(
                leaving
                    .filter(|cluster| served.iter().any(|it| may_be_in(fleet, it, cluster)))
                    .map(str::to_owned),
            );
        }
        if kept.is_empty() {
            group.waiting.remove(key);
        } else {
            group.waiting.insert(key.clone());
        }
        kept
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PolicyId, Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a workload is to be in a cluster, is leaving it, or has a Work there.
fn may_be_in(fleet: &Fleet, workload: &BindingKey, cluster: &str) -> bool {
    let is_named = |spec: &ResourceBindingSpec| {
        spec.target(cluster).is_some() || spec.eviction_task(cluster).is_some()
    };
    let is_named = spec_of(workload, &fleet.bindings, &fleet.cluster_bindings, is_named);
    let has_work = || {
        let works = fleet.work_index.of(workload);
        works.iter().any(|work| cluster_of(work) == Some(cluster))
    };
    is_named == Some(true) || has_work()
}

/// Returns the permanent id of the policy that claims a binding.
fn policy_id(binding: &impl ResourceExt) -> Option<PolicyId> {
    let labels = binding.labels();
    let id = |label: &str| labels.get(label).filter(|id| !id.is_empty()).cloned();
    id(label::PROPAGATION_POLICY_ID).or_else(|| id(label::CLUSTER_PROPAGATION_POLICY_ID))
}
