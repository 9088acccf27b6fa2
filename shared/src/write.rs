//! Writes to an API with the verbs that a role grants.
//!
//! Writes are merge patches of the fields that Muster owns. The role that `karmadactl register`
//! gives to an agent may get, create and update leases, and update its cluster's status, but not
//! patch them. With such a role the patch is applied here, to the whole object (unknown fields
//! included), and sent as an update with its resourceVersion.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, header};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::merge;

/// Returns the parameters of a patch by a field manager.
pub fn patch_params(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns the parameters of a creation or an update by a field manager.
pub fn post_params(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// Returns the parameters by which the object with a uid is deleted, and no other of its name; with
/// a version only as it was read.
pub fn delete_params(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid,
        resource_version,
    })
}

/// Verbs by which objects of one kind can be changed, learned from one rejected patch.
#[derive(Debug, Default)]
pub struct Verbs {
    /// Patches were refused.
    update: AtomicBool,
}

impl Verbs {
    /// Sends a merge patch of an object, or of one of its subresources, or an update with the same
    /// effect.
    ///
    /// # Errors
    /// Those of the API. A role with neither verb gets the rejection of the patch; the next call
    /// starts again with a patch.
    pub async fn merge<K>(
        &self,
        api: &Api<K>,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
        manager: Option<&str>,
    ) -> Result<K, Error>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        if self.update.load(Ordering::Relaxed) {
            let updated = update(api, name, subresource, patch, manager).await;
            if !matches!(&updated, Err(error) if is_forbidden(error)) {
                return updated;
            }
        }
        let params = manager.map_or_else(PatchParams::default, patch_params);
        let body = Patch::Merge(patch);
        let patched = match subresource {
            None => api.patch(name, &params, &body).await,
            Some(part) => api.patch_subresource(part, name, &params, &body).await,
        };
        let refusal = match patched {
            Err(error) if is_forbidden(&error) => error,
            outcome => {
                self.update.store(false, Ordering::Relaxed);
                return outcome;
            }
        };
        match update(api, name, subresource, patch, manager).await {
            // The first refusal says more about what is missing.
            Err(error) if is_forbidden(&error) => Err(refusal),
            outcome => {
                self.update.store(true, Ordering::Relaxed);
                outcome
            }
        }
    }
}

/// Creates an object by server-side apply, with which a role can permit a single name.
///
/// A role without the verb `patch` gets an ordinary creation. If another client has created the
/// object first, the fields are applied to its object, or conflict with it.
///
/// # Errors
/// Those of the API.
pub async fn create<K>(api: &Api<K>, name: &str, object: &K, manager: &str) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let params = PatchParams::apply(manager);
    match api.patch(name, &params, &Patch::Apply(object)).await {
        Err(refusal) if is_forbidden(&refusal) => {
            match api.create(&PostParams::default(), object).await {
                // The first refusal says more about what is missing.
                Err(second) if is_forbidden(&second) => Err(refusal),
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

async fn update<K>(
    api: &Api<K>,
    name: &str,
    subresource: Option<&str>,
    patch: &Value,
    manager: Option<&str>,
) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let client = api.clone().into_client();
    let mut url = format!("{}/{name}", api.resource_url());
    let read = Request::get(&url)
        .body(Vec::new())
        .map_err(Error::HttpError)?;
    let mut object: Value = client.request(read).await?;
    merge::apply(&mut object, patch);
    if let Some(part) = subresource {
        url = format!("{url}/{part}");
    }
    if let Some(manager) = manager {
        url = format!("{url}?fieldManager={manager}");
    }
    let body = serde_json::to_vec(&object).map_err(Error::SerdeError)?;
    let write = Request::put(url)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(Error::HttpError)?;
    client.request(write).await
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_forbidden())
}
