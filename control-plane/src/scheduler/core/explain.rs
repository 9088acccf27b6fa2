//! Explains a schedule: for each cluster the filters that reject it and why, its score, its
//! capacity, and its replicas. Computed by the same steps as the schedule.

use std::fmt;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use serde::{Serialize, Serializer};

use super::Options;
use super::affinity::Affinity;
use super::candidate::Candidate;
use super::cycle::{Trial, trials};
use super::filter::Rejection;
use super::fit_error::FitError;
use super::snapshot::Snapshot;
use super::step_timer::StepTimer;

/// One affinity group; a placement without groups is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Name of the group; empty for a placement without groups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The clusters by name.
    pub clusters: Vec<ClusterLine>,
    /// Reason why the group does not fit; `None` for the one that is used.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub failure: Option<FitError>,
}

/// Line of an explanation about one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterLine {
    /// Name of the cluster.
    pub name: String,
    /// Result for the cluster.
    #[serde(flatten)]
    pub fate: Fate,
}

/// Result for one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "camelCase")]
pub enum Fate {
    /// The cluster is being deleted.
    Deleting,
    /// Filters reject the cluster.
    Refused {
        /// Filters that reject it.
        by: Vec<Refusal>,
    },
    /// The cluster passes all filters.
    Fits(Fit),
}

/// A filter that refuses a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Name of the filter.
    pub filter: &'static str,
    /// Reason why the filter refuses the cluster.
    pub reason: String,
}

/// A cluster that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// Score, by which clusters are preferred.
    pub score: i64,
    /// 0 for the primary affinity, n for the n-th overflow affinity.
    pub tier: u32,
    /// Replicas that fit besides those it holds; `None` for what is not counted in replicas, which
    /// fits anywhere.
    pub capacity: Option<i64>,
    /// Replicas that it holds, if it has the workload.
    pub holds: Option<i64>,
    /// Whether it keeps what it holds and gets no more where the others suffice, because it would
    /// not let the workload in anew.
    pub closed: bool,
    /// Each filter that would then refuse it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed_by: Vec<Refusal>,
    /// Whether it is chosen under the spread constraints.
    pub selected: bool,
    /// Replicas that the cluster is given; `None` when it is given nothing. 0 for resources that
    /// are not counted in replicas.
    pub given: Option<i64>,
}

#[allow(clippy::ref_option)] // as serde calls it
fn as_text<S: Serializer>(failure: &Option<FitError>, serializer: S) -> Result<S::Ok, S::Error> {
    match failure {
        Some(failure) => serializer.collect_str(failure),
        None => serializer.serialize_none(),
    }
}

/// Explains the decision on a binding, as it would be made now. The last explanation is that of the
/// group in use, if any does, or of one whose clusters nobody knows.
pub fn explain(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    snapshot: &Snapshot,
    options: &Options,
) -> Vec<Explanation> {
    let Some(placement) = &spec.placement else {
        return Vec::new();
    };
    let mut explanations = Vec::new();
    for trial in trials(spec, status, placement, snapshot, options) {
        let explanation = trial.explain();
        let is_last = explanation.failure.is_none() || !trial.unknown().is_empty();
        explanations.push(explanation);
        if is_last {
            break;
        }
    }
    explanations
}

impl Trial<'_> {
    fn explain(&self) -> Explanation {
        let affinity = Affinity::new(self.spec, self.placement, self.group);
        let filters = self.filters(&affinity);
        let candidates = self.feasible(&affinity).unwrap_or_default();
        let selected = self.select(candidates.clone()).unwrap_or_default();
        let given = self.place(&StepTimer::start());
        let refused_by = |cluster, placed| -> Vec<Refusal> {
            let rejections = filters.all(cluster, placed);
            rejections.into_iter().map(Refusal::from).collect()
        };
        let targets = given.as_deref().unwrap_or_default();
        let clusters = self.snapshot.iter().map(|cluster| {
            let name = cluster.name();
            let is_it = |candidate: &&Candidate<'_>| candidate.name() == name;
            let target = targets.iter().find(|target| target.name == name);
            let fate = match candidates.iter().find(is_it) {
                _ if cluster.is_deleting() => Fate::Deleting,
                None => Fate::Refused {
                    by: refused_by(cluster, self.spec.target(name).is_some()),
                },
                Some(candidate) => Fate::Fits(Fit {
                    score: candidate.score,
                    tier: candidate.tier,
                    capacity: (self.spec.replicas > 0).then_some(candidate.allocatable),
                    holds: candidate.held.map(|held| held.replicas),
                    closed: candidate.closed,
                    closed_by: if candidate.closed {
                        refused_by(cluster, false)
                    } else {
                        Vec::new()
                    },
                    // Where those that admit more do not suffice, others are chosen.
                    selected: target.is_some()
                        || selected.iter().any(|chosen| chosen.name() == name),
                    given: target.map(|target| i64::from(target.replicas)),
                }),
            };
            ClusterLine {
                name: name.to_owned(),
                fate,
            }
        });
        Explanation {
            group: self.group.to_owned(),
            clusters: clusters.collect(),
            failure: given.as_ref().err().cloned(),
        }
    }
}

impl From<Rejection<'_>> for Refusal {
    fn from(rejection: Rejection<'_>) -> Self {
        Self {
            filter: rejection.filter().name(),
            reason: rejection.to_string(),
        }
    }
}

/// A table for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.clusters.iter().map(|line| line.name.len());
        let width = names.chain(["CLUSTER".len()]).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  FITS  SCORE  CAPACITY  HOLDS  GIVEN  WHY",
            "CLUSTER"
        )?;
        for ClusterLine { name, fate } in &self.clusters {
            let why = fate.why(self.failure.is_none());
            let nothing = "-".to_owned();
            let [fits, score, capacity, holds, given] = match fate {
                Fate::Fits(fit) => {
                    let number = |value: Option<i64>, none: &str| {
                        value.map_or_else(|| none.to_owned(), |it| it.to_string())
                    };
                    [
                        "yes".to_owned(),
                        fit.score.to_string(),
                        number(fit.capacity, "any"),
                        number(fit.holds, "-"),
                        number(fit.given, "-"),
                    ]
                }
                _ => [
                    "no".to_owned(),
                    nothing.clone(),
                    nothing.clone(),
                    nothing.clone(),
                    nothing,
                ],
            };
            let line = format!(
                "{name:width$}  {fits:<4}  {score:<5}  {capacity:<8}  {holds:<5}  {given:<5}  {why}"
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        match &self.failure {
            Some(failure) => writeln!(f, "No placement: {failure}"),
            None => Ok(()),
        }
    }
}

impl Fate {
    /// Returns the text of the last column; `used` says whether the decision was made for this
    /// group.
    fn why(&self, used: bool) -> String {
        let fit = match self {
            Self::Deleting => return "is being deleted".to_owned(),
            Self::Refused { by } => {
                let reasons = by.iter().map(|it| format!("{}: {}", it.filter, it.reason));
                return reasons.collect::<Vec<_>>().join("; ");
            }
            Self::Fits(fit) => fit,
        };
        let mut remarks = Vec::new();
        if fit.capacity == Some(0) && !fit.closed {
            remarks.push(
                "no room for one more replica: no node of its reported grades, or not enough in sum (--node-grades)".to_owned(),
            );
        }
        if !used {
            return remarks.join("; ");
        }
        if fit.tier > 0 {
            remarks.push(format!("overflow affinity {}", fit.tier));
        }
        if fit.closed {
            let reasons: Vec<&str> = fit.closed_by.iter().map(|it| it.reason.as_str()).collect();
            let reasons = reasons.join(", ");
            let reported = if fit.given > fit.holds {
                "gets more, as the others do not suffice, although it admits no more"
            } else {
                "keeps what it holds, admits no more"
            };
            remarks.push(format!("{reported}: {reasons}"));
        }
        if !fit.selected {
            remarks.push("not chosen under the spread constraints".to_owned());
        } else if fit.given.is_none() {
            remarks.push("not needed".to_owned());
        }
        remarks.join("; ")
    }
}

#[cfg(test)]
mod tests;
