//! Errors of requests to the member.

use muster_shared::client;
use muster_shared::watch::pages::PageError;

use super::ANSWER_DEADLINE;
use crate::discovery;

/// Message of an API server for a path of a resource that the group version does not have. For a
/// missing object it would name that.
const UNKNOWN_RESOURCE: &str = "the server could not find the requested resource";
/// Message of an API server that refuses an apply with a resourceVersion for a new object, as
/// Kubernetes before 1.23 does for Services.
const VERSION_OF_NEW: &str = "resourceVersion should not be set on objects to be created";

/// Reason why a request to the member failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The member does not serve the kind.
    #[error("the member serves no {kind:?} in {api_version:?}")]
    UnknownKind {
        /// API group and version of the kind.
        api_version: String,
        /// Name of the kind.
        kind: String,
    },
    /// The answer cannot be parsed.
    #[error("{step} {object}: cannot read the answer: {reason}")]
    Unreadable {
        /// Step that failed.
        step: &'static str,
        /// Object that the step was about.
        object: String,
        /// Error of the parser.
        reason: String,
    },
    /// Discovery in the member failed.
    #[error(transparent)]
    Discovery(#[from] discovery::Error),
    /// The request was rejected or failed.
    #[error("{step} {object}: {}", client::brief(source))]
    Request {
        /// Step that failed.
        step: &'static str,
        /// Object that the step was about.
        object: String,
        /// Error of the client.
        #[source]
        source: kube::Error,
    },
    /// The objects that belong to another one could not be listed.
    #[error("list what belongs to {object}: {source}")]
    List {
        /// Object that the step was about.
        object: String,
        /// Error of the list.
        #[source]
        source: PageError,
    },
    /// Another agent leads now, or the identity of the member is in doubt; nothing was sent.
    #[error("{step} {object}: this agent may not act for the member at present")]
    Dismissed {
        /// Step that was not taken.
        step: &'static str,
        /// Object that the step was about.
        object: String,
    },
    /// The member did not answer in time.
    #[error("{step} {object}: no answer within {ANSWER_DEADLINE:?}")]
    Deadline {
        /// Step that failed.
        step: &'static str,
        /// Object that the step was about.
        object: String,
    },
}

impl Error {
    /// Returns whether another writer changed the object between the read and the write.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } if client::is_conflict(source))
    }

    /// Returns whether the member answered 404.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Request { source, .. } if client::is_not_found(source))
    }

    /// Returns whether the agent may not read the object.
    pub fn is_refused_read(&self) -> bool {
        let Self::Request { step, source, .. } = self else {
            return false;
        };
        *step == "read" && matches!(source, kube::Error::Api(status) if status.code == 403)
    }

    /// Returns whether the member makes no object from an apply that names a version.
    pub fn refuses_version_of_new(&self) -> bool {
        let Self::Request { source, .. } = self else {
            return false;
        };
        matches!(source, kube::Error::Api(status) if status.message.contains(VERSION_OF_NEW))
    }

    /// Returns whether the member answered that there is no object of this name. A path that it
    /// does not serve is not found either, and says nothing about objects.
    pub(super) fn is_missing(&self, name: &str) -> bool {
        let Self::Request { source, .. } = self else {
            return false;
        };
        let kube::Error::Api(status) = source else {
            return false;
        };
        let named = status.details.as_ref().map(|details| details.name.as_str());
        status.reason == "NotFound"
            && match named.unwrap_or_default() {
                "" => status.message != UNKNOWN_RESOURCE,
                named => named == name,
            }
    }

    /// Returns whether nothing was sent, because the agent may not act for the member.
    pub fn is_dismissal(&self) -> bool {
        matches!(self, Self::Dismissed { .. })
    }

    /// Returns whether the member did not answer at all.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Deadline { .. } | Self::Discovery(_) => true,
            Self::Request { source, .. } => !matches!(source, kube::Error::Api(_)),
            Self::List { source, .. } => source.is_silence(),
            Self::UnknownKind { .. } | Self::Unreadable { .. } | Self::Dismissed { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_that_is_not_served_is_no_object_that_is_missing() {
        for (what, status, missing) in [
            (
                "the object is not there",
                json!({"code": 404, "reason": "NotFound", "message": "things \"a\" not found", "details": {"name": "a", "kind": "things"}}),
                true,
            ),
            (
                "a server that says no more",
                json!({"code": 404, "reason": "NotFound", "message": "no such thing"}),
                true,
            ),
            (
                "another object is not there",
                json!({"code": 404, "reason": "NotFound", "message": "namespaces \"b\" not found", "details": {"name": "b", "kind": "namespaces"}}),
                false,
            ),
            (
                "the version has no such resource",
                json!({"code": 404, "reason": "NotFound", "message": UNKNOWN_RESOURCE, "details": {}}),
                false,
            ),
            (
                "the version is gone",
                json!({"code": 404, "reason": "Failed to parse error data", "message": "404 page not found"}),
                false,
            ),
            (
                "it is there",
                json!({"code": 409, "reason": "Conflict", "message": "", "details": {"name": "a"}}),
                false,
            ),
        ] {
            let error = Error::Request {
                step: "read",
                object: "a".into(),
                source: kube::Error::Api(serde_json::from_value(status).unwrap()),
            };
            assert_eq!(error.is_missing("a"), missing, "{what}");
        }
    }
}
