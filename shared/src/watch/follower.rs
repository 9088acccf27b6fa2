//! The state machine that lists, watches, falls back and backs off.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::runtime::watcher::Event;

use super::incoming::Incoming;
use super::source::{Source, Stumble};
use super::touch::Touch;
use super::wire::compact::Decode;
use super::wire::{Line, Rejected};
use super::{Followed, IDLE_GRACE, Selection};

/// How long a streaming list may be silent before the server counts as one that does not stream lists.
const STREAM_SILENCE: Duration = Duration::from_secs(20);
/// First and longest pause after an error; doubled each time, as client-go's reflector does (800 ms … 30 s).
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest time for which a server can make us wait. It asks for a second or a few; a proxy may ask for anything.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Where we are with the collection.
enum State<K> {
    /// Nothing is known: list it.
    Unlisted,
    /// In the middle of a paged list.
    Paging { continue_token: Option<String> },
    /// In the middle of a streaming list. Servers mix changes into it: from the first deletion on they are kept until the
    /// list is told, because a deletion means nothing before that.
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
    streams: bool,
    pause: Duration,
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
            streams: true,
            pause: FIRST_PAUSE,
            touch: None,
        }
    }

    /// Tells also whether it is in touch with the server.
    pub(super) fn telling(mut self, touch: Arc<Touch>) -> Self {
        self.touch = Some(touch);
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
                    let current = matches!(next, State::Listed { .. } | State::Watching { .. });
                    if let (true, Some(touch)) = (current, &self.touch) {
                        touch.hear(jiff::Timestamp::now());
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
            State::Unlisted => {
                if self.streams {
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
                } else {
                    self.tell(Event::Init);
                    Ok(State::Paging {
                        continue_token: None,
                    })
                }
            }
            State::Paging { continue_token } => self.page(continue_token).await,
            State::Streaming { lines, late } => self.stream(lines, late).await,
            State::Listed { resource_version } => {
                // The pages have been told; a watch tells one object at a time.
                self.ready.shrink_to_fit();
                match self.source.watch(Some(&resource_version)).await {
                    Ok(lines) => Ok(State::Watching {
                        resource_version,
                        lines,
                    }),
                    Err(stumble) if stumble.code() == Some(410) => Ok(State::Unlisted),
                    Err(stumble) => Err((State::Listed { resource_version }, stumble)),
                }
            }
            State::Watching {
                resource_version,
                lines,
            } => self.watch(resource_version, lines).await,
        }
    }

    async fn page(
        &mut self,
        continue_token: Option<String>,
    ) -> Result<State<K>, (State<K>, Stumble)> {
        let page = match self.source.page(continue_token).await {
            Ok(page) => page,
            // An expired continue token (410) or any other failure: the list starts anew.
            Err(stumble) => return Err((State::Unlisted, stumble)),
        };
        for rejected in page.rejected {
            self.report(rejected);
        }
        self.ready.extend(
            page.objects
                .into_iter()
                .map(|object| News::Event(Event::InitApply(object))),
        );
        if let Some(token) = page.continue_token {
            return Ok(State::Paging {
                continue_token: Some(token),
            });
        }
        let Some(resource_version) = page.resource_version else {
            return Err((State::Unlisted, Stumble::NoResourceVersion));
        };
        self.tell(Event::InitDone);
        self.pause = FIRST_PAUSE;
        Ok(State::Listed { resource_version })
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
                self.streams &= !matches!(stumble, Stumble::Deadline(_));
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
        match lines.next(silence).await {
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
            Ok(Some(Line::Error { code: 410, .. })) => Ok(State::Unlisted),
            Ok(Some(Line::Error { code, message })) => Err((
                State::Listed { resource_version },
                Stumble::Ended { code, message },
            )),
            // The agreed timeout: the normal end of a watch.
            Ok(None) => Ok(State::Listed { resource_version }),
            Err(stumble) => Err((State::Listed { resource_version }, stumble)),
        }
    }

    /// A server that cannot stream lists refuses them with one of these (422 with the gate off, 500 over an old etcd).
    fn stop_streaming_if_refused(&mut self, stumble: &Stumble) {
        let Some(code) = stumble.code() else { return };
        if matches!(code, 400 | 404 | 405 | 406 | 415 | 422 | 500) {
            tracing::debug!(
                kind = self.kind,
                code,
                "the server does not stream lists; paging instead"
            );
            self.streams = false;
            self.pause = Duration::ZERO;
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
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
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
