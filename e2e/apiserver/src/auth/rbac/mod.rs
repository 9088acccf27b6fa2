//! Role-based access control over the stored roles and bindings.

mod bootstrap;
mod index;
mod rule;

use serde_json::{Value, json};

use crate::auth::authorize::{self, Attributes};
use crate::auth::identity::User;
use crate::server::Server;
use crate::verbs::Call;
use crate::wire::status_error::StatusError;

pub use bootstrap::bootstrap;
pub use index::{Grant, Rbac};
pub use rule::any;
use rule::{Rule, missing, quoted};

/// The group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Why the user may do it, if a binding says so.
pub fn grant(server: &Server, user: &User, attributes: &Attributes) -> Option<Grant> {
    let index = server.roles.index();
    let mut grants = index.of(user, &attributes.namespace);
    grants
        .find(|grant| grant.rules().iter().any(|rule| rule.allows(attributes)))
        .cloned()
}

/// The `status` of a SelfSubjectRulesReview.
pub fn rules(server: &Server, user: &User, namespace: &str) -> Value {
    let index = server.roles.index();
    let all = index.of(user, namespace).flat_map(Grant::rules);
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = all.partition(|r| r.is_about_paths());
    let trees = |rules: &[&Rule]| rules.iter().map(|r| r.tree()).collect::<Vec<_>>();
    json!({ "resourceRules": trees(&resources), "nonResourceRules": trees(&paths), "incomplete": false })
}

/// Nobody grants what they don't have, unless a role lets them `escalate` or `bind`.
pub fn may_grant(call: &Call<'_>, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    if call.user.is_in("system:masters") || !call.server.rbac {
        return Ok(());
    }
    let resource = &call.served.resource;
    let unchanged =
        |fields: &[&str]| old.is_some_and(|old| fields.iter().all(|f| old[f] == new[f]));
    let may = |verb: &str, resource: &str, name: &str| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: call.path.namespace.to_string(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        authorize::decide(call.server, call.user, &attributes).is_ok()
    };
    let index = call.server.roles.index();
    let name = crate::wire::metadata::text(new, "name");
    let named = resource.name();
    let plural = resource.plural.as_str();
    let wanted: Vec<Rule> = if matches!(plural, "roles" | "clusterroles") {
        if unchanged(&["rules", "aggregationRule"]) || may("escalate", plural, &call.path.name) {
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
        let found = index.role(kind, &call.path.namespace, role);
        // The real server names the binding's resource with the role's name.
        found
            .ok_or_else(|| StatusError::not_found(named, role))?
            .to_vec()
    };
    let grants = index.of(call.user, &call.path.namespace);
    let owned: Vec<Rule> = grants.flat_map(Grant::rules).cloned().collect();
    let missing = missing(&owned, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        call.user.name,
        quoted(&call.user.groups),
        missing.join("\n")
    );
    Err(StatusError::forbidden(named, name, &why))
}
