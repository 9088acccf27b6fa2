//! What one pass over a binding writes: the result with the placement it was made for, then what it reports, and
//! when it is tried again.

use jiff::Timestamp;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::k8s::Condition;

use super::need::{Need, need};
use super::nofit::{Kind, NoFit};
use super::pass::{Attempt, Pass};
use super::snapshot::Snapshot;
use super::{Decision, Options};

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

/// What a pass came to.
#[derive(Debug)]
pub struct Outcome {
    /// Why the binding was scheduled, or `None` when it was where it should be.
    pub need: Option<Need>,
    /// What was tried.
    pub attempts: Vec<Attempt>,
    /// The new result, when there is one.
    pub placed: Option<Placed>,
    /// The failure, when there was one.
    pub failure: Option<NoFit>,
    /// What is reported.
    pub report: Report,
    /// When the binding is tried again.
    pub retry: Retry,
}

/// The result of a pass. Both parts are written at once, so that no one sees a result without its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Replaces `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// Replaces the annotation that holds the placement applied last.
    pub applied_placement: String,
}

/// What a pass reports in the status; `None` leaves a field alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The condition `Scheduled`.
    pub scheduled: Option<Verdict>,
    /// `schedulerObservedGeneration`: the generation that was handled to the end.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime`
    pub scheduled_at: Option<Timestamp>,
    /// `schedulerObservingAffinityName`: the affinity group in use.
    pub affinity_name: Option<String>,
}

/// Status, reason and message of the condition `Scheduled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the binding is scheduled.
    pub scheduled: bool,
    /// The reason, as Karmada has it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// When a binding is tried again without anybody having touched it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Never, or when clusters change in a way that may let one in.
    WhenClustersChange,
    /// When there may be room again.
    WhenRoomChanges,
    /// After a while, and then after longer whiles.
    Backoff,
}

/// One pass over a binding at `now`.
pub fn pass(
    subject: &Subject<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
) -> Outcome {
    let Subject {
        generation,
        applied_placement,
        spec,
        status,
    } = *subject;
    let settled = Outcome {
        need: None,
        attempts: Vec::new(),
        placed: None,
        failure: None,
        report: Report {
            observed_generation: Some(generation),
            ..Report::default()
        },
        retry: Retry::WhenClustersChange,
    };
    if spec.placement.is_some() {
        let Some(need) = need(spec, status, applied_placement, snapshot) else {
            return settled;
        };
        let Pass { attempts, result } = Pass::run(spec, status, snapshot, options);
        let outcome = Outcome {
            need: Some(need),
            attempts,
            ..settled
        };
        return match result {
            Ok(decision) => outcome.succeed(subject, decision, now),
            Err(failure) => outcome.fail(subject, failure),
        };
    }
    settled.fail(subject, NoFit::NoPlacement)
}

impl Outcome {
    fn succeed(self, subject: &Subject<'_>, decision: Decision, now: Timestamp) -> Self {
        Self {
            placed: Some(Placed {
                clusters: decision.clusters,
                applied_placement: record(subject.spec),
            }),
            report: Report {
                scheduled: Some(Verdict {
                    scheduled: true,
                    reason: "Success",
                    message: "Binding has been scheduled successfully.".to_owned(),
                }),
                observed_generation: Some(subject.generation),
                scheduled_at: Some(now),
                affinity_name: decision.affinity_name,
            },
            ..self
        }
    }

    /// A failure leaves what is placed alone, unless no cluster may have it any more. The generation does not count
    /// as observed, so nobody takes the workload for moved.
    fn fail(self, subject: &Subject<'_>, failure: NoFit) -> Self {
        let kind = failure.kind();
        Self {
            placed: (kind == Kind::NoClusterFit).then(|| Placed {
                clusters: Vec::new(),
                applied_placement: record(subject.spec),
            }),
            report: Report {
                scheduled: Some(Verdict {
                    scheduled: false,
                    reason: kind.reason(),
                    message: failure.to_string(),
                }),
                ..Report::default()
            },
            retry: match kind {
                Kind::NoClusterFit => Retry::WhenClustersChange,
                Kind::Unschedulable => Retry::WhenRoomChanges,
                Kind::SchedulerError => Retry::Backoff,
            },
            failure: Some(failure),
            ..self
        }
    }
}

/// The placement as the annotation keeps it.
fn record(spec: &ResourceBindingSpec) -> String {
    serde_json::to_string(&spec.placement)
        .expect("a placement has text keys: invariant of its type")
}
