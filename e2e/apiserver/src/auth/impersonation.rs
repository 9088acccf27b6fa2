//! Being somebody else for one request: the `Impersonate-*` headers, and who may send them.

use http::HeaderMap;

use crate::auth::authorize::Access;
use crate::auth::identity::User;
use crate::auth::rbac::Attributes;
use crate::wire::status_error::{GroupName, StatusError};

const ACCOUNT: &str = "system:serviceaccount:";

/// Reads who a request wants to be, as its headers have it; `None` if nobody else is wanted. What
/// is allowed is asked elsewhere.
fn wanted(headers: &HeaderMap) -> Option<User> {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|v| v.to_str().ok())
            .map(str::to_owned)
            .collect()
    };
    let first = |name: &str| all(name).into_iter().next().unwrap_or_default();
    let wanted = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: all("impersonate-group"),
        ..User::default()
    };
    (wanted != User::default()).then_some(wanted)
}

/// Returns what somebody must be allowed to `impersonate` who wants to be this user.
fn asks(wanted: &User) -> Vec<Attributes> {
    let ask = |group: &str, resource: &str, name: &str| Attributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let mut asks = vec![match account(&wanted.name) {
        Some((namespace, name)) => Attributes {
            namespace: namespace.to_owned(),
            ..ask("", "serviceaccounts", name)
        },
        None => ask("", "users", &wanted.name),
    }];
    asks.extend(wanted.groups.iter().map(|g| ask("", "groups", g)));
    if !wanted.uid.is_empty() {
        asks.push(ask("authentication.k8s.io", "uids", &wanted.uid));
    }
    asks
}

/// Returns the user that is meant, with the groups that come with the name: everybody but
/// `system:anonymous` is authenticated.
fn meant(mut user: User) -> User {
    if let Some((namespace, _)) = account(&user.name).filter(|_| user.groups.is_empty()) {
        let own = format!("system:serviceaccounts:{namespace}");
        user.groups = vec!["system:serviceaccounts".to_owned(), own];
    }
    let own = if user.name == "system:anonymous" {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !user.groups.iter().any(|g| g == own) {
        user.groups.push(own.to_owned());
    }
    user
}

/// Returns the namespace and name of the service account that a user name means.
fn account(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(ACCOUNT)?.split_once(':')
}

/// Returns who the request is from in the end.
pub fn resolve(access: &Access, user: User, headers: &HeaderMap) -> Result<User, StatusError> {
    let Some(wanted) = wanted(headers) else {
        return Ok(user);
    };
    if wanted.name.is_empty() {
        let message = format!("requested {wanted:?} without impersonating a user name");
        return Err(StatusError::bad_request(message));
    }
    for ask in asks(&wanted) {
        access.decide(&user, &ask).map_err(|denied| {
            let resource = GroupName {
                group: &ask.group,
                name: &ask.resource,
            };
            StatusError::forbidden(resource, &ask.name, &denied.to_string())
        })?;
    }
    Ok(meant(wanted))
}
