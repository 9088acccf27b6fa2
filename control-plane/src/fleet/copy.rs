//! Answers questions about the copy of a workload in a cluster: whether its order can be carried
//! out there, what its Work says, and how many replicas it has to run.

use std::fmt;

use muster_shared::api::binding::{ObjectReference, ResourceBindingSpec, TargetCluster};
use muster_shared::api::work::WorkStatus;
use muster_shared::conditions;
use muster_shared::names::{condition, execution_namespace, label, work};
use serde_json::Value;

use super::Fleet;
use super::lookups::Refusal;
use super::template::TemplateKey;
use super::template_event::Lookup;
use super::works::CachedWork;
use crate::fleet::labelled::Labelled as _;

/// State of the Work that brings a workload to a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkState {
    /// There is no Work.
    #[default]
    Absent,
    /// The agent has not reported on the Work.
    Sent,
    /// The agent could not apply the Work (`Applied=False`).
    Refused,
    /// The agent has applied the Work (`Applied=True`).
    Applied,
}

impl WorkState {
    /// Returns what the report on a Work says of it.
    pub fn said(status: &WorkStatus) -> Self {
        match conditions::status(&status.conditions, condition::APPLIED) {
            Some(conditions::TRUE) => Self::Applied,
            Some(conditions::FALSE) => Self::Refused,
            _ => Self::Sent,
        }
    }
}

/// Reason why an order cannot be carried out in a cluster that is otherwise fit to take a workload.
/// The texts complete the sentence "`<cluster>` ...".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The policy suspends dispatching to the cluster.
    Suspended,
    /// The namespace of the workload is being removed there.
    NamespaceLeaves(String),
    /// The former copy of the workload is still being removed there.
    CopyLeaves,
    /// An override policy cannot be applied for the cluster.
    Override(String),
    /// An override policy leaves a copy there no replicas.
    Emptied,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("gets nothing new: its dispatching is suspended"),
            Self::NamespaceLeaves(namespace) => {
                write!(f, "is still removing namespace {namespace}")
            }
            Self::CopyLeaves => f.write_str("is still removing its former copy"),
            Self::Override(why) => write!(f, "would get no Work: {why}"),
            Self::Emptied => write!(f, "would run none of it: {}", Refusal::Empties),
        }
    }
}

/// Returns what keeps an order for a workload from being carried out in a cluster as far as the
/// binding and the Works of the cluster say.
pub fn obstacle(fleet: &Fleet, spec: &ResourceBindingSpec, cluster: &str) -> Option<Obstacle> {
    if spec.dispatching_suspended_in(cluster) {
        return Some(Obstacle::Suspended);
    }
    let lies_in = execution_namespace(cluster);
    let leaves = |name: &str| {
        let held = fleet.works.get(Some(&lies_in), name);
        held.is_some_and(|held| fleet.deleted_works.is_to_go(&held))
    };
    let (kind, name) = (&*spec.resource.kind, &*spec.resource.name);
    let namespace = spec.resource.namespace.as_deref().unwrap_or_default();
    if leaves(&work(kind, name, namespace)) {
        return Some(Obstacle::CopyLeaves);
    }
    if !namespace.is_empty() && leaves(&work("Namespace", namespace, "")) {
        return Some(Obstacle::NamespaceLeaves(namespace.to_owned()));
    }
    let refusal = fleet.override_lookup.refuse(spec, cluster);
    refusal.map(|refusal| match refusal {
        Refusal::Fails(why) => Obstacle::Override(why),
        Refusal::Empties => Obstacle::Emptied,
    })
}

/// Returns the chosen clusters that are to have a copy. Beside others that have replicas, a share
/// of zero (`--enable-empty-workload-propagation`) is none.
pub fn copies(clusters: &[TargetCluster]) -> impl Iterator<Item = &TargetCluster> + Clone {
    let is_divided = clusters.iter().any(|it| it.replicas > 0);
    clusters
        .iter()
        .filter(move |it| !is_divided || it.replicas > 0)
}

/// Returns whether a Work is no copy of its workload yet: it asks for none of the replicas that the
/// workload has, as one that was made for a share of zero does.
pub fn is_empty(spec: &ResourceBindingSpec, work: &CachedWork) -> bool {
    spec.has_own_replicas() && work.replicas == Some(0)
}

/// Returns whether the members decide on the number of replicas, as the label
/// `resourcetemplate.karmada.io/retain-replicas` of the template says.
pub fn retains_replicas(label: Option<&str>) -> bool {
    label == Some("true")
}

/// Returns whether the members decide on the number of replicas of a workload, as its template
/// says, if that is known.
pub fn members_scale(fleet: &Fleet, resource: &ObjectReference) -> Option<bool> {
    match fleet.templates.get(&TemplateKey::of(resource)) {
        Lookup::Found(template) => Some(retains_replicas(template.label(label::RETAIN_REPLICAS))),
        Lookup::Absent | Lookup::Unknown => None,
    }
}

/// Returns how many replicas a copy has to run in a cluster at least, of its share: one, where the
/// members decide on the number, and no more than an override policy gives it. `None` if the
/// template is not known.
pub fn least(fleet: &Fleet, spec: &ResourceBindingSpec, cluster: &str, share: i32) -> Option<i32> {
    let members_scale = members_scale(fleet, &spec.resource)?;
    Some(if members_scale {
        share.min(1)
    } else {
        fleet.override_lookup.least(spec, cluster, share)
    })
}

/// Returns the number of ready replicas in a status; some kinds report only those that have been
/// ready for a while, and old versions of Jobs only those that run.
pub fn ready_replicas(status: &Value) -> Option<i64> {
    let number = |name: &str| status.get(name)?.as_i64();
    let fields = ["readyReplicas", "availableReplicas", "ready", "active"];
    fields.into_iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_decide_on_replicas_where_the_label_says_true() {
        for (label, expected) in [(Some("true"), true), (Some("false"), false), (None, false)] {
            assert_eq!(retains_replicas(label), expected, "{label:?}");
        }
    }
}
