//! Volumes and the claims to them.

use serde_json::{Value, json};

use super::Strategy;
use crate::context::RequestContext;

pub(super) struct Volumes;

impl Strategy for Volumes {
    fn complete(&self, _: &RequestContext<'_>, object: &mut Value) {
        object["status"] = json!({ "phase": "Pending" });
    }
}
