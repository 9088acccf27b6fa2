//! Plans an eviction: the binding after it, and the one patch that leads there.
//!
//! Eviction and new placement are one write, so that the workload always has a target. If another
//! scheduler is responsible, the new placement is a check only, and the patch leaves it to that
//! scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus,
    ResourceHealth, TargetCluster,
};
use muster_shared::api::policy::{Placement, PurgeMode};
use muster_shared::check::few;
use muster_shared::names::annotation::{APPLIED_PLACEMENT, LAST_EVICTION};
use muster_shared::names::eviction::REASON_PLACEMENT_CHANGED;
use muster_shared::taints::is_drain;
use serde_json::{Map, Value, json};

use super::preserve;
use super::record::Record;
use crate::fleet::availability::{Unavailable, Workload, can_replace, can_take, reads_works};
use crate::fleet::copy::{Obstacle, copies};
use crate::fleet::fencing;
use crate::fleet::pause::{Pause, losers};
use crate::movement::eviction::reason::EvictionReason;
use crate::scheduler::core::around::{Obstructed, place_around};
use crate::scheduler::core::record::record;
use crate::scheduler::core::replacement::{dropped, task};
use crate::scheduler::core::{
    ClusterInfo, Decision, FitError, Options, Plugin, Snapshot, schedule,
};

/// Clusters that an explanation names at most.
const LONGEST_LIST: usize = 5;

/// Facts about a workload that is about to leave.
pub struct Departure<'a> {
    /// The binding's spec.
    pub spec: &'a ResourceBindingSpec,
    /// The binding's status.
    pub status: &'a ResourceBindingStatus,
    /// The cluster that is left.
    pub cluster: &'a str,
    /// Reason why the workload leaves the cluster.
    pub reason: EvictionReason<'a>,
    /// Treatment of the old copy.
    pub purge_mode: &'a PurgeMode,
    /// Whether the new copy gets the state of the old one (gate `StatefulFailoverInjection`).
    pub preserves_state: bool,
    /// Whether the placement is ours to write.
    pub ours: bool,
    /// What keeps an order for the workload from being carried out in a cluster, if anything does.
    pub obstacle: &'a (dyn Fn(&str) -> Option<Obstacle> + Sync),
    /// The pause of movement out of a cluster, if there is one.
    pub pause: &'a (dyn Fn(&str) -> Option<Arc<Pause>> + Sync),
}

/// A departure that can take place.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// `spec.clusters` once the scheduler has done its part.
    pub clusters: Vec<TargetCluster>,
    /// The merge patch, without `metadata.resourceVersion`.
    pub patch: Value,
    /// The affinity group in use from now on, if it changes: it belongs to the status.
    pub affinity_name: Option<String>,
}

/// Reason why a workload cannot be evicted now.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Nowhere {
    /// No other cluster fits.
    #[error("no other cluster could take it: {0}")]
    FitError(#[from] FitError),
    /// No cluster fits but such in which the order for it could not be carried out.
    #[error("no other cluster could take it: {0}")]
    Obstructed(String),
    /// The schedule would have no cluster.
    #[error("no other cluster could take it: the placement would be empty")]
    Empty,
    /// The clusters that it would have are those that have it already, with what they have.
    #[error("no other cluster would take it over: each cluster that fits has it already")]
    Again,
    /// Whether a cluster would take over the part of a Job in the one that it leaves is not known.
    #[error("its template or Works cannot be read, so that it is not known who would take it over")]
    Unread,
    /// None of the chosen clusters is available, with the reason for each.
    #[error("no other cluster could take it: {0}")]
    NotAvailable(String),
    /// Movement is paused out of a cluster that the workload would leave, wholly or in part.
    #[error("{0}")]
    Paused(String),
    /// Scheduling of the binding is suspended.
    #[error("its scheduling is suspended")]
    Suspended,
    /// The policy keeps the old copy, and allows no other one beside it.
    #[error(
        "its policy has fencing or data roles, and purgeMode Never, which keeps the old copy: the new one could never start"
    )]
    KeepsItsCopy,
    /// The state of the old copy cannot be preserved.
    #[error("its state cannot be preserved: {0}")]
    State(String),
}

/// Plans a departure.
///
/// # Errors
/// No other cluster could take the workload now, so it stays: a copy on a failed cluster is better
/// than none.
pub fn plan(
    departure: &Departure<'_>,
    snapshot: &Snapshot,
    options: &Options,
    now: Timestamp,
) -> Result<Plan, Nowhere> {
    let Departure {
        spec,
        status,
        cluster,
        ..
    } = *departure;
    if spec.scheduling_suspended() {
        return Err(Nowhere::Suspended);
    }
    if *departure.purge_mode == PurgeMode::Never && fencing::runs_alone(spec) {
        return Err(Nowhere::KeepsItsCopy);
    }
    let (mut after, task_stays) = departure.leave(now)?;
    // A request is carried out, and paid for, by the scheduler.
    after.reschedule_triggered_at = None;
    let decision = departure.choose(&after, snapshot, options)?;
    if decision.clusters.is_empty()
        || decision
            .clusters
            .iter()
            .any(|target| target.name == cluster)
    {
        return Err(Nowhere::Empty);
    }
    if departure.has_to_be_taken_over() && decision.clusters.iter().all(|it| has_as_much(spec, it))
    {
        return Err(Nowhere::Again);
    }
    departure.require_unpaused(&decision.clusters)?;
    let asks_for_kind = options.plugins.has(Plugin::ApiEnablement);
    departure.require_available(&decision.clusters, snapshot, asks_for_kind)?;
    if *departure.purge_mode == PurgeMode::Directly && departure.ours && !task_stays {
        // The task was for the scheduler's eyes: the old copy goes in the same write as the new one
        // is placed, so there is nothing to protect. Karmada keeps a task, which blocks every write
        // of the binding while the cluster cannot be reached. Here it stays only where it is
        // needed: for what is preserved, after an application failure, and for another scheduler,
        // which would choose the cluster again and meanwhile has placed nothing yet.
        after
            .graceful_eviction_tasks
            .retain(|task| task.from_cluster != cluster);
    }
    if departure.ours {
        departure.let_follow(&mut after, &decision.clusters, now);
        after.clusters.clone_from(&decision.clusters);
    }
    let observed = status
        .scheduler_observed_affinity_name
        .as_deref()
        .unwrap_or_default();
    let affinity_name = decision
        .affinity_name
        .filter(|name| departure.ours && name != observed);
    let mut plan = Plan {
        patch: departure.patch(&after),
        clusters: decision.clusters,
        affinity_name,
    };
    if let EvictionReason::Taint(cause) = departure.reason {
        let (to, mode) = (plan.destination(), departure.purge_mode.to_string());
        let record = Record::new(cluster, &to, &mode, &cause.to_string(), now);
        let annotations = &mut plan.patch["metadata"]["annotations"];
        annotations[LAST_EVICTION] = json!(record.write());
    }
    Ok(plan)
}

/// Returns what the policy itself says against an order for a cluster.
pub fn suspended(spec: &ResourceBindingSpec, cluster: &str) -> Option<Obstacle> {
    spec.dispatching_suspended_in(cluster)
        .then_some(Obstacle::Suspended)
}

/// Returns texts with commas between them, a few in full and the number of the others.
fn named(texts: &[String]) -> String {
    few(texts, LONGEST_LIST, ", ", |more| {
        format!(", {more} more likewise")
    })
}

/// Returns whether a workload already has in a cluster what it is to have there: as many replicas,
/// or its copy where the replicas are not divided. A copy that is given more, since the workload
/// was scaled a moment ago, takes over none of another one.
fn has_as_much(spec: &ResourceBindingSpec, target: &TargetCluster) -> bool {
    let placement = spec.placement.as_deref();
    if placement.is_some_and(Placement::is_divided) {
        let now = spec.target(&target.name);
        now.is_some_and(|now| now.replicas >= target.replicas)
    } else {
        spec.has_copy(&target.name)
    }
}

/// Returns whether a report says that the object could not be applied, and not that a copy of
/// before is healthy.
pub(super) fn is_refused(report: &AggregatedStatusItem) -> bool {
    let is_healthy = report.health == Some(ResourceHealth::Healthy);
    report.is_refused() && !is_healthy
}

impl Plan {
    /// Returns the new targets, for people: a few by name, and how many more there are.
    pub fn destination(&self) -> String {
        let targets = copies(&self.clusters);
        let names: Vec<&str> = targets.map(|target| target.name.as_str()).collect();
        few(&names, LONGEST_LIST, ",", |more| {
            format!(" and {more} more")
        })
    }
}

impl<'a> Departure<'a> {
    /// Returns a departure with nothing in its way: the placement is ours to write, the new copy is
    /// not given the state of the old one, no order is obstructed, and nothing is paused.
    pub fn new(
        spec: &'a ResourceBindingSpec,
        status: &'a ResourceBindingStatus,
        cluster: &'a str,
        reason: EvictionReason<'a>,
        purge_mode: &'a PurgeMode,
    ) -> Self {
        Self {
            spec,
            status,
            cluster,
            reason,
            purge_mode,
            preserves_state: false,
            ours: true,
            obstacle: &|_| None,
            pause: &|_| None,
        }
    }
}

impl Departure<'_> {
    /// Requires that one of the new targets at least is available now. A target that holds the
    /// workload already counts as a target whatever its state, so that without this check the only
    /// copies left might be on clusters that are failing. A target that has not reported a copy, or
    /// had a share of zero until now, must still be able to get it.
    fn require_available(
        &self,
        targets: &[TargetCluster],
        snapshot: &Snapshot,
        asks_for_kind: bool,
    ) -> Result<(), Nowhere> {
        let (spec, status) = (self.spec, self.status);
        let workload = Workload::of(spec, spec.placement.as_deref());
        let mut reasons = Vec::new();
        for target in targets.iter().filter(|it| spec.is_copy(it)) {
            let cluster = snapshot.get(&target.name).map(ClusterInfo::cluster);
            let has_it = spec.target(&target.name).is_some();
            let report = status.report(&target.name).filter(|_| has_it);
            let is_made = report.is_some() && spec.has_copy(&target.name);
            let available = match cluster {
                Some(deaf) if !is_made && !reads_works(deaf) => Err(Unavailable::WorksUnread),
                _ if report.is_some_and(is_refused) => Err(Unavailable::Refused),
                _ if has_it || !asks_for_kind => can_replace(cluster, &workload),
                _ => can_take(cluster, &workload),
            };
            let reason = match available {
                Err(reason) => reason.to_string(),
                // A copy that was never reported is one that is still to be made. Of one that is
                // there, it matters only that it runs something.
                Ok(()) => match (self.obstacle)(&target.name) {
                    Some(obstacle) if !is_made || obstacle == Obstacle::Emptied => {
                        obstacle.to_string()
                    }
                    Some(_) | None => return Ok(()),
                },
            };
            reasons.push(format!("{} {reason}", target.name));
        }
        Err(Nowhere::NotAvailable(named(&reasons)))
    }

    /// Requires that no pause holds for a cluster from which the workload, or replicas of it, would
    /// be taken: the one that is left, and those that lose some to others.
    fn require_unpaused(&self, chosen: &[TargetCluster]) -> Result<(), Nowhere> {
        let losers = losers(&self.spec.clusters, chosen).into_iter();
        let follow = losers.filter(|name| self.ours && *name != self.cluster);
        let mut left = std::iter::once(self.cluster).chain(follow);
        match left.find_map(self.pause) {
            Some(pause) => Err(Nowhere::Paused(pause.to_string())),
            None => Ok(()),
        }
    }

    /// Schedules the workload without the cluster that it leaves. A new target in which the order
    /// could not be carried out is none: the next one is tried.
    fn choose(
        &self,
        after: &ResourceBindingSpec,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Result<Decision, Nowhere> {
        let options = options.for_departure();
        let is_new = |name: &str| self.spec.target(name).is_none();
        let new = |decision: &Decision| {
            let names = decision.clusters.iter().map(|target| target.name.clone());
            names.filter(|name| is_new(name)).collect()
        };
        let place = |snapshot: &Snapshot| schedule(after, self.status, snapshot, &options);
        let obstacle = |name: &str| (self.obstacle)(name).filter(|_| is_new(name));
        place_around(snapshot, place, new, obstacle).map_err(|obstructed| {
            let Obstructed {
                failure, obstacles, ..
            } = obstructed;
            if obstacles.is_empty() {
                return failure.into();
            }
            let reasons: Vec<String> = obstacles
                .iter()
                .map(|(name, why)| format!("{name} {why}"))
                .collect();
            let why = named(&reasons);
            Nowhere::Obstructed(format!("{why}; besides these: {failure}"))
        })
    }

    /// Returns whether the workload stays unless some cluster gains something when it leaves.
    ///
    /// No taint keeps a cluster from being chosen again in which an application has failed: the
    /// same copy would be removed and made again without end (as in Karmada). Under a taint, a copy
    /// that no other cluster takes over is better than none, unless the policy says with a spread
    /// constraint how many are enough, or a person empties the cluster.
    fn has_to_be_taken_over(&self) -> bool {
        let placement = self.spec.placement.as_ref();
        match self.reason {
            EvictionReason::Failure { .. } | EvictionReason::Refused { .. } => true,
            EvictionReason::Taint(cause) => {
                !is_drain(&cause.taint)
                    && placement.is_none_or(|it| it.spread_constraints.is_empty())
            }
        }
    }

    /// Returns the spec without the cluster and with the eviction task, and whether that task
    /// carries something besides the old copy.
    ///
    /// # Errors
    /// The state that the new copy is to get is not there. That holds it back only where the
    /// state would be used: it goes to the new copy when the old one goes first, `Directly`.
    pub fn leave(&self, now: Timestamp) -> Result<(ResourceBindingSpec, bool), Nowhere> {
        let mut after = self.spec.clone();
        let preserved = if self.preserves_state {
            match self.state() {
                Ok(preserved) => preserved,
                Err(error) if *self.purge_mode == PurgeMode::Directly => {
                    return Err(Nowhere::State(error));
                }
                Err(_) => BTreeMap::new(),
            }
        } else {
            BTreeMap::new()
        };
        let task_stays = self.reason.outlives_the_copy() || !preserved.is_empty();
        after.take_out_anew(self.task(preserved, now));
        self.order_tasks(&mut after);
        Ok((after, task_stays))
    }

    /// Returns the labels for the new copy: those that the copy which leaves was given itself and
    /// has not used, or else what it reports.
    fn state(&self) -> Result<BTreeMap<String, String>, String> {
        let rules = self.reason.rules(self.spec);
        let has_all = |given: &&BTreeMap<String, String>| {
            let mut rules = rules.iter();
            rules.all(|rule| given.contains_key(&rule.alias_label_name))
        };
        match self.unused_state().filter(has_all) {
            Some(given) if !rules.is_empty() => Ok(given.clone()),
            _ => preserve::labels(rules, self.status, self.cluster),
        }
    }

    /// Returns the labels that the copy which leaves was given and has not used.
    fn unused_state(&self) -> Option<&BTreeMap<String, String>> {
        let reports = &self.status.aggregated_status;
        self.spec.unused_state(self.cluster, reports)
    }

    /// Adds a task for each cluster that the new placement drops besides the one that is left, as
    /// another affinity group or weights that are divided anew do: its copies are healthy, and stay
    /// until the new ones are. (Karmada deletes them at once in every mode.)
    ///
    /// `Directly` is said of the copy that leaves. A workload that ran in several clusters may run
    /// in several, so that the others need not go with it; only where a fence is asked for no new
    /// copy is made before all old ones are gone.
    fn let_follow(
        &self,
        after: &mut ResourceBindingSpec,
        chosen: &[TargetCluster],
        now: Timestamp,
    ) {
        if fencing::runs_alone(self.spec) {
            return;
        }
        let dropped = dropped(after, chosen).into_iter();
        let dropped: Vec<String> = dropped.map(|old| old.name.clone()).collect();
        let mode = match self.purge_mode {
            PurgeMode::Directly => &PurgeMode::Gracefully,
            mode => mode,
        };
        let left = self.cluster;
        let why = self.reason.message(left);
        for from in dropped {
            let message =
                format!("{from} is no target any more since the workload left {left}: {why}");
            after.take_out_anew(GracefulEvictionTask {
                // The policy says it of the copy that leaves, and only with `Gracefully`.
                grace_period_seconds: self.reason.grace_seconds(self.spec, self.purge_mode),
                ..task(&from, mode, REASON_PLACEMENT_CHANGED, &message, now)
            });
        }
        self.order_tasks(after);
    }

    /// Puts the task of the copy that ran last: the state for the new copy is read from the last
    /// task, here and in Karmada. Where the copy that leaves has not used its state, and its own
    /// task gives none, the task that brought this state stays the last.
    fn order_tasks(&self, after: &mut ResourceBindingSpec) {
        let own = after.eviction_task(self.cluster);
        let gives = own.is_some_and(GracefulEvictionTask::gives_state);
        let never_ran = matches!(self.reason, EvictionReason::Refused { .. })
            || !gives && self.unused_state().is_some();
        // The task of an earlier departure from the same cluster is not among those of `after`.
        let mut others = self.spec.graceful_eviction_tasks.iter();
        let brought = others.rfind(|it| never_ran && it.from_cluster != self.cluster);
        let last = brought.map_or(self.cluster, |it| it.from_cluster.as_str());
        let goes_last = |task: &GracefulEvictionTask| task.from_cluster == last;
        after.graceful_eviction_tasks.sort_by_key(goes_last);
    }

    /// Returns the graceful eviction task for the cluster that is left.
    pub fn task(
        &self,
        preserved: BTreeMap<String, String>,
        now: Timestamp,
    ) -> GracefulEvictionTask {
        let (reason, message) = (self.reason.reason(), self.reason.message(self.cluster));
        GracefulEvictionTask {
            producer: self.reason.producer().to_owned(),
            grace_period_seconds: self.reason.grace_seconds(self.spec, self.purge_mode),
            // So that only a cluster gets the labels that did not run the workload before (unlike
            // in Karmada).
            clusters_before_failover: if preserved.is_empty() {
                Vec::new()
            } else {
                let before = self.spec.copies();
                before.map(|target| target.name.clone()).collect()
            },
            preserved_label_state: preserved,
            ..task(self.cluster, self.purge_mode, reason, &message, now)
        }
    }

    /// Returns the merge patch with only what changes: such a patch replaces lists whole and
    /// removes what is null.
    fn patch(&self, after: &ResourceBindingSpec) -> Value {
        let mut spec = Map::new();
        if after.clusters != self.spec.clusters {
            spec.insert("clusters".to_owned(), list(&after.clusters));
        }
        if after.graceful_eviction_tasks != self.spec.graceful_eviction_tasks {
            spec.insert(
                "gracefulEvictionTasks".to_owned(),
                list(&after.graceful_eviction_tasks),
            );
        }
        let mut patch = json!({ "spec": spec });
        if self.ours && self.spec.placement.is_some() {
            let text = record(self.spec);
            patch["metadata"] = json!({"annotations": {APPLIED_PLACEMENT: text}});
        }
        patch
    }
}

fn list<T: serde::Serialize>(items: &[T]) -> Value {
    if items.is_empty() {
        Value::Null
    } else {
        json!(items)
    }
}

#[cfg(test)]
mod tests;
