//! Kinds and namespaces that are never propagated.

use muster_shared::names::is_reserved_namespace;
use regex::Regex;

use super::template::{Kind, TemplateKey};

/// API groups that are about the fleet itself or about one cluster only (Karmada:
/// `pkg/util/apigroup.go`).
const RESERVED_GROUPS: &[&str] = &[
    "cluster.karmada.io",
    "policy.karmada.io",
    "work.karmada.io",
    "config.karmada.io",
    "networking.karmada.io",
    "autoscaling.karmada.io",
    "remedy.karmada.io",
    "apps.karmada.io",
    "events.k8s.io",
    "coordination.k8s.io",
];

/// Returns whether objects of a kind are never templates, whatever names them: they are about the
/// fleet itself, or are made and removed too often.
pub fn is_reserved(kind: &Kind) -> bool {
    RESERVED_GROUPS.contains(&kind.group()) || (kind.group().is_empty() && kind.kind == "Event")
}

/// Returns whether an API server, or a controller beside it, makes an object for itself: its
/// addresses, and the authorities by which clients know it. In a member it would take the place of
/// the member's own.
fn is_of_the_server(template: &TemplateKey) -> bool {
    let kind = (&*template.kind.api_version, &*template.kind.kind);
    let place = (template.namespace.as_deref(), &*template.name);
    match kind {
        ("v1", "ConfigMap") => {
            let of_clients = (Some("kube-system"), "extension-apiserver-authentication");
            place == of_clients || place.1 == "kube-root-ca.crt"
        }
        ("v1", "Service" | "Endpoints") | ("discovery.k8s.io/v1", "EndpointSlice") => {
            place == (Some("default"), "kubernetes")
        }
        _ => false,
    }
}

/// Returns the namespace that an object lies in. A namespace lies in itself.
pub fn namespace_of<'a>(kind: &Kind, namespace: Option<&'a str>, name: &'a str) -> Option<&'a str> {
    if kind.is_namespace() {
        Some(name)
    } else {
        namespace
    }
}

/// What is never propagated: the reserved, and what the settings add.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    apis: Vec<Skipped>,
    namespaces: Vec<Regex>,
}

/// One entry of `--skipped-propagating-apis`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Skipped {
    group: String,
    version: Option<String>,
    kinds: Vec<String>,
}

impl Scope {
    /// Reads the two settings. Each namespace expression has to match the whole name. Returns the
    /// fault of what cannot be understood.
    pub fn new(apis: &str, namespaces: &[String]) -> Result<Self, String> {
        let apis = apis
            .split(';')
            .map(str::trim)
            .filter(|token| !token.is_empty());
        let anchored = |text: &String| {
            Regex::new(&format!("^(?:{text})$"))
                .map_err(|error| format!("skipped namespace: {error}"))
        };
        Ok(Self {
            apis: apis.map(skipped).collect::<Result<_, _>>()?,
            namespaces: namespaces.iter().map(anchored).collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether objects of a kind may be propagated.
    pub fn admits_kind(&self, kind: &Kind) -> bool {
        !is_reserved(kind) && !self.apis.iter().any(|skipped| skipped.covers(kind))
    }

    /// Returns whether objects of a namespace may be propagated.
    pub fn admits_namespace(&self, namespace: &str) -> bool {
        !is_reserved_namespace(namespace)
            && !self
                .namespaces
                .iter()
                .any(|skipped| skipped.is_match(namespace))
    }

    /// Returns whether a template may be propagated.
    pub fn admits(&self, template: &TemplateKey) -> bool {
        let (kind, name) = (&template.kind, &template.name);
        self.admits_kind(kind)
            && !is_of_the_server(template)
            && namespace_of(kind, template.namespace.as_deref(), name)
                .is_none_or(|namespace| self.admits_namespace(namespace))
    }
}

impl Skipped {
    fn covers(&self, kind: &Kind) -> bool {
        self.group == kind.group()
            && self
                .version
                .as_deref()
                .is_none_or(|version| version == kind.version())
            && (self.kinds.is_empty() || self.kinds.contains(&kind.kind))
    }
}

/// Parses one entry of the skipped APIs. `v1/Kind` is of the core group: there the first part is
/// the version.
fn skipped(token: &str) -> Result<Skipped, String> {
    let parts: Vec<&str> = token.split('/').collect();
    let invalid =
        || format!("skipped API {token:?}: write group, group/version or group/version/Kind,Kind");
    if parts.iter().any(|part| part.trim().is_empty()) {
        return Err(invalid());
    }
    let (group, version, kinds) = match parts[..] {
        ["v1"] => ("", Some("v1"), None),
        [group] => (group, None, None),
        ["v1", list] => ("", Some("v1"), Some(list)),
        [group, version] => (group, Some(version), None),
        [group, version, list] => (group, Some(version), Some(list)),
        _ => return Err(invalid()),
    };
    let kinds = kinds.into_iter().flat_map(|list| list.split(','));
    Ok(Skipped {
        group: group.to_owned(),
        version: version.map(str::to_owned),
        kinds: kinds.map(|kind| kind.trim().to_owned()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_skipped_kinds_are_not_propagated() {
        let scope =
            Scope::new("batch; apps/v1/ReplicaSet,DaemonSet; v1/Pod; x.io/v2", &[]).unwrap();
        for (api_version, kind, admitted) in [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "ReplicaSet", false),
            ("apps/v1", "DaemonSet", false),
            ("batch/v1", "Job", false),
            ("v1", "Pod", false),
            ("v1", "ConfigMap", true),
            ("v1", "Event", false),
            ("events.k8s.io/v1", "Event", false),
            ("coordination.k8s.io/v1", "Lease", false),
            ("work.karmada.io/v1alpha1", "Work", false),
            ("search.karmada.io/v1alpha1", "ResourceRegistry", true),
            ("x.io/v1", "X", true),
            ("x.io/v2", "X", false),
        ] {
            assert_eq!(
                scope.admits_kind(&Kind::new(api_version, kind)),
                admitted,
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn reserved_and_skipped_namespaces_are_not_propagated() {
        let scope = Scope::new("", &["kube-.*".into(), "secret".into()]).unwrap();
        for (namespace, admitted) in [
            ("default", true),
            ("kube-system", false),
            ("my-kube-system", true),
            ("secret", false),
            ("secrets", true),
            ("karmada-system", false),
            ("karmada-es-member1", false),
            ("karmada-cluster", false),
        ] {
            assert_eq!(scope.admits_namespace(namespace), admitted, "{namespace}");
            // A policy for all namespaces does not bring it into members, either.
            let key = TemplateKey {
                kind: std::sync::Arc::new(Kind::new("v1", "Namespace")),
                namespace: None,
                name: namespace.to_owned(),
            };
            assert_eq!(scope.admits(&key), admitted, "{namespace}");
        }
    }

    #[test]
    fn what_an_api_server_makes_for_itself_is_not_propagated() {
        // Nothing keeps kube-system back, as where people propagate what lies in it.
        let scope = Scope::new("", &[]).unwrap();
        let authentication = "extension-apiserver-authentication";
        let discovery = "discovery.k8s.io/v1";
        for (api_version, kind, namespace, name, admitted) in [
            ("v1", "ConfigMap", "kube-system", authentication, false),
            ("v1", "ConfigMap", "kube-system", "coredns", true),
            ("v1", "ConfigMap", "shop", "kube-root-ca.crt", false),
            ("v1", "Service", "default", "kubernetes", false),
            ("v1", "Endpoints", "default", "kubernetes", false),
            (discovery, "EndpointSlice", "default", "kubernetes", false),
            ("v1", "Service", "shop", "kubernetes", true),
        ] {
            let key = TemplateKey {
                kind: std::sync::Arc::new(Kind::new(api_version, kind)),
                namespace: Some(namespace.to_owned()),
                name: name.to_owned(),
            };
            assert_eq!(scope.admits(&key), admitted, "{kind} {namespace}/{name}");
        }
    }

    #[test]
    fn a_setting_that_cannot_be_understood_is_named() {
        assert!(Scope::new("a/b/c/d", &[]).unwrap_err().contains("a/b/c/d"));
        assert!(Scope::new("", &["(".into()]).is_err());
    }
}
