//! Lists and watches collections of objects.
//!
//! There are three layers, each usable alone. [`events`] is the stream of changes, for users that
//! keep compact records instead of objects, such as the agent's census. [`Informer`] caches the
//! latest version of each object and calls listeners on each change. The state machine below them
//! lists and watches, and handles errors of the network, of the server and in objects. [`pages`]
//! reads a collection once.
//!
//! kube's `watcher` is not used because it repeats a streaming list without end if the server
//! rejects it, fails a whole page for one object that does not decode, and notices a dead
//! connection only after 295 s.
//!
//! ```
//! use muster_shared::k8s::{Api, ConfigMap, ResourceExt};
//! use muster_shared::watch::{Change, Informer, Selection};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # use serde_json::{Value, json};
//! # // An API with one ConfigMap, which is deleted after the streaming list.
//! # let api = tower::service_fn(|request: http::Request<kube::client::Body>| {
//! #     let object = |version: &str, annotations: Value| json!({
//! #         "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
//! #             "namespace": "default", "name": "web", "uid": "1",
//! #             "resourceVersion": version, "annotations": annotations,
//! #         },
//! #     });
//! #     let end = json!({ "k8s.io/initial-events-end": "true" });
//! #     let query = request.uri().query().unwrap_or_default();
//! #     let lines = if query.contains("sendInitialEvents=true") {
//! #         vec![("ADDED", object("1", json!({}))), ("BOOKMARK", object("1", end))]
//! #     } else {
//! #         vec![("DELETED", object("2", json!({})))]
//! #     };
//! #     let line = |(kind, object)| json!({ "type": kind, "object": object }).to_string() + "\n";
//! #     let body = lines.into_iter().map(line).collect::<String>().into_bytes();
//! #     let answer = http::Response::new(kube::client::Body::from(body));
//! #     async move { Ok::<_, std::convert::Infallible>(answer) }
//! # });
//! # let client = kube::Client::new(api, "default");
//! let config_maps: Informer<ConfigMap> = Informer::new(Api::all(client), Selection::everything());
//! let (changes, mut changed) = tokio::sync::mpsc::unbounded_channel();
//! config_maps.on_change(move |change| {
//!     let name = change.object().name_any();
//!     _ = changes.send(match change {
//!         Change::Applied { .. } => format!("applied {name}"),
//!         Change::Deleted { .. } => format!("deleted {name}"),
//!     });
//! });
//! let shutdown = CancellationToken::new();
//! let watch = tokio::spawn(config_maps.clone().run(shutdown.clone()));
//!
//! config_maps.synced().await;
//! assert_eq!(changed.recv().await.unwrap(), "applied web");
//! assert_eq!(changed.recv().await.unwrap(), "deleted web");
//! assert!(config_maps.get(Some("default"), "web").is_none());
//! // Absence from a cache does not mean deletion; this does.
//! assert!(config_maps.presence(Some("default"), "web").is_gone());
//!
//! shutdown.cancel();
//! watch.await.unwrap();
//! # }
//! ```

mod expectations;
mod follower;
pub mod freshness;
mod incoming;
mod informer;
mod listing;
pub mod outline;
pub mod packing;
pub mod pages;
mod presence;
mod source;
mod store;
mod trouble;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::api::Api;
pub use kube::runtime::watcher::Event;

pub use self::expectations::Expectations;
pub use self::informer::{Change, Fate, Informer};
use self::pages::Rejected;
pub use self::presence::{Departed, Doubt, MOST_DEPARTED, Presence};
pub use self::trouble::{Refused, Trouble};
use crate::protobuf::FromProtobuf;
pub use crate::watch::freshness::Freshness;

/// Objects of a collection that are watched, and how they are listed.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Label selector in Kubernetes' text form; `None` selects everything.
    pub labels: Option<String>,
    /// Field selector in Kubernetes' text form; `None` selects everything.
    pub fields: Option<String>,
    /// Maximum number of objects per page if the server does not stream lists; 500 is client-go's
    /// value. Pages of large objects are smaller.
    pub page_size: u32,
    /// Whether a list may come from the server's cache, a moment old and in one response, if the
    /// server does not stream lists. Not for collections on which decisions depend: an object that
    /// the cache does not have yet looks deleted.
    pub recent: bool,
}

/// Time for which the server is asked to keep one watch open. A dead connection is noticed
/// [`IDLE_GRACE`] later, which bounds how outdated a cache can be unnoticed.
const WATCH_TIMEOUT: Duration = Duration::from_secs(50);

/// Time after the watch timeout for which a byte is awaited before the connection counts as dead.
const IDLE_GRACE: Duration = Duration::from_secs(10);

impl Default for Selection {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: 500,
            recent: false,
        }
    }
}

impl Selection {
    /// Selects everything in the collection.
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

/// Bounds of types that can be watched.
pub trait Followed:
    kube::Resource + serde::de::DeserializeOwned + Clone + Send + Sync + 'static
{
}
impl<K: kube::Resource + serde::de::DeserializeOwned + Clone + Send + Sync + 'static> Followed
    for K
{
}

/// Returns the endless stream of events of a collection.
///
/// Guarantees: `Init`, then `InitApply` for each object of a complete list, then `InitDone`;
/// afterwards `Apply` and `Delete`. Between `Init` and `InitDone` an object may be sent more than
/// once, the last counts, and a `Delete` takes an object out of the list that is arriving. A new
/// `Init` may come at any time, when the history was lost: the list since an `Init` without
/// `InitDone` is to be discarded, and objects that the finished list does not contain are gone.
/// Errors are handled inside, with back-off and a log line; an
/// object that does not decode is reported and skipped.
pub fn events<K: Followed>(
    api: &Api<K>,
    selection: Selection,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    stream(follower::Follower::new(api, selection))
}

/// Returns the stream of [`events`], which also says why it cannot follow while it cannot.
pub fn explained_events<K: Followed>(
    api: &Api<K>,
    selection: Selection,
    trouble: Arc<Trouble>,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    stream(follower::Follower::new(api, selection).explaining(trouble))
}

/// Returns the stream of [`events`] of a kind that can be decoded from protobuf, which costs the
/// server a third of JSON. If a server does not write it, or writes it unreadably, JSON is used.
/// `touch` records how current the stream is.
///
/// An object that does not decode is not left out, but sent as an error: it is there, or was
/// deleted, and is no reason to forget what is known of it.
pub fn compact_events<K: Followed + FromProtobuf>(
    api: &Api<K>,
    selection: Selection,
    touch: Arc<Freshness>,
) -> impl Stream<Item = Result<Event<K>, Rejected>> + Send + use<K> {
    let follower = follower::Follower::compact(api, selection, K::from_protobuf);
    futures::stream::unfold(follower.recording(touch), |mut follower| async move {
        loop {
            let seen = match follower.next().await {
                follower::FollowerEvent::Event(event) => Ok(event),
                follower::FollowerEvent::Unreadable(rejected) => Err(rejected),
                follower::FollowerEvent::BrokenOff => continue,
            };
            return Some((seen, follower));
        }
    })
}

fn stream<K: Followed>(
    follower: follower::Follower<K>,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    futures::stream::unfold(follower, |mut follower| async move {
        loop {
            if let follower::FollowerEvent::Event(event) = follower.next().await {
                return Some((event, follower));
            }
        }
    })
}
