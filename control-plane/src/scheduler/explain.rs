//! Why a binding goes where it goes: for each cluster whether it fits, or which filters refuse it and why, its score,
//! its room, and what it is given. Told by the same steps that decide.

use std::fmt;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};

use super::Options;
use super::affinity::Affinity;
use super::candidate::Candidate;
use super::nofit::NoFit;
use super::pass::{Trial, trials};
use super::snapshot::Snapshot;

/// One affinity group looked at; a placement without groups is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Name of the group; empty for a placement without groups.
    pub group: String,
    /// The clusters by name.
    pub clusters: Vec<ClusterLine>,
    /// Why the group does not do; `None` for the one that is used.
    pub failure: Option<NoFit>,
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterLine {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is being deleted.
    Deleting,
    /// Filters refuse it; their names and reasons.
    Refused(Vec<(&'static str, String)>),
    /// It fits.
    Fits {
        /// How much it is preferred.
        score: i64,
        /// 0 for the primary affinity, n for the n-th overflow affinity.
        tier: u32,
        /// Replicas that fit besides those it holds.
        room: i64,
        /// Replicas that it holds, if it has the workload.
        holds: Option<i64>,
        /// Whether the spread constraints let it be chosen.
        selected: bool,
        /// What it is given; `None` when it is given nothing. 0 for what is not counted in replicas.
        given: Option<i64>,
    },
}

/// Explains the decision on a binding, as it would be made now. The last explanation is that of the group in use, if any
/// does.
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
        let used = explanation.failure.is_none();
        explanations.push(explanation);
        if used {
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
        let given = self.place();
        let clusters = self.snapshot.iter().map(|cluster| {
            let name = cluster.name();
            let same = |candidate: &&Candidate<'_>| candidate.name() == name;
            let fate = match candidates.iter().find(same) {
                _ if cluster.is_deleting() => Fate::Deleting,
                None => {
                    let rejections = filters.all(cluster, self.spec.target(name).is_some());
                    let reason = |it: &super::filter::Rejection<'_>| (it.filter().name(), it.to_string());
                    Fate::Refused(rejections.iter().map(reason).collect())
                }
                Some(candidate) => Fate::Fits {
                    score: candidate.score,
                    tier: candidate.tier,
                    room: candidate.allocatable,
                    holds: candidate.held.map(|held| held.replicas),
                    selected: selected.iter().any(|chosen| chosen.name() == name),
                    given: given.as_ref().ok().and_then(|targets| {
                        let target = targets.iter().find(|target| target.name == name)?;
                        Some(i64::from(target.replicas))
                    }),
                },
            };
            ClusterLine {
                name: name.to_owned(),
                fate,
            }
        });
        let clusters = clusters.collect();
        Explanation {
            group: self.group.to_owned(),
            clusters,
            failure: given.err(),
        }
    }
}

/// A table for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            writeln!(f, "Affinity group {}:", self.group)?;
        }
        let width = self
            .clusters
            .iter()
            .map(|line| line.name.len())
            .max()
            .unwrap_or(0)
            .max(7);
        writeln!(
            f,
            "{:width$}  SCORE  ROOM        HOLDS  GIVEN  WHY",
            "CLUSTER"
        )?;
        for ClusterLine { name, fate } in &self.clusters {
            match fate {
                Fate::Deleting => {
                    writeln!(
                        f,
                        "{name:width$}  -      -           -      -      is being deleted"
                    )?;
                }
                Fate::Refused(reasons) => {
                    let reasons: Vec<String> = reasons
                        .iter()
                        .map(|(filter, text)| format!("{filter}: {text}"))
                        .collect();
                    let why = reasons.join("; ");
                    writeln!(f, "{name:width$}  -      -           -      -      {why}")?;
                }
                Fate::Fits {
                    score,
                    tier,
                    room,
                    holds,
                    selected,
                    given,
                } => {
                    let number = |value: &Option<i64>| {
                        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
                    };
                    let why = match (selected, given) {
                        (false, _) => "not chosen under the spread constraints".to_owned(),
                        (true, None) => "fits, not needed".to_owned(),
                        (true, Some(_)) if *tier > 0 => format!("overflow affinity {tier}"),
                        (true, Some(_)) => "fits".to_owned(),
                    };
                    let (holds, given) = (number(holds), number(given));
                    writeln!(
                        f,
                        "{name:width$}  {score:<5}  {room:<10}  {holds:<5}  {given:<5}  {why}"
                    )?;
                }
            }
        }
        match &self.failure {
            Some(failure) => write!(f, "No placement: {failure}"),
            None => Ok(()),
        }
    }
}
