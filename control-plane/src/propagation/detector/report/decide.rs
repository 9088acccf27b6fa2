//! Counts the resources of a policy, and decides its status from the counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::api::policy::{PropagationReason, PropagationSpec, PropagationStatus};
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ObjectMeta};
use muster_shared::names::condition::{self, EFFECTIVE, SUSPENDED};
use muster_shared::names::{label, namespaced_key};
use muster_shared::text;

use crate::fleet::attribution::{Attribution, order, suspended_in};
use crate::fleet::silent_reports::all_silent;
use crate::fleet::template::TemplateKey;
use crate::movement::eviction::explain::CONDITION as EVICTION_PENDING;
use crate::propagation::detector::audit::Finding;

/// Reasons that a status lists at most.
const MOST_REASONS: usize = 10;
/// A message of a resource is cut after so many bytes.
const LONGEST_MESSAGE: usize = 256;
/// The message about parts of a policy without effect is cut after so many bytes.
const LONGEST_FINDINGS: usize = 2048;
/// Reason of a resource of which no binding could be made.
const NOT_PROPAGATED: &str = "NotPropagated";
/// Reason of a resource about which the scheduler has not said anything.
const NOT_SCHEDULED: &str = "NotScheduledYet";

/// Condition of a policy: each selected resource has clusters, at least one of which is not silent.
const READY: &str = "Ready";
/// Reason of the condition `Ready` while some resources are only in clusters that are silent.
const NOT_HEARD: &str = "NotHeard";
/// Reason of the condition `Effective` while the policy was not compared with the fleet.
const NOT_JUDGED: &str = "NotJudgedYet";

/// State of a binding, as far as the status of its policy shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// The binding has clusters, and leaves none.
    Placed,
    /// The binding has clusters, and has to leave one. Reason and message of its condition.
    Waiting(&'a str, &'a str),
    /// The binding has no clusters. Reason and message of its condition.
    Refused(&'a str, &'a str),
}

impl<'a> State<'a> {
    /// Returns the state of a binding.
    pub fn of(binding: &'a AnyBinding) -> Self {
        let held = |kind: &str, status: &str| {
            let found = conditions::get(&binding.status().conditions, kind);
            found.filter(|it| it.status == status)
        };
        let scheduled = held(condition::SCHEDULED, conditions::FALSE);
        let is_empty = binding.spec.clusters.is_empty();
        match (scheduled, held(EVICTION_PENDING, conditions::TRUE)) {
            (Some(refused), _) if is_empty => Self::Refused(&refused.reason, &refused.message),
            (None, _) if is_empty && held(condition::SCHEDULED, conditions::TRUE).is_none() => {
                Self::Refused(NOT_SCHEDULED, "the scheduler has not placed it")
            }
            (_, Some(pending)) => Self::Waiting(&pending.reason, &pending.message),
            // A Duplicated workload of no replicas needs no cluster.
            _ => Self::Placed,
        }
    }
}

/// Returns the reason of a first resource.
fn first(reason: &str, example: String, message: &str) -> PropagationReason {
    PropagationReason {
        reason: reason.to_owned(),
        resources: 1,
        example,
        message: text::cut(message, LONGEST_MESSAGE, "…"),
    }
}

/// Returns the resources of a reason in words that follow the reason or a number.
fn reported(reason: &PropagationReason) -> String {
    let others = match reason.resources {
        1 => String::new(),
        more => format!(" and {} more", more - 1),
    };
    format!("({}{others}: {})", reason.example, reason.message)
}

/// Returns the state of a binding as the status of its policy shows it; where all of its clusters
/// are silent, also the message about the first of them.
pub fn shown(binding: &AnyBinding) -> (State<'_>, Option<&str>) {
    let reports = &binding.status().aggregated_status;
    (State::of(binding), all_silent(&binding.spec, reports))
}

/// Counts of the resources of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    selected: u32,
    placed: u32,
    refused: u32,
    waiting: u32,
    /// Resources all of whose clusters are silent.
    silent: Option<PropagationReason>,
    reasons: BTreeMap<String, PropagationReason>,
}

impl Tally {
    /// Counts a binding.
    pub fn take(&mut self, binding: &AnyBinding) {
        let resource = &binding.spec.resource;
        self.selected += 1;
        let (state, silent) = shown(binding);
        match (&mut self.silent, silent) {
            (Some(reason), Some(_)) => reason.resources += 1,
            (none, Some(why)) => *none = Some(first(NOT_HEARD, named(resource), why)),
            (_, None) => {}
        }
        match state {
            State::Placed => self.placed += 1,
            State::Waiting(reason, message) => {
                self.placed += 1;
                self.waiting += 1;
                self.group(reason, message, || named(resource));
            }
            State::Refused(reason, message) => {
                self.refused += 1;
                self.group(reason, message, || named(resource));
            }
        }
    }

    /// Counts a template of which no binding could be made.
    pub fn refuse(&mut self, template: &TemplateKey, message: &str) {
        self.selected += 1;
        self.refused += 1;
        self.group(NOT_PROPAGATED, message, || template.to_string());
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.selected == 0
    }

    fn group(&mut self, reason: &str, message: &str, example: impl FnOnce() -> String) {
        if let Some(known) = self.reasons.get_mut(reason) {
            known.resources += 1;
            return;
        }
        let first = first(reason, example(), message);
        self.reasons.insert(reason.to_owned(), first);
    }

    fn reasons(&self) -> Vec<PropagationReason> {
        let mut reasons: Vec<_> = self.reasons.values().cloned().collect();
        reasons.sort_by_key(|it| Reverse(it.resources));
        reasons.truncate(MOST_REASONS);
        reasons
    }
}

/// Reason why a policy has no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// A selector names a resource that another policy has.
    Claimed {
        /// The resource.
        template: String,
        /// The policy that has it.
        by: String,
    },
    /// A resource belongs to another controller, as its label says.
    ClaimedByController {
        /// The resource.
        template: String,
        /// The controller that has it.
        by: String,
    },
    /// The policy takes effect with the next change of a resource.
    Lazy,
    /// Nothing that the selectors name is there.
    NotThere,
    /// The resources of a kind are not listed.
    NotListed,
}

/// Returns the status of a policy of this generation; equal to `known` if there is nothing to
/// write. `nothing` is asked for if nothing was counted. `findings` are the parts without effect,
/// and whether the fleet was compared as well. As long as it was not, what is known of the same
/// generation counts on: a process that has just started knows less than the one before it.
pub fn status(
    known: Option<&PropagationStatus>,
    generation: Option<i64>,
    tally: &Tally,
    nothing: impl FnOnce() -> Nothing,
    findings: (&[Finding], bool),
    now: Timestamp,
) -> PropagationStatus {
    let known_conditions = known.map(|it| it.conditions.as_slice()).unwrap_or_default();
    // A known `True` does not outlive a finding, even before the fleet was compared.
    let is_overtaken = |it: &Condition| {
        it.reason == NOT_JUDGED || it.status == conditions::TRUE && !findings.0.is_empty()
    };
    let judged = conditions::get(known_conditions, EFFECTIVE)
        .filter(|it| it.observed_generation == generation && !is_overtaken(it));
    let effective = match (findings, judged) {
        ((_, false), Some(judged)) => judged.clone(),
        ((found, is_complete), _) => effective(found, is_complete, now),
    };
    let observations = [ready(tally, nothing, now), effective];
    let observations = observations.map(|it| Condition {
        observed_generation: generation,
        ..it
    });
    let conditions = conditions::merge(known_conditions, observations);
    PropagationStatus {
        observed_generation: generation,
        selected: tally.selected,
        placed: tally.placed,
        refused: tally.refused,
        waiting: tally.waiting,
        reasons: tally.reasons(),
        conditions: conditions.unwrap_or_else(|| known_conditions.to_vec()),
    }
}

/// Returns the condition that says who suspended what a policy propagates, and why, or that this
/// has ended; `None` if it was never suspended.
pub fn suspended(
    known: &[Condition],
    metadata: &ObjectMeta,
    spec: &PropagationSpec,
    now: Timestamp,
) -> Option<Condition> {
    let place = spec.suspension.as_ref().and_then(|it| {
        let clusters = it.dispatching_on_clusters.as_ref();
        suspended_in(it.dispatching, clusters)
    });
    let Some(place) = place else {
        let known = conditions::get(known, SUSPENDED)?;
        // An end is reported once: its order may be no more among the last.
        if known.status == conditions::FALSE {
            return Some(known.clone());
        }
        let ended = Attribution::in_force(metadata, order::UNSUSPEND, order::SUSPEND, None);
        let ended = ended.map_or_else(String::new, |it| format!(": ended {it}"));
        let message = format!("its copies are created and changed{ended}");
        let (status, reason) = (conditions::FALSE, "NotSuspended");
        return Some(conditions::new(SUSPENDED, status, reason, &message, now));
    };
    // The program that wrote an order which nobody recorded is named by `kubectl muster` alone:
    // caches keep no `managedFields`.
    let by = Attribution::in_force(metadata, order::SUSPEND, order::UNSUSPEND, None);
    let by = by.unwrap_or_default();
    let message = format!("{place}: suspended {by}");
    let (status, reason) = (conditions::TRUE, "Ordered");
    Some(conditions::new(SUSPENDED, status, reason, &message, now))
}

fn ready(tally: &Tally, nothing: impl FnOnce() -> Nothing, now: Timestamp) -> Condition {
    let condition =
        |status, reason, message: &str| conditions::new(READY, status, reason, message, now);
    let no = conditions::FALSE;
    if tally.is_empty() {
        return match nothing() {
            Nothing::Claimed { template, by } => {
                let message = format!(
                    "{template} belongs to {by}, and so does everything else that it selects"
                );
                condition(no, "ClaimedByAnotherPolicy", &message)
            }
            Nothing::ClaimedByController { template, by } => {
                let key = label::CLAIMED_BY;
                let message = format!(
                    "{template} belongs to {by} by its label {key}: no policy propagates it"
                );
                condition(no, "ClaimedByAnotherController", &message)
            }
            Nothing::Lazy => {
                let message = "activationPreference is Lazy: it takes effect on each resource when that is changed next";
                condition(conditions::TRUE, "WaitingForChange", message)
            }
            Nothing::NotThere => {
                // Whoever applies policies before what they select, as Flux may, must not wait for
                // ever. What is missing is also a finding.
                let message = "nothing that its selectors name is there";
                condition(conditions::TRUE, "NothingSelected", message)
            }
            Nothing::NotListed => {
                let message = "resources of a kind that it names could not be listed so far";
                condition(conditions::UNKNOWN, "NotListed", message)
            }
        };
    }
    let mut message = format!(
        "{} of {} resources are placed",
        tally.placed, tally.selected
    );
    if tally.refused > 0 {
        let refused = tally.refused;
        message = format!("{message}, {refused} are not: {}", tally.reported());
    }
    if let Some(silent) = &tally.silent {
        let reported = reported(silent);
        message = format!(
            "{message}; {} of them only in clusters that are silent {reported}",
            silent.resources
        );
    }
    match (tally.refused, &tally.silent) {
        (1.., _) => condition(no, "NotAllPlaced", &message),
        // Whoever waits for what a policy places, as Flux does, must not take it for well.
        (0, Some(_)) => condition(conditions::UNKNOWN, NOT_HEARD, &message),
        (0, None) => condition(conditions::TRUE, "AllPlaced", &message),
    }
}

impl Tally {
    /// Returns the reasons in words.
    fn reported(&self) -> String {
        let reasons = self.reasons();
        let words = reasons
            .iter()
            .map(|it| format!("{} {}", it.reason, reported(it)));
        words.collect::<Vec<_>>().join("; ")
    }
}

fn effective(findings: &[Finding], is_complete: bool, now: Timestamp) -> Condition {
    let Some(first) = findings.first() else {
        if !is_complete {
            let message =
                "the names in the policy are compared with the fleet half a minute after a change";
            let (status, reason) = (conditions::UNKNOWN, NOT_JUDGED);
            return conditions::new(EFFECTIVE, status, reason, message, now);
        }
        let (status, reason) = (conditions::TRUE, "AllPartsHaveEffect");
        return conditions::new(EFFECTIVE, status, reason, "", now);
    };
    let notes: Vec<&str> = findings.iter().map(|it| it.note.as_str()).collect();
    let message = text::cut(&notes.join("; "), LONGEST_FINDINGS, "…");
    conditions::new(EFFECTIVE, conditions::FALSE, first.reason, &message, now)
}

fn named(resource: &ObjectReference) -> String {
    let namespace = resource.namespace.as_deref().unwrap_or_default();
    let name = namespaced_key(namespace, &resource.name);
    format!("{} {name}", resource.kind)
}

#[cfg(test)]
mod tests;
