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
    /// Tells which object a binding is about, compared with the template of that name; without uids
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
        let owner = |api_version: &str, kind: &str, uid: &str| {
            json!([
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "x" },
                { "apiVersion": api_version, "kind": kind, "name": "sum", "uid": uid, "controller": true },
            ])
        };
        let job = |uid: &str| owner("batch/v1", "Job", uid);
        let none = Value::Null;
        for (what, owners, recorded, expected) in [
            ("its own", job("u"), Some("u"), About::Template),
            ("a former one's", job("old"), Some("old"), About::Former),
            (
                "a former one's that records the present one",
                job("old"),
                Some("u"),
                About::Former,
            ),
            (
                "a former one's that records nothing",
                job("old"),
                None,
                About::Former,
            ),
            (
                "a former one's of a version that is not served any more",
                owner("batch/v1beta1", "Job", "old"),
                None,
                About::Former,
            ),
            (
                "a former one's of another group",
                owner("extensions/v1", "Job", "old"),
                Some("old"),
                About::Former,
            ),
            (
                "one whose record is behind",
                job("u"),
                Some("old"),
                About::Recorded,
            ),
            (
                "one that outlived its owner",
                none.clone(),
                Some("old"),
                About::Recorded,
            ),
            (
                "somebody else's of the present one",
                owner("example.com/v1", "Batch", "b"),
                Some("u"),
                About::Template,
            ),
            (
                "somebody else's of the former one",
                owner("example.com/v1", "Batch", "b"),
                Some("old"),
                About::Recorded,
            ),
            (
                "somebody else's without a record",
                owner("example.com/v1", "Batch", "b"),
                None,
                About::Template,
            ),
            (
                "one of another object of that name, of another kind",
                owner("batch/v1", "CronJob", "b"),
                None,
                About::Template,
            ),
            ("one made by hand", none.clone(), None, About::Template),
            (
                "one with an empty record",
                none.clone(),
                Some(""),
                About::Template,
            ),
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
            assert_eq!(About::of(&held, &template(None)), About::Template, "{what}");
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
