//! Features: what people may set of policies, and the orders that they may give.
//!
//! A feature is read off the objects of the fleet, not off what a plan intended: a step that was
//! refused set nothing. Orders that leave no object behind count for a while after they were given.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::{Actor, Api, Request};
use crate::oracle::objects::{annotation, items, text};

/// Kinds of templates that are workloads.
pub const WORKLOADS: [&str; 4] = ["deployments", "statefulsets", "daemonsets", "jobs"];

/// A field or an order that moves, holds, protects or removes workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Feature {
    /// Dispatching to all clusters is suspended.
    SuspendDispatching,
    /// Dispatching to some clusters is suspended.
    SuspendCluster,
    /// Scheduling is suspended.
    SuspendScheduling,
    /// Objects stay in members when their Work is deleted.
    Preserve,
    /// Old copies go at once.
    PurgeDirectly,
    /// Old copies go when the new ones are healthy.
    PurgeGracefully,
    /// Old copies go when a person says so.
    PurgeNever,
    /// Applications that fail are moved.
    ApplicationFailover,
    /// At most one copy runs.
    Fencing,
    /// What left a cluster returns to it.
    Failback,
    /// Taints are tolerated, for a while or for ever.
    Toleration,
    /// Changes of the policy wait for a change of the template.
    Lazy,
    /// Another policy of a higher priority takes the template over.
    Priority,
    /// Objects of others in members are taken over.
    Overwrite,
    /// What the template refers to follows it.
    Dependencies,
    /// An override policy changes the template for some clusters.
    Override,
    /// The policy names the clusters that may have the workload.
    Narrow,
    /// The policy says in how many clusters the workload is to be.
    Spread,
    /// The policy divides the replicas by weights of its own.
    Weights,
    /// The policy gives each cluster all replicas.
    Duplicate,
    /// The policy puts the replicas into as few clusters as it can.
    Aggregate,
    /// The policy selects clusters by a label.
    Select,
    /// The workload has a priority by which it waits in the queue.
    SchedulePriority,
    /// The workload is placed anew by a WorkloadRebalancer.
    Rebalance,
    /// Another number of replicas is asked for.
    Scale,
    /// What the workload refers to is deleted and comes back later.
    Detach,
    /// The policy is deleted and comes back later as it was in the beginning.
    Withdraw,
    /// The cluster is emptied.
    Drain,
    /// Nothing new is placed in the cluster.
    Cordon,
    /// The cluster has a taint that evicts.
    Taint,
    /// The cluster has another taint that evicts.
    SecondTaint,
    /// A label of the cluster has a value that no policy selects.
    Relabel,
    /// Movement out of the cluster is paused.
    PauseCluster,
    /// Movement in the fleet is paused.
    PauseFleet,
    /// The policy that taints clusters by their conditions is replaced by another one.
    Reform,
    /// A person deleted an object in a member.
    Clean,
    /// A person deleted the template.
    Delete,
    /// A person took the cluster out of the fleet.
    Remove,
}

/// What a feature is set for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A workload, by the name of its template.
    Workload(String),
    /// A cluster.
    Cluster(String),
    /// The whole fleet.
    Fleet,
}

/// What a feature can be set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One workload.
    Workload,
    /// One cluster.
    Cluster,
    /// The whole fleet.
    Fleet,
}

/// Key of the taint of a drain.
pub const DRAIN: &str = "failover.muster.io/drain";
/// Key of the taint of a cordon.
pub const CORDON: &str = "failover.muster.io/cordon";
/// Keys of the taints that people set beside.
pub const TAINTS: [&str; 2] = ["example.com/maintenance", "example.com/network"];
/// Label of clusters by which policies select them, and the value that none of them names.
pub const TIER: (&str, &str) = ("tier", "bronze");
/// Name of the ClusterTaintPolicy that people replace.
pub const REFORMED: &str = "failed-1";
/// Annotation of a cluster out of which movement is paused.
pub const PAUSED: &str = "failover.muster.io/paused";
/// Namespace and name of the ConfigMap that pauses the fleet.
pub const PAUSE: (&str, &str) = ("karmada-system", "muster-pause");
/// Name of the class of workloads that are preferred.
pub const PREFERRED: &str = "preferred";
/// Suffix of the name of the ConfigMap that a workload refers to.
pub const NEED: &str = "-settings";
/// Suffix of the name of a policy that takes a workload over.
pub const RIVAL: &str = "-rival";

impl Feature {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::SuspendDispatching,
        Self::SuspendCluster,
        Self::SuspendScheduling,
        Self::Preserve,
        Self::PurgeDirectly,
        Self::PurgeGracefully,
        Self::PurgeNever,
        Self::ApplicationFailover,
        Self::Fencing,
        Self::Failback,
        Self::Toleration,
        Self::Lazy,
        Self::Priority,
        Self::Overwrite,
        Self::Dependencies,
        Self::Override,
        Self::Narrow,
        Self::Spread,
        Self::Weights,
        Self::Duplicate,
        Self::Aggregate,
        Self::Select,
        Self::SchedulePriority,
        Self::Rebalance,
        Self::Scale,
        Self::Detach,
        Self::Withdraw,
        Self::Drain,
        Self::Cordon,
        Self::Taint,
        Self::SecondTaint,
        Self::Relabel,
        Self::PauseCluster,
        Self::PauseFleet,
        Self::Reform,
        Self::Clean,
        Self::Delete,
        Self::Remove,
    ];

    /// Features of which a policy has one at a time: purge modes, ways to suspend dispatching, to
    /// divide replicas, and to name clusters.
    const EITHER: [&[Self]; 4] = [
        &[Self::PurgeDirectly, Self::PurgeGracefully, Self::PurgeNever],
        &[Self::SuspendDispatching, Self::SuspendCluster],
        &[Self::Weights, Self::Duplicate, Self::Aggregate],
        &[Self::Narrow, Self::Select],
    ];

    /// Returns the name of the feature in tables.
    pub fn name(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Returns what the feature can be set for.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Drain
            | Self::Cordon
            | Self::Taint
            | Self::SecondTaint
            | Self::Relabel
            | Self::PauseCluster
            | Self::Remove => Scope::Cluster,
            Self::PauseFleet | Self::Reform => Scope::Fleet,
            _ => Scope::Workload,
        }
    }

    /// Returns whether the feature is an order that leaves nothing behind which could be unset.
    pub const fn is_order(self) -> bool {
        matches!(
            self,
            Self::Rebalance
                | Self::Scale
                | Self::Detach
                | Self::Withdraw
                | Self::Reform
                | Self::Clean
                | Self::Delete
                | Self::Remove
        )
    }

    /// Returns whether a policy that has one of two features cannot have the other.
    pub fn excludes(self, other: Self) -> bool {
        let mut groups = Self::EITHER.iter();
        groups.any(|group| group.contains(&self) && group.contains(&other))
    }
}

/// Returns the features that an object of the fleet API sets, each with its subject.
pub fn set_by(plural: &str, object: &Value) -> Vec<(Feature, Subject)> {
    let name = text(object, "/metadata/name");
    let workload = |name: &str| Subject::Workload(name.to_owned());
    match plural {
        "propagationpolicies" | "clusterpropagationpolicies" => {
            if let Some(rival) = name.strip_suffix(RIVAL) {
                return vec![(Feature::Priority, workload(rival))];
            }
            let features = of_policy(&object["spec"]).into_iter();
            features.map(|it| (it, workload(name))).collect()
        }
        "resourcebindings" | "clusterresourcebindings" => {
            let is_held = object["spec"]["suspension"]["scheduling"] == true;
            let name = text(object, "/spec/resource/name");
            let held = is_held.then(|| (Feature::SuspendScheduling, workload(name)));
            held.into_iter().collect()
        }
        "overridepolicies" => vec![(Feature::Override, workload(name))],
        "clusters" => {
            let features = of_cluster(object).into_iter();
            let cluster = || Subject::Cluster(name.to_owned());
            features.map(|it| (it, cluster())).collect()
        }
        "configmaps" if (text(object, "/metadata/namespace"), name) == PAUSE => {
            vec![(Feature::PauseFleet, Subject::Fleet)]
        }
        _ => Vec::new(),
    }
}

fn of_policy(spec: &Value) -> Vec<Feature> {
    let suspension = &spec["suspension"];
    let failover = &spec["failover"];
    let placement = &spec["placement"];
    let is_set = |value: &Value| !value.is_null();
    let mode = match text(failover, "/cluster/purgeMode") {
        "Directly" | "Immediately" => Some(Feature::PurgeDirectly),
        "Gracefully" | "Graciously" => Some(Feature::PurgeGracefully),
        "Never" => Some(Feature::PurgeNever),
        _ => None,
    };
    let strategy = &placement["replicaScheduling"];
    let weights = &strategy["weightPreference"]["staticWeightList"];
    let labels = &placement["clusterAffinity"]["labelSelector"];
    let names = items(placement, "/clusterAffinity/clusterNames").count();
    [
        (
            Feature::SuspendDispatching,
            suspension["dispatching"] == true,
        ),
        (
            Feature::SuspendCluster,
            is_set(&suspension["dispatchingOnClusters"]),
        ),
        (
            Feature::Preserve,
            spec["preserveResourcesOnDeletion"] == true,
        ),
        (
            Feature::ApplicationFailover,
            is_set(&failover["application"]),
        ),
        (Feature::Fencing, is_set(&failover["cluster"]["fencing"])),
        (Feature::Failback, is_set(&failover["cluster"]["failback"])),
        (
            Feature::Toleration,
            is_set(&placement["clusterTolerations"]),
        ),
        (Feature::Lazy, spec["activationPreference"] == "Lazy"),
        (
            Feature::Overwrite,
            spec["conflictResolution"] == "Overwrite",
        ),
        (Feature::Dependencies, spec["propagateDeps"] == true),
        (Feature::Narrow, names > 0),
        (Feature::Spread, is_set(&placement["spreadConstraints"])),
        (Feature::Weights, is_set(weights)),
        (
            Feature::Duplicate,
            strategy["replicaSchedulingType"] == "Duplicated",
        ),
        (
            Feature::Aggregate,
            strategy["replicaDivisionPreference"] == "Aggregated",
        ),
        (Feature::Select, is_set(labels)),
        (Feature::SchedulePriority, is_set(&spec["schedulePriority"])),
    ]
    .into_iter()
    .filter_map(|(feature, is_set)| is_set.then_some(feature))
    .chain(mode)
    .collect()
}

fn of_cluster(cluster: &Value) -> BTreeSet<Feature> {
    let taints = items(cluster, "/spec/taints").filter_map(|taint| {
        let key = text(taint, "/key");
        match text(taint, "/effect") {
            "NoExecute" if key == DRAIN => Some(Feature::Drain),
            _ if key == CORDON => Some(Feature::Cordon),
            "NoExecute" | "PreferNoExecute" if key == TAINTS[0] => Some(Feature::Taint),
            "NoExecute" | "PreferNoExecute" if key == TAINTS[1] => Some(Feature::SecondTaint),
            _ => None,
        }
    });
    let paused = annotation(cluster, PAUSED).map(|_| Feature::PauseCluster);
    let is_relabeled = cluster["metadata"]["labels"][TIER.0] == TIER.1;
    let relabeled = is_relabeled.then_some(Feature::Relabel);
    taints.chain(paused).chain(relabeled).collect()
}

/// Returns whether a request asks for another number of replicas of an object that is there.
fn is_scaled(request: &Request) -> bool {
    let objects = request.before.as_deref().zip(request.after.as_deref());
    let replicas = |object: &Value| object["spec"]["replicas"].clone();
    objects.is_some_and(|(before, after)| replicas(before) != replicas(after))
}

/// Returns the orders that a request gives, each with its subject.
pub fn ordered_by(request: &Request) -> Vec<(Feature, Subject)> {
    let workload = |name: &str| Subject::Workload(name.to_owned());
    let is_person = matches!(request.actor, Actor::Person(_));
    let is_new = request.before.is_none();
    let ends = request.after.as_deref().is_none_or(|after| {
        let was = request.before.as_deref();
        after["metadata"]["deletionTimestamp"].is_string()
            && was.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null())
    });
    match (&request.api, request.resource.plural.as_str()) {
        (Api::Fleet, "workloadrebalancers") if is_new => {
            let order = request.after.as_deref().unwrap_or(&Value::Null);
            items(order, "/spec/workloads")
                .map(|it| (Feature::Rebalance, workload(text(it, "/name"))))
                .collect()
        }
        (Api::Fleet, "clusters") if is_person && ends => {
            vec![(Feature::Remove, Subject::Cluster(request.name.clone()))]
        }
        (Api::Member(_), _) if is_person && ends => vec![(Feature::Clean, workload(&request.name))],
        (Api::Fleet, "configmaps") if is_person && ends => {
            let owner = request.name.strip_suffix(NEED);
            owner
                .into_iter()
                .map(|it| (Feature::Detach, workload(it)))
                .collect()
        }
        (Api::Fleet, "propagationpolicies") if is_person && ends => {
            let is_rival = request.name.ends_with(RIVAL);
            let withdrawn = (!is_rival).then(|| (Feature::Withdraw, workload(&request.name)));
            withdrawn.into_iter().collect()
        }
        (Api::Fleet, "clustertaintpolicies") if is_person && request.name == REFORMED => {
            vec![(Feature::Reform, Subject::Fleet)]
        }
        (Api::Fleet, plural) if is_person && WORKLOADS.contains(&plural) && is_scaled(request) => {
            vec![(Feature::Scale, workload(&request.name))]
        }
        (Api::Fleet, plural) if is_person && ends && WORKLOADS.contains(&plural) => {
            vec![(Feature::Delete, workload(&request.name))]
        }
        _ => Vec::new(),
    }
}
