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
        let access = &context.server.access;
        let resource = &context.served.resource;
        escalation::may_grant(access, context.user, resource, context.path, (old, new))
    }
}
