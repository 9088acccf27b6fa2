//! Finds the parts of a policy that have no effect, such as selectors that match nothing.

use std::collections::BTreeSet;

use muster_shared::api::failback::FailbackMode;
use muster_shared::api::policy::{
    ClusterAffinity, Placement, PreemptionBehavior, PriorityClassSource, PropagationSpec,
    PurgeMode, ResourceSelector, StatePreservation,
};
use muster_shared::names::{is_cluster_name, label};

use super::identity::sound_name;
use super::kinds::{MOST_KINDS, kinds_of, meant};
use crate::fleet::scope::{Scope, is_reserved, namespace_of};
use crate::fleet::selection::given;
use crate::fleet::template::Kind;
use crate::fleet::template_event::KindState;
use crate::scheduler::core::affinity::affinities;
use crate::scheduler::core::divide::Strategy;
use crate::settings::{
    FAILOVER, GRACEFUL_EVICTION, PRIORITY_BASED_SCHEDULING, PROPAGATE_DEPS,
    PROPAGATION_POLICY_PREEMPTION, STATEFUL_FAILOVER_INJECTION, Settings,
};

/// Findings of one policy that are reported; of the others the number is.
const MOST_REPORTED: usize = 8;
/// Selectors of one policy that are compared with the templates there are: each costs a comparison
/// with all that it might mean.
const MOST_COMPARED: usize = 50;
/// Names that one finding lists.
const MOST_NAMES: usize = 10;

/// Something of a policy that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Reason of its event.
    pub reason: &'static str,
    /// Field, value, why it has no effect, and what to do.
    pub note: String,
}

/// State of the fleet, as far as policies refer to it.
pub trait Facts {
    /// Returns what is known about a kind.
    fn kind_state(&self, kind: &Kind) -> KindState;
    /// Returns why the templates of a kind cannot be listed, as far as that is known.
    fn trouble(&self, kind: &Kind) -> Option<String>;
    /// Returns whether the policy is in a namespace and the objects of a kind are in none.
    fn is_out_of_reach(&self, kind: &Kind) -> bool;
    /// Returns whether a selector finds any template; `None` when it is not known.
    fn finds(&self, selector: &ResourceSelector) -> Option<bool>;
    /// Returns the one template that a selector names and the policy that has it, if that is
    /// another one.
    fn claimed_by(&self, selector: &ResourceSelector) -> Option<(String, String)>;
    /// Returns the name of a Namespace that a selector means and that goes to all clusters by
    /// itself, if there is one.
    fn goes_everywhere(&self, selector: &ResourceSelector) -> Option<String>;
    /// Returns whether there is a cluster of this name, or might be.
    fn has_cluster(&self, name: &str) -> bool;
    /// Returns whether an override policy of this name is in force where the policy wants it, or
    /// might be.
    fn has_override(&self, name: &str) -> bool;
    /// Returns whether there is a priority class of this name, or might be.
    fn has_class(&self, name: &str) -> bool;
}

/// Returns what has no effect whatever the state of the fleet is. `namespace` is that of the
/// policy, `None` for a cluster-wide one.
pub fn written(spec: &PropagationSpec, namespace: Option<&str>, scope: &Scope) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |reason, note| found.push(Finding { reason, note });
    if let Some(wanted) = &spec.schedule_priority
        && wanted.priority_class_source != PriorityClassSource::KubePriorityClass
    {
        let note = "spec.schedulePriority.priorityClassSource: only KubePriorityClass is known, so nothing of this policy is \
                    propagated";
        add("UnknownPriorityClass", note.to_owned());
    }
    for (part, mode, state) in preservations(spec) {
        if !state.rules.is_empty() && !passes_state_on(mode, spec) {
            let note = format!(
                "spec.failover.{part}.statePreservation: no new copy is given the old one's state unless purgeMode is Directly"
            );
            add("StatePreservationUnused", note);
        }
    }
    let placement = &spec.placement;
    if !placement.spread_constraints.is_empty() && Strategy::ignores_spread(placement) {
        let note = "spec.placement.spreadConstraints: have no effect, since static weights divide the replicas, as they do without a weightPreference: dynamicWeight and Aggregated keep to constraints";
        add("SpreadIgnored", note.to_owned());
    }
    for place in places(spec, namespace) {
        if !scope.admits_namespace(place) {
            let note = format!(
                "nothing of namespace {place:?} is propagated: it is the fleet's own, or left out by --skipped-propagating-namespaces"
            );
            add("NamespaceNotPropagated", note);
        }
    }
    let kinds = kinds_of(spec, scope);
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        let at = format!("spec.resourceSelectors[{index}]");
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        let named = format!("{} of {}", kind.kind, kind.api_version);
        if let Some(why) = excluded(&kind, scope) {
            add("KindNotPropagated", format!("{at}: {named} {why}"));
        } else if !kinds.contains(&kind) {
            let note = format!("{at}: {named} is left out: a policy may name {MOST_KINDS} kinds");
            add("TooManyKinds", note);
        } else if let Some(meant) = meant(&kind) {
            let note = format!("{at}: Kubernetes has no {named}: is {meant} meant?");
            add("UnknownKind", note);
        }
        let elsewhere = given(selector.namespace.as_deref());
        if let Some((own, elsewhere)) = namespace.zip(elsewhere).filter(|(own, it)| own != it) {
            let note = format!(
                "{at}.namespace: {elsewhere:?} is not the policy's own, {own:?}: nothing is selected there"
            );
            add("NothingSelected", note);
        }
        if let Some(name) = given(selector.name.as_deref()) {
            let place = namespace.or(elsewhere).unwrap_or_default();
            if let Err(made) = sound_name(&kind.kind, place, name) {
                let note = format!(
                    "{at}.name: the binding or Work of {name:?} would be named {made:?}, which no API server takes"
                );
                add("InvalidName", note);
            }
        }
    }
    bounded(found)
}

/// Returns the parts of a policy's failover that preserve state, each with its name and purge mode.
fn preservations(
    spec: &PropagationSpec,
) -> impl Iterator<Item = (&'static str, Option<&PurgeMode>, &StatePreservation)> {
    let application = spec.application_failover();
    let application = application.map(|it| ("application", &it.purge_mode, &it.state_preservation));
    let cluster = spec.cluster_failover();
    let cluster = cluster.map(|it| ("cluster", &it.purge_mode, &it.state_preservation));
    let parts = application.into_iter().chain(cluster);
    parts.filter_map(|(part, mode, state)| Some((part, mode.as_ref(), state.as_ref()?)))
}

/// Returns whether a new copy is given the state of the old one: where that goes first, as purge
/// mode Directly says, or where two copies must not run.
fn passes_state_on(mode: Option<&PurgeMode>, spec: &PropagationSpec) -> bool {
    let cluster = spec.cluster_failover();
    let is_fenced = cluster.is_some_and(|it| it.fencing.is_some());
    let data = spec.data_replication.as_ref();
    let runs_alone = is_fenced || data.is_some_and(|it| !it.roles.is_empty());
    match mode.map(PurgeMode::canonical) {
        Some(PurgeMode::Directly) => true,
        Some(PurgeMode::Never) => false,
        _ => runs_alone,
    }
}

/// Returns the namespaces that a policy names: its own, or those of its selectors.
fn places<'a>(spec: &'a PropagationSpec, namespace: Option<&'a str>) -> BTreeSet<&'a str> {
    if let Some(own) = namespace {
        return BTreeSet::from([own]);
    }
    let selectors = spec.resource_selectors.iter();
    let named = selectors.filter_map(|it| {
        let kind = Kind::new(&*it.api_version, &*it.kind);
        let name = it.name.as_deref().unwrap_or_default();
        given(namespace_of(&kind, it.namespace.as_deref(), name))
    });
    named.collect()
}

/// Findings about parts of a policy, of its failover above all, that have no effect, because a
/// feature gate or a controller is off or another scheduler places its workloads.
pub fn switched_off(spec: &PropagationSpec, settings: &Settings) -> Vec<Finding> {
    let (application, cluster) = (spec.application_failover(), spec.cluster_failover());
    let mut found = Vec::new();
    let mut add = |reason, note: &str| {
        let note = note.to_owned();
        found.push(Finding { reason, note });
    };
    let moves_by_taints = [
        (settings.gate(&FAILOVER), "the feature gate Failover is off"),
        (
            settings.runs("taintmanager"),
            "the controller taintmanager of the control plane is off (--controllers, --enable-taint-manager)",
        ),
    ];
    let off = moves_by_taints.iter().find(|it| !it.0);
    if let Some((_, why)) = off.filter(|_| cluster.is_some()) {
        let note = format!("spec.failover.cluster: {why}, so no taint of a cluster moves anything");
        add("FailoverOff", &note);
    }
    if application.is_some() && !settings.runs("applicationFailover") {
        let note = "spec.failover.application: the controller applicationFailover of the control plane is off (--controllers), so an application that fails stays where it is";
        add("ApplicationFailoverOff", note);
    }
    let failback = cluster.and_then(|it| it.failback.as_ref());
    if failback.is_some_and(|it| it.mode == FailbackMode::WhenHealthy)
        && let Some(why) = settings.no_failback(spec.scheduler_name.as_deref())
    {
        let note =
            format!("spec.failover.cluster.failback: {why}, so nothing brings the workloads back");
        add("FailbackOff", &note);
    }
    let preempts = spec.preemption == Some(PreemptionBehavior::Always);
    if preempts && !settings.gate(&PROPAGATION_POLICY_PREEMPTION) {
        let note = "spec.preemption: the feature gate PropagationPolicyPreemption is off, so this policy takes nothing over from others";
        add("PreemptionOff", note);
    }
    if spec.schedule_priority.is_some() && !settings.gate(&PRIORITY_BASED_SCHEDULING) {
        let note = "spec.schedulePriority: the feature gate PriorityBasedScheduling is off, so what this policy places has no priority";
        add("PriorityOff", note);
    }
    if spec.propagate_deps && !settings.gate(&PROPAGATE_DEPS) {
        let note = "spec.propagateDeps: the feature gate PropagateDeps is off, so what a workload needs does not go with it";
        let stays = if application.is_some() {
            ", and an application that fails stays where it is"
        } else {
            ""
        };
        add("DependenciesStayBehind", &format!("{note}{stays}"));
    }
    if application.is_some_and(|it| PurgeMode::is_graceful(it.purge_mode.as_ref()))
        && !settings.gate(&GRACEFUL_EVICTION)
    {
        let note = "spec.failover.application.purgeMode: Gracefully needs the feature gate GracefulEviction, which is off, so an application that fails stays where it is";
        add("GracefulEvictionDisabled", note);
    }
    for (part, _, state) in preservations(spec) {
        if !state.rules.is_empty() && !settings.gate(&STATEFUL_FAILOVER_INJECTION) {
            let note = format!(
                "spec.failover.{part}.statePreservation: the feature gate StatefulFailoverInjection is off, so a new copy gets none of the old one's state"
            );
            add("StatePreservationOff", &note);
        }
    }
    found
}

fn excluded(kind: &Kind, scope: &Scope) -> Option<&'static str> {
    if is_reserved(kind) {
        Some("is about the fleet itself and is never propagated")
    } else if !scope.admits_kind(kind) {
        Some("is left out by --skipped-propagating-apis")
    } else {
        None
    }
}

/// Returns whether some kind cannot be listed and it is not known yet why, so that its finding will
/// say more later.
pub fn is_unexplained(spec: &PropagationSpec, scope: &Scope, facts: &impl Facts) -> bool {
    kinds_of(spec, scope).iter().any(|kind| {
        let state = facts.kind_state(kind);
        matches!(state, KindState::Sought | KindState::Unlisted) && facts.trouble(kind).is_none()
    })
}

/// Returns what has no effect in the present state of the fleet. Kinds, templates and clusters may
/// be on their way: judge a policy that has just been written after a while.
pub fn missing(spec: &PropagationSpec, scope: &Scope, facts: &impl Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |reason, note| found.push(Finding { reason, note });
    let kinds = kinds_of(spec, scope);
    let mut judged = BTreeSet::new();
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        let at = format!("spec.resourceSelectors[{index}]");
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        let named = format!("{} of {}", kind.kind, kind.api_version);
        if !kinds.contains(&kind) {
            continue;
        }
        let (reason, why) = match facts.kind_state(&kind) {
            KindState::Listed if facts.is_out_of_reach(&kind) => (
                "NothingSelected",
                "lies in no namespace: only a ClusterPropagationPolicy selects it",
            ),
            KindState::Listed => {
                if index >= MOST_COMPARED {
                    continue;
                }
                if facts.finds(selector) == Some(false) {
                    let note = format!("{at}: selects no {named} that there is");
                    add("NothingSelected", note);
                } else if let Some((template, other)) = facts.claimed_by(selector) {
                    let note = format!(
                        "{at}: {template} belongs to {other}, and goes by that one: preemption Always takes over what a policy of lower \
                         priority has, and for a policy of a namespace what one of the whole fleet has"
                    );
                    add("ClaimedByAnotherPolicy", note);
                } else if chooses(&spec.placement)
                    && let Some(name) = facts.goes_everywhere(selector)
                {
                    let label = label::SKIP_AUTO_PROPAGATION;
                    let note = format!(
                        "{at}: Namespace {name} goes to all clusters by itself, whatever spec.placement says: before it is there, give it the \
                         label {label}: \"true\" to have it where a policy places it alone"
                    );
                    add("PlacedEverywhere", note);
                }
                continue;
            }
            KindState::Reserved => continue,
            KindState::Missing => (
                "UnknownKind",
                "is not served by the fleet API: look at apiVersion and kind, or install its CustomResourceDefinition",
            ),
            KindState::Unfit => (
                "KindNotPropagated",
                "cannot be listed, watched and deleted, and so not be propagated",
            ),
            KindState::Sought | KindState::Unlisted => (
                "KindNotListed",
                "could not be listed so far: look at the rights of the control plane, and at the kind's conversion webhook",
            ),
        };
        let trouble = facts.trouble(&kind);
        if judged.insert(kind) {
            let trouble = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
            add(reason, format!("{at}: {named} {why}{trouble}"));
        }
    }
    if let Some(wanted) = &spec.schedule_priority
        && wanted.priority_class_source == PriorityClassSource::KubePriorityClass
        && !facts.has_class(&wanted.priority_class_name)
    {
        let note = format!(
            "spec.schedulePriority.priorityClassName: there is no PriorityClass {:?}, so nothing of this policy is propagated",
            wanted.priority_class_name
        );
        add("UnknownPriorityClass", note);
    }
    let overrides: Vec<&str> = spec
        .dependent_overrides
        .iter()
        .map(String::as_str)
        .filter(|name| !facts.has_override(name))
        .collect();
    if let Some((first, others)) = overrides.split_first() {
        let more = if others.is_empty() { "" } else { ", ..." };
        let note = format!(
            "spec.dependentOverrides: there is no override policy {first:?}{more}, or it is being deleted, so nothing of this policy is propagated"
        );
        add("DependentOverrides", note);
    }
    for note in unknown_clusters(spec, |name| facts.has_cluster(name)) {
        add("UnknownCluster", note);
    }
    bounded(found)
}

/// Returns what is reported of clusters that a policy names and that are not in the fleet.
/// `has_cluster` says whether there is a cluster of a name, or might be.
pub fn unknown_clusters(spec: &PropagationSpec, has_cluster: impl Fn(&str) -> bool) -> Vec<String> {
    let suspension = spec.suspension.as_ref();
    let suspended = suspension.and_then(|it| it.dispatching_on_clusters.as_ref());
    let suspended = suspended.into_iter().flat_map(|it| &it.cluster_names);
    let placed: BTreeSet<&str> = clusters_of(&spec.placement).collect();
    let suspended: BTreeSet<&str> = suspended.map(String::as_str).collect();
    let fields = [
        ("spec.placement", placed),
        ("spec.suspension.dispatchingOnClusters", suspended),
    ];
    let reported = |(field, named): (&str, BTreeSet<&str>)| {
        let unknown: Vec<&str> = named.into_iter().filter(|it| !has_cluster(it)).collect();
        let sound = unknown.iter().copied().filter(|it| is_cluster_name(it));
        let mut names: Vec<&str> = sound.take(MOST_NAMES).collect();
        if unknown.len() > names.len() {
            names.push("...");
        }
        let names = names.join(", ");
        (!unknown.is_empty())
            .then(|| format!("{field} names clusters that are not in the fleet: {names}"))
    };
    fields.into_iter().filter_map(reported).collect()
}

/// Returns whether a placement may leave clusters out.
fn chooses(placement: &Placement) -> bool {
    let mut affinities = affinities(placement);
    !placement.spread_constraints.is_empty()
        || affinities.any(|it| *it != ClusterAffinity::default())
}

/// Returns the clusters that a placement wants by name.
fn clusters_of(placement: &Placement) -> impl Iterator<Item = &str> {
    fn names(affinity: &ClusterAffinity) -> impl Iterator<Item = &str> {
        affinity.cluster_names.iter().map(String::as_str)
    }
    let weights = placement.replica_scheduling.as_ref();
    let weights = weights.and_then(|strategy| strategy.weight_preference.as_ref());
    let weights = weights.into_iter().flat_map(|it| &it.static_weight_list);
    let weighed = weights.map(|weight| &weight.target_cluster);
    affinities(placement).chain(weighed).flat_map(names)
}

fn bounded(mut found: Vec<Finding>) -> Vec<Finding> {
    if found.len() > MOST_REPORTED {
        let more = found.len() - MOST_REPORTED;
        found.truncate(MOST_REPORTED);
        found.push(Finding {
            reason: "MoreFindings",
            note: format!("{more} more parts of this policy have no effect"),
        });
    }
    found
}

#[cfg(test)]
mod tests;
