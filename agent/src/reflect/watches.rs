//! Watching the kinds that Works mention, in the member.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_shared::k8s::{Api, Client, GroupVersionKind, ResourceExt};
use muster_shared::names::label;
use muster_shared::queue::Queue;
use muster_shared::watch::{self, Change, Event, Informer, Selection};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::reflections::{Look, Reflections};
use crate::apply::CachedWork;
use crate::apply::desired::ObjectKey;
use crate::apply::echo::{Echoes, digest};
use crate::apply::inventory::Inventory;
use crate::apply::member::Raw;
use crate::apply::work::{desired_for, keys};
use crate::apply::{marks, object};
use crate::discovery::catalog::Place;
use crate::discovery::{self, Discovery};

/// Objects per page of a list: whole objects, of which a page is in memory at a time.
const PAGE: u32 = 100;
/// How often kinds that the member does not serve yet are looked for again: their definition is applied from here, too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Drift is repaired after this pause: somebody who fights us shall not make us a load.
const REPAIR_PAUSE: Duration = Duration::from_millis(500);

/// The watches in the member.
pub struct Watches {
    works: Informer<CachedWork>,
    member: Client,
    discovery: Discovery,
    reflections: Arc<Reflections>,
    echoes: Arc<Echoes>,
    inventory: Arc<Inventory>,
    /// Works to be applied again.
    repairs: Queue<String>,
    kinds_changed: Arc<Notify>,
}

impl Watches {
    /// Listens to the Works for kinds to watch.
    pub fn new(
        works: Informer<CachedWork>,
        member: Client,
        discovery: Discovery,
        (reflections, echoes, inventory): (Arc<Reflections>, Arc<Echoes>, Arc<Inventory>),
        repairs: Queue<String>,
    ) -> Arc<Self> {
        let kinds_changed = Arc::new(Notify::new());
        let changed = Arc::clone(&kinds_changed);
        works.on_change(move |change| match change {
            Change::Applied { old, new } if !CachedWork::concerns_us(old.as_deref(), new) => {}
            _ => changed.notify_one(),
        });
        Arc::new(Self {
            works,
            member,
            discovery,
            reflections,
            echoes,
            inventory,
            repairs,
            kinds_changed,
        })
    }

    /// Keeps one watch for each kind that Works mention, until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        self.works.synced().await;
        let mut watched: HashMap<GroupVersionKind, CancellationToken> = HashMap::new();
        let mut tasks: JoinSet<()> = JoinSet::new();
        loop {
            let wanted = self.kinds();
            let mut unserved = 0;
            watched.retain(|kind, stop| {
                let keep = wanted.contains(kind);
                if !keep {
                    stop.cancel();
                }
                keep
            });
            for kind in wanted {
                if watched.contains_key(&kind) {
                    continue;
                }
                let stop = shutdown.child_token();
                match self.place(&kind).await {
                    Err(error) => {
                        tracing::debug!(kind = kind.kind, %error, "cannot watch yet");
                        unserved += 1;
                        continue;
                    }
                    Ok(None) => {
                        self.go_on(self.inventory.give_up(&kind));
                        unserved += 1;
                        continue;
                    }
                    // Nothing to see there, ever.
                    Ok(Some(place)) if !place.watchable => {
                        self.go_on(self.inventory.give_up(&kind));
                    }
                    Ok(Some(place)) => {
                        let api = Api::all_with(self.member.clone(), &place.resource);
                        tasks.spawn(Arc::clone(&self).follow(api, kind.clone(), stop.clone()));
                    }
                }
                watched.insert(kind, stop);
            }
            metrics::gauge!("muster_watched_kinds")
                .set(u32::try_from(watched.len()).unwrap_or(u32::MAX));
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.kinds_changed.notified() => {}
                Some(ended) = tasks.join_next() => if let Err(error) = ended {
                    // Which of them it was is not known; all start anew from a fresh list.
                    tracing::error!(%error, "a watch in the member broke, starting all of them again");
                    for (_, stop) in watched.drain() {
                        stop.cancel();
                    }
                },
                () = tokio::time::sleep(LOOK_AGAIN), if unserved > 0 => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    fn kinds(&self) -> HashSet<GroupVersionKind> {
        let works = self.works.list();
        works
            .iter()
            .flat_map(|work| work.kinds())
            .cloned()
            .collect()
    }

    /// Where objects of a kind are found; `None` (and a later attempt) while the member does not serve it.
    async fn place(&self, kind: &GroupVersionKind) -> Result<Option<Place>, discovery::Error> {
        self.discovery.resolve(kind).await
    }

    /// Works that waited for a list are worked on.
    fn go_on(&self, works: Vec<String>) {
        for work in works {
            self.repairs.add(work);
        }
    }

    async fn follow(
        self: Arc<Self>,
        api: Api<Raw>,
        kind: GroupVersionKind,
        stop: CancellationToken,
    ) {
        let selection = Selection::everything()
            .labels(format!("{}=true", label::MANAGED))
            .page_size(PAGE);
        let mut events = std::pin::pin!(watch::events(&api, selection));
        let mut known = Known::new();
        let mut listed: Option<(Known, Fits)> = None;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => event,
            };
            match event {
                Event::Init => listed = Some((Known::new(), Fits::new())),
                Event::InitApply(object) => {
                    if let (Some(seen), Some((present, fits))) =
                        (self.see(&kind, object), &mut listed)
                    {
                        present.insert(seen.place, seen.work);
                        // A streamed list may show an object twice: the last counts.
                        match seen.fit {
                            Some(wish) => _ = fits.insert(seen.key, wish),
                            None => _ = fits.remove(&seen.key),
                        }
                    }
                }
                Event::InitDone => {
                    let (present, fits) = listed.take().unwrap_or_default();
                    self.go_on(self.inventory.list(&kind, fits));
                    let before = std::mem::replace(&mut known, present);
                    for (key, work) in before.iter().filter(|(key, _)| !known.contains_key(*key)) {
                        self.lose(key, work);
                    }
                }
                Event::Apply(object) => {
                    let place = place(&kind, &object);
                    if let Some(seen) = self.see(&kind, object) {
                        known.insert(seen.place, seen.work);
                    } else if let Some(work) = known.get(&place) {
                        self.mark_again(&place, work);
                    }
                }
                Event::Delete(object) => {
                    let key = place(&kind, &object);
                    if let Some(work) = known.remove(&key) {
                        self.lose(&key, &work);
                    }
                }
            }
        }
    }

    /// Reflects an object and has it repaired if it is not what its Work wants. `None` when no Work of ours wants it.
    fn see(&self, kind: &GroupVersionKind, raw: Raw) -> Option<Seen> {
        let place = place(kind, &raw);
        let mut object = raw.object;
        // Elements of a list come without them.
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.as_str().into();
        let (namespace, name) = marks::work_of(&object)?;
        let cached = self.works.get(Some(namespace), name)?;
        let (work, name) = (cached.open(), name.to_owned());
        let (key, manifest) = keys(&work).find(|(key, _)| names(key, &place))?;
        self.reflections.see(&name, &key, Look::at(&object));
        let mut fit = None;
        if cached.is_to_be_kept() {
            let wanted = desired_for(&work, manifest);
            let plan = object::plan(&self.echoes, &key, &wanted, &object);
            if plan.as_ref().is_ok_and(object::Plan::is_empty) {
                fit = Some(digest(&wanted));
            } else {
                self.inventory.doubt(&key);
                if plan.is_ok() {
                    metrics::counter!("muster_drift_detected_total", "kind" => key.kind.kind.clone())
                        .increment(1);
                    tracing::debug!(object = %key, work = name, "differs from its work");
                    self.repairs.add_after(name.clone(), REPAIR_PAUSE);
                }
            }
        }
        Some(Seen {
            place,
            work: name,
            key,
            fit,
        })
    }

    /// An object that was a Work's does not say so any more: somebody took our marks off.
    fn mark_again(&self, place: &ObjectKey, name: &str) {
        let Some((work, key)) = self.owner(place, name) else {
            return;
        };
        self.inventory.doubt(&key);
        if work.is_to_be_kept() {
            tracing::info!(object = %key, work = name, "does not name its work any more");
            self.repairs.add_after(name.to_owned(), REPAIR_PAUSE);
        }
    }

    /// A Work by its name, and what it calls the object at this place.
    fn owner(&self, place: &ObjectKey, name: &str) -> Option<(Arc<CachedWork>, ObjectKey)> {
        let work = self.works.get(self.works.api().namespace(), name)?;
        let key = keys(&work.open())
            .map(|(key, _)| key)
            .find(|key| names(key, place))?;
        Some((work, key))
    }

    fn lose(&self, place: &ObjectKey, name: &str) {
        if let Some((work, key)) = self.owner(place, name) {
            self.reflections.lose(name, &key);
            self.echoes.forget(&key);
            self.inventory.doubt(&key);
            if work.is_to_be_kept() {
                tracing::info!(object = %key, work = name, "disappeared from the member");
                self.repairs.add(name.to_owned());
            }
        }
    }
}

/// An object of one of our Works.
struct Seen {
    /// What it is and where.
    place: ObjectKey,
    /// Name of its Work.
    work: String,
    /// What its Work calls it.
    key: ObjectKey,
    /// The digest of what its Work wants, when it is so.
    fit: Option<u64>,
}

/// Objects that are as their Works want them, with the digests of that.
type Fits = HashMap<ObjectKey, u64>;

/// Objects of one kind, and the names of their Works.
type Known = HashMap<ObjectKey, String>;

fn place(kind: &GroupVersionKind, raw: &Raw) -> ObjectKey {
    ObjectKey {
        kind: kind.clone(),
        namespace: raw.namespace().unwrap_or_default(),
        name: raw.name_any(),
    }
}

/// Whether a manifest names the object at this place; without a namespace it means the default one, as for kubectl.
fn names(manifest: &ObjectKey, place: &ObjectKey) -> bool {
    manifest.kind == place.kind
        && manifest.name == place.name
        && (manifest.namespace == place.namespace
            || (manifest.namespace.is_empty() && place.namespace == "default"))
}
