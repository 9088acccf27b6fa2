//! State machine that lists and watches a collection, with fallbacks and back-off.

mod fruitless;
mod paging;
mod recovery;
mod streaming;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::runtime::watcher::Event;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::fruitless::{Fruitless, is_in_the_way};
pub(super) use self::paging::{FIRST_LIMIT, next_limit};
use self::recovery::{FIRST_PAUSE, REFUSED_PATIENCE};
use self::streaming::Streaming;
use super::incoming::Incoming;
use super::listing::Listing;
use super::source::{Extent, Source, WatchError};
use super::trouble::Trouble;
use super::wire::compact::Decode;
use super::wire::{Line, Rejected};
use super::{Followed, IDLE_GRACE, Selection, WATCH_TIMEOUT};
use crate::clock::calendar;
use crate::queue::wait_until;
use crate::remind::Reminder;
use crate::watch::freshness::Freshness;

/// A watch that ends earlier than this and says nothing is one that somebody on the way does not
/// let through.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Time in which a watch that was opened in the place of another one reports what that has not
/// reported, before everything is listed on request: no list says what was deleted.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Time that a server has to send its version after it was away. The events of the watch that is
/// open again wait for it.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// State of the follower.
enum State<K> {
    /// Nothing is known: list it.
    Unlisted,
    /// In the middle of a list, or of a page of one.
    Listing {
        extent: Extent,
        listing: Listing<K>,
        objects: u32,
    },
    /// In the middle of a streaming list. Servers mix changes and deletions into it.
    Streaming { lines: Incoming<K> },
    /// Listed, and up to date as of a version: open a watch there.
    Listed { resource_version: String },
    /// Watching, and up to date as of a version.
    Watching {
        resource_version: String,
        lines: Incoming<K>,
    },
}

/// Event of a follower.
pub(super) enum FollowerEvent<K> {
    Event(Event<K>),
    /// An object exists and does not decode: a cache keeps the last object that it has of it.
    Unreadable(Rejected),
    /// A list that only confirms another broke off, and the watch goes on without it.
    BrokenOff,
}

pub(super) struct Follower<K> {
    source: Source<K>,
    kind: String,
    state: State<K>,
    ready: VecDeque<FollowerEvent<K>>,
    streaming: Streaming,
    /// Objects that the next page is asked for.
    limit: u32,
    /// Lists in one answer that broke off, one after the other.
    broken: u32,
    /// Streaming lists that broke off, one after the other.
    broken_streams: u32,
    fruitless: Fruitless,
    /// Time at which the watch was opened; `None` once it has sent a line.
    silent_since: Option<Instant>,
    /// For how long the watch was asked for.
    lasts: Duration,
    pause: Duration,
    reminder: Reminder,
    trouble: Arc<Trouble>,
    touch: Option<Arc<Freshness>>,
    /// Time at which everything is to be listed again although the watch goes on.
    again_at: Option<Instant>,
    /// Notified by whoever wants everything listed again at once.
    asked: Arc<Notify>,
    /// The version up to which all is known, while such a list is asked for.
    known: Option<String>,
    /// Whether the server was away, or a watch broke, and the server has not sent its version
    /// since: it may be back with an older store.
    was_away: bool,
}

impl<K: Followed> Follower<K> {
    pub(super) fn new(api: &Api<K>, selection: Selection) -> Self {
        Self::reading(api, selection, None)
    }

    /// Makes a follower that reads objects from protobuf where the server writes it.
    pub(super) fn compact(api: &Api<K>, selection: Selection, decode: Decode<K>) -> Self {
        Self::reading(api, selection, Some(decode))
    }

    fn reading(api: &Api<K>, selection: Selection, decode: Option<Decode<K>>) -> Self {
        let kind = api.resource_url().rsplit('/').next().unwrap_or_default();
        Self {
            kind: kind.to_owned(),
            source: Source::new(api, selection, decode),
            state: State::Unlisted,
            ready: VecDeque::new(),
            streaming: Streaming::Asked,
            limit: FIRST_LIMIT,
            broken: 0,
            broken_streams: 0,
            fruitless: Fruitless::new(WATCH_TIMEOUT),
            lasts: WATCH_TIMEOUT,
            silent_since: None,
            pause: FIRST_PAUSE,
            reminder: Reminder::after(REFUSED_PATIENCE),
            trouble: Arc::default(),
            touch: None,
            again_at: None,
            asked: Arc::default(),
            known: None,
            was_away: false,
        }
    }

    /// Records also whether it is in touch with the server.
    pub(super) fn recording(mut self, touch: Arc<Freshness>) -> Self {
        self.touch = Some(touch);
        self
    }

    /// Records also why it cannot follow, while it cannot.
    pub(super) fn explaining(mut self, trouble: Arc<Trouble>) -> Self {
        self.trouble = trouble;
        self
    }

    /// Opens another watch and lists everything again also when it is asked to, as soon as the
    /// watch has nothing to send.
    pub(super) fn asked_by(mut self, asked: Arc<Notify>) -> Self {
        self.asked = asked;
        self
    }

    /// Has everything listed again at an instant, or as soon after it as a watch has nothing to
    /// send; for `None` only where it must be.
    pub(super) fn list_again_at(&mut self, at: Option<Instant>) {
        self.again_at = at;
    }

    /// Waits for the next event, as long as it takes, and returns it.
    pub(super) async fn next(&mut self) -> FollowerEvent<K> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let state = std::mem::replace(&mut self.state, State::Unlisted);
            match self.step(state).await {
                Ok(next) => {
                    if matches!(next, State::Listed { .. } | State::Watching { .. }) {
                        self.known = None;
                        self.is_current();
                    }
                    self.state = next;
                }
                Err((next, stumble)) => {
                    // The watch goes on at once where the API refuses a list that only confirms
                    // another: that list can wait.
                    if let (State::Unlisted, Some(resource_version)) = (&next, self.known.take()) {
                        tracing::debug!(resource = self.kind, error = %stumble, "not confirmed");
                        self.state = State::Listed { resource_version };
                        self.ready.push_back(FollowerEvent::BrokenOff);
                        continue;
                    }
                    self.state = next;
                    self.stumbled(&stumble).await;
                }
            }
        }
    }

    /// Makes one request, or reads one line of an open watch. On failure it says where to go on.
    async fn step(&mut self, state: State<K>) -> Result<State<K>, (State<K>, WatchError)> {
        match state {
            State::Unlisted if self.streaming.is_worth_asking(Instant::now()) => {
                self.stream_all().await
            }
            State::Unlisted => self.list_all().await,
            State::Listing {
                extent,
                listing,
                objects,
            } => self.list(extent, listing, objects).await,
            State::Streaming { lines } => self.stream(lines).await,
            State::Listed { resource_version }
                if self.again_at.is_some_and(|at| at <= Instant::now()) =>
            {
                Ok(self.list_again(resource_version))
            }
            State::Listed { resource_version } => self.open_watch(resource_version).await,
            State::Watching {
                resource_version,
                lines,
            } => self.watch(resource_version, lines).await,
        }
    }

    /// Opens a watch at a version, unless everything is to be listed before it is answered.
    async fn open_watch(
        &mut self,
        resource_version: String,
    ) -> Result<State<K>, (State<K>, WatchError)> {
        self.lasts = self.fruitless.next();
        let (again_at, asked) = (self.again_at, Arc::clone(&self.asked));
        let watch = tokio::select! {
            watch = self.source.watch(Some(&resource_version), self.lasts) => watch,
            () = wait_until(again_at) => return Ok(self.list_again(resource_version)),
            () = asked.notified() => return Ok(self.list_again(resource_version)),
        };
        if watch.is_ok() && self.was_away && self.has_older_store(&resource_version).await {
            tracing::warn!(
                resource = self.kind,
                "the server is back with an older store: everything is listed anew"
            );
            return Ok(State::Unlisted);
        }
        match watch {
            Ok(lines) => {
                self.silent_since = Some(Instant::now());
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Err(stumble) if stumble.code() == Some(410) => Err((State::Unlisted, stumble)),
            Err(stumble) => {
                self.was_away |= stumble.code().is_none_or(|code| code >= 500);
                Err((self.after_refusal(resource_version, &stumble), stumble))
            }
        }
    }

    /// Returns whether the version of the server is before the known one, as after a backup was
    /// restored: a watch would send nothing until the server has caught up. Versions that are not
    /// numbers are not compared. A server whose versions have no order is listed once too often.
    async fn has_older_store(&mut self, known: &str) -> bool {
        let Ok(Ok(version)) = timeout(VERSION_DEADLINE, self.source.version()).await else {
            // The next watch asks again.
            return false;
        };
        self.was_away = false;
        let number = |version: &str| version.parse::<u64>().ok();
        let now = version.as_deref().and_then(number);
        now.zip(number(known))
            .is_some_and(|(now, known)| now < known)
    }

    fn list_again(&mut self, known: String) -> State<K> {
        self.again_at = None;
        self.known = Some(known);
        State::Unlisted
    }

    async fn watch(
        &mut self,
        resource_version: String,
        mut lines: Incoming<K>,
    ) -> Result<State<K>, (State<K>, WatchError)> {
        let silence = self.lasts + IDLE_GRACE;
        let (again_at, asked) = (self.again_at, Arc::clone(&self.asked));
        let line = tokio::select! {
            biased;
            line = lines.next(silence) => line,
            () = wait_until(again_at) => return Ok(self.list_again(resource_version)),
            () = asked.notified() => {
                self.again_at = Some(Instant::now() + CATCH_UP);
                return self.open_watch(resource_version).await;
            }
        };
        let silent_for = self.silent_since.map(|since| since.elapsed());
        if matches!(&line, Ok(Some(line)) if !matches!(line, Line::Error { .. })) {
            self.silent_since = None;
            self.fruitless.received();
        }
        match line {
            Ok(None) if silent_for.is_some_and(|silent| silent < SHORT_WATCH) => {
                let stumble = WatchError::Broken(std::io::ErrorKind::UnexpectedEof.into());
                Err((self.after_break(resource_version, silent_for), stumble))
            }
            Ok(Some(Line::Object { object, is_deleted })) => {
                let resource_version = object.meta().resource_version.clone().unwrap_or_default();
                self.notify(if is_deleted {
                    Event::Delete(object)
                } else {
                    Event::Apply(object)
                });
                self.pause = FIRST_PAUSE;
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Ok(Some(Line::Bookmark {
                resource_version, ..
            })) => {
                self.pause = FIRST_PAUSE;
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Ok(Some(Line::Rejected(rejected))) => {
                let seen = rejected
                    .resource_version
                    .clone()
                    .unwrap_or(resource_version);
                self.report(rejected);
                Ok(State::Watching {
                    resource_version: seen,
                    lines,
                })
            }
            // Where the history is shorter than a list takes this comes after every list, so it is
            // a reason to pause.
            Ok(Some(Line::Error { code: 410, message })) => {
                let stumble = WatchError::Ended { code: 410, message };
                Err((State::Unlisted, stumble))
            }
            Ok(Some(Line::Error { code, message })) => {
                let stumble = WatchError::Ended { code, message };
                Err((self.after_refusal(resource_version, &stumble), stumble))
            }
            // The agreed timeout: the normal end of a watch.
            Ok(None) => {
                self.fruitless.ended();
                Ok(State::Listed { resource_version })
            }
            Err(stumble) => {
                // A machine that is put back to a snapshot is away for too short a time to refuse
                // anything.
                self.was_away = true;
                Err((self.after_break(resource_version, silent_for), stumble))
            }
        }
    }

    /// Returns where to go on when a watch was refused, or ended in an error.
    fn after_refusal(&mut self, resource_version: String, stumble: &WatchError) -> State<K> {
        if is_in_the_way(stumble) {
            self.after_break(resource_version, Some(Duration::ZERO))
        } else {
            State::Listed { resource_version }
        }
    }

    /// Returns where to go on when a watch broke, which had said nothing for that long.
    fn after_break(&mut self, resource_version: String, silent_for: Option<Duration>) -> State<K> {
        if let Some(silent) = silent_for {
            self.fruitless.broke(silent, Instant::now());
            if self.fruitless.is_list_due() {
                return State::Unlisted;
            }
        }
        State::Listed { resource_version }
    }

    /// Notes that what was sent so far is up to date.
    fn is_current(&mut self) {
        if let Some(touch) = &self.touch {
            touch.observe(calendar());
        }
        self.trouble.over();
        if let Some(lasted) = self.reminder.over(Instant::now()) {
            tracing::info!(resource = self.kind, ?lasted, "followed again");
        }
    }

    fn notify(&mut self, event: Event<K>) {
        self.ready.push_back(FollowerEvent::Event(event));
    }

    fn report(&mut self, rejected: Rejected) {
        self.count(&rejected);
        self.ready.push_back(FollowerEvent::Unreadable(rejected));
    }

    fn count(&self, rejected: &Rejected) {
        metrics::counter!("muster_watch_rejected_objects_total", "resource" => self.kind.clone())
            .increment(1);
        tracing::warn!(
            resource = self.kind,
            namespace = rejected.namespace,
            name = rejected.name,
            error = rejected.error,
            "stepped over an object that does not decode"
        );
    }
}

#[cfg(test)]
mod tests;
