//! One pass over a binding: its affinity groups one after the other, each through filter, selection and division.

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::api::policy::Placement;

use super::affinity::{Affinity, groups};
use super::candidate::{Candidate, Held, LOCALITY_SCORE};
use super::capacity::{Demand, MAX_REPLICAS};
use super::divide::{Division, Share, Strategy, TieBreak, divide};
use super::filter::{Filters, Rejection};
use super::nofit::{Kind, NoFit, Refusals};
use super::select::{Load, Spread, select};
use super::snapshot::{Facts, Snapshot};
use super::{Decision, Growth, Options};

/// What was tried for a binding, and what came of it.
#[derive(Debug)]
pub struct Pass {
    /// The affinity groups tried, in order; one without a name for a placement without groups.
    pub attempts: Vec<Attempt>,
    /// The decision, or the failure of the first attempt.
    pub result: Result<Decision, NoFit>,
}

/// One affinity group tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the group; empty for a placement without groups.
    pub group: String,
    /// Why the group does not do; `None` for the one that is used.
    pub failure: Option<NoFit>,
}

impl Pass {
    /// Tries the affinity groups of a binding in order.
    pub fn run(
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Self {
        let mut attempts: Vec<Attempt> = Vec::new();
        if let Some(placement) = &spec.placement {
            for trial in trials(spec, status, placement, snapshot, options) {
                let result = trial.place();
                attempts.push(Attempt {
                    group: trial.group.to_owned(),
                    failure: result.as_ref().err().cloned(),
                });
                if let Ok(clusters) = result {
                    let affinity_name =
                        Some(trial.group.to_owned()).filter(|name| !name.is_empty());
                    return Self {
                        attempts,
                        result: Ok(Decision {
                            clusters,
                            affinity_name,
                        }),
                    };
                }
            }
        }
        let failure = attempts.first().and_then(|attempt| attempt.failure.clone());
        Self {
            attempts,
            result: Err(failure.unwrap_or(NoFit::NoPlacement)),
        }
    }
}

/// The attempts to make, in order: one for each affinity group from the one in use onwards, or one for all.
pub(super) fn trials<'a>(
    spec: &'a ResourceBindingSpec,
    status: &'a ResourceBindingStatus,
    placement: &'a Placement,
    snapshot: &'a Snapshot,
    options: &'a Options,
) -> impl Iterator<Item = Trial<'a>> {
    let fresh = is_reschedule_requested(spec, status);
    let observed = status
        .scheduler_observed_affinity_name
        .as_deref()
        .unwrap_or_default();
    let whole = placement.cluster_affinities.is_empty().then_some("");
    let groups = groups(placement, observed, fresh).iter();
    whole
        .into_iter()
        .chain(groups.map(|group| group.affinity_name.as_str()))
        .map(move |group| Trial {
            spec,
            placement,
            group,
            fresh,
            snapshot,
            options,
        })
}

/// Whether somebody asked for the binding to be scheduled anew since it was scheduled last.
pub fn is_reschedule_requested(spec: &ResourceBindingSpec, status: &ResourceBindingStatus) -> bool {
    match (&spec.reschedule_triggered_at, &status.last_scheduled_time) {
        (Some(requested), Some(scheduled)) => requested.0 > scheduled.0,
        _ => false,
    }
}

/// One attempt: a binding under one of its affinity groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial<'a> {
    pub spec: &'a ResourceBindingSpec,
    pub placement: &'a Placement,
    /// Name of the group; empty for a placement without groups.
    pub group: &'a str,
    pub fresh: bool,
    pub snapshot: &'a Snapshot,
    pub options: &'a Options,
}

impl<'a> Trial<'a> {
    /// The clusters for the binding, those without replicas left out.
    pub fn place(&self) -> Result<Vec<TargetCluster>, NoFit> {
        let affinity = Affinity::new(self.spec, self.placement, self.group);
        let candidates = self.feasible(&affinity)?;
        let closed = candidates.iter().any(|candidate| candidate.closed);
        let result = self.share_out(candidates, &affinity);
        match result {
            Err(shortage)
                if closed
                    && shortage.kind() == Kind::Unschedulable
                    && self.options.growth == Growth::PreferAdmitting =>
            {
                let options = Options {
                    growth: Growth::Anywhere,
                    ..*self.options
                };
                Trial {
                    options: &options,
                    ..*self
                }
                .place()
            }
            result => result,
        }
    }

    fn share_out(
        &self,
        candidates: Vec<Candidate<'a>>,
        affinity: &Affinity<'_>,
    ) -> Result<Vec<TargetCluster>, NoFit> {
        let selected = self.select(candidates)?;
        let shares = self.divide(&selected, affinity)?;
        Ok(shares.iter().map(Share::target).collect())
    }

    /// The filters of this attempt.
    pub fn filters<'f>(&'f self, affinity: &'f Affinity<'a>) -> Filters<'f> {
        Filters::new(
            self.spec,
            self.placement,
            affinity,
            self.spread(),
            self.options.return_rule,
        )
    }

    fn spread(&self) -> Spread {
        Spread::of(&self.placement.spread_constraints, self.options.spreading)
    }

    /// The clusters that pass the filters.
    pub fn feasible(&self, affinity: &Affinity<'a>) -> Result<Vec<Candidate<'a>>, NoFit> {
        let filters = self.filters(affinity);
        let held = self.held();
        let demand = self.demand();
        let mut candidates = Vec::with_capacity(self.snapshot.len());
        let mut refused: Vec<Rejection<'_>> = Vec::new();
        for ((order, cluster), held) in self.snapshot.iter().enumerate().zip(held) {
            if cluster.is_deleting() {
                continue;
            }
            let tier = match filters.admit(cluster, held.is_some()) {
                Ok(tier) => tier,
                Err(rejection) => {
                    refused.push(rejection);
                    continue;
                }
            };
            let closed = held.is_some()
                && self.options.growth != Growth::Anywhere
                && filters.is_closed(cluster);
            candidates.push(Candidate {
                cluster,
                order,
                score: if held.is_some() { LOCALITY_SCORE } else { 0 },
                tier,
                allocatable: if closed {
                    0
                } else {
                    self.estimate(cluster, demand.as_ref())
                },
                held,
                closed,
            });
        }
        if candidates.is_empty() {
            return Err(NoFit::NoClusterFit(Refusals::count(
                self.snapshot.len(),
                refused,
            )));
        }
        Ok(candidates)
    }

    /// What each cluster of the snapshot holds already.
    fn held(&self) -> Vec<Option<Held>> {
        let mut held = vec![None; self.snapshot.len()];
        for (position, target) in self.spec.clusters.iter().enumerate() {
            if let Ok(cluster) = self.snapshot.position(&target.name) {
                held[cluster] = Some(Held {
                    position,
                    replicas: i64::from(target.replicas),
                });
            }
        }
        held
    }

    fn demand(&self) -> Option<Demand> {
        self.spec
            .replica_requirements
            .as_ref()
            .map(|requirements| Demand::new(&requirements.resource_request))
    }

    /// How many replicas fit. Nobody asks for what is not counted in replicas, so it fits anywhere.
    fn estimate(&self, cluster: &Facts, demand: Option<&Demand>) -> i64 {
        if self.spec.replicas <= 0 {
            return MAX_REPLICAS;
        }
        cluster.capacity().map_or(0, |capacity| {
            capacity.replicas(demand, self.options.grade_rule)
        })
    }

    /// The clusters chosen, best first.
    pub fn select(&self, candidates: Vec<Candidate<'a>>) -> Result<Vec<Candidate<'a>>, NoFit> {
        let spread = if Strategy::ignores_spread(self.placement) {
            Spread::default()
        } else {
            self.spread()
        };
        let load = Load {
            replicas: i64::from(self.spec.replicas),
            duplicated: matches!(Strategy::of(self.placement), Ok(Strategy::Duplicated)),
        };
        Ok(select(candidates, &spread, load, self.options.spreading)?)
    }

    /// The replicas of each selected cluster, or none where nothing is counted.
    pub fn divide(
        &self,
        selected: &[Candidate<'a>],
        affinity: &Affinity<'_>,
    ) -> Result<Vec<Share<'a>>, NoFit> {
        let counted = self.spec.replicas > 0 || self.spec.replica_requirements.is_some();
        if !counted {
            return Ok(selected
                .iter()
                .map(|candidate| Share::uncounted(candidate.name()))
                .collect());
        }
        let division = Division {
            replicas: i64::from(self.spec.replicas),
            strategy: Strategy::of(self.placement)?,
            fresh: self.fresh,
            tiered: affinity.overflows(),
            tie_break: TieBreak::for_uid(self.spec.resource.uid.as_deref().unwrap_or_default()),
        };
        let mut shares = divide(selected, &division)?;
        shares.retain(|share| share.replicas > 0);
        if self.options.keep_empty {
            let placed = shares.len();
            for candidate in selected {
                if !shares[..placed]
                    .iter()
                    .any(|share| share.cluster == candidate.name())
                {
                    shares.push(Share::uncounted(candidate.name()));
                }
            }
        }
        Ok(shares)
    }
}
