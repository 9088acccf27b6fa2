//! The bindings of the fleet: what names them, where they are cached and how they are written.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use kube::Client;
use kube::api::Api;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{BindingSnapshot, ObjectReference};
use muster_shared::api::scope::ResourceScope;
use muster_shared::client::says_absent;
use muster_shared::interner::Interner;
use muster_shared::k8s::{CoreObjectReference, ObjectMeta, OwnerReference};
use muster_shared::names;
use muster_shared::watch::packing::Kept;
use muster_shared::watch::{Doubt, Informer, Presence, Selection};
use serde::Serialize;
use serde_json::Value;

use super::Fleet;
use super::api_error::ApiError;
use super::binding_index::{BindingIndex, Trait};
use super::followers::Followers;
use super::intern::{BindingInterner, codec};
use super::scoped::Scoped;
use super::template::TemplateKey;
use super::write::{Written, merge, merge_status};

/// Keys that somebody keeps.
static KEPT: LazyLock<Interner<BindingKey>> = LazyLock::new(Interner::default);

/// Namespace and name of a binding of either kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BindingKey {
    /// Namespace of the binding, `None` for a `ClusterResourceBinding`.
    pub namespace: Option<String>,
    /// Name of the binding.
    pub name: String,
}

impl BindingKey {
    /// Returns the key of a binding.
    pub fn of(binding: &AnyBinding) -> Self {
        let metadata = &binding.metadata;
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Returns the key as all who keep it share it.
    pub fn shared(self) -> Arc<Self> {
        let mut key = Arc::new(self);
        KEPT.share(&mut key);
        key
    }

    /// Returns the key of the binding that refers to another. An empty namespace is none, as in Go.
    pub fn of_snapshot(snapshot: &BindingSnapshot) -> Self {
        let namespace = snapshot.namespace.clone();
        Self {
            namespace: namespace.filter(|it| !it.is_empty()),
            name: snapshot.name.clone(),
        }
    }

    /// Returns the key of the binding of a template.
    pub fn for_template(template: &TemplateKey) -> Self {
        Self {
            namespace: template.namespace.clone(),
            name: names::binding(&template.kind.kind, &template.name),
        }
    }

    /// Returns the scope of the binding.
    pub fn scope(&self) -> ResourceScope {
        ResourceScope::of(self.namespace.as_deref())
    }

    /// Returns the API by which the binding is read and written; the client has to be one of the
    /// rank that fits.
    pub fn api(&self, client: &Client) -> Api<AnyBinding> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.scope()),
            None => Api::all_with(client.clone(), &self.scope()),
        }
    }

    /// Merges a patch into the binding as it was read; `step` says what for.
    ///
    /// # Errors
    /// The write has failed for another reason than that the binding is not as it was read.
    pub async fn merge(
        &self,
        client: &Client,
        step: &'static str,
        patch: &Value,
    ) -> Result<Written<AnyBinding>, ApiError> {
        let answer = merge(&self.api(client), &self.name, patch).await;
        Written::of(answer).map_err(ApiError::of(step, self))
    }

    /// Merges a patch into the status of the binding as it was read; `step` says what for.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge).
    pub async fn merge_status(
        &self,
        client: &Client,
        step: &'static str,
        patch: &Value,
    ) -> Result<Written<AnyBinding>, ApiError> {
        let answer = merge_status(&self.api(client), &self.name, patch).await;
        Written::of(answer).map_err(ApiError::of(step, self))
    }

    /// Returns whether the binding exists. The API is asked for one that is not in the cache: a
    /// list may have lacked it, and one that was seen being deleted may have been made again.
    ///
    /// # Errors
    /// Where the API answers neither that it exists nor that it does not.
    pub async fn exists(&self, fleet: &Fleet) -> Result<bool, ApiError> {
        let known = fleet.bindings.presence(self);
        if let Presence::There(_) | Presence::Unknown(Doubt::Unreadable { .. }) = known {
            return Ok(true);
        }
        let answer = self.api(&fleet.client).get_metadata(&self.name).await;
        self.is_found(answer.map(drop))
    }

    fn is_found(&self, answer: Result<(), kube::Error>) -> Result<bool, ApiError> {
        match answer {
            Ok(()) => Ok(true),
            Err(error) if says_absent(&error, &self.name) => Ok(false),
            Err(error) => Err(ApiError::of("look for", self)(error)),
        }
    }
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.scope().binding_kind();
        let namespace = self.namespace.as_deref().unwrap_or_default();
        write!(f, "{kind} {}", names::namespaced_key(namespace, &self.name))
    }
}

/// The caches of all bindings, of both kinds. Cheap to clone.
#[derive(Clone)]
pub struct Bindings {
    caches: Scoped<AnyBinding>,
    index: BindingIndex,
    followers: Followers,
}

impl Bindings {
    /// Prepares the caches, which share what many bindings have in common.
    pub fn new(client: &Client) -> Self {
        let common = Arc::new(BindingInterner::default());
        let informer = |scope| {
            let api = Api::all_with(client.clone(), &scope);
            let common = Arc::clone(&common);
            let form = move |binding: &mut AnyBinding| common.share(binding);
            Informer::packing(api, Selection::everything(), form, codec())
        };
        let this = Self {
            caches: Scoped::new([
                ("resourcebindings", informer(ResourceScope::Namespaced)),
                ("clusterresourcebindings", informer(ResourceScope::Cluster)),
            ]),
            index: BindingIndex::default(),
            followers: Followers::default(),
        };
        for (_, informer) in this.informers() {
            this.index.follow(informer);
            this.followers.follow(informer);
        }
        this
    }

    /// Returns a binding as the caches have it.
    pub fn get(&self, key: &BindingKey) -> Option<Arc<AnyBinding>> {
        let informer = self.of(key);
        informer.get(key.namespace.as_deref(), &key.name)
    }

    /// Returns a binding as the caches have it, of many that are read one after the other.
    pub fn peek(&self, key: &BindingKey) -> Option<Arc<AnyBinding>> {
        let informer = self.of(key);
        informer.peek(key.namespace.as_deref(), &key.name)
    }

    /// Returns what is known of a binding: absence from a cache is no deletion.
    pub fn presence(&self, key: &BindingKey) -> Presence<Arc<AnyBinding>> {
        let informer = self.of(key);
        informer.presence(key.namespace.as_deref(), &key.name)
    }

    /// Returns the index of the bindings, which names some without reading any.
    pub fn index(&self) -> &BindingIndex {
        &self.index
    }

    /// Returns the bindings of a namespace, or all if none is given, that are or have something,
    /// one after the other.
    pub fn having(
        &self,
        what: Trait,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = Arc<AnyBinding>> + use<'_> {
        let keys = self.index.having(what, namespace).into_iter();
        keys.filter_map(|key| self.peek(&key))
    }

    /// Returns the workloads with data, and their objects.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// Returns a binding as the caches would keep it.
    pub fn kept(&self, binding: AnyBinding) -> Arc<AnyBinding> {
        self.of(&BindingKey::of(&binding)).kept(binding)
    }

    /// Returns a binding as the caches hold it, if they hold this version.
    pub fn held(&self, binding: &AnyBinding) -> Option<Kept<AnyBinding>> {
        self.of(&BindingKey::of(binding)).held(binding)
    }

    fn of(&self, key: &BindingKey) -> &Informer<AnyBinding> {
        self.caches.of(key.namespace.as_deref())
    }
}

impl Deref for Bindings {
    type Target = Scoped<AnyBinding>;

    fn deref(&self) -> &Self::Target {
        &self.caches
    }
}

/// Returns the reference by which events name the resource of a binding.
pub fn event_reference(resource: &ObjectReference) -> CoreObjectReference {
    CoreObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        namespace: resource.namespace.clone(),
        name: Some(resource.name.clone()),
        uid: resource.uid.clone(),
        ..CoreObjectReference::default()
    }
}

/// Returns the owner reference of an object's controller: garbage collection removes the object
/// with it.
pub fn controller_of(held: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = held.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::key;

    #[test]
    fn a_referrer_with_an_empty_namespace_is_one_of_the_whole_fleet() {
        for (namespace, expected) in [(None, None), (Some(""), None), (Some("a"), Some("a"))] {
            let snapshot = BindingSnapshot {
                namespace: namespace.map(str::to_owned),
                name: "web-deployment".to_owned(),
                ..BindingSnapshot::default()
            };
            let key = BindingKey::of_snapshot(&snapshot);
            assert_eq!(key.namespace.as_deref(), expected, "{namespace:?}");
        }
    }

    #[test]
    fn only_an_answer_about_the_binding_itself_says_that_it_is_absent() {
        let key = key("web-deployment");
        let refusal = |reason: &str, code: u16, name: &str| {
            let status = json!({
                "status": "Failure", "message": "", "reason": reason, "code": code,
                "details": { "name": name, "kind": "resourcebindings" },
            });
            Err(kube::Error::Api(Box::new(
                serde_json::from_value(status).unwrap(),
            )))
        };
        let own = "web-deployment";
        for (what, answer, expected) in [
            ("there", Ok(()), Some(true)),
            ("not there", refusal("NotFound", 404, own), Some(false)),
            ("no such kind", refusal("NotFound", 404, ""), None),
            ("another object", refusal("NotFound", 404, "default"), None),
            ("not allowed", refusal("Forbidden", 403, own), None),
            ("in trouble", refusal("InternalError", 500, ""), None),
        ] {
            assert_eq!(key.is_found(answer).ok(), expected, "{what}");
        }
    }
}
