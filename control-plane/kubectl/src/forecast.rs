//! What would move, be stranded and stay if clusters were lost or drained. Pure: the fleet in, the
//! forecast out, by the very functions that judge and plan evictions.
//!
//! The order is that of the eviction queue itself. What moves is taken off the room that its new
//! clusters report, so that later workloads find it occupied.

pub(super) mod disaster;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::budget::rate::Rates;
use muster_control_plane::fleet::fencing::Verdict;
use muster_control_plane::movement::eviction::backlog::{Backlog, Rank, Slot};
use muster_control_plane::movement::eviction::execute::plan_whole;
use muster_control_plane::movement::eviction::explain::has_completed;
use muster_control_plane::movement::eviction::fair_queue::Key;
use muster_control_plane::movement::eviction::fence::{self, FenceGate};
use muster_control_plane::movement::eviction::inputs;
use muster_control_plane::movement::eviction::judge::{
    self, Cause, Judgement, Stay, Switches, judge_copy,
};
use muster_control_plane::movement::eviction::plan::{Departure, Nowhere, suspended};
use muster_control_plane::movement::eviction::reason::EvictionReason;
use muster_control_plane::movement::eviction::room::{HORIZON, KEPT, Kept, gains, occupy};
use muster_control_plane::propagation::data::story::steps;
use muster_control_plane::scheduler::core::{DataPlaces, Options, Snapshot};
use muster_control_plane::settings::{STATEFUL_FAILOVER_INJECTION, Settings};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use self::disaster::{Coming, Struck};
use self::room::Rooms;
pub(super) use self::room::{Room, SHOWN};
use super::dependencies::{After, Needs, Partings, parted};
use super::jobs::Jobs;
use super::pace::Pace;
use super::table::Workload;

/// No forecast goes further; what is due later comes then.
const LONGEST_PAUSE: Duration = Duration::from_hours(24 * 365);

/// The fleet as it is.
pub struct Fleet {
    /// All clusters.
    pub clusters: Vec<Cluster>,
    /// All bindings of both kinds.
    pub bindings: Vec<Arc<AnyBinding>>,
    /// All taint policies.
    pub policies: Vec<ClusterTaintPolicy>,
    /// Objects that workloads refer to without taking them along.
    pub needs: Needs,
    /// Divided Jobs in the clusters that are struck, as far as they could be read.
    pub jobs: Jobs,
}

/// Clusters that are lost or drained in a forecast.
#[derive(Clone, Debug, Default)]
pub struct Disaster {
    /// Clusters that fall silent for good.
    pub lost: BTreeSet<String>,
    /// Clusters that are drained.
    pub drained: BTreeSet<String>,
}

/// A workload that would move.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The workload.
    pub workload: Workload,
    /// Priority of the workload. The higher ones leave first, and get the room.
    pub priority: i32,
    /// The cluster it leaves.
    pub from: String,
    /// Clusters that gain replicas, or gain it whole.
    pub to: Vec<TargetCluster>,
    /// Time from the disaster until it moves at the present pace.
    #[serde(rename = "afterSeconds", serialize_with = "seconds")]
    pub after: SignedDuration,
    /// Treatment of the old copy.
    pub purge_mode: PurgeMode,
    /// Steps of its data between the two copies, in sentences.
    pub data: Vec<String>,
    /// Time at which it has to leave.
    #[serde(skip)]
    pub due: Timestamp,
    /// Clusters that have it after the move, for people.
    #[serde(skip)]
    pub destination: String,
}

fn seconds<S: Serializer>(time: &SignedDuration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_secs().serialize(serializer)
}

/// A workload that would not move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Left {
    /// The workload.
    pub workload: Workload,
    /// Priority of the workload.
    pub priority: i32,
    /// The cluster it is in.
    pub cluster: String,
    /// Reason why the workload is left.
    pub reason: String,
    /// Whether the workload is known to stay; not so if it is a Job whose parts cannot be read.
    #[serde(skip)]
    pub is_known: bool,
}

/// Reason why a workload that has to leave stays, and whether it is known to stay.
type Stuck = (String, bool);

/// Result of a forecast.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// The taints that would come, by cluster.
    pub coming: BTreeMap<String, Vec<Coming>>,
    /// The pace.
    pub pace: Pace,
    /// Moves, in their order.
    pub moves: Vec<Move>,
    /// Workloads that would have to leave and could not.
    pub stranded: Vec<Left>,
    /// Workloads that would wait until fewer clusters have failed, or for a rate that is not 0.
    pub held: Vec<Left>,
    /// What would stay on a lost or drained cluster because nothing moves it.
    pub stays: Vec<Left>,
    /// Workloads that would be separated from what they refer to.
    pub partings: Partings,
    /// The room of the clusters that are left.
    pub room: Vec<Room>,
}

/// Forecasts a disaster that happens at `now`.
pub fn forecast(
    fleet: &Fleet,
    disaster: &Disaster,
    settings: &Settings,
    now: Timestamp,
) -> Forecast {
    let policies: Vec<&ClusterTaintPolicy> = fleet.policies.iter().collect();
    let is_lost = !disaster.lost.is_empty();
    let watchers = is_lost.then(|| disaster::watchers(&fleet.clusters));
    let watchers = watchers.unwrap_or_default();
    let struck: BTreeMap<String, Struck> = fleet
        .clusters
        .iter()
        .filter_map(|cluster| {
            let name = cluster.name_any();
            let struck = if disaster.lost.contains(&name) {
                let together = (&watchers, &disaster.lost);
                disaster::lose(cluster, together, &policies, settings, now)
            } else if disaster.drained.contains(&name) {
                disaster::drain(cluster, now)
            } else {
                return None;
            };
            Some((name, struck))
        })
        .collect();
    let after = |cluster: &Cluster| match struck.get(&cluster.name_any()) {
        Some(struck) => struck.cluster.clone(),
        None => cluster.clone(),
    };
    let clusters: Vec<Cluster> = fleet.clusters.iter().map(after).collect();
    let pace = Pace::of(&clusters, &Rates::of(settings));
    let mut course = Course {
        jobs: &fleet.jobs,
        settings,
        options: Options::of(settings),
        now,
        rooms: Rooms::of(&clusters),
        snapshot: Snapshot::new(clusters.into_iter().map(Arc::new))
            .with_data(DataPlaces::among(&fleet.bindings)),
        kept: None,
        forecast: Forecast {
            coming: struck
                .iter()
                .map(|(name, struck)| (name.clone(), struck.coming.clone()))
                .collect(),
            pace,
            ..Forecast::default()
        },
    };
    let after = course.run(&fleet.bindings, &struck);
    let left = |cluster: &str| !struck.contains_key(cluster);
    Forecast {
        room: course.rooms.compared(left),
        partings: parted(&fleet.bindings, &fleet.needs, &after),
        ..course.forecast
    }
}

/// A workload that has to leave.
struct Leaver<'a> {
    binding: &'a AnyBinding,
    key: Key,
    cluster: Arc<str>,
    due: Timestamp,
    cause: Cause,
    /// The cluster as the disaster leaves it.
    struck: &'a Cluster,
}

/// The evictions as they follow each other.
struct Course<'a> {
    jobs: &'a Jobs,
    settings: &'a Settings,
    options: Options,
    now: Timestamp,
    snapshot: Snapshot,
    rooms: Rooms,
    /// The room that is kept for so many workloads of a higher priority than this.
    kept: Option<(i32, usize, Kept)>,
    /// The forecast so far.
    forecast: Forecast,
}

impl Course<'_> {
    /// Moves what has to leave; returns where that is afterwards.
    fn run(&mut self, bindings: &[Arc<AnyBinding>], struck: &BTreeMap<String, Struck>) -> After {
        let mut leavers = Vec::new();
        for binding in bindings {
            if binding.metadata.deletion_timestamp.is_some() {
                continue;
            }
            for target in &binding.spec.clusters {
                if let Some(struck) = struck.get(&target.name) {
                    leavers.extend(self.judge(binding, target, struck));
                }
            }
        }
        let start = Instant::now();
        let (mut queue, mut waiting) = (Backlog::default(), BTreeMap::new());
        for leaver in leavers {
            let rank = Rank::new(leaver.binding.spec.priority(), leaver.due);
            let until = start + wait(self.now, leaver.due);
            let (cluster, key) = (Arc::clone(&leaver.cluster), leaver.key.clone());
            queue.put(&cluster, key.clone(), Slot::Waiting { until, rank });
            waiting.insert((cluster, key), leaver);
        }
        // A workload that leaves two clusters is planned the second time as it is after the first.
        let mut changed: BTreeMap<Key, ResourceBindingSpec> = BTreeMap::new();
        let mut turn = start;
        loop {
            queue.mature(turn);
            let Some((cluster, key, rank)) = queue.pop_but(&BTreeSet::new()) else {
                match queue.next_timer() {
                    Some(next) => turn = next,
                    None => break,
                }
                continue;
            };
            let until = turn + HORIZON;
            let beside = self.beside((&queue, until), &waiting, rank.priority());
            let Some(leaver) = waiting.remove(&(cluster, key)) else {
                continue;
            };
            let spec = changed
                .remove(&leaver.key)
                .unwrap_or_else(|| leaver.binding.spec.clone());
            let spec = match self.move_away(&leaver, &spec, beside, turn.duration_since(start)) {
                Ok(moved) => {
                    let pause = Duration::try_from_secs_f64(1.0 / self.forecast.pace.per_second);
                    turn += pause.unwrap_or(Duration::MAX).min(LONGEST_PAUSE);
                    moved
                }
                Err((reason, is_known)) => {
                    let left = if self.forecast.pace.halted().is_some() {
                        &mut self.forecast.held
                    } else {
                        &mut self.forecast.stranded
                    };
                    left.push(Left {
                        workload: Workload::of(&spec),
                        priority: spec.priority(),
                        cluster: leaver.cluster.to_string(),
                        reason,
                        is_known,
                    });
                    spec
                }
            };
            changed.insert(leaver.key, spec);
        }
        let clusters = |spec: ResourceBindingSpec| spec.clusters.into_iter().map(|it| it.name);
        let changed = changed.into_iter();
        changed
            .map(|(key, spec)| (Arc::unwrap_or_clone(key), clusters(spec).collect()))
            .collect()
    }

    fn judge<'b>(
        &mut self,
        binding: &'b AnyBinding,
        target: &TargetCluster,
        struck: &'b Struck,
    ) -> Option<Leaver<'b>> {
        let spec = &binding.spec;
        let switches = Switches::of(self.settings);
        let stay = |why: String| Left {
            workload: Workload::of(spec),
            priority: spec.priority(),
            cluster: target.name.clone(),
            reason: why,
            is_known: true,
        };
        if has_completed(binding, &target.name) {
            self.forecast.stays.push(stay(Stay::Completed.to_string()));
            return None;
        }
        let placement = inputs::placement(binding);
        if placement.is_none() && !spec.required_by.is_empty() {
            // It follows what needs it.
            return None;
        }
        // It leaves for the taint that is the first to make it, not before that has come.
        let mut stays = None;
        let mut first: Option<(Timestamp, Cause)> = None;
        for (moment, taints) in &struck.stages {
            let (cluster, placement) = (&target.name, placement.as_deref());
            match judge_copy(cluster, taints, spec, placement, &switches, *moment) {
                Judgement::Stay(why) => stays = Some(why),
                Judgement::Leave { due, cause } => {
                    let due = due.max(*moment);
                    if first.as_ref().is_none_or(|(first, _)| due < *first) {
                        first = Some((due, cause));
                    }
                }
            }
        }
        let Some((due, cause)) = first else {
            let why = stays.map(|why| why.to_string()).unwrap_or_default();
            self.forecast.stays.push(stay(why));
            return None;
        };
        Some(Leaver {
            key: Arc::new(BindingKey::of(binding)),
            binding,
            cluster: Arc::from(&*target.name),
            due,
            cause,
            struck: &struck.cluster,
        })
    }

    /// Returns the fleet without the room that is kept for more important workloads, and how many
    /// these are.
    fn beside(
        &mut self,
        (queue, until): (&Backlog, Instant),
        waiting: &BTreeMap<(Arc<str>, Key), Leaver<'_>>,
        priority: i32,
    ) -> (Snapshot, usize) {
        let items = queue.more_important(priority, until);
        let is_same = |it: &(i32, usize, Kept)| (it.0, it.1) == (priority, items.len());
        let kept = self.kept.take().filter(is_same);
        let (.., kept) = self.kept.insert(kept.unwrap_or_else(|| {
            let switches = Switches::of(self.settings);
            let later = items.iter().filter_map(|(_, cluster, key)| {
                let leaver = waiting.get(&(Arc::clone(cluster), (*key).clone()))?;
                let cause = leaver.cause.clone();
                Some((leaver.binding, &***cluster, cause))
            });
            let kept = Kept::of(
                later,
                &switches,
                self.snapshot.clone(),
                &self.options,
                self.now,
            );
            (priority, items.len(), kept)
        }));
        (kept.beside(self.snapshot.clone()), kept.workloads())
    }

    /// Moves a workload, after so long, and returns its spec as it is then.
    ///
    /// # Errors
    /// In words, why it stays.
    fn move_away(
        &mut self,
        leaver: &Leaver<'_>,
        spec: &ResourceBindingSpec,
        (beside, kept): (Snapshot, usize),
        after: Duration,
    ) -> Result<ResourceBindingSpec, Stuck> {
        if let Some(why) = self.forecast.pace.halted() {
            return Err((why, true));
        }
        // An agent that fences stops the copy in the end.
        let gate = fence::of_copy(leaver.struck, spec, |_| Some(Verdict::Stopped));
        if let FenceGate::Shut(why) = gate {
            return Err((why, true));
        }
        let switches = Switches::of(self.settings);
        let purge_mode = judge::purge_mode(spec, &switches, &leaver.cause);
        let status: &ResourceBindingStatus = leaver.binding.status();
        let reason = EvictionReason::Taint(&leaver.cause);
        // Pauses are left out, because they end.
        let departure = Departure {
            preserves_state: self.settings.gate(&STATEFUL_FAILOVER_INJECTION),
            ours: self.settings.schedules(spec.scheduler_name.as_deref()),
            // A forecast reads no Works, which say what hinders the delivery to a cluster.
            obstacle: &|name| suspended(spec, name),
            ..Departure::new(spec, status, &leaver.cluster, reason, &purge_mode)
        };
        let undone = |after: &ResourceBindingSpec| self.jobs.leaves_undone(leaver.binding, after);
        let planned = plan_whole(&departure, &beside, &self.options, leaver.due, &undone);
        let kept = if kept > 0 { KEPT } else { "" };
        let mut plan = planned.map_err(|nowhere| {
            let is_known = !matches!(nowhere, Nowhere::Unread);
            (format!("{nowhere}{kept}"), is_known)
        })?;
        let (mut moved, _) = departure
            .leave(leaver.due)
            .map_err(|nowhere| (nowhere.to_string(), true))?;
        let gains = gains(spec, &plan.clusters);
        for gain in &gains {
            self.rooms.occupy(spec, gain);
        }
        occupy(&mut self.snapshot, spec, &gains);
        moved.clusters.clone_from(&plan.clusters);
        // The workload leaves the other clusters that are struck, too.
        let is_struck = |name: &String| self.forecast.coming.contains_key(name);
        plan.clusters.retain(|it| !is_struck(&it.name));
        self.forecast.moves.push(Move {
            workload: Workload::of(spec),
            priority: spec.priority(),
            from: leaver.cluster.to_string(),
            to: gains,
            after: SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX),
            purge_mode,
            data: steps(spec),
            due: leaver.due,
            destination: plan.destination(),
        });
        Ok(moved)
    }
}

/// Returns the time from one moment to a later one.
fn wait(from: Timestamp, until: Timestamp) -> Duration {
    let wait = Duration::try_from(until.duration_since(from));
    wait.unwrap_or_default().min(LONGEST_PAUSE)
}
