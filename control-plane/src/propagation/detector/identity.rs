//! Decides to which template a binding belongs. Its name consists of kind and name, which is not an
//! identity: an earlier template of that name, and one of the same kind in another API group, have
//! a binding of the same name.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::names;

use crate::fleet::binding::controller_of;
use crate::fleet::selection::given;
use crate::fleet::template::TemplateKey;

/// Owner of the binding that has the name of a template's binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The template.
    Template,
    /// An earlier template of the same name; the binding will be garbage-collected.
    Former {
        /// UID of the earlier template.
        uid: String,
    },
    /// Another object.
    Other(ObjectReference),
}

/// Returns the owner of a binding. The uid of the controller among its owners decides: garbage
/// collection removes the binding with that object. A binding without a controller stays, and
/// belongs to the template that it names, or whose uid it records. `uid` is that of the template,
/// `None` when it is not known: then the name decides.
pub fn owner(held: &AnyBinding, key: &TemplateKey, uid: Option<&str>) -> Owner {
    let resource = &held.spec.resource;
    let named = TemplateKey::of(resource);
    let same_name = named.kind.kind == key.kind.kind
        && named.kind.group() == key.kind.group()
        && named.namespace == key.namespace
        && named.name == key.name;
    let controller = given(controller_of(&held.metadata).map(|owner| owner.uid.as_str()));
    let recorded = resource.uid.as_deref();
    match (controller, uid) {
        (Some(owner), Some(uid)) if owner == uid => Owner::Template,
        (Some(owner), Some(_)) if same_name => Owner::Former {
            uid: owner.to_owned(),
        },
        (None, _) | (_, None) if same_name => Owner::Template,
        (None, Some(uid)) if recorded == Some(uid) => Owner::Template,
        _ => Owner::Other(resource.clone()),
    }
}

/// Returns the name of the binding of a template, if an API server takes that name and the name of
/// its Works. The error is the name that it does not take.
pub fn sound_name(kind: &str, namespace: &str, name: &str) -> Result<String, String> {
    let binding = names::binding(kind, name);
    for made in [&binding, &names::work(kind, name, namespace)] {
        if !names::is_subdomain(made) {
            return Err(made.clone());
        }
    }
    Ok(binding)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::template_key;

    fn resource(api_version: &str, uid: Option<&str>) -> Value {
        json!({ "apiVersion": api_version, "kind": "Job", "namespace": "shop", "name": "sum", "uid": uid })
    }

    /// Returns the owner of a binding with this controller, seen from a template with this uid.
    fn owner_of(controller: Option<&str>, resource: &Value, uid: Option<&str>) -> Owner {
        let owners = controller.map(|uid| {
            json!([{ "apiVersion": "x", "kind": "x", "name": "x", "uid": uid, "controller": true }])
        });
        let held = json!({ "metadata": { "name": "sum-job", "ownerReferences": owners }, "spec": { "resource": resource } });
        let held: AnyBinding = serde_json::from_value(held).unwrap();
        owner(&held, &template_key("batch/v1", "Job", "sum"), uid)
    }

    /// Returns the resource of a binding of another group's kind of this name.
    fn foreign() -> Value {
        resource("batch.volcano.sh/v1alpha1", Some("v"))
    }

    fn other(resource: &Value) -> Owner {
        Owner::Other(serde_json::from_value(resource.clone()).unwrap())
    }

    #[test]
    fn the_uid_of_its_controller_decides_whose_a_binding_is() {
        use Owner::Template;
        let former = || Owner::Former { uid: "old".into() };
        let job = |uid| resource("batch/v1", Some(uid));
        let older = |group| resource(group, Some("u"));
        let u = Some("u");
        for (what, controller, resource, uid, expected) in [
            ("its own", "u", job("u"), u, Template),
            ("another version", "u", older("batch/v1beta1"), u, Template),
            ("another group", "u", older("extensions/v1"), u, Template),
            ("a former one's", "old", job("old"), u, former()),
            ("a former one's, named anew", "old", job("u"), u, former()),
            ("of another group", "v", foreign(), u, other(&foreign())),
            ("of an unknown template", "v", job("v"), None, Template),
            ("neither is known", "v", foreign(), None, other(&foreign())),
        ] {
            let got = owner_of(Some(controller), &resource, uid);
            assert_eq!(got, expected, "{what}");
        }
    }

    #[test]
    fn a_binding_without_a_controller_belongs_to_the_template_that_it_names() {
        use Owner::Template;
        let u = Some("u");
        for (what, resource, expected) in [
            ("no uid", resource("batch/v1", None), Template),
            // It outlived a former one.
            ("another uid", resource("batch/v1", Some("old")), Template),
            ("another group", resource("extensions/v1", u), Template),
            ("another object", foreign(), other(&foreign())),
        ] {
            assert_eq!(owner_of(None, &resource, u), expected, "{what}");
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
