//! One schedule of a binding: its affinity groups in order, each through filters, selection and
//! division.

use std::collections::{BTreeSet, HashMap};

use muster_shared::api::binding::{
    Component, GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
    TargetComponent,
};
use muster_shared::api::policy::Placement;
use muster_shared::k8s::{Taint, Toleration};
use muster_shared::taints::{PREFER_NO_SCHEDULE, tolerates};

use super::affinity::{Affinity, groups};
use super::candidate::{Candidate, Held, LOCALITY_SCORE, SOFT_TAINT_SCORE};
use super::capacity::{Demand, Estimate, MAX_REPLICAS, Part};
use super::divide::{Division, Share, Strategy, TieBreak, divide};
use super::filter::{Filters, Rejection};
use super::fit_error::{FitError, refusals};
use super::plugin::Plugin;
use super::replacement::grows;
use super::select::{Load, Spread, select};
use super::snapshot::{ClusterInfo, Snapshot};
use super::step_timer::{Spent, Step, StepTimer};
use super::unknown::{rest, unknown_targets};
use super::{Behaviour, Decision, Growth, Options};
use crate::fleet::availability::{Workload, can_hold};
use crate::fleet::completion::{has_completed, is_job};

/// Attempts to place a binding, and their result.
#[derive(Debug)]
pub struct Cycle {
    /// The affinity groups tried, in order; one without a name for a placement without groups.
    pub attempts: Vec<Attempt>,
    /// The decision, or the failure of the first attempt; of the last one if that ended the search
    /// for an unknown cluster.
    pub result: Result<Decision, FitError>,
    /// Time that the cycle took.
    pub spent: Spent,
}

/// One affinity group tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the group; empty for a placement without groups.
    pub group: String,
    /// Reason why the group does not fit; `None` for the one that is used.
    pub failure: Option<FitError>,
}

impl Cycle {
    /// Tries the affinity groups of a binding in order.
    pub fn run(
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Self {
        let laps = StepTimer::start();
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut is_in_doubt = false;
        if let Some(placement) = &spec.placement {
            for trial in trials(spec, status, placement, snapshot, options) {
                let result = trial.place(&laps);
                // Another group would count the cluster out because nobody knows it.
                is_in_doubt = result.is_err() && !trial.unknown().is_empty();
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
                        spent: laps.spent(),
                    };
                }
                if is_in_doubt {
                    break;
                }
            }
        }
        // The failure of the first group may be that no cluster fits, which empties the binding,
        // although the cluster that nobody knows may be one that fits.
        let decisive = if is_in_doubt {
            attempts.last()
        } else {
            attempts.first()
        };
        let failure = decisive.and_then(|attempt| attempt.failure.clone());
        Self {
            attempts,
            result: Err(failure.unwrap_or(FitError::NoPlacement)),
            spent: laps.spent(),
        }
    }
}

/// Returns the attempts to make, in order: one for each affinity group, that in use first and those
/// before it last, or one for all.
pub(in crate::scheduler) fn trials<'a>(
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
    let groups = groups(placement, observed, fresh, options.behaviour);
    whole
        .into_iter()
        .chain(groups.map(|group| group.affinity_name.as_str()))
        .map(move |group| Trial {
            spec,
            status,
            placement,
            group,
            fresh,
            snapshot,
            options,
        })
}

/// Returns whether somebody asked for the binding to be scheduled anew since it was scheduled last.
pub fn is_reschedule_requested(spec: &ResourceBindingSpec, status: &ResourceBindingStatus) -> bool {
    match (&spec.reschedule_triggered_at, &status.last_scheduled_time) {
        (Some(requested), Some(scheduled)) => requested.0 > scheduled.0,
        _ => false,
    }
}

/// Returns whether a cluster that has a workload matches its placement and the affinity group in
/// use, or is not there.
pub(in crate::scheduler) fn matches(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    (snapshot, options): (&Snapshot, &Options),
    group: &str,
    cluster: &str,
) -> bool {
    let (Some(placement), Some(cluster)) = (&spec.placement, snapshot.get(cluster)) else {
        return true;
    };
    let trial = Trial {
        spec,
        status,
        placement,
        group,
        fresh: false,
        snapshot,
        options,
    };
    let affinity = Affinity::new(spec, placement, group);
    let rejections = trial.filters(&affinity).all(cluster, true);
    let by_placement = [Plugin::ClusterAffinity, Plugin::SpreadConstraint];
    let mut filters = rejections.iter().map(Rejection::filter);
    !filters.any(|it| by_placement.contains(&it))
}

/// Returns whether a taint is a reason to choose another cluster, if there is one.
fn avoids(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == PREFER_NO_SCHEDULE && !tolerations.iter().any(|it| tolerates(it, taint))
}

/// Returns the components as the one cluster has them.
fn assigned(components: &[Component]) -> Vec<TargetComponent> {
    let assigned = components.iter().map(|component| TargetComponent {
        name: component.name.clone(),
        replicas: component.replicas,
    });
    assigned.collect()
}

fn count<T>(list: &[T]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

/// Returns the shares that clusters keep, in order, of the replicas that are left: each keeps what
/// it holds at most, and one at least while there are any.
fn at_most_held<'a>(clusters: &[&Candidate<'a>], mut left: i64) -> Vec<Share<'a>> {
    let later = (0..count(clusters)).rev();
    let shares = clusters.iter().zip(later).map(|(it, later)| {
        let most = left.min((left - later).max(1));
        let replicas = it.held_replicas().min(most).max(0);
        left -= replicas;
        Share {
            cluster: it.name(),
            replicas,
        }
    });
    shares.filter(|it| it.replicas > 0).collect()
}

/// One attempt: a binding under one of its affinity groups.
#[derive(Debug, Clone, Copy)]
pub(in crate::scheduler) struct Trial<'a> {
    pub spec: &'a ResourceBindingSpec,
    pub status: &'a ResourceBindingStatus,
    pub placement: &'a Placement,
    /// Name of the group; empty for a placement without groups.
    pub group: &'a str,
    pub fresh: bool,
    pub snapshot: &'a Snapshot,
    pub options: &'a Options,
}

impl<'a> Trial<'a> {
    /// Returns the clusters for the binding, those without replicas left out. What clusters hold
    /// that are unknown stays.
    pub fn place(&self, laps: &StepTimer) -> Result<Vec<TargetCluster>, FitError> {
        let kept = self.unknown();
        if kept.is_empty() {
            return self.place_among_known(laps);
        }
        let candidates = || {
            let affinity = Affinity::new(self.spec, self.placement, self.group);
            self.admitted(&affinity).unwrap_or_default()
        };
        let (spec, placement, snapshot) = (self.spec, self.placement, self.snapshot);
        let Some(rest) = rest(spec, placement, snapshot, &kept, candidates)? else {
            return Ok(kept.into_iter().cloned().collect());
        };
        let trial = Trial {
            spec: &rest.spec,
            placement: &rest.placement,
            ..*self
        };
        match trial.place_among_known(laps) {
            Ok(mut clusters) => {
                clusters.extend(rest.kept);
                Ok(clusters)
            }
            // The unknown cluster may be the one that fits.
            Err(FitError::NoClusterFit(_)) => Err(FitError::unknown(&kept)),
            Err(other) => Err(other),
        }
    }

    /// Returns the targets that stay because nobody knows whether their clusters are there.
    pub fn unknown(&self) -> Vec<&'a TargetCluster> {
        match self.options.behaviour {
            Behaviour::Karmada => Vec::new(),
            Behaviour::Muster => {
                unknown_targets(self.spec, self.placement, self.group, self.snapshot)
            }
        }
    }

    fn place_among_known(&self, laps: &StepTimer) -> Result<Vec<TargetCluster>, FitError> {
        let affinity = Affinity::new(self.spec, self.placement, self.group);
        let admitted = self.admitted(&affinity);
        laps.lap(Step::Filter);
        let mut candidates = admitted?;
        self.prefer(&mut candidates);
        laps.lap(Step::Score);
        let closed = candidates.iter().filter(|candidate| candidate.closed);
        let closed: Vec<_> = closed.map(|it| (it.name(), it.held_replicas())).collect();
        let result = self.share_out(candidates, &affinity, laps);
        if closed.is_empty() || self.options.growth != Growth::PreferAdmitting {
            return result;
        }
        let gives_up = |targets: &[TargetCluster]| {
            let mut running = closed.iter().filter(|(_, replicas)| *replicas > 0);
            running.any(|(name, _)| !targets.iter().any(|it| it.name == *name))
        };
        let options = Options {
            growth: Growth::Anywhere,
            ..*self.options
        };
        let anywhere = Trial {
            options: &options,
            ..*self
        };
        match result {
            Err(shortage) if shortage.is_shortage() => anywhere.place_among_known(laps),
            // A taint that moves nothing by itself moves nothing because the workload grows either.
            Ok(targets) if !self.fresh && grows(self.spec) && gives_up(&targets) => {
                let in_place = anywhere.place_among_known(laps);
                Ok(in_place.ok().filter(|it| !gives_up(it)).unwrap_or(targets))
            }
            result => result,
        }
    }

    fn share_out(
        &self,
        mut candidates: Vec<Candidate<'a>>,
        affinity: &Affinity<'_>,
        laps: &StepTimer,
    ) -> Result<Vec<TargetCluster>, FitError> {
        if !self.needs_no_room(affinity) {
            self.measure(&mut candidates);
        }
        let selected = if self.needs_no_choice() {
            Ok(candidates)
        } else {
            self.select(candidates)
        };
        laps.lap(Step::Select);
        let shares = self.divide(&selected?, affinity);
        let parts = self.parts().filter(|parts| parts.len() > 1);
        let target = |share: &Share<'_>| {
            let mut target = share.target();
            if parts.is_some() {
                target.components = assigned(&self.spec.components);
            }
            target
        };
        let targets = shares.map(|shares| shares.iter().map(target).collect());
        laps.lap(Step::AssignReplicas);
        targets
    }

    /// Returns whether every candidate is chosen, and no order of preference among them makes a
    /// difference.
    fn needs_no_choice(&self) -> bool {
        let unconstrained = self.placement.spread_constraints.is_empty()
            || Strategy::ignores_spread(self.placement);
        let alike = !self.is_counted() || !self.placement.is_divided();
        let blind = if alike {
            self.options.behaviour == Behaviour::Muster
        } else {
            Strategy::is_blind_to_rank(self.placement)
        };
        unconstrained && blind && !self.options.keep_empty
    }

    /// Returns whether there is no choice to make, and it makes no difference either how much room
    /// the candidates have.
    fn needs_no_room(&self, affinity: &Affinity<'_>) -> bool {
        let blind = !self.is_counted() || Strategy::is_blind_to_room(self.placement);
        self.needs_no_choice() && blind && !affinity.overflows()
    }

    /// Returns the filters of this attempt.
    pub fn filters<'f>(&'f self, affinity: &'f Affinity<'a>) -> Filters<'f> {
        Filters::new(
            (self.spec, self.status),
            self.placement,
            affinity,
            self.snapshot.data().needed(self.spec),
            self.options,
        )
    }

    fn spread(&self) -> Spread<'a> {
        Spread::of(&self.placement.spread_constraints, self.options.behaviour)
    }

    /// Returns the clusters that pass the filters, by name, with their scores and the room that
    /// they have.
    pub fn feasible(&self, affinity: &Affinity<'a>) -> Result<Vec<Candidate<'a>>, FitError> {
        let mut candidates = self.admitted(affinity)?;
        self.prefer(&mut candidates);
        self.measure(&mut candidates);
        Ok(candidates)
    }

    /// Returns the clusters that pass the filters, by name.
    fn admitted(&self, affinity: &Affinity<'a>) -> Result<Vec<Candidate<'a>>, FitError> {
        let filters = self.filters(affinity);
        let mut candidates = Vec::with_capacity(self.snapshot.len());
        let mut all_held = self.held().into_iter().peekable();
        for (order, cluster) in self.snapshot.iter().enumerate() {
            let held = all_held
                .next_if(|(at, _)| *at == order)
                .map(|(_, held)| held);
            let is_closed = held.is_none() && self.snapshot.is_closed(cluster.name());
            if cluster.is_deleting() || is_closed {
                continue;
            }
            let Ok(tier) = filters.admit(cluster, held.is_some()) else {
                continue;
            };
            let grows = match self.options.growth {
                Growth::Anywhere => true,
                Growth::Elsewhere => false,
                Growth::PreferAdmitting | Growth::AdmittingOnly => !filters.is_closed(cluster),
            };
            let closed = held.is_some() && (!grows || self.has_completed(cluster));
            candidates.push(Candidate {
                cluster,
                order,
                score: 0,
                tier,
                allocatable: 0,
                held,
                closed,
            });
        }
        if candidates.is_empty() {
            return Err(FitError::NoClusterFit(self.refusals(&filters)));
        }
        Ok(candidates)
    }

    /// Returns whether the workload is a Job that has completed in a cluster: more of it cannot run
    /// there.
    fn has_completed(&self, cluster: &ClusterInfo) -> bool {
        has_completed(
            &self.spec.resource,
            &self.status.aggregated_status,
            cluster.name(),
        )
    }

    /// Scores the candidates. For a new placement that was requested no cluster is preferred
    /// because it has the workload (unlike in Karmada, where it hardly leaves the cluster that took
    /// it over).
    fn prefer(&self, candidates: &mut [Candidate<'a>]) {
        let is_karmada = self.options.behaviour == Behaviour::Karmada;
        let stays = !self.fresh || is_karmada;
        if stays && self.options.plugins.has(Plugin::ClusterLocality) {
            let holders = candidates.iter_mut().filter(|it| it.held.is_some());
            holders.for_each(|holder| holder.score = LOCALITY_SCORE);
        }
        if self.options.plugins.has(Plugin::TaintToleration) && !is_karmada {
            let tolerations = &self.placement.cluster_tolerations;
            let avoided = candidates.iter_mut().filter(|it| {
                let mut taints = it.cluster.cluster().spec.taints.iter();
                taints.any(|taint| avoids(taint, tolerations))
            });
            avoided.for_each(|it| it.score -= SOFT_TAINT_SCORE);
        }
    }

    /// Finds out how much room the candidates have.
    fn measure(&self, candidates: &mut [Candidate<'a>]) {
        let (demand, parts) = (self.demand(), self.parts());
        let mut estimate = Estimate::new(demand.as_ref(), self.options.grade_rule);
        for candidate in candidates {
            candidate.allocatable = if let Some(parts) = &parts {
                let capacity = candidate.cluster.capacity();
                let capacity = capacity.filter(|_| !candidate.closed);
                let sets = capacity.map_or(0, |capacity| capacity.sets(parts));
                // What is there takes its own room, also where nothing else may go.
                let is_there = candidate.held.is_some() || self.kept_copy(candidate).is_some();
                sets.max(i64::from(is_there))
            } else if candidate.closed {
                0
            } else if self.spec.replicas <= 0 {
                // Nobody asks for what is not counted in replicas, so it fits anywhere.
                MAX_REPLICAS
            } else {
                let capacity = candidate.cluster.capacity();
                let room = capacity.map_or(0, |capacity| estimate.replicas(capacity));
                let kept = self.kept_copy(candidate).and_then(|it| it.replicas);
                let kept = i64::from(kept.unwrap_or(0).max(0));
                (room + kept).min(MAX_REPLICAS)
            };
        }
    }

    /// Returns the task that keeps an old copy of the workload in a cluster which is no target any
    /// more. What such a copy uses is not free by what the cluster reports, and is the workload's
    /// own if it is placed there again. A copy that nothing is reported of is none.
    fn kept_copy(&self, candidate: &Candidate<'_>) -> Option<&'a GracefulEvictionTask> {
        let name = candidate.name();
        if self.options.behaviour == Behaviour::Karmada || candidate.held.is_some() {
            return None;
        }
        let task = self.spec.eviction_task(name)?;
        let is_kept = !task.purges_directly() && self.status.report(name).is_some();
        is_kept.then_some(task)
    }

    /// Returns why each cluster is refused; only worked out when all are.
    fn refusals<'f>(&'f self, filters: &Filters<'f>) -> String {
        let clusters = self
            .snapshot
            .iter()
            .filter(|cluster| !cluster.is_deleting());
        let refused = clusters.filter_map(|cluster| {
            let placed = self.spec.target(cluster.name()).is_some();
            filters.admit(cluster, placed).err()
        });
        refusals(self.snapshot.len(), refused)
    }

    /// Returns what clusters hold already, by their places in the snapshot.
    fn held(&self) -> Vec<(usize, Held)> {
        let targets = self.spec.clusters.iter().enumerate();
        let mut held: Vec<_> = targets
            .filter_map(|(position, target)| {
                let replicas = i64::from(target.replicas);
                let cluster = self.snapshot.position(&target.name)?;
                Some((cluster, Held { position, replicas }))
            })
            .collect();
        held.sort_unstable_by_key(|(cluster, _)| *cluster);
        held.dedup_by_key(|(cluster, _)| *cluster);
        held
    }

    fn demand(&self) -> Option<Demand> {
        self.spec
            .replica_requirements
            .as_ref()
            .map(|requirements| Demand::new(&requirements.resource_request))
    }

    /// Returns the components of which a cluster needs room for a complete set: those of a workload
    /// that goes to exactly one cluster. Of others it is not known what each cluster would get.
    fn parts(&self) -> Option<Vec<Part>> {
        let components = &self.spec.components;
        if !self.options.components || components.is_empty() {
            return None;
        }
        let count = self.spread().cluster;
        let is_one = count.is_some_and(|it| (it.min, it.max) == (1, 1));
        is_one.then(|| components.iter().map(Part::of).collect())
    }

    /// Returns whether the workload is counted in replicas.
    fn is_counted(&self) -> bool {
        self.spec.replicas > 0 || self.spec.replica_requirements.is_some()
    }

    /// Returns the clusters chosen, best first.
    pub fn select(&self, candidates: Vec<Candidate<'a>>) -> Result<Vec<Candidate<'a>>, FitError> {
        let spread = if Strategy::ignores_spread(self.placement) {
            Spread::default()
        } else {
            self.spread()
        };
        let is_set = self.parts().is_some();
        let load = Load {
            replicas: if is_set {
                1
            } else {
                i64::from(self.spec.replicas)
            },
            fresh: self.fresh,
            duplicated: !is_set && !self.placement.is_divided(),
            replacing: !self.spec.graceful_eviction_tasks.is_empty(),
        };
        Ok(select(candidates, &spread, load, self.options.behaviour)?)
    }

    /// Returns the replicas of each selected cluster, or none where nothing is counted.
    pub fn divide(
        &self,
        selected: &[Candidate<'a>],
        affinity: &Affinity<'_>,
    ) -> Result<Vec<Share<'a>>, FitError> {
        if !self.is_counted() {
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
            clusters: self.snapshot,
            tie_break: TieBreak::for_uid(self.spec.resource.uid.as_deref().unwrap_or_default()),
        };
        let shares = divide(selected, &division)?;
        let mut shares = self.with_suspended(selected, shares, &division);
        // A cluster whose share is zero because no more may go there has not been given up.
        let is_full = |it: &&Candidate<'_>| it.closed && it.held.is_some_and(|it| it.replicas == 0);
        let full: BTreeSet<_> = selected
            .iter()
            .filter(is_full)
            .map(Candidate::name)
            .collect();
        shares.retain(|share| share.replicas > 0 || full.contains(share.cluster));
        if self.options.keep_empty {
            let placed = shares.len();
            for candidate in selected {
                let name = candidate.name();
                let has_share = shares[..placed].iter().any(|it| it.cluster == name);
                if !has_share && (placed == 0 || self.may_be_empty_in(candidate)) {
                    shares.push(Share::uncounted(name));
                }
            }
        }
        Ok(shares)
    }

    /// Returns whether a cluster may have a share of zero replicas beside others that have some. A
    /// copy that gives all of its replicas to others leaves as it does where there are no such
    /// shares: fences, purge modes and eviction tasks are about copies outside the targets. So an
    /// old copy that a task keeps gets none. A Job without completions is complete at once, and its
    /// cluster could take over none of the others' later.
    fn may_be_empty_in(&self, candidate: &Candidate<'_>) -> bool {
        if self.options.behaviour == Behaviour::Karmada {
            return true;
        }
        let is_left = || self.spec.eviction_task(candidate.name()).is_some();
        match candidate.held {
            Some(held) => held.replicas == 0,
            None => !is_job(&self.spec.resource) && !is_left(),
        }
    }

    /// Returns the shares, with some for clusters in which dispatching is suspended and that the
    /// division leaves without any, as it may when the workload asks for fewer replicas: their
    /// copies would be deleted where nothing is to change. Copies that live keep the replicas that
    /// they hold, as far as one is left for each other copy of a suspended cluster, and the other
    /// clusters share the rest. A cluster that has lost its weight was given up by a person.
    fn with_suspended(
        &self,
        selected: &[Candidate<'a>],
        shares: Vec<Share<'a>>,
        division: &Division<'_>,
    ) -> Vec<Share<'a>> {
        let is_asked = self.options.behaviour == Behaviour::Muster && !self.fresh;
        if !is_asked || self.spec.suspension.is_none() {
            return shares;
        }
        let needs_weight = matches!(division.strategy, Strategy::Static(_));
        let (mut others, mut kept) = (selected.to_vec(), Vec::new());
        let (mut rest, mut divided) = (division.clone(), shares.clone());
        loop {
            let given = divided.iter().map(|it| (it.cluster, it.replicas));
            let given: HashMap<&str, i64> = given.collect();
            let has_none = |it: &&Candidate<'a>| {
                let replicas = given.get(it.name());
                replicas.map_or(!needs_weight, |replicas| *replicas == 0)
            };
            let lives = |it: &&Candidate<'a>| self.lives_suspended(it);
            let dropped: Vec<_> = others.iter().filter(&has_none).filter(lives).collect();
            let found = if dropped.is_empty() {
                Vec::new()
            } else {
                let served = others.iter().filter(|it| !has_none(it)).filter(lives);
                let served: Vec<_> = served.collect();
                at_most_held(&dropped, rest.replicas - count(&served))
            };
            if found.is_empty() {
                divided.extend(kept);
                return divided;
            }
            rest.replicas -= found.iter().map(|it| it.replicas).sum::<i64>();
            others.retain(|it| found.iter().all(|share| share.cluster != it.name()));
            kept.extend(found);
            // The division without them may have dropped another one.
            let Ok(again) = divide(&others, &rest) else {
                return shares;
            };
            divided = again;
        }
    }

    /// Returns whether a cluster in which dispatching is suspended has a copy that lives, so that
    /// others may give up replicas for it: a first placement was never made there, and a cluster
    /// that has failed serves nobody.
    fn lives_suspended(&self, candidate: &Candidate<'_>) -> bool {
        let (spec, name) = (self.spec, candidate.name());
        let workload = Workload::of(spec, Some(self.placement));
        candidate.held_replicas() > 0
            && spec.dispatching_suspended_in(name)
            && self.status.is_healthy_in(name)
            && can_hold(Some(candidate.cluster.cluster()), &workload).is_ok()
    }
}
