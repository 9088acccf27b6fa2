//! Outcome of a schedule: the clusters with their placement, the status to report, and what the
//! binding waits for.

use jiff::Timestamp;
use muster_shared::api::binding::{
    Binding, GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
};
use muster_shared::api::policy::PurgeMode;
use muster_shared::k8s::Time;
use muster_shared::names::annotation::APPLIED_PLACEMENT;
use muster_shared::names::eviction::{PRODUCER_SCHEDULER, REASON_NO_CLUSTER_FIT};

use super::cycle::{Attempt, Cycle, is_reschedule_requested};
use super::fit_error::{FitError, Kind};
use super::need::{Need, need};
use super::record::record;
use super::replacement::{self, can_keep};
use super::report::{Report, Verdict};
use super::snapshot::Snapshot;
use super::step_timer::Spent;
use super::{Decision, Listing, Options};

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
    /// The binding.
    pub fn of<B: Binding>(binding: &'a B) -> Self {
        let annotations = binding.meta().annotations.as_ref();
        Self {
            generation: binding.meta().generation.unwrap_or(0),
            applied_placement: annotations
                .and_then(|annotations| annotations.get(APPLIED_PLACEMENT))
                .map(String::as_str),
            spec: binding.spec(),
            status: binding.status(),
        }
    }
}

/// What a pass came to.
#[derive(Debug)]
pub struct Outcome {
    /// Why the binding was scheduled, or `None` when it was where it should be.
    pub need: Option<Need>,
    /// What was tried.
    pub attempts: Vec<Attempt>,
    /// The new result, when there is one.
    pub placed: Option<Placed>,
    /// What is reported.
    pub report: Report,
    /// Why there is no decision, when there is none: the binding waits until clusters change.
    pub failure: Option<FitError>,
    /// How long the steps took.
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
    /// may have them, or until those of a requested new placement are healthy.
    pub tasks: Option<Vec<GracefulEvictionTask>>,
}

impl Placed {
    /// Whether the binding says so already.
    pub fn is_known(&self, subject: &Subject<'_>) -> bool {
        self.clusters == subject.spec.clusters
            && subject.applied_placement == Some(self.applied_placement.as_str())
    }
}

/// The outcome for a binding that stays as it is placed, whatever has changed.
pub fn stay(subject: &Subject<'_>, now: Timestamp) -> Outcome {
    Outcome::settled(subject).confirm(subject, now)
}

/// One pass over a binding at `now`.
pub fn pass(
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
    let record = record(spec);
    let Some(need) = need(spec, status, applied_placement, &record, snapshot) else {
        return settled.confirm(subject, now);
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
            let tasks = is_reschedule_requested(spec, status)
                .then(|| replacement::tasks(spec, &decision.clusters, snapshot, now));
            let outcome = outcome.succeed(subject, decision, record, options, now);
            outcome.with_tasks(tasks.flatten())
        }
        Err(failure) => Outcome {
            placed: withdraw(subject, &failure, record, snapshot, now),
            ..outcome.fail(failure)
        },
    }
}

/// No cluster may have the workload any more: its result is empty (Karmada behaviour). Its copies,
/// unlike Karmada's, stay until there are others: a policy that is narrowed to clusters which
/// happen to be down must not delete what runs. They go with clusters that are being removed.
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
            let task = GracefulEvictionTask {
                from_cluster: target.name.clone(),
                purge_mode: Some(PurgeMode::Gracefully),
                reason: REASON_NO_CLUSTER_FIT.to_owned(),
                producer: PRODUCER_SCHEDULER.to_owned(),
                creation_timestamp: Some(Time(now)),
                ..GracefulEvictionTask::default()
            };
            after.take_out(task);
        }
    }
    let changed = after.graceful_eviction_tasks != subject.spec.graceful_eviction_tasks;
    Some(Placed {
        clusters: Vec::new(),
        applied_placement: record,
        tasks: changed.then_some(after.graceful_eviction_tasks),
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
            placed: None,
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

    fn succeed(
        self,
        subject: &Subject<'_>,
        decision: Decision,
        record: String,
        options: &Options,
        now: Timestamp,
    ) -> Self {
        let steady = options.listing == Listing::Steady;
        let clusters = if steady && is_same(&decision.clusters, &subject.spec.clusters) {
            subject.spec.clusters.clone()
        } else {
            decision.clusters
        };
        Self {
            placed: Some(Placed {
                clusters,
                applied_placement: record,
                tasks: None,
            }),
            report: Report {
                scheduled: Some(Verdict::success()),
                observed_generation: Some(subject.generation),
                scheduled_at: Some(answered(subject.spec, now)),
                affinity_name: decision.affinity_name,
            },
            ..self
        }
    }

    /// The same with other eviction tasks.
    fn with_tasks(mut self, tasks: Option<Vec<GracefulEvictionTask>>) -> Self {
        if let Some(placed) = &mut self.placed {
            placed.tasks = tasks;
        }
        self
    }

    /// A failure leaves what is placed alone, unless [`withdraw`] says otherwise. The generation
    /// does not count as observed, so that nobody takes the workload for moved (Karmada behaviour).
    fn fail(self, failure: FitError) -> Self {
        let kind = failure.kind();
        Self {
            report: Report {
                scheduled: Some(Verdict {
                    scheduled: false,
                    reason: kind.reason(),
                    message: failure.to_string(),
                }),
                ..Report::default()
            },
            failure: Some(failure),
            ..self
        }
    }

    /// This report and that of the pass that sees this pass's own write, when that changes nothing
    /// any more: the write raised the generation, and saying at once that this was expected saves a
    /// report later.
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

/// The time of a scheduling. A request by somebody whose clock is ahead of ours is answered by it
/// as well; otherwise each look until then would move the workload anew.
fn answered(spec: &ResourceBindingSpec, now: Timestamp) -> Timestamp {
    let requested = spec.reschedule_triggered_at.as_ref();
    requested.map_or(now, |requested| requested.0.max(now))
}

/// Whether two results say the same, in whatever order.
fn is_same(some: &[TargetCluster], others: &[TargetCluster]) -> bool {
    fn sorted(targets: &[TargetCluster]) -> Vec<&TargetCluster> {
        let mut targets: Vec<_> = targets.iter().collect();
        targets.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        targets
    }
    some == others || (some.len() == others.len() && sorted(some) == sorted(others))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, dynamic, placed, snapshot};

    /// What a pass leaves of a Deployment on `m`, when its policy names `allowed` only: the
    /// targets, and the tasks it adds.
    fn withdrawn(allowed: &[&str], clusters: &[Value], tasks: Value) -> Option<(usize, Value)> {
        withdrawn_from(allowed, &snapshot(clusters), tasks)
    }

    fn withdrawn_from(
        allowed: &[&str],
        clusters: &Snapshot,
        tasks: Value,
    ) -> Option<(usize, Value)> {
        let mut placement = dynamic();
        placement["clusterAffinity"] = json!({"clusterNames": allowed});
        let mut spec = deployment(2, &placement);
        spec.clusters = serde_json::from_value(json!([{"name": "m", "replicas": 2}])).unwrap();
        spec.graceful_eviction_tasks = serde_json::from_value(tasks).unwrap();
        let subject = Subject {
            generation: 2,
            applied_placement: Some("{}"),
            spec: &spec,
            status: &ResourceBindingStatus::default(),
        };
        let outcome = pass(
            &subject,
            clusters,
            &Options::default(),
            Timestamp::UNIX_EPOCH,
        );
        let placed = outcome.placed?;
        Some((placed.clusters.len(), json!(placed.tasks)))
    }

    #[test]
    fn no_copy_is_removed_because_no_cluster_may_have_the_workload() {
        let down = || {
            let mut down = cluster("down", 10);
            down["spec"]["taints"] =
                json!([{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}]);
            down
        };
        let leaving = || {
            let mut leaving = cluster("m", 10);
            leaving["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            leaving
        };
        let task = json!([{
            "fromCluster": "m", "purgeMode": "Gracefully", "replicas": 2, "reason": "NoClusterFit",
            "producer": "Scheduler", "creationTimestamp": "1970-01-01T00:00:00Z",
        }]);
        let old =
            json!([{"fromCluster": "m", "reason": "TaintUntolerated", "producer": "TaintManager"}]);
        // The policy now names a cluster that happens to be down.
        assert_eq!(
            withdrawn(&["down"], &[cluster("m", 10), down()], json!([])),
            Some((0, task.clone()))
        );
        assert_eq!(
            withdrawn(&["nobody"], &[cluster("m", 10)], json!([])),
            Some((0, task))
        );
        assert_eq!(
            withdrawn(&["nobody"], &[cluster("m", 10)], old),
            Some((0, Value::Null)),
            "its copy is kept already"
        );
        // Whoever removes a cluster, or has removed it, wants nothing to stay there.
        assert_eq!(
            withdrawn(&["m"], &[leaving()], json!([])),
            Some((0, Value::Null))
        );
        let mut left = snapshot(&[]);
        left.depart("m");
        assert_eq!(
            withdrawn_from(&["m"], &left, json!([])),
            Some((0, Value::Null))
        );
        // Of a cluster that cannot be read nobody knows whether it left: nothing is changed, unless
        // the policy gives it up by name.
        assert_eq!(withdrawn(&["m"], &[], json!([])), Some((1, Value::Null)));
        assert_eq!(
            withdrawn(&["nobody"], &[], json!([]))
                .map(|(targets, tasks)| (targets, tasks[0]["fromCluster"].clone())),
            Some((0, json!("m")))
        );
        assert_eq!(
            withdrawn(&["m"], &[cluster("m", 10)], json!([])).map(|(targets, _)| targets),
            Some(1),
            "a cluster that may keep it does"
        );
    }

    #[test]
    fn another_order_of_the_same_clusters_is_no_news() {
        let spec = placed(deployment(2, &json!({})), &[("m2", 2), ("m1", 2)]);
        let applied = record(&spec);
        let subject = Subject {
            generation: 2,
            applied_placement: Some(&applied),
            spec: &spec,
            status: &ResourceBindingStatus::default(),
        };
        let clusters = snapshot(&[cluster("m1", 10), cluster("m2", 5)]);
        let outcome = pass(
            &subject,
            &clusters,
            &Options::default(),
            Timestamp::UNIX_EPOCH,
        );
        assert!(outcome.need.is_some());
        assert!(outcome.placed.unwrap().is_known(&subject));
    }

    #[test]
    fn a_request_from_a_clock_that_is_ahead_is_answered_once() {
        let ahead = Timestamp::from_second(60).unwrap();
        let mut spec = deployment(2, &dynamic());
        spec.reschedule_triggered_at = Some(Time(ahead));
        let status = ResourceBindingStatus {
            last_scheduled_time: Some(Time(Timestamp::UNIX_EPOCH)),
            ..ResourceBindingStatus::default()
        };
        let clusters = snapshot(&[cluster("m1", 10)]);
        let options = Options::default();
        let look = |spec: &ResourceBindingSpec, status: &ResourceBindingStatus| {
            let applied = record(spec);
            let subject = Subject {
                generation: 2,
                applied_placement: Some(&applied),
                spec,
                status,
            };
            pass(&subject, &clusters, &options, Timestamp::UNIX_EPOCH)
        };
        let first = look(&spec, &status);
        spec.clusters = first.placed.unwrap().clusters;
        let status = first.report.on(&status, Timestamp::UNIX_EPOCH);
        assert_eq!(look(&spec, &status).need, None);
    }

    #[test]
    fn a_result_is_known_if_the_binding_has_its_targets_and_its_placement() {
        let spec = placed(deployment(2, &json!({})), &[("m1", 2)]);
        let status = ResourceBindingStatus::default();
        for (targets, applied, held, expected) in [
            (&[("m1", 2)][..], "{}", Some("{}"), true),
            (&[("m1", 1)], "{}", Some("{}"), false),
            (&[("m1", 2)], "{}", Some("{ }"), false),
            (&[("m1", 2)], "{}", None, false),
            (&[("m2", 2)], "{}", None, false),
        ] {
            let subject = Subject {
                generation: 2,
                applied_placement: held,
                spec: &spec,
                status: &status,
            };
            let result = Placed {
                clusters: placed(deployment(2, &json!({})), targets).clusters,
                applied_placement: applied.to_owned(),
                tasks: None,
            };
            assert_eq!(result.is_known(&subject), expected, "{targets:?} {held:?}");
        }
    }

    #[test]
    fn results_are_the_same_in_whatever_order() {
        let targets = |list: &[(&str, i32)]| placed(deployment(2, &json!({})), list).clusters;
        for (one, other, same) in [
            (&[][..], &[][..], true),
            (&[("a", 1), ("b", 2)], &[("b", 2), ("a", 1)], true),
            (&[("a", 1)], &[("a", 2)], false),
            (&[("a", 1)], &[("b", 1)], false),
            (&[("a", 1)], &[("a", 1), ("b", 2)], false),
            (&[("a", 1), ("b", 2)], &[("b", 1), ("a", 2)], false),
        ] {
            assert_eq!(
                is_same(&targets(one), &targets(other)),
                same,
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn a_report_tells_at_once_the_generation_of_its_own_write_if_that_settles_it() {
        let status = ResourceBindingStatus::default();
        let spec = deployment(2, &dynamic());
        let clusters = snapshot(&[cluster("m1", 10)]);
        let look = |spec: &ResourceBindingSpec, generation, applied: Option<&str>, clusters| {
            let subject = Subject {
                generation,
                applied_placement: applied,
                spec,
                status: &status,
            };
            pass(
                &subject,
                clusters,
                &Options::default(),
                Timestamp::UNIX_EPOCH,
            )
        };
        let result = look(&spec, 2, None, &clusters).placed.unwrap();
        let mut written = spec.clone();
        written.clusters = result.clusters;
        let applied = Some(&*result.applied_placement);
        let subject = Subject {
            generation: 3,
            applied_placement: applied,
            spec: &written,
            status: &status,
        };
        let elsewhere = snapshot(&[cluster("m2", 10)]);
        let settled = || look(&written, 3, applied, &clusters);
        for (what, first, next, told) in [
            (
                "settled",
                look(&spec, 2, None, &clusters),
                settled(),
                Some(3),
            ),
            (
                "the next fails",
                look(&spec, 2, None, &clusters),
                look(&spec, 3, None, &snapshot(&[])),
                Some(2),
            ),
            (
                "the next moves it",
                look(&spec, 2, None, &clusters),
                look(&spec, 3, None, &elsewhere),
                Some(2),
            ),
            (
                "the first failed",
                look(&spec, 2, None, &snapshot(&[])),
                settled(),
                None,
            ),
        ] {
            let report = first.followed_by(&next, &subject);
            assert_eq!(report.observed_generation, told, "{what}");
        }
    }
}
