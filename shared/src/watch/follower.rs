//! The state machine that lists, watches, falls back and backs off.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use kube::Client;
use kube::api::{Api, ListParams, Request, WatchParams};
use kube::runtime::watcher::Event;
use tokio::time::timeout;

use super::wire::{self, Line, Page, Rejected};
use super::{Followed, IDLE_GRACE, Selection};

/// Deadline for one page of a list and for the head of a watch's answer. Kubernetes' own server gives up on a list after 60 s.
const ANSWER_DEADLINE: Duration = Duration::from_mins(1);
/// How long a streaming list may be silent before the server counts as one that does not stream lists.
const STREAM_SILENCE: Duration = Duration::from_secs(20);
/// First and longest pause after an error; doubled each time, as client-go's reflector does (800 ms … 30 s).
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

/// Where we are with the collection.
enum State {
    /// Nothing is known: list it.
    Unlisted,
    /// In the middle of a paged list.
    Paging { continue_token: Option<String> },
    /// In the middle of a streaming list.
    Streaming { lines: Lines },
    /// Listed, and up to date as of a version: open a watch there.
    Listed { resource_version: String },
    /// Watching, and up to date as of a version.
    Watching {
        resource_version: String,
        lines: Lines,
    },
}

/// What a follower tells.
pub(super) enum News<K> {
    Event(Event<K>),
    /// An object exists and does not decode: whoever keeps a cache keeps what it last knew of it.
    Unreadable(Rejected),
}

pub(super) struct Follower<K> {
    client: Client,
    request: Request,
    kind: String,
    selection: Selection,
    state: State,
    ready: VecDeque<News<K>>,
    line: Vec<u8>,
    streams: bool,
    pause: Duration,
}

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
enum Stumble {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("cannot build the request: {0}")]
    Request(#[from] kube::core::request::Error),
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("the answer is not what a Kubernetes API sends: {0}")]
    Garbled(#[from] serde_json::Error),
    #[error("the server ended the watch: {message} (code {code})")]
    Ended { code: u16, message: String },
    #[error("the list carries no resourceVersion")]
    NoResourceVersion,
}

impl<K: Followed> Follower<K> {
    pub(super) fn new(api: &Api<K>, selection: Selection) -> Self {
        let url = api.resource_url().to_owned();
        let kind = url.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            client: api.clone().into_client(),
            request: Request::new(url),
            kind,
            selection,
            state: State::Unlisted,
            ready: VecDeque::new(),
            line: Vec::new(),
            streams: true,
            pause: FIRST_PAUSE,
        }
    }

    /// The next piece of news; waits as long as it takes.
    pub(super) async fn next(&mut self) -> News<K> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                return news;
            }
            let state = std::mem::replace(&mut self.state, State::Unlisted);
            match self.step(state).await {
                Ok(next) => self.state = next,
                Err((next, stumble)) => {
                    self.state = next;
                    self.stumbled(&stumble).await;
                }
            }
        }
    }

    /// One request, or one line of an open watch. On failure it says where to go on.
    async fn step(&mut self, state: State) -> Result<State, (State, Stumble)> {
        match state {
            State::Unlisted => {
                if self.streams {
                    match self.open(None).await {
                        Ok(lines) => {
                            self.tell(Event::Init);
                            Ok(State::Streaming { lines })
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
            State::Streaming { lines } => self.stream(lines).await,
            State::Listed { resource_version } => match self.open(Some(&resource_version)).await {
                Ok(lines) => Ok(State::Watching {
                    resource_version,
                    lines,
                }),
                Err(Stumble::Api(kube::Error::Api(status))) if status.code == 410 => {
                    Ok(State::Unlisted)
                }
                Err(stumble) => Err((State::Listed { resource_version }, stumble)),
            },
            State::Watching {
                resource_version,
                lines,
            } => self.watch(resource_version, lines).await,
        }
    }

    async fn page(&mut self, continue_token: Option<String>) -> Result<State, (State, Stumble)> {
        let page = match self.fetch_page(continue_token).await {
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

    async fn fetch_page(&mut self, continue_token: Option<String>) -> Result<Page<K>, Stumble> {
        let params = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            limit: Some(self.selection.page_size),
            continue_token,
            ..ListParams::default()
        };
        let request = self.request.list(&params)?;
        let answer = async {
            let mut body = Vec::new();
            let mut stream = Box::pin(self.client.request_stream(request).await?);
            stream.read_to_end(&mut body).await?;
            Ok::<_, Stumble>(body)
        };
        let body = timeout(ANSWER_DEADLINE, answer)
            .await
            .map_err(|_| Stumble::Deadline(ANSWER_DEADLINE))??;
        Ok(wire::page(&body)?)
    }

    async fn stream(&mut self, mut lines: Lines) -> Result<State, (State, Stumble)> {
        match self.read(&mut lines, STREAM_SILENCE).await {
            Ok(Some(Line::Applied { object, .. })) => {
                self.tell(Event::InitApply(object));
                Ok(State::Streaming { lines })
            }
            Ok(Some(Line::Bookmark {
                resource_version,
                ends_initial_list,
            })) => {
                if !ends_initial_list {
                    return Ok(State::Streaming { lines });
                }
                self.tell(Event::InitDone);
                self.pause = FIRST_PAUSE;
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            // An object deleted while the list is being streamed is not part of it.
            Ok(Some(Line::Deleted { .. })) => Ok(State::Streaming { lines }),
            Ok(Some(Line::Rejected(rejected))) => {
                self.report(rejected);
                Ok(State::Streaming { lines })
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
        mut lines: Lines,
    ) -> Result<State, (State, Stumble)> {
        let silence = self.selection.watch_timeout + IDLE_GRACE;
        match self.read(&mut lines, silence).await {
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

    /// Opens a watch at a version, or a streaming list when there is none.
    async fn open(&mut self, from: Option<&str>) -> Result<Lines, Stumble> {
        let initial = from.is_none();
        let params = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(
                u32::try_from(self.selection.watch_timeout.as_secs()).unwrap_or(u32::MAX),
            ),
            bookmarks: true,
            send_initial_events: initial,
        };
        // An empty version with `sendInitialEvents` asks for a list as fresh as a quorum read: nothing may be decided on
        // a server's stale cache.
        let request = self.request.watch(&params, from.unwrap_or_default())?;
        let stream = timeout(ANSWER_DEADLINE, self.client.request_stream(request))
            .await
            .map_err(|_| Stumble::Deadline(ANSWER_DEADLINE))??;
        Ok(Box::pin(stream))
    }

    /// The next line, or `None` at the end of the answer.
    async fn read(
        &mut self,
        lines: &mut Lines,
        silence: Duration,
    ) -> Result<Option<Line<K>>, Stumble> {
        self.line.clear();
        let read = timeout(silence, lines.read_until(b'\n', &mut self.line))
            .await
            .map_err(|_| Stumble::Deadline(silence))??;
        if read == 0 {
            return Ok(None);
        }
        match wire::line(&self.line) {
            Ok(line) => Ok(Some(line)),
            // A line cut short by the end of the connection.
            Err(error) if error.is_eof() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A server that cannot stream lists refuses them with one of these (422 with the gate off, 500 over an old etcd).
    fn stop_streaming_if_refused(&mut self, stumble: &Stumble) {
        let code = match stumble {
            Stumble::Api(kube::Error::Api(status)) => status.code,
            Stumble::Ended { code, .. } => *code,
            _ => return,
        };
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
        metrics::counter!("muster_watch_rejected_objects_total", "resource" => self.kind.clone())
            .increment(1);
        tracing::warn!(
            resource = self.kind,
            namespace = rejected.namespace,
            name = rejected.name,
            error = rejected.error,
            "stepped over an object that does not decode"
        );
        self.ready.push_back(News::Unreadable(rejected));
    }

    async fn stumbled(&mut self, stumble: &Stumble) {
        metrics::counter!("muster_watch_errors_total", "resource" => self.kind.clone())
            .increment(1);
        tracing::debug!(resource = self.kind, error = %stumble, pause = ?self.pause, "following stumbled");
        tokio::time::sleep(crate::queue::jittered(self.pause)).await;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}
