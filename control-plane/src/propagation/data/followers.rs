//! Which workloads an object of a replication engine follows, and which of both to look at again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::data_replication::DataReference;
use muster_shared::names;
use muster_shared::queue::Queue;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::works::{CachedWork, binding_of};

/// The workloads with data, and their objects. Empty in a fleet whose policies have none. Cheap to
/// clone.
#[derive(Clone, Default)]
pub struct Followers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Objects of each workload, by the bindings of both.
    workloads: HashMap<BindingKey, Workload>,
    /// Workloads of each object.
    objects: HashMap<BindingKey, BTreeSet<BindingKey>>,
}

#[derive(Default)]
struct Workload {
    objects: BTreeSet<BindingKey>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Returns the key of the binding of an object that a workload's data names.
pub fn object_key(workload: &BindingKey, object: &DataReference) -> BindingKey {
    BindingKey {
        namespace: workload.namespace.clone(),
        name: names::binding(&object.kind, &object.name),
    }
}

fn objects_of(key: &BindingKey, spec: &ResourceBindingSpec) -> BTreeSet<BindingKey> {
    let data = spec.data_replication.iter();
    let objects = data.flat_map(|it| {
        let roles = it.roles.iter().map(|role| &role.object);
        roles.chain(it.gates.iter().map(|gate| &gate.object))
    });
    objects.map(|it| object_key(key, it)).collect()
}

impl Followers {
    /// Follows bindings and Works; adds the bindings of objects and workloads to the queue whose
    /// counterparts change.
    pub fn follow(&self, fleet: &Fleet, queue: &Queue<BindingKey>) {
        let (followers, queued, cache) = (self.clone(), queue.clone(), fleet.bindings.clone());
        fleet.bindings.on_change(move |change| {
            let key = BindingKey::of(change.object().as_ref());
            let (old, new) = match change {
                Change::Applied { old, new } => (old.as_deref(), Some(new.as_ref())),
                // A list may have lacked it.
                Change::Deleted { .. } if !cache.presence(&key).is_gone() => return,
                Change::Deleted { old } => (Some(old.as_ref()), None),
            };
            let generation = |it: Option<&AnyBinding>| it.and_then(|it| it.metadata.generation);
            if old.is_none() || generation(old) != generation(new) {
                let objects = new.map(|it| objects_of(&key, &it.spec)).unwrap_or_default();
                followers.change(&key, &objects, |it| queued.add(it));
            }
        });
        let (followers, queue) = (self.clone(), queue.clone());
        fleet.works.on_change(move |change| {
            if let Some(key) = binding_of(change.object()) {
                followers.wake(&key, change, |it| queue.add(it));
            }
        });
    }

    fn change(
        &self,
        key: &BindingKey,
        objects: &BTreeSet<BindingKey>,
        mut wake: impl FnMut(BindingKey),
    ) {
        let mut state = self.0.lock();
        if objects.is_empty() && !state.workloads.contains_key(key) {
            return;
        }
        let workload = state.workloads.entry(key.clone()).or_default();
        let before = std::mem::replace(&mut workload.objects, objects.clone());
        if objects.is_empty() {
            state.workloads.remove(key);
        }
        for gone in before.difference(objects) {
            if let Some(workloads) = state.objects.get_mut(gone) {
                workloads.remove(key);
                if workloads.is_empty() {
                    state.objects.remove(gone);
                }
            }
        }
        for object in objects {
            let workloads = state.objects.entry(object.clone()).or_default();
            workloads.insert(key.clone());
        }
        drop(state);
        for object in before.union(objects) {
            wake(object.clone());
        }
    }

    /// Adds to the queue what depends on a Work that has changed.
    fn wake(
        &self,
        key: &BindingKey,
        change: &Change<CachedWork>,
        mut wake: impl FnMut(BindingKey),
    ) {
        let state = self.0.lock();
        if state.workloads.is_empty() {
            return;
        }
        if let Some(workload) = state.workloads.get(key) {
            // The data is free once the copy is gone, or its deletion has been ordered.
            let is_news = match change {
                Change::Applied {
                    old: Some(old),
                    new,
                } => old.metadata.deletion_timestamp != new.metadata.deletion_timestamp,
                Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
            };
            for object in workload.objects.iter().filter(|_| is_news) {
                wake(object.clone());
            }
        }
        if let Some(workloads) = state.objects.get(key) {
            let is_news = match change {
                Change::Applied {
                    old: Some(old),
                    new,
                } => !new.reports_as(old) || new.metadata.annotations != old.metadata.annotations,
                Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
            };
            if is_news {
                wake(key.clone());
                for workload in workloads {
                    wake(workload.clone());
                }
            }
        }
    }

    /// Returns the bindings of the workloads whose data names the object of a binding.
    pub fn of(&self, object: &BindingKey) -> Vec<BindingKey> {
        let state = self.0.lock();
        let workloads = state.objects.get(object);
        workloads.into_iter().flatten().cloned().collect()
    }

    /// Waits until nobody else decides about a workload or its objects; `None` where it has none.
    /// Otherwise a copy could start while the role that it waited for is taken away.
    pub async fn turn(&self, key: &BindingKey) -> Option<OwnedMutexGuard<()>> {
        let turn = {
            let state = self.0.lock();
            let first = state.objects.get(key).and_then(|it| it.first());
            let workload = state.workloads.get(first.unwrap_or(key));
            workload.map(|it| Arc::clone(&it.turn))
        };
        match turn {
            Some(turn) => Some(turn.lock_owned().await),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> BindingKey {
        BindingKey {
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_change_of_a_workload_wakes_the_objects_of_before_and_of_now() {
        let followers = Followers::default();
        let change = |workload: &str, objects: &[&str]| {
            let mut woken = Vec::new();
            let objects = objects.iter().map(|it| key(it)).collect();
            followers.change(&key(workload), &objects, |it| woken.push(it.name));
            woken
        };
        let of = |object: &str| -> Vec<String> {
            let workloads = followers.of(&key(object)).into_iter();
            workloads.map(|it| it.name).collect()
        };
        assert!(change("web", &[]).is_empty());
        assert_eq!(change("db", &["a", "b"]), ["a", "b"]);
        assert_eq!(change("other", &["b"]), ["b"]);
        assert_eq!(
            (of("a"), of("b")),
            (vec!["db".into()], vec!["db".into(), "other".into()])
        );
        assert_eq!(change("db", &["b", "c"]), ["a", "b", "c"]);
        assert!(of("a").is_empty());
        assert_eq!(change("db", &[]), ["b", "c"]);
        assert_eq!(change("other", &[]), ["b"]);
        let state = followers.0.lock();
        assert!(state.workloads.is_empty() && state.objects.is_empty());
    }
}
