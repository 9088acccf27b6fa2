//! Watches the kinds that Works contain, in the member.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_shared::fleet_id::Owner;
use muster_shared::k8s::{Api, Client, GroupVersionKind};
use muster_shared::names::label;
use muster_shared::queue::Queue;
use muster_shared::watch::{self, Change, Event, Informer, Selection};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::known::{Fits, Known, Opened, Watched};
use super::look::Look;
use super::reflections::Reflections;
use super::supervised::Supervised;
use crate::digest::digest;
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::work::CachedWork;
use crate::work::desired::ObjectKey;
use crate::work::inventory::Inventory;
use crate::work::manifests::desired_for;
use crate::work::member::Raw;
use crate::work::normalized::ServerNormalization;
use crate::work::repairs::{Repairs, rival};
use crate::work::{object, ownership};

/// Objects per page of a list: whole objects, of which a page is in memory at a time.
const PAGE: u32 = 100;
/// How often kinds that the member does not serve yet are looked for again: their definition is
/// applied from here, too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often objects are counted whose Work is gone.
const COUNT_ORPHANS: Duration = Duration::from_mins(1);

/// The watches in the member.
pub struct Watches {
    works: Informer<CachedWork>,
    member: Client,
    discovery: Discovery,
    reflections: Arc<Reflections>,
    echoes: Arc<ServerNormalization>,
    inventory: Arc<Inventory>,
    repairs: Arc<Repairs>,
    /// Works to be applied again.
    to_apply: Queue<String>,
    kinds_changed: Arc<Notify>,
    fleet: fleet_id::Known,
}

impl Watches {
    /// Listens to the Works for kinds to watch.
    pub fn new(
        works: Informer<CachedWork>,
        member: Client,
        discovery: Discovery,
        (reflections, echoes, inventory): (
            Arc<Reflections>,
            Arc<ServerNormalization>,
            Arc<Inventory>,
        ),
        (repairs, to_apply): (Arc<Repairs>, Queue<String>),
        fleet: fleet_id::Known,
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
            to_apply,
            kinds_changed,
            fleet,
        })
    }

    /// Keeps one watch for each kind that Works mention, until shutdown. One that breaks is started
    /// again without touching the others.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        self.works.synced().await;
        let mut watches: Supervised<GroupVersionKind> = Supervised::new();
        loop {
            let wanted = self.kinds();
            watches.retain(|kind| wanted.contains(kind));
            let mut unserved = 0;
            for kind in wanted {
                if !watches.is_due(&kind) {
                    continue;
                }
                let stop = shutdown.child_token();
                let ends = stop.clone();
                match self.discovery.resolve(&kind).await {
                    Err(error) => {
                        tracing::debug!(kind = kind.kind, %error, "cannot watch yet");
                        unserved += 1;
                    }
                    Ok(None) => {
                        self.go_on(self.inventory.give_up(&kind));
                        unserved += 1;
                    }
                    // Nothing to see there, ever.
                    Ok(Some(place)) if !place.watchable => {
                        self.go_on(self.inventory.give_up(&kind));
                        watches.start(kind, stop, async move { ends.cancelled().await });
                    }
                    Ok(Some(place)) => {
                        let api = Api::all_with(self.member.clone(), &place.resource);
                        let of = Watched {
                            kind: kind.clone(),
                            namespaced: place.namespaced,
                        };
                        let task = Arc::clone(&self).follow(api, of, ends);
                        watches.start(kind, stop, task);
                    }
                }
            }
            metrics::gauge!("muster_watched_kinds")
                .set(u32::try_from(watches.len()).unwrap_or(u32::MAX));
            let next = watches.next_start();
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.kinds_changed.notified() => {}
                () = watches.broke() => {
                    metrics::counter!("muster_member_watches_broken_total").increment(1);
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = tokio::time::sleep(LOOK_AGAIN), if unserved > 0 => {}
            }
        }
        watches.drain().await;
    }

    fn kinds(&self) -> HashSet<GroupVersionKind> {
        let works = self.works.list();
        works
            .iter()
            .flat_map(|work| work.kinds())
            .cloned()
            .collect()
    }

    /// Works that waited for a list are worked on.
    fn go_on(&self, works: Vec<String>) {
        for work in works {
            self.to_apply.add(work);
        }
    }

    async fn follow(self: Arc<Self>, api: Api<Raw>, watched: Watched, stop: CancellationToken) {
        let selection = Selection::everything()
            .labels(format!("{}=true", label::MANAGED))
            .page_size(PAGE);
        let mut events = std::pin::pin!(watch::events(&api, selection));
        let mut known = Known::default();
        let mut listed: Option<(Known, Fits)> = None;
        let mut opened = None;
        let mut count = tokio::time::interval(COUNT_ORPHANS);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => break,
                _ = count.tick() => {
                    if self.works.is_synced() {
                        let namespace = self.works.api().namespace();
                        known.retain_former(|work| self.works.get(namespace, work).is_some());
                    }
                    self.count_orphans(&watched, &known);
                    continue;
                }
                Some(event) = events.next() => event,
            };
            match event {
                Event::Init => listed = Some((Known::default(), Fits::new())),
                Event::InitApply(raw) => {
                    let Some((present, fits)) = &mut listed else {
                        continue;
                    };
                    let place = watched.place(&raw);
                    let seen = self.see(&watched, &place, raw, &mut opened);
                    // A streamed list may show an object twice: the last counts.
                    if let Some(key) = seen.key {
                        match seen.fit {
                            Some(wish) => _ = fits.insert(key, wish),
                            None => _ = fits.remove(&key),
                        }
                    }
                    present.note(place, seen.work, seen.wanted);
                }
                Event::InitDone => {
                    opened = None;
                    let (present, fits) = listed.take().unwrap_or_default();
                    self.go_on(self.inventory.list(&watched.kind, fits));
                    let before = std::mem::replace(&mut known, present);
                    for (place, works) in known.succeed(before) {
                        for work in works {
                            self.lose(&watched, &place, &work);
                        }
                    }
                    self.count_orphans(&watched, &known);
                }
                Event::Apply(raw) => {
                    let place = watched.place(&raw);
                    let seen = self.see(&watched, &place, raw, &mut opened);
                    if !seen.wanted
                        && let Some(work) = known.work(&place)
                    {
                        self.mark_again(&watched, &place, work);
                    }
                    if seen.wanted || !known.is_wanted(&place) {
                        known.note(place, seen.work, seen.wanted);
                    }
                }
                Event::Delete(raw) => {
                    let place = watched.place(&raw);
                    // The list that is arriving may have shown it.
                    let shown = listed.as_mut();
                    let shown = shown.map(|(present, _)| present.remove(&place));
                    let mut works = known.remove(&place);
                    for work in shown.unwrap_or_default() {
                        if !works.contains(&work) {
                            works.push(work);
                        }
                    }
                    for work in works {
                        let lost = self.lose(&watched, &place, &work);
                        if let Some((key, (_, fits))) = lost.zip(listed.as_mut()) {
                            fits.remove(&key);
                        }
                    }
                }
            }
        }
        gauge_orphans(&watched, 0);
    }

    /// Reflects an object and has it repaired if it is not what its Work wants.
    fn see(
        &self,
        watched: &Watched,
        place: &ObjectKey,
        raw: Raw,
        opened: &mut Option<Opened>,
    ) -> Seen {
        let mut object = raw.object;
        // Elements of a list come without them.
        object["apiVersion"] = watched.kind.api_version().into();
        object["kind"] = watched.kind.kind.as_str().into();
        let fleet = self.fleet.now();
        let owner = fleet.owner(ownership::fleet(&object));
        // Two fleets may have Works of one name, each in a namespace of one name.
        let ours = ownership::work_of(&object)
            .filter(|_| owner != Owner::Other)
            .filter(|(namespace, _)| Some(*namespace) == self.works.api().namespace())
            .map(|(_, name)| name.to_owned());
        let mut seen = Seen {
            work: ours,
            ..Seen::default()
        };
        let Some(name) = &seen.work else { return seen };
        let Some(open) = self.open(watched, name, opened) else {
            return seen;
        };
        let Some((key, manifest)) = open.find(place) else {
            return seen;
        };
        seen.wanted = true;
        seen.key = Some(key.clone());
        if let Some(reason) = raw.unreadable {
            self.reflections.see(name, &key, Look::unreadable(reason));
            self.inventory.doubt(&key);
            return seen;
        }
        self.reflections.see(name, &key, Look::at(&object));
        if !open.cached.is_to_be_kept() || owner == Owner::Unclear {
            return seen;
        }
        let wanted = desired_for(&open.work, manifest, fleet.mark());
        let plan = object::plan(&self.echoes, &key, &wanted, &object);
        if plan.as_ref().is_ok_and(object::Plan::is_empty) {
            seen.fit = Some(digest(&wanted));
            return seen;
        }
        self.inventory.doubt(&key);
        if plan.is_ok() {
            metrics::counter!("muster_drift_detected_total", "kind" => key.kind.kind.clone())
                .increment(1);
            let by = rival(&wanted, &object);
            let pause = self.repairs.differs(name, &key, digest(&wanted), by);
            tracing::debug!(object = %key, work = name, by, ?pause, "differs from its work");
            self.to_apply.add_after(name.clone(), pause);
        }
        seen
    }

    /// Returns the Work of this name, from `opened` where it is the last one that was opened: a
    /// list shows the objects of one Work together, and a Work may have thousands.
    fn open<'a>(
        &self,
        watched: &Watched,
        name: &str,
        opened: &'a mut Option<Opened>,
    ) -> Option<&'a Opened> {
        let cached = self.works.get(self.works.api().namespace(), name)?;
        let is_open = |open: &Opened| Arc::ptr_eq(&open.cached, &cached);
        if !opened.as_ref().is_some_and(is_open) {
            *opened = Opened::new(watched, cached);
        }
        opened.as_ref()
    }

    /// An object that was a Work's does not say so any more: somebody took our marks off, or the
    /// agent of another fleet put its own on.
    fn mark_again(&self, watched: &Watched, place: &ObjectKey, name: &str) {
        let mut opened = None;
        let Some(open) = self.open(watched, name, &mut opened) else {
            return;
        };
        let Some((key, manifest)) = open.find(place) else {
            return;
        };
        self.inventory.doubt(&key);
        if open.cached.is_to_be_kept() {
            tracing::info!(object = %key, work = name, "does not name its work any more");
            let wish = digest(&self.wish(open, manifest));
            let pause = self.repairs.differs(name, &key, wish, None);
            self.to_apply.add_after(name.to_owned(), pause);
        }
    }

    /// An object of a Work is gone from the member; gives what the Work calls it, if it still wants
    /// it.
    fn lose(&self, watched: &Watched, place: &ObjectKey, name: &str) -> Option<ObjectKey> {
        // Also of one that no Work wants any more.
        self.echoes.forget(place);
        let mut opened = None;
        let open = self.open(watched, name, &mut opened)?;
        let (key, manifest) = open.find(place)?;
        self.reflections.lose(name, &key);
        self.echoes.forget(&key);
        self.inventory.doubt(&key);
        if open.cached.is_to_be_kept() {
            tracing::info!(object = %key, work = name, "disappeared from the member");
            let wish = digest(&self.wish(open, manifest));
            let pause = self.repairs.disappeared(name, &key, wish);
            self.to_apply.add_after(name.to_owned(), pause);
        }
        Some(key)
    }

    fn wish(&self, open: &Opened, manifest: &Value) -> Value {
        desired_for(&open.work, manifest, self.fleet.now().mark())
    }

    /// Counts the objects that name a Work which is not there: nobody updates or removes them.
    fn count_orphans(&self, watched: &Watched, known: &Known) {
        if !self.works.is_synced() {
            return;
        }
        let namespace = self.works.api().namespace();
        let mut orphans = known
            .all()
            .filter(|(_, work)| self.works.get(namespace, work).is_none());
        let Some((first, work)) = orphans.next() else {
            return gauge_orphans(watched, 0);
        };
        let count = orphans.count() + 1;
        tracing::debug!(object = %first, work, count, "objects name a Work that is not there");
        gauge_orphans(watched, count);
    }
}

#[allow(clippy::cast_precision_loss)] // a gauge
fn gauge_orphans(watched: &Watched, count: usize) {
    metrics::gauge!("muster_orphaned_objects", "kind" => watched.kind.kind.clone())
        .set(count as f64);
}

/// What was found out about an object.
#[derive(Default)]
struct Seen {
    /// Name of the Work that it says it is from, if that is one of this member's.
    work: Option<String>,
    /// Whether that Work wants it.
    wanted: bool,
    /// What its Work calls it.
    key: Option<ObjectKey>,
    /// The digest of what its Work wants, when it is so.
    fit: Option<u64>,
}
