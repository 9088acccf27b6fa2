//! The object that a person asks about: a binding, or a template by its kind and name.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use kube::ResourceExt as _;
use muster_control_plane::fleet::binding::BindingKey;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::client;
use muster_shared::k8s::Client;
use muster_shared::names;

use super::list::bindings_of;
use super::request::{call, instead};

/// Short names of kinds, as kubectl has them.
const SHORT: [(&str, &str); 13] = [
    ("deploy", "Deployment"),
    ("sts", "StatefulSet"),
    ("ds", "DaemonSet"),
    ("rs", "ReplicaSet"),
    ("po", "Pod"),
    ("svc", "Service"),
    ("cm", "ConfigMap"),
    ("cj", "CronJob"),
    ("ing", "Ingress"),
    ("pvc", "PersistentVolumeClaim"),
    ("sa", "ServiceAccount"),
    ("ns", "Namespace"),
    ("crd", "CustomResourceDefinition"),
];

/// Words for bindings of a namespace, and for those of the whole fleet.
const BINDING: [&str; 4] = ["rb", "binding", "resourcebinding", "resourcebindings"];
const CLUSTER_BINDING: [&str; 4] = [
    "crb",
    "cluster-binding",
    "clusterresourcebinding",
    "clusterresourcebindings",
];

/// The object that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A ResourceBinding by its name.
    Binding(String),
    /// A ClusterResourceBinding by its name.
    ClusterBinding(String),
    /// A template by its kind, in any form that kubectl takes, and its name.
    Template { kind: String, name: String },
    /// Whatever has this name: the kind is missing.
    Named(String),
}

impl Subject {
    /// Reads `rb NAME`, `rb/NAME`, `deployment NAME` or `deployment/NAME`. One word is a name.
    ///
    /// # Errors
    /// When a name or a kind is empty, or a name is given twice.
    pub fn of(what: &str, name: Option<&str>) -> anyhow::Result<Self> {
        let (kind, name) = match (what.split_once('/'), name) {
            (Some(pair), None) => pair,
            (None, Some(name)) => (what, name),
            (Some(_), Some(_)) => bail!("give KIND/NAME or KIND NAME, not {what} and a name"),
            (None, None) => return Ok(Self::Named(what.to_owned())),
        };
        ensure!(
            !kind.is_empty() && !name.is_empty(),
            "{what:?} is not KIND/NAME"
        );
        let (word, name) = (kind.to_lowercase(), name.to_owned());
        Ok(match word.as_str() {
            it if BINDING.contains(&it) => Self::Binding(name),
            it if CLUSTER_BINDING.contains(&it) => Self::ClusterBinding(name),
            _ => Self::Template {
                kind: kind.to_owned(),
                name,
            },
        })
    }

    /// Returns whether a word stands for bindings of either kind.
    pub fn is_kind_of_binding(word: &str) -> bool {
        BINDING.contains(&word) || CLUSTER_BINDING.contains(&word)
    }

    /// Returns whether a binding, or its template, is the object.
    pub fn is(&self, binding: &AnyBinding) -> bool {
        match self {
            Self::Binding(name) => binding.namespace().is_some() && binding.name_any() == *name,
            Self::ClusterBinding(name) => {
                binding.namespace().is_none() && binding.name_any() == *name
            }
            Self::Template { kind, name } => is_meant(binding, kind, name),
            Self::Named(name) => binding.spec.resource.name == *name || binding.name_any() == *name,
        }
    }
}

/// Returns whether a word stands for the kind of the template of one of some bindings.
pub(super) fn is_kind_of<'a>(
    word: &str,
    bindings: impl IntoIterator<Item = &'a AnyBinding>,
) -> bool {
    let mut bindings = bindings.into_iter();
    bindings.any(|it| is_kind(&it.spec.resource, word))
}

/// Names a template as a command line does: `deployment/web`.
pub(super) fn word(resource: &ObjectReference) -> String {
    format!("{}/{}", resource.kind.to_lowercase(), resource.name)
}

/// Returns what is said of a name without a kind.
fn without_kind(name: &str, namespace: &str, bindings: &[AnyBinding]) -> String {
    let called = bindings.iter().filter(|it| it.spec.resource.name == *name);
    let called: Vec<String> = called.map(|it| word(&it.spec.resource)).collect();
    if called.is_empty() {
        let all = bindings.iter().map(|it| it.spec.resource.name.clone());
        let all: BTreeSet<String> = all.collect();
        let near = near(name, &all.into_iter().collect::<Vec<_>>());
        return format!(
            "the kind is missing, and no workload in namespace {namespace} is called {name}{}; write for example deployment/{name}",
            near.unwrap_or_default()
        );
    }
    format!(
        "the kind is missing: write {} (namespace {namespace})",
        called.join(" or ")
    )
}

/// Reads the binding of what is asked about.
///
/// # Errors
/// When there is none, with what may have been meant.
pub(super) async fn find(
    client: &Client,
    namespace: &str,
    subject: &Subject,
) -> anyhow::Result<AnyBinding> {
    let keys = |name: &str| {
        [Some(namespace.to_owned()), None].map(|namespace| BindingKey {
            namespace,
            name: name.to_owned(),
        })
    };
    match subject {
        Subject::Binding(name) => get(client, &keys(name)[0]).await,
        Subject::ClusterBinding(name) => get(client, &keys(name)[1]).await,
        Subject::Named(name) => {
            let mut bindings = Vec::new();
            for key in keys(name) {
                bindings.extend(near_to(client, &key).await?);
            }
            bail!("{}", without_kind(name, namespace, &bindings))
        }
        Subject::Template { kind, name } => {
            let (mut others, mut kinds) = (Vec::new(), BTreeSet::new());
            // Most are named after their template: a fleet may have 100,000 to search otherwise.
            for key in keys(&names::binding(kind, name)) {
                let binding = client::get_opt(&key.api(client), &key.name)
                    .await
                    .ok()
                    .flatten();
                if let Some(binding) = binding.filter(|it| is_meant(it, kind, name)) {
                    return Ok(binding);
                }
            }
            for key in keys(name) {
                let bindings = near_to(client, &key).await?;
                others.extend(named(&bindings, kind));
                kinds.extend(self::kinds(&bindings));
                if let Some(binding) = bindings.into_iter().find(|it| is_meant(it, kind, name)) {
                    return Ok(binding);
                }
            }
            let hint = if others.is_empty() {
                let kinds: Vec<String> = kinds.into_iter().collect();
                let near = near(kind, &kinds).unwrap_or_default();
                format!(": no {kind} has one in namespace {namespace}{near}")
            } else {
                instead(name, &others)
            };
            bail!(
                "there is no binding of {kind} {name} in namespace {namespace}{hint}\n\
                 Either no policy selects it, or it does not exist: `kubectl get {kind} {name} -n {namespace}` at the fleet API shows which"
            )
        }
    }
}

async fn get(client: &Client, key: &BindingKey) -> anyhow::Result<AnyBinding> {
    let (kind, name) = (key.scope().binding_kind(), &key.name);
    let step = format!("cannot read {kind} {name}");
    let found = call(&step, client::get_opt(&key.api(client), name)).await?;
    if let Some(binding) = found {
        return Ok(binding);
    }
    let near = near_to(client, key).await?;
    let names: Vec<String> = near.iter().map(AnyBinding::name_any).collect();
    bail!(
        "there is no {kind} {name}{}; a template can be named as well: deployment/web",
        instead(name, &names)
    )
}

/// Returns the bindings of the kind and namespace of a key.
async fn near_to(client: &Client, key: &BindingKey) -> anyhow::Result<Vec<AnyBinding>> {
    let bindings = bindings_of(key.api(client), key.scope()).await;
    match bindings {
        // A tenant sees the bindings of a namespace, and none of the whole fleet.
        Err(_) if key.namespace.is_none() => Ok(Vec::new()),
        bindings => bindings.map_err(anyhow::Error::msg),
    }
}

/// Names of the templates of a kind.
fn named(bindings: &[AnyBinding], kind: &str) -> Vec<String> {
    let resources = bindings.iter().map(|it| &it.spec.resource);
    resources
        .filter(|it| is_kind(it, kind))
        .map(|it| it.name.clone())
        .collect()
}

/// Kinds of the templates, as a command line names them.
fn kinds(bindings: &[AnyBinding]) -> BTreeSet<String> {
    let kinds = bindings
        .iter()
        .map(|it| it.spec.resource.kind.to_lowercase());
    kinds.collect()
}

/// Returns the kind that was meant, if one is near enough.
fn near(kind: &str, kinds: &[String]) -> Option<String> {
    let hint = instead(kind, kinds);
    hint.contains("is it").then_some(hint)
}

fn is_meant(binding: &AnyBinding, kind: &str, name: &str) -> bool {
    let resource = &binding.spec.resource;
    resource.name == name && is_kind(resource, kind)
}

/// Returns whether a word stands for the kind of an object: `Deployment`, `deployments`, `deploy`,
/// `deployment.apps`.
fn is_kind(resource: &ObjectReference, word: &str) -> bool {
    let word = word.to_lowercase();
    let (word, group) = match word.split_once('.') {
        Some((word, group)) => (word, Some(group)),
        None => (word.as_str(), None),
    };
    let own = names::api_group(&resource.api_version);
    if group.is_some_and(|group| group != own) {
        return false;
    }
    let kind = resource.kind.to_lowercase();
    let plurals = [
        format!("{kind}s"),
        format!("{kind}es"),
        format!("{}ies", kind.trim_end_matches('y')),
    ];
    let is_short = |(short, long): &(&str, &str)| *short == word && *long == resource.kind;
    word == kind || plurals.iter().any(|it| it == word) || SHORT.iter().any(is_short)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::fixtures;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let template = |kind: &str| Subject::Template {
            kind: kind.to_owned(),
            name: "web".to_owned(),
        };
        for (what, name, expected) in [
            ("rb", Some("web"), Subject::Binding("web".to_owned())),
            ("binding", Some("web"), Subject::Binding("web".to_owned())),
            ("rb/web", None, Subject::Binding("web".to_owned())),
            (
                "crb",
                Some("web"),
                Subject::ClusterBinding("web".to_owned()),
            ),
            ("deployment/web", None, template("deployment")),
            ("deployment", Some("web"), template("deployment")),
        ] {
            assert_eq!(Subject::of(what, name).unwrap(), expected, "{what}");
        }
        let bare = Subject::of("web", None).unwrap();
        assert_eq!(bare, Subject::Named("web".to_owned()));
        for (what, name) in [("a/b", Some("c")), ("/web", None), ("rb/", None)] {
            Subject::of(what, name).unwrap_err();
        }
    }

    #[test]
    fn a_name_without_a_kind_is_answered_with_what_has_that_name() {
        let binding = |kind: &str, name: &str| {
            let resource = json!({"apiVersion": "v1", "kind": kind, "name": name});
            let changes = json!({"spec": {"resource": resource}});
            let binding = fixtures::binding("shop", &format!("{name}-x"), &changes);
            Arc::unwrap_or_clone(binding)
        };
        let all = [
            binding("Deployment", "web"),
            binding("Service", "web"),
            binding("ConfigMap", "settings"),
        ];
        let reported = without_kind("web", "shop", &all);
        assert!(
            reported.contains("write deployment/web or service/web"),
            "{reported}"
        );
        let reported = without_kind("settigns", "shop", &all);
        assert!(reported.contains("is it settings?"), "{reported}");
        assert!(reported.contains("deployment/settigns"), "{reported}");
        let is = |subject: Subject| all.iter().filter(|it| subject.is(it)).count();
        assert_eq!(is(Subject::of("web", None).unwrap()), 2);
        assert_eq!(is(Subject::of("deploy/web", None).unwrap()), 1);
        assert_eq!(is(Subject::of("rb/settings-x", None).unwrap()), 1);
        assert_eq!(is(Subject::of("crb/settings-x", None).unwrap()), 0);
        assert!(is_kind_of("cm", &all) && !is_kind_of("sts", &all));
    }

    #[test]
    fn a_kind_with_a_typing_error_is_answered_with_the_one_that_was_meant() {
        let kinds = ["configmap", "deployment"].map(str::to_owned);
        let reported = near("deploymnt", &kinds);
        assert_eq!(reported.as_deref(), Some(": is it deployment?"));
        assert_eq!(near("gadget", &kinds), None);
    }

    #[test]
    fn a_kind_is_known_by_its_singular_plural_short_name_and_group() {
        for (kind, version, word, is_it) in [
            ("Deployment", "apps/v1", "deployment", true),
            ("Deployment", "apps/v1", "Deployments", true),
            ("Deployment", "apps/v1", "deploy", true),
            ("Deployment", "apps/v1", "deployment.apps", true),
            ("Deployment", "apps/v1", "deployment.batch", false),
            ("Deployment", "apps/v1", "sts", false),
            (
                "NetworkPolicy",
                "networking.k8s.io/v1",
                "networkpolicies",
                true,
            ),
            ("Ingress", "networking.k8s.io/v1", "ingresses", true),
            ("ConfigMap", "v1", "cm", true),
            ("ConfigMap", "v1", "configmap.apps", false),
        ] {
            let resource = ObjectReference {
                api_version: version.to_owned(),
                kind: kind.to_owned(),
                ..ObjectReference::default()
            };
            assert_eq!(is_kind(&resource, word), is_it, "{kind} {word}");
        }
    }
}
