//! Reads what a template asks for by its annotations.

use std::sync::Arc;

use muster_shared::api::binding::ObjectReference;
use muster_shared::names::annotation::{FOLLOWS, HOSTNAME, HOSTNAME_TTL};
use muster_shared::names::is_hostname;

use crate::fleet::template::{Kind, TemplateKey};

/// Seconds for which resolvers may keep an answer, where the template does not say. The last
/// resolver follows a failover so much later.
const USUAL_TTL: u32 = 60;
/// Longest time for which resolvers may keep an answer: a day.
const LONGEST_TTL: u32 = 86_400;

/// Request of a Service or an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Host name that is to lead to the healthy copies.
    pub hostname: String,
    /// Seconds for which resolvers may keep an answer.
    pub ttl: u32,
    /// Workload whose copies have to be healthy, too.
    pub follows: Option<TemplateKey>,
}

/// Returns whether the copies of a kind report addresses of load balancers.
pub fn has_addresses(api_version: &str, kind: &str) -> bool {
    matches!(
        (api_version, kind),
        ("v1", "Service") | ("networking.k8s.io/v1", "Ingress")
    )
}

impl Request {
    /// Reads the annotations of the template of a binding; `None` if it asks for no host name.
    ///
    /// # Errors
    /// What is wrong with which annotation, and what is allowed.
    pub fn of<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
        resource: &ObjectReference,
    ) -> Result<Option<Self>, String> {
        let Some(hostname) = annotation(HOSTNAME) else {
            return Ok(None);
        };
        if !is_hostname(hostname.strip_prefix("*.").unwrap_or(hostname)) {
            return Err(format!(
                "annotation {HOSTNAME} is {hostname:?}: it has to be one host name in lower case with at least one dot, such as shop.example.com"
            ));
        }
        let ttl = annotation(HOSTNAME_TTL).map_or(Ok(USUAL_TTL), |text| {
            let ttl = text.parse().ok();
            ttl.filter(|ttl| (1..=LONGEST_TTL).contains(ttl)).ok_or_else(|| {
                format!("annotation {HOSTNAME_TTL} is {text:?}: it has to be a number of seconds from 1 to {LONGEST_TTL}")
            })
        })?;
        let follows = annotation(FOLLOWS).map(|text| {
            followed(text, resource).ok_or_else(|| {
                format!("annotation {FOLLOWS} is {text:?}: it has to be API version, kind and name of a workload in the same namespace, such as apps/v1/Deployment/shop")
            })
        });
        Ok(Some(Self {
            hostname: hostname.to_owned(),
            ttl,
            follows: follows.transpose()?,
        }))
    }
}

fn followed(text: &str, resource: &ObjectReference) -> Option<TemplateKey> {
    let parts: Vec<&str> = text.split('/').collect();
    let (api_version, kind, name) = match parts[..] {
        [version, kind, name] => (version.to_owned(), kind, name),
        [group, version, kind, name] => (format!("{group}/{version}"), kind, name),
        _ => return None,
    };
    let is_whole = !parts.iter().any(|part| part.is_empty());
    is_whole.then(|| TemplateKey {
        kind: Arc::new(Kind::new(api_version, kind)),
        namespace: resource.namespace.clone(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &'static str)]) -> Result<Option<Request>, String> {
        let annotation = |key: &str| {
            let mut found = annotations.iter().filter(|it| it.0 == key);
            found.next().map(|it| it.1)
        };
        let resource = ObjectReference {
            namespace: Some("shop".to_owned()),
            ..ObjectReference::default()
        };
        Request::of(annotation, &resource)
    }

    #[test]
    fn a_template_without_a_host_name_asks_for_nothing() {
        assert_eq!(read(&[(HOSTNAME_TTL, "no"), (FOLLOWS, "no")]), Ok(None));
    }

    #[test]
    fn a_host_name_has_a_time_and_a_workload_that_it_follows() {
        for (name, ttl, follows, expected) in [
            ("shop.example.com", None, None, (60, None)),
            ("*.example.com", Some("1"), None, (1, None)),
            (
                "a-1.b.c",
                Some("86400"),
                Some("apps/v1/Deployment/shop"),
                (86_400, Some("Deployment shop/shop")),
            ),
            ("x.y", None, Some("v1/Pod/one"), (60, Some("Pod shop/one"))),
        ] {
            let mut annotations = vec![(HOSTNAME, name)];
            annotations.extend(ttl.map(|it| (HOSTNAME_TTL, it)));
            annotations.extend(follows.map(|it| (FOLLOWS, it)));
            let request = read(&annotations).unwrap().unwrap();
            let follows = request.follows.map(|it| it.to_string());
            let got = (request.ttl, follows.as_deref());
            assert_eq!((&*request.hostname, got), (name, expected));
        }
    }

    #[test]
    fn what_is_wrong_names_the_annotation_and_what_is_allowed() {
        for (key, value, allowed) in [
            (HOSTNAME, "", "such as shop.example.com"),
            (HOSTNAME, "shop", "at least one dot"),
            (HOSTNAME, "Shop.example.com", "lower case"),
            (HOSTNAME, "shop.example.com.", "one host name"),
            (HOSTNAME, "a.example.com,b.example.com", "one host name"),
            (HOSTNAME, "shop.*.com", "one host name"),
            (HOSTNAME, "-a.example.com", "one host name"),
            (HOSTNAME_TTL, "0", "from 1 to 86400"),
            (HOSTNAME_TTL, "86401", "from 1 to 86400"),
            (HOSTNAME_TTL, "60s", "from 1 to 86400"),
            (FOLLOWS, "Deployment/shop", "apps/v1/Deployment/shop"),
            (
                FOLLOWS,
                "apps//Deployment/shop",
                "API version, kind and name",
            ),
            (FOLLOWS, "a/b/c/d/e", "API version, kind and name"),
        ] {
            let problem = read(&[(key, value), (HOSTNAME, "shop.example.com")]).unwrap_err();
            let begin = format!("annotation {key} is {value:?}: ");
            assert!(problem.starts_with(&begin), "{problem}");
            assert!(problem.contains(allowed), "{problem}");
        }
        let long = [&*"a".repeat(64), "example.com"].join(".");
        assert!(!is_hostname(&long));
    }
}
