//! CustomResourceDefinitions: their status says what is served, and they stay until their objects
//! are gone.

use serde_json::{Value, json};

use super::Strategy;
use crate::context::RequestContext;
use crate::wire::{conditions, metadata};

/// The finalizer that keeps a CRD until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The strategy of CustomResourceDefinitions.
pub(super) struct Definitions;

impl Strategy for Definitions {
    fn complete(&self, _: &RequestContext<'_>, object: &mut Value) {
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let stored: Vec<Value> = versions
            .filter(|v| v["storage"] == true)
            .map(|v| v["name"].clone())
            .collect();
        object["status"] = json!({
            "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": stored,
        });
    }

    fn deletion_finalizer(&self) -> Option<&'static str> {
        Some(FINALIZER)
    }

    fn begin_deletion(&self, context: &RequestContext<'_>, object: &mut Value) {
        if object["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        let message =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        let now = metadata::time(context.server.clock.now());
        let condition = ("True", "InstanceDeletionPending", message);
        conditions::set(&mut object["status"], "Terminating", condition, &now);
    }

    fn marks_deletion(&self, _: &Value) -> bool {
        true
    }
}
