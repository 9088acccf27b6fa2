//! Follows the objects of one kind in the member.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_shared::k8s::{Api, ApiResource, GroupVersionKind};
use muster_shared::names::label;
use muster_shared::watch::{self, Event, Refused, Selection, Trouble};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::compare::Seen;
use super::index::Index;
use super::kinds::Watches;
use super::opened::{Opened, Watched};
use super::relist::Relist;
use super::waiting::Waiting;
use crate::work::desired::ObjectKey;
use crate::work::member::Raw;

/// Objects per page of a list: whole objects, of which a page is in memory at a time.
const PAGE: u32 = 100;
/// Interval at which objects are counted whose Work is gone.
const COUNT_ORPHANS: Duration = Duration::from_mins(1);
/// Time after which a list shows the objects again of which one could not be compared, and time
/// between two lists for objects that found no room while a webhook was asked about them.
pub(super) const LIST_AGAIN: Duration = Duration::from_secs(30);

/// Objects that are as desired, with the digests of their desired states.
type AsDesired = HashMap<ObjectKey, u64>;

/// The watch of one kind.
pub(super) struct Stream {
    pub(super) on: Arc<Watches>,
    pub(super) watched: Watched,
    resource: ApiResource,
    pub(super) index: Index,
    /// Objects of the list that is arriving.
    listed: Option<(Index, AsDesired)>,
    /// The Work that was opened last.
    pub(super) opened: Option<Opened>,
    pub(super) waiting: Waiting,
    pub(super) relist: Relist,
    trouble: Arc<Trouble>,
    /// Whether the agent may not see the objects any more.
    is_hidden: bool,
    /// Whether objects may have been lost that this watch never saw.
    is_behind: bool,
}

impl Stream {
    /// Makes the watch of a kind. `is_behind` says whether it replaces one that broke.
    pub(super) fn new(
        on: &Arc<Watches>,
        watched: Watched,
        resource: ApiResource,
        is_behind: bool,
    ) -> Self {
        let (interpreters, readable) = (&on.store.interpreters, on.readable.subscribe());
        Self {
            on: Arc::clone(on),
            resource,
            index: Index::default(),
            listed: None,
            opened: None,
            waiting: Waiting::new(on.waiting.clone()),
            relist: Relist::new(interpreters, &watched.kind, readable),
            trouble: Arc::default(),
            is_hidden: false,
            is_behind,
            watched,
        }
    }

    /// Follows the objects until `stop`, or until the member says that it serves the kind no more,
    /// as another resource, or in another scope.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let api: Api<Raw> = Api::all_with(self.on.member.clone(), &self.resource);
        let selection = Selection::everything()
            .labels(format!("{}=true", label::MANAGED))
            .page_size(PAGE);
        let trouble = Arc::clone(&self.trouble);
        let follow = || watch::explained_events(&api, selection.clone(), Arc::clone(&trouble));
        let mut events = Box::pin(follow());
        let mut count = tokio::time::interval(COUNT_ORPHANS);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                // A list that has begun comes to its end, however long it takes.
                () = self.relist.due(), if self.listed.is_none() => events = Box::pin(follow()),
                _ = count.tick() => {
                    let goes_on = stop.run_until_cancelled(self.take_stock()).await;
                    if goes_on != Some(true) {
                        break;
                    }
                }
                (place, object) = self.waiting.answered() => self.interpret_again(&place, object).await,
                Some(event) = events.next() => self.follow(event).await,
            }
        }
        gauge_orphans(&self.watched, 0);
    }

    /// Interprets again an object about which a webhook has answered, or has a list show it if
    /// there was no room for it.
    pub(super) async fn interpret_again(&mut self, place: &ObjectKey, object: Option<Value>) {
        match object {
            Some(object) => _ = self.see(place, (object, None)).await,
            None => self.relist.soon(LIST_AGAIN),
        }
    }

    pub(super) async fn follow(&mut self, event: Event<Raw>) {
        match event {
            Event::Init => self.listed = Some((Index::default(), AsDesired::new())),
            Event::InitApply(raw) => {
                let place = self.watched.place(&raw);
                let seen = self.see(&place, (raw.object, raw.unreadable)).await;
                if let Some((present, as_desired)) = &mut self.listed {
                    note(as_desired, &place, &seen);
                    present.note(place, seen.work, seen.wanted);
                }
            }
            Event::InitDone => {
                self.opened = None;
                let (present, as_desired) = self.listed.take().unwrap_or_default();
                self.on.store.listed(&self.watched.kind, as_desired);
                let before = std::mem::replace(&mut self.index, present);
                for (place, works) in self.index.succeed(before) {
                    self.waiting.forget(&place);
                    for work in works {
                        self.lose(&place, &work, true).await;
                    }
                }
                self.apply_unshown();
                // The watch before it may have known of objects that are gone.
                if std::mem::take(&mut self.is_behind) {
                    self.on.apply_all(&self.watched.kind);
                }
                self.count_orphans();
            }
            Event::Apply(raw) => {
                let place = self.watched.place(&raw);
                let seen = self.see(&place, (raw.object, raw.unreadable)).await;
                if !seen.wanted
                    && let Some(work) = self.index.work(&place).map(str::to_owned)
                {
                    self.lose(&place, &work, false).await;
                }
                if seen.wanted || self.index.work(&place).is_none() {
                    self.index.note(place, seen.work, seen.wanted);
                }
            }
            Event::Delete(raw) => {
                let place = self.watched.place(&raw);
                self.waiting.forget(&place);
                let mut works = self.index.remove(&place);
                // The list that is arriving may have shown it.
                if let Some((present, as_desired)) = &mut self.listed {
                    forget(as_desired, &place);
                    for work in present.remove(&place) {
                        if !works.contains(&work) {
                            works.push(work);
                        }
                    }
                }
                for work in works {
                    let lost = self.lose(&place, &work, true).await;
                    if let Some((key, (_, as_desired))) = lost.zip(self.listed.as_mut()) {
                        as_desired.remove(&key);
                    }
                }
            }
        }
    }

    /// Has Works applied whose objects were applied after the list before and went before this one:
    /// no watch has ever shown them.
    fn apply_unshown(&self) {
        let store = &self.on.store;
        let is_shown = |key: &ObjectKey| self.index.shows(key);
        for (work, key) in store.statuses.unshown(&self.watched.kind, is_shown) {
            store.drift.doubt(&key);
            store.waits.to_apply.add(work);
        }
    }

    /// Counts what belongs to no Work, and reports objects that may not be seen any more. Returns
    /// whether the member still serves the resource that is followed, in the scope that it had.
    async fn take_stock(&mut self) -> bool {
        // A large Work is not held for longer than its objects change.
        self.opened = None;
        let works = &self.on.store.works;
        if works.cache.is_synced() {
            self.index
                .retain_former(|work| works.cached(work).is_some());
        }
        self.count_orphans();
        let served = if self.trouble.is_unserved() {
            served(&self.on, &self.watched.kind, &self.resource).await
        } else {
            Some(self.resource.clone())
        };
        let is_refused = || {
            let latest = self.trouble.words().and_then(|_| self.trouble.latest());
            latest.is_some_and(|it| hides(&self.watched.kind, &it))
        };
        let is_hidden = served.is_none() || is_refused();
        if is_hidden && !self.is_hidden {
            self.lose_sight().await;
        }
        self.is_hidden = is_hidden;
        // A definition that is made again with another scope serves the same paths.
        let known = self.on.discovery.catalog().resolve(&self.watched.kind);
        let is_same = known.is_none_or(|it| it.namespaced == self.watched.namespaced);
        is_same && served.is_some_and(|it| it == self.resource)
    }

    /// Counts the objects that name a missing Work, and so are neither updated nor removed.
    fn count_orphans(&self) {
        let works = &self.on.store.works;
        if !works.cache.is_synced() {
            return;
        }
        let orphans = self.index.all();
        let mut orphans = orphans.filter(|(_, work)| works.cached(work).is_none());
        let first = orphans.next();
        let count = orphans.count() + usize::from(first.is_some());
        if let Some((object, work)) = first {
            tracing::debug!(%object, work, count, "objects name a Work that is not there");
        }
        gauge_orphans(&self.watched, count);
    }
}

/// Returns the resource as which the member serves a kind, `None` if it does not serve it; the
/// resource of the watch as long as discovery does not say so. A refused watch is no proof: a proxy
/// that knows no way to the member answers it as an API does that serves no such kind.
async fn served(on: &Watches, kind: &GroupVersionKind, of: &ApiResource) -> Option<ApiResource> {
    match on.discovery.refresh().await {
        Ok(catalog) if !catalog.is_unread(&kind.api_version()) => {
            catalog.resolve(kind).map(|place| place.resource)
        }
        Ok(_) | Err(_) => Some(of.clone()),
    }
}

/// Returns whether an error means that the objects of a kind cannot be seen although the member's
/// API is reached: the agent may not, or the webhook fails that converts a custom resource to the
/// version that is asked for.
pub(super) fn hides(kind: &GroupVersionKind, error: &Refused) -> bool {
    match error.code {
        Some(403) => true,
        Some(500) => kind.group.contains('.'),
        _ => false,
    }
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
    for key in &place.spellings() {
        as_desired.remove(key);
    }
}

#[allow(clippy::cast_precision_loss)] // a gauge
fn gauge_orphans(watched: &Watched, count: usize) {
    metrics::gauge!("muster_orphaned_objects", "kind" => watched.kind.kind.clone())
        .set(count as f64);
}
