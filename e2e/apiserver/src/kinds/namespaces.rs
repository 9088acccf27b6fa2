//! Namespaces: they are labelled with their names, and finalizers in their specification hold them
//! until they are empty.

use serde_json::{Value, json};

use super::{Strategy, put};
use crate::context::RequestContext;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct Namespaces;

impl Strategy for Namespaces {
    fn prepare_for_create(&self, object: &mut Value) {
        name_label(object);
    }

    fn prepare_for_update(&self, _: &Value, new: &mut Value) {
        name_label(new);
    }

    fn keep(&self, context: &RequestContext<'_>, old: &Value, new: &mut Value) {
        if context.path.subresource.is_empty() {
            put(new, "spec", old.get("spec").cloned());
        }
    }

    fn complete(&self, _: &RequestContext<'_>, object: &mut Value) {
        object["status"] = json!({ "phase": "Active" });
        let finalizers = &mut object["spec"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|f| f == "kubernetes") => {}
            Some(list) => list.push("kubernetes".into()),
            None => *finalizers = json!(["kubernetes"]),
        }
    }

    fn may_delete(&self, name: &str) -> Result<(), StatusError> {
        if IMMORTAL.contains(&name) {
            let namespaces = GroupName {
                group: "",
                name: "namespaces",
            };
            let why = "this namespace may not be deleted";
            return Err(StatusError::forbidden(namespaces, name, why));
        }
        Ok(())
    }

    fn begin_deletion(&self, _: &RequestContext<'_>, object: &mut Value) {
        if self.holds(object) {
            object["status"]["phase"] = "Terminating".into();
        }
    }

    fn marks_deletion(&self, object: &Value) -> bool {
        self.holds(object)
    }

    fn holds(&self, object: &Value) -> bool {
        object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    }
}

fn name_label(object: &mut Value) {
    let name = metadata::text(object, "name").to_owned();
    if !name.is_empty() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    }
}
