//! Where kinds differ in how the server treats them: names, generations, unconditional writes,
//! answers to deletions.

use crate::wire::names::NameRule;

/// When `metadata.generation` exists and grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    None,
    /// Starts at 1 and grows when one of these members changes.
    Of(&'static [&'static str]),
    /// Starts at 1 and grows when the spec or an annotation changes.
    SpecAndAnnotations,
    /// Starts at 1 and grows with every change outside metadata (and status, where that is a
    /// subresource).
    Everything,
}

/// What a kind does differently from the plain one.
#[allow(clippy::struct_excessive_bools)] // independent facts, read one by one
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindFacts {
    /// What names are allowed.
    pub names: NameRule,
    /// Whether an update may leave the resource version out.
    pub unconditional_update: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub return_deleted: bool,
    /// How `metadata.generation` goes.
    pub generation: Generation,
    /// Whether writes of the status leave labels alone.
    pub status_keeps_labels: bool,
    /// Whether writes of the status leave all metadata alone.
    pub status_keeps_metadata: bool,
}

impl KindFacts {
    /// Custom resources.
    pub const CUSTOM: Self = Self {
        names: NameRule::Subdomain,
        unconditional_update: false,
        create_on_update: false,
        return_deleted: false,
        generation: Generation::Everything,
        status_keeps_labels: true,
        status_keeps_metadata: true,
    };

    /// Returns the facts of a built-in resource, from the strategies of the Kubernetes registry.
    pub fn of(group: &str, plural: &str) -> Self {
        let names = match (group, plural) {
            ("", "namespaces") => NameRule::Label,
            ("", "services") => NameRule::Label1035,
            ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        };
        let conditional = matches!(
            plural,
            "customresourcedefinitions"
                | "leases"
                | "serviceaccounts"
                | "endpointslices"
                | "poddisruptionbudgets"
                | "mutatingwebhookconfigurations"
                | "validatingwebhookconfigurations"
                | "horizontalpodautoscalers"
                | "apiservices"
        );
        Self {
            names,
            unconditional_update: !conditional,
            create_on_update: matches!(
                plural,
                "events" | "leases" | "endpoints" | "services" | "limitranges" | "podtemplates"
            ) || group == "rbac.authorization.k8s.io",
            return_deleted: matches!(
                plural,
                "pods"
                    | "services"
                    | "serviceaccounts"
                    | "persistentvolumes"
                    | "persistentvolumeclaims"
                    | "limitranges"
                    | "resourcequotas"
                    | "podtemplates"
                    | "namespaces"
                    | "storageclasses"
            ),
            generation: generation(plural),
            status_keeps_labels: group == "apps" || group == "batch",
            status_keeps_metadata: plural == "customresourcedefinitions",
        }
    }
}

fn generation(plural: &str) -> Generation {
    match plural {
        "deployments" => Generation::SpecAndAnnotations,
        "replicasets"
        | "statefulsets"
        | "daemonsets"
        | "replicationcontrollers"
        | "jobs"
        | "cronjobs"
        | "ingresses"
        | "ingressclasses"
        | "networkpolicies"
        | "poddisruptionbudgets"
        | "customresourcedefinitions"
        | "pods" => Generation::Of(&["spec"]),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            Generation::Of(&["webhooks"])
        }
        "endpointslices" => Generation::Of(&["endpoints", "ports", "addressType"]),
        "priorityclasses" => Generation::Of(&[]),
        _ => Generation::None,
    }
}
