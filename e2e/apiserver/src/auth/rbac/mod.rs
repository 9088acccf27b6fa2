//! Role-based access control over the stored roles and bindings.

mod attributes;
mod bootstrap;
mod index;
mod rule;

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
