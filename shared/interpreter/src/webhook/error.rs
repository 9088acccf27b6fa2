//! Reasons why an interpreter webhook gave no answer.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::queue::Queue;
use tokio::sync::watch;

use super::queue::ForRoom;
use crate::Operation;

/// Time after which a question is asked again whose webhook is not there any more.
const REMOVED: Duration = Duration::from_millis(100);

/// Webhook, and the question that it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// Name of the `ResourceInterpreterWebhookConfiguration`.
    pub configuration: String,
    /// Name of the webhook in it.
    pub webhook: String,
    /// API version of the kind.
    pub api_version: String,
    /// Kind that is interpreted.
    pub kind: String,
    /// Operation that was asked for.
    pub operation: Operation,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            configuration,
            webhook,
            api_version,
            kind,
            operation,
        } = self;
        write!(
            f,
            "{operation} of {api_version} {kind} by webhook {webhook:?} of ResourceInterpreterWebhookConfiguration {configuration:?}"
        )
    }
}

/// Reason why a question failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The configuration of the webhook cannot be used.
    #[error("it cannot be asked: {0}")]
    Configuration(String),
    /// No complete answer came before the deadline.
    #[error("it gave no answer within {0} s")]
    Timeout(u64),
    /// The connection failed.
    #[error("it cannot be reached: {0}")]
    Connection(String),
    /// The answer is no success of HTTP.
    #[error("it answered with HTTP status {code}: {text}")]
    Status {
        /// Status code.
        code: u16,
        /// Begin of the body.
        text: String,
    },
    /// The answer is larger than is read.
    #[error("it answered with more than the {0} bytes that are read")]
    Large(usize),
    /// The answer is not one to the question.
    #[error("its answer cannot be used: {0}")]
    Malformed(String),
    /// The webhook says that it failed.
    #[error("it failed with code {code}: {message}")]
    Refused {
        /// Code in the answer.
        code: i64,
        /// Message in the answer.
        message: String,
    },
    /// The webhook is not asked for a while.
    #[error(
        "it is asked seldom, because it failed for several objects in a row; the last time {0}"
    )]
    Suspended(Box<Self>),
}

impl Fault {
    /// Returns whether the fault is that of one object, and says nothing about the next.
    pub(super) fn is_of_the_object(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Malformed(_) | Self::Large(_) => true,
            // What proxies say of a server that is not there, and servers that have too much.
            Self::Status { code, .. } => !matches!(code, 429 | 502 | 503 | 504),
            _ => false,
        }
    }
}

/// Failure of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {fault}")]
pub struct Failure {
    /// The webhook and the question.
    pub at: Arc<At>,
    /// Reason of the failure.
    pub fault: Fault,
    /// Time after which the question is sent again if it is asked again; `None` if only another
    /// configuration helps.
    pub retry_after: Option<Duration>,
}

/// A question that has been asked, and is not answered yet.
#[derive(Clone)]
pub struct Pending {
    pub(super) at: Arc<At>,
    pub(super) until: Until,
}

/// Event that ends the wait for an answer.
#[derive(Clone)]
pub(super) enum Until {
    /// The end of the question, which closes this.
    Ended(watch::Receiver<()>),
    /// Room for the question.
    Room(Box<ForRoom>),
    /// A while: its webhook is not there any more.
    Removed,
}

impl Pending {
    /// Waits until it makes sense to ask again: the question was answered, or failed, or is not
    /// valid any more, or there is room for it now.
    pub async fn answered(self) {
        match self.until {
            Until::Ended(mut ended) => while ended.changed().await.is_ok() {},
            Until::Room(room) => room.arrives().await,
            Until::Removed => tokio::time::sleep(REMOVED).await,
        }
    }

    /// Has a key worked on again when it makes sense to ask again.
    pub fn wakes<K>(self, queue: &Queue<K>, key: K)
    where
        K: Clone + Eq + Hash + fmt::Debug + Send + 'static,
    {
        let queue = queue.clone();
        muster_shared::clock::spawn(async move {
            self.answered().await;
            queue.add(key);
        });
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.at).finish()
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: it has not answered yet", self.at)
    }
}

/// Refuses an answer. The text may quote it.
pub(super) fn malformed(text: &str) -> Fault {
    Fault::Malformed(shortened(text))
}

/// Longest part of a foreign text that an error quotes, in characters.
pub(super) const QUOTED: usize = 200;

/// Returns the beginning of a foreign text, in one line and without characters that are not seen:
/// they may hide what is there, or reverse it.
pub(super) fn shortened(text: &str) -> String {
    let is_unseen = |one: char| {
        matches!(one, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
    };
    let seen = |one: char| match one {
        '\n' | '\r' | '\t' => Some(' '),
        _ if one.is_control() || is_unseen(one) => None,
        _ => Some(one),
    };
    let text: String = text.chars().filter_map(seen).take(QUOTED + 1).collect();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
