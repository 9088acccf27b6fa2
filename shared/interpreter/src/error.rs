//! Reasons why an object could not be interpreted.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use muster_shared::queue::Queue;

use crate::Operation;
use crate::read::Unread;
use crate::{lua, webhook};

/// Time after which a script is run again for an object for which it was stopped at a limit. The
/// engine suspends one that is stopped again and again, for longer each time.
pub(crate) const AFTER_A_LIMIT: Duration = Duration::from_mins(1);

/// Reason why an object could not be interpreted.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    /// The kind has no rule for the operation; [`hook_enabled`](crate::hook_enabled) says so
    /// beforehand.
    #[error("{operation} is not supported for {kind}")]
    Unsupported {
        /// The operation.
        operation: Operation,
        /// Group, version and kind of the object.
        kind: String,
    },
    /// A field of the object cannot be read.
    #[error("read {0}")]
    Unread(#[from] Unread),
    /// The status that one cluster reported cannot be read.
    #[error("aggregate the status reported by cluster {cluster:?}: {source}")]
    Member {
        /// Name of the cluster.
        cluster: String,
        /// Error in the status.
        source: Box<Self>,
    },
    /// A script of a customization, or a built-in one, gave no answer.
    #[error("{}", words(.0))]
    Script(lua::Error),
    /// A webhook gave no answer.
    #[error(transparent)]
    Webhook(webhook::Failure),
    /// A webhook has been asked, and has not answered yet. This is no failure: what was known
    /// before stays, and the question is asked again when [`webhook::Pending::answered`] returns.
    #[error("{0}")]
    Pending(webhook::Pending),
}

/// Returns the text of an error of a script. It is the same for each call that is stopped or
/// refused for the same reason, so that it is reported once.
fn words(error: &lua::Error) -> String {
    use lua::Error as Script;
    match error {
        Script::Limit { at, limit } | Script::Suspended { at, limit, .. } => format!(
            "{at}: the script was stopped at its limit of {limit}; one that is stopped again and again is run seldom"
        ),
        other => other.to_string(),
    }
}

impl Error {
    /// Returns the time after which the same question may be answered otherwise, because the script
    /// is not run until then; `None` where only a change of the object or of the script helps.
    pub fn retry_after(&self) -> Option<Duration> {
        use lua::Error as Script;
        match self {
            Self::Script(Script::Suspended { seconds, .. }) => {
                Some(Duration::from_secs(*seconds).max(AFTER_A_LIMIT))
            }
            // Such a script may have met a busy machine.
            Self::Script(Script::Limit { .. } | Script::Setup { .. }) => Some(AFTER_A_LIMIT),
            Self::Webhook(failure) => failure.retry_after,
            _ => None,
        }
    }

    /// Returns the question to a webhook that is not answered yet, if that is the reason.
    pub fn pending(&self) -> Option<webhook::Pending> {
        match self {
            Self::Pending(pending) => Some(pending.clone()),
            Self::Member { source, .. } => source.pending(),
            _ => None,
        }
    }

    /// Has a key worked on again when the question to a webhook is answered, if that is the reason.
    /// Returns whether it is; then there is nothing to report.
    pub fn waits<K>(&self, queue: &Queue<K>, key: impl FnOnce() -> K) -> bool
    where
        K: Clone + Eq + Hash + fmt::Debug + Send + 'static,
    {
        let Some(pending) = self.pending() else {
            return false;
        };
        pending.wakes(queue, key());
        true
    }
}
