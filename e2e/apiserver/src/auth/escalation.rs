//! Nobody grants rights that they do not have.

use serde_json::Value;

use super::authorize::Access;
use super::identity::User;
use super::rbac::{Attributes, GROUP, Grant, Rule, missing, quoted};
use crate::registry::Resource;
use crate::wire::metadata;
use crate::wire::request::ResourcePath;
use crate::wire::status_error::StatusError;

/// Refuses a role or a binding that grants what its author does not have, unless a role lets them
/// `escalate` or `bind`.
pub fn may_grant(
    access: &Access,
    user: &User,
    resource: &Resource,
    path: &ResourcePath<'_>,
    (old, new): (Option<&Value>, &Value),
) -> Result<(), StatusError> {
    if user.is_unlimited() {
        return Ok(());
    }
    let unchanged =
        |fields: &[&str]| old.is_some_and(|old| fields.iter().all(|f| old[f] == new[f]));
    let may = |verb: &str, resource: &str, name: &str| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: path.namespace.to_string(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        access.decide(user, &attributes).is_ok()
    };
    let index = access.roles.index();
    let name = metadata::text(new, "name");
    let named = resource.name();
    let plural = resource.plural.as_str();
    let wanted: Vec<Rule> = if matches!(plural, "roles" | "clusterroles") {
        if unchanged(&["rules", "aggregationRule"]) || may("escalate", plural, &path.name) {
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
        let found = index.role(kind, &path.namespace, role);
        // The real server names the binding's resource with the role's name.
        found
            .ok_or_else(|| StatusError::not_found(named, role))?
            .to_vec()
    };
    let grants = index.of(user, &path.namespace);
    let owned: Vec<Rule> = grants.flat_map(Grant::rules).cloned().collect();
    let missing = missing(&owned, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        missing.join("\n")
    );
    Err(StatusError::forbidden(named, name, &why))
}
