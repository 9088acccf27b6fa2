//! Names that the agent and the control plane share: namespaces, labels, annotations, finalizers,
//! condition types, taint keys, and the functions that make object names. They are Karmada's,
//! except where "Muster's own" is said.

/// Namespace of cluster credentials and of the leases that agents renew.
pub const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// Namespace of the control plane.
pub const SYSTEM_NAMESPACE: &str = "karmada-system";
/// Prefix of execution namespaces; the name of the cluster follows.
pub const EXECUTION_NAMESPACE_PREFIX: &str = "karmada-es-";
/// Prefix of the user names of agents; the name of the cluster follows.
pub const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
/// Group of all agents with a certificate.
pub const AGENT_GROUP: &str = "system:karmada:agents";
/// Prefix of the group of bootstrap tokens for one cluster (Muster's own); the name of the cluster
/// follows.
pub const CLUSTER_BOOTSTRAP_GROUP_PREFIX: &str = "system:bootstrappers:karmada:cluster:";
/// Group of bootstrap tokens for any cluster that is not registered yet.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:karmada:default-cluster-token";
/// Scheduler of policies that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Finalizers. Each keeps its object until something else has been removed.
pub mod finalizer {
    /// On a Cluster: until its execution namespace and credentials are removed.
    pub const CLUSTER: &str = "karmada.io/cluster-controller";
    /// On a Work: until its objects in the member are removed.
    pub const WORK: &str = "karmada.io/execution-controller";
    /// On a ResourceBinding: until its Works are removed.
    pub const RESOURCE_BINDING: &str = "karmada.io/binding-controller";
    /// On a ClusterResourceBinding: until its Works are removed.
    pub const CLUSTER_RESOURCE_BINDING: &str = "karmada.io/cluster-resource-binding-controller";
    /// On a ResourceBinding with dependencies: until these are released.
    pub const DEPENDENCIES: &str = "karmada.io/binding-dependencies-distributor";
    /// On a PropagationPolicy: until its claims are released.
    pub const PROPAGATION_POLICY: &str = "karmada.io/propagation-policy-controller";
    /// On a ClusterPropagationPolicy: until its claims are released.
    pub const CLUSTER_PROPAGATION_POLICY: &str = "karmada.io/cluster-propagation-policy-controller";
}

/// Labels of objects.
pub mod label {
    /// `true` on objects that the fleet manages in a member.
    pub const MANAGED: &str = "karmada.io/managed";
    /// `true` on objects of the system itself.
    pub const SYSTEM: &str = "karmada.io/system";
    /// Name of the Cluster that a Secret has the credentials of, on a Secret of another name than
    /// the Cluster's.
    pub const SECRET_OF_CLUSTER: &str = "failover.muster.io/cluster";
    /// `true` on an object in a member that its agent stops when the member is cut off (Muster's
    /// own).
    pub const FENCED: &str = "failover.muster.io/fenced";
    /// Queue of Kueue in the member that a workload waits in and is started by.
    pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
    /// Identity of a ResourceBinding, on it, its Works and their manifests.
    pub const RESOURCE_BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
    /// Identity of a ClusterResourceBinding, on it, its Works and their manifests.
    pub const CLUSTER_RESOURCE_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
    /// Identity of a Work, on it and its manifests.
    pub const WORK_ID: &str = "work.karmada.io/permanent-id";
    /// Identity of a PropagationPolicy, on it, its templates and their bindings.
    pub const PROPAGATION_POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// Identity of a ClusterPropagationPolicy, on it, its templates and their bindings.
    pub const CLUSTER_PROPAGATION_POLICY_ID: &str =
        "clusterpropagationpolicy.karmada.io/permanent-id";
    /// Prefix of the labels of a binding that hold the identities of the bindings that depend on
    /// it.
    pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";
    /// `true` on a template whose number of replicas the member decides.
    pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
    /// On a template that another controller owns: policies do not apply to it.
    pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
    /// `true` on a namespace that is not created in members automatically.
    pub const SKIP_AUTO_PROPAGATION: &str = "namespace.karmada.io/skip-auto-propagation";
}

/// Annotations of objects.
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
    /// On a manifest: keys of the labels that the fleet owns, sorted and separated by commas.
    pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
    /// On a manifest: keys of the annotations that the fleet owns, sorted and separated by commas.
    pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
    /// On a Work and a manifest: `overwrite` or `abort`.
    pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
    /// On a binding: placement of the last schedule, as JSON.
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
    /// On a Work: override policies that were applied, as JSON.
    pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
    /// On a Work: cluster-wide override policies that were applied, as JSON.
    pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
    /// On a ResourceBinding: dependencies of its template, as JSON.
    pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
    /// On a template and a binding: namespace of the PropagationPolicy.
    pub const PROPAGATION_POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a template and a binding: name of the PropagationPolicy.
    pub const PROPAGATION_POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// On a template and a binding: name of the ClusterPropagationPolicy.
    pub const CLUSTER_PROPAGATION_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
    /// On a Failover (Muster's own): prefix of the annotations, one for each receiver of notices,
    /// that say what the receiver was sent, as JSON.
    pub const NOTICES: &str = "notices.failover.muster.io/";
    /// On a binding (Muster's own): last eviction by a taint, as JSON.
    pub const LAST_EVICTION: &str = "failover.muster.io/last-eviction";
    /// On a binding (Muster's own): the `rescheduleTriggeredAt` that its clusters were last chosen
    /// for.
    pub const ANSWERED_REQUEST: &str = "failover.muster.io/answered-request";
    /// On a binding (Muster's own): clusters that edits of its policy have taken away while it
    /// preserves what is there, sorted and separated by commas.
    pub const DESELECTED: &str = "failover.muster.io/deselected";
    /// Clusters that a workload left because of a taint and may return to, as a JSON object of
    /// names and times.
    pub const HOMES: &str = "failover.muster.io/homes";
    /// On a binding (Muster's own): time of the request by which the workload is to return to a
    /// cluster that it left, and after a space that of the request before it, if there was one. A
    /// `rescheduleTriggeredAt` of this time is taken back once the workload may not return.
    pub const FAILBACK_ASKED: &str = "failover.muster.io/failback-asked";
    /// On a Cluster that workloads are to return to (Muster's own): time since which it is healthy.
    pub const HEALTHY_SINCE: &str = "failover.muster.io/healthy-since";
    /// On a manifest and its object in a member (Muster's own): when and how the agent stops it, as
    /// JSON.
    pub const FENCING: &str = "failover.muster.io/fencing";
    /// On an object in a member (Muster's own): the merge patch that undoes the stop by its agent.
    pub const STOPPED: &str = "failover.muster.io/stopped";
    /// On a Work whose object has a role by the place of a workload (Muster's own): the role, its
    /// field and its step, as JSON. On the manifest and its object in a member: the number of the
    /// step, which the agent reports with the status.
    pub const DATA_ROLE: &str = "failover.muster.io/data-role";
    /// On the lease of a member (Muster's own): the time of the renewal if an agent wrote it that
    /// stops workloads. Another time than that of the lease is a remainder of another agent.
    pub const FENCES: &str = "failover.muster.io/fences";
    /// On the lease of the election of a member's agents (Muster's own): identity of the leader,
    /// and age in milliseconds of the last renewal of the member's lease that it knows to have been
    /// acknowledged, as `identity/milliseconds`.
    pub const HEARTBEAT: &str = "failover.muster.io/heartbeat";
    /// On the template of a Service or an Ingress (Muster's own): host name that is to lead to its
    /// healthy copies.
    pub const HOSTNAME: &str = "failover.muster.io/hostname";
    /// On such a template (Muster's own): seconds for which resolvers may keep an answer.
    pub const HOSTNAME_TTL: &str = "failover.muster.io/hostname-ttl";
    /// On such a template (Muster's own): API version, kind and name of the workload whose copies
    /// have to be healthy, too.
    pub const FOLLOWS: &str = "failover.muster.io/follows";
    /// On a DNSEndpoint (Muster's own): addresses by cluster, as JSON. Only an object that has it
    /// is changed.
    pub const PUBLISHED_TARGETS: &str = "failover.muster.io/published-targets";
    /// On a Cluster: nothing is moved out of it (`kubectl muster pause`). Removed by `resume`.
    pub const PAUSED: &str = "failover.muster.io/paused";
    /// On a Cluster, a policy or a `WorkloadRebalancer`: who gave the last orders about it, when
    /// and why, as JSON.
    pub const ORDERED_BY: &str = "failover.muster.io/ordered-by";
    /// On a Cluster: evictions per second that a drain of it takes at most (`kubectl muster drain
    /// --rate`), beside the rate of the fleet.
    pub const DRAIN_RATE: &str = "failover.muster.io/drain-rate";
    /// On a Cluster (Muster's own): clusters that its agent is asked to watch, as JSON. Written by
    /// the control plane (`--peers-per-cluster`).
    pub const PEERS: &str = "failover.muster.io/peers";
    /// On a Cluster (Muster's own): https URL at which agents of other clusters see whether it
    /// lives, in place of `spec.apiEndpoint`. Written by its operator.
    pub const PEER_ADDRESS: &str = "failover.muster.io/peer-address";
    /// On the lease of a member (Muster's own): version and credentials of its agent, as JSON. It
    /// counts if [`FENCES`] is the time of the lease: otherwise an agent without it wrote last.
    pub const AGENT: &str = "failover.muster.io/agent";
    /// On the lease of the control plane (Muster's own): identity, version, feature gates, decisive
    /// flags and credentials of the leader, as JSON. It counts if the identity is that of the
    /// holder.
    pub const LEADER: &str = "failover.muster.io/leader";
    /// On an object of the fleet API (Muster's own): version of the program that wrote it.
    pub const VERSION: &str = "failover.muster.io/version";
    /// On an object in a member (Muster's own): numbers of its manifest that the agent leaves to an
    /// autoscaler there, by their paths, as JSON. Another number in the manifest is applied.
    pub const LEFT_TO_AUTOSCALER: &str = "work.muster.io/left-to-autoscaler";
    /// On an object in a member (Muster's own): the id of the fleet whose agent made it.
    pub const FLEET: &str = "work.muster.io/fleet";
    /// On the namespace `karmada-cluster` of the fleet API (Muster's own): the id of the fleet.
    pub const FLEET_ID: &str = "fleet.muster.io/id";
    /// On the same namespace (Muster's own): ids, separated by commas, of fleets that this one has
    /// replaced. Their objects in the members are its own.
    pub const FORMER_FLEET_IDS: &str = "fleet.muster.io/former-ids";
    /// On the same namespace (Muster's own): the epoch of the store, a number that each promotion
    /// of a standby raises. Absent is 0.
    pub const FLEET_EPOCH: &str = "fleet.muster.io/epoch";
    /// On the same namespace (Muster's own): addresses of the fleet API, as JSON, for the agents.
    pub const FLEET_SERVERS: &str = "fleet.muster.io/servers";
    /// On the lease of a member (Muster's own): the newest epoch that its agent has seen, where
    /// that is newer than the epoch of the store with the lease.
    pub const SEEN_EPOCH: &str = "fleet.muster.io/seen-epoch";
}

/// Keys of the taints that Muster adds to clusters. The control plane puts on the first three
/// (`clusters/taint/condition_taints.rs`), `kubectl muster` the others.
pub mod taint {
    /// `Ready` is False, or there is no such condition yet.
    pub const NOT_READY: &str = "cluster.karmada.io/not-ready";
    /// `Ready` is Unknown: no sign of life for the grace period, or none ever within the startup
    /// grace.
    pub const UNREACHABLE: &str = "cluster.karmada.io/unreachable";
    /// The member is registered already under another name (Muster's own): its agent applies
    /// nothing.
    pub const DUPLICATE: &str = "clusters.muster.io/duplicate-registration";
    /// A person keeps new workloads out (`kubectl muster cordon`). Only `uncordon` removes it.
    pub const CORDON: &str = "failover.muster.io/cordon";
    /// A person empties the cluster (`kubectl muster drain`): it evicts whatever the gate
    /// `Failover` says. Only `undrain` removes it.
    pub const DRAIN: &str = "failover.muster.io/drain";
}

/// Types of conditions. Some of bindings are with their controllers: `EvictionPending`,
/// `ApplicationFailoverPending`, `ReplicasKept` and `DependenciesMissing`.
pub mod condition {
    /// Of a Cluster: the member's API server is healthy. Of a policy: it can be carried out.
    pub const READY: &str = "Ready";
    /// Reason of [`READY`] while the member refuses the credentials that the fleet has for it: the
    /// member may be well.
    pub const CREDENTIALS_REFUSED: &str = "ClusterCredentialsRefused";
    /// Reason of [`READY`] that the control plane writes while a cluster is silent.
    pub const SILENT: &str = "ClusterStatusUnknown";
    /// Reason of [`APPLIED`] of a suspended Work whose objects are gone, and of the event about it.
    pub const OBJECTS_MISSING: &str = "ObjectsMissing";
    /// Of a binding: a role of replicated data waits, or a copy waits for its data.
    pub const DATA_PENDING: &str = "DataPending";
    /// Reason of [`DATA_PENDING`] while a role waits.
    pub const WAITING_FOR_ROLE: &str = "WaitingForRole";
    /// Reason of [`DATA_PENDING`], and of the event, once a copy has waited for its data for too
    /// long.
    pub const DATA_NOT_READY: &str = "DataNotReady";
    /// Of a binding: an old copy has to go before the new ones are made.
    pub const REMOVAL_PENDING: &str = "RemovalPending";
    /// Of a policy: every part of it has an effect on the fleet as it is.
    pub const EFFECTIVE: &str = "Effective";
    /// Of a policy (Muster's own): its copies are neither created nor changed in some clusters,
    /// with who ordered that. Set if they were once.
    pub const SUSPENDED: &str = "Suspended";
    /// Of a Cluster: `status.apiEnablements` is complete.
    pub const COMPLETE_API_ENABLEMENTS: &str = "CompleteAPIEnablements";
    /// Of a Cluster (Muster's own): no other Cluster is the same member. Set if there was a doubt.
    pub const UNIQUE_IDENTITY: &str = "UniqueIdentity";
    /// Of a Cluster (Muster's own): the control plane watches its lease. Set if it does not.
    pub const MONITORED: &str = "Monitored";
    /// Of a Cluster (Muster's own): nothing is moved out of it, because somebody paused that. Set
    /// if it was paused once.
    pub const MOVEMENT_PAUSED: &str = "MovementPaused";
    /// On a Cluster (Muster's own): who drained, cordoned or tainted it last, or ended that, when
    /// and why.
    pub const LAST_ORDER: &str = "LastOrder";
    /// Of a Cluster (Muster's own): whether agents of other clusters reach it. Set by the control
    /// plane where `--peers-per-cluster` asks for that.
    pub const SEEN_BY_PEERS: &str = "SeenByPeers";
    /// Of a Cluster (Muster's own): prefix of the conditions, one for each peer, by which its agent
    /// reports whether it reaches the peer. The name of the peer follows.
    pub const REACHES: &str = "reaches.muster.io/";
    /// Of a Cluster (Muster's own): workloads of the fleet that are healthy in other clusters are
    /// healthy in this one. Set by the control plane where
    /// `--cluster-unhealthy-workloads-threshold` asks for that.
    pub const WORKLOADS_HEALTHY: &str = "WorkloadsHealthy";
    /// Of a Cluster (Muster's own): enough nodes are ready. Set by an agent that is asked for that.
    pub const NODES_READY: &str = "NodesReady";
    /// Of a Cluster: names of services resolve. Type, reasons and messages are those of Karmada's
    /// detector for CoreDNS. Set by an agent that is asked for that.
    pub const NAMES_RESOLVE: &str = "ServiceDomainNameResolutionReady";
    /// Of a Cluster (Muster's own): connections out of the member succeed. Set by an agent that is
    /// asked for that.
    pub const EGRESS_READY: &str = "EgressReady";
    /// Of a Cluster (Muster's own): the member's API server answers well and in time. Set by an
    /// agent that is asked for that.
    pub const RESPONSIVE: &str = "APIServerResponsive";
    /// Of a Cluster (Muster's own): its agent reads the Works of the member.
    pub const WORKS_UP_TO_DATE: &str = "WorksUpToDate";
    /// Of a Cluster (Muster's own): objects in the member were made for Works that the store of the
    /// fleet does not have since a standby was promoted. Set if there were some.
    pub const OBJECTS_WITHOUT_WORK: &str = "ObjectsWithoutWork";
    /// Of a binding: clusters were found.
    pub const SCHEDULED: &str = "Scheduled";
    /// Of a binding: every cluster has applied its Work.
    pub const FULLY_APPLIED: &str = "FullyApplied";
    /// Of the binding of a Service or an Ingress (Muster's own): the host name that the template
    /// asks for leads to healthy copies.
    pub const HOSTNAME_PUBLISHED: &str = "HostnamePublished";
    /// Reason of [`HOSTNAME_PUBLISHED`] while another object has the name.
    pub const HOSTNAME_TAKEN: &str = "Conflict";
    /// Reason of [`HOSTNAME_PUBLISHED`] while what is asked for cannot be a host name.
    pub const HOSTNAME_INVALID: &str = "Invalid";
    /// Reason of [`HOSTNAME_PUBLISHED`] while the API does not serve the kind of host names.
    pub const HOSTNAME_NOT_SERVED: &str = "NotServed";
    /// Reason of [`HOSTNAME_PUBLISHED`] while the API refuses the object of the name.
    pub const HOSTNAME_REFUSED: &str = "Refused";
    /// Of a Work: its objects were applied.
    pub const APPLIED: &str = "Applied";
    /// Of a Work: dispatching is not suspended.
    pub const DISPATCHING: &str = "Dispatching";
    /// Of a Work (Muster's own): its agent stops the objects when the member is cut off. Set if the
    /// policy asks for that.
    pub const FENCED: &str = "Fenced";
    /// Of a Work (Muster's own): another field manager keeps changing its objects. Set if there was
    /// such a conflict.
    pub const CONTENDED: &str = "Contended";
}

/// Reasons and producers of eviction tasks.
pub mod eviction {
    /// The cluster has a taint that is not tolerated.
    pub const REASON_TAINT_UNTOLERATED: &str = "TaintUntolerated";
    /// The application is unhealthy in the cluster.
    pub const REASON_APPLICATION_FAILURE: &str = "ApplicationFailure";
    /// No cluster fits any more; the task keeps the copy until one does (Muster's own).
    pub const REASON_NO_CLUSTER_FIT: &str = "NoClusterFit";
    /// The cluster is no target any more since the workload left another one, for example because
    /// another affinity group is in use, or since a new placement was requested (Muster's own).
    pub const REASON_PLACEMENT_CHANGED: &str = "PlacementChanged";
    /// The cluster could not apply the workload that was moved there (Muster's own).
    pub const REASON_NOT_APPLIED: &str = "NotApplied";
    /// Reason of the conditions of what is to move and waits, while movement is paused (Muster's
    /// own).
    pub const PAUSED: &str = "Paused";
    /// Reason of the conditions of what is to move and waits, while too many clusters have failed.
    pub const STOPPED: &str = "StoppedByThreshold";
    /// Reason of the conditions of what is to move and waits for its turn in the queue.
    pub const WAITING_FOR_RATE: &str = "WaitingForRate";
    /// The controller that evicts because of taints.
    pub const PRODUCER_TAINT_MANAGER: &str = "TaintManager";
    /// The controller that completes evictions (Muster's own).
    pub const PRODUCER_GRACEFUL_EVICTION: &str = "GracefulEviction";
    /// The scheduler (Muster's own).
    pub const PRODUCER_SCHEDULER: &str = "Scheduler";
}

/// Returns whether a name is valid for a Cluster: a DNS label of at most 48 characters, because
/// namespaces are named after it.
pub fn is_cluster_name(name: &str) -> bool {
    name.len() <= 48 && is_label(name)
}

/// Longest part of a host name (RFC 1035, 2.3.4).
pub const LONGEST_LABEL: usize = 63;

/// Returns whether a text is a DNS label (RFC 1123), whatever its length.
pub fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

/// Returns whether a text is a DNS subdomain (RFC 1123), as the names of most objects have to be.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Returns whether a text is a host name in lower case with at least two parts.
pub fn is_hostname(text: &str) -> bool {
    let is_short = |part: &str| part.len() <= LONGEST_LABEL;
    text.contains('.') && is_subdomain(text) && text.split('.').all(is_short)
}

/// Returns the namespace of a cluster's Works.
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}")
}

/// Returns the cluster of an execution namespace; `None` for any other namespace.
pub fn cluster_of_execution_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_NAMESPACE_PREFIX)
}

/// Returns whether a namespace belongs to the system, so that nothing is propagated from it.
pub fn is_reserved_namespace(namespace: &str) -> bool {
    [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE].contains(&namespace)
        || namespace.starts_with(EXECUTION_NAMESPACE_PREFIX)
}

/// Returns the name of a resource's binding. The API group is not part of it, so that two resources
/// of one name and kind in different groups have the same.
pub fn binding(kind: &str, name: &str) -> String {
    dns(&format!("{name}-{kind}"))
}

/// Returns the name of a resource's Work; `namespace` is empty for a cluster-scoped resource.
pub fn work(kind: &str, name: &str, namespace: &str) -> String {
    let name = dns(name);
    let origin = if namespace.is_empty() {
        format!("{name}-{kind}")
    } else {
        format!("{namespace}-{name}-{kind}")
    };
    format!("{name}-{}", hash(&origin.to_lowercase()))
}

/// Returns the key by which a binding is named in labels of the bindings that it depends on.
pub fn binding_reference_key(namespace: &str, name: &str) -> String {
    hash(&namespaced_key(namespace, name))
}

/// Returns `namespace/name`, or `name` without a namespace.
pub fn namespaced_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// Returns the group of an API version; empty for that of the core.
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the name of the account by which the control plane acts in a member.
pub fn service_account(cluster: &str) -> String {
    format!("karmada-{cluster}")
}

/// Returns the name of that account's role.
pub fn role(service_account: &str) -> String {
    format!("karmada-controller-manager:{service_account}")
}

/// Returns the name of the Secret with the token to impersonate users in a member.
pub fn impersonation_secret(cluster: &str) -> String {
    format!("{cluster}-impersonator")
}

/// Makes a valid object name of one that may be a role's (`system:node`).
fn dns(name: &str) -> String {
    name.replace(':', ".").to_lowercase()
}

/// Returns the 32-bit FNV-1a hash.
pub fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the hash of a text, in decimal, spelled in letters that make no words (Kubernetes' safe
/// encoding).
fn hash(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
    fnv32a(text).to_string().bytes().map(letter).collect()
}
