//! The built-in kinds that the embedded API serves: names, scope, verbs and subresources, as
//! discovery tells them.

/// What a request may do to most kinds, in the order discovery lists it.
const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Kinds whose whole collection may not be deleted at once.
const NO_COLLECTION: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
/// Kinds that are questions: they are answered, never stored.
const CREATE: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

/// A subresource below an object of some kind (`deployments/scale`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// The last part of the path, `scale`.
    pub name: &'static str,
    /// Group of the kind that it speaks.
    pub group: &'static str,
    /// Version of the kind that it speaks.
    pub version: &'static str,
    /// Kind that it speaks: `Scale` for `deployments/scale`, the parent's kind for `status`.
    pub kind: &'static str,
    /// Verbs in discovery.
    pub verbs: &'static [&'static str],
}

/// One built-in resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the API calls it so")]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version, `v1`.
    pub version: &'static str,
    /// Kind in CamelCase.
    pub kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Singular name that kubectl accepts.
    pub singular: &'static str,
    /// Short names that kubectl accepts.
    pub short_names: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs in discovery.
    pub verbs: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Whether there is a `status` subresource.
    pub status: bool,
    /// Whether there is a `scale` subresource.
    pub scale: bool,
    /// Every subresource, `status` and `scale` included.
    pub subresources: &'static [Subresource],
}

/// Returns the built-in kind that an object's `apiVersion` and `kind` name, if there is one.
#[cfg(test)]
pub fn of_object(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    all()
        .iter()
        .find(|k| k.kind == kind && k.group == group && k.version == version)
}

/// Returns all built-in kinds: core group first, then the groups in the order of discovery.
pub fn all() -> &'static [Kind] {
    KINDS
}

macro_rules! subresources {
    ($($name:literal => $group:literal $version:literal $kind:literal $verbs:expr),* $(,)?) => {
        &[$(Subresource { name: $name, group: $group, version: $version, kind: $kind, verbs: $verbs }),*]
    };
}

/// One line a kind; `status` and `scale` are read off the subresources.
macro_rules! kind {
    ($group:literal $version:literal $kind:literal $plural:literal $singular:literal
     [$($short:literal)*] $scope:ident $verbs:ident [$($category:literal)*]
     { $($sub:literal => $sgroup:literal $sversion:literal $skind:literal $sverbs:expr),* $(,)? }) => {{
        const SUBS: &[Subresource] = subresources!($($sub => $sgroup $sversion $skind $sverbs),*);
        Kind {
            group: $group,
            version: $version,
            kind: $kind,
            plural: $plural,
            singular: $singular,
            short_names: &[$($short),*],
            namespaced: scope!($scope),
            verbs: $verbs,
            categories: &[$($category),*],
            status: has(SUBS, "status"),
            scale: has(SUBS, "scale"),
            subresources: SUBS,
        }
    }};
}

macro_rules! scope {
    (namespaced) => {
        true
    };
    (cluster) => {
        false
    };
}

const fn has(subresources: &[Subresource], name: &str) -> bool {
    let mut i = 0;
    while i < subresources.len() {
        if same(subresources[i].name.as_bytes(), name.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

/// Returns whether two slices are equal: `==` on slices is not const yet.
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    kind!("" "v1" "ConfigMap" "configmaps" "configmap" ["cm"] namespaced ALL [] {}),
    kind!("" "v1" "Endpoints" "endpoints" "endpoints" ["ep"] namespaced ALL [] {}),
    kind!("" "v1" "Event" "events" "event" ["ev"] namespaced ALL [] {}),
    kind!("" "v1" "LimitRange" "limitranges" "limitrange" ["limits"] namespaced ALL [] {}),
    kind!("" "v1" "Namespace" "namespaces" "namespace" ["ns"] cluster NO_COLLECTION [] {
        "finalize" => "" "v1" "Namespace" &["update"],
        "status" => "" "v1" "Namespace" READ_WRITE,
    }),
    kind!("" "v1" "Node" "nodes" "node" ["no"] cluster ALL [] {
        "status" => "" "v1" "Node" READ_WRITE,
    }),
    kind!("" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" "persistentvolumeclaim" ["pvc"] namespaced ALL [] {
        "status" => "" "v1" "PersistentVolumeClaim" READ_WRITE,
    }),
    kind!("" "v1" "PersistentVolume" "persistentvolumes" "persistentvolume" ["pv"] cluster ALL [] {
        "status" => "" "v1" "PersistentVolume" READ_WRITE,
    }),
    kind!("" "v1" "Pod" "pods" "pod" ["po"] namespaced ALL ["all"] {
        "ephemeralcontainers" => "" "v1" "Pod" READ_WRITE,
        "resize" => "" "v1" "Pod" READ_WRITE,
        "status" => "" "v1" "Pod" READ_WRITE,
    }),
    kind!("" "v1" "PodTemplate" "podtemplates" "podtemplate" [] namespaced ALL [] {}),
    kind!("" "v1" "ReplicationController" "replicationcontrollers" "replicationcontroller" ["rc"] namespaced ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "" "v1" "ReplicationController" READ_WRITE,
    }),
    kind!("" "v1" "ResourceQuota" "resourcequotas" "resourcequota" ["quota"] namespaced ALL [] {
        "status" => "" "v1" "ResourceQuota" READ_WRITE,
    }),
    kind!("" "v1" "Secret" "secrets" "secret" [] namespaced ALL [] {}),
    kind!("" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" ["sa"] namespaced ALL [] {
        "token" => "authentication.k8s.io" "v1" "TokenRequest" CREATE,
    }),
    kind!("" "v1" "Service" "services" "service" ["svc"] namespaced ALL ["all"] {
        "status" => "" "v1" "Service" READ_WRITE,
    }),
    kind!("apiregistration.k8s.io" "v1" "APIService" "apiservices" "apiservice" [] cluster ALL ["api-extensions"] {
        "status" => "apiregistration.k8s.io" "v1" "APIService" READ_WRITE,
    }),
    kind!("apps" "v1" "ControllerRevision" "controllerrevisions" "controllerrevision" [] namespaced ALL [] {}),
    kind!("apps" "v1" "DaemonSet" "daemonsets" "daemonset" ["ds"] namespaced ALL ["all"] {
        "status" => "apps" "v1" "DaemonSet" READ_WRITE,
    }),
    kind!("apps" "v1" "Deployment" "deployments" "deployment" ["deploy"] namespaced ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "Deployment" READ_WRITE,
    }),
    kind!("apps" "v1" "ReplicaSet" "replicasets" "replicaset" ["rs"] namespaced ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "ReplicaSet" READ_WRITE,
    }),
    kind!("apps" "v1" "StatefulSet" "statefulsets" "statefulset" ["sts"] namespaced ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "StatefulSet" READ_WRITE,
    }),
    kind!("authentication.k8s.io" "v1" "SelfSubjectReview" "selfsubjectreviews" "selfsubjectreview" [] cluster CREATE [] {}),
    kind!("authentication.k8s.io" "v1" "TokenReview" "tokenreviews" "tokenreview" [] cluster CREATE [] {}),
    kind!("authorization.k8s.io" "v1" "SelfSubjectAccessReview" "selfsubjectaccessreviews" "selfsubjectaccessreview" [] cluster CREATE [] {}),
    kind!("authorization.k8s.io" "v1" "SubjectAccessReview" "subjectaccessreviews" "subjectaccessreview" [] cluster CREATE [] {}),
    kind!("autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers" "horizontalpodautoscaler" ["hpa"] namespaced ALL ["all"] {
        "status" => "autoscaling" "v2" "HorizontalPodAutoscaler" READ_WRITE,
    }),
    kind!("batch" "v1" "CronJob" "cronjobs" "cronjob" ["cj"] namespaced ALL ["all"] {
        "status" => "batch" "v1" "CronJob" READ_WRITE,
    }),
    kind!("batch" "v1" "Job" "jobs" "job" [] namespaced ALL ["all"] {
        "status" => "batch" "v1" "Job" READ_WRITE,
    }),
    kind!("certificates.k8s.io" "v1" "CertificateSigningRequest" "certificatesigningrequests" "certificatesigningrequest" ["csr"] cluster ALL [] {
        "approval" => "certificates.k8s.io" "v1" "CertificateSigningRequest" READ_WRITE,
        "status" => "certificates.k8s.io" "v1" "CertificateSigningRequest" READ_WRITE,
    }),
    kind!("networking.k8s.io" "v1" "IngressClass" "ingressclasses" "ingressclass" [] cluster ALL [] {}),
    kind!("networking.k8s.io" "v1" "Ingress" "ingresses" "ingress" ["ing"] namespaced ALL [] {
        "status" => "networking.k8s.io" "v1" "Ingress" READ_WRITE,
    }),
    kind!("networking.k8s.io" "v1" "NetworkPolicy" "networkpolicies" "networkpolicy" ["netpol"] namespaced ALL [] {}),
    kind!("policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" "poddisruptionbudget" ["pdb"] namespaced ALL [] {
        "status" => "policy" "v1" "PodDisruptionBudget" READ_WRITE,
    }),
    kind!("rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings" "clusterrolebinding" [] cluster ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" "clusterrole" [] cluster ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" "rolebinding" [] namespaced ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "Role" "roles" "role" [] namespaced ALL [] {}),
    kind!("storage.k8s.io" "v1" "StorageClass" "storageclasses" "storageclass" ["sc"] cluster ALL [] {}),
    kind!("admissionregistration.k8s.io" "v1" "MutatingWebhookConfiguration" "mutatingwebhookconfigurations" "mutatingwebhookconfiguration" [] cluster ALL ["api-extensions"] {}),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingWebhookConfiguration" "validatingwebhookconfigurations" "validatingwebhookconfiguration" [] cluster ALL ["api-extensions"] {}),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicy" "validatingadmissionpolicies" "validatingadmissionpolicy" [] cluster ALL ["api-extensions"] {
        "status" => "admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicy" READ_WRITE,
    }),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicyBinding" "validatingadmissionpolicybindings" "validatingadmissionpolicybinding" [] cluster ALL ["api-extensions"] {}),
    kind!("flowcontrol.apiserver.k8s.io" "v1" "FlowSchema" "flowschemas" "flowschema" [] cluster ALL [] {
        "status" => "flowcontrol.apiserver.k8s.io" "v1" "FlowSchema" READ_WRITE,
    }),
    kind!("apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions" "customresourcedefinition" ["crd" "crds"] cluster ALL ["api-extensions"] {
        "status" => "apiextensions.k8s.io" "v1" "CustomResourceDefinition" READ_WRITE,
    }),
    kind!("scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" "priorityclass" ["pc"] cluster ALL [] {}),
    kind!("coordination.k8s.io" "v1" "Lease" "leases" "lease" [] namespaced ALL [] {}),
    kind!("discovery.k8s.io" "v1" "EndpointSlice" "endpointslices" "endpointslice" [] namespaced ALL [] {}),
];

#[cfg(test)]
impl Kind {
    /// Returns the API version, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns whether objects of the kind are kept: false for reviews, which are only answered.
    pub fn stored(&self) -> bool {
        self.verbs.contains(&"get")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the built-in kind behind a path, if there is one.
    fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        all()
            .iter()
            .find(|k| k.plural == plural && k.group == group && k.version == version)
    }
    use std::collections::HashSet;

    #[test]
    fn every_resource_is_named_once() {
        let mut seen = HashSet::new();
        for kind in all() {
            assert!(
                seen.insert((kind.group, kind.version, kind.plural)),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn status_and_scale_follow_from_the_subresources() {
        let deployment = find("apps", "v1", "deployments").expect("deployments");
        assert!(deployment.status && deployment.scale && deployment.namespaced);
        let config = find("", "v1", "configmaps").expect("configmaps");
        assert!(!config.status && !config.scale);
        assert!(!find("", "v1", "nodes").expect("nodes").namespaced);
    }

    #[test]
    fn reviews_are_answered_not_stored() {
        let stored = |group, plural| find(group, "v1", plural).expect(plural).stored();
        assert!(!stored("authorization.k8s.io", "selfsubjectaccessreviews"));
        assert!(stored("", "pods"));
    }

    #[test]
    fn objects_lead_to_their_kind() {
        assert_eq!(
            of_object("apps/v1", "Deployment").map(|k| k.plural),
            Some("deployments")
        );
        assert_eq!(of_object("v1", "Pod").map(|k| k.plural), Some("pods"));
        assert_eq!(of_object("apps/v1beta1", "Deployment"), None);
    }
}
