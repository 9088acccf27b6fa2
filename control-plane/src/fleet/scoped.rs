//! Caches of two kinds of objects that are alike: one kind in namespaces, one of the fleet.

use std::sync::Arc;

use muster_shared::controller::Watched;
use muster_shared::watch::{Change, Followed, Informer};

/// The caches of both kinds. Cheap to clone.
pub struct Scoped<K> {
    /// Plural name of the kind in namespaces with its cache, and then those of the other.
    caches: [(&'static str, Informer<K>); 2],
}

impl<K> Clone for Scoped<K> {
    fn clone(&self) -> Self {
        Self {
            caches: self.caches.clone(),
        }
    }
}

impl<K: Followed> Scoped<K> {
    /// Takes the caches in, of the kind in namespaces and then of the other, with the plural names
    /// of their kinds.
    pub fn new(caches: [(&'static str, Informer<K>); 2]) -> Self {
        Self { caches }
    }

    /// Returns the caches with the plural names of their kinds.
    pub fn informers(&self) -> [(&'static str, &Informer<K>); 2] {
        self.caches.each_ref().map(|(name, it)| (*name, it))
    }

    /// Returns the cache of the objects in a namespace, or of those without.
    pub fn of(&self, namespace: Option<&str>) -> &Informer<K> {
        let [(_, namespaced), (_, cluster)] = &self.caches;
        match namespace {
            Some(_) => namespaced,
            None => cluster,
        }
    }

    /// Adds a listener for changes of objects of either kind.
    pub fn on_change(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let listener = Arc::new(listener);
        for (_, informer) in self.informers() {
            let listener = Arc::clone(&listener);
            informer.on_change(move |change| listener(change));
        }
    }

    /// Returns all objects, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        self.iter_of(None)
    }

    /// Returns the objects in a namespace one after the other, or all if none is given.
    pub fn iter_of(&self, namespace: Option<&str>) -> impl Iterator<Item = Arc<K>> + use<K> {
        let [(_, namespaced), (_, cluster)] = &self.caches;
        let wide = namespace.is_none().then(|| cluster.iter());
        let near = namespaced.iter_of(namespace);
        near.chain(wide.into_iter().flatten())
    }

    /// Returns whether both caches are empty.
    pub fn is_empty(&self) -> bool {
        self.informers().iter().all(|(_, it)| it.is_empty())
    }

    /// Returns whether both caches hold a complete list.
    pub fn is_synced(&self) -> bool {
        self.informers().iter().all(|(_, it)| it.is_synced())
    }
}

impl<K: Followed> Watched for Scoped<K> {
    type Change = Change<K>;

    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        Self::on_change(self, listener);
    }
}
