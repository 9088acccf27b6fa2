//! Following a collection of objects: a list, then a watch, for ever.
//!
//! Three layers, each usable alone: [`events`] is the stream of what happens (for folds such as the
//! agent's census, which keep compact records and never the objects); [`Informer`] keeps the latest
//! version of each object and calls back on each change; the state machine below them lists and
//! watches, and survives what the network and other people's objects do.
//!
//! Why not kube's `watcher`: it has no fallback when a server refuses streaming lists (it repeats
//! the refused request for ever), one object that does not decode fails a whole page, and a
//! silently dropped connection is noticed after 295 s.

mod follower;
mod incoming;
mod informer;
mod listing;
mod presence;
mod shelf;
mod source;
mod touch;
mod trouble;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::api::Api;
pub use kube::runtime::watcher::Event;

pub use self::informer::{Change, Informer};
pub use self::presence::{Departed, Doubt, MOST_DEPARTED, Presence};
pub use self::touch::Touch;
pub use self::trouble::Trouble;
use crate::protobuf::FromProtobuf;

/// Which objects of a collection are followed, and how.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Label selector in Kubernetes' text form; `None` selects everything.
    pub labels: Option<String>,
    /// Field selector in Kubernetes' text form; `None` selects everything.
    pub fields: Option<String>,
    /// Objects per page at most where the server does not stream lists; 500 is client-go's value.
    /// Pages of large objects are smaller.
    pub page_size: u32,
    /// Whether a list may be what the server's cache has, a moment old, where the server does not
    /// stream lists. It comes in one answer then. Not for anything that is acted upon: what a cache
    /// does not have yet seems to be gone.
    pub recent: bool,
    /// How long the server is asked to keep one watch open. A dead connection is noticed
    /// [`IDLE_GRACE`] after it, so this bounds how stale a follower can be without knowing.
    pub watch_timeout: Duration,
}

/// How much longer than the agreed watch timeout we wait for a byte before the connection counts as
/// dead.
pub const IDLE_GRACE: Duration = Duration::from_secs(10);

impl Default for Selection {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: 500,
            recent: false,
            watch_timeout: Duration::from_secs(50),
        }
    }
}

impl Selection {
    /// Everything in the collection.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Narrows by a label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Narrows by a field selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Takes lists from the server's cache where the server does not stream them.
    #[must_use]
    pub fn recent(mut self) -> Self {
        self.recent = true;
        self
    }

    /// Sets the page size for servers without streaming lists.
    #[must_use]
    pub fn page_size(mut self, objects: u32) -> Self {
        self.page_size = objects;
        self
    }
}

/// The bounds on what can be followed.
pub trait Followed:
    kube::Resource + serde::de::DeserializeOwned + Clone + Send + Sync + 'static
{
}
impl<K: kube::Resource + serde::de::DeserializeOwned + Clone + Send + Sync + 'static> Followed
    for K
{
}

/// The endless stream of events of a collection.
///
/// Guarantees: `Init`, then `InitApply` for each object of a complete list, then `InitDone`;
/// afterwards `Apply` and `Delete`. A new `Init` may come at any time (the history was lost):
/// whatever was collected since the last `Init` without `InitDone` is to be thrown away, and what
/// the finished list does not name is gone. Errors are handled inside, with back-off and a log
/// line; an object that does not decode is reported and stepped over.
pub fn events<K: Followed>(
    api: &Api<K>,
    selection: Selection,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    stream(follower::Follower::new(api, selection))
}

/// The same, of a kind that can be read from protobuf, which costs the server a third of what JSON
/// does and us less still. Servers that do not write it, or not so that we can read it, are read as
/// JSON. Tells `touch` how current it is.
pub fn compact_events<K: Followed + FromProtobuf>(
    api: &Api<K>,
    selection: Selection,
    touch: Arc<Touch>,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    let follower = follower::Follower::compact(api, selection, K::from_protobuf);
    stream(follower.telling(touch))
}

fn stream<K: Followed>(
    follower: follower::Follower<K>,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    futures::stream::unfold(follower, |mut follower| async move {
        loop {
            if let follower::News::Event(event) = follower.next().await {
                return Some((event, follower));
            }
        }
    })
}
