//! State machine that lists and watches a collection, with fallbacks and back-off.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::incoming::Incoming;
use super::listing::{Listing, Part};
use super::source::{ANSWER_DEADLINE, Extent, Source, Stumble};
use super::touch::Touch;
use super::trouble::Trouble;
use super::wire::compact::Decode;
use super::wire::{Line, Rejected};
use super::{Followed, IDLE_GRACE, Selection};
use crate::clock::calendar;
use crate::remind::Reminder;

/// After this time a server is asked again for a streaming list that it could not give.
const STREAMING_RETRY: Duration = Duration::from_hours(1);
/// Words by which a server says that it cannot stream lists for want of its storage (Kubernetes
/// 1.31 and later over etcd before 3.4.31 or 3.5.13).
const STORAGE_WORDS: [&str; 2] = ["RequestWatchProgress", "required storage feature"];
/// Objects that the first page is asked for, while it is unknown how large they are: at most 30 MB,
/// as etcd stores them.
const FIRST_LIMIT: u32 = 20;
/// Bytes that a page is to have about, so that it is answered within a second or two.
const PAGE_BYTES: u64 = 4 << 20;
/// How often everything is asked for in one answer before it is asked for in pages.
const WHOLE_ATTEMPTS: u32 = 2;
/// How long a refusal lasts, and how long an API that cannot be reached is away, before that is
/// told. Both happen for a moment whenever a server starts.
const REFUSED_PATIENCE: Duration = Duration::from_secs(5);
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(30);
/// How often a streaming list breaks off before everything is listed in another way: a proxy may
/// end every answer after a time that is too short for a long list in one.
const STREAM_ATTEMPTS: u32 = 2;
/// A watch that ends earlier than this and says nothing is one that somebody on the way does not
/// let through.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// How long a streaming list may be silent before the server counts as one that does not stream
/// lists.
const STREAM_SILENCE: Duration = Duration::from_secs(20);
/// First and longest pause after an error; doubled each time, as client-go's reflector does (800 ms
/// … 30 s).
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest time for which a server can make us wait. It asks for a second or a few; a proxy may
/// ask for anything.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Where we are with the collection.
enum State<K> {
    /// Nothing is known: list it.
    Unlisted,
    /// In the middle of a list, or of a page of one.
    Listing {
        extent: Extent,
        listing: Listing<K>,
        objects: u32,
    },
    /// In the middle of a streaming list. Servers mix changes into it: from the first deletion on
    /// they are kept until the list is told, because a deletion means nothing before that.
    Streaming {
        lines: Incoming<K>,
        late: Vec<News<K>>,
    },
    /// Listed, and up to date as of a version: open a watch there.
    Listed { resource_version: String },
    /// Watching, and up to date as of a version.
    Watching {
        resource_version: String,
        lines: Incoming<K>,
    },
}

/// What a follower tells.
pub(super) enum News<K> {
    Event(Event<K>),
    /// An object exists and does not decode: whoever keeps a cache keeps what it last knew of it.
    Unreadable(Rejected),
}

pub(super) struct Follower<K> {
    source: Source<K>,
    kind: String,
    state: State<K>,
    ready: VecDeque<News<K>>,
    streaming: Streaming,
    /// Objects that the next page is asked for.
    limit: u32,
    /// Lists in one answer that broke off, one after the other.
    broken: u32,
    /// Streaming lists that broke off, one after the other.
    broken_streams: u32,
    /// When the watch was opened; `None` once it has said something.
    silent_since: Option<Instant>,
    pause: Duration,
    reminder: Reminder,
    trouble: Arc<Trouble>,
    touch: Option<Arc<Touch>>,
}

impl<K: Followed> Follower<K> {
    pub(super) fn new(api: &Api<K>, selection: Selection) -> Self {
        Self::reading(api, selection, None)
    }

    /// One that reads objects from protobuf where the server writes it.
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
            silent_since: None,
            pause: FIRST_PAUSE,
            reminder: Reminder::after(REFUSED_PATIENCE),
            trouble: Arc::default(),
            touch: None,
        }
    }

    /// Tells also whether it is in touch with the server.
    pub(super) fn telling(mut self, touch: Arc<Touch>) -> Self {
        self.touch = Some(touch);
        self
    }

    /// Tells also why it cannot follow, while it cannot.
    pub(super) fn explaining(mut self, trouble: Arc<Trouble>) -> Self {
        self.trouble = trouble;
        self
    }

    /// The next piece of news; waits as long as it takes.
    pub(super) async fn next(&mut self) -> News<K> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                return news;
            }
            let state = std::mem::replace(&mut self.state, State::Unlisted);
            match self.step(state).await {
                Ok(next) => {
                    if matches!(next, State::Listed { .. } | State::Watching { .. }) {
                        self.is_current();
                    }
                    self.state = next;
                }
                Err((next, stumble)) => {
                    self.state = next;
                    self.stumbled(&stumble).await;
                }
            }
        }
    }

    /// One request, or one line of an open watch. On failure it says where to go on.
    async fn step(&mut self, state: State<K>) -> Result<State<K>, (State<K>, Stumble)> {
        match state {
            State::Unlisted if self.streaming.is_worth_asking(Instant::now()) => {
                match self.source.watch(None).await {
                    Ok(lines) => {
                        self.tell(Event::Init);
                        let late = Vec::new();
                        Ok(State::Streaming { lines, late })
                    }
                    Err(stumble) => {
                        self.stop_streaming_if_refused(&stumble);
                        Err((State::Unlisted, stumble))
                    }
                }
            }
            State::Unlisted => {
                self.tell(Event::Init);
                let extent = if self.source.selection.recent && self.broken < WHOLE_ATTEMPTS {
                    Extent::Whole
                } else {
                    self.page(None)
                };
                self.open(extent).await
            }
            State::Listing {
                extent,
                listing,
                objects,
            } => self.list(extent, listing, objects).await,
            State::Streaming { lines, late } => {
                let next = self.stream(lines, late).await;
                if next.is_err() {
                    self.stream_broke();
                }
                next
            }
            State::Listed { resource_version } => {
                match self.source.watch(Some(&resource_version)).await {
                    Ok(lines) => {
                        self.silent_since = Some(Instant::now());
                        Ok(State::Watching {
                            resource_version,
                            lines,
                        })
                    }
                    Err(stumble) if stumble.code() == Some(410) => Err((State::Unlisted, stumble)),
                    Err(stumble) => Err((State::Listed { resource_version }, stumble)),
                }
            }
            State::Watching {
                resource_version,
                lines,
            } => self.watch(resource_version, lines).await,
        }
    }

    /// The page that goes on there.
    fn page(&self, from: Option<String>) -> Extent {
        let limit = self.limit.min(self.source.selection.page_size);
        Extent::Page { limit, from }
    }

    async fn open(&mut self, extent: Extent) -> Result<State<K>, (State<K>, Stumble)> {
        match self.source.list(&extent).await {
            Ok(listing) => Ok(State::Listing {
                extent,
                listing,
                objects: 0,
            }),
            // An expired continue token (410) or any other failure: the list starts anew. What was
            // not even begun says nothing about its length, unless the server took too long to
            // begin.
            Err(stumble) => {
                if matches!(stumble, Stumble::Deadline(_)) {
                    self.broke(&extent);
                }
                Err((State::Unlisted, stumble))
            }
        }
    }

    /// The next object of a list.
    async fn list(
        &mut self,
        extent: Extent,
        mut listing: Listing<K>,
        objects: u32,
    ) -> Result<State<K>, (State<K>, Stumble)> {
        let meta = match listing.next(ANSWER_DEADLINE).await {
            Ok(Part::End(meta)) => meta,
            Ok(part) => {
                match part {
                    Part::Object(object) => self.tell(Event::InitApply(object)),
                    Part::Rejected(rejected) => self.report(rejected),
                    Part::End(_) => {}
                }
                return Ok(State::Listing {
                    extent,
                    listing,
                    objects: objects.saturating_add(1),
                });
            }
            Err(stumble) => {
                self.broke(&extent);
                return Err((State::Unlisted, stumble));
            }
        };
        if let Extent::Page { limit, .. } = extent {
            self.limit = next_limit(limit, listing.read());
        }
        if let Some(token) = meta.continue_token {
            let next = self.page(Some(token));
            return self.open(next).await;
        }
        let Some(resource_version) = meta.resource_version else {
            return Err((State::Unlisted, Stumble::NoResourceVersion));
        };
        self.broken = 0;
        self.tell(Event::InitDone);
        Ok(State::Listed { resource_version })
    }

    /// Notes that a list broke off. One that is too long for the server or the way to it comes in
    /// pages after that.
    fn broke(&mut self, extent: &Extent) {
        match extent {
            Extent::Whole => self.broken += 1,
            Extent::Page { limit, .. } => self.limit = (limit / 2).max(1),
        }
    }

    /// Notes that a streaming list broke off.
    fn stream_broke(&mut self) {
        if !self.streaming.is_worth_asking(Instant::now()) {
            self.broken_streams = 0;
            return;
        }
        self.broken_streams += 1;
        if self.broken_streams >= STREAM_ATTEMPTS {
            self.broken_streams = 0;
            self.streaming = Streaming::not_for_an_hour();
        }
    }

    async fn stream(
        &mut self,
        mut lines: Incoming<K>,
        mut late: Vec<News<K>>,
    ) -> Result<State<K>, (State<K>, Stumble)> {
        match lines.next(STREAM_SILENCE).await {
            Ok(Some(Line::Applied { object, .. })) => {
                if late.is_empty() {
                    self.tell(Event::InitApply(object));
                } else {
                    late.push(News::Event(Event::Apply(object)));
                }
                Ok(State::Streaming { lines, late })
            }
            Ok(Some(Line::Bookmark {
                resource_version,
                ends_initial_list,
            })) => {
                if !ends_initial_list {
                    return Ok(State::Streaming { lines, late });
                }
                self.tell(Event::InitDone);
                self.ready.extend(late);
                self.pause = FIRST_PAUSE;
                (self.broken_streams, self.silent_since) = (0, None);
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Ok(Some(Line::Deleted { object, .. })) => {
                late.push(News::Event(Event::Delete(object)));
                Ok(State::Streaming { lines, late })
            }
            Ok(Some(Line::Rejected(rejected))) => {
                self.count(&rejected);
                if rejected.deleted || !late.is_empty() {
                    late.push(News::Unreadable(rejected));
                } else {
                    self.ready.push_back(News::Unreadable(rejected));
                }
                Ok(State::Streaming { lines, late })
            }
            Ok(Some(Line::Error { code, message })) => {
                let stumble = Stumble::Ended { code, message };
                self.stop_streaming_if_refused(&stumble);
                Err((State::Unlisted, stumble))
            }
            Ok(None) => Err((
                State::Unlisted,
                Stumble::Broken(std::io::ErrorKind::UnexpectedEof.into()),
            )),
            Err(stumble) => {
                // Silence before the end of the list: a server that ignores `sendInitialEvents`.
                if matches!(stumble, Stumble::Deadline(_)) {
                    self.streaming = Streaming::not_for_an_hour();
                }
                Err((State::Unlisted, stumble))
            }
        }
    }

    async fn watch(
        &mut self,
        resource_version: String,
        mut lines: Incoming<K>,
    ) -> Result<State<K>, (State<K>, Stumble)> {
        let silence = self.source.selection.watch_timeout + IDLE_GRACE;
        let line = lines.next(silence).await;
        let silent_since = self.silent_since;
        if matches!(line, Ok(Some(_))) {
            self.silent_since = None;
        }
        match line {
            Ok(None) if silent_since.is_some_and(|since| since.elapsed() < SHORT_WATCH) => {
                let stumble = Stumble::Broken(std::io::ErrorKind::UnexpectedEof.into());
                Err((State::Listed { resource_version }, stumble))
            }
            Ok(Some(Line::Applied {
                object,
                resource_version,
            })) => {
                self.tell(Event::Apply(object));
                self.pause = FIRST_PAUSE;
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Ok(Some(Line::Deleted {
                object,
                resource_version,
            })) => {
                self.tell(Event::Delete(object));
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
                let stumble = Stumble::Ended { code: 410, message };
                Err((State::Unlisted, stumble))
            }
            Ok(Some(Line::Error { code, message })) => Err((
                State::Listed { resource_version },
                Stumble::Ended { code, message },
            )),
            // The agreed timeout: the normal end of a watch.
            Ok(None) => Ok(State::Listed { resource_version }),
            Err(stumble) => Err((State::Listed { resource_version }, stumble)),
        }
    }

    fn stop_streaming_if_refused(&mut self, stumble: &Stumble) {
        let refused = match stumble {
            Stumble::Refused { code, message, .. } | Stumble::Ended { code, message } => {
                refuses_streaming(*code, message)
            }
            _ => None,
        };
        if let Some(streaming) = refused {
            tracing::debug!(
                kind = self.kind,
                %stumble,
                "the server does not stream lists; listing instead"
            );
            self.streaming = streaming;
            self.pause = Duration::ZERO;
        }
    }

    /// Notes that what was told so far is up to date.
    fn is_current(&mut self) {
        if let Some(touch) = &self.touch {
            touch.hear(calendar());
        }
        self.trouble.over();
        if let Some(lasted) = self.reminder.over(Instant::now()) {
            tracing::info!(resource = self.kind, ?lasted, "followed again");
        }
    }

    fn tell(&mut self, event: Event<K>) {
        self.ready.push_back(News::Event(event));
    }

    fn report(&mut self, rejected: Rejected) {
        self.count(&rejected);
        self.ready.push_back(News::Unreadable(rejected));
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

    async fn stumbled(&mut self, stumble: &Stumble) {
        metrics::counter!("muster_watch_errors_total", "resource" => self.kind.clone())
            .increment(1);
        if matches!(stumble, Stumble::Malformed(_)) && self.source.decode.take().is_some() {
            tracing::warn!(
                resource = self.kind,
                error = %stumble,
                "cannot read the server's protobuf; reading JSON instead"
            );
            self.state = State::Unlisted;
            return;
        }
        if let Some(touch) = &self.touch {
            touch.lose();
        }
        let pause = crate::queue::jittered(self.pause);
        let asked = stumble.retry_after().unwrap_or_default();
        let pause = pause.max(asked.min(LONGEST_RETRY_AFTER));
        tracing::debug!(resource = self.kind, error = %stumble, ?pause, "following stumbled");
        self.explain(stumble);
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }

    /// Tells of a trouble that lasts: in the log now and then, and whoever asks.
    fn explain(&mut self, stumble: &Stumble) {
        let refused = stumble.code().is_some_and(is_lasting);
        self.reminder.patience(if refused {
            REFUSED_PATIENCE
        } else {
            UNREACHABLE_PATIENCE
        });
        if let Some(lasts) = self.reminder.trouble(Instant::now()) {
            let words = self.trouble.is(&self.kind, stumble);
            tracing::warn!(resource = self.kind, ?lasts, "{words}");
        }
    }
}

/// Whether streaming lists are to be asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Streaming {
    Asked,
    /// Not before then: what the server lacks may be mended behind it.
    NotBefore(Instant),
    /// The server does not know the request.
    Never,
}

impl Streaming {
    fn not_for_an_hour() -> Self {
        Self::NotBefore(Instant::now() + STREAMING_RETRY)
    }

    fn is_worth_asking(self, now: Instant) -> bool {
        match self {
            Self::Asked => true,
            Self::NotBefore(when) => now >= when,
            Self::Never => false,
        }
    }
}

/// What a refusal says about streaming lists; `None` where it says nothing about them. With its
/// gate off a server answers 422, an older one or one behind a proxy another code of those; over an
/// etcd that cannot tell its progress it answers 500 and says so. A missing right or kind concerns
/// every list.
fn refuses_streaming(code: u16, message: &str) -> Option<Streaming> {
    match code {
        400 | 405 | 406 | 415 | 422 => Some(Streaming::Never),
        500 if STORAGE_WORDS.iter().any(|words| message.contains(words)) => {
            Some(Streaming::not_for_an_hour())
        }
        _ => None,
    }
}

/// Whether a refusal with this code lasts until somebody does something: a missing right, a missing
/// kind, wrong credentials.
fn is_lasting(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 408 | 410 | 429)
}

/// Objects to ask the next page for, after one of so many (or fewer) had this many bytes: about
/// [`PAGE_BYTES`] of them.
fn next_limit(limit: u32, bytes: u64) -> u32 {
    if bytes > PAGE_BYTES {
        (limit / 2).max(1)
    } else if bytes < PAGE_BYTES / 2 {
        limit.saturating_mul(2)
    } else {
        limit
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn line(kind: &str, name: &str, version: &str) -> String {
        let object = json!({"metadata": {"name": name, "resourceVersion": version}});
        format!("{}\n", json!({"type": kind, "object": object}))
    }

    fn odd(kind: &str, name: &str, version: &str) -> String {
        line(kind, name, version).replace(r#""metadata""#, r#""data":5,"metadata""#)
    }

    fn end_of_list() -> String {
        let notes = json!({"k8s.io/initial-events-end": "true"});
        let object = json!({"metadata": {"resourceVersion": "9", "annotations": notes}});
        format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
    }

    fn short(news: News<ConfigMap>) -> String {
        let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
        match news {
            News::Event(Event::Init) => "init".into(),
            News::Event(Event::InitApply(map)) => format!("listed {}", name(map)),
            News::Event(Event::InitDone) => "done".into(),
            News::Event(Event::Apply(map)) => format!("+{}", name(map)),
            News::Event(Event::Delete(map)) => format!("-{}", name(map)),
            News::Unreadable(rejected) if rejected.deleted => format!("-{}?", rejected.name),
            News::Unreadable(rejected) => format!("{}?", rejected.name),
        }
    }

    /// What is told of these lines of a streaming list.
    async fn told(lines: &[String]) -> Vec<String> {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let api: Api<ConfigMap> = Api::all(kube::Client::try_from(config).unwrap());
        let mut follower = Follower::new(&api, Selection::everything());
        let bytes = futures::io::Cursor::new(lines.concat().into_bytes());
        let mut state = State::Streaming {
            lines: Incoming::new(Box::pin(bytes), None),
            late: Vec::new(),
        };
        while matches!(state, State::Streaming { .. }) {
            state = match follower.step(state).await {
                Ok(state) => state,
                Err((_, stumble)) => panic!("{stumble}"),
            };
        }
        follower.ready.into_iter().map(short).collect()
    }

    #[test]
    fn only_a_server_that_says_so_does_not_stream_lists() {
        let progress = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
        for (code, message, ends, for_good) in [
            (400, "", true, true),
            (405, "", true, true),
            (406, "", true, true),
            (415, "", true, true),
            (422, "sendInitialEvents is forbidden", true, true),
            (500, progress, true, false),
            (500, "etcdserver: request timed out", false, false),
            (401, "", false, false),
            (403, "", false, false),
            (404, "", false, false),
            (410, "", false, false),
            (429, "", false, false),
            (503, progress, false, false),
        ] {
            let refused = refuses_streaming(code, message);
            assert_eq!(refused.is_some(), ends, "{code} {message}");
            assert_eq!(
                refused == Some(Streaming::Never),
                for_good,
                "{code} {message}"
            );
        }
        let now = Instant::now();
        let later = Streaming::NotBefore(now + STREAMING_RETRY);
        assert!(!later.is_worth_asking(now) && later.is_worth_asking(now + STREAMING_RETRY));
    }

    #[test]
    fn pages_are_bounded_by_their_bytes() {
        for (limit, bytes, expected) in [
            (20, 1_000, 40),
            (20, 3 << 20, 20),
            (20, 30 << 20, 10),
            (1, 30 << 20, 1),
            (u32::MAX, 1_000, u32::MAX),
        ] {
            assert_eq!(next_limit(limit, bytes), expected, "{limit} {bytes}");
        }
    }

    /// A server whose history is always over: it answers lists, and every watch with 410.
    fn forgetful(requests: Arc<std::sync::Mutex<Vec<(String, Instant)>>>) -> Api<ConfigMap> {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let kind = |text: &str| query.contains(text);
            let (code, body) = if kind("sendInitialEvents") {
                (422, json!({"kind": "Status", "code": 422}))
            } else if kind("watch=") {
                (410, json!({"kind": "Status", "code": 410}))
            } else {
                (
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": []}),
                )
            };
            requests.lock().unwrap().push((query, Instant::now()));
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Api::all(kube::Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_history_that_is_over_after_every_list_is_no_reason_to_hurry() {
        let requests = Arc::default();
        let api = forgetful(Arc::clone(&requests));
        let mut follower = Follower::new(&api, Selection::everything());
        let follow = async {
            loop {
                follower.next().await;
            }
        };
        let minute = Duration::from_mins(1);
        assert!(tokio::time::timeout(minute, follow).await.is_err());
        let requests = requests.lock().unwrap();
        let lists = requests.iter().filter(|(query, _)| query.contains("limit"));
        assert!(
            lists.count() < 10,
            "{} requests in a minute",
            requests.len()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_a_moment_old_is_listed_in_one_answer_and_nothing_else_is() {
        for (selection, whole) in [
            (Selection::everything().recent(), true),
            (Selection::everything(), false),
        ] {
            let requests = Arc::default();
            let api = forgetful(Arc::clone(&requests));
            let mut follower = Follower::new(&api, selection);
            assert_eq!(short(follower.next().await), "init");
            assert_eq!(short(follower.next().await), "done");
            let requests = requests.lock().unwrap();
            let (query, _) = &requests[1];
            assert_eq!(query.contains("resourceVersion=0"), whole, "{query}");
            assert_eq!(query.contains("limit="), !whole, "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_that_breaks_off_makes_the_next_list_come_in_pages() {
        // How the whole list is answered at first, and whether the third attempt asks for a page.
        for (code, body, paged) in [
            (503, "{}", false),
            (403, "{}", false),
            (200, r#"{"items":[{"metadata":{"name":"a"}},"#, true),
        ] {
            let requests: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
            let seen = Arc::clone(&requests);
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let (code, body) = if query.contains("sendInitialEvents") {
                    (422, "{}")
                } else {
                    seen.lock().unwrap().push(query);
                    (code, body)
                };
                let body = kube::client::Body::from(body.as_bytes().to_vec());
                let answer = http::Response::builder().status(code).body(body).unwrap();
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            let api: Api<ConfigMap> = Api::all(kube::Client::new(service, "default"));
            let mut follower = Follower::new(&api, Selection::everything().recent());
            let follow = async {
                while requests.lock().unwrap().len() < 3 {
                    follower.next().await;
                }
            };
            // A server that refuses gives no news: time passes until it has been asked often
            // enough.
            let _ = tokio::time::timeout(Duration::from_mins(1), follow).await;
            let requests = requests.lock().unwrap();
            assert!(
                requests[..2].iter().all(|query| !query.contains("limit")),
                "{code}"
            );
            assert_eq!(requests[2].contains("limit"), paged, "{code}: {requests:?}");
        }
    }

    /// A server behind a proxy that ends every watch at once, a streaming list after its first
    /// object; it counts its requests.
    fn impatient(requests: Arc<std::sync::Mutex<u32>>) -> Api<ConfigMap> {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            *requests.lock().unwrap() += 1;
            let query = request.uri().query().unwrap_or_default();
            let body = if query.contains("sendInitialEvents") {
                line("ADDED", "a", "1")
            } else if query.contains("watch=") {
                String::new()
            } else {
                json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()
            };
            let body = kube::client::Body::from(body.into_bytes());
            let answer = http::Response::builder().body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Api::all(kube::Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_always_break_off_are_neither_waited_for_nor_asked_for_without_end() {
        let requests = Arc::default();
        let api = impatient(Arc::clone(&requests));
        let mut follower = Follower::new(&api, Selection::everything());
        let mut heard = Vec::new();
        let follow = async {
            loop {
                heard.push(short(follower.next().await));
                assert!(*requests.lock().unwrap() < 100, "{heard:?}");
            }
        };
        let minute = Duration::from_mins(1);
        assert!(tokio::time::timeout(minute, follow).await.is_err());
        assert_eq!(heard.last().map(String::as_str), Some("done"), "{heard:?}");
        let requests = *requests.lock().unwrap();
        assert!(requests < 15, "{requests} requests in a minute");
    }

    /// A server that refuses everything, or answers nothing.
    fn refusing(code: u16) -> Api<ConfigMap> {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let status =
                json!({"kind": "Status", "code": code, "message": "configmaps is forbidden: why"});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Api::all(kube::Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_told_after_some_seconds() {
        for (code, after, told) in [
            (403, 4, false),
            (403, 10, true),
            (503, 20, false),
            (503, 90, true),
        ] {
            let trouble: Arc<Trouble> = Arc::default();
            let follower = Follower::new(&refusing(code), Selection::everything());
            let mut follower = follower.explaining(Arc::clone(&trouble));
            let after = Duration::from_secs(after);
            assert!(tokio::time::timeout(after, follower.next()).await.is_err());
            let words = trouble.words();
            assert_eq!(words.is_some(), told, "{code} after {after:?}");
            if let Some(words) = words {
                assert!(
                    words.contains("configmaps") && words.contains("why"),
                    "{words}"
                );
            }
        }
    }

    #[tokio::test]
    async fn what_is_deleted_while_the_list_is_streamed_is_gone_afterwards() {
        let (a, b) = (line("ADDED", "a", "1"), line("ADDED", "b", "2"));
        let cases = [
            (
                "only a list",
                vec![a.clone(), b.clone()],
                vec!["listed a", "listed b", "done"],
            ),
            (
                "a change",
                vec![a.clone(), line("MODIFIED", "a", "3")],
                vec!["listed a", "listed a", "done"],
            ),
            (
                "a deletion",
                vec![a.clone(), b.clone(), line("DELETED", "a", "3")],
                vec!["listed a", "listed b", "done", "-a"],
            ),
            (
                "deleted and made again",
                vec![a, line("DELETED", "a", "3"), line("ADDED", "a", "4"), b],
                vec!["listed a", "done", "-a", "+a", "+b"],
            ),
            (
                "a deletion that does not decode",
                vec![line("ADDED", "a", "1"), odd("DELETED", "a", "3")],
                vec!["listed a", "done", "-a?"],
            ),
            (
                "a change after a deletion, neither of which decodes",
                vec![odd("DELETED", "a", "3"), odd("ADDED", "a", "4")],
                vec!["done", "-a?", "a?"],
            ),
        ];
        for (what, mut lines, expected) in cases {
            lines.push(end_of_list());
            assert_eq!(told(&lines).await, expected, "{what}");
        }
    }
}
