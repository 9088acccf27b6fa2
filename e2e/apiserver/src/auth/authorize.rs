//! Who may do what: members of `system:masters` everything, everybody else what RBAC objects grant.

use std::fmt;

use crate::auth::identity::User;
use crate::auth::rbac::{self, Attributes, Grant, Rbac};
use crate::wire::request::{Query, ResourcePath, Verb};
use crate::wire::status_error::{GroupName, StatusError};

/// Nobody grants it. Displays the sentence that follows "is forbidden: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    user: String,
    attributes: Box<Attributes>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes {
            verb,
            group,
            resource,
            subresource,
            namespace,
            path,
            ..
        } = &*self.attributes;
        let user = &self.user;
        if let Some(path) = path {
            return write!(f, "User {user:?} cannot {verb} path {path:?}");
        }
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(
            f,
            "User {user:?} cannot {verb} resource \"{resource}{slash}{subresource}\" in API group {group:?}"
        )?;
        if namespace.is_empty() {
            f.write_str(" at the cluster scope")
        } else {
            write!(f, " in the namespace {namespace:?}")
        }
    }
}

/// Why somebody may do something. Displays the sentence.
#[derive(Debug, Clone)]
pub enum Reason {
    /// They may do everything.
    Everything,
    /// A binding says so.
    Granted(Grant),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => Ok(()),
            Self::Granted(grant) => grant.fmt(f),
        }
    }
}

/// Decides who may do what.
#[derive(Debug)]
pub struct Access {
    /// Roles and bindings, sorted by whom they concern.
    pub roles: Rbac,
}

impl Access {
    /// Decides; the answer to a yes is its reason.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Result<Reason, Denied> {
        if user.is_unlimited() {
            return Ok(Reason::Everything);
        }
        if let Some(grant) = rbac::grant(&self.roles, user, attributes) {
            return Ok(Reason::Granted(grant));
        }
        Err(Denied {
            user: user.name.clone(),
            attributes: Box::new(attributes.clone()),
        })
    }

    /// Checks whether the user may do this. It is asked once more for the verb `create` when a
    /// change makes an object that was not there.
    pub fn permit(
        &self,
        user: &User,
        verb: Verb,
        path: &ResourcePath<'_>,
        query: &Query,
    ) -> Result<(), StatusError> {
        // A collection narrowed to one name is asked for like the object of that name, so that
        // roles can allow just that.
        let selected = match verb {
            Verb::List | Verb::Watch | Verb::DeleteCollection => query.selected_name(),
            _ => None,
        };
        let attributes = Attributes {
            verb: verb.name().to_owned(),
            group: path.group.to_string(),
            resource: path.resource.to_string(),
            subresource: path.subresource.to_string(),
            // A namespace is asked about as an object in itself.
            namespace: if path.resource == "namespaces" {
                path.name.to_string()
            } else {
                path.namespace.to_string()
            },
            name: selected.unwrap_or_else(|| path.name.to_string()),
            path: None,
        };
        self.decide(user, &attributes)
            .map(|_| ())
            .map_err(|denied| {
                let resource = GroupName {
                    group: &path.group,
                    name: &path.resource,
                };
                StatusError::forbidden(resource, &attributes.name, &denied.to_string())
            })
    }
}
