//! Elements of lists and watches, in the two encodings of Kubernetes.
//!
//! Both are decoded object by object. A JSON object that does not decode costs only itself. In
//! protobuf, whose types are partial and written here, it means that the server is misread, and the
//! caller returns to JSON.

pub(super) mod compact;
pub(super) mod json;
pub(super) mod split;

#[cfg(test)]
mod fuzz;

use serde::Deserialize;

/// Set by the API server on the bookmark that ends the initial events of a streaming list
/// (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub resource_version: Option<String>,
    /// Token of the next page; `None` if this is the last.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
}

/// One line of a watch.
pub(super) enum Line<K> {
    /// An object as it is now, or as it was when it was deleted.
    Object {
        object: K,
        is_deleted: bool,
    },
    Bookmark {
        resource_version: String,
        ends_initial_list: bool,
    },
    /// The server ended the watch with a status; 410 means that our place in the history is lost.
    Error {
        code: u16,
        message: String,
    },
    Rejected(Rejected),
}

/// An object that is there and does not decode.
#[derive(Debug)]
pub struct Rejected {
    /// Namespace of the object; empty if it has none.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object, if that can be read.
    pub uid: Option<Box<str>>,
    /// Error of the decoder.
    pub error: String,
    /// Version of the object, if that can be read.
    pub resource_version: Option<String>,
    /// The object has a deletion timestamp.
    pub deleting: bool,
    /// It came as a deletion: what we know of it is to be forgotten, not kept.
    pub deleted: bool,
}
