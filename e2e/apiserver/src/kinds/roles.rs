//! Roles and their bindings.

use serde_json::Value;

use super::Strategy;
use crate::auth::escalation;
use crate::context::RequestContext;
use crate::wire::status_error::StatusError;

pub(super) struct Roles;

impl Strategy for Roles {
    fn may_grant(
        &self,
        context: &RequestContext<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), StatusError> {
        escalation::may_grant(context, old, new)
    }
}
