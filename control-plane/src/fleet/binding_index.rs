//! Index of bindings by what is asked of all of them: caches keep them packed, and to read each for
//! one that matters takes seconds where there are a hundred thousand.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ObjectReference, ResourceBindingSpec};
use muster_shared::api::policy::Placement;
use muster_shared::watch::Informer;
use parking_lot::Mutex;

use super::binding::BindingKey;
use super::sets::take;

/// A trait that few bindings have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trait {
    /// Graceful eviction tasks are left in the binding.
    HasTasks,
    /// The objects that its template refers to follow the binding.
    HasFollowers,
    /// The objects of the binding stay in members when it is deleted.
    IsPreserved,
    /// The resource of the binding is the definition of a custom one.
    IsDefinition,
}

impl Trait {
    const ALL: [Self; 4] = [
        Self::HasTasks,
        Self::HasFollowers,
        Self::IsPreserved,
        Self::IsDefinition,
    ];

    fn is_of(self, spec: &ResourceBindingSpec) -> bool {
        match self {
            Self::HasTasks => !spec.graceful_eviction_tasks.is_empty(),
            Self::HasFollowers => spec.propagate_deps,
            Self::IsPreserved => spec.is_preserved_on_deletion(),
            Self::IsDefinition => is_definition(&spec.resource),
        }
    }
}

/// Returns whether a resource is the definition of a custom one.
pub fn is_definition(resource: &ObjectReference) -> bool {
    let kind = (resource.api_version.as_str(), resource.kind.as_str());
    kind == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

/// Keys that are shared between all places that have them.
type Keys = BTreeSet<Arc<BindingKey>>;

/// Bindings of which the placement is the same, as are most of one policy.
#[derive(Clone)]
pub struct Alike {
    /// Placement of the bindings.
    pub placement: Arc<Placement>,
    /// Whether they are workloads, of which the replicas may be divided.
    pub are_workloads: bool,
}

impl Alike {
    fn of(spec: &ResourceBindingSpec) -> Option<Self> {
        Some(Self {
            placement: Arc::clone(spec.placement.as_ref()?),
            are_workloads: spec.is_workload(),
        })
    }

    /// Returns what distinguishes them from others: caches share equal placements.
    fn identity(&self) -> (*const Placement, bool) {
        (Arc::as_ptr(&self.placement), self.are_workloads)
    }
}

impl PartialEq for Alike {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Alike {}

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// The bindings by what they name and are. Cheap to clone.
#[derive(Clone, Default)]
pub struct BindingIndex(Arc<Mutex<Index>>);

#[derive(Default)]
struct Index {
    /// By cluster: a target, one that they are leaving, or one that they follow a referrer to.
    by_cluster: HashMap<String, Keys>,
    by_trait: HashMap<Trait, Keys>,
    alike: HashMap<Alike, Keys>,
}

impl BindingIndex {
    /// Follows a cache of bindings; call it before the cache starts and before listeners that read
    /// this index are installed.
    pub fn follow(&self, bindings: &Informer<AnyBinding>) {
        let index = self.clone();
        bindings.on_change(move |change| {
            let (old, new) = change.sides();
            index.change(old, new);
        });
    }

    /// Returns the bindings that name a cluster, in the order of their names.
    pub fn naming(&self, cluster: &str) -> Vec<Arc<BindingKey>> {
        let index = self.0.lock();
        let found = index.by_cluster.get(cluster).into_iter().flatten();
        found.cloned().collect()
    }

    /// Returns the bindings of a namespace, or all if none is given, that are or have something, in
    /// the order of their names.
    pub fn having(&self, what: Trait, namespace: Option<&str>) -> Vec<Arc<BindingKey>> {
        let index = self.0.lock();
        let Some(keys) = index.by_trait.get(&what) else {
            return Vec::new();
        };
        let Some(namespace) = namespace else {
            return keys.iter().cloned().collect();
        };
        let first = BindingKey {
            namespace: Some(namespace.to_owned()),
            name: String::new(),
        };
        let near = keys.range(first..);
        let near = near.take_while(|it| it.namespace.as_deref() == Some(namespace));
        near.cloned().collect()
    }

    /// Returns the bindings of which the placement is chosen, without an order.
    pub fn alike(&self, mut is_chosen: impl FnMut(&Alike) -> bool) -> Vec<Arc<BindingKey>> {
        let index = self.0.lock();
        let chosen = index.alike.iter().filter(|(alike, _)| is_chosen(alike));
        chosen.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }

    fn change(&self, old: Option<&AnyBinding>, new: Option<&AnyBinding>) {
        let Some(binding) = new.or(old) else {
            return;
        };
        let (old, new) = (old.map(|it| &it.spec), new.map(|it| &it.spec));
        if old.zip(new).is_some_and(|(old, new)| is_same(old, new)) {
            return;
        }
        let key = BindingKey::of(binding).shared();
        let mut index = self.0.lock();
        let (was, is) = (names(old), names(new));
        move_key(&mut index.by_cluster, &key, (&was, &is), |it| {
            (*it).to_owned()
        });
        let (was, is) = (traits(old), traits(new));
        move_key(&mut index.by_trait, &key, (&was, &is), |it| *it);
        let alike = |it: Option<&ResourceBindingSpec>| it.and_then(Alike::of).into_iter().collect();
        let (was, is) = (alike(old), alike(new));
        move_key(&mut index.alike, &key, (&was, &is), Alike::clone);
    }
}

/// Returns whether nothing changed that is indexed.
fn is_same(old: &ResourceBindingSpec, new: &ResourceBindingSpec) -> bool {
    old.clusters == new.clusters
        && old.graceful_eviction_tasks == new.graceful_eviction_tasks
        && old.required_by == new.required_by
        && traits(Some(old)) == traits(Some(new))
        && Alike::of(old) == Alike::of(new)
}

/// Moves a key from where it was to where it is.
fn move_key<Q: Eq + Hash, K: Eq + Hash>(
    places: &mut HashMap<K, Keys>,
    key: &Arc<BindingKey>,
    (was, is): (&HashSet<Q>, &HashSet<Q>),
    owned: impl Fn(&Q) -> K,
) {
    for place in was.difference(is).map(&owned) {
        take(places, &place, key);
    }
    for place in is.difference(was).map(&owned) {
        places.entry(place).or_default().insert(Arc::clone(key));
    }
}

fn traits(spec: Option<&ResourceBindingSpec>) -> HashSet<Trait> {
    let all = Trait::ALL.into_iter();
    all.filter(|it| spec.is_some_and(|spec| it.is_of(spec)))
        .collect()
}

/// Returns the clusters that a spec names: its targets, those of its referrers, and those that it
/// is leaving.
fn names(spec: Option<&ResourceBindingSpec>) -> HashSet<&str> {
    let Some(spec) = spec else {
        return HashSet::new();
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
        index: &BindingIndex,
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
        let index = BindingIndex::default();
        let found = || ["m1", "m2", "m3"].map(|cluster| index.naming(cluster).len());
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
        let key = index.naming("m2").remove(0);
        let shared = BindingKey::clone(&key).shared();
        assert!(Arc::ptr_eq(&shared, &key), "it is kept once");
        change(&index, shop, Some(&moved), None);
        let kept = index.0.lock();
        assert!(kept.by_cluster.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn bindings_of_both_kinds_are_told_apart() {
        let index = BindingIndex::default();
        let placed = json!({"clusters": [{"name": "m1"}]});
        change(&index, None, None, Some(&placed));
        assert_eq!(index.naming("m1")[0].namespace, None);
        change(&index, None, Some(&placed), None);
        assert_eq!(index.naming("m1"), []);
    }

    #[test]
    fn a_binding_is_found_by_what_it_is_and_has_as_long_as_it_does() {
        let index = BindingIndex::default();
        let found = |namespace| Trait::ALL.map(|it| index.having(it, namespace).len());
        let all = json!({
            "clusters": [{"name": "m1"}],
            "gracefulEvictionTasks": [{"fromCluster": "m2"}],
            "propagateDeps": true,
            "preserveResourcesOnDeletion": true,
            "resource": {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "name": "widgets.example.com",
            },
        });
        let shop = Some("shop");
        change(&index, shop, None, Some(&all));
        change(&index, None, None, Some(&all));
        assert_eq!(found(None), [2; 4]);
        assert_eq!(found(shop), [1; 4]);
        assert_eq!(found(Some("shop-2")), [0; 4]);
        let plain = json!({"clusters": [{"name": "m1"}]});
        change(&index, shop, Some(&all), Some(&plain));
        assert_eq!(found(shop), [0; 4]);
        change(&index, None, Some(&all), None);
        assert!(index.0.lock().by_trait.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn bindings_of_one_placement_are_found_together() {
        let index = BindingIndex::default();
        let shared = Arc::new(Placement::default());
        let binding = |name: &str, placement: Option<&Arc<Placement>>| {
            let metadata = json!({"namespace": "shop", "name": name});
            let binding = json!({"metadata": metadata, "spec": {}});
            let mut binding: AnyBinding = serde_json::from_value(binding).unwrap();
            binding.spec.placement = placement.map(Arc::clone);
            binding
        };
        let found = || index.alike(|it| Arc::ptr_eq(&it.placement, &shared)).len();
        let (web, shop) = (
            binding("web", Some(&shared)),
            binding("shop", Some(&shared)),
        );
        index.change(None, Some(&web));
        index.change(None, Some(&shop));
        assert_eq!(found(), 2);
        let other = binding("web", Some(&Arc::new(Placement::default())));
        index.change(Some(&web), Some(&other));
        assert_eq!((found(), index.alike(|_| true).len()), (1, 2));
        index.change(Some(&other), Some(&binding("web", None)));
        index.change(Some(&shop), None);
        assert!(index.0.lock().alike.is_empty(), "nothing is kept of it");
    }
}
