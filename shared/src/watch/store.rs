//! Objects by namespace and name, without a second copy of either.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use kube::Resource;

/// The objects of a collection, each found by the names in its own metadata. Names kept beside the
/// objects would cost a small object a third of its memory again, and every look-up two
/// allocations. They are sorted, so that those of one namespace are found without a look at the
/// others.
pub(super) struct Store<K>(BTreeSet<Shelved<K>>);

impl<K: Resource> Store<K> {
    pub(super) fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the object of that name; the namespace of cluster-scoped objects is empty.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        let address = (namespace, name);
        self.0.get(&address as &dyn Named).map(|it| &it.0)
    }

    /// Puts an object in the place of the one of its name, which is returned.
    pub(super) fn put(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        self.0.replace(Shelved(object)).map(|it| it.0)
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let address = (namespace, name);
        self.0.take(&address as &dyn Named).map(|it| it.0)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        self.0.iter().map(|it| &it.0)
    }

    /// Returns the objects of a namespace, by name.
    pub(super) fn objects_in<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<K>> + 'a {
        let first = (namespace, "");
        let from = Bound::Included(&first as &dyn Named);
        self.0
            .range::<dyn Named, _>((from, Bound::Unbounded))
            .take_while(move |it| it.address().0 == namespace)
            .map(|it| &it.0)
    }

    pub(super) fn into_objects(self) -> impl Iterator<Item = Arc<K>> {
        self.0.into_iter().map(|it| it.0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns the namespace and name of an object.
pub(super) fn address<K: Resource>(object: &K) -> (&str, &str) {
    let meta = object.meta();
    (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// An object that is equal to every other of its name.
struct Shelved<K>(Arc<K>);

/// What has a namespace and a name: an object, and a mere pair of texts by which it is looked up.
trait Named {
    fn address(&self) -> (&str, &str);
}

impl Named for (&str, &str) {
    fn address(&self) -> (&str, &str) {
        *self
    }
}

impl<K: Resource> Named for Shelved<K> {
    fn address(&self) -> (&str, &str) {
        address(self.0.as_ref())
    }
}

impl<'a, K: Resource + 'a> Borrow<dyn Named + 'a> for Shelved<K> {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for dyn Named + '_ {}

impl PartialOrd for dyn Named + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Named + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl<K: Resource> PartialEq for Shelved<K> {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl<K: Resource> Eq for Shelved<K> {}

impl<K: Resource> PartialOrd for Shelved<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Resource> Ord for Shelved<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(namespace: Option<&str>, name: &str, version: &str) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = namespace.map(str::to_owned);
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Arc::new(object)
    }

    #[test]
    fn an_object_is_found_by_both_its_names_and_takes_the_place_of_its_former_version() {
        let mut store = Store::new();
        assert_eq!(store.put(object(Some("a"), "x", "1")), None);
        assert_eq!(store.put(object(Some("b"), "x", "2")), None);
        assert_eq!(store.put(object(None, "x", "3")), None);
        let former = store.put(object(Some("a"), "x", "4"));
        assert_eq!(former, Some(object(Some("a"), "x", "1")));
        assert_eq!(store.len(), 3);
        assert_eq!(store.get("a", "x"), Some(&object(Some("a"), "x", "4")));
        assert_eq!(store.get("", "x"), Some(&object(None, "x", "3")));
        // The two names are no single text.
        assert_eq!(store.get("ax", ""), None);
        assert_eq!(store.remove("b", "x"), Some(object(Some("b"), "x", "2")));
        assert_eq!((store.remove("b", "x"), store.objects().count()), (None, 2));
    }

    #[test]
    fn the_objects_of_a_namespace_are_found_without_a_look_at_the_others() {
        let mut store = Store::new();
        for (namespace, name) in [("b", "y"), ("a", "z"), ("b", "x"), ("ba", "x"), ("", "x")] {
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            store.put(object(namespace, name, "1"));
        }
        let names = |namespace: &str| -> Vec<String> {
            let found = store.objects_in(namespace);
            found.map(|it| it.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names("b"), ["x", "y"]);
        assert_eq!(names("a"), ["z"]);
        assert_eq!(names(""), ["x"]);
        assert_eq!(names("c"), [""; 0]);
    }
}
