//! Errors of requests to the member.

use kube::core::Status;
use muster_shared::client;
use muster_shared::watch::pages::PageError;
use serde_json::Value;

use super::{ANSWER_DEADLINE, Clash, ObjectKey};
use crate::discovery;

/// Message of an API server for a path of a resource that the group version does not have. For a
/// missing object it would name that.
const UNKNOWN_RESOURCE: &str = "the server could not find the requested resource";
/// Message of an API server that refuses an apply with a resourceVersion for a new object, as
/// Kubernetes before 1.23 does for Services.
const VERSION_OF_NEW: &str = "resourceVersion should not be set on objects to be created";

/// Message of an API server that refuses an apply of an object whose record of fields names a
/// version of a custom resource that is not served any more, with that version at its end.
const VERSION_OF_RECORD: &str = "request to convert CR to an invalid group/version: ";

/// Message of an API server that refuses an apply whose list has two entries of one key.
const REPETITION: &str = "duplicate entries for key";

/// Cause of the refusal to make an object in a namespace that is being deleted.
const TERMINATING_NAMESPACE: &str = "NamespaceTerminating";

/// Message of an API server that refuses an apply with a field that it does not know.
const UNKNOWN_FIELD: &str = "field not declared in schema";

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
    /// The member does not answer for a group version, and may serve the kind.
    #[error("the member does not say what it serves in {0:?}")]
    Unread(String),
    /// Discovery in the member failed.
    #[error(transparent)]
    Discovery(#[from] discovery::Error),
    /// A request about an object failed, or was not sent.
    #[error("{step} {object}: {cause}")]
    Call {
        /// Step that failed.
        step: &'static str,
        /// Object that the step was about.
        object: String,
        /// Reason of the failure.
        #[source]
        cause: Cause,
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
}

/// Reason why a request about an object failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The request was rejected or failed.
    #[error("{}", client::brief(.0))]
    Request(#[source] kube::Error),
    /// The answer cannot be parsed.
    #[error("cannot read the answer: {0}")]
    Unreadable(String),
    /// Another agent leads now, or the identity of the member is in doubt; nothing was sent.
    #[error("this agent may not act for the member at present")]
    Dismissed,
    /// The member did not answer in time.
    #[error("no answer within {ANSWER_DEADLINE:?}")]
    Deadline,
}

impl Error {
    /// Makes the error of a step about an object.
    pub(super) fn call(step: &'static str, key: &ObjectKey, cause: Cause) -> Self {
        let object = key.to_string();
        Self::Call {
            step,
            object,
            cause,
        }
    }

    fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Call { cause, .. } => Some(cause),
            _ => None,
        }
    }

    fn request(&self) -> Option<&kube::Error> {
        match self.cause()? {
            Cause::Request(source) => Some(source),
            _ => None,
        }
    }

    /// Returns the refusal of the server.
    fn status(&self) -> Option<&Status> {
        match self.request()? {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Returns whether another writer changed the object between the read and the write.
    pub fn is_conflict(&self) -> bool {
        self.request().is_some_and(client::is_conflict)
    }

    /// Returns whether what is applied does not fit the schema by which an apply is merged: a list
    /// names something twice, such as a variable, or the member does not know a field. An API
    /// server takes that in all writes but a server-side apply, and leaves unknown fields out.
    pub fn is_misfit(&self) -> bool {
        let repeats = |status: &Status| status.message.contains(REPETITION);
        self.status().is_some_and(repeats) || self.unknown_fields().is_some()
    }

    /// Returns the words of the member about applied fields that it does not know. Of several
    /// fields it names each in a line, in any order.
    pub fn unknown_fields(&self) -> Option<String> {
        let lines = self.status()?.message.lines().map(str::trim);
        let mut lines: Vec<_> = lines.filter(|it| it.contains(UNKNOWN_FIELD)).collect();
        lines.sort_unstable();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Returns the API version in the object's record of fields because of which the member refuses
    /// an apply; `None` for other errors.
    pub fn version_of_record(&self) -> Option<&str> {
        let (_, version) = self.status()?.message.split_once(VERSION_OF_RECORD)?;
        version.split_whitespace().next()
    }

    /// Returns the places at which fields of others may exclude those of the applied object.
    pub fn clashes(&self, applied: &Value) -> Vec<Clash> {
        let details = self.status().and_then(|status| status.details.as_ref());
        let causes = details.into_iter().flat_map(|details| &details.causes);
        causes
            .filter_map(|cause| Clash::of(cause, applied))
            .collect()
    }

    /// Returns whether the member answered 404.
    pub fn is_not_found(&self) -> bool {
        self.request().is_some_and(client::is_not_found)
    }

    /// Returns whether the member makes no object because its namespace is being deleted.
    pub fn is_in_terminating_namespace(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        let mut causes = details.into_iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == TERMINATING_NAMESPACE)
    }

    /// Returns whether the agent may not read the object.
    pub fn is_refused_read(&self) -> bool {
        let is_read = matches!(self, Self::Call { step: "read", .. });
        is_read && self.status().is_some_and(|status| status.code == 403)
    }

    /// Returns whether the member makes no object from an apply that names a version.
    pub fn refuses_version_of_new(&self) -> bool {
        let status = self.status();
        status.is_some_and(|status| status.message.contains(VERSION_OF_NEW))
    }

    /// Returns whether the member answered that there is no object of this name. A path that it
    /// does not serve is not found either, and says nothing about objects.
    pub(super) fn is_missing(&self, name: &str) -> bool {
        let Some(status) = self.status() else {
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
        matches!(self.cause(), Some(Cause::Dismissed))
    }

    /// Returns whether the member did not answer at all.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Discovery(_) => true,
            Self::List { source, .. } => source.is_silence(),
            Self::UnknownKind { .. } | Self::Unread(_) => false,
            Self::Call { cause, .. } => match cause {
                Cause::Deadline => true,
                Cause::Request(source) => !matches!(source, kube::Error::Api(_)),
                Cause::Unreadable(_) | Cause::Dismissed => false,
            },
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
            let status = serde_json::from_value(status).unwrap();
            let error = Error::Call {
                step: "read",
                object: "a".into(),
                cause: Cause::Request(kube::Error::Api(status)),
            };
            assert_eq!(error.is_missing("a"), missing, "{what}");
        }
    }
}
