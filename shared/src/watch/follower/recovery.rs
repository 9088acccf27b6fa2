//! Pauses after errors, and what is reported of errors that last.

use std::time::Duration;

use tokio::time::Instant;

use super::{Follower, State};
use crate::watch::Followed;
use crate::watch::source::WatchError;

/// How long a refusal lasts, and how long an API that cannot be reached is away, before that is
/// reported. Both happen for a moment whenever a server starts.
pub(super) const REFUSED_PATIENCE: Duration = Duration::from_secs(5);
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a kind that was never read is left to the program's readiness, which names all such
/// kinds in one sentence.
const AFTER_THE_START: Duration = Duration::from_mins(1);
/// First and longest pause after an error; doubled each time, as client-go's reflector does (800 ms
/// … 30 s).
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest time for which a server can make us wait. It asks for a second or a few; a proxy may
/// ask for anything.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(2);

impl<K: Followed> Follower<K> {
    pub(super) async fn stumbled(&mut self, stumble: &WatchError) {
        metrics::counter!("muster_watch_errors_total", "resource" => self.kind.clone())
            .increment(1);
        if matches!(stumble, WatchError::Malformed(_)) && self.source.decode.take().is_some() {
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

    /// Reports a trouble that lasts: in the log now and then, and to those who ask.
    fn explain(&mut self, stumble: &WatchError) {
        self.trouble.stumbled(stumble);
        let refused = stumble.code().is_some_and(is_lasting);
        self.reminder.patience(if refused {
            REFUSED_PATIENCE
        } else {
            UNREACHABLE_PATIENCE
        });
        if let Some(lasts) = self.reminder.trouble(Instant::now()) {
            let words = self.trouble.is(&self.kind, stumble);
            // What a program cannot read at its start is reported by its readiness, once for all
            // kinds.
            if self.trouble.was_followed() || lasts >= AFTER_THE_START {
                tracing::warn!(resource = self.kind, ?lasts, "{words}");
            } else {
                tracing::info!(resource = self.kind, ?lasts, "{words}");
            }
        }
    }
}

/// Returns whether a refusal with this code lasts until somebody does something: a missing right, a
/// missing kind, wrong credentials.
fn is_lasting(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 408 | 410 | 429)
}
