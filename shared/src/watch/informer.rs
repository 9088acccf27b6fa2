//! A cache of one collection that tells its users what changed.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use kube::api::Api;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::follower::{Follower, News};
use super::shelf::{Shelf, address};
use super::{Followed, Selection};

/// What happened to one object.
#[derive(Debug)]
pub enum Change<K> {
    /// It was created or changed (`old` is what the cache held before).
    Applied {
        /// The previous version; `None` when it is new to us.
        old: Option<Arc<K>>,
        /// The version that the cache holds now.
        new: Arc<K>,
    },
    /// It is gone.
    Deleted {
        /// The last version that we saw.
        old: Arc<K>,
    },
}

impl<K> Change<K> {
    /// The object as it is, or as it last was.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { old } => old,
        }
    }
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type Form<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// One list and watch, one cache, any number of listeners. Cheap to clone: all clones share the cache.
pub struct Informer<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    api: Api<K>,
    selection: Selection,
    form: Form<K>,
    // A std lock: held for map operations only, never across an await.
    objects: RwLock<Shelf<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    started: OnceLock<()>,
    synced: watch::Sender<bool>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K: Followed> Informer<K> {
    /// Prepares to follow a collection; nothing is sent before [`run`](Self::run).
    pub fn new(api: Api<K>, selection: Selection) -> Self {
        Self::keeping(api, selection, |_| {})
    }

    /// The same, where each object is brought into a form of the caller's before it is kept and told of: without what nobody reads,
    /// sharing what many have in common.
    pub fn keeping(
        api: Api<K>,
        selection: Selection,
        form: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                api,
                selection,
                form: Box::new(form),
                objects: RwLock::new(Shelf::new()),
                handlers: RwLock::default(),
                started: OnceLock::new(),
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// Adds a listener, called after the cache has been updated and on the informer's own task: it must be quick
    /// (put a key on a queue). A listener added while the informer runs first hears of everything in the cache.
    ///
    /// Objects of the first list are told as `Applied` with no `old`; after a relist only real differences are told.
    pub fn on_change(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self
            .inner
            .handlers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if self.inner.started.get().is_some() {
            for new in self.list() {
                listener(&Change::Applied { old: None, new });
            }
        }
        handlers.push(Box::new(listener));
    }

    /// Follows the collection until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        self.inner.started.get_or_init(|| ());
        let mut follower = Follower::new(&self.inner.api, self.inner.selection.clone());
        let mut listed: Option<Shelf<K>> = None;
        loop {
            let news = tokio::select! {
                () = shutdown.cancelled() => return,
                news = follower.next() => news,
            };
            let event = match news {
                News::Event(event) => event,
                News::Unreadable(rejected) => {
                    let (namespace, name) = (&rejected.namespace, &rejected.name);
                    if rejected.deleted {
                        self.delete(namespace, name);
                    } else if let (Some(listed), Some(known)) =
                        (&mut listed, self.objects().get(namespace, name))
                    {
                        // Last known good: that it does not decode now does not mean that it is gone.
                        listed.put(Arc::clone(known));
                    }
                    continue;
                }
            };
            match event {
                Event::Init => listed = Some(Shelf::new()),
                Event::InitApply(object) => {
                    if let Some(listed) = &mut listed {
                        let (namespace, name) = address(&object);
                        let known = unchanged(self.objects().get(namespace, name), &object);
                        listed.put(known.unwrap_or_else(|| self.kept(object)));
                    }
                }
                Event::InitDone => {
                    self.replace(listed.take().unwrap_or_else(Shelf::new));
                    self.inner.synced.send_replace(true);
                }
                Event::Apply(object) => self.apply(self.kept(object)),
                Event::Delete(object) => {
                    let (namespace, name) = address(&object);
                    self.delete(namespace, name);
                }
            }
        }
    }

    /// Waits until the first complete list is in the cache.
    pub async fn synced(&self) {
        // The sender lives in `inner`, which we hold: waiting cannot fail.
        let _ = self
            .inner
            .synced
            .subscribe()
            .wait_for(|synced| *synced)
            .await;
    }

    /// Whether the first complete list is in the cache.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// The cached version of one object; `namespace` is `None` for cluster-scoped kinds.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let objects = self.objects();
        objects.get(namespace.unwrap_or_default(), name).cloned()
    }

    /// Everything in the cache, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.objects().objects().cloned().collect()
    }

    /// How many objects the cache holds.
    pub fn len(&self) -> usize {
        self.objects().len()
    }

    /// Whether the cache is empty (also before the first list).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The interface that the informer follows, for writes to the same collection.
    pub fn api(&self) -> &Api<K> {
        &self.inner.api
    }

    fn objects(&self) -> std::sync::RwLockReadGuard<'_, Shelf<K>> {
        self.inner
            .objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, new: Arc<K>) {
        let old = self.write().put(Arc::clone(&new));
        self.tell(&Change::Applied { old, new });
    }

    fn delete(&self, namespace: &str, name: &str) {
        let old = self.write().remove(namespace, name);
        if let Some(old) = old {
            self.tell(&Change::Deleted { old });
        }
    }

    /// Takes over a finished list and tells only what it changed.
    fn replace(&self, listed: Shelf<K>) {
        for object in self.list() {
            let (namespace, name) = address(object.as_ref());
            if listed.get(namespace, name).is_none() {
                self.delete(namespace, name);
            }
        }
        for object in listed.into_objects() {
            let (namespace, name) = address(object.as_ref());
            let known = self
                .objects()
                .get(namespace, name)
                .is_some_and(|old| same_version(old.as_ref(), object.as_ref()));
            if !known {
                self.apply(object);
            }
        }
    }

    /// An object in the form in which it is kept: without `managedFields`, which nobody here reads and which is often its larger half,
    /// and as a copy, because what was decoded has room to spare in every list, and a copy has none. Also for what a write answered,
    /// by those who keep it.
    pub fn kept(&self, mut object: K) -> Arc<K> {
        object.meta_mut().managed_fields = None;
        (self.inner.form)(&mut object);
        Arc::new(object.clone())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Shelf<K>> {
        self.inner
            .objects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: &Change<K>) {
        for handler in self
            .inner
            .handlers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            handler(change);
        }
    }
}

/// The object that the cache holds, when a list shows the same version of it: a list of everything must not hold everything a second
/// time until it is complete.
fn unchanged<K: Followed>(known: Option<&Arc<K>>, listed: &K) -> Option<Arc<K>> {
    known
        .filter(|known| same_version(known.as_ref(), listed))
        .cloned()
}

fn same_version<K: Followed>(old: &K, new: &K) -> bool {
    old.meta().resource_version.is_some()
        && old.meta().resource_version == new.meta().resource_version
        && old.meta().uid == new.meta().uid
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn map(uid: &str, version: Option<&str>) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        map.metadata.uid = Some(uid.into());
        map.metadata.resource_version = version.map(str::to_owned);
        Arc::new(map)
    }

    #[test]
    fn a_list_takes_over_what_it_shows_unchanged() {
        let known = map("1", Some("7"));
        for (what, listed, same) in [
            ("the same version", map("1", Some("7")), true),
            ("another version", map("1", Some("8")), false),
            ("made anew", map("2", Some("7")), false),
            ("of no version", map("1", None), false),
        ] {
            let taken = unchanged(Some(&known), &listed);
            let is_known = taken.is_some_and(|taken| Arc::ptr_eq(&taken, &known));
            assert_eq!(is_known, same, "{what}");
        }
        assert!(unchanged(None, known.as_ref()).is_none());
    }
}
