//! Writes to the fleet API: merge patches of the agent's fields, and nothing if nothing differs.

use std::fmt::Debug;

use muster_shared::client;
use muster_shared::k8s::{Api, Resource};
use muster_shared::write::Verbs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The name under which our writes to the fleet API are recorded.
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

/// Creates an object that was not there a moment ago, in our name.
pub async fn create<K>(api: &Api<K>, name: &str, object: &K) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    muster_shared::write::create(api, name, object, FIELD_MANAGER).await
}

/// The merge patch (RFC 7386) that makes `from` into `to`; `None` when they are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Some(old), Some(new)) = (from.as_object(), to.as_object()) else {
        return Some(to.clone());
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, to) in new {
        if let Some(below) = merge_patch(old.get(key).unwrap_or(&Value::Null), to) {
            patch.insert(key.clone(), below);
        }
    }
    Some(Value::Object(patch))
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
    /// Whether somebody else wrote the object meanwhile.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Call { source, .. } if client::is_conflict(source))
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call { source, .. } if client::is_not_found(source))
    }

    /// Whether we may not do this.
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

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        for (from, to, patch) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 3}),
                Some(json!({"b": 3})),
            ),
            (
                json!({"a": {"x": 1, "y": 2}}),
                json!({"a": {"x": 1}}),
                Some(json!({"a": {"y": null}})),
            ),
            (
                json!({}),
                json!({"a": {"x": 1}}),
                Some(json!({"a": {"x": 1}})),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": [1]}),
                Some(json!({"a": [1]})),
            ),
        ] {
            assert_eq!(merge_patch(&from, &to), patch, "{from} to {to}");
        }
    }

    /// Values without nulls, which a merge patch cannot express.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<u8>().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_leads_where_it_should(from in value(), to in value()) {
            let mut object = from.clone();
            if let Some(patch) = merge_patch(&from, &to) {
                merge::apply(&mut object, &patch);
            }
            prop_assert_eq!(object, to);
        }
    }
}
