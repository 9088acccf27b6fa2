//! The member's objects of any kind: read, applied, deleted, each call within a deadline.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::client;
use muster_shared::k8s::{
    Api, ApiResource, Client, DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions,
    PropagationPolicy, Resource,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use tokio::time::timeout;

use super::desired::ObjectKey;
use super::echo::Echoes;
use crate::discovery::catalog::Completeness;
use crate::discovery::{self, Discovery};

/// The name under which our fields are recorded in `managedFields`.
pub const FIELD_MANAGER: &str = "muster-agent";
/// Deadline for one request to the member.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);

/// Why something could not be done in the member.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The member serves no such kind.
    #[error("the member serves no {kind:?} in {api_version:?}")]
    UnknownKind {
        /// API group and version.
        api_version: String,
        /// Kind.
        kind: String,
        /// Whether everything that the member serves is known, so that it has no objects of this kind either.
        certain: bool,
    },
    /// The member could not be asked what it serves.
    #[error(transparent)]
    Discovery(#[from] discovery::Error),
    /// The request was refused or failed.
    #[error("{step} {object}: {}", client::brief(source))]
    Request {
        /// What was tried.
        step: &'static str,
        /// The object.
        object: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// No answer came in time.
    #[error("{step} {object}: no answer within {ANSWER_DEADLINE:?}")]
    Deadline {
        /// What was tried.
        step: &'static str,
        /// The object.
        object: String,
    },
}

impl Error {
    /// Whether somebody else changed the object between our read and our write.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } if client::is_conflict(source))
    }

    /// Whether the member answered that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Request { source, .. } if client::is_not_found(source))
    }

    /// Whether the member did not answer at all.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Deadline { .. } | Self::Discovery(_) => true,
            Self::Request { source, .. } => !matches!(source, kube::Error::Api(_)),
            Self::UnknownKind { .. } => false,
        }
    }
}

/// An object of any kind, as it came: nothing is lost and nothing invented when it is read.
#[derive(Clone, Debug)]
pub struct Raw {
    meta: ObjectMeta,
    /// The whole object.
    pub object: Value,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let text = |key: &str| {
            object
                .get("metadata")?
                .get(key)?
                .as_str()
                .map(str::to_owned)
        };
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, object })
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = muster_shared::k8s::DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The member as the applier sees it.
#[derive(Clone)]
pub struct Member {
    client: Client,
    discovery: Discovery,
    echoes: Arc<Echoes>,
}

impl Member {
    /// Over a connection for writes.
    pub fn new(client: Client, discovery: Discovery, echoes: Arc<Echoes>) -> Self {
        Self {
            client,
            discovery,
            echoes,
        }
    }

    /// What the member made of earlier applies.
    pub fn echoes(&self) -> &Echoes {
        &self.echoes
    }

    /// The object as it is now; `None` when there is none.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let api = self.api(key).await?;
        match within("read", key, api.get(&key.name)).await {
            Ok(raw) => Ok(Some(raw.object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Server-side apply of our fields. With `force` fields that others changed are taken back; without it they are a conflict.
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
        Ok(within("apply", key, api.patch(&key.name, &params, &patch))
            .await?
            .object)
    }

    /// Merge patch of an object that exists; gives it as it is then.
    pub async fn patch(&self, key: &ObjectKey, patch: &Value) -> Result<Value, Error> {
        let api = self.api(key).await?;
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        Ok(within("patch", key, api.patch(&key.name, &params, &patch))
            .await?
            .object)
    }

    /// Deletes exactly the object that was read, its dependents in the background; gone already is fine.
    pub async fn delete(&self, key: &ObjectKey, uid: Option<&str>) -> Result<(), Error> {
        let api = self.api(key).await?;
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match within("delete", key, api.delete(&key.name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn api(&self, key: &ObjectKey) -> Result<Api<Raw>, Error> {
        let found = self.discovery.resolve(&key.kind).await?;
        let Some(place) = found else {
            return Err(Error::UnknownKind {
                api_version: key.kind.api_version(),
                kind: key.kind.kind.clone(),
                certain: self.discovery.catalog().completeness() == Completeness::Complete,
            });
        };
        Ok(if place.namespaced {
            // As kubectl does for a manifest without a namespace.
            let namespace = if key.namespace.is_empty() {
                "default"
            } else {
                &key.namespace
            };
            Api::namespaced_with(self.client.clone(), namespace, &place.resource)
        } else {
            Api::all_with(self.client.clone(), &place.resource)
        })
    }
}

async fn within<T>(
    step: &'static str,
    key: &ObjectKey,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match timeout(ANSWER_DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Request {
            step,
            object: key.to_string(),
            source,
        }),
        Err(_) => Err(Error::Deadline {
            step,
            object: key.to_string(),
        }),
    }
}
