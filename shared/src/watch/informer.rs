//! Cache of one collection that calls listeners on each change.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::api::Api;
use kube::runtime::watcher::Event;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::follower::{Follower, FollowerEvent};
use super::presence::{Departed, Departure, Doubt, Presence, Unreadable, is_to_leave};
use super::trouble::{Refused, Trouble};
use super::wire::Rejected;
use super::{Followed, Selection};
use crate::clock::calendar;
use crate::queue::jittered;
use crate::watch::freshness::Freshness;
use crate::watch::outline::Outline;
use crate::watch::packing::{Codec, Kept, Packer};
use crate::watch::store::{Held, Store, address, version};

/// Time after which everything is listed again where a list lacked objects that nobody saw leave.
/// Most were deleted while the watch was broken. If the list was short, the cache would be wrong
/// about them until the next change of each.
const CONFIRMATION: Duration = Duration::from_secs(30);
/// How often that time is doubled while each list lacks something: in a fleet in which very much is
/// deleted, lists lack what went while they were made.
const MOST_DOUBLED: u32 = 5;
/// Time after which a list that broke off is made again while somebody waits for it.
const SOON: Duration = Duration::from_secs(2);

/// Change of one object.
#[derive(Debug)]
pub enum Change<K> {
    /// The object was created or changed.
    Applied {
        /// Previous version of the object in the cache; `None` if there was none. It is never
        /// another object of its name: the deletion of that one comes before.
        old: Option<Arc<K>>,
        /// New version in the cache.
        new: Arc<K>,
    },
    /// The object was removed from the cache. [`Informer::presence`] says whether it was deleted.
    Deleted {
        /// Last version in the cache.
        old: Arc<K>,
    },
}

impl<K> Change<K> {
    /// Returns the new version, or the last one of a removed object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { old } => old,
        }
    }

    /// Returns the versions before and after the change: the cache had none of an object that is
    /// new, and has none of one that was removed.
    pub fn sides(&self) -> (Option<&K>, Option<&K>) {
        match self {
            Self::Applied { old, new } => (old.as_deref(), Some(new.as_ref())),
            Self::Deleted { old } => (Some(old.as_ref()), None),
        }
    }

    /// Returns whether both versions differ in what a function compares. An object that appears or
    /// goes always does: a list may have lacked it, or it could not be read.
    pub fn differs(&self, compare: impl FnOnce(&K, &K) -> bool) -> bool {
        match self.sides() {
            (Some(old), Some(new)) => compare(old, new),
            _ => true,
        }
    }
}

/// State of an object of a kind without namespaces.
#[derive(Debug)]
pub enum Fate<'a, K> {
    /// The object appeared, or has a new version.
    Applied(&'a Arc<K>),
    /// The object of this name was seen leaving. It may never have been in the cache.
    Gone(&'a str),
    /// The object of this name is missing from the cache, and nobody saw it leave.
    Lost(&'a str),
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type DepartureHandler = Box<dyn Fn(Option<&str>, &str) + Send + Sync>;
type Form<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// Cache of a collection, kept by one list and watch, with any number of listeners. Cheap to clone:
/// all clones share the cache.
pub struct Informer<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    api: Api<K>,
    selection: Selection,
    form: Form<K>,
    packer: Option<Packer<K>>,
    // A std lock: held for map operations only, never across an await.
    objects: RwLock<Store<K>>,
    departed: RwLock<Arc<Departed>>,
    unreadable: Mutex<Unreadable>,
    departure_handlers: RwLock<Vec<DepartureHandler>>,
    handlers: RwLock<Vec<Handler<K>>>,
    started: OnceLock<()>,
    /// Whether there has been a complete list; sent again with each.
    synced: watch::Sender<bool>,
    /// Notified where another list is wanted.
    asked: Arc<Notify>,
    touch: Arc<Freshness>,
    trouble: Arc<Trouble>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K: Followed> Informer<K> {
    /// Prepares the informer; nothing is sent before [`run`](Self::run).
    pub fn new(api: Api<K>, selection: Selection) -> Self {
        Self::keeping(api, selection, |_| {})
    }

    /// Prepares an informer that converts each object before it is cached and announced, for
    /// example to remove unused fields or to share equal values.
    pub fn keeping(
        api: Api<K>,
        selection: Selection,
        form: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Self {
        Self::prepared(api, selection, Box::new(form), None)
    }

    /// Prepares an informer of a collection that may be large: its objects are converted, then kept
    /// as compressed text and decoded when they are read, but for those that were read last.
    pub fn packing(
        api: Api<K>,
        selection: Selection,
        form: impl Fn(&mut K) + Send + Sync + 'static,
        codec: Codec<K>,
    ) -> Self {
        Self::prepared(api, selection, Box::new(form), Some(Packer::new(codec)))
    }

    fn prepared(
        api: Api<K>,
        selection: Selection,
        form: Form<K>,
        packer: Option<Packer<K>>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                api,
                selection,
                form,
                packer,
                objects: RwLock::new(Store::new()),
                departed: RwLock::default(),
                unreadable: Mutex::default(),
                departure_handlers: RwLock::default(),
                handlers: RwLock::default(),
                started: OnceLock::new(),
                synced: watch::Sender::new(false),
                asked: Arc::default(),
                touch: Arc::new(Freshness::new(calendar())),
                trouble: Arc::default(),
            }),
        }
    }

    /// Adds a listener. It is called after the cache has been updated, on the informer's task, and
    /// must return quickly (add a key to a queue). A listener that is added while the informer runs
    /// is called for every cached object first.
    ///
    /// Objects of the first list are announced as `Applied` without `old`; a later list announces
    /// real differences only.
    pub fn on_change(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.inner.handlers.write();
        if self.inner.started.get().is_some() {
            for new in self.iter() {
                listener(&Change::Applied { old: None, new });
            }
        }
        handlers.push(Box::new(listener));
    }

    /// Adds a listener for names of deleted objects that were never in the cache because they did
    /// not decode. Deletions of cached objects go to [`on_change`](Self::on_change).
    pub fn on_unread_departure(
        &self,
        listener: impl Fn(Option<&str>, &str) + Send + Sync + 'static,
    ) {
        let mut handlers = self.inner.departure_handlers.write();
        handlers.push(Box::new(listener));
    }

    /// Adds a listener for the fates of objects of a kind without namespaces.
    pub fn on_fate(&self, listener: impl Fn(Fate<'_, K>) + Send + Sync + 'static) {
        let listener = Arc::new(listener);
        let (cache, reported) = (self.clone(), Arc::clone(&listener));
        self.on_change(move |change| match change {
            Change::Applied { new, .. } => reported(Fate::Applied(new)),
            Change::Deleted { old } => {
                let name = old.meta().name.as_deref().unwrap_or_default();
                reported(if cache.presence(None, name).is_gone() {
                    Fate::Gone(name)
                } else {
                    Fate::Lost(name)
                });
            }
        });
        self.on_unread_departure(move |_, name| listener(Fate::Gone(name)));
    }

    /// Lists and watches until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        self.inner.started.get_or_init(|| ());
        let mut follower = Follower::new(&self.inner.api, self.inner.selection.clone())
            .recording(Arc::clone(&self.inner.touch))
            .explaining(Arc::clone(&self.inner.trouble))
            .asked_by(Arc::clone(&self.inner.asked));
        let mut list = None;
        // Lists one after the other that lacked something.
        let mut lacking = 0;
        loop {
            let next = tokio::select! {
                () = shutdown.cancelled() => return,
                next = follower.next() => next,
            };
            let broke_off = matches!(next, FollowerEvent::BrokenOff);
            match self.observe(next, &mut list) {
                Some(true) if broke_off && self.inner.synced.receiver_count() > 0 => {
                    follower.list_again_at(Some(Instant::now() + jittered(SOON)));
                }
                Some(true) => {
                    let pause = jittered(CONFIRMATION * 2_u32.pow(lacking));
                    follower.list_again_at(Some(Instant::now() + pause));
                    lacking = (lacking + 1).min(MOST_DOUBLED);
                }
                // That one confirms the list before it.
                Some(false) => {
                    lacking = 0;
                    follower.list_again_at(None);
                }
                None => {}
            }
        }
    }

    /// Takes in one event; `list` is the list that is arriving. Returns of a complete list
    /// whether it lacks an object that was cached and that nobody saw leave.
    fn observe(&self, next: FollowerEvent<K>, list: &mut Option<Listed<K>>) -> Option<bool> {
        let event = match next {
            FollowerEvent::Event(event) => event,
            FollowerEvent::Unreadable(rejected) => {
                self.observe_unreadable(&rejected, list);
                return None;
            }
            FollowerEvent::BrokenOff => {
                *list = None;
                return Some(true);
            }
        };
        match event {
            Event::Init => *list = Some(Listed::default()),
            Event::InitApply(object) => {
                if let Some(list) = list {
                    let (namespace, name) = address(&object);
                    list.unreadable.take(namespace, name);
                    let known = unchanged(self.objects().get(namespace, name), &object);
                    let listed = known.unwrap_or_else(|| self.hold(object).0);
                    list.objects.put(listed);
                }
            }
            Event::InitDone => {
                let lacks_objects = self.replace(list.take().unwrap_or_default());
                self.inner.synced.send_replace(true);
                return Some(lacks_objects);
            }
            Event::Apply(object) => {
                let (namespace, name) = address(&object);
                self.inner.unreadable.lock().take(namespace, name);
                let (held, new) = self.hold(object);
                self.apply(held, new);
            }
            Event::Delete(object) => {
                let (namespace, name) = address(&object);
                if let Some(list) = list {
                    list.objects.remove(namespace, name);
                    list.unreadable.take(namespace, name);
                }
                let deleting = object.meta().deletion_timestamp.is_some();
                self.depart(namespace, name, self.departure_when_deleted(deleting));
            }
        }
        None
    }

    /// Takes note of an object that does not decode. Its last known good state is kept: that it
    /// does not decode now does not mean that it is gone.
    fn observe_unreadable(&self, rejected: &Rejected, list: &mut Option<Listed<K>>) {
        let Rejected {
            namespace,
            name,
            deleting,
            ..
        } = rejected;
        if rejected.deleted {
            if let Some(list) = list {
                list.objects.remove(namespace, name);
                list.unreadable.take(namespace, name);
            }
            self.depart(namespace, name, self.departure_when_deleted(*deleting));
        } else if let Some(list) = list {
            list.unreadable.put(namespace, name, *deleting);
            if list.objects.get(namespace, name).is_none()
                && let Some(known) = self.objects().get(namespace, name)
            {
                list.objects.put(known.clone());
            }
        } else {
            self.inner.unreadable.lock().put(namespace, name, *deleting);
            self.come_back(namespace, name);
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

    /// Has everything listed again, and waits until that list is in the cache. A watch may have
    /// been cut off for a minute before that is noticed.
    pub async fn confirmed(&self) {
        let mut lists = self.inner.synced.subscribe();
        self.inner.asked.notify_one();
        // The sender lives in `inner`, which we hold: waiting cannot fail.
        let _ = lists.changed().await;
    }

    /// Returns why the collection cannot be listed or watched; `None` if it can.
    pub fn trouble(&self) -> Option<String> {
        self.inner.trouble.words()
    }

    /// Returns the latest error of listing or watching; `None` while all is well. Unlike
    /// [`trouble`](Self::trouble) it is there after the first attempt.
    pub fn refused(&self) -> Option<Refused> {
        self.inner.trouble.latest()
    }

    /// Has [`trouble`](Self::trouble) say why the informer does not run yet, until it has listed.
    pub fn hindered(&self, words: &str) {
        self.inner.trouble.hindered(words.to_owned());
    }

    /// Returns whether there is no list because the API does not serve the kind, and has said so
    /// for some seconds: then there are no objects of it.
    pub fn is_unserved(&self) -> bool {
        !self.is_synced() && self.inner.trouble.is_unserved()
    }

    /// Returns when the server last responded, if listing or watching fails at present and that
    /// was longer ago than `grace`; `None` otherwise.
    pub fn lost_since(&self, grace: Duration) -> Option<jiff::Timestamp> {
        self.inner.touch.lost_since(grace)
    }

    /// Returns how long ago the server last said something that made the cache current. An open
    /// watch without events may have been cut off since.
    pub fn silence(&self) -> Duration {
        self.inner.touch.silence()
    }

    /// Returns whether the first complete list is in the cache.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Returns the cached version of an object; `namespace` is `None` for cluster-scoped kinds.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let held = self
            .objects()
            .get(namespace.unwrap_or_default(), name)
            .cloned();
        self.read(&held?)
    }

    /// Returns the cached version of an object, of many that are read one after the other: none of
    /// them stays decoded.
    pub fn peek(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let held = self
            .objects()
            .get(namespace.unwrap_or_default(), name)
            .cloned();
        self.read_once(&held?)
    }

    /// Returns an object as this cache holds it, if it holds this version.
    pub fn held(&self, object: &K) -> Option<Kept<K>> {
        let (namespace, name) = address(object);
        unchanged(self.objects().get(namespace, name), object).map(Kept)
    }

    /// Returns what is known of an object; `namespace` is `None` for cluster-scoped kinds. A
    /// decision to remove, release or place something anew because this object is gone must use
    /// this instead of [`get`](Self::get).
    pub fn presence(&self, namespace: Option<&str>, name: &str) -> Presence<Arc<K>> {
        if let Some(object) = self.get(namespace, name) {
            return Presence::There(object);
        }
        let namespace = namespace.unwrap_or_default();
        if let Some(deleting) = self.inner.unreadable.lock().get(namespace, name) {
            return Presence::Unknown(Doubt::Unreadable { deleting });
        }
        match self.departed().get(namespace, name) {
            Some(Departure::Deleted | Departure::Left) => Presence::Gone,
            Some(Departure::Vanished) => Presence::Unknown(Doubt::Vanished),
            None if self.is_synced() => Presence::Unknown(Doubt::Unseen),
            None => Presence::Unknown(Doubt::Unlisted),
        }
    }

    /// Returns whether a watch showed the deletion of an object, and the object has not been seen
    /// since. That a list lacks an object is no deletion.
    pub fn was_deleted(&self, namespace: Option<&str>, name: &str) -> bool {
        let departure = self.departed().get(namespace.unwrap_or_default(), name);
        departure == Some(Departure::Deleted)
    }

    /// Returns the names of objects that were seen being deleted.
    pub fn departed(&self) -> Arc<Departed> {
        Arc::clone(&self.inner.departed.read())
    }

    /// Returns all cached objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.iter().collect()
    }

    /// Returns the cached objects of a namespace, by name; cluster-scoped objects are in the empty
    /// one. The cost depends on the number of objects found.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.iter_of(Some(namespace)).collect()
    }

    /// Returns all cached objects one after the other, by namespace and name: those that are packed
    /// take memory one at a time.
    pub fn iter(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        self.iter_of(None)
    }

    /// Returns the cached objects of a namespace one after the other, or all if none is given.
    pub fn iter_of(&self, namespace: Option<&str>) -> impl Iterator<Item = Arc<K>> + use<K> {
        self.iter_selected(namespace, |_| true)
    }

    /// Returns those objects of [`iter_of`](Self::iter_of) that a function selects by their names
    /// and labels. The function is called while the cache is locked, and must not read it. Objects
    /// that it does not select are not decoded where the codec keeps labels.
    pub fn iter_selected<F: Fn(Outline<'_>) -> bool>(
        &self,
        namespace: Option<&str>,
        is_selected: F,
    ) -> impl Iterator<Item = Arc<K>> + use<K, F> {
        let may_be = |it: &&Held<K>| it.outline().is_none_or(&is_selected);
        let objects = self.objects();
        let held: Vec<_> = match namespace {
            Some(namespace) => objects
                .objects_in(namespace)
                .filter(may_be)
                .cloned()
                .collect(),
            None => objects.objects().filter(may_be).cloned().collect(),
        };
        drop(objects);
        let this = self.clone();
        held.into_iter().filter_map(move |held| {
            let object = this.read_once(&held)?;
            let is_it = held.outline().is_some() || is_selected(Outline::of(object.as_ref()));
            is_it.then_some(object)
        })
    }

    /// Returns the name of an object of a namespace that exists and does not decode, if there is
    /// one; cluster-scoped objects are in the empty namespace.
    pub fn unreadable_in(&self, namespace: &str) -> Option<String> {
        let unreadable = self.inner.unreadable.lock();
        let mut all = unreadable.iter();
        all.find(|(of, _, _)| *of == namespace)
            .map(|(_, name, _)| name.to_owned())
    }

    /// Returns the number of cached objects.
    pub fn len(&self) -> usize {
        self.objects().len()
    }

    /// Returns whether the cache is empty, which it is before the first list.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the interface that the informer watches, for writes to the same collection.
    pub fn api(&self) -> &Api<K> {
        &self.inner.api
    }

    fn objects(&self) -> parking_lot::RwLockReadGuard<'_, Store<K>> {
        self.inner.objects.read()
    }

    /// Takes in a new version of an object. Where it is another object of that name, nobody saw the
    /// former one leave: its deletion is reported first.
    fn apply(&self, held: Held<K>, new: Arc<K>) {
        let (namespace, name) = address(new.as_ref());
        let old = self.peek(Some(namespace), name);
        let is_another = old.as_ref().is_some_and(|old| are_two::<K>(old, &new));
        if is_another {
            self.depart(namespace, name, Departure::Deleted);
        }
        self.come_back(namespace, name);
        self.write().put(held);
        let old = old.filter(|_| !is_another);
        self.notify(&Change::Applied { old, new });
    }

    /// Returns an object in the form in which this cache holds it, and as it is read.
    fn hold(&self, object: K) -> (Held<K>, Arc<K>) {
        if let Some(packer) = &self.inner.packer {
            return packer.hold(Arc::new(self.formed(object)));
        }
        let object = self.kept(object);
        (Held::Whole(Arc::clone(&object)), object)
    }

    fn read(&self, held: &Held<K>) -> Option<Arc<K>> {
        held.read_with(|packed| self.inner.packer.as_ref()?.read(packed))
    }

    fn read_once(&self, held: &Held<K>) -> Option<Arc<K>> {
        held.read_with(|packed| self.inner.packer.as_ref()?.read_once(packed))
    }

    /// Returns how an object left that the API calls deleted. To those who follow a selection only,
    /// what leaves the selection looks the same.
    fn departure_when_deleted(&self, deleting: bool) -> Departure {
        let Selection { labels, fields, .. } = &self.inner.selection;
        if deleting || (labels.is_none() && fields.is_none()) {
            Departure::Deleted
        } else {
            Departure::Vanished
        }
    }

    fn depart(&self, namespace: &str, name: &str, departure: Departure) {
        self.inner.unreadable.lock().take(namespace, name);
        {
            let mut departed = self.inner.departed.write();
            Arc::make_mut(&mut departed).put(namespace, name, departure);
        }
        let old = self.write().remove(namespace, name);
        if let Some(old) = old.and_then(|old| self.read_once(&old)) {
            self.notify(&Change::Deleted { old });
        } else if departure != Departure::Vanished {
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            for handler in &*self.inner.departure_handlers.read() {
                handler(namespace, name);
            }
        }
    }

    /// Notes that an object is there, whatever is remembered of its name.
    fn come_back(&self, namespace: &str, name: &str) {
        let mut departed = self.inner.departed.write();
        if departed.get(namespace, name).is_some() {
            Arc::make_mut(&mut departed).take(namespace, name);
        }
    }

    /// Takes over a finished list and sends only what it changed. Returns whether the list lacks an
    /// object that was not being deleted.
    fn replace(&self, listed: Listed<K>) -> bool {
        let Listed {
            objects,
            unreadable,
        } = listed;
        let is_listed = |namespace: &str, name: &str| {
            objects.get(namespace, name).is_some() || unreadable.get(namespace, name).is_some()
        };
        tracing::debug!(
            resource = self.inner.api.resource_url().rsplit('/').next(),
            objects = objects.len(),
            "listed"
        );
        let mut missing = Vec::new();
        for (namespace, name, deleting) in self.inner.unreadable.lock().iter() {
            if !is_listed(namespace, name) {
                missing.push((namespace.to_owned(), name.to_owned(), deleting));
            }
        }
        for (namespace, name, _) in unreadable.iter() {
            self.come_back(namespace, name);
        }
        *self.inner.unreadable.lock() = unreadable;
        let mut lacks_objects = !missing.is_empty();
        let held: Vec<Held<K>> = self.objects().objects().cloned().collect();
        for held in held {
            let (namespace, name) = held.address();
            if objects.get(namespace, name).is_none()
                && let Some(object) = self.read_once(&held)
            {
                let meta = object.meta();
                let deleting = meta.deletion_timestamp.is_some()
                    || missing
                        .iter()
                        .any(|(ns, n, deleting)| *deleting && ns == namespace && n == name);
                lacks_objects = true;
                let leaves = is_to_leave(deleting, meta.finalizers.as_ref());
                if !leaves {
                    tracing::warn!(
                        resource = self.inner.api.resource_url().rsplit('/').next(),
                        namespace,
                        name,
                        "the API's list lacks an object that nobody saw leave: what depends on it stays"
                    );
                }
                self.depart(
                    namespace,
                    name,
                    if leaves {
                        Departure::Left
                    } else {
                        Departure::Vanished
                    },
                );
            }
        }
        for (namespace, name, deleting) in missing {
            if self.departed().get(&namespace, &name).is_none() {
                let departure = if deleting {
                    Departure::Left
                } else {
                    Departure::Vanished
                };
                self.depart(&namespace, &name, departure);
            }
        }
        for held in objects.into_objects() {
            let (namespace, name) = held.address();
            let known = self
                .objects()
                .get(namespace, name)
                .is_some_and(|old| same_version(old, held.version()));
            if !known && let Some(new) = self.read_once(&held) {
                self.apply(held, new);
            }
        }
        lacks_objects
    }

    /// Returns an object in the form in which it is kept: without `managedFields`, which nobody
    /// here reads and which is often its larger half, and as a copy, because what was decoded has
    /// room to spare in every list, and a copy has none. Those who keep what a write answered use
    /// this form, too.
    pub fn kept(&self, object: K) -> Arc<K> {
        Arc::new(self.formed(object).clone())
    }

    fn formed(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        (self.inner.form)(&mut object);
        object
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, Store<K>> {
        self.inner.objects.write()
    }

    fn notify(&self, change: &Change<K>) {
        for handler in self.inner.handlers.read().iter() {
            handler(change);
        }
    }
}

/// A list that is arriving.
struct Listed<K> {
    objects: Store<K>,
    unreadable: Unreadable,
}

impl<K: Followed> Default for Listed<K> {
    fn default() -> Self {
        Self {
            objects: Store::new(),
            unreadable: Unreadable::default(),
        }
    }
}

/// Returns the object that the cache holds, when a list shows the same version of it: a list of
/// everything must not hold everything a second time until it is complete.
fn unchanged<K: Followed>(known: Option<&Held<K>>, listed: &K) -> Option<Held<K>> {
    known
        .filter(|known| same_version(known, version(listed)))
        .cloned()
}

/// Returns whether two objects of one name are known to be two.
fn are_two<K: Followed>(old: &K, new: &K) -> bool {
    match (&old.meta().uid, &new.meta().uid) {
        (Some(old), Some(new)) => old != new,
        _ => false,
    }
}

fn same_version<K: Followed>(old: &Held<K>, new: Option<u64>) -> bool {
    new.is_some() && old.version() == new
}

#[cfg(test)]
mod tests;
