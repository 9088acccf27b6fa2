//! Finds and stops fenced objects in the member, by their labels: Works cannot be read while the
//! member is cut off.

use std::collections::{HashMap, HashSet};

use futures::stream::{self, Stream, StreamExt};
use muster_shared::events::Events;
use muster_shared::fencing::Orders;
use muster_shared::fleet_id::{FleetId, Owner};
use muster_shared::k8s::{Api, Client, GroupVersionKind};
use muster_shared::names::{annotation, label};
use muster_shared::watch::Selection;
use muster_shared::watch::pages::{self, Pages};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Duration;

use super::fenced::Fenced;
use super::step::{self, Outcome, Step, Subject};
use crate::discovery::Discovery;
use crate::discovery::catalog::Place;
use crate::work::dependents::{self, Action};
use crate::work::ownership;
use crate::work::partial::Dependent;
use crate::work::raw::{Raw, text};

/// Deadline for one request that writes; of a list, for its head and for each object.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Objects stopped at the same time.
const PARALLEL: usize = 16;
/// Fenced objects in a page at most. Of each may be kept up to 768 KiB of orders, fields and
/// status, if somebody writes orders as long as annotations may be; the first page has fewer
/// objects.
const PAGE: u32 = 50;
/// Pages of dependents read at the same time. Their namespaces may be full of large objects.
const READERS: usize = 4;

/// Objects of the member.
pub struct Objects {
    /// Client for all of it.
    pub client: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
    /// Objects that the first page of a kind is asked for: fewer after a page that failed.
    limits: Mutex<HashMap<GroupVersionKind, u32>>,
    /// Permits to read a page of dependents.
    readers: Semaphore,
}

/// Result of one round over the objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Objects that are due and stopped.
    pub stopped: usize,
    /// Objects that are due and could not be stopped.
    pub failed: usize,
    /// Objects that were stopped in this round.
    pub changed: usize,
    /// Shortest time of the objects that are not due.
    pub next: Option<Duration>,
    /// Reason why some objects were not examined.
    pub trouble: Option<String>,
}

impl Round {
    /// Adds the result for another kind.
    pub fn add(&mut self, other: Self) {
        self.stopped += other.stopped;
        self.failed += other.failed;
        self.changed += other.changed;
        self.next = self.next.into_iter().chain(other.next).min();
        self.trouble = self.trouble.take().or(other.trouble);
    }
}

/// Element of a list of fenced objects, or its end by an error.
enum Listed {
    /// A fenced object.
    Object(Fenced),
    /// A fenced object that cannot be read, and why.
    Unreadable(String, String),
    /// The rest of the list cannot be read.
    Trouble(String),
}

impl Objects {
    /// Makes it; nothing is sent.
    pub fn new(client: Client, discovery: Discovery) -> Self {
        Self {
            client,
            discovery,
            limits: Mutex::default(),
            readers: Semaphore::new(READERS),
        }
    }

    /// Stops the objects of a kind that are due, each as soon as it was read: what cannot be read,
    /// or takes long, keeps no other object waiting.
    pub async fn stop(
        &self,
        kind: &GroupVersionKind,
        is_due: &(impl Fn(Duration) -> bool + Sync),
        fleet: &FleetId,
        events: &Events,
    ) -> Round {
        let mut round = Round::default();
        let (kind, place) = match self.place(kind).await {
            Ok(Some(found)) => found,
            Ok(None) => return round,
            Err(error) => {
                round.trouble = Some(error);
                return round;
            }
        };
        let (kind, place) = (&kind, &place);
        let (mut seen, mut unreadable) = (HashSet::new(), Vec::new());
        let due = self.fenced(kind, place).filter_map(|listed| {
            let due = match listed {
                Listed::Object(it) if fleet.owner(ownership::fleet(&it.head)) == Owner::Other => {
                    None
                }
                // The orders are those of its owner.
                Listed::Object(it) if ownership::has_copied_marks(&kind.kind, &it.head) => None,
                // An object may come twice.
                Listed::Object(it) if !seen.insert(text(&it.head, "uid").map(str::to_owned)) => {
                    None
                }
                Listed::Object(fenced) => match Orders::of(&fenced.head).map(|it| it.after()) {
                    Some(after) if is_due(after) => Some(fenced),
                    Some(after) => {
                        round.next = round.next.into_iter().chain([after]).min();
                        None
                    }
                    None => {
                        let name = text(&fenced.head, "name").unwrap_or_default();
                        let annotation = annotation::FENCING;
                        unreadable.push((name.to_owned(), format!("annotation {annotation}")));
                        None
                    }
                },
                Listed::Unreadable(name, error) => {
                    unreadable.push((name, error));
                    None
                }
                Listed::Trouble(error) => {
                    round.trouble = Some(error);
                    None
                }
            };
            std::future::ready(due)
        });
        let outcomes = due
            .map(|fenced| self.stop_one(kind, place, fenced, events))
            .buffer_unordered(PARALLEL);
        let outcomes: Vec<_> = outcomes.collect().await;
        let count = |outcome| outcomes.iter().filter(|it| **it == outcome).count();
        round.failed = count(Outcome::Failed);
        round.changed = count(Outcome::Now);
        round.stopped = outcomes.len() - round.failed;
        if let Some((name, error)) = unreadable.first() {
            tracing::error!(
                kind = kind.kind,
                object = name,
                error,
                objects = unreadable.len(),
                "fenced objects cannot be read, so that they are not stopped and may run twice"
            );
        }
        round
    }

    /// Returns the fenced objects of a kind, page by page.
    fn fenced(&self, kind: &GroupVersionKind, place: &Place) -> impl Stream<Item = Listed> {
        let all: Api<Raw> = Api::all_with(self.client.clone(), &place.resource);
        let selection = fenced().page_size(PAGE);
        let limits = || self.limits.lock();
        let limit = limits().get(kind).copied().unwrap_or(PAGE);
        let pages = Pages::<Fenced>::of(&all, selection, DEADLINE).beginning_with(limit);
        let kind = kind.clone();
        let listed = stream::unfold(Some(pages), move |pages| {
            let kind = kind.clone();
            async move {
                let mut pages = pages?;
                let page = pages.next(|_| true).await;
                limits().insert(kind, pages.limit());
                match page {
                    Ok(page) => {
                        let page = page?;
                        let objects = page.objects.into_iter().map(Listed::Object);
                        let unreadable = page.unreadable.into_iter();
                        let unreadable = unreadable.map(|it| Listed::Unreadable(it.name, it.error));
                        Some((objects.chain(unreadable).collect(), Some(pages)))
                    }
                    Err(error) => Some((vec![Listed::Trouble(error.to_string())], None)),
                }
            }
        });
        listed.flat_map(stream::iter)
    }

    /// Stops an object that is due, and what it has made.
    async fn stop_one(
        &self,
        kind: &GroupVersionKind,
        place: &Place,
        fenced: Fenced,
        events: &Events,
    ) -> Outcome {
        let api = self.api_of(place, text(&fenced.head, "namespace"));
        let subject = Subject::of(kind, &fenced);
        let is_marked = dependents::has_stopped(&fenced.head);
        let step = Step::of(&api, kind, &fenced);
        // A write may take a while, and what it needs is in the step.
        drop(fenced);
        let may_have_dependents = match &step {
            Step::None { is_stopped } => *is_stopped && is_marked,
            Step::Stop(_) => true,
            Step::Delete(_) => false,
        };
        let outcome = step::take(&api, step, &subject, events).await;
        if outcome == Outcome::Failed || !may_have_dependents {
            return outcome;
        }
        match self.stop_dependents(kind, &subject).await {
            Ok(0) => outcome,
            Ok(_) => Outcome::Now,
            Err(error) => {
                step::report_failure(events, &subject, &error);
                Outcome::Failed
            }
        }
    }

    /// Returns whether the member has fenced objects of a kind.
    pub async fn has_fenced(&self, kind: &GroupVersionKind) -> Result<bool, String> {
        let Some((_, place)) = self.place(kind).await? else {
            return Ok(false);
        };
        let all: Api<Raw> = Api::all_with(self.client.clone(), &place.resource);
        // From the server's cache: the kinds are searched that may have most objects.
        let found = pages::has_any(&all, fenced(), DEADLINE).await;
        found.map_err(|error| error.to_string())
    }

    /// Stops what an object that is stopped has made. Returns how much of it was running.
    ///
    /// # Errors
    /// The first thing that could not be read or stopped, after all others were stopped.
    async fn stop_dependents(
        &self,
        kind: &GroupVersionKind,
        owner: &Subject,
    ) -> Result<usize, String> {
        let Some(kind) = dependents::of(kind) else {
            return Ok(0);
        };
        let Some((kind, place)) = self.place(&kind).await? else {
            return Ok(0);
        };
        let api = self.api_of(&place, owner.about.namespace.as_deref());
        let owner = &json!({ "metadata": { "uid": owner.uid } });
        let mut pages = Pages::<Dependent>::of(&api, Selection::default(), DEADLINE);
        let (mut running, mut trouble) = (0, None);
        let runs_on = |Dependent(object): &Dependent| {
            dependents::is_of(object, owner) && dependents::action(object, &kind).is_some()
        };
        loop {
            let page = {
                let _permit = self.readers.acquire().await;
                pages.next(runs_on).await.map_err(|error| error.to_string())
            };
            let Some(page) = page? else {
                break;
            };
            if let Some(unreadable) = page.unreadable.first() {
                trouble.get_or_insert_with(|| {
                    let (name, error) = (&unreadable.name, &unreadable.error);
                    format!("{} {name} cannot be read: {error}", kind.kind)
                });
            }
            for Dependent(object) in &page.objects {
                let Some(action) = dependents::action(object, &kind) else {
                    continue;
                };
                running += 1;
                let name = text(object, "name").unwrap_or_default();
                let request = match action {
                    Action::Patch(patch) => step::merge(&api, object, patch),
                    Action::Delete => step::delete(&api, object),
                };
                if let Err(error) = step::send(&api, request).await {
                    trouble.get_or_insert_with(|| format!("{} {name}: {error}", kind.kind));
                    continue;
                }
                tracing::warn!(kind = kind.kind, object = name, "stopped with its owner");
            }
        }
        trouble.map_or(Ok(running), Err)
    }

    async fn place(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Option<(GroupVersionKind, Place)>, String> {
        let version = self.discovery.version_of(kind).await;
        let Some(version) = version.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let kind = GroupVersionKind::gvk(&kind.group, &version, &kind.kind);
        let place = self.discovery.resolve(&kind).await;
        let place = place.map_err(|error| error.to_string())?;
        Ok(place.map(|place| (kind, place)))
    }

    fn api_of(&self, place: &Place, namespace: Option<&str>) -> Api<Raw> {
        match namespace.filter(|_| place.namespaced) {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &place.resource)
            }
            None => Api::all_with(self.client.clone(), &place.resource),
        }
    }
}

/// Returns the selection of the objects that have orders. One that was released to the member, or
/// is a copy that somebody made there, is not the fleet's to stop.
fn fenced() -> Selection {
    Selection::default().labels(format!("{},{}=true", label::FENCED, label::MANAGED))
}

#[cfg(test)]
mod tests;
