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
use muster_shared::watch::packing::PackedMap;
use tokio::time::Instant;

pub use crate::movement::eviction::evictor::eviction::{
    ClusterNote, Eviction, Now, Outcome, QueueReason, Reports, Step,
};
pub use crate::movement::eviction::fair_queue::Key;
use muster_shared::api::any_binding::AnyBinding;

use super::backlog::Backlog;
use super::explain::EvictionState;
use super::fence::{self, Fence};
use super::fleet_view::{FleetView, evicts};
use super::judge::Switches;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::budget::pace::Pace;
use crate::fleet::budget::rate::{Band, FleetHealth, Rates};
use crate::fleet::intern;
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
mod next;
mod outcome;
mod planned;
mod review;

/// Attempts of one workload that came to nothing, one after the other.
#[derive(Debug, Default)]
struct Failures {
    /// Number of these attempts.
    count: u32,
    /// The version of the binding for which a write was paid whose end nobody knows, and how many
    /// evictions had succeeded then. Of all writes upon one version one at most is carried out.
    paid_for: Option<(String, u64)>,
}

/// Question whether the template of a Job says that it has completed; `None`: it cannot be read.
pub type CompletedByTemplate = Box<dyn Fn(&AnyBinding) -> Option<bool> + Send + Sync>;

/// The evictor.
pub struct Evictor {
    switches: Switches,
    pub(super) fleet: FleetView,
    /// Asked before a workload leaves a cluster.
    pub(super) fence: Fence,
    /// Asked about Jobs of which the cluster that they leave reports nothing.
    pub(super) completed_by_template: CompletedByTemplate,
    pub(super) pauses: Pauses,
    bindings: PackedMap<Key, AnyBinding>,
    on: HashMap<Arc<str>, HashSet<Key>>,
    /// Workloads that are to leave because of taints.
    backlog: Backlog,
    failing: Failing,
    /// Workloads that are being evicted, each with the cluster that it leaves.
    in_hand: HashMap<Key, Arc<str>>,
    /// Replicas that workloads which are being evicted gain, from the moment of their plan on.
    planned_gains: HashMap<Key, Vec<TargetCluster>>,
    /// Workloads that changed while they were being evicted, and are judged again afterwards.
    missed: HashSet<Key>,
    failures: HashMap<Key, Failures>,
    /// Evictions that succeeded.
    successes: u64,
    pace: Pace,
    /// Options by which room is kept for more important workloads.
    pub(super) options: Options,
    planned: BTreeMap<i32, Planned>,
    /// Workloads from which room is kept, by priority, and when they are judged again.
    held_back: BTreeMap<i32, BTreeSet<(Arc<str>, Key)>>,
    look: Option<Instant>,
    /// The band that was reported last.
    band: Band,
    wake: Option<Instant>,
    /// When the next of the stranded workloads are tried, if there are any to be tried.
    retry: Option<Instant>,
    /// Number of times that the stranded workloads were queued again.
    wakes: u64,
    /// Ends the initial sync: from now on all known bindings are judged, which rebuilds the queue
    /// after a restart.
    open: bool,
    reports: Reports,
    tallies: HashMap<Arc<str>, Tally>,
    limits: Limits,
}

/// Stranded workloads that are tried at a time after a change that could help. For each that
/// leaves, two more are tried at once.
const RETRIES: usize = 100;
/// Pause before the next of them are tried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before it is asked again whether a copy that nothing stops is fenced by now.
const UNFENCED: Duration = Duration::from_secs(10);
/// Pause before a Job is judged again of which it is not known whether it has completed.
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
            fence: fence::none(),
            completed_by_template: Box::new(|_| Some(false)),
            pauses: Pauses::default(),
            bindings: PackedMap::new(intern::codec()),
            on: HashMap::new(),
            backlog: Backlog::default(),
            failing: Failing::default(),
            in_hand: HashMap::new(),
            planned_gains: HashMap::new(),
            missed: HashSet::new(),
            failures: HashMap::new(),
            successes: 0,
            options: Options::default().for_departure(),
            planned: BTreeMap::new(),
            held_back: BTreeMap::new(),
            look: None,
            band: Band::Primary,
            wake: None,
            retry: None,
            wakes: 0,
            open: false,
            reports: Reports::default(),
            tallies: HashMap::new(),
            limits: Limits::default(),
        }
    }

    /// Keeps bindings in the form in which these caches hold them.
    pub fn keep_beside(&mut self, bindings: &Bindings) {
        let bindings = bindings.clone();
        self.bindings.beside(move |it| bindings.held(it));
    }

    /// Begins to judge everything, because all that exists is known. It is called again
    /// after a queue was lost.
    pub fn open(&mut self, now: Now) {
        self.open = true;
        self.pace.begin(now.tick);
        self.begin_limits(now);
        self.settle_band(now);
        let keys: Vec<Key> = self.bindings.keys().cloned().collect();
        for key in keys {
            if let Some(binding) = self.bindings.get(&key) {
                self.review_all(&binding, now);
                self.report_missed(&binding);
            }
        }
        let failed: Vec<Arc<str>> = self.fleet.evicting().cloned().collect();
        for cluster in failed {
            self.report_queue(&cluster);
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
                if let Some(binding) = self.bindings.get(&key) {
                    self.report_missed(&binding);
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
                    "it has no taint any more by which workloads leave: {} that waited to do so stay",
                    dropped.len()
                );
                self.note_cluster(name, "EvictionAbandoned", message);
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
        self.report_queue(name);
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
        self.reports.applications.extend(failing);
        self.tallies.remove(name);
        self.limits.forget(name);
        if !self.open {
            return;
        }
        for key in dropped {
            self.note(key.clone(), name, self.state_without(name));
            self.note_stays(&key, now);
        }
        self.settle_band(now);
        self.wake = Some(now.tick);
    }

    /// Takes in a binding that is new or changed.
    pub fn binding(&mut self, binding: &Arc<AnyBinding>, now: Now) {
        let key = self.key_of(binding);
        let old = self.bindings.insert(key.clone(), binding.clone());
        if let Some(old) = old.as_ref().filter(|old| inputs::is_same(old, binding)) {
            if inputs::may_take_more(old, binding) {
                self.retry_soon(&key, binding, now);
            }
            return;
        }
        self.retry_failing(&key, now);
        if let Some(old) = old.as_ref().filter(|_| self.open) {
            self.take_room(&key, old, binding, now);
        }
        let mut may_be_unreported = old.is_none();
        for target in old.iter().flat_map(|old| &old.spec.clusters) {
            if binding.spec.target(&target.name).is_some() {
                continue;
            }
            if self.take_off(&target.name, &key) {
                let state = self.state_of_moved(old.as_deref(), binding, &target.name);
                self.note(key.clone(), &target.name, state);
            } else {
                // Nothing waits in the queue of a cluster that a list lacks.
                may_be_unreported |= self.fleet.get(&target.name).is_none();
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
            if may_be_unreported {
                self.report_missed(binding);
            }
        }
    }

    /// Has a workload tried again soon, if it stays because no other cluster could take it. Others
    /// that are tried again keep their places: very many may change at once.
    fn retry_soon(&mut self, key: &Key, binding: &AnyBinding, now: Now) {
        if self.in_hand.contains_key(key) {
            self.missed.insert(key.clone());
            return;
        }
        self.retry_failing(key, now);
        for target in &binding.spec.clusters {
            self.backlog.wake(&target.name, key);
        }
        self.retry.get_or_insert(now.tick);
    }

    /// Judges workloads again because something changed that may let the order for them be
    /// carried out where it could not be before. `key` names the workload; with `None` it may be
    /// any.
    pub fn order_may_fit(&mut self, key: Option<&BindingKey>, now: Now) {
        if !self.open {
            return;
        }
        match key {
            Some(key) => {
                if let Some(binding) = self.bindings.get(key) {
                    let key = self.key_of(&binding);
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
            self.reports.gone.push(key);
        }
        self.failures.remove(key);
    }

    /// Returns the events and conditions since the last call.
    pub fn take_reports(&mut self) -> Reports {
        std::mem::take(&mut self.reports)
    }

    /// Returns the queue, for metrics.
    pub fn backlog(&self) -> &Backlog {
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

    /// Returns the kind of a binding's resource as the metrics name it: API version and kind.
    pub fn resource_kind(&self, key: &Key) -> Option<String> {
        let binding = self.bindings.get(key)?;
        let resource = &binding.spec.resource;
        Some(format!("{}/{}", resource.api_version, resource.kind))
    }

    fn key_of(&self, binding: &AnyBinding) -> Key {
        let key = BindingKey::of(binding);
        let known = self.bindings.key(&key).cloned();
        known.unwrap_or_else(|| key.shared())
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
pub(super) mod tests;
