//! Role-based access control over the stored roles and bindings.

mod attributes;
mod bootstrap;
mod index;
mod rule;

use serde_json::{Value, json};

use crate::auth::identity::User;

pub use attributes::Attributes;
pub use bootstrap::bootstrap;
pub use index::{Grant, Rbac};
pub use rule::{Rule, any, missing, quoted};

/// The group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the grant by which the user may do it, if a binding says so.
pub fn grant(roles: &Rbac, user: &User, attributes: &Attributes) -> Option<Grant> {
    let index = roles.index();
    let mut grants = index.of(user, &attributes.namespace);
    grants
        .find(|grant| grant.rules().iter().any(|rule| rule.allows(attributes)))
        .cloned()
}

/// Returns the `status` of a SelfSubjectRulesReview.
pub fn rules(roles: &Rbac, user: &User, namespace: &str) -> Value {
    let index = roles.index();
    let all = index.of(user, namespace).flat_map(Grant::rules);
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = all.partition(|r| r.is_about_paths());
    let trees = |rules: &[&Rule]| rules.iter().map(|r| r.tree()).collect::<Vec<_>>();
    json!({ "resourceRules": trees(&resources), "nonResourceRules": trees(&paths), "incomplete": false })
}
