//! Outcome of a schedule: the clusters with their placement, the status to report, and what the
//! binding waits for.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
};
use muster_shared::api::policy::PurgeMode;
use muster_shared::names::eviction::REASON_NO_CLUSTER_FIT;

use super::cycle::{Attempt, Cycle, is_reschedule_requested, matches};
use super::filter::ReturnRule;
use super::fit_error::{FitError, Kind};
use super::need::{Need, need};
use super::record::annotation_text;
use super::released;
use super::replacement::{self, Cause, can_keep};
use super::report::{Report, Verdict};
use super::snapshot::Snapshot;
use super::step_timer::Spent;
use super::{Behaviour, Options};

/// A binding as the scheduler reads it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// `metadata.generation`
    pub generation: i64,
    /// The annotation that holds the placement applied last.
    pub applied_placement: Option<&'a str>,
    /// The spec.
    pub spec: &'a ResourceBindingSpec,
    /// The status.
    pub status: &'a ResourceBindingStatus,
}

impl<'a> Subject<'a> {
    /// Returns the subject for a binding.
    pub fn of(binding: &'a AnyBinding) -> Self {
        Self {
            generation: binding.metadata.generation.unwrap_or(0),
            applied_placement: binding.applied_placement(),
            spec: &binding.spec,
            status: binding.status(),
        }
    }
}

/// Result of a pass.
#[derive(Debug)]
pub struct Outcome {
    /// Why the binding was scheduled, or `None` when it was where it should be.
    pub need: Option<Need>,
    /// Affinity groups that were tried.
    pub attempts: Vec<Attempt>,
    /// Why copies that it drops stay until there are others, if they do.
    pub cause: Option<Cause>,
    /// The new result, when there is one.
    pub placed: Option<Placed>,
    /// Clusters of the binding that count as none: no copy was made there.
    pub unstarted: Vec<String>,
    /// Report of the pass.
    pub report: Report,
    /// Why there is no decision, when there is none: the binding waits until clusters change.
    pub failure: Option<FitError>,
    /// Times that the steps took.
    pub spent: Spent,
}

/// The result of a pass. Both parts are written at once, so that no one sees a result without its
/// placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Replaces `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// Replaces the annotation that holds the placement applied last.
    pub applied_placement: String,
    /// Replaces `spec.gracefulEvictionTasks`, when it changes: copies that stay although no cluster
    /// may have them, or until those of a new placement are healthy.
    pub tasks: Option<Vec<GracefulEvictionTask>>,
}

impl Placed {
    /// Returns whether the binding has this result already.
    pub fn is_known(&self, subject: &Subject<'_>) -> bool {
        self.clusters == subject.spec.clusters
            && self.tasks.is_none()
            && subject.applied_placement == Some(self.applied_placement.as_str())
    }
}

/// Returns the outcome for a binding that stays as it is placed, whatever has changed. It is taken
/// off clusters that leave the fleet, which wait for that, and goes nowhere instead.
pub fn stay(subject: &Subject<'_>, snapshot: &Snapshot, now: Timestamp) -> Outcome {
    let mut outcome = Outcome::settled(subject).confirm(subject, now);
    // That the binding stays answers a request for a new placement.
    if is_reschedule_requested(subject.spec, subject.status) {
        outcome.report.scheduled_at = Some(answered(subject.spec, now));
        outcome.report.is_answer = true;
    }
    let record = annotation_text(subject.spec, subject.applied_placement);
    Outcome {
        placed: leave(subject, record, snapshot),
        ..outcome
    }
}

/// Returns the binding without the clusters that leave the fleet, if it names any.
fn leave(subject: &Subject<'_>, record: String, snapshot: &Snapshot) -> Option<Placed> {
    Some(Placed {
        clusters: without_leaving(subject, snapshot)?,
        applied_placement: record,
        tasks: None,
    })
}

/// Returns the clusters of a binding without those that leave the fleet, if it names any. Their
/// Works are deleted whatever becomes of the binding, and they wait until none names them: one
/// whose policy asks for more clusters than are left would keep them for ever, and one whose move
/// is held back as long as that is.
pub fn without_leaving(subject: &Subject<'_>, snapshot: &Snapshot) -> Option<Vec<TargetCluster>> {
    let targets = &subject.spec.clusters;
    let stays = targets.iter().filter(|it| can_keep(snapshot, &it.name));
    let stays: Vec<_> = stays.cloned().collect();
    (stays.len() < targets.len()).then_some(stays)
}

/// Makes one pass over a binding at `now`, and returns its outcome. Where no copy has been made
/// because its data is elsewhere, the workload is placed as if it had never been placed there, if
/// that succeeds: nothing moves, and nothing has to be kept.
pub fn pass(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
) -> Outcome {
    let unstarted = snapshot.data().unstarted(subject.spec, subject.status);
    if !unstarted.is_empty() {
        let mut spec = subject.spec.clone();
        let is_started = |it: &TargetCluster| !unstarted.contains(&it.name.as_str());
        spec.clusters.retain(is_started);
        let started = Subject {
            spec: &spec,
            ..*subject
        };
        let outcome = pass_over(&started, snapshot, options, now);
        if outcome.failure.is_none() {
            let unstarted = unstarted.into_iter().map(str::to_owned).collect();
            return Outcome {
                unstarted,
                ..outcome
            };
        }
    }
    let outcome = pass_over(subject, snapshot, options, now);
    let options = returning(subject.spec, options).filter(|_| outcome.failure.is_some());
    let again = options.map(|options| pass_over(subject, snapshot, &options, now));
    again.filter(|it| it.failure.is_none()).unwrap_or(outcome)
}

/// Returns the options by which a workload without a cluster goes back to one that it was leaving,
/// whatever was wrong with it there: where no other cluster takes it, its task would never end.
fn returning(spec: &ResourceBindingSpec, options: &Options) -> Option<Options> {
    let was_leaving = spec.clusters.is_empty() && !spec.graceful_eviction_tasks.is_empty();
    let is_ours = options.return_rule == ReturnRule::Recovered;
    (was_leaving && is_ours).then_some(Options {
        return_rule: ReturnRule::Always,
        ..*options
    })
}

fn pass_over(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
) -> Outcome {
    let Subject {
        applied_placement,
        spec,
        status,
        ..
    } = *subject;
    let settled = Outcome::settled(subject);
    if spec.placement.is_none() {
        return settled.fail(FitError::NoPlacement);
    }
    let record = annotation_text(spec, applied_placement);
    let Some(need) = need(spec, status, applied_placement, &record, snapshot) else {
        let mut outcome = settled.confirm(subject, now);
        outcome.report.affinity_name = unreported_group(spec, status, (snapshot, options));
        return outcome;
    };
    let Cycle {
        attempts,
        result,
        spent,
    } = Cycle::run(spec, status, snapshot, options);
    let outcome = Outcome {
        need: Some(need),
        attempts,
        spent,
        ..settled
    };
    match result {
        Ok(decision) => {
            let cause = Cause::of(need, spec, status, &decision, (snapshot, options));
            let tasks = cause.as_ref().and_then(|cause| {
                replacement::tasks(cause, spec, status, &decision.clusters, snapshot, now)
            });
            let tasks = tasks.or_else(|| released::left(spec));
            let steady = options.behaviour == Behaviour::Muster;
            let clusters = if steady && is_same(&decision.clusters, &spec.clusters) {
                spec.clusters.clone()
            } else {
                decision.clusters
            };
            Outcome {
                cause,
                placed: Some(Placed {
                    clusters,
                    applied_placement: record,
                    tasks,
                }),
                report: Report {
                    scheduled: Some(Verdict::success()),
                    observed_generation: Some(subject.generation),
                    scheduled_at: Some(answered(spec, now)),
                    affinity_name: decision.affinity_name,
                    ..Report::default()
                },
                ..outcome
            }
        }
        Err(failure) => Outcome {
            placed: withdraw(subject, &failure, record.clone(), snapshot, now)
                .or_else(|| leave(subject, record, snapshot))
                .or_else(|| empty(subject)),
            ..outcome.fail(failure)
        },
    }
}

/// Returns the affinity group in use, where the status does not name it: the report of the schedule
/// that chose it may have been lost after its result was written. Karmada does not search for it.
fn unreported_group(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    at: (&Snapshot, &Options),
) -> Option<String> {
    let groups = &spec.placement.as_ref()?.cluster_affinities;
    if groups.is_empty() || spec.clusters.is_empty() || at.1.behaviour != Behaviour::Muster {
        return None;
    }
    let is_in_use = |group: &str| {
        let mut targets = spec.clusters.iter();
        targets.all(|it| matches(spec, status, at, group, &it.name))
    };
    let observed = status.scheduler_observed_affinity_name.as_deref();
    if observed.is_some_and(is_in_use) {
        return None;
    }
    let mut names = groups.iter().map(|it| it.affinity_name.as_str());
    names.find(|it| is_in_use(it)).map(str::to_owned)
}

/// Returns an empty result where no cluster may have the workload any more (Karmada behaviour). Its
/// copies, unlike Karmada's, stay until there are others: a policy that is narrowed to clusters
/// which happen to be down must not delete what runs. They go with clusters that are being removed.
fn withdraw(
    subject: &Subject<'_>,
    failure: &FitError,
    record: String,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<Placed> {
    if failure.kind() != Kind::NoClusterFit {
        return None;
    }
    let mut after = subject.spec.clone();
    for target in &subject.spec.clusters {
        if can_keep(snapshot, &target.name) {
            let from = &target.name;
            let message =
                format!("{from} is no target any more, and no cluster fits instead: {failure}");
            let (mode, reason) = (PurgeMode::Gracefully, REASON_NO_CLUSTER_FIT);
            after.take_out(replacement::task(from, &mode, reason, &message, now));
        }
    }
    let mut tasks = after.graceful_eviction_tasks;
    tasks.retain(|task| !released::is_released(subject.spec, task));
    Some(Placed {
        clusters: Vec::new(),
        applied_placement: record,
        tasks: replacement::changed(subject.spec, subject.status, tasks),
    })
}

/// Returns the clusters of a workload without their replicas, where it asks for none: whoever
/// scales it to zero means that, although its policy asks for clusters that there are not. Nor is a
/// copy kept that was only kept for want of a cluster. What was applied last stays so.
fn empty(subject: &Subject<'_>) -> Option<Placed> {
    let spec = subject.spec;
    let tasks = released::left(spec);
    let is_empty = spec.clusters.iter().all(|it| it.replicas == 0);
    if !spec.asks_for_none() || is_empty && tasks.is_none() {
        return None;
    }
    let mut clusters = spec.clusters.clone();
    for target in &mut clusters {
        target.replicas = 0;
    }
    Some(Placed {
        clusters,
        applied_placement: subject.applied_placement.unwrap_or_default().to_owned(),
        tasks,
    })
}

impl Outcome {
    /// Says of a binding which has clusters and needs no others that it is scheduled. A crash
    /// between result and report, or a failure that the user has since undone, would otherwise be
    /// shown for ever. A binding that was created with its clusters gets the time of its scheduling
    /// here.
    fn settled(subject: &Subject<'_>) -> Self {
        Self {
            need: None,
            attempts: Vec::new(),
            cause: None,
            placed: None,
            unstarted: Vec::new(),
            failure: None,
            spent: Spent::default(),
            report: Report {
                observed_generation: Some(subject.generation),
                ..Report::default()
            },
        }
    }

    fn confirm(mut self, subject: &Subject<'_>, now: Timestamp) -> Self {
        let placed = !subject.spec.clusters.is_empty();
        self.report.scheduled = placed.then(Verdict::success);
        let timed = subject.status.last_scheduled_time.is_some();
        self.report.scheduled_at = (placed && !timed).then_some(now);
        self
    }

    /// Returns the outcome of a failure, which leaves what is placed alone, unless [`withdraw`] or
    /// [`leave`] says otherwise. The generation does not count as observed, so that nobody takes
    /// the workload for moved (Karmada behaviour).
    fn fail(self, failure: FitError) -> Self {
        let kind = failure.kind();
        Self {
            report: Report {
                scheduled: Some(Verdict {
                    scheduled: false,
                    generation: self.report.observed_generation,
                    reason: kind.reason(),
                    message: failure.to_string(),
                }),
                ..Report::default()
            },
            failure: Some(failure),
            ..self
        }
    }

    /// Returns this report and that of the pass that sees this pass's own write, when that changes
    /// nothing any more: the write raised the generation, and saying at once that this was expected
    /// saves a report later.
    pub fn followed_by(self, next: &Self, written: &Subject<'_>) -> Report {
        let settled = next.failure.is_none()
            && next
                .placed
                .as_ref()
                .is_none_or(|placed| placed.is_known(written));
        if settled && self.failure.is_none() {
            Report {
                observed_generation: next.report.observed_generation,
                ..self.report
            }
        } else {
            self.report
        }
    }
}

/// Returns the time of a scheduling. A request by somebody whose clock is ahead of ours is answered
/// by it as well; otherwise each decision until then would move the workload anew.
fn answered(spec: &ResourceBindingSpec, now: Timestamp) -> Timestamp {
    let requested = spec.reschedule_triggered_at.as_ref();
    requested.map_or(now, |requested| requested.0.max(now))
}

/// Returns whether two results say the same, in whatever order.
fn is_same(some: &[TargetCluster], others: &[TargetCluster]) -> bool {
    fn sorted(targets: &[TargetCluster]) -> Vec<&TargetCluster> {
        let mut targets: Vec<_> = targets.iter().collect();
        targets.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        targets
    }
    some == others || (some.len() == others.len() && sorted(some) == sorted(others))
}

#[cfg(test)]
mod tests;
