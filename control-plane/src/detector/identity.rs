//! Whose a binding is. Its name says kind and name of a template, and that is no identity: a former
//! template of that name, and one of the same kind in another API group, have a binding of the same
//! name.

use kube::core::ObjectMeta;
use muster_shared::api::binding::{Binding, ObjectReference};
use muster_shared::names;

use super::template::TemplateKey;

/// Whose a binding is that bears the name of a template's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The template's.
    Template,
    /// A former template's of the same name, to be removed by garbage collection.
    Former {
        /// Its uid.
        uid: String,
    },
    /// Another object's.
    Other(ObjectReference),
}

/// Whose a binding is. The uid decides: that of the controller among its owners, or of the resource
/// that it names. A binding without either belongs to the template that it names. `uid` is that of
/// the template, `None` when it is not known: then the name decides.
pub fn owner(held: &impl Binding, key: &TemplateKey, uid: Option<&str>) -> Owner {
    let resource = &held.spec().resource;
    let named = TemplateKey::of(resource);
    let same_name = named.kind.kind == key.kind.kind
        && named.kind.group() == key.kind.group()
        && named.namespace == key.namespace
        && named.name == key.name;
    match owner_uid(held.meta(), resource).zip(uid) {
        Some((owner, uid)) if owner == uid => Owner::Template,
        Some((owner, _)) if same_name => Owner::Former {
            uid: owner.to_owned(),
        },
        None if same_name => Owner::Template,
        Some(_) | None => Owner::Other(resource.clone()),
    }
}

fn owner_uid<'a>(held: &'a ObjectMeta, resource: &'a ObjectReference) -> Option<&'a str> {
    let owners = held.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let controller = controllers.next().map(|owner| owner.uid.as_str());
    let given = controller.or(resource.uid.as_deref());
    given.filter(|uid| !uid.is_empty())
}

/// The name of the binding of a template and of its Works, when an API server takes them.
pub fn sound_name(kind: &str, namespace: &str, name: &str) -> Result<String, String> {
    let binding = names::binding(kind, name);
    for made in [&binding, &names::work(kind, name, namespace)] {
        if !is_object_name(made) {
            return Err(made.clone());
        }
    }
    Ok(binding)
}

/// Whether a text is a DNS subdomain (RFC 1123), as the names of custom resources have to be.
fn is_object_name(name: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
            && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::api::binding::ResourceBinding;
    use serde_json::{Value, json};

    use super::*;
    use crate::detector::Kind;

    #[test]
    fn the_uid_decides_whose_a_binding_is_and_the_name_only_where_there_is_none() {
        let key = TemplateKey {
            kind: Arc::new(Kind::new("batch/v1", "Job")),
            namespace: Some("shop".into()),
            name: "sum".into(),
        };
        let owners = |uid: &str| json!([{ "apiVersion": "x", "kind": "x", "name": "x", "uid": uid, "controller": true }]);
        let resource = |api_version: &str, uid: Value| json!({ "apiVersion": api_version, "kind": "Job", "namespace": "shop", "name": "sum", "uid": uid });
        let former = |uid: &str| Owner::Former { uid: uid.into() };
        let other =
            |resource: &Value| Owner::Other(serde_json::from_value(resource.clone()).unwrap());
        let foreign = resource("batch.volcano.sh/v1alpha1", json!("v"));
        for (what, owners, resource, uid, expected) in [
            (
                "its own",
                owners("u"),
                resource("batch/v1", json!("u")),
                Some("u"),
                Owner::Template,
            ),
            (
                "its own, of another version",
                owners("u"),
                resource("batch/v1beta1", json!("u")),
                Some("u"),
                Owner::Template,
            ),
            (
                "its own, of another group",
                owners("u"),
                resource("extensions/v1", json!("u")),
                Some("u"),
                Owner::Template,
            ),
            (
                "a former one's",
                owners("old"),
                resource("batch/v1", json!("old")),
                Some("u"),
                former("old"),
            ),
            (
                "a former one's that names the present one",
                owners("old"),
                resource("batch/v1", json!("u")),
                Some("u"),
                former("old"),
            ),
            (
                "a former one's without owner",
                json!(null),
                resource("batch/v1", json!("old")),
                Some("u"),
                former("old"),
            ),
            (
                "of another group",
                owners("v"),
                foreign.clone(),
                Some("u"),
                other(&foreign),
            ),
            (
                "without uid",
                json!(null),
                resource("batch/v1", json!(null)),
                Some("u"),
                Owner::Template,
            ),
            (
                "of a template that is not known",
                owners("v"),
                resource("batch/v1", json!("v")),
                None,
                Owner::Template,
            ),
            (
                "of another group, not known either",
                owners("v"),
                foreign.clone(),
                None,
                other(&foreign),
            ),
        ] {
            let held = json!({ "metadata": { "name": "sum-job", "ownerReferences": owners }, "spec": { "resource": resource } });
            let held: ResourceBinding = serde_json::from_value(held).unwrap();
            assert_eq!(owner(&held, &key, uid), expected, "{what}");
        }
    }

    #[test]
    fn a_template_whose_binding_cannot_have_its_name_is_told_from_the_others() {
        for (kind, name, sound) in [
            ("Deployment", "web", true),
            ("ClusterRole", "system:node", true),
            ("ClusterRole", "system:node_proxy", false),
            ("Role", "a..b", false),
            ("ConfigMap", "a.b", true),
            ("ConfigMap", &"a".repeat(243), false),
            ("ConfigMap", &"a".repeat(200), true),
        ] {
            assert_eq!(sound_name(kind, "default", name).is_ok(), sound, "{name}");
        }
    }
}
