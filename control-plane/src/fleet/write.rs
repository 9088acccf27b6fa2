//! Writes upon objects of the fleet API: merge patches of the fields that are ours, and objects
//! that are created where they are missing.

use std::fmt::Debug;

use kube::api::{Api, Patch, PostParams};
use muster_shared::client::{self, is_gone};
use muster_shared::k8s::{Namespace, ObjectMeta, Resource, ResourceExt as _};
use muster_shared::queue::Next;
use muster_shared::write::patch_params;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::settings::COMPONENT;

/// Result of a write upon an object as it was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Written<K> {
    /// The write was carried out; the object as it is now.
    Done(K),
    /// The object has changed since it was read.
    Overtaken,
    /// The object is gone.
    Gone,
}

impl<K> Written<K> {
    /// Reads the answer to a write.
    ///
    /// # Errors
    /// The write has failed for another reason than that the object is not as it was read.
    pub fn of(answer: Result<K, kube::Error>) -> Result<Self, kube::Error> {
        match answer {
            Ok(object) => Ok(Self::Done(object)),
            Err(error) if client::is_conflict(&error) => Ok(Self::Overtaken),
            Err(error) if is_gone(&error) => Ok(Self::Gone),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the object has changed since it was read, so that what was written has to be
    /// decided again.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::Overtaken)
    }

    /// Returns when to reconcile the object again.
    pub fn next(&self) -> Next {
        if self.is_overtaken() {
            Next::Again
        } else {
            Next::Done
        }
    }
}

/// Merges a patch into an object.
///
/// # Errors
/// The API has refused the write, or has not answered it.
pub async fn merge<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = patch_params(COMPONENT);
    api.patch(name, &params, &Patch::Merge(patch)).await
}

/// Merges a patch into the status of an object.
///
/// # Errors
/// The API has refused the write, or has not answered it.
pub async fn merge_status<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = patch_params(COMPONENT);
    api.patch_status(name, &params, &Patch::Merge(patch)).await
}

/// Returns a namespace of a name.
pub fn namespace(name: &str) -> Namespace {
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// Creates an object where it is missing; says whether it was. It is read first, because admission
/// may refuse to create one that exists.
pub async fn create_missing<K>(api: &Api<K>, object: &K) -> Result<bool, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + Serialize + Resource,
{
    match client::get_metadata_opt(api, &object.name_any()).await {
        Ok(Some(_)) => return Ok(false),
        Ok(None) => {}
        // Whoever may not read such objects may still be allowed to create one.
        Err(kube::Error::Api(status)) if status.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(true),
        Err(error) if client::is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_write_that_comes_too_late_is_reconciled_again_and_any_other_has_failed() {
        for (code, reason, name, expected) in [
            (
                409,
                "Conflict",
                "web",
                Some((Written::Overtaken, Next::Again)),
            ),
            (404, "NotFound", "web", Some((Written::Gone, Next::Done))),
            // The kind is not served now.
            (404, "NotFound", "", None),
            (403, "Forbidden", "web", None),
            (422, "Invalid", "web", None),
            (429, "TooManyRequests", "", None),
            (500, "InternalError", "", None),
        ] {
            let details = serde_json::from_value(serde_json::json!({ "name": name }));
            let status = Status::failure("", reason).with_code(code);
            let status = status.with_details(details.unwrap());
            let answer: Result<(), _> = Err(kube::Error::Api(status.boxed()));
            let written = Written::of(answer).ok();
            let found = written.map(|it| {
                let next = it.next();
                (it, next)
            });
            assert_eq!(found, expected, "{code} {name}");
        }
    }
}
