//! Follows the objects of one kind in the member.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_interpreter::webhook::Pending;
use muster_shared::fencing;
use muster_shared::fleet_id::Owner;
use muster_shared::k8s::{Api, ApiResource, Client};
use muster_shared::names::label;
use muster_shared::watch::{self, Event, Refused, Selection, Trouble};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::index::Index;
use super::look::Look;
use super::missing::spellings;
use super::opened::{Opened, Watched};
use super::relist::Relist;
use super::waiting::{Next, Read, Reader, Waiting};
use super::watches::Watches;
use crate::digest::digest;
use crate::work::desired::ObjectKey;
use crate::work::drift::rival;
use crate::work::manifests::desired_for;
use crate::work::member::Raw;
use crate::work::reader::Unread;
use crate::work::{object, ownership};

/// Objects per page of a list: whole objects, of which a page is in memory at a time.
const PAGE: u32 = 100;
/// Interval at which objects are counted whose Work is gone.
const COUNT_ORPHANS: Duration = Duration::from_mins(1);

/// Time after which a list shows the objects again of which one could not be read.
const LIST_AGAIN: Duration = Duration::from_secs(30);
/// Deadline for reading one object.
const READ: Duration = Duration::from_secs(15);

/// Objects that are as desired, with the digests of their desired states.
type AsDesired = HashMap<ObjectKey, u64>;

impl Watches {
    /// Follows the objects of one kind until `stop`.
    pub(super) async fn follow(
        self: Arc<Self>,
        resource: ApiResource,
        watched: Watched,
        stop: CancellationToken,
    ) {
        let api: Api<Raw> = Api::all_with(self.member.clone(), &resource);
        let selection = Selection::everything()
            .labels(format!("{}=true", label::MANAGED))
            .page_size(PAGE);
        let trouble: Arc<Trouble> = Arc::default();
        let follow = || watch::explained_events(&api, selection.clone(), Arc::clone(&trouble));
        let (mut events, mut is_hidden) = (Box::pin(follow()), false);
        let readable = self.readable.subscribe();
        let mut relist = Relist::new(&self.interpreters, &watched.kind, readable);
        let mut index = Index::default();
        let mut listed: Option<(Index, AsDesired)> = None;
        let mut opened = None;
        let reader = reader(self.member.clone(), resource);
        let mut waiting = Waiting::new(self.waiting.clone(), reader);
        let mut count = tokio::time::interval(COUNT_ORPHANS);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => break,
                // A list that has begun comes to its end, however long it takes.
                () = relist.due(), if listed.is_none() => {
                    events = Box::pin(follow());
                    continue;
                }
                _ = count.tick() => {
                    // A large Work is not held for longer than its objects change.
                    opened = None;
                    is_hidden = self.take_stock(&watched, &mut index, &trouble, is_hidden).await;
                    continue;
                }
                next = waiting.answered() => {
                    relist.after(match next {
                        Next::Look(place, object, unreadable) => {
                            let raw = (object, unreadable);
                            let mut seen = self.see(&watched, &place, raw, &mut opened).await;
                            seen.wait(&place, &mut waiting)
                        }
                        Next::List => Some(LIST_AGAIN),
                    });
                    continue;
                }
                Some(event) = events.next() => event,
            };
            match event {
                Event::Init => listed = Some((Index::default(), AsDesired::new())),
                Event::InitApply(raw) => {
                    let Some((present, as_desired)) = &mut listed else {
                        continue;
                    };
                    let place = watched.place(&raw);
                    let raw = (raw.object, raw.unreadable);
                    let mut seen = self.see(&watched, &place, raw, &mut opened).await;
                    relist.after(seen.wait(&place, &mut waiting));
                    note(as_desired, &place, &seen);
                    present.note(place, seen.work, seen.wanted);
                }
                Event::InitDone => {
                    opened = None;
                    let (present, as_desired) = listed.take().unwrap_or_default();
                    self.go_on(self.drift.listed(&watched.kind, as_desired));
                    let before = std::mem::replace(&mut index, present);
                    for (place, works) in index.succeed(before) {
                        waiting.forget(&place);
                        for work in works {
                            self.lose(&watched, &place, &work).await;
                        }
                    }
                    self.count_orphans(&watched, &index);
                }
                Event::Apply(raw) => {
                    let place = watched.place(&raw);
                    let raw = (raw.object, raw.unreadable);
                    let mut seen = self.see(&watched, &place, raw, &mut opened).await;
                    relist.after(seen.wait(&place, &mut waiting));
                    if !seen.wanted
                        && let Some(work) = index.work(&place)
                    {
                        self.mark_again(&watched, &place, work).await;
                    }
                    if seen.wanted || !index.is_wanted(&place) {
                        index.note(place, seen.work, seen.wanted);
                    }
                }
                Event::Delete(raw) => {
                    let place = watched.place(&raw);
                    waiting.forget(&place);
                    // The list that is arriving may have shown it.
                    let shown = listed.as_mut();
                    let shown = shown.map(|(present, _)| present.remove(&place));
                    if let Some((_, as_desired)) = &mut listed {
                        forget(as_desired, &place);
                    }
                    for work in united(index.remove(&place), shown.unwrap_or_default()) {
                        let lost = self.lose(&watched, &place, &work).await;
                        if let Some((key, (_, as_desired))) = lost.zip(listed.as_mut()) {
                            as_desired.remove(&key);
                        }
                    }
                }
            }
        }
        gauge_orphans(&watched, 0);
    }

    /// Reflects an object and has it repaired if it is not what its Work wants. The text says why
    /// the object cannot be read, if it cannot.
    async fn see(
        &self,
        watched: &Watched,
        place: &ObjectKey,
        (mut object, unreadable): (Value, Option<String>),
        opened: &mut Option<Opened>,
    ) -> Seen {
        // Elements of a list come without them.
        object["apiVersion"] = watched.kind.api_version().into();
        object["kind"] = watched.kind.kind.as_str().into();
        let fleet = self.fleet.now();
        let owner = fleet.owner(ownership::fleet(&object));
        // Two fleets may have Works of one name, each in a namespace of one name.
        let work = ownership::work_of(&object)
            .filter(|_| owner != Owner::Other)
            .filter(|work| Some(work.namespace) == self.works.api().namespace())
            .map(|work| work.name.to_owned());
        let mut seen = Seen {
            work,
            ..Seen::default()
        };
        let Some(name) = &seen.work else { return seen };
        let open = match self.open(watched, name, opened).await {
            Ok(Some(open)) => open,
            Ok(None) => return seen,
            // The Work may want it, and a list shows it again.
            Err(Unread) => {
                for key in &spellings(place) {
                    self.drift.doubt(key);
                }
                seen.wanted = true;
                seen.again = Some(LIST_AGAIN);
                return seen;
            }
        };
        let Some((key, manifest)) = open.find(place) else {
            return seen;
        };
        seen.wanted = true;
        seen.key = Some(key.clone());
        if let Some(reason) = unreadable {
            self.statuses.see(name, &key, Look::unreadable(reason));
            self.drift.doubt(&key);
            return seen;
        }
        let look = Look::of(&object, manifest, &self.interpreters);
        seen.again = look.again;
        seen.pending.clone_from(&look.pending);
        let is_stopped = fencing::stopped(&object).is_some();
        self.statuses.see(name, &key, look);
        if open.cached.is_held_and_unapplied() || (open.cached.suspended && is_stopped) {
            self.to_apply.add(name.clone());
        }
        if !open.cached.is_to_be_kept() || owner == Owner::Unclear {
            return seen.of(object);
        }
        if object::terminates_since(&object).is_some() {
            // The applier says so, and makes it again when it is gone.
            self.drift.doubt(&key);
            self.to_apply.add(name.clone());
            return seen.of(object);
        }
        let wanted = desired_for(&open.work, manifest, fleet.mark());
        match self.drift.seen(&key, &wanted, &object) {
            Ok(None) => seen.as_desired = Some(digest(&wanted)),
            Ok(Some(_)) => {
                metrics::counter!("muster_drift_detected_total", "kind" => key.kind.kind.clone())
                    .increment(1);
                let by = rival(&wanted, &object);
                let pause = self.repairs.differs(name, &key, digest(&wanted), by);
                tracing::debug!(object = %key, work = name, by, ?pause, "differs from its work");
                self.to_apply.add_after(name.clone(), pause);
            }
            // An object that cannot be compared is not repaired.
            Err(error) => {
                seen.again = seen.again.or_else(|| error.retry_after());
                seen.pending = seen.pending.or_else(|| error.pending());
            }
        }
        seen.of(object)
    }

    /// Returns the Work of this name, from `opened` where it is the last one that was opened: a
    /// list shows the objects of one Work together, and a Work may have thousands. A change of its
    /// status alone is no reason to open it again.
    ///
    /// # Errors
    /// When the cache does not keep its text, and it cannot be read now.
    pub(super) async fn open<'a>(
        &self,
        watched: &Watched,
        name: &str,
        opened: &'a mut Option<Opened>,
    ) -> Result<Option<&'a Opened>, Unread> {
        let Some(cached) = self.works.get(self.works.api().namespace(), name) else {
            return Ok(None);
        };
        match opened {
            Some(open) if open.is_of(&cached) => open.cached = cached,
            _ => {
                // Two large ones are not held at a time.
                *opened = None;
                let whole = self.reader.open_promptly(&cached).await?;
                *opened = Opened::new(watched, cached, whole);
            }
        }
        Ok(opened.as_ref())
    }

    /// Counts what belongs to no Work, and reports objects that may not be seen any more. Returns
    /// whether they may not.
    async fn take_stock(
        &self,
        watched: &Watched,
        index: &mut Index,
        trouble: &Trouble,
        was_hidden: bool,
    ) -> bool {
        self.forget_works(index);
        self.count_orphans(watched, index);
        let is_hidden = is_refused(trouble);
        if is_hidden && !was_hidden {
            self.lose_sight(watched, index).await;
        }
        is_hidden
    }

    /// Forgets the Works that wanted objects before, and are gone.
    fn forget_works(&self, index: &mut Index) {
        if self.works.is_synced() {
            let namespace = self.works.api().namespace();
            index.retain_former(|work| self.works.get(namespace, work).is_some());
        }
    }

    /// Counts the objects that name a missing Work, and so are neither updated nor removed.
    fn count_orphans(&self, watched: &Watched, index: &Index) {
        if !self.works.is_synced() {
            return;
        }
        let namespace = self.works.api().namespace();
        let mut orphans = index
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

/// Returns whether the member has refused for some time to show the objects of a kind.
fn is_refused(trouble: &Trouble) -> bool {
    let is_refusal = |latest: Refused| latest.code == Some(403);
    trouble.words().is_some() && trouble.latest().is_some_and(is_refusal)
}

/// Notes whether an object of a list is as desired. A streamed list may show it twice: the last
/// counts.
fn note(as_desired: &mut AsDesired, place: &ObjectKey, seen: &Seen) {
    match (&seen.key, seen.as_desired) {
        (Some(key), Some(digest)) => _ = as_desired.insert(key.clone(), digest),
        (Some(key), None) => _ = as_desired.remove(key),
        (None, _) => forget(as_desired, place),
    }
}

fn forget(as_desired: &mut AsDesired, place: &ObjectKey) {
    for key in &spellings(place) {
        as_desired.remove(key);
    }
}

/// Puts names together, each once.
fn united(mut names: Vec<String>, others: Vec<String>) -> Vec<String> {
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns what reads an object of a kind from the member.
fn reader(member: Client, resource: ApiResource) -> Reader {
    Arc::new(move |place: ObjectKey| {
        let api: Api<Raw> = match place.namespace.as_str() {
            "" => Api::all_with(member.clone(), &resource),
            namespace => Api::namespaced_with(member.clone(), namespace, &resource),
        };
        Box::pin(async move {
            match tokio::time::timeout(READ, api.get_opt(&place.name)).await {
                Ok(Ok(Some(raw))) => Read::Object(raw.object, raw.unreadable),
                Ok(Ok(None)) => Read::Gone,
                Ok(Err(error)) => {
                    tracing::debug!(object = %place, %error, "cannot read an object again");
                    Read::Failed
                }
                Err(_) => Read::Failed,
            }
        })
    })
}

#[allow(clippy::cast_precision_loss)] // a gauge
fn gauge_orphans(watched: &Watched, count: usize) {
    metrics::gauge!("muster_orphaned_objects", "kind" => watched.kind.kind.clone())
        .set(count as f64);
}

/// Result of looking at one object.
#[derive(Default)]
struct Seen {
    /// Name of the Work in its annotations, if that is one of this member's.
    work: Option<String>,
    /// Whether that Work wants it.
    wanted: bool,
    /// Key that its Work has for it.
    key: Option<ObjectKey>,
    /// Digest of its desired state, if it is as desired.
    as_desired: Option<u64>,
    /// Time after which another look may find more.
    again: Option<Duration>,
    /// Question to a webhook that is not answered yet.
    pending: Option<Pending>,
    /// The object, if there is such a question.
    object: Option<Value>,
}

impl Seen {
    /// Keeps the object, if it has to be looked at again.
    fn of(mut self, object: Value) -> Self {
        self.object = self.pending.is_some().then_some(object);
        self
    }

    /// Has the object wait for the answer, if there is a question. Returns the time after which a
    /// list has to show it again.
    fn wait(&mut self, place: &ObjectKey, waiting: &mut Waiting) -> Option<Duration> {
        let Some((object, pending)) = self.object.take().zip(self.pending.take()) else {
            waiting.forget(place);
            return self.again;
        };
        waiting.keep(place, &object, pending);
        self.again
    }
}

#[cfg(test)]
mod tests;
