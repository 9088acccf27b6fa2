//! Decides which object a binding refers to, and which it may refer to: the template that has the
//! name now, or an earlier one.
//!
//! A name is not an identity. While a template is deleted and created again, the binding of the
//! earlier one exists until it is garbage-collected. A Work that it creates for the new template
//! would be removed with it, and created again by the new template's binding: a Job would run
//! twice.

use kube::core::ObjectMeta;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;

use crate::fleet::binding::{BindingKey, controller_of};
use crate::fleet::selection::given;
use crate::fleet::template::{Kind, TemplateKey};

/// Object that a binding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The template.
    Template,
    /// A former object of the same name, which owned the binding: garbage collection removes it.
    Former,
    /// A former object of the same name by the record alone. Nobody removes the binding; whoever
    /// keeps it brings it up to date.
    Recorded,
}

impl About {
    /// Says which object a binding is about, compared with the template of that name; without uids
    /// the name decides.
    pub fn of(binding: &AnyBinding, template: &ObjectMeta) -> Self {
        let resource = &binding.spec.resource;
        let Some(present) = given(template.uid.as_deref()) else {
            return Self::Template;
        };
        let recorded = given(resource.uid.as_deref());
        match owner(&binding.metadata, resource, recorded) {
            Some(owner) if owner != present => Self::Former,
            _ if recorded.is_some_and(|recorded| recorded != present) => Self::Recorded,
            _ => Self::Template,
        }
    }
}

/// Returns the uid of the object that a binding was made for, where that object owns the binding.
/// The controller of a binding that somebody else made may be any object, which then says nothing
/// about the template.
fn owner<'a>(
    held: &'a ObjectMeta,
    resource: &ObjectReference,
    recorded: Option<&str>,
) -> Option<&'a str> {
    let controller = controller_of(held)?;
    let group = |api_version: &str, kind: &str| Kind::new(api_version, kind).group().to_owned();
    let is_of_that_name = controller.kind == resource.kind
        && controller.name == resource.name
        && group(&controller.api_version, &controller.kind)
            == group(&resource.api_version, &resource.kind);
    let uid = given(Some(&controller.uid))?;
    (is_of_that_name || Some(uid) == recorded).then_some(uid)
}

/// Returns whether a binding may place a template. Whoever may write bindings in one namespace must
/// not reach the objects of another by them.
pub fn may_place(binding: &BindingKey, template: &TemplateKey) -> bool {
    binding.namespace.is_none()
        || template.namespace.is_none()
        || binding.namespace == template.namespace
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_binding_is_about_a_former_object_where_its_owner_or_its_record_says_so() {
        use About::{Former, Recorded, Template};
        let owner = |api_version: &str, kind: &str, uid: &str| {
            json!([
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "x" },
                { "apiVersion": api_version, "kind": kind, "name": "sum", "uid": uid, "controller": true },
            ])
        };
        let job = |uid: &str| owner("batch/v1", "Job", uid);
        let was = |api_version: &str| owner(api_version, "Job", "old");
        let cron_job = owner("batch/v1", "CronJob", "b");
        let theirs = || owner("example.com/v1", "Batch", "b");
        let (now, old) = (Some("u"), Some("old"));
        for (what, owners, recorded, expected) in [
            ("its own", job("u"), now, Template),
            ("a former one's", job("old"), old, Former),
            ("a former one's, recorded anew", job("old"), now, Former),
            ("a former one's without a record", job("old"), None, Former),
            // Of a version that is not served any more.
            ("of another version", was("batch/v1beta1"), None, Former),
            ("of another group", was("extensions/v1"), old, Former),
            ("one whose record is behind", job("u"), old, Recorded),
            ("one that outlived its owner", Value::Null, old, Recorded),
            ("somebody else's, of this one", theirs(), now, Template),
            ("somebody else's, of the old one", theirs(), old, Recorded),
            ("somebody else's, unrecorded", theirs(), None, Template),
            ("of a namesake of another kind", cron_job, None, Template),
            ("one made by hand", Value::Null, None, Template),
            ("one of an empty record", Value::Null, Some(""), Template),
        ] {
            let held: AnyBinding = serde_json::from_value(json!({
                "metadata": { "name": "sum-job", "ownerReferences": owners },
                "spec": { "resource": { "apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": recorded } },
            }))
            .unwrap();
            let template = |uid: Option<&str>| ObjectMeta {
                uid: uid.map(str::to_owned),
                ..ObjectMeta::default()
            };
            assert_eq!(About::of(&held, &template(Some("u"))), expected, "{what}");
            assert_eq!(About::of(&held, &template(None)), Template, "{what}");
        }
    }

    #[test]
    fn a_binding_reaches_the_objects_of_its_own_namespace_only() {
        for (binding, template, expected) in [
            (Some("shop"), Some("shop"), true),
            (Some("shop"), Some("bank"), false),
            (Some("shop"), None, true),
            (None, None, true),
            (None, Some("shop"), true),
        ] {
            let key = BindingKey {
                namespace: binding.map(str::to_owned),
                name: "web-secret".into(),
            };
            let of = TemplateKey {
                kind: Arc::new(Kind::new("v1", "Secret")),
                namespace: template.map(str::to_owned),
                name: "web".into(),
            };
            assert_eq!(may_place(&key, &of), expected, "{binding:?} {template:?}");
        }
    }
}
