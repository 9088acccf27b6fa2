//! Client for objects of any kind in the member: get, apply, delete, each with a deadline.

mod clash;
mod error;

use std::sync::Arc;
use std::time::Duration;

use muster_shared::k8s::{
    Api, Client, DeleteParams, GroupVersionKind, Patch, PatchParams, PropagationPolicy,
};
use muster_shared::watch::Selection;
use muster_shared::watch::pages::Pages;
use muster_shared::write::{delete_params, patch_params, post_params};
use serde_json::Value;
use tokio::time::timeout;

pub use self::clash::{Clash, Obstacle};
use self::error::Cause;
pub use self::error::Error;
use super::desired::ObjectKey;
use super::partial::Dependent;
pub use super::raw::Raw;
use crate::discovery::Discovery;

/// Field manager of the agent in `managedFields`.
pub const FIELD_MANAGER: &str = "muster-agent";
/// Deadline for one request to the member.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);

/// Client of the member for objects of any kind.
#[derive(Clone)]
pub struct Member {
    client: Client,
    discovery: Discovery,
    may_act: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Member {
    /// Makes a client over a connection for writes. `may_act` says whether the agent may write into
    /// the member, and is called before each write: a Work may have thousands of objects, and
    /// another agent may take over between them.
    pub fn new(
        client: Client,
        discovery: Discovery,
        may_act: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            client,
            discovery,
            may_act: Arc::new(may_act),
        }
    }

    /// Returns whether the agent may write into the member now.
    pub fn may_act(&self) -> bool {
        (self.may_act)()
    }

    fn ask(&self, step: &'static str, key: &ObjectKey) -> Result<(), Error> {
        if self.may_act() {
            Ok(())
        } else {
            Err(Error::call(step, key, Cause::Dismissed))
        }
    }

    /// Returns the object as it is now; `None` when there is none.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let api = self.api(key).await?;
        match within("read", key, api.get(&key.name)).await {
            Ok(raw) => whole("read", key, raw).map(Some),
            Err(error) if error.is_missing(&key.name) => Ok(None),
            Err(error) => {
                if error.is_not_found() {
                    // The path itself is gone, so the catalog of kinds is old. The next attempt
                    // uses the new one.
                    _ = self.discovery.refresh().await;
                }
                Err(error)
            }
        }
    }

    /// Returns those objects of a kind in the namespace of an object that are wanted, as much of
    /// each as [`Dependent`] reads; none where the kind is not served. One that cannot be read is
    /// left out.
    pub async fn list_beside(
        &self,
        kind: &GroupVersionKind,
        key: &ObjectKey,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, Error> {
        let beside = ObjectKey {
            kind: kind.clone(),
            ..key.clone()
        };
        let Some(beside) = self.served(&beside).await? else {
            return Ok(Vec::new());
        };
        let api = self.api(&beside).await?;
        let mut pages = Pages::<Dependent>::of(&api, Selection::default(), ANSWER_DEADLINE);
        let mut found = Vec::new();
        let next = async |pages: &mut Pages<_>| {
            let page = pages.next(|Dependent(object)| is_wanted(object)).await;
            page.map_err(|source| Error::List {
                object: key.to_string(),
                source,
            })
        };
        while let Some(page) = next(&mut pages).await? {
            for unreadable in page.unreadable {
                let (name, error) = (unreadable.name, unreadable.error);
                tracing::warn!(kind = kind.kind, name, error, "left out: it cannot be read");
            }
            found.extend(page.objects.into_iter().map(|Dependent(object)| object));
        }
        Ok(found)
    }

    /// Applies the desired fields (server-side apply). With `force`, fields of other writers are
    /// overwritten; without it they are a conflict.
    pub async fn apply(
        &self,
        key: &ObjectKey,
        desired: &Value,
        force: bool,
    ) -> Result<Value, Error> {
        let api = self.api(key).await?;
        let params = PatchParams {
            force,
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let patch = Patch::Apply(desired);
        self.ask("apply", key)?;
        let raw = within("apply", key, api.patch(&key.name, &params, &patch)).await?;
        whole("apply", key, raw)
    }

    /// Makes an object that does not exist, without a server-side apply.
    pub async fn create(&self, key: &ObjectKey, desired: &Value) -> Result<Value, Error> {
        let api = self.api(key).await?;
        let params = post_params(FIELD_MANAGER);
        let object = Raw::of(desired.clone(), None);
        self.ask("create", key)?;
        let raw = within("create", key, api.create(&params, &object)).await?;
        whole("create", key, raw)
    }

    /// Sends a merge patch of an object that exists; returns the object afterwards.
    pub async fn patch(&self, key: &ObjectKey, patch: &Value) -> Result<Value, Error> {
        let api = self.api(key).await?;
        let params = patch_params(FIELD_MANAGER);
        let patch = Patch::Merge(patch);
        self.ask("patch", key)?;
        let raw = within("patch", key, api.patch(&key.name, &params, &patch)).await?;
        whole("patch", key, raw)
    }

    /// Deletes the object with this uid and version, its dependents in the background afterwards or
    /// in the foreground before it. Returns whether it may still be there; `false` if it is gone.
    pub async fn delete(
        &self,
        key: &ObjectKey,
        uid: Option<&str>,
        version: Option<&str>,
        dependents: PropagationPolicy,
    ) -> Result<bool, Error> {
        let api = self.api(key).await?;
        let params = DeleteParams {
            propagation_policy: Some(dependents),
            ..delete_params(uid.map(str::to_owned), version.map(str::to_owned))
        };
        self.ask("delete", key)?;
        match within("delete", key, api.delete(&key.name, &params)).await {
            // A server answers with the object while finalizers or a grace period keep it.
            Ok(answer) => Ok(answer.is_left()),
            Err(error) if error.is_missing(&key.name) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the object under a version of its API that the member serves: an upgrade of the
    /// member may have taken the one that its Work names. `None` when the member serves the kind in
    /// no version, so that it has no such object.
    ///
    /// # Errors
    /// When the member does not say what it serves of the group: then the object may be there.
    pub async fn served(&self, key: &ObjectKey) -> Result<Option<ObjectKey>, Error> {
        let version = self.discovery.version_of(&key.kind).await?;
        Ok(version.map(|version| ObjectKey {
            kind: GroupVersionKind::gvk(&key.kind.group, &version, &key.kind.kind),
            ..key.clone()
        }))
    }

    /// Returns the key under which the member [stores](ObjectKey::stored) an object, so that two
    /// names of one object are equal. As it is where the member does not serve the kind.
    pub async fn place(&self, key: &ObjectKey) -> Result<ObjectKey, Error> {
        let place = self.discovery.resolve(&key.kind).await?;
        Ok(place.map_or_else(|| key.clone(), |place| key.stored(place.namespaced)))
    }

    /// Returns the [`place`](Self::place) of an object under whatever version the member serves its
    /// kind in; `None` when it serves it in none.
    ///
    /// # Errors
    /// As for [`served`](Self::served).
    pub async fn place_served(&self, key: &ObjectKey) -> Result<Option<ObjectKey>, Error> {
        match self.served(key).await? {
            Some(key) => self.place(&key).await.map(Some),
            None => Ok(None),
        }
    }

    async fn api(&self, key: &ObjectKey) -> Result<Api<Raw>, Error> {
        let found = self.discovery.resolve(&key.kind).await?;
        let Some(place) = found else {
            let (api_version, kind) = (key.kind.api_version(), key.kind.kind.clone());
            return Err(if self.discovery.catalog().is_unread(&api_version) {
                Error::Unread(api_version)
            } else {
                Error::UnknownKind { api_version, kind }
            });
        };
        Ok(if place.namespaced {
            let namespace = key.stored(true).namespace;
            Api::namespaced_with(self.client.clone(), &namespace, &place.resource)
        } else {
            Api::all_with(self.client.clone(), &place.resource)
        })
    }
}

fn whole(step: &'static str, key: &ObjectKey, raw: Raw) -> Result<Value, Error> {
    match raw.unreadable {
        None => Ok(raw.object),
        Some(reason) => Err(Error::call(step, key, Cause::Unreadable(reason))),
    }
}

async fn within<T>(
    step: &'static str,
    key: &ObjectKey,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    let cause = match timeout(ANSWER_DEADLINE, call).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(source)) => Cause::Request(source),
        Err(_) => Cause::Deadline,
    };
    Err(Error::call(step, key, cause))
}

#[cfg(test)]
mod tests;
