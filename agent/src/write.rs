//! Writes to the fleet API: merge patches of the agent's fields, and nothing if nothing differs.

use std::fmt::Debug;

use muster_shared::client;
use muster_shared::k8s::{Api, Resource};
use muster_shared::write::Verbs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Field manager of the agent's writes to the fleet API.
pub const FIELD_MANAGER: &str = "muster-agent";

/// Sends a merge patch of an object, or of one of its subresources, with whatever verb is granted
/// (see [`Verbs`]).
pub async fn merge<K>(
    api: &Api<K>,
    name: &str,
    subresource: Option<&str>,
    patch: &Value,
) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    Verbs::default()
        .merge(api, name, subresource, patch, Some(FIELD_MANAGER))
        .await
}

/// Creates an object that did not exist at the last read, as [`FIELD_MANAGER`].
pub async fn create<K>(api: &Api<K>, name: &str, object: &K) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    muster_shared::write::create(api, name, object, FIELD_MANAGER).await
}

/// Error of a request with a deadline.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request failed.
    #[error("{step}: {}", client::brief(source))]
    Call {
        /// Step that failed.
        step: &'static str,
        /// Error of the client.
        #[source]
        source: kube::Error,
    },
    /// The API did not answer in time.
    #[error("{step}: no answer in time")]
    Deadline {
        /// Step that failed.
        step: &'static str,
    },
}

impl Error {
    /// Returns whether another writer changed the object meanwhile.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Call { source, .. } if client::is_conflict(source))
    }

    /// Returns whether the same write will not succeed later, for what is in the object.
    pub fn refuses_content(&self) -> bool {
        matches!(self, Self::Call { source, .. } if client::refuses_content(source))
    }

    /// Returns whether the API says that it does not have the object.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Call { source, .. } if client::is_gone(source))
    }

    /// Returns whether the API does not know the agent's credentials.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.code == 401)
    }

    /// Returns whether the agent lacks the right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }
}

/// Deadline for one request to the fleet API, a little over the connection's own so that its error,
/// which says more, comes first.
const ANSWER_DEADLINE: std::time::Duration = std::time::Duration::from_secs(16);

/// Waits for a call no longer than [`ANSWER_DEADLINE`].
pub async fn within<T>(
    step: &'static str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_DEADLINE, call).await {
        Ok(answer) => answer.map_err(|source| Error::Call { step, source }),
        Err(_) => Err(Error::Deadline { step }),
    }
}
