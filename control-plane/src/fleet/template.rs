//! A template: a user's object of any kind in the fleet API, cached as compact text.
//!
//! As a tree of JSON values an object takes about eight times the memory of its text, and it is
//! read only when it or its policy changes.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use fnv::FnvHasher;
use kube::core::{DynamicObject, ObjectMeta};
use muster_interpreter::Dependency;
use muster_shared::api::binding::ObjectReference;
use muster_shared::names::{annotation, label, namespaced_key};
use muster_shared::watch::outline;
use muster_shared::watch::packing::{Codec, Parts};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::allocated::{blank_allocated, drop_blank};
use super::labelled::Labelled;

/// On a binding (ours): fingerprint of the template that it was made of. Every write of a
/// template's status makes a new version of it, so versions do not say whether the template
/// changed, and memory does not outlive the process.
pub const TEMPLATE_FINGERPRINT: &str = "detector.muster.io/template-fingerprint";

/// Returns the fingerprint of the template that a binding was made of, `None` before one was
/// recorded.
pub fn recorded_fingerprint(binding: &ObjectMeta) -> Option<&str> {
    binding.annotation(TEMPLATE_FINGERPRINT)
}

/// Group, version and kind in the form in which objects and selectors name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// `v1`, or group and version such as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl Kind {
    /// Makes a kind of an API version and the name of the kind.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }

    /// Returns the API group of the kind, empty for the core one.
    pub fn group(&self) -> &str {
        self.api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group)
    }

    /// Returns whether objects of the kind are Namespaces.
    pub fn is_namespace(&self) -> bool {
        (&*self.api_version, &*self.kind) == ("v1", "Namespace")
    }

    /// Returns the API version of the kind without the group.
    pub fn version(&self) -> &str {
        self.api_version
            .rsplit_once('/')
            .map_or(self.api_version.as_str(), |(_, version)| version)
    }
}

/// Kind, namespace and name of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    /// Kind of the template. Shared: there are few kinds and many templates.
    pub kind: Arc<Kind>,
    /// Namespace of the template, `None` for kinds without one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl TemplateKey {
    /// Returns the key of the template of a binding.
    pub fn of(resource: &ObjectReference) -> Self {
        Self {
            kind: Arc::new(Kind::new(
                resource.api_version.clone(),
                resource.kind.clone(),
            )),
            namespace: resource
                .namespace
                .clone()
                .filter(|namespace| !namespace.is_empty()),
            name: resource.name.clone(),
        }
    }

    /// Returns the key of a template of a kind.
    pub fn of_template(kind: &Arc<Kind>, template: &Template) -> Self {
        Self {
            kind: Arc::clone(kind),
            namespace: template.metadata.namespace.clone(),
            name: template.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Returns the key of the template that a dependency names, if it names one.
    pub fn of_dependency(dependency: &Dependency) -> Option<Self> {
        Some(Self {
            kind: Arc::new(Kind::new(
                dependency.api_version.clone(),
                dependency.kind.clone(),
            )),
            namespace: dependency.namespace.clone(),
            name: dependency.name.clone()?,
        })
    }

    /// Returns how a binding names the template with this metadata.
    pub fn resource(&self, metadata: &ObjectMeta) -> ObjectReference {
        ObjectReference {
            api_version: self.kind.api_version.clone(),
            kind: self.kind.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// Returns the reference by which the template with this metadata owns its binding.
    pub fn owner(&self, metadata: &ObjectMeta) -> Value {
        json!({
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": self.name,
            "uid": metadata.uid.as_deref().unwrap_or_default(),
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// One template.
#[derive(Clone, Debug)]
pub struct Template {
    /// Standard metadata, without the largest annotation.
    metadata: ObjectMeta,
    text: Box<str>,
    content: u64,
    fingerprint: u64,
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let name = namespaced_key(namespace, &self.name);
        write!(f, "{} {name}", self.kind.kind)
    }
}

impl Template {
    /// Takes an object in, without the values that its server gave it by itself.
    pub fn new(mut object: Value) -> Result<Self, serde_json::Error> {
        let families = blank_allocated(&mut object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = metadata(ObjectMeta::deserialize(
            object.get("metadata").unwrap_or(&Value::Null),
        )?);
        let text = object.to_string().into_boxed_str();
        drop_blank(&mut object);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.extend(families);
        }
        let content = content(&mut object);
        let fingerprint = without_claim(object);
        Ok(Self {
            metadata,
            text,
            content,
            fingerprint,
        })
    }

    /// Returns the object as JSON; it is parsed anew at each call. `kind` is filled in, because the
    /// items of a list of a built-in kind do not carry it.
    pub fn object(&self, kind: &Kind) -> Value {
        let mut object = self.to_override(kind);
        drop_blank(&mut object);
        object
    }

    /// Returns the object as overrides change it: the fields whose values its server gave it by
    /// itself are there, as null.
    pub fn to_override(&self, kind: &Kind) -> Value {
        let mut object: Value = serde_json::from_str(&self.text).unwrap_or_default();
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.kind);
        object
    }

    /// Returns the standard metadata of the template, but for the annotation that kubectl keeps
    /// what it applied in.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// Returns the labels of the template.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.labels.as_ref()
    }

    /// Returns a fingerprint of the template without its status and the fields that the server
    /// counts.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Returns a fingerprint of the content without the claim of a policy. It is the same in every
    /// process, so that a binding can record what it was made of.
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", self.fingerprint)
    }

    /// Returns whether a binding records that it was made of another state of the template.
    pub fn is_ahead_of(&self, binding: &ObjectMeta) -> bool {
        recorded_fingerprint(binding).is_some_and(|recorded| recorded != self.fingerprint())
    }

    /// Returns whether the template is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// Returns the metadata as it is kept: without the largest annotation by far, at which no policy
/// checks. It stays in the text.
fn metadata(mut whole: ObjectMeta) -> ObjectMeta {
    if let Some(annotations) = &mut whole.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    whole
}

/// Returns the codec of templates: their text, the fingerprints that were taken of it, and the
/// labels by which policies select them.
pub fn codec() -> Codec<Template> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    Codec {
        pack: |it| {
            let object: &RawValue = serde_json::from_str(&it.text)?;
            Ok(Parts {
                text: serde_json::to_vec(&(it.content, it.fingerprint, object))?,
                labels: outline::text(it.labels()),
                shared: None,
            })
        },
        unpack: |text, _| {
            let (content, fingerprint, object): (_, _, Box<RawValue>) =
                serde_json::from_slice(text)?;
            let head: Head = serde_json::from_str(object.get())?;
            Ok(Template {
                metadata: metadata(head.metadata),
                text: object.into(),
                content,
                fingerprint,
            })
        },
    }
}

/// Drops what changes without anybody changing the object, and takes the fingerprint of the rest.
fn content(object: &mut Value) -> u64 {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        // Items of a list of a built-in kind come without these two, single objects with them.
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    fingerprint(object)
}

/// What a policy writes on a template, and therefore no change that a binding follows.
const CLAIM: [&str; 5] = [
    label::PROPAGATION_POLICY_ID,
    label::CLUSTER_PROPAGATION_POLICY_ID,
    annotation::PROPAGATION_POLICY_NAMESPACE,
    annotation::PROPAGATION_POLICY_NAME,
    annotation::CLUSTER_PROPAGATION_POLICY_NAME,
];

fn without_claim(mut object: Value) -> u64 {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("generation");
        for key in ["labels", "annotations"] {
            if let Some(pairs) = metadata.get_mut(key).and_then(Value::as_object_mut) {
                pairs.retain(|key, _| !CLAIM.contains(&key.as_str()));
                if pairs.is_empty() {
                    metadata.remove(key);
                }
            }
        }
    }
    fingerprint(&object)
}

/// Returns the FNV-1a hash of 64 bits of the text of the object, whose keys are sorted.
fn fingerprint(object: &Value) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(object.to_string().as_bytes());
    hasher.finish()
}

impl Labelled for Template {
    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotation(key)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

muster_shared::resource_as!(Template as DynamicObject);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_status_alone_is_not_a_change_of_the_content() {
        let template = |version: &str, replicas: i64, ready: i64| {
            Template::new(json!({
                "metadata": { "name": "web", "resourceVersion": version, "managedFields": [{ "time": version }] },
                "spec": { "replicas": replicas }, "status": { "readyReplicas": ready },
            }))
            .unwrap()
        };
        assert_eq!(template("1", 2, 0).content(), template("2", 2, 2).content());
        assert_ne!(template("1", 2, 0).content(), template("2", 3, 0).content());
    }

    #[test]
    fn a_service_that_nobody_changed_has_the_fingerprint_that_its_binding_recorded_before() {
        // A lazy policy takes effect where the two differ, and the version before this one left no
        // IP families out.
        let service = json!({
            "metadata": {"namespace": "shop", "name": "web", "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {}}}},
            ]},
            "spec": {
                "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{"port": 80, "protocol": "TCP"}],
            },
        });
        let template = Template::new(service).unwrap();
        assert_eq!(template.fingerprint(), "0fc9b82bfe421cc3");
        let kind = Kind::new("v1", "Service");
        let [sent, overridden] = [template.object(&kind), template.to_override(&kind)];
        assert_eq!(sent["spec"].get("ipFamilies"), None);
        assert_eq!(overridden["spec"].get("ipFamilies"), Some(&Value::Null));
    }

    #[test]
    fn the_claim_of_a_policy_is_no_change_of_the_template() {
        let template = |metadata: Value| Template::new(json!({ "metadata": metadata })).unwrap();
        let bare = template(json!({ "name": "web" }));
        let claimed = template(
            json!({ "name": "web", "labels": { "propagationpolicy.karmada.io/permanent-id": "p" } }),
        );
        let labelled = template(json!({ "name": "web", "labels": { "app": "web" } }));
        assert_ne!(bare.content(), claimed.content());
        assert_eq!(bare.fingerprint(), claimed.fingerprint());
        assert_ne!(bare.fingerprint(), labelled.fingerprint());
    }

    #[test]
    fn a_fingerprint_is_the_same_in_every_process() {
        let template = Template::new(
            json!({ "metadata": { "name": "web", "uid": "u" }, "data": { "a": "1" } }),
        );
        // FNV-1a of {"data":{"a":"1"},"metadata":{"name":"web","uid":"u"}}.
        assert_eq!(template.unwrap().fingerprint(), "649bd551a545c93a");
    }

    #[test]
    fn an_item_of_a_list_gets_its_kind_back() {
        let template = Template::new(json!({ "metadata": { "name": "web" } })).unwrap();
        let object = template.object(&Kind::new("apps/v1", "Deployment"));
        assert_eq!(
            (&object["apiVersion"], &object["kind"]),
            (&json!("apps/v1"), &json!("Deployment"))
        );
    }

    #[test]
    fn group_and_version_are_the_two_halves_of_the_api_version() {
        let kind = Kind::new("apps/v1", "Deployment");
        assert_eq!((kind.group(), kind.version()), ("apps", "v1"));
        let core = Kind::new("v1", "ConfigMap");
        assert_eq!((core.group(), core.version()), ("", "v1"));
    }
}
