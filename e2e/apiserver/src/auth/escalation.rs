//! Nobody grants rights that they do not have.

use serde_json::Value;

use super::authorize;
use super::rbac::{Attributes, GROUP, Grant, Rule, missing, quoted};
use crate::context::RequestContext;
use crate::wire::metadata;
use crate::wire::status_error::StatusError;

/// Refuses a role or a binding that grants what its author does not have, unless a role lets them
/// `escalate` or `bind`.
pub fn may_grant(
    context: &RequestContext<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), StatusError> {
    if context.user.is_in("system:masters") || !context.server.rbac {
        return Ok(());
    }
    let resource = &context.served.resource;
    let unchanged =
        |fields: &[&str]| old.is_some_and(|old| fields.iter().all(|f| old[f] == new[f]));
    let may = |verb: &str, resource: &str, name: &str| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: context.path.namespace.to_string(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        authorize::decide(context.server, context.user, &attributes).is_ok()
    };
    let index = context.server.roles.index();
    let name = metadata::text(new, "name");
    let named = resource.name();
    let plural = resource.plural.as_str();
    let wanted: Vec<Rule> = if matches!(plural, "roles" | "clusterroles") {
        if unchanged(&["rules", "aggregationRule"]) || may("escalate", plural, &context.path.name) {
            return Ok(());
        }
        if new["aggregationRule"].is_object() {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(StatusError::forbidden(named, name, why));
        }
        let rules = new["rules"].as_array().into_iter().flatten();
        rules.map(Rule::read).collect()
    } else {
        let text = |field: &str| new["roleRef"][field].as_str().unwrap_or_default();
        let (kind, role) = (text("kind"), text("name"));
        let of = if kind == "Role" {
            "roles"
        } else {
            "clusterroles"
        };
        if unchanged(&["roleRef", "subjects"]) || may("bind", of, role) {
            return Ok(());
        }
        let found = index.role(kind, &context.path.namespace, role);
        // The real server names the binding's resource with the role's name.
        found
            .ok_or_else(|| StatusError::not_found(named, role))?
            .to_vec()
    };
    let grants = index.of(context.user, &context.path.namespace);
    let owned: Vec<Rule> = grants.flat_map(Grant::rules).cloned().collect();
    let missing = missing(&owned, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        context.user.name,
        quoted(&context.user.groups),
        missing.join("\n")
    );
    Err(StatusError::forbidden(named, name, &why))
}
