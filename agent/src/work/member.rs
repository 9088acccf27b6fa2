//! Client for objects of any kind in the member: get, apply, delete, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::client;
use muster_shared::k8s::{
    Api, Client, DeleteParams, GroupVersionKind, Patch, PatchParams, Preconditions,
    PropagationPolicy,
};
use serde_json::Value;
use tokio::time::timeout;

use super::desired::ObjectKey;
pub use super::raw::Raw;
use crate::discovery::{self, Discovery};

/// Field manager of the agent in `managedFields`.
pub const FIELD_MANAGER: &str = "muster-agent";
/// Namespace of an object whose manifest names none, as for kubectl.
const DEFAULT_NAMESPACE: &str = "default";
/// Message of an API server for a path of a resource that the group version does not have. For a
/// missing object it would name that.
const UNKNOWN_RESOURCE: &str = "the server could not find the requested resource";
/// Message of an API server that refuses an apply with a resourceVersion for a new object, as
/// Kubernetes before 1.23 does for Services.
const VERSION_OF_NEW: &str = "resourceVersion should not be set on objects to be created";
/// Deadline for one request to the member.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);

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

    /// Returns whether the member makes no object from an apply that names a version.
    pub fn refuses_version_of_new(&self) -> bool {
        let Self::Request { source, .. } = self else {
            return false;
        };
        matches!(source, kube::Error::Api(status) if status.message.contains(VERSION_OF_NEW))
    }

    /// Returns whether the member answered that there is no object of this name. A path that it
    /// does not serve is not found either, and says nothing about objects.
    fn is_missing(&self, name: &str) -> bool {
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
            Self::UnknownKind { .. } | Self::Unreadable { .. } | Self::Dismissed { .. } => false,
        }
    }
}

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
            Err(Error::Dismissed {
                step,
                object: key.to_string(),
            })
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

    /// Sends a merge patch of an object that exists; returns the object afterwards.
    pub async fn patch(&self, key: &ObjectKey, patch: &Value) -> Result<Value, Error> {
        let api = self.api(key).await?;
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        self.ask("patch", key)?;
        let raw = within("patch", key, api.patch(&key.name, &params, &patch)).await?;
        whole("patch", key, raw)
    }

    /// Deletes the object with this uid and version, its dependents in the background. Succeeds if
    /// the object is gone already.
    pub async fn delete(
        &self,
        key: &ObjectKey,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let api = self.api(key).await?;
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: uid.map(str::to_owned),
                resource_version: version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        };
        self.ask("delete", key)?;
        match within("delete", key, api.delete(&key.name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_missing(&key.name) => Ok(()),
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

    /// Returns the object where the server keeps it, so that two names of one object are equal:
    /// without a namespace where it has none, in the default one where the manifest names none. As
    /// it is where the member does not serve the kind.
    pub async fn place(&self, key: &ObjectKey) -> Result<ObjectKey, Error> {
        let place = self.discovery.resolve(&key.kind).await?;
        let namespace = match place {
            Some(place) if !place.namespaced => String::new(),
            Some(_) if key.namespace.is_empty() => DEFAULT_NAMESPACE.to_owned(),
            _ => key.namespace.clone(),
        };
        Ok(ObjectKey {
            namespace,
            ..key.clone()
        })
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
            return Err(Error::UnknownKind {
                api_version: key.kind.api_version(),
                kind: key.kind.kind.clone(),
            });
        };
        Ok(if place.namespaced {
            let namespace = if key.namespace.is_empty() {
                DEFAULT_NAMESPACE
            } else {
                &key.namespace
            };
            Api::namespaced_with(self.client.clone(), namespace, &place.resource)
        } else {
            Api::all_with(self.client.clone(), &place.resource)
        })
    }
}

fn whole(step: &'static str, key: &ObjectKey, raw: Raw) -> Result<Value, Error> {
    match raw.unreadable {
        None => Ok(raw.object),
        Some(reason) => Err(Error::Unreadable {
            step,
            object: key.to_string(),
            reason,
        }),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

    /// Returns a member that serves group `example.io` in version `v1` only.
    fn upgraded(writes: &Arc<AtomicUsize>) -> Member {
        let writes = Arc::clone(writes);
        let kind = |kind: &str, plural: &str, scope: &str| json!({"resource": plural, "scope": scope, "verbs": ["get"], "responseKind": {"kind": kind}});
        let resources = json!([
            kind("Thing", "things", "Namespaced"),
            kind("Place", "places", "Cluster")
        ]);
        let group = json!({"metadata": {"name": "example.io"}, "versions": [{"version": "v1", "resources": resources}]});
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            if request.method() != http::Method::GET {
                writes.fetch_add(1, Ordering::Relaxed);
            }
            let items = match request.uri().path() {
                "/apis" => vec![group.clone()],
                _ => Vec::new(),
            };
            let list = json!({"kind": "APIGroupDiscoveryList", "items": items});
            let body = kube::client::Body::from(list.to_string().into_bytes());
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        let client = Client::new(service, "default");
        let first = Arc::new(AtomicBool::new(true));
        Member::new(client.clone(), Discovery::new(client), move || {
            first.swap(false, Ordering::Relaxed)
        })
    }

    #[tokio::test]
    async fn whether_we_may_act_is_asked_before_each_write() {
        let writes = Arc::default();
        let member = upgraded(&writes);
        let key = ObjectKey {
            kind: GroupVersionKind::gvk("example.io", "v1", "Thing"),
            namespace: "b".into(),
            name: "a".into(),
        };
        let object =
            json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
        let dismissed = |outcome: Result<Value, Error>| outcome.is_err_and(|it| it.is_dismissal());
        assert!(!dismissed(member.apply(&key, &object, true).await));
        assert_eq!(writes.load(Ordering::Relaxed), 1);
        assert!(dismissed(member.apply(&key, &object, true).await));
        assert!(dismissed(member.patch(&key, &json!({})).await));
        let deleted = member.delete(&key, None, None).await;
        assert!(deleted.is_err_and(|it| it.is_dismissal() && !it.is_silence()));
        assert_eq!(writes.load(Ordering::Relaxed), 1);
    }

    /// Otherwise a Work that begins or ends to name the default namespace with an upgrade loses the
    /// object that it still wants.
    #[tokio::test]
    async fn an_object_of_a_version_that_is_gone_has_the_place_of_its_present_version() {
        let key = |kind: &str, namespace: &str, version: &str| ObjectKey {
            kind: GroupVersionKind::gvk("example.io", version, kind),
            namespace: namespace.into(),
            name: "a".into(),
        };
        let member = upgraded(&Arc::default());
        for (kind, namespace, place) in [
            ("Thing", "", "default"),
            ("Thing", "b", "b"),
            ("Place", "b", ""),
        ] {
            let found = member.place_served(&key(kind, namespace, "v1beta1")).await;
            assert_eq!(
                found.unwrap(),
                Some(key(kind, place, "v1")),
                "{kind} {namespace:?}"
            );
        }
    }
}
