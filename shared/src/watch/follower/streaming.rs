//! Lists that the server streams as the beginning of a watch.

use std::time::Duration;

use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::recovery::FIRST_PAUSE;
use super::{Follower, State};
use crate::watch::incoming::Incoming;
use crate::watch::source::WatchError;
use crate::watch::wire::Line;
use crate::watch::{Followed, WATCH_TIMEOUT};

/// After this time a server is asked again for a streaming list that it could not give.
pub(super) const STREAMING_RETRY: Duration = Duration::from_hours(1);
/// Words by which a server says that it cannot stream lists for want of its storage (Kubernetes
/// 1.31 and later over etcd before 3.4.31 or 3.5.13).
const STORAGE_WORDS: [&str; 2] = ["RequestWatchProgress", "required storage feature"];
/// How often a streaming list breaks off before everything is listed in another way: a proxy may
/// end every answer after a time that is too short for a long list in one.
const STREAM_ATTEMPTS: u32 = 2;
/// How long a streaming list may be silent before the server counts as one that does not stream
/// lists.
const STREAM_SILENCE: Duration = Duration::from_secs(20);

impl<K: Followed> Follower<K> {
    /// Begins a streaming list of everything.
    pub(super) async fn stream_all(&mut self) -> Result<State<K>, (State<K>, WatchError)> {
        self.lasts = WATCH_TIMEOUT;
        match self.source.watch(None, self.lasts).await {
            Ok(lines) => {
                self.notify(Event::Init);
                Ok(State::Streaming { lines })
            }
            Err(stumble) => {
                self.stop_streaming_if_refused(&stumble);
                Err((State::Unlisted, stumble))
            }
        }
    }

    /// Returns the next line of a streaming list.
    pub(super) async fn stream(
        &mut self,
        lines: Incoming<K>,
    ) -> Result<State<K>, (State<K>, WatchError)> {
        let next = self.line_of_stream(lines).await;
        if next.is_err() {
            self.stream_broke();
        }
        next
    }

    async fn line_of_stream(
        &mut self,
        mut lines: Incoming<K>,
    ) -> Result<State<K>, (State<K>, WatchError)> {
        match lines.next(STREAM_SILENCE).await {
            // A deletion is reported at once: to keep deletions until the end means to keep
            // whatever comes after the first as well, and a list may be long.
            Ok(Some(Line::Object { object, is_deleted })) => {
                self.notify(if is_deleted {
                    Event::Delete(object)
                } else {
                    Event::InitApply(object)
                });
                Ok(State::Streaming { lines })
            }
            Ok(Some(Line::Bookmark {
                resource_version,
                ends_initial_list,
            })) => {
                if !ends_initial_list {
                    return Ok(State::Streaming { lines });
                }
                self.notify(Event::InitDone);
                (self.broken_streams, self.silent_since) = (0, None);
                // A list in place of watches that break: the next watch is a short one, of which
                // it counts whether it breaks.
                if self.fruitless.is_list_due() {
                    return Ok(State::Listed { resource_version });
                }
                self.pause = FIRST_PAUSE;
                Ok(State::Watching {
                    resource_version,
                    lines,
                })
            }
            Ok(Some(Line::Rejected(rejected))) => {
                self.report(rejected);
                Ok(State::Streaming { lines })
            }
            Ok(Some(Line::Error { code, message })) => {
                let stumble = WatchError::Ended { code, message };
                self.stop_streaming_if_refused(&stumble);
                Err((State::Unlisted, stumble))
            }
            Ok(None) => Err((
                State::Unlisted,
                WatchError::Broken(std::io::ErrorKind::UnexpectedEof.into()),
            )),
            Err(stumble) => {
                // Silence before the end of the list: a server that ignores `sendInitialEvents`.
                if matches!(stumble, WatchError::Deadline(_)) {
                    self.streaming = Streaming::not_for_an_hour();
                }
                Err((State::Unlisted, stumble))
            }
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

    fn stop_streaming_if_refused(&mut self, stumble: &WatchError) {
        let refused = match stumble {
            WatchError::Refused { code, message, .. } | WatchError::Ended { code, message } => {
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
}

/// Whether streaming lists are to be asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Streaming {
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

    pub(super) fn is_worth_asking(self, now: Instant) -> bool {
        match self {
            Self::Asked => true,
            Self::NotBefore(when) => now >= when,
            Self::Never => false,
        }
    }
}

/// Returns what a refusal says about streaming lists; `None` where it says nothing about them. With
/// its gate off a server answers 422, an older one or one behind a proxy another code of those;
/// over an etcd that cannot report its progress it answers 500 and says so. A missing right or kind
/// concerns every list.
pub(super) fn refuses_streaming(code: u16, message: &str) -> Option<Streaming> {
    match code {
        400 | 405 | 406 | 415 | 422 => Some(Streaming::Never),
        500 if STORAGE_WORDS.iter().any(|words| message.contains(words)) => {
            Some(Streaming::not_for_an_hour())
        }
        _ => None,
    }
}
