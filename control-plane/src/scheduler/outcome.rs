//! What one pass over a binding comes to: the result with the placement it was made for, what is reported, and what
//! the binding waits for.

use jiff::Timestamp;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};

use super::need::{Need, need};
use super::nofit::{Kind, NoFit};
use super::pass::{Attempt, Pass};
use super::report::{Report, Verdict};
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
    /// What is reported.
    pub report: Report,
    /// Why there is no decision, when there is none: the binding waits until clusters change.
    pub failure: Option<NoFit>,
}

/// The result of a pass. Both parts are written at once, so that no one sees a result without its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Replaces `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// Replaces the annotation that holds the placement applied last.
    pub applied_placement: String,
}

impl Placed {
    /// Whether the binding says so already.
    pub fn is_known(&self, subject: &Subject<'_>) -> bool {
        self.clusters == subject.spec.clusters
            && subject.applied_placement == Some(self.applied_placement.as_str())
    }
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
    };
    if spec.placement.is_none() {
        return settled.fail(subject, NoFit::NoPlacement);
    }
    let Some(need) = need(spec, status, applied_placement, snapshot) else {
        return settled.confirm(subject, now);
    };
    let Pass { attempts, result } = Pass::run(spec, status, snapshot, options);
    let outcome = Outcome {
        need: Some(need),
        attempts,
        ..settled
    };
    match result {
        Ok(decision) => outcome.succeed(subject, decision, now),
        Err(failure) => outcome.fail(subject, failure),
    }
}

impl Outcome {
    /// Says of a binding which has clusters and needs no others that it is scheduled. A crash between result and
    /// report, or a failure that the user has since undone, would otherwise be shown for ever.
    /// A binding that was created with its clusters gets the time of its scheduling here.
    fn confirm(mut self, subject: &Subject<'_>, now: Timestamp) -> Self {
        let placed = !subject.spec.clusters.is_empty();
        self.report.scheduled = placed.then(Verdict::success);
        let timed = subject.status.last_scheduled_time.is_some();
        self.report.scheduled_at = (placed && !timed).then_some(now);
        self
    }

    fn succeed(self, subject: &Subject<'_>, decision: Decision, now: Timestamp) -> Self {
        Self {
            placed: Some(Placed {
                clusters: decision.clusters,
                applied_placement: record(subject.spec),
            }),
            report: Report {
                scheduled: Some(Verdict::success()),
                observed_generation: Some(subject.generation),
                scheduled_at: Some(now),
                affinity_name: decision.affinity_name,
            },
            ..self
        }
    }

    /// A failure leaves what is placed alone, unless no cluster may have it any more. The generation does not count
    /// as observed, so that nobody takes the workload for moved (Karmada behaviour).
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
            failure: Some(failure),
            ..self
        }
    }

    /// This report and that of the pass that sees this pass's own write, when that changes nothing any more: the write
    /// raised the generation, and saying at once that this was expected saves a report later.
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

/// The placement as the annotation keeps it.
fn record(spec: &ResourceBindingSpec) -> String {
    serde_json::to_string(&spec.placement)
        .expect("a placement has text keys: invariant of its type")
}
