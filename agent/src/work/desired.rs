//! Desired state of an object in the member: the manifest of a Work with the fleet's labels and
//! annotations.

use muster_interpreter::prune_server_fields;
use muster_shared::k8s::GroupVersionKind;
use muster_shared::merge::object_in;
use muster_shared::names::{annotation, label, namespaced_key};
use serde_json::{Map, Value, json};

use super::ownership::Origin;

/// Reason why a manifest cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A field that every Kubernetes object has is missing.
    #[error("manifest {ordinal} of the work has no {field}")]
    Incomplete {
        /// Position in the Work.
        ordinal: usize,
        /// Missing field.
        field: &'static str,
    },
    /// A field that is part of the object's URL cannot be: the client would send nothing, or ask
    /// for something else.
    #[error("manifest {ordinal} of the work has {field} {value:?}, which cannot be part of a URL")]
    Unaddressable {
        /// Position in the Work.
        ordinal: usize,
        /// Field.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

/// The identity of one object in the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// API group, version and kind.
    pub kind: GroupVersionKind,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Reads the identity from a manifest.
    pub fn of(manifest: &Value, ordinal: usize) -> Result<Self, Error> {
        let text = |path: &str, field| {
            let found = manifest
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default();
            if found.is_empty() {
                Err(Error::Incomplete { ordinal, field })
            } else {
                Ok(found)
            }
        };
        let api_version = text("/apiVersion", "apiVersion")?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = text("/kind", "kind")?;
        let namespace = manifest.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).unwrap_or_default();
        let name = text("/metadata/name", "metadata.name")?;
        for (field, value) in [
            ("apiVersion", group),
            ("apiVersion", version),
            ("metadata.namespace", namespace),
            ("metadata.name", name),
        ] {
            if !can_be_in_url(value) {
                let value = value.to_owned();
                return Err(Error::Unaddressable {
                    ordinal,
                    field,
                    value,
                });
            }
        }
        Ok(Self {
            kind: GroupVersionKind::gvk(group, version, kind),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns the group, kind, namespace and name: what two keys of one object have in common, in
    /// whatever version of the API.
    pub fn object(&self) -> (String, String, String, String) {
        let Self {
            kind,
            namespace,
            name,
        } = self.clone();
        (kind.group, kind.kind, namespace, name)
    }

    /// Returns the kind, namespace and name: what two keys of one object that is served in two API
    /// groups have in common. Only the uids say whether it is one object.
    pub fn across_groups(&self) -> (String, String, String) {
        let (_, kind, namespace, name) = self.object();
        (kind, namespace, name)
    }

    /// Returns the value by which keys are sorted.
    pub fn order(&self) -> impl Ord + '_ {
        let kind = &self.kind;
        (
            &self.name,
            &self.namespace,
            &kind.kind,
            &kind.group,
            &kind.version,
        )
    }

    /// Returns `namespace/name`, or the name alone if there is no namespace.
    pub fn path(&self) -> String {
        namespaced_key(&self.namespace, &self.name)
    }

    /// Returns the keys that a manifest may have for an object: with the namespace where the server
    /// keeps it, and with none.
    pub fn spellings(&self) -> [Self; 2] {
        let bare = Self {
            namespace: String::new(),
            ..self.clone()
        };
        [self.clone(), bare]
    }

    /// Returns the key under which a server stores the object that a manifest makes: in the default
    /// namespace where the manifest names none, as for kubectl, and without one where its kind has
    /// none.
    #[must_use]
    pub fn stored(&self, namespaced: bool) -> Self {
        let namespace = match self.namespace.as_str() {
            _ if !namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }
}

/// Returns whether a text can be one part of the path of a URL without escapes: the client escapes
/// nothing.
fn can_be_in_url(text: &str) -> bool {
    let path = format!("/{text}");
    !text.contains(['/', '?', '#', '%'])
        && ![".", ".."].contains(&text)
        && http::uri::PathAndQuery::try_from(path).is_ok()
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.path())
    }
}

/// Returns the manifest as it is applied: without metadata of others, and with the labels and
/// annotations by which the agent finds the object.
///
/// Karmada's control plane marks its manifests already; Works made by hand or by other controllers
/// get the marks here. The id of the fleet in a manifest is ignored, because a template may be a
/// copy of an object in some member.
pub fn desired(manifest: &Value, work: Origin<'_>, fleet: Option<&str>) -> Value {
    let mut desired = manifest.clone();
    // They belong to the API server or to other writers in the member.
    prune_server_fields(&mut desired);
    let Some(object) = desired.as_object_mut() else {
        return desired;
    };
    leave_open(object);
    if is_aggregated(object) {
        object.remove("rules");
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return desired;
    };
    metadata.retain(|_, value| !value.is_null());
    let metadata = &mut desired["metadata"];
    object_in(metadata, "labels")[label::MANAGED] = json!("true");
    let annotations = object_in(metadata, "annotations");
    annotations[annotation::WORK_NAMESPACE] = json!(work.namespace);
    annotations[annotation::WORK_NAME] = json!(work.name);
    if let Some(fleet) = fleet {
        annotations[annotation::FLEET] = json!(fleet);
    } else if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(annotation::FLEET);
    }
    desired
}

/// Returns whether an object is a role whose rules a controller in each cluster puts together from
/// other roles there. Whatever else is written into them, it replaces.
fn is_aggregated(object: &Map<String, Value>) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let is_role = text("apiVersion").starts_with("rbac.authorization.k8s.io/");
    let rule = object.get("aggregationRule");
    is_role && text("kind") == "ClusterRole" && rule.is_some_and(Value::is_object)
}

/// Removes authorities that a manifest does not name but leaves open, as charts do where somebody
/// in the cluster fills them in: an empty text, or a line break in base64. Sent, they would take
/// the authority that is there away again.
fn leave_open(object: &mut Map<String, Value>) {
    const OPEN: [&str; 2] = ["", "Cg=="];
    let close = |client: Option<&mut Value>| {
        if let Some(client) = client.and_then(Value::as_object_mut)
            && client
                .get("caBundle")
                .and_then(Value::as_str)
                .is_some_and(|it| OPEN.contains(&it))
        {
            client.remove("caBundle");
        }
    };
    match object.get("kind").and_then(Value::as_str) {
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            let hooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
            for hook in hooks.into_iter().flatten() {
                close(hook.get_mut("clientConfig"));
            }
        }
        Some("CustomResourceDefinition") => {
            let spec = object.get_mut("spec");
            close(spec.and_then(|it| it.pointer_mut("/conversion/webhook/clientConfig")));
        }
        Some("APIService") => close(object.get_mut("spec")),
        _ => {}
    }
}

/// An object with which others go when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container<'a> {
    /// A namespace, with everything in it.
    Namespace(&'a str),
    /// The definition of a kind, with all objects of the kind.
    Definition {
        /// Group of the kind.
        group: &'a str,
        /// Name of the kind.
        kind: &'a str,
    },
}

impl<'a> Container<'a> {
    /// Reads an object; `None` if nothing else goes with it.
    pub fn of(object: &'a Value) -> Option<Self> {
        let api_version = object["apiVersion"].as_str()?;
        match (api_version.split('/').next()?, object["kind"].as_str()?) {
            ("v1", "Namespace") => Some(Self::Namespace(object["metadata"]["name"].as_str()?)),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::Definition {
                group: object["spec"]["group"].as_str()?,
                kind: object["spec"]["names"]["kind"].as_str()?,
            }),
            _ => None,
        }
    }
}

/// Returns the rank of a kind in the order in which the objects of a Work are applied: namespaces
/// first, then definitions.
pub fn rank(kind: &GroupVersionKind) -> u8 {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_sent_without_what_others_own_and_with_our_marks() {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "finalizers": ["x"],
                "creationTimestamp": null, "labels": {"app": "web"}},
            "data": {"k": "v"}, "status": {"x": 1},
        });
        let mut expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"app": "web", "karmada.io/managed": "true"},
                "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "a-1"}},
            "data": {"k": "v"},
        });
        let work = Origin {
            namespace: "karmada-es-m1",
            name: "a-1",
        };
        assert_eq!(desired(&manifest, work, None), expected);
        expected["metadata"]["annotations"]["work.muster.io/fleet"] = json!("f");
        assert_eq!(desired(&manifest, work, Some("f")), expected);
    }

    #[test]
    fn a_manifest_does_not_say_which_fleet_it_is_from() {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "annotations": {"work.muster.io/fleet": "other"}}});
        for fleet in [None, Some("f")] {
            let work = Origin {
                namespace: "es",
                name: "w",
            };
            let desired = desired(&manifest, work, fleet);
            let found = &desired["metadata"]["annotations"]["work.muster.io/fleet"];
            assert_eq!(found.as_str(), fleet);
        }
    }

    #[test]
    fn a_manifest_without_identity_is_refused_by_name_of_the_field() {
        let without_version = json!({"kind": "A", "metadata": {"name": "a"}});
        let without_kind = json!({"apiVersion": "v1", "metadata": {"name": "a"}});
        let without_name = json!({"apiVersion": "v1", "kind": "A", "metadata": {}});
        for (manifest, field) in [
            (without_version, "apiVersion"),
            (without_kind, "kind"),
            (without_name, "metadata.name"),
            (json!([]), "apiVersion"),
        ] {
            let expected = Err(Error::Incomplete { ordinal: 0, field });
            assert_eq!(ObjectKey::of(&manifest, 0), expected);
        }
    }

    #[test]
    fn a_manifest_whose_object_no_url_can_name_is_refused() {
        let manifest = |api_version: &str, namespace: &str, name: &str| {
            let metadata = json!({"namespace": namespace, "name": name});
            json!({"apiVersion": api_version, "kind": "A", "metadata": metadata})
        };
        for (api_version, namespace, name, refused) in [
            ("v1", "", "a", None),
            ("rbac.authorization.k8s.io/v1", "", "system:node|a@b", None),
            ("v1", "", "a b", Some("metadata.name")),
            ("v1", "", "a/b", Some("metadata.name")),
            ("v1", "", "a%2Fb", Some("metadata.name")),
            ("v1", "", "?", Some("metadata.name")),
            ("v1", "", "a#b", Some("metadata.name")),
            ("v1", "", "..", Some("metadata.name")),
            ("v1", "a?b", "a", Some("metadata.namespace")),
            ("my group/v1", "", "a", Some("apiVersion")),
            ("a/v1/b", "", "a", Some("apiVersion")),
        ] {
            let read = ObjectKey::of(&manifest(api_version, namespace, name), 0);
            let field = match read {
                Err(Error::Unaddressable { field, .. }) => Some(field),
                read => read.map(|_| None).unwrap(),
            };
            assert_eq!(field, refused, "{api_version} {namespace} {name}");
        }
    }

    #[test]
    fn an_authority_that_the_manifest_leaves_open_is_left_to_who_fills_it_in() {
        let work = Origin {
            namespace: "es",
            name: "w",
        };
        let object = |group: &str, kind: &str, key: &str, content: Value| {
            json!({"apiVersion": format!("{group}/v1"), "kind": kind,
                "metadata": {"name": "a"}, key: content})
        };
        for (bundle, sent) in [("", false), ("Cg==", false), ("LS0tLS1CRUdJTg==", true)] {
            let client = json!({"clientConfig": {"caBundle": bundle}});
            let named = json!([{"name": "a.example.com", "clientConfig": {"caBundle": bundle}}]);
            let hooks = |kind: &str| {
                let group = "admissionregistration.k8s.io";
                object(group, kind, "webhooks", named.clone())
            };
            let kinds = |kind: &str, group: &str, spec| object(group, kind, "spec", spec);
            let conversion = json!({"conversion": {"webhook": client}});
            let definitions = kinds(
                "CustomResourceDefinition",
                "apiextensions.k8s.io",
                conversion,
            );
            let served = json!({"caBundle": bundle});
            let services = kinds("APIService", "apiregistration.k8s.io", served);
            let of_hooks = "/webhooks/0/clientConfig/caBundle";
            let of_conversion = "/spec/conversion/webhook/clientConfig/caBundle";
            for (manifest, path) in [
                (hooks("MutatingWebhookConfiguration"), of_hooks),
                (hooks("ValidatingWebhookConfiguration"), of_hooks),
                (definitions, of_conversion),
                (services, "/spec/caBundle"),
            ] {
                let sends = desired(&manifest, work, None).pointer(path).is_some();
                assert_eq!(sends, sent, "{manifest}");
            }
        }
    }

    #[test]
    fn the_version_of_the_api_is_not_part_of_what_an_object_is() {
        let key = |api_version: &str| {
            let manifest = json!({"apiVersion": api_version, "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "default"}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        assert_eq!(key("apps/v1").object(), key("apps/v1beta1").object());
        assert_ne!(key("apps/v1").object(), key("extensions/v1").object());
    }

    #[test]
    fn the_rules_that_a_member_puts_together_from_other_roles_are_not_sent() {
        let work = Origin {
            namespace: "es",
            name: "w",
        };
        let selectors = json!([{"matchLabels": {"to": "monitoring"}}]);
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let selected = json!({"clusterRoleSelectors": selectors});
        for (aggregation, rules, sent) in [
            // As in Kubernetes' own example: the control plane fills in the rules.
            (&selected, json!([]), false),
            // As the fleet's own controller has filled them in.
            (&selected, rules.clone(), false),
            (&Value::Null, rules, true),
        ] {
            let role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "monitoring"}, "aggregationRule": aggregation, "rules": rules,
            });
            let sends = desired(&role, work, None).get("rules").is_some();
            assert_eq!(sends, sent, "{role}");
        }
    }
}
