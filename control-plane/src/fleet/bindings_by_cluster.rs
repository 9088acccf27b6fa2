//! Index of bindings by the clusters that they name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;

use super::binding::BindingKey;

/// The bindings that name each cluster: as a target, as one that they are leaving, or as one that
/// they follow a referrer to. Cheap to clone.
#[derive(Clone, Default)]
pub struct BindingsByCluster(Arc<Mutex<Index>>);

/// Keys that are shared between the clusters of a binding.
type Index = HashMap<String, BTreeSet<Arc<BindingKey>>>;

impl BindingsByCluster {
    /// Follows a cache of bindings; call it before the cache starts and before listeners that read
    /// this index are installed.
    pub fn follow(&self, bindings: &Informer<AnyBinding>) {
        let index = self.clone();
        bindings.on_change(move |change| match change {
            Change::Applied { old, new } => index.change(old.as_deref(), Some(new)),
            Change::Deleted { old } => index.change(Some(old), None),
        });
    }

    /// Returns the bindings that name a cluster, in the order of their names.
    pub fn of(&self, cluster: &str) -> Vec<Arc<BindingKey>> {
        let index = self.0.lock();
        let found = index.get(cluster).into_iter().flatten();
        found.cloned().collect()
    }

    fn change(&self, old: Option<&AnyBinding>, new: Option<&AnyBinding>) {
        let Some(binding) = new.or(old) else {
            return;
        };
        let (was, is) = (old.map(|it| &it.spec), new.map(|it| &it.spec));
        let is_same = |old: &ResourceBindingSpec, new: &ResourceBindingSpec| {
            old.clusters == new.clusters
                && old.graceful_eviction_tasks == new.graceful_eviction_tasks
                && old.required_by == new.required_by
        };
        if was.zip(is).is_some_and(|(was, is)| is_same(was, is)) {
            return;
        }
        let (was, is) = (names(was), names(is));
        let key = Arc::new(BindingKey::of(binding));
        let mut index = self.0.lock();
        for cluster in was.difference(&is) {
            if let Some(bindings) = index.get_mut(*cluster) {
                bindings.remove(&key);
                if bindings.is_empty() {
                    index.remove(*cluster);
                }
            }
        }
        for cluster in is.difference(&was) {
            let bindings = index.entry((*cluster).to_owned()).or_default();
            bindings.insert(Arc::clone(&key));
        }
    }
}

/// Returns the clusters that a spec names: its targets, those of its referrers, and those that it
/// is leaving.
fn names(spec: Option<&ResourceBindingSpec>) -> BTreeSet<&str> {
    let Some(spec) = spec else {
        return BTreeSet::new();
    };
    let followed = spec.required_by.iter().flat_map(|it| &it.clusters);
    let there = spec.clusters.iter().chain(followed);
    let left = spec.graceful_eviction_tasks.iter();
    there
        .map(|it| &*it.name)
        .chain(left.map(|it| &*it.from_cluster))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Changes the binding of a namespace, or of none, from one spec to another.
    fn change(
        index: &BindingsByCluster,
        namespace: Option<&str>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let read = |spec: &Value| -> AnyBinding {
            let metadata = json!({"namespace": namespace, "name": "web"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        index.change(old.map(read).as_ref(), new.map(read).as_ref());
    }

    #[test]
    fn a_binding_is_found_by_every_cluster_that_it_names_as_long_as_it_does() {
        let index = BindingsByCluster::default();
        let found = || ["m1", "m2", "m3"].map(|cluster| index.of(cluster).len());
        let placed = json!({
            "clusters": [{"name": "m1"}],
            "gracefulEvictionTasks": [{"fromCluster": "m2"}],
            "requiredBy": [{"name": "a", "clusters": [{"name": "m3"}, {"name": "m1"}]}],
        });
        let shop = Some("shop");
        change(&index, shop, None, Some(&placed));
        assert_eq!(found(), [1, 1, 1]);
        let moved = json!({"clusters": [{"name": "m2"}]});
        change(&index, shop, Some(&placed), Some(&moved));
        assert_eq!(found(), [0, 1, 0]);
        change(&index, shop, Some(&moved), Some(&moved));
        assert_eq!(found(), [0, 1, 0]);
        change(&index, shop, Some(&moved), None);
        assert!(index.0.lock().is_empty(), "nothing is kept of it");
    }

    #[test]
    fn bindings_of_both_kinds_are_told_apart() {
        let index = BindingsByCluster::default();
        let placed = json!({"clusters": [{"name": "m1"}]});
        change(&index, None, None, Some(&placed));
        assert_eq!(index.of("m1")[0].namespace, None);
        change(&index, None, Some(&placed), None);
        assert_eq!(index.of("m1"), []);
    }
}
