//! Writing to the fleet API: merge patches of what is ours, and nothing when nothing differs.

use std::fmt::Debug;

use http::{Request, header};
use kube::api::PostParams;
use muster_shared::client;
use muster_shared::k8s::{Api, Patch, PatchParams, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The name under which our writes to the fleet API are recorded.
pub const FIELD_MANAGER: &str = "muster-agent";

/// Sends a merge patch of an object, or of one of its subresources.
///
/// The role that `karmadactl register` gives to an agent may update but not patch clusters and leases. There the same patch is
/// applied here to the object as it is (its unknown fields included) and put back under its resourceVersion.
pub async fn merge<K>(
    api: &Api<K>,
    name: &str,
    subresource: Option<&str>,
    patch: &Value,
) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let body = Patch::Merge(patch);
    let sent = match subresource {
        None => api.patch(name, &params, &body).await,
        Some(subresource) => {
            api.patch_subresource(subresource, name, &params, &body)
                .await
        }
    };
    match sent {
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            match update(api, name, subresource, patch).await {
                // The first refusal says more about what is missing.
                Err(kube::Error::Api(second)) if second.is_forbidden() => {
                    Err(kube::Error::Api(status))
                }
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

/// Creates an object that was not there a moment ago, by applying it: only so can a role allow the creation of one name and no other.
///
/// A role without the verb `patch` (see [`merge`]) gets the ordinary creation. If somebody else was faster, what we say is put into
/// their object, or conflicts with what they said.
pub async fn create<K>(api: &Api<K>, name: &str, object: &K) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let applied = api
        .patch(
            name,
            &PatchParams::apply(FIELD_MANAGER),
            &Patch::Apply(object),
        )
        .await;
    match applied {
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            match api.create(&PostParams::default(), object).await {
                // The first refusal says more about what is missing.
                Err(kube::Error::Api(second)) if second.is_forbidden() => {
                    Err(kube::Error::Api(status))
                }
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

async fn update<K: Resource + Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    name: &str,
    subresource: Option<&str>,
    patch: &Value,
) -> Result<K, kube::Error> {
    let client = api.clone().into_client();
    let url = format!("{}/{name}", api.resource_url());
    let read = Request::get(&url)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let mut object: Value = client.request(read).await?;
    apply_merge(&mut object, patch);
    let url = subresource.map_or_else(|| url.clone(), |subresource| format!("{url}/{subresource}"));
    let body = serde_json::to_vec(&object).map_err(kube::Error::SerdeError)?;
    let write = Request::put(format!("{url}?fieldManager={FIELD_MANAGER}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request(write).await
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

/// Applies a merge patch (RFC 7386).
fn apply_merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(object) = object.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            apply_merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A failure of a call that had a deadline.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call failed.
    #[error("{step}: {}", client::brief(source))]
    Call {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: kube::Error,
    },
    /// No answer came in time.
    #[error("{step}: no answer in time")]
    Deadline {
        /// What was tried.
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

/// Deadline for one request to the fleet API, a little over the connection's own so that its error, which says more, comes first.
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
                apply_merge(&mut object, &patch);
            }
            prop_assert_eq!(object, to);
        }
    }
}
