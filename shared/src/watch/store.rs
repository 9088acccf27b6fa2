//! Objects by namespace and name, without a second copy of either.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;

use kube::Resource;

use super::outline::Outline;
use super::packing::Packed;

/// The objects of a collection, each found by the names in its own metadata. Names kept beside the
/// objects would cost a small object a third of its memory again, and every look-up two
/// allocations. They are sorted, so that those of one namespace are found without reading the
/// others.
pub(super) struct Store<K>(BTreeSet<Held<K>>);

/// An object in one of the two forms in which it is kept. It is equal to every other of its name.
pub(super) enum Held<K> {
    /// As it is read.
    Whole(Arc<K>),
    /// As compressed text.
    Packed(Arc<Packed>),
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Whole(Arc::clone(object)),
            Self::Packed(packed) => Self::Packed(Arc::clone(packed)),
        }
    }
}

impl<K: Resource> Held<K> {
    /// Returns the namespace and name of the object.
    pub(super) fn address(&self) -> (&str, &str) {
        match self {
            Self::Whole(object) => address(object.as_ref()),
            Self::Packed(packed) => packed.address(),
        }
    }

    /// Returns the names and the labels of the object; `None` if it has to be decoded for that.
    pub(super) fn outline(&self) -> Option<Outline<'_>> {
        match self {
            Self::Whole(object) => Some(Outline::of(object.as_ref())),
            Self::Packed(packed) => packed.outline(),
        }
    }

    /// Returns the object, which `unpack` reads where it is packed.
    pub(super) fn read_with(
        &self,
        unpack: impl FnOnce(&Packed) -> Option<Arc<K>>,
    ) -> Option<Arc<K>> {
        match self {
            Self::Whole(object) => Some(Arc::clone(object)),
            Self::Packed(packed) => unpack(packed),
        }
    }

    /// Returns the version of the object.
    pub(super) fn version(&self) -> Option<u64> {
        match self {
            Self::Whole(object) => version(object.as_ref()),
            Self::Packed(packed) => packed.version,
        }
    }
}

impl<K: Resource> Store<K> {
    pub(super) fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the object of that name; the namespace of cluster-scoped objects is empty.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Held<K>> {
        let address = (namespace, name);
        self.0.get(&address as &dyn Named)
    }

    /// Puts an object in the place of the one of its name, which is returned.
    pub(super) fn put(&mut self, object: Held<K>) -> Option<Held<K>> {
        self.0.replace(object)
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Held<K>> {
        let address = (namespace, name);
        self.0.take(&address as &dyn Named)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Held<K>> {
        self.0.iter()
    }

    /// Returns the objects of a namespace, by name.
    pub(super) fn objects_in<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Held<K>> + 'a {
        let first = (namespace, "");
        let from = Bound::Included(&first as &dyn Named);
        self.0
            .range::<dyn Named, _>((from, Bound::Unbounded))
            .take_while(move |it| it.bytes().0 == namespace.as_bytes())
    }

    pub(super) fn into_objects(self) -> impl Iterator<Item = Held<K>> {
        self.0.into_iter()
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

/// Returns what distinguishes a version of an object from any other of its name; `None` where the
/// server says no version.
pub(super) fn version<K: Resource>(object: &K) -> Option<u64> {
    let meta = object.meta();
    let version = meta.resource_version.as_ref()?;
    let mut hasher = DefaultHasher::new();
    (version, &meta.uid).hash(&mut hasher);
    Some(hasher.finish())
}

/// What has a namespace and a name: an object, and a mere pair of texts by which it is looked up.
/// They are compared as bytes, which sort as their texts do: a look-up among a hundred thousand
/// objects compares seventeen of them, and none has to be checked to be text for that.
trait Named {
    fn bytes(&self) -> (&[u8], &[u8]);
}

impl Named for (&str, &str) {
    fn bytes(&self) -> (&[u8], &[u8]) {
        (self.0.as_bytes(), self.1.as_bytes())
    }
}

impl<K: Resource> Named for Held<K> {
    fn bytes(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Whole(object) => {
                let (namespace, name) = address(object.as_ref());
                (namespace.as_bytes(), name.as_bytes())
            }
            Self::Packed(packed) => packed.names(),
        }
    }
}

impl<'a, K: Resource + 'a> Borrow<dyn Named + 'a> for Held<K> {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
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
        self.bytes().cmp(&other.bytes())
    }
}

impl<K: Resource> PartialEq for Held<K> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl<K: Resource> Eq for Held<K> {}

impl<K: Resource> PartialOrd for Held<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Resource> Ord for Held<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(&other.bytes())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(namespace: Option<&str>, name: &str, version: &str) -> Held<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = namespace.map(str::to_owned);
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Held::Whole(Arc::new(object))
    }

    /// Returns the version of an object.
    fn version_of(held: Option<&Held<ConfigMap>>) -> Option<String> {
        match held? {
            Held::Whole(object) => object.metadata.resource_version.clone(),
            Held::Packed(_) => None,
        }
    }

    #[test]
    fn an_object_is_found_by_both_its_names_and_takes_the_place_of_its_former_version() {
        let mut store = Store::new();
        assert!(store.put(object(Some("a"), "x", "1")).is_none());
        assert!(store.put(object(Some("b"), "x", "2")).is_none());
        assert!(store.put(object(None, "x", "3")).is_none());
        let former = store.put(object(Some("a"), "x", "4"));
        assert_eq!(version_of(former.as_ref()).as_deref(), Some("1"));
        assert_eq!(store.len(), 3);
        assert_eq!(version_of(store.get("a", "x")).as_deref(), Some("4"));
        assert_eq!(version_of(store.get("", "x")).as_deref(), Some("3"));
        // The two names are no single text.
        assert!(store.get("ax", "").is_none());
        let removed = store.remove("b", "x");
        assert_eq!(version_of(removed.as_ref()).as_deref(), Some("2"));
        assert!(store.remove("b", "x").is_none());
        assert_eq!(store.objects().count(), 2);
    }

    #[test]
    fn the_objects_of_a_namespace_are_found_without_reading_the_others() {
        let mut store = Store::new();
        for (namespace, name) in [("b", "y"), ("a", "z"), ("b", "x"), ("ba", "x"), ("", "x")] {
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            store.put(object(namespace, name, "1"));
        }
        let names = |namespace: &str| -> Vec<String> {
            let found = store.objects_in(namespace);
            found.map(|it| it.address().1.to_owned()).collect()
        };
        assert_eq!(names("b"), ["x", "y"]);
        assert_eq!(names("a"), ["z"]);
        assert_eq!(names(""), ["x"]);
        assert_eq!(names("c"), [""; 0]);
    }
}
