//! Index of workloads with data by the objects of a replication engine that their data names.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::data_replication::DataReference;
use muster_shared::names;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::binding::BindingKey;
use super::sets::take;

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
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// Returns the key of the binding of an object that a workload's data names.
pub fn object_key(workload: &BindingKey, object: &DataReference) -> BindingKey {
    BindingKey {
        namespace: workload.namespace.clone(),
        name: names::binding(&object.kind, &object.name),
    }
}

/// Returns the keys of the bindings of the objects that a workload's data names.
pub fn objects_of(workload: &AnyBinding) -> BTreeSet<BindingKey> {
    let Some(data) = &workload.spec.data_replication else {
        return BTreeSet::new();
    };
    let roles = data.roles.iter().map(|role| &role.object);
    let objects = roles.chain(data.gates.iter().map(|gate| &gate.object));
    let key = BindingKey::of(workload);
    objects.map(|it| object_key(&key, it)).collect()
}

impl Followers {
    /// Follows a cache of bindings; call it before the cache starts and before listeners that read
    /// this index are installed.
    pub fn follow(&self, bindings: &Informer<AnyBinding>) {
        let (followers, cache) = (self.clone(), bindings.clone());
        bindings.on_change(move |change| {
            let binding = change.object();
            let key = BindingKey::of(binding);
            match change {
                Change::Applied { old, new } => {
                    let generation = |it: &AnyBinding| it.metadata.generation;
                    if old.as_ref().map(|it| generation(it)) != Some(generation(new)) {
                        followers.change(&key, objects_of(new));
                    }
                }
                // A list may have lacked it.
                Change::Deleted { .. } => {
                    let known = cache.presence(key.namespace.as_deref(), &key.name);
                    if known.is_gone() {
                        followers.change(&key, BTreeSet::new());
                    }
                }
            }
        });
    }

    fn change(&self, key: &BindingKey, objects: BTreeSet<BindingKey>) {
        let mut state = self.0.lock();
        if objects.is_empty() && !state.workloads.contains_key(key) {
            return;
        }
        let workload = state.workloads.entry(key.clone()).or_default();
        let before = std::mem::replace(&mut workload.objects, objects.clone());
        if objects.is_empty() {
            state.workloads.remove(key);
        }
        for gone in before.difference(&objects) {
            take(&mut state.objects, gone, key);
        }
        for object in objects {
            let workloads = state.objects.entry(object).or_default();
            workloads.insert(key.clone());
        }
    }

    /// Returns whether no workload has data.
    pub fn is_empty(&self) -> bool {
        self.0.lock().workloads.is_empty()
    }

    /// Returns the bindings of the objects that the data of a workload names.
    pub fn objects(&self, workload: &BindingKey) -> BTreeSet<BindingKey> {
        let state = self.0.lock();
        let workload = state.workloads.get(workload);
        workload.map(|it| it.objects.clone()).unwrap_or_default()
    }

    /// Returns the bindings of the workloads whose data names the object of a binding.
    pub fn of(&self, object: &BindingKey) -> Vec<BindingKey> {
        let state = self.0.lock();
        let workloads = state.objects.get(object);
        workloads.into_iter().flatten().cloned().collect()
    }

    /// Waits until nobody else decides about a workload or its objects; `None` where it has none.
    /// Otherwise a copy could start while the role that it waited for is taken away.
    pub async fn lock(&self, key: &BindingKey) -> Option<OwnedMutexGuard<()>> {
        let lock = {
            let state = self.0.lock();
            let first = state.objects.get(key).and_then(|it| it.first());
            let workload = state.workloads.get(first.unwrap_or(key));
            workload.map(|it| Arc::clone(&it.lock))
        };
        match lock {
            Some(lock) => Some(lock.lock_owned().await),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::key;

    #[test]
    fn the_workloads_of_an_object_follow_their_bindings() {
        let followers = Followers::default();
        let change = |workload: &str, objects: &[&str]| {
            let objects = objects.iter().map(|it| key(it)).collect();
            followers.change(&key(workload), objects);
        };
        let of = |object: &str| -> Vec<String> {
            let workloads = followers.of(&key(object)).into_iter();
            workloads.map(|it| it.name).collect()
        };
        change("web", &[]);
        assert!(followers.is_empty());
        change("db", &["a", "b"]);
        change("other", &["b"]);
        assert_eq!(
            (of("a"), of("b")),
            (vec!["db".into()], vec!["db".into(), "other".into()])
        );
        change("db", &["b", "c"]);
        assert!(of("a").is_empty());
        assert_eq!(followers.objects(&key("db")), [key("b"), key("c")].into());
        change("db", &[]);
        change("other", &[]);
        let state = followers.0.lock();
        assert!(state.workloads.is_empty() && state.objects.is_empty());
    }
}
