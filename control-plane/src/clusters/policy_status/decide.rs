//! Decides the status of a ClusterTaintPolicy from the clusters, their conditions and the records
//! of whose taints they have.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::{
    ClusterTaintPolicy, ClusterTaintPolicySpec, ClusterTaintPolicyStatus, MatchConditionOperator,
    Taint as PolicyTaint, TaintToAdd, UnknownCondition,
};
use muster_shared::check::few;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Taint, Time};
use muster_shared::names::condition;
use muster_shared::selectors::matches_affinity;
use muster_shared::taints::find;
use muster_shared::text;

use crate::clusters::taint::policy::{all_match, faults, verdict};
use crate::clusters::taint::record::{Owned, Record};
use crate::settings::Settings;

/// Most types in `unknownConditions`.
const MOST_UNKNOWN: usize = 10;
/// Most names and faults that a message lists.
const MOST_NAMES: usize = 5;
/// Most bytes of a text that a user wrote, such as a type or a fault.
const MOST_BYTES: usize = 64;
/// Most bytes of a fault, which quotes such texts.
const MOST_FAULT_BYTES: usize = 256;

/// Types of conditions that a healthy cluster does not have: Muster sets them in case of trouble,
/// or when a person asks for it.
const SET_IN_TROUBLE: [&str; 5] = [
    condition::UNIQUE_IDENTITY,
    condition::MONITORED,
    condition::LAST_ORDER,
    condition::MOVEMENT_PAUSED,
    condition::WORKS_UP_TO_DATE,
];

/// A cluster as policies see it.
pub struct Sight<'a> {
    cluster: &'a Cluster,
    record: Record,
}

impl<'a> Sight<'a> {
    /// Reads the record of a cluster.
    pub fn of(cluster: &'a Cluster) -> Self {
        let record = Record::on(cluster).unwrap_or_default();
        Self { cluster, record }
    }

    /// Returns whether the cluster has a taint, and the record says that policies of a form answer
    /// for it.
    fn has(&self, taint: &Taint, answers: impl Fn(&Owned) -> bool) -> bool {
        find(&self.cluster.spec.taints, &taint.key, &taint.effect).is_some()
            && self
                .record
                .owned(&taint.key, &taint.effect)
                .is_some_and(|owned| owned.withdrawn.is_none() && answers(owned))
    }

    fn is_tainted_by(&self, policy: &ClusterTaintPolicy, selected: bool) -> bool {
        let (name, spec) = (policy.name_any(), &policy.spec);
        let mut shipped = spec.taints.iter().map(PolicyTaint::taint);
        let mut proposed = spec.taints_to_add.iter().map(TaintToAdd::taint);
        // The record does not name the policies of the released form: each that selects the
        // cluster may remove the taint.
        (selected && shipped.any(|it| self.has(&it, |owned| owned.shipped)))
            || proposed.any(|it| self.has(&it, |owned| owned.held_by.contains(&name)))
    }
}

/// Returns the status that a policy should have. Times stay where nothing changed.
pub fn status(
    policy: &ClusterTaintPolicy,
    clusters: &[Sight<'_>],
    settings: &Settings,
    now: Timestamp,
) -> ClusterTaintPolicyStatus {
    let spec = &policy.spec;
    let known = policy.status.clone().unwrap_or_default();
    let mut counted = Counted::default();
    for sight in clusters {
        counted.take(policy, sight);
    }
    let missing = missing(spec, &counted.types);
    let since = |kind: &str| {
        let known = known.unknown_conditions.iter();
        let mut known = known.filter(|it| it.condition_type == kind);
        known.find_map(|it| it.since.clone())
    };
    let unknown_conditions = missing.iter().take(MOST_UNKNOWN).map(|kind| {
        let condition_type = text::cut(kind, MOST_BYTES, "");
        let since = since(&condition_type).unwrap_or(Time(now));
        UnknownCondition {
            condition_type,
            since: Some(since),
        }
    });
    let unknown_conditions = unknown_conditions.collect();
    let mut judged = counted.judge(spec, clusters.len(), &missing, settings.condition_taints);
    if let Some((reason, message)) = unfollowed(settings)
        && judged.0 != Verdict::Impossible
    {
        judged = (Verdict::Idle, reason, message.to_owned());
    }
    let (verdict, reason, message) = judged;
    let mut all = known.conditions;
    for (kind, holds) in [
        (condition::READY, verdict != Verdict::Impossible),
        (condition::EFFECTIVE, verdict == Verdict::Effective),
    ] {
        let holds = if holds {
            conditions::TRUE
        } else {
            conditions::FALSE
        };
        let mut condition = conditions::new(kind, holds, reason, &message, now);
        condition.observed_generation = policy.metadata.generation;
        conditions::set(&mut all, condition);
    }
    let number = |names: &[String]| u32::try_from(names.len()).unwrap_or(u32::MAX);
    ClusterTaintPolicyStatus {
        observed_generation: policy.metadata.generation,
        selected: counted.selected,
        matching: number(&counted.matching),
        tainted: number(&counted.tainted),
        unknown_conditions,
        conditions: all,
    }
}

/// Returns whether the control plane follows policies.
pub fn is_followed(settings: &Settings) -> bool {
    unfollowed(settings).is_none()
}

/// Returns reason and message where the control plane follows no policy, whatever it says.
fn unfollowed(settings: &Settings) -> Option<(&'static str, &'static str)> {
    if !settings.chooses("clustertaintpolicy") {
        let message = "the controller clustertaintpolicy of the control plane is off (--controllers): the policy puts taints on and takes them off only where another program follows it";
        return Some(("ControllerOff", message));
    }
    let message = "the feature gate Failover is off: no policy puts a taint on (the control plane's flag --preview-cluster-taint-policies shows what would be put on)";
    (!settings.follows_taint_policies()).then_some(("FailoverOff", message))
}

/// Effect that a policy can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The policy acts on clusters as soon as they match.
    Effective,
    /// There is nothing to act on so far: clusters may join, and get other conditions. Whoever
    /// applies policies and clusters together, as Flux does, must not wait for ever.
    Idle,
    /// The policy has to be changed before it has an effect.
    Impossible,
}

/// Clusters of a policy.
#[derive(Debug, Default)]
struct Counted {
    selected: u32,
    matching: Vec<String>,
    tainted: Vec<String>,
    /// Types of conditions that the selected clusters have.
    types: BTreeSet<String>,
}

impl Counted {
    fn take(&mut self, policy: &ClusterTaintPolicy, sight: &Sight<'_>) {
        let (spec, name) = (&policy.spec, sight.cluster.name_any());
        let target = spec.target();
        let selected = target.is_none_or(|it| matches_affinity(it, sight.cluster));
        if sight.is_tainted_by(policy, selected) {
            self.tainted.push(name.clone());
        }
        if !selected {
            return;
        }
        self.selected += 1;
        let known = sight.cluster.conditions();
        for condition in known {
            if !self.types.contains(&condition.type_) {
                self.types.insert(condition.type_.clone());
            }
        }
        if matches(spec, known) {
            self.matching.push(name);
        }
    }

    /// Returns what the policy can do, with reason and message.
    fn judge(
        &self,
        spec: &ClusterTaintPolicySpec,
        fleet: usize,
        missing: &[&str],
        reserves: bool,
    ) -> (Verdict, &'static str, String) {
        let faults = faults(spec, reserves);
        if !faults.is_empty() {
            let texts = faults
                .iter()
                .map(|fault| text::cut(&fault.to_string(), MOST_FAULT_BYTES, ""));
            let texts: Vec<String> = texts.collect();
            return (Verdict::Impossible, "Invalid", some(&texts, "; "));
        }
        if fleet == 0 {
            let message = "the fleet has no cluster".to_owned();
            return (Verdict::Idle, "NoClusterSelected", message);
        }
        if self.selected == 0 {
            let field = if spec.target_clusters.is_some() {
                "targetClusters"
            } else {
                "targetCluster"
            };
            let message = format!("spec.{field} selects none of the {fleet} clusters of the fleet");
            return (Verdict::Idle, "NoClusterSelected", message);
        }
        let never = spec.add_on_conditions.is_empty() && spec.remove_on_conditions.is_empty();
        if never && spec.taints_to_add.is_empty() {
            let message = "spec.taints needs addOnConditions or removeOnConditions: without them nothing is added or removed";
            return (Verdict::Impossible, "NoConditions", message.to_owned());
        }
        if let Some((first, more)) = missing.split_first() {
            let more = match more.len() {
                0 => String::new(),
                more => format!(", nor {more} more"),
            };
            let has = |kind: &String| text::cut(kind, MOST_BYTES, "");
            let has: Vec<String> = self.types.iter().map(has).collect();
            let message = format!(
                "no selected cluster has condition {:?}{more}: is another type meant? The clusters have {}",
                text::cut(first, MOST_BYTES, ""),
                some(&has, ", ")
            );
            return (Verdict::Idle, "UnknownCondition", message);
        }
        let (selected, matching) = (self.selected, self.matching.len());
        let tainted = some(&self.tainted, ", ");
        let waiting: Vec<String> = self
            .matching
            .iter()
            .filter(|name| self.tainted.binary_search(name).is_err())
            .cloned()
            .collect();
        let waits = if waiting.is_empty() {
            String::new()
        } else {
            format!(
                "{} of {selected} selected clusters match and have no taint of the policy (addOnMatchSeconds has not passed, or a person removed the taint): {}",
                waiting.len(),
                some(&waiting, ", ")
            )
        };
        if !self.tainted.is_empty() {
            let have = match self.tainted.len() {
                1 => "1 cluster has".to_owned(),
                several => format!("{several} clusters have"),
            };
            let mut message = format!("{have} its taints: {tainted}");
            if !waits.is_empty() {
                message = format!("{message}; {waits}");
            }
            return (Verdict::Effective, "Tainting", message);
        }
        if matching > 0 {
            return (Verdict::Effective, "Matching", waits);
        }
        let message = format!("none of the {selected} selected clusters matches");
        (Verdict::Effective, "NoClusterMatches", message)
    }
}

/// Returns whether a cluster with these conditions gets taints, now or after a delay.
fn matches(spec: &ClusterTaintPolicySpec, known: &[Condition]) -> bool {
    let is_known =
        |operator: &MatchConditionOperator| !matches!(operator, MatchConditionOperator::Other(_));
    let mut operators = spec.match_conditions.iter().map(|it| &it.operator);
    (!spec.taints.is_empty() && all_match(&spec.add_on_conditions, known))
        || (!spec.taints_to_add.is_empty()
            && operators.all(is_known)
            && verdict(&spec.match_conditions, known).matched)
}

/// Returns the types of conditions in a policy that the clusters do not have. There are none while
/// the clusters have no condition at all: they have just joined.
fn missing<'p>(spec: &'p ClusterTaintPolicySpec, types: &BTreeSet<String>) -> Vec<&'p str> {
    if types.is_empty() {
        return Vec::new();
    }
    let lists = [
        &spec.add_on_conditions,
        &spec.remove_on_conditions,
        &spec.match_conditions,
    ];
    let wanted = lists.into_iter().flatten();
    let wanted: BTreeSet<&str> = wanted.map(|it| it.condition_type.as_str()).collect();
    let is_missing = |kind: &&str| !types.contains(*kind) && !SET_IN_TROUBLE.contains(kind);
    wanted.into_iter().filter(is_missing).collect()
}

/// Returns the first texts of a list, and the number of the others.
fn some(texts: &[String], separator: &str) -> String {
    let more = |more| format!("{separator}{more} more");
    few(texts, MOST_NAMES, separator, more)
}

#[cfg(test)]
mod tests;
