//! State machine of evictions: decides which workload is evicted next, from the state of clusters
//! and bindings.
//!
//! It has no access to the API. It is given every cluster and binding, returns the workload to
//! evict, and is given the result. Its state can be rebuilt from these inputs in any order, which
//! is how a restart works.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::binding::TargetCluster;
use muster_shared::api::cluster::Cluster;
use muster_shared::queue::again;
use tokio::time::Instant;

pub use crate::movement::eviction::evictor::eviction::{
    ClusterNote, Eviction, Now, Outcome, Reason, Reports, Step,
};
use muster_shared::api::any_binding::AnyBinding;

use super::backlog::{Backlog, Rank, Slot};
use super::explain::EvictionState;
use super::fence::{Fence, Gate};
use super::fleet_view::{FleetView, evicts, has_failed, is_counted};
use super::jobs::Jobs;
use super::judge::{Cause, Judgement, Stay, Switches, judge, purge_mode};
use super::record::bounded;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::{Pace, Paid};
use crate::fleet::budget::rate::{Band, FleetHealth, Rates};
use crate::fleet::pause::Pauses;
use crate::movement::eviction::evictor::explaining::Tally;
use crate::movement::eviction::evictor::failing::Failing;
use crate::movement::eviction::evictor::important::Planned;
use crate::movement::eviction::evictor::limits::Limits;
use crate::movement::eviction::inputs;
use crate::scheduler::core::Options;

pub mod eviction;
pub mod explaining;
mod failing;
mod important;
mod limits;
mod outcome;
mod planned;

/// One key for each binding, however many places mention it.
pub type Key = Arc<BindingKey>;

/// Attempts of one workload that came to nothing, one after the other.
#[derive(Debug, Default)]
struct Failures {
    /// How many.
    count: u32,
    /// The version of the binding for which a write was paid whose end nobody knows, and how many
    /// evictions had succeeded then. Of all writes upon one version one at most is carried out.
    paid_for: Option<(String, u64)>,
}

/// The evictor.
#[derive(Debug)]
pub struct Evictor {
    switches: Switches,
    fleet: FleetView,
    fence: Fence,
    jobs: Jobs,
    pauses: Pauses,
    bindings: HashMap<Key, Arc<AnyBinding>>,
    on: HashMap<Arc<str>, HashSet<Key>>,
    /// What is to leave because of taints.
    backlog: Backlog<Key>,
    failing: Failing,
    /// What is being evicted, and from where.
    in_hand: HashMap<Key, Arc<str>>,
    /// What workloads that are being evicted gain, from the moment of their plan on.
    planned_gains: HashMap<Key, Vec<TargetCluster>>,
    /// What changed while it was being evicted, so that it is judged again afterwards.
    missed: HashSet<Key>,
    failures: HashMap<Key, Failures>,
    /// Evictions that succeeded.
    successes: u64,
    pace: Pace,
    options: Options,
    planned: Option<Planned>,
    /// What room is kept from, by priority, and when it is looked at.
    held_back: BTreeMap<i32, BTreeSet<(Arc<str>, Key)>>,
    look: Option<Instant>,
    /// The band that was told last.
    band: Band,
    wake: Option<Instant>,
    /// When the next of the stranded workloads are tried, if there are any to be tried.
    retry: Option<Instant>,
    /// How often the stranded workloads were woken.
    wakes: u64,
    /// Ends the initial sync: from now on all known bindings are judged, which rebuilds the queue
    /// after a restart.
    open: bool,
    news: Reports,
    tallies: HashMap<Arc<str>, Tally>,
    limits: Limits,
}

/// How many stranded workloads are tried at a time after a change that could help, and the pause
/// before the next. For each that leaves, two more are tried at once.
const RETRIES: (usize, Duration) = (100, Duration::from_secs(1));
/// Pause before it is asked again whether a copy that nothing stops is fenced by now.
const UNFENCED: Duration = Duration::from_secs(10);
/// Pause before a Job is looked at again of which it is not known whether it has completed.
const UNREAD: Duration = Duration::from_secs(5);
/// First and longest pause after a failed write.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

impl Evictor {
    /// Returns an empty evictor with a budget of its own.
    pub fn new(switches: Switches, rates: Rates, now: Now) -> Self {
        Self::sharing(switches, Pace::new(rates, now.tick))
    }

    /// Returns an empty evictor that pays from a budget which others use as well.
    pub fn sharing(switches: Switches, pace: Pace) -> Self {
        Self {
            switches,
            pace,
            fleet: FleetView::default(),
            fence: Fence::none(),
            jobs: Jobs::unknown(),
            pauses: Pauses::default(),
            bindings: HashMap::new(),
            on: HashMap::new(),
            backlog: Backlog::default(),
            failing: Failing::default(),
            in_hand: HashMap::new(),
            planned_gains: HashMap::new(),
            missed: HashSet::new(),
            failures: HashMap::new(),
            successes: 0,
            options: Options::default().for_departure(),
            planned: None,
            held_back: BTreeMap::new(),
            look: None,
            band: Band::Primary,
            wake: None,
            retry: None,
            wakes: 0,
            open: false,
            news: Reports::default(),
            tallies: HashMap::new(),
            limits: Limits::default(),
        }
    }

    /// Judges taints, or knows of none.
    #[must_use]
    pub fn with_taints(self, are_judged: bool) -> Self {
        let fleet = if are_judged {
            FleetView::default()
        } else {
            FleetView::without_taints()
        };
        Self { fleet, ..self }
    }

    /// Asks a fence before a workload leaves a cluster.
    #[must_use]
    pub fn with_fence(self, fence: Fence) -> Self {
        Self { fence, ..self }
    }

    /// Evicts no Job that has completed as far as its template says.
    #[must_use]
    pub fn with_jobs(self, jobs: Jobs) -> Self {
        Self { jobs, ..self }
    }

    /// Plans by these options what room is kept for more important workloads.
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Evicts nothing whose movement is paused.
    #[must_use]
    pub fn with_pauses(self, pauses: Pauses) -> Self {
        Self { pauses, ..self }
    }

    /// Begins to judge everything, because all that exists has been told of. It is called again
    /// after a queue was lost.
    pub fn open(&mut self, now: Now) {
        self.open = true;
        self.pace.begin(now.tick);
        self.begin_limits(now);
        self.settle_band(now);
        let bindings: Vec<Arc<AnyBinding>> = self.bindings.values().cloned().collect();
        for binding in bindings {
            self.review_all(&binding, now);
            self.tell_what_was_not(&binding);
        }
        let failed: Vec<Arc<str>> = self.fleet.evicting().cloned().collect();
        for cluster in failed {
            self.tell_of_queue(&cluster);
        }
    }

    /// Takes in a cluster that is new or changed.
    pub fn cluster(&mut self, cluster: &Arc<Cluster>, now: Now) {
        let was_known = self.fleet.get(&cluster.name_any()).is_some();
        let effect = self.fleet.put(cluster, now.tick);
        self.pace.observe(cluster, now.tick);
        if let Some((name, _)) = self.fleet.get(&cluster.name_any()) {
            let name = Arc::clone(name);
            self.settle_limit(&name, cluster, now);
        }
        if !self.open {
            return;
        }
        if let Some(after) = effect.helps_after {
            let at = now.tick + after;
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
        self.settle_band(now);
        let Some((name, _)) = self.fleet.get(&cluster.name_any()) else {
            return;
        };
        let name = Arc::clone(name);
        if effect.taints {
            self.taints_changed(&name, now);
        }
        if !was_known {
            for key in self.keys_on(&name) {
                if let Some(binding) = self.bindings.get(&key).cloned() {
                    self.tell_what_was_not(&binding);
                }
            }
        }
    }

    fn taints_changed(&mut self, name: &Arc<str>, now: Now) {
        if !self.fleet.taints(name).iter().any(evicts) {
            self.tallies.remove(name);
            let dropped = self.backlog.drop_cluster(name);
            if !dropped.is_empty() {
                let message = format!(
                    "recovered: {} workloads that waited to leave it stay",
                    dropped.len()
                );
                self.tell_of(name, "EvictionAbandoned", message);
            }
            for key in dropped {
                self.note(key, name, EvictionState::Recovered);
            }
            for key in self.keys_on(name) {
                self.note_stays(&key, now);
            }
            return;
        }
        let keys = self.keys_on(name);
        for key in keys {
            self.review(name, &key, now);
        }
        self.tell_of_queue(name);
    }

    fn keys_on(&self, cluster: &str) -> Vec<Key> {
        self.on
            .get(cluster)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Removes a cluster that is not known any more; `left` says whether it was seen leaving the
    /// fleet.
    pub fn cluster_gone(&mut self, name: &str, left: bool, now: Now) {
        self.fleet.remove(name, left);
        if left {
            self.pace.gone(name, now.tick);
        } else {
            self.pace.lost(name, now.tick);
        }
        let dropped = self.backlog.drop_cluster(name);
        let failing = self.failing.drop_cluster(name);
        self.news.applications.extend(failing);
        self.tallies.remove(name);
        self.limits.forget(name);
        if !self.open {
            return;
        }
        for key in dropped {
            self.note(key.clone(), name, EvictionState::ClusterGone);
            self.note_stays(&key, now);
        }
        self.settle_band(now);
        self.wake = Some(now.tick);
    }

    /// Takes in a binding that is new or changed.
    pub fn binding(&mut self, binding: &Arc<AnyBinding>, now: Now) {
        let key = self.key_of(binding);
        let old = self.bindings.insert(key.clone(), binding.clone());
        if old
            .as_ref()
            .is_some_and(|old| inputs::is_same(old, binding))
        {
            return;
        }
        self.retry_failing(&key, now);
        if let Some(old) = old.as_ref().filter(|_| self.open) {
            self.take_room(&key, old, binding, now);
        }
        let mut may_be_untold = old.is_none();
        for target in old.iter().flat_map(|old| &old.spec.clusters) {
            if binding.spec.target(&target.name).is_some() {
                continue;
            }
            if self.take_off(&target.name, &key) {
                let state = self.state_of_moved(old.as_deref(), binding, &target.name);
                self.note(key.clone(), &target.name, state);
            } else {
                // Nothing waits in the queue of a cluster that a list lacks.
                may_be_untold |= self.fleet.get(&target.name).is_none();
            }
        }
        if binding.metadata.deletion_timestamp.is_some() {
            return self.binding_gone(&key);
        }
        for target in &binding.spec.clusters {
            let name = self.share(&target.name);
            self.on.entry(name).or_default().insert(key.clone());
        }
        if self.open {
            self.review_all(binding, now);
            if may_be_untold {
                self.tell_what_was_not(binding);
            }
        }
    }

    /// Looks again at workloads because something changed that may let the order for them be
    /// carried out where it could not be before. `key` names the workload; with `None` it may be
    /// any.
    pub fn order_may_fit(&mut self, key: Option<&BindingKey>, now: Now) {
        if !self.open {
            return;
        }
        match key {
            Some(key) => {
                if let Some((key, binding)) = self.bindings.get_key_value(key) {
                    let (key, binding) = (Arc::clone(key), Arc::clone(binding));
                    self.retry_failing(&key, now);
                    self.review_all(&binding, now);
                }
            }
            None => self.wake = Some(now.tick),
        }
    }

    /// Removes a binding that is gone.
    pub fn binding_gone(&mut self, key: &BindingKey) {
        if let Some((key, binding)) = self.bindings.remove_entry(key) {
            for target in &binding.spec.clusters {
                self.take_off(&target.name, &key);
            }
            self.failing.remove(&key);
            self.news.gone.push(key);
        }
        self.failures.remove(key);
    }

    /// Returns what to do next.
    pub fn next(&mut self, now: Now) -> Step {
        // Others tell the budget of clusters as well.
        self.settle_band(now);
        for (cluster, key) in self.backlog.mature(now.tick) {
            if !self.in_hand.contains_key(&key) {
                self.review(&cluster, &key, now);
            }
        }
        self.failing.backlog.mature(now.tick);
        if self.fleet.settle(now.tick) {
            self.wake = Some(now.tick);
        }
        self.look_at_held_back(now);
        if self.wake.is_some_and(|wake| wake <= now.tick) {
            self.wake = None;
            self.wakes += 1;
            self.backlog.wake_stranded();
            self.failing.backlog.wake_stranded();
            self.retry.get_or_insert(now.tick);
        }
        if self.retry.is_some_and(|retry| retry <= now.tick) {
            self.retry_stranded(RETRIES.0);
            let more = self.backlog.has_due() || self.failing.backlog.has_due();
            self.retry = more.then(|| now.tick + RETRIES.1);
        }
        let held = self.held(now);
        let timer = self.next_timer().into_iter().chain(held.until).min();
        while let Some(is_failing) = self.is_failing_next(&held.clusters) {
            let paid = match self.pace.pay(now.tick) {
                Ok(paid) => paid,
                Err(when) => return Step::Wait(timer.into_iter().chain(when).min()),
            };
            if is_failing {
                if let Some(eviction) = self.next_failing(&held.clusters, paid, now) {
                    return Step::Evict(Box::new(eviction));
                }
                continue;
            }
            self.failing.rests();
            let Some((cluster, key, rank)) = self.backlog.pop_but(&held.clusters) else {
                break;
            };
            if self.is_behind(&cluster) {
                self.backlog.put(&cluster, key, Slot::Ready(rank));
                return Step::Wait(Some(now.tick + again(0)));
            }
            if let Some(eviction) = self.last_look((&cluster, key, rank), paid, now) {
                return Step::Evict(Box::new(eviction));
            }
        }
        self.pace.withdraw();
        Step::Wait(self.next_timer().into_iter().chain(held.until).min())
    }

    fn next_timer(&self) -> Option<Instant> {
        let settles = self.fleet.next_settlement();
        let own = [self.wake, self.retry, self.look];
        let (taints, failing) = (&self.backlog, &self.failing.backlog);
        let backoffs = [taints.next_timer(), failing.next_timer()];
        let timers = own.into_iter().chain(backoffs).chain([settles]);
        timers.flatten().min()
    }

    /// Judges an item once more at the moment of its eviction, so that what changed meanwhile
    /// counts. Without an eviction the payment is taken back.
    fn last_look(
        &mut self,
        (cluster, key, rank): (&Arc<str>, Key, Rank),
        paid: Paid,
        now: Now,
    ) -> Option<Eviction> {
        if self.in_hand.contains_key(&key) {
            self.backlog.put(
                cluster,
                key,
                Slot::Waiting {
                    until: now.tick + again(0),
                    rank,
                },
            );
            return None;
        }
        let binding = self.bindings.get(&key)?.clone();
        binding.spec.target(cluster)?;
        match self.judge(cluster, &binding, now) {
            Judgement::Leave { due, cause }
                if due <= now.wall
                    && self.gate(cluster, &binding, now) == Gate::Open
                    && self.jobs.has_completed(&binding, cluster).is_some() =>
            {
                let purge_mode = purge_mode(&binding.spec, &self.switches, &cause);
                let reason = Reason::Taint { cause, purge_mode };
                let item = (cluster, key, rank);
                Some(self.take_in_hand(item, binding, reason, paid, now))
            }
            Judgement::Leave { .. } | Judgement::Stay(_) => {
                self.review(cluster, &key, now);
                None
            }
        }
    }

    /// Begins the eviction of an item, for which the budget of its cluster pays as well.
    fn take_in_hand(
        &mut self,
        (cluster, key, rank): (&Arc<str>, Key, Rank),
        binding: Arc<AnyBinding>,
        reason: Reason,
        paid: Paid,
        now: Now,
    ) -> Eviction {
        self.in_hand.insert(key, Arc::clone(cluster));
        self.limits.pay(cluster, now.tick);
        let kept_for = self.keep(rank.priority(), now);
        Eviction {
            cluster: Arc::clone(cluster),
            binding,
            reason,
            kept_for,
            paid,
            wakes: self.wakes,
            rank,
        }
    }

    /// Makes stranded items ready that were not tried since something changed, so many of each
    /// kind.
    fn retry_stranded(&mut self, most: usize) {
        self.backlog.retry(most);
        self.failing.backlog.retry(most);
    }

    /// Returns whether the budget knows already that a cluster is well which is still known as
    /// failed here. A rate that rises because the cluster is back must not evict from it.
    pub(super) fn is_behind(&self, cluster: &str) -> bool {
        let known = self.fleet.get(cluster);
        known.is_some_and(|(_, known)| is_counted(known) && has_failed(known))
            && self.pace.is_well(cluster)
    }

    /// Returns what people are to be told since this was last called.
    pub fn take_reports(&mut self) -> Reports {
        std::mem::take(&mut self.news)
    }

    /// Returns the queue, for metrics.
    pub fn backlog(&self) -> &Backlog<Key> {
        &self.backlog
    }

    /// Returns the clusters, for metrics.
    pub fn fleet(&self) -> &FleetView {
        &self.fleet
    }

    /// Returns how much of the fleet has failed.
    pub fn health(&self) -> FleetHealth {
        self.pace.health()
    }

    /// Evictions a second at that rate.
    pub fn allowed_rate(&self) -> f64 {
        self.pace.per_second()
    }

    /// Returns the kind of a binding's resource, for metrics.
    pub fn resource_kind(&self, key: &Key) -> Option<String> {
        self.bindings.get(key).map(|it| inputs::resource_kind(it))
    }

    fn judge(&self, cluster: &str, binding: &AnyBinding, now: Now) -> Judgement {
        let placement = inputs::placement(binding);
        let judgement = judge(
            self.fleet.taints(cluster),
            &binding.spec,
            placement.as_deref(),
            &self.switches,
            now.wall,
        );
        match judgement {
            Judgement::Leave { .. } if self.jobs.has_completed(binding, cluster) == Some(true) => {
                Judgement::Stay(Stay::Completed)
            }
            judgement => judgement,
        }
    }

    fn review_all(&mut self, binding: &AnyBinding, now: Now) {
        let key = self.key_of(binding);
        for target in &binding.spec.clusters {
            let name = self.share(&target.name);
            self.review(&name, &key, now);
        }
    }

    /// Puts a workload of a cluster where it belongs.
    fn review(&mut self, cluster: &Arc<str>, key: &Key, now: Now) {
        let Some(binding) = self.bindings.get(key) else {
            self.backlog.remove(cluster, key);
            return;
        };
        if self.in_hand.contains_key(key) {
            self.missed.insert(key.clone());
            return;
        }
        if !self.fleet.taints(cluster).iter().any(evicts) {
            return;
        }
        let (state, place) = match self.judge(cluster, binding, now) {
            Judgement::Stay(_) => {
                self.backlog.remove(cluster, key);
                self.note_stays(key, now);
                return;
            }
            Judgement::Leave { due, cause } => {
                let rank = Rank::new(inputs::priority(binding), due);
                if due <= now.wall {
                    self.turn_of_due(cluster, binding, &cause, rank, now)
                } else {
                    let state = EvictionState::Tolerated {
                        cause: bounded(cause.to_string()),
                        until: due,
                    };
                    (
                        state,
                        Slot::Waiting {
                            until: now.instant_of(due),
                            rank,
                        },
                    )
                }
            }
        };
        self.note(key.clone(), cluster, state);
        self.backlog.put(cluster, key.clone(), place);
    }

    /// Returns what becomes of a workload whose time has come: it waits while two copies of it
    /// might run.
    fn turn_of_due(
        &self,
        cluster: &str,
        binding: &AnyBinding,
        cause: &Cause,
        rank: Rank,
        now: Now,
    ) -> (EvictionState, Slot) {
        let waits = |state: fn(String, String) -> EvictionState, why: String, until: Instant| {
            let state = state(bounded(cause.to_string()), bounded(why));
            (state, Slot::Waiting { until, rank })
        };
        match self.gate(cluster, binding, now) {
            Gate::Open if self.jobs.has_completed(binding, cluster).is_none() => {
                let why = "its template cannot be read, so that it is not known whether the Job \
                    has completed and would run again";
                let until = now.tick + UNREAD;
                waits(
                    |cause, why| EvictionState::Unread { cause, why },
                    why.to_owned(),
                    until,
                )
            }
            Gate::Open => (self.state_of_ready(cluster, cause, now), Slot::Ready(rank)),
            Gate::Until(until, why) => waits(
                |cause, why| EvictionState::Fencing { cause, why },
                why,
                until,
            ),
            Gate::Shut(why) => {
                let until = now.tick + UNFENCED;
                waits(
                    |cause, why| EvictionState::Unfenced { cause, why },
                    why,
                    until,
                )
            }
        }
    }

    fn gate(&self, cluster: &str, binding: &AnyBinding, now: Now) -> Gate {
        let known = self.fleet.get(cluster);
        known.map_or(Gate::Open, |(_, cluster)| {
            self.fence.ask(cluster, binding, now.tick)
        })
    }

    fn is_on(&self, cluster: &str, key: &Key) -> bool {
        self.bindings
            .get(key)
            .is_some_and(|binding| binding.spec.target(cluster).is_some())
            && self.fleet.taints(cluster).iter().any(evicts)
    }

    /// Says whether the workload was to leave the cluster.
    fn take_off(&mut self, cluster: &str, key: &Key) -> bool {
        let name = self.share(cluster);
        let waited = self.backlog.remove(&name, key);
        if self.failing.leaves(cluster, key) {
            self.failing.remove(key);
        }
        if let Some(keys) = self.on.get_mut(&name) {
            keys.remove(key);
            if keys.is_empty() {
                self.on.remove(&name);
            }
        }
        waited
    }

    fn key_of(&self, binding: &AnyBinding) -> Key {
        let key = BindingKey::of(binding);
        let known = self
            .bindings
            .get_key_value(&key)
            .map(|(key, _)| Arc::clone(key));
        known.unwrap_or_else(|| Arc::new(key))
    }

    /// Returns the shared text of a cluster name, so that there is one text for each name, however
    /// many bindings mention it.
    fn share(&self, name: &str) -> Arc<str> {
        let known = self.fleet.get(name).map(|(name, _)| name);
        known
            .or_else(|| self.on.get_key_value(name).map(|(name, _)| name))
            .map_or_else(|| Arc::from(name), Arc::clone)
    }
}

#[cfg(test)]
mod tests;
