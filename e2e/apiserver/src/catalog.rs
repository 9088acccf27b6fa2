//! The built-in kinds that the embedded API serves: names, scope, verbs and subresources, as
//! discovery has them.

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

/// One line a kind.
macro_rules! kind {
    ($group:literal $version:literal $kind:literal $plural:literal $singular:literal
     [$($short:literal)*] $scope:ident $verbs:ident [$($category:literal)*]
     { $($sub:literal => $sgroup:literal $sversion:literal $skind:literal $sverbs:expr),* $(,)? }) => {
        Kind {
            group: $group,
            version: $version,
            kind: $kind,
            plural: $plural,
            singular: $singular,
            short_names: &[$($short),*],
            namespaced: $scope,
            verbs: $verbs,
            categories: &[$($category),*],
            subresources: &[$(Subresource {
                name: $sub, group: $sgroup, version: $sversion, kind: $skind, verbs: $sverbs,
            }),*],
        }
    };
}

/// Values of [`Kind::namespaced`].
const NAMESPACED: bool = true;
const CLUSTER: bool = false;

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    kind!("" "v1" "ConfigMap" "configmaps" "configmap" ["cm"] NAMESPACED ALL [] {}),
    kind!("" "v1" "Endpoints" "endpoints" "endpoints" ["ep"] NAMESPACED ALL [] {}),
    kind!("" "v1" "Event" "events" "event" ["ev"] NAMESPACED ALL [] {}),
    kind!("" "v1" "LimitRange" "limitranges" "limitrange" ["limits"] NAMESPACED ALL [] {}),
    kind!("" "v1" "Namespace" "namespaces" "namespace" ["ns"] CLUSTER NO_COLLECTION [] {
        "finalize" => "" "v1" "Namespace" &["update"],
        "status" => "" "v1" "Namespace" READ_WRITE,
    }),
    kind!("" "v1" "Node" "nodes" "node" ["no"] CLUSTER ALL [] {
        "status" => "" "v1" "Node" READ_WRITE,
    }),
    kind!("" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" "persistentvolumeclaim" ["pvc"] NAMESPACED ALL [] {
        "status" => "" "v1" "PersistentVolumeClaim" READ_WRITE,
    }),
    kind!("" "v1" "PersistentVolume" "persistentvolumes" "persistentvolume" ["pv"] CLUSTER ALL [] {
        "status" => "" "v1" "PersistentVolume" READ_WRITE,
    }),
    kind!("" "v1" "Pod" "pods" "pod" ["po"] NAMESPACED ALL ["all"] {
        "binding" => "" "v1" "Binding" CREATE,
        "status" => "" "v1" "Pod" READ_WRITE,
    }),
    kind!("" "v1" "PodTemplate" "podtemplates" "podtemplate" [] NAMESPACED ALL [] {}),
    kind!("" "v1" "ReplicationController" "replicationcontrollers" "replicationcontroller" ["rc"] NAMESPACED ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "" "v1" "ReplicationController" READ_WRITE,
    }),
    kind!("" "v1" "ResourceQuota" "resourcequotas" "resourcequota" ["quota"] NAMESPACED ALL [] {
        "status" => "" "v1" "ResourceQuota" READ_WRITE,
    }),
    kind!("" "v1" "Secret" "secrets" "secret" [] NAMESPACED ALL [] {}),
    kind!("" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" ["sa"] NAMESPACED ALL [] {
        "token" => "authentication.k8s.io" "v1" "TokenRequest" CREATE,
    }),
    kind!("" "v1" "Service" "services" "service" ["svc"] NAMESPACED ALL ["all"] {
        "status" => "" "v1" "Service" READ_WRITE,
    }),
    kind!("apiregistration.k8s.io" "v1" "APIService" "apiservices" "apiservice" [] CLUSTER ALL ["api-extensions"] {
        "status" => "apiregistration.k8s.io" "v1" "APIService" READ_WRITE,
    }),
    kind!("apps" "v1" "ControllerRevision" "controllerrevisions" "controllerrevision" [] NAMESPACED ALL [] {}),
    kind!("apps" "v1" "DaemonSet" "daemonsets" "daemonset" ["ds"] NAMESPACED ALL ["all"] {
        "status" => "apps" "v1" "DaemonSet" READ_WRITE,
    }),
    kind!("apps" "v1" "Deployment" "deployments" "deployment" ["deploy"] NAMESPACED ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "Deployment" READ_WRITE,
    }),
    kind!("apps" "v1" "ReplicaSet" "replicasets" "replicaset" ["rs"] NAMESPACED ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "ReplicaSet" READ_WRITE,
    }),
    kind!("apps" "v1" "StatefulSet" "statefulsets" "statefulset" ["sts"] NAMESPACED ALL ["all"] {
        "scale" => "autoscaling" "v1" "Scale" READ_WRITE,
        "status" => "apps" "v1" "StatefulSet" READ_WRITE,
    }),
    kind!("authentication.k8s.io" "v1" "SelfSubjectReview" "selfsubjectreviews" "selfsubjectreview" [] CLUSTER CREATE [] {}),
    kind!("authentication.k8s.io" "v1" "TokenReview" "tokenreviews" "tokenreview" [] CLUSTER CREATE [] {}),
    kind!("authorization.k8s.io" "v1" "SelfSubjectAccessReview" "selfsubjectaccessreviews" "selfsubjectaccessreview" [] CLUSTER CREATE [] {}),
    kind!("authorization.k8s.io" "v1" "SubjectAccessReview" "subjectaccessreviews" "subjectaccessreview" [] CLUSTER CREATE [] {}),
    kind!("autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers" "horizontalpodautoscaler" ["hpa"] NAMESPACED ALL ["all"] {
        "status" => "autoscaling" "v2" "HorizontalPodAutoscaler" READ_WRITE,
    }),
    kind!("batch" "v1" "CronJob" "cronjobs" "cronjob" ["cj"] NAMESPACED ALL ["all"] {
        "status" => "batch" "v1" "CronJob" READ_WRITE,
    }),
    kind!("batch" "v1" "Job" "jobs" "job" [] NAMESPACED ALL ["all"] {
        "status" => "batch" "v1" "Job" READ_WRITE,
    }),
    kind!("certificates.k8s.io" "v1" "CertificateSigningRequest" "certificatesigningrequests" "certificatesigningrequest" ["csr"] CLUSTER ALL [] {
        "approval" => "certificates.k8s.io" "v1" "CertificateSigningRequest" READ_WRITE,
        "status" => "certificates.k8s.io" "v1" "CertificateSigningRequest" READ_WRITE,
    }),
    kind!("networking.k8s.io" "v1" "IngressClass" "ingressclasses" "ingressclass" [] CLUSTER ALL [] {}),
    kind!("networking.k8s.io" "v1" "Ingress" "ingresses" "ingress" ["ing"] NAMESPACED ALL [] {
        "status" => "networking.k8s.io" "v1" "Ingress" READ_WRITE,
    }),
    kind!("networking.k8s.io" "v1" "NetworkPolicy" "networkpolicies" "networkpolicy" ["netpol"] NAMESPACED ALL [] {}),
    kind!("policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" "poddisruptionbudget" ["pdb"] NAMESPACED ALL [] {
        "status" => "policy" "v1" "PodDisruptionBudget" READ_WRITE,
    }),
    kind!("rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings" "clusterrolebinding" [] CLUSTER ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" "clusterrole" [] CLUSTER ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" "rolebinding" [] NAMESPACED ALL [] {}),
    kind!("rbac.authorization.k8s.io" "v1" "Role" "roles" "role" [] NAMESPACED ALL [] {}),
    kind!("storage.k8s.io" "v1" "StorageClass" "storageclasses" "storageclass" ["sc"] CLUSTER ALL [] {}),
    kind!("admissionregistration.k8s.io" "v1" "MutatingWebhookConfiguration" "mutatingwebhookconfigurations" "mutatingwebhookconfiguration" [] CLUSTER ALL ["api-extensions"] {}),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingWebhookConfiguration" "validatingwebhookconfigurations" "validatingwebhookconfiguration" [] CLUSTER ALL ["api-extensions"] {}),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicy" "validatingadmissionpolicies" "validatingadmissionpolicy" [] CLUSTER ALL ["api-extensions"] {
        "status" => "admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicy" READ_WRITE,
    }),
    kind!("admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicyBinding" "validatingadmissionpolicybindings" "validatingadmissionpolicybinding" [] CLUSTER ALL ["api-extensions"] {}),
    kind!("flowcontrol.apiserver.k8s.io" "v1" "FlowSchema" "flowschemas" "flowschema" [] CLUSTER ALL [] {
        "status" => "flowcontrol.apiserver.k8s.io" "v1" "FlowSchema" READ_WRITE,
    }),
    kind!("apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions" "customresourcedefinition" ["crd" "crds"] CLUSTER ALL ["api-extensions"] {
        "status" => "apiextensions.k8s.io" "v1" "CustomResourceDefinition" READ_WRITE,
    }),
    kind!("scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" "priorityclass" ["pc"] CLUSTER ALL [] {}),
    kind!("coordination.k8s.io" "v1" "Lease" "leases" "lease" [] NAMESPACED ALL [] {}),
    kind!("discovery.k8s.io" "v1" "EndpointSlice" "endpointslices" "endpointslice" [] NAMESPACED ALL [] {}),
];

impl Kind {
    /// Returns whether there is a subresource of this name.
    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|it| it.name == subresource)
    }
}

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
