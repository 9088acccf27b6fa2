//! Being somebody else for one request: the `Impersonate-*` headers, and who may send them.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::auth::authorize::Access;
use crate::auth::identity::User;
use crate::auth::rbac::Attributes;
use crate::wire::status_error::{GroupName, StatusError};

const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const ACCOUNT: &str = "system:serviceaccount:";

/// Who a request wants to be. Pure: what is allowed is asked elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// Reads the headers; `None` if nobody else is wanted.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .filter_map(|v| v.to_str().ok())
                .map(str::to_owned)
                .collect()
        };
        let mut wanted = Self {
            name: all("impersonate-user")
                .into_iter()
                .next()
                .unwrap_or_default(),
            uid: all("impersonate-uid")
                .into_iter()
                .next()
                .unwrap_or_default(),
            groups: all("impersonate-group"),
            extra: BTreeMap::new(),
        };
        for name in headers.keys() {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                let key = crate::wire::request::decoded(key).into_owned();
                wanted.extra.insert(key, all(name.as_str()));
            }
        }
        (wanted != Self::default()).then_some(wanted)
    }

    /// Returns what somebody must be allowed to `impersonate`.
    fn asks(&self) -> Vec<Attributes> {
        let ask = |group: &str, resource: &str, name: &str| Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let mut asks = vec![match account(&self.name) {
            Some((namespace, name)) => Attributes {
                namespace: namespace.to_owned(),
                ..ask("", "serviceaccounts", name)
            },
            None => ask("", "users", &self.name),
        }];
        asks.extend(self.groups.iter().map(|g| ask("", "groups", g)));
        for (key, values) in &self.extra {
            asks.extend(values.iter().map(|value| Attributes {
                subresource: key.clone(),
                ..ask(AUTHENTICATION, "userextras", value)
            }));
        }
        if !self.uid.is_empty() {
            asks.push(ask(AUTHENTICATION, "uids", &self.uid));
        }
        asks
    }

    /// Returns the user that is meant: everybody but `system:anonymous` is authenticated.
    fn user(self) -> User {
        let mut groups = self.groups;
        if let Some((namespace, _)) = account(&self.name).filter(|_| groups.is_empty()) {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        let own = if self.name == "system:anonymous" {
            "system:unauthenticated"
        } else {
            "system:authenticated"
        };
        if !groups.iter().any(|g| g == own) {
            groups.push(own.to_owned());
        }
        User {
            name: self.name,
            uid: self.uid,
            groups,
            extra: self.extra,
        }
    }
}

/// Returns the namespace and name of the service account that a user name means.
fn account(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(ACCOUNT)?.split_once(':')
}

/// Returns who the request is from in the end.
pub fn resolve(access: &Access, user: User, headers: &HeaderMap) -> Result<User, StatusError> {
    let Some(wanted) = Wanted::read(headers) else {
        return Ok(user);
    };
    if wanted.name.is_empty() {
        let message = format!("requested {wanted:?} without impersonating a user name");
        return Err(StatusError::bad_request(message));
    }
    for ask in wanted.asks() {
        access.decide(&user, &ask).map_err(|denied| {
            let resource = GroupName {
                group: &ask.group,
                name: &ask.resource,
            };
            StatusError::forbidden(resource, &ask.name, &denied.to_string())
        })?;
    }
    Ok(wanted.user())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn wanted(headers: &[(&str, &str)]) -> Wanted {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header name");
            map.append(name, value.parse().expect("a header value"));
        }
        Wanted::read(&map).expect("somebody else")
    }

    #[test]
    fn accounts_bring_their_groups_and_nobody_is_not_authenticated() {
        let user = |name: &str| wanted(&[("Impersonate-User", name)]).user().groups;
        assert_eq!(
            user("system:serviceaccount:a:b"),
            [
                "system:serviceaccounts",
                "system:serviceaccounts:a",
                "system:authenticated"
            ]
        );
        assert_eq!(user("system:anonymous"), ["system:unauthenticated"]);
    }
}
