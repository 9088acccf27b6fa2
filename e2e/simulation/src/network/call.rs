//! Calls: what a request asks of an API, read from its method and its path.

use http::{Method, Request, Uri};
use kube::client::Body;

use crate::history::{Api, Resource, Verb};

/// What a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The API server that is asked.
    pub api: Api,
    /// What is done.
    pub kind: Kind,
    /// The verb of a write; [`Verb::Update`] for reads.
    pub verb: Verb,
    /// The kind of object; empty for paths without one.
    pub resource: Resource,
    /// Namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Name; empty for lists, watches and creations.
    pub name: String,
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Reads one object, or a path without objects.
    Get,
    /// Reads all objects of a kind.
    List,
    /// Follows the changes of a kind.
    Watch,
    /// Creates, changes or deletes.
    Write,
}

impl Call {
    /// Returns whether what is written is kept: reviews and tokens are only answered.
    pub fn is_stored(&self) -> bool {
        let plural = &self.resource.plural;
        self.kind == Kind::Write
            && !plural.ends_with("reviews")
            && !["token", "eviction"].contains(&self.resource.subresource.as_str())
    }

    /// Returns whether the call carries out or reports a decision: all writes but those of leases
    /// and events.
    pub fn decides(&self) -> bool {
        !["leases", "events"].contains(&self.resource.plural.as_str())
    }

    /// Reads a request.
    pub fn read(api: &Api, method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("api") => parts.next().map(|_| String::new()),
            Some("apis") => {
                let group = parts.next().unwrap_or_default().to_owned();
                parts.next().map(|_| group)
            }
            _ => None,
        };
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = String::new();
        // `namespaces/NAME` and `namespaces/NAME/status` are the namespace itself.
        let subresources = ["status", "finalize"];
        if rest.len() > 2 && rest[0] == "namespaces" && !subresources.contains(&rest[2]) {
            rest[1].clone_into(&mut namespace);
            rest.drain(..2);
        }
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let name = part(1);
        let is_resource = group.is_some() && !rest.is_empty();
        let query = uri.query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|pair| matches!(pair, "watch=true" | "watch=1"));
        let (kind, verb) = match *method {
            Method::POST => (Kind::Write, Verb::Create),
            Method::PUT => (Kind::Write, Verb::Update),
            Method::PATCH => (Kind::Write, Verb::Patch),
            Method::DELETE => (Kind::Write, Verb::Delete),
            _ if is_watch => (Kind::Watch, Verb::Update),
            _ if is_resource && name.is_empty() => (Kind::List, Verb::Update),
            _ => (Kind::Get, Verb::Update),
        };
        Self {
            api: api.clone(),
            kind,
            verb,
            resource: Resource {
                group: group.unwrap_or_default(),
                plural: part(0),
                subresource: part(2),
            },
            namespace,
            name,
        }
    }
}

/// Versions that a stale list is behind.
const STALE_BY: u64 = 20;

/// Makes a list that accepts any version (`resourceVersion=0`) read one that is some writes old,
/// as a cache of an API server that lags does.
pub(super) fn make_stale(request: &mut Request<Body>, version: u64) {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.starts_with("resourceVersion"))
        .map(str::to_owned)
        .collect();
    if !query.split('&').any(|pair| pair == "resourceVersion=0") {
        return;
    }
    let old = version.saturating_sub(STALE_BY).max(1);
    pairs.push(format!("resourceVersion={old}"));
    pairs.push("resourceVersionMatch=Exact".to_owned());
    if let Ok(uri) = format!("{path}?{}", pairs.join("&")).parse() {
        *request.uri_mut() = uri;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_what_is_asked_about_which_object() {
        use Kind::{Get, List, Watch, Write};
        let status = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/status?x=y";
        let works = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
        let (of_clusters, of_works) = ("cluster.karmada.io/clusters", "work.karmada.io/works");
        for (method, uri, kind, resource, object) in [
            ("GET", "/readyz", Get, "/", "/"),
            ("GET", "/api/v1", Get, "/", "/"),
            ("GET", "/api/v1/pods?limit=5", List, "/pods", "/"),
            ("GET", "/api/v1/pods?watch=true", Watch, "/pods", "/"),
            ("GET", "/api/v1/namespaces/a", Get, "/namespaces", "/a"),
            ("DELETE", "/api/v1/namespaces/a", Write, "/namespaces", "/a"),
            ("PATCH", status, Write, of_clusters, "/m1"),
            ("POST", works, Write, of_works, "karmada-es-m1/"),
        ] {
            let call = Call::read(&Api::Fleet, &method.parse().unwrap(), &uri.parse().unwrap());
            let Resource { group, plural, .. } = &call.resource;
            assert_eq!(call.kind, kind, "{uri}");
            assert_eq!(format!("{group}/{plural}"), resource, "{uri}");
            assert_eq!(format!("{}/{}", call.namespace, call.name), object, "{uri}");
        }
    }
}
