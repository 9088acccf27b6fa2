//! The names that both sides must agree on: namespaces, labels, annotations, finalizers, condition
//! types, taint keys, and the rules by which object names are made. All of them are Karmada's.

/// Namespace of cluster credentials and of the leases by which agents answer the roll call.
pub const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// Namespace of the control plane itself.
pub const SYSTEM_NAMESPACE: &str = "karmada-system";
/// What the execution namespace of a cluster begins with.
pub const EXECUTION_NAMESPACE_PREFIX: &str = "karmada-es-";
/// What the user name of an agent begins with; the name of its cluster follows.
pub const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
/// The group of all agents that have a certificate.
pub const AGENT_GROUP: &str = "system:karmada:agents";
/// What the group of a bootstrap token begins with that is for one cluster (ours); the name of the
/// cluster follows.
pub const CLUSTER_BOOTSTRAP_GROUP_PREFIX: &str = "system:bootstrappers:karmada:cluster:";
/// The group of a bootstrap token that is for any cluster that is not there yet.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:karmada:default-cluster-token";
/// The scheduler that is in charge when none is named.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Finalizers.
pub mod finalizer {
    /// Of a Cluster: its execution namespace and credentials have to go first.
    pub const CLUSTER: &str = "karmada.io/cluster-controller";
    /// Of a Work: its objects in the member have to go first.
    pub const WORK: &str = "karmada.io/execution-controller";
    /// Of a ResourceBinding: its Works have to go first.
    pub const RESOURCE_BINDING: &str = "karmada.io/binding-controller";
    /// Of a ClusterResourceBinding: its Works have to go first.
    pub const CLUSTER_RESOURCE_BINDING: &str = "karmada.io/cluster-resource-binding-controller";
    /// Of a ResourceBinding with dependencies: they have to be released first.
    pub const DEPENDENCIES: &str = "karmada.io/binding-dependencies-distributor";
    /// Of a PropagationPolicy: its claims have to be released first.
    pub const PROPAGATION_POLICY: &str = "karmada.io/propagation-policy-controller";
    /// Of a ClusterPropagationPolicy: its claims have to be released first.
    pub const CLUSTER_PROPAGATION_POLICY: &str = "karmada.io/cluster-propagation-policy-controller";
}

/// Labels.
pub mod label {
    /// `true` on objects that Karmada put into a member.
    pub const MANAGED: &str = "karmada.io/managed";
    /// `true` on objects of the system itself.
    pub const SYSTEM: &str = "karmada.io/system";
    /// Identity of a ResourceBinding, on it, its Works and their manifests.
    pub const RESOURCE_BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
    /// Identity of a ClusterResourceBinding, on it, its Works and their manifests.
    pub const CLUSTER_RESOURCE_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
    /// Identity of a Work, on it and its manifests.
    pub const WORK_ID: &str = "work.karmada.io/permanent-id";
    /// Identity of a PropagationPolicy, on it, its resources and their bindings.
    pub const PROPAGATION_POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// Identity of a ClusterPropagationPolicy, on it, its resources and their bindings.
    pub const CLUSTER_PROPAGATION_POLICY_ID: &str =
        "clusterpropagationpolicy.karmada.io/permanent-id";
    /// On a binding that another controller made; the scheduler takes it without a policy.
    pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
    /// With a key behind it, on a binding: identity of a binding that depends on it.
    pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";
    /// `true` on a template: the member's replicas win.
    pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
    /// On a template that another controller has claimed: policies leave it alone.
    pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
    /// `Always` on a template: it must not be deleted.
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// `true` on a namespace: it is not made in every member by itself.
    pub const SKIP_AUTO_PROPAGATION: &str = "namespace.karmada.io/skip-auto-propagation";
}

/// Annotations.
pub mod annotation {
    /// On a manifest: namespace of its Work.
    pub const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
    /// On a manifest: name of its Work.
    pub const WORK_NAME: &str = "work.karmada.io/name";
    /// On a Work and a manifest: namespace of the ResourceBinding.
    pub const RESOURCE_BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
    /// On a Work and a manifest: name of the ResourceBinding.
    pub const RESOURCE_BINDING_NAME: &str = "resourcebinding.karmada.io/name";
    /// On a Work and a manifest: name of the ClusterResourceBinding.
    pub const CLUSTER_RESOURCE_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
    /// On a manifest: generation of the template.
    pub const TEMPLATE_GENERATION: &str = "resourcetemplate.karmada.io/generation";
    /// On a manifest: uid of the template.
    pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
    /// On a manifest: the labels that are the template's, sorted, with commas.
    pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
    /// On a manifest: the annotations that are the template's, sorted, with commas.
    pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
    /// On a Work and a manifest: `overwrite` or `abort`.
    pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
    /// On a binding: the placement that was scheduled last, as JSON.
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
    /// On a Work: the override policies that took part, as JSON.
    pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
    /// On a Work: the cluster-wide override policies that took part, as JSON.
    pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
    /// On a ResourceBinding: what its resource refers to, as JSON.
    pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
    /// On a template and a binding: namespace of the PropagationPolicy.
    pub const PROPAGATION_POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a template and a binding: name of the PropagationPolicy.
    pub const PROPAGATION_POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// On a template and a binding: name of the ClusterPropagationPolicy.
    pub const CLUSTER_PROPAGATION_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
    /// On a binding (ours): the last eviction of its workload by a taint, as JSON.
    pub const LAST_EVICTION: &str = "failover.muster.io/last-eviction";
    /// On an object from a cache of Karmada's search: the cluster it is from.
    pub const CACHED_FROM_CLUSTER: &str = "resource.karmada.io/cached-from-cluster";
}

/// Keys of the taints that the system itself puts on clusters.
pub mod taint {
    /// The cluster is not ready, or has never said so.
    pub const NOT_READY: &str = "cluster.karmada.io/not-ready";
    /// Nobody knows whether the cluster is ready.
    pub const UNREACHABLE: &str = "cluster.karmada.io/unreachable";
    /// The member is registered already, under another name (ours): its agent applies nothing.
    pub const DUPLICATE: &str = "clusters.muster.io/duplicate-registration";
}

/// Types of conditions.
pub mod condition {
    /// Of a Cluster: it is healthy.
    pub const READY: &str = "Ready";
    /// Of a Cluster: its list of kinds is complete.
    pub const COMPLETE_API_ENABLEMENTS: &str = "CompleteAPIEnablements";
    /// Of a Cluster (ours): no other Cluster is the same member. Written when there was a doubt.
    pub const UNIQUE_IDENTITY: &str = "UniqueIdentity";
    /// Of a Cluster (ours): its lease is listened to. Written when it is not.
    pub const MONITORED: &str = "Monitored";
    /// Of a binding: clusters were found.
    pub const SCHEDULED: &str = "Scheduled";
    /// Of a binding: every Work was applied.
    pub const FULLY_APPLIED: &str = "FullyApplied";
    /// Of a Work: its objects were written.
    pub const APPLIED: &str = "Applied";
    /// Of a Work: it may be sent to the member.
    pub const DISPATCHING: &str = "Dispatching";
    /// Of a Work (ours): somebody else keeps changing its objects in the member. Written when there
    /// was such a contest.
    pub const CONTENDED: &str = "Contended";
}

/// Why a cluster is being left, and who wants it.
pub mod eviction {
    /// A taint that is not tolerated.
    pub const REASON_TAINT_UNTOLERATED: &str = "TaintUntolerated";
    /// The application failed there.
    pub const REASON_APPLICATION_FAILURE: &str = "ApplicationFailure";
    /// No cluster may have the workload as its policy and the clusters stand; the copy that there
    /// is stays (ours).
    pub const REASON_NO_CLUSTER_FIT: &str = "NoClusterFit";
    /// The controller that watches taints.
    pub const PRODUCER_TAINT_MANAGER: &str = "TaintManager";
    /// The scheduler (ours).
    pub const PRODUCER_SCHEDULER: &str = "Scheduler";
}

/// Whether a name may be a cluster's: a DNS label (RFC 1123) of at most 48 characters, because
/// namespaces are named after it.
pub fn is_cluster_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=48).contains(&bytes.len())
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
}

/// Namespace of the Works of a cluster.
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}")
}

/// The cluster that an execution namespace belongs to; `None` for any other namespace.
pub fn cluster_of_execution_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_NAMESPACE_PREFIX)
}

/// Whether a namespace belongs to the system, so that nothing of the user's is placed from it.
pub fn is_reserved_namespace(namespace: &str) -> bool {
    [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE].contains(&namespace)
        || namespace.starts_with(EXECUTION_NAMESPACE_PREFIX)
}

/// Name of the binding of a resource. The API group is no part of it, so two resources of one name
/// and kind but of different groups share a binding.
pub fn binding(kind: &str, name: &str) -> String {
    dns(&format!("{name}-{kind}"))
}

/// Name of the Work of a resource; `namespace` is empty for a resource without one.
pub fn work(kind: &str, name: &str, namespace: &str) -> String {
    let name = dns(name);
    let origin = if namespace.is_empty() {
        format!("{name}-{kind}")
    } else {
        format!("{namespace}-{name}-{kind}")
    };
    format!("{name}-{}", hash(&origin.to_lowercase()))
}

/// What stands for a binding in the label of a binding that it depends on.
pub fn binding_reference_key(namespace: &str, name: &str) -> String {
    hash(&namespaced_key(namespace, name))
}

/// Name of the policy that is made for a resource on the command line; `gvk` is written
/// `apps/v1, Kind=Deployment`.
pub fn policy(namespace: &str, name: &str, gvk: &str) -> String {
    dns(&format!("{name}-{}", hash(&format!("{namespace}{gvk}"))))
}

/// `namespace/name`, or `name` without a namespace.
pub fn namespaced_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// Name of the account that acts for the control plane in a member.
pub fn service_account(cluster: &str) -> String {
    format!("karmada-{cluster}")
}

/// Name of the role of that account.
pub fn role(service_account: &str) -> String {
    format!("karmada-controller-manager:{service_account}")
}

/// Name of the secret with the token to impersonate users in a member.
pub fn impersonation_secret(cluster: &str) -> String {
    format!("{cluster}-impersonator")
}

/// Name of the deployment that estimates the capacity of a member.
pub fn estimator_deployment(cluster: &str) -> String {
    estimator_service("karmada-scheduler-estimator", cluster)
}

/// Name of the service in front of it.
pub fn estimator_service(prefix: &str, cluster: &str) -> String {
    format!("{prefix}-{cluster}")
}

/// Name of the service that stands for one that was imported from other members.
pub fn derived_service(service: &str) -> String {
    format!("derived-{service}")
}

/// Name of an endpoint slice that was imported from a member.
pub fn imported_endpoint_slice(slice: &str, cluster: &str) -> String {
    format!("imported-{cluster}-{slice}")
}

/// Makes a valid object name of one that may be a role's (`system:node`).
fn dns(name: &str) -> String {
    name.replace(':', ".").to_lowercase()
}

/// FNV-1a of 32 bits.
pub fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The hash of a text, in decimal, spelled in letters that make no words (Kubernetes' safe
/// encoding).
fn hash(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
    fnv32a(text).to_string().bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_in_karmadas_documentation() {
        assert_eq!(work("Deployment", "nginx", "default"), "nginx-687f7fb96f");
        assert_eq!(
            binding("ClusterRole", "system::tom"),
            "system..tom-clusterrole"
        );
        assert_eq!(
            binding_reference_key("default", "nginx-deployment"),
            "5bdc5c4dcf"
        );
    }

    #[test]
    fn an_execution_namespace_names_its_cluster() {
        let namespace = execution_namespace("member1");
        assert_eq!(cluster_of_execution_namespace(&namespace), Some("member1"));
        assert!(is_reserved_namespace(&namespace));
        assert_eq!(cluster_of_execution_namespace("default"), None);
    }
}
