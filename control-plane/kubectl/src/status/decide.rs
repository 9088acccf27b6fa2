//! From a snapshot of the fleet to the report: what is not well, what moves, what waits and for
//! what, what is stranded. Pure.

mod code;
mod counts;
mod estimate;
mod expires;
mod facts;
mod fates;
mod lists;
mod next;
mod not_well;
mod returns;
mod service;
mod unknown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ConfigMap, Lease, ObjectMeta};
use muster_shared::names::{condition, is_cluster_name};
use serde::Serialize;

use self::counts::{Flow, flows, spread};
use self::estimate::estimate;
use self::expires::expires;
use muster_control_plane::clusters::registration::token::Entry;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::budget::rate::Rates;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::movement::application_failover::explain::CONDITION as APPLICATION;
use muster_control_plane::movement::eviction::explain::{
    self, PAUSED, STOPPED, WAITING, WAITING_FOR_FENCE, WAITING_FOR_RATE, WAITING_FOR_TOLERATION,
};
use muster_control_plane::movement::eviction::judge::Switches;
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_control_plane::propagation::binding::references;
use muster_control_plane::scheduler::controller::waits_to_move;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;

pub(super) use self::facts::Fact;
use self::facts::facts;
pub(super) use self::fates::Fates;
pub(super) use self::lists::{Expiry, Moving, Waiting};
pub(super) use self::next::Next;
use self::next::next;
pub(super) use self::not_well::{NotWell, Ordered};
use self::not_well::{not_well, ordered};
use self::returns::{Left, left};
use self::service::service;
pub(super) use self::service::{Group, Service};
use super::summary::{Summary, clock, parts, verbs};
use crate::cluster_row::ClusterRow;
use crate::evicting::evicting;
use crate::held_back::held_back;
use crate::leader::{Leader, SILENT};
use crate::old_copies::{self, InCluster, OldCopies, UNTIL_RELEASED, old_copies};
use crate::pace::Pace;
use crate::running::{Running, Source};
use crate::table::Workload;

/// Reason why no taint moves anything while nothing judges taints.
pub(super) const UNJUDGED: &str = "the controller taintmanager is off";

/// Reasons for which a host name is not published before somebody acts: another object has it, or
/// what is asked for, or the kind that it needs, is refused.
const UNPUBLISHED: [&str; 4] = [
    condition::HOSTNAME_TAKEN,
    condition::HOSTNAME_INVALID,
    condition::HOSTNAME_NOT_SERVED,
    condition::HOSTNAME_REFUSED,
];

/// What was read of a fleet. A part that could not be read is an error of its own.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Time of this machine.
    pub now: Timestamp,
    /// Address of the fleet API.
    pub server: String,
    /// Lease of the control plane's leader; `None` if there is none.
    pub leader: Result<Option<Lease>, String>,
    /// Leases of members, by name of the cluster.
    pub leases: Result<BTreeMap<String, Lease>, String>,
    pub clusters: Result<Vec<Cluster>, String>,
    pub bindings: Result<Vec<Arc<AnyBinding>>, String>,
    /// Metadata of the Works.
    pub works: Result<Vec<ObjectMeta>, String>,
    /// Whether the gate is open; `None` if that is not known.
    pub failover: Option<bool>,
    /// Source of the settings and of the gate.
    pub source: Source,
    /// Flags that the leader publishes and this version does not know.
    pub unknown: Vec<String>,
    /// Record of a pause of the fleet.
    pub pause: Result<Option<ConfigMap>, String>,
    /// Bootstrap tokens.
    pub tokens: Result<Vec<Entry>, String>,
    /// The settings by the flags that the command was given or the leader publishes, or the
    /// defaults.
    pub settings: Settings,
    /// Policies that suspend copies, each with who ordered that and why, as far as they were read.
    pub suspensions: Vec<String>,
    /// Policies that taint clusters; `None` if they could not be read.
    pub taint_policies: Option<Vec<ClusterTaintPolicy>>,
}

/// The state of the fleet.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The state in one sentence, who is without service, what happens next, and what to do.
    pub summary: Summary,
    /// Time at which the fleet was read, by which all ages are reported.
    pub read: Timestamp,
    /// Address of the fleet API.
    pub server: String,
    /// Facts below the summary.
    pub facts: Vec<Fact>,
    /// Workloads that have no service, or less than they should.
    pub service: Service,
    /// Next event in the fleet.
    pub next: Next,
    /// Workloads that left a cluster, and whether they return.
    pub left: Vec<Left>,
    pub leader: Leader,
    /// Whether failover is on; `null` if that is not known. The pace is that of the default flags
    /// then.
    pub failover: Option<bool>,
    /// Whether some ClusterTaintPolicy adds a taint that evicts; `null` if that is not known.
    /// Without one a failed cluster keeps its workloads.
    pub policy_evicts: Option<bool>,
    /// Whether the controller taintmanager is off, so that no taint moves anything, nor does a
    /// drain.
    pub taints_ignored: bool,
    /// Reason why taints of effect NoExecute move nothing but what is drained, if they do not.
    #[serde(skip)]
    pub no_execute_off: Option<&'static str>,
    /// Reason why failovers are not recorded, if they are not.
    #[serde(skip)]
    pub unrecorded: Option<&'static str>,
    /// Flags by which `simulate` answers as this control plane does, with failover on and without
    /// `--unhealthy-cluster-threshold`.
    #[serde(skip)]
    pub flags: Vec<String>,
    /// Source of the gate and the pace.
    pub settings_from: Source,
    /// The pauses in force.
    pub paused: Vec<String>,
    /// The cluster of each of them; `null` for the whole fleet.
    pub paused_clusters: Vec<Option<String>>,
    pub pace: Pace,
    /// Numbers of entries of the lists below, also of those that `--most` leaves out.
    pub counts: BTreeMap<&'static str, usize>,
    /// What is said where the lists of what moves and waits are empty.
    pub idle: String,
    /// What is said of workloads in several clusters, which a map shows in each; `null` without
    /// any.
    pub spread: Option<String>,
    /// Clusters; `null` if they could not be read.
    pub clusters: Option<usize>,
    pub not_well: Vec<NotWell>,
    /// Clusters that a person has drained or cordoned.
    pub ordered: Vec<Ordered>,
    /// Number of clusters by region.
    #[serde(skip)]
    pub regions: BTreeMap<String, usize>,
    /// Workloads; `null` if they could not be read. What runs nothing is none.
    pub workloads: Option<usize>,
    /// Workloads with copies on silent clusters: their state is unknown.
    pub unknown: usize,
    /// Those of them that nothing moves, each with the reason.
    pub unheard: Vec<Waiting>,
    /// Copies that may still run where their workloads are not placed any more; `null` if that
    /// could not be read.
    pub old_copies: Option<Vec<InCluster>>,
    pub moving: Vec<Moving>,
    /// Numbers of what moves, by the cluster that it leaves and those that it is placed on.
    pub flows: Vec<Flow>,
    /// Old copies that stay until somebody sets `suppressDeletion` of their eviction tasks to
    /// false.
    pub kept: Vec<Moving>,
    pub waiting: Vec<Waiting>,
    pub stranded: Vec<Waiting>,
    pub unplaced: Vec<Waiting>,
    /// Applications that fail in a cluster, which they are to leave later, or have to leave and
    /// stay.
    pub applications: Vec<Waiting>,
    /// Workloads of which a new copy is not created yet: it waits for its data, or for the removal
    /// of the old one.
    pub held_back: Vec<Waiting>,
    /// Workloads that are to be placed anew, and stay where they are for now.
    pub held_moves: Group,
    /// Workloads that are placed where something they refer to is not.
    pub without_dependencies: Vec<Waiting>,
    /// Workloads with a cluster in which their policies suspend what is to be created or changed.
    pub suspended: Group,
    /// Their policies, each with who ordered that and why, as far as the first few could be read.
    pub suspensions: Vec<String>,
    /// Services and Ingresses whose host names do not lead to healthy copies.
    pub hostnames: Group,
    /// Services and Ingresses whose host names are not published before somebody acts.
    pub unpublished: Vec<Waiting>,
    /// Credentials and tokens that have ended, or end in days and were not renewed.
    pub expires: Vec<Expiry>,
    /// The clusters, if they were asked for and could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_list: Option<Vec<ClusterRow>>,
    /// Names of what could not be read.
    pub unread: Vec<String>,
    /// Whether the clusters or the workloads are among that.
    #[serde(skip)]
    pub is_blind: bool,
    /// Whether the record of a pause is among that.
    #[serde(skip)]
    pub may_be_paused: bool,
}

/// Returns the report on a snapshot.
pub(super) fn decide(snapshot: &Snapshot) -> Report {
    let errors = [
        snapshot.leader.as_ref().err(),
        snapshot.leases.as_ref().err(),
        snapshot.clusters.as_ref().err(),
        snapshot.bindings.as_ref().err(),
        snapshot.works.as_ref().err(),
        snapshot.pause.as_ref().err(),
        snapshot.tokens.as_ref().err(),
    ];
    let mut unread: Vec<String> = errors.into_iter().flatten().cloned().collect();
    let unknown = snapshot.unknown.iter();
    unread.extend(unknown.map(|it| format!("flag {it} of the control plane: use its version")));
    let clusters = snapshot.clusters.as_deref().unwrap_or_default();
    let bindings = snapshot.bindings.as_deref().unwrap_or_default();
    let pace = Pace::of(clusters, &Rates::of(&snapshot.settings));
    let switches = Switches::of(&snapshot.settings);
    let lease = |name: &str| snapshot.leases.as_ref().ok()?.get(name);
    let leader = Leader::of(&snapshot.leader, snapshot.now);
    let record = snapshot.pause.as_ref().ok().and_then(Option::as_ref);
    let pauses: Vec<Pause> = Pause::all(record, clusters, snapshot.now).collect();
    let not_well = clusters.iter().filter_map(|it| {
        let lease = lease(&it.name_any());
        not_well(it, lease, leader.leaves_silent(lease, snapshot.now))
    });
    let not_well: Vec<NotWell> = not_well.collect();
    let mut report = Report {
        read: snapshot.now,
        server: snapshot.server.clone(),
        left: left(snapshot),
        leader,
        failover: snapshot.failover,
        policy_evicts: snapshot.taint_policies.as_ref().map(|policies| {
            let mut policies = policies.iter();
            policies.any(|it| evicting(&it.spec).next().is_some())
        }),
        taints_ignored: !snapshot.settings.runs("taintmanager"),
        no_execute_off: Running::ignores_no_execute(&snapshot.settings),
        unrecorded: Running::records_nothing(&snapshot.settings),
        flags: flags(snapshot),
        settings_from: snapshot.source,
        paused: pauses
            .iter()
            .map(|it| it.describe(|time| clock(time, snapshot.now)))
            .collect(),
        paused_clusters: pauses.iter().map(|it| it.cluster.clone()).collect(),
        clusters: snapshot.clusters.as_ref().ok().map(Vec::len),
        not_well,
        ordered: clusters
            .iter()
            .filter_map(|it| ordered(it, &switches))
            .collect(),
        regions: regions(clusters),
        workloads: snapshot.bindings.as_ref().ok().map(|all| {
            let workloads = all.iter().filter(|it| !runs_nothing(&it.spec));
            workloads.count()
        }),
        spread: spread(bindings),
        expires: expires(snapshot),
        is_blind: snapshot.clusters.is_err() || snapshot.bindings.is_err(),
        may_be_paused: snapshot.pause.is_err(),
        unread,
        pace,
        suspensions: snapshot.suspensions.clone(),
        ..Report::default()
    };
    let silent = report.not_well.iter().filter(|it| it.reason == SILENT);
    let silent: BTreeSet<String> = silent.map(|it| it.name.clone()).collect();
    // Without bindings every Work would be one that nothing asks for.
    let read = snapshot.works.iter().zip(&snapshot.bindings).next();
    let old = read.map(|(works, bindings)| old_copies(works, bindings));
    let fates = report.not_well.iter();
    let fates = fates.map(|it| (it.name.clone(), (it.state, Fates::default())));
    let mut fates: fates::ByCluster = fates.collect();
    let ready = are_ready(clusters, &report);
    for binding in bindings {
        take(&mut report, binding, &silent);
        fates::take(&mut fates, binding, old.as_ref(), &ready);
    }
    for cluster in &mut report.not_well {
        if let Some((_, fates)) = fates.remove(&cluster.name) {
            (cluster.became, cluster.workloads) = (parts(&fates).join(", "), fates);
        }
    }
    count_copies(&mut report.ordered, bindings, old.as_ref());
    report.service = service(snapshot, &ready, old.as_ref());
    report.old_copies = old.map(|old| in_clusters(&old, bindings, clusters, &silent));
    estimate(&mut report, snapshot);
    report.waiting.sort_by(|a, b| a.rank().cmp(&b.rank()));
    report.next = next(&mut report, &pauses);
    report.flows = flows(&report.moving);
    report.counts = report.counts();
    report.idle = report.idle();
    report.facts = facts(&report, snapshot.now);
    report.summary = Summary::of(&report, snapshot.now);
    report.unread = together(std::mem::take(&mut report.unread));
    report
}

/// Returns the flags by which `simulate`, which takes no published ones beside flags of its own,
/// answers by the settings of a snapshot with failover on.
fn flags(snapshot: &Snapshot) -> Vec<String> {
    let running = Running {
        settings: snapshot.settings.clone(),
        source: snapshot.source,
        unknown: Vec::new(),
    };
    let mut flags = match running.with_failover() {
        Ok((settings, _)) => settings.decisive(),
        Err(_) => running.settings.decisive(),
    };
    flags.retain(|it| !it.starts_with("--unhealthy-cluster-threshold="));
    flags
}

/// Counts the copies in each cluster that a person ordered something for.
fn count_copies(ordered: &mut [Ordered], bindings: &[Arc<AnyBinding>], old: Option<&OldCopies>) {
    for order in ordered {
        let name = order.name.as_str();
        let is_there = |it: &&Arc<AnyBinding>| {
            let is_left = it.spec.eviction_task(name).is_some();
            !runs_nothing(&it.spec) && (is_left || it.spec.target(name).is_some())
        };
        let old = old.into_iter().flatten().filter(|it| it.1.contains(name));
        order.copies = bindings.iter().filter(is_there).count() + old.count();
    }
}

/// Returns the old copies by cluster, with the names of their workloads.
fn in_clusters(
    old: &OldCopies,
    bindings: &[Arc<AnyBinding>],
    clusters: &[Cluster],
    silent: &BTreeSet<String>,
) -> Vec<InCluster> {
    let keys = bindings.iter().map(|it| (BindingKey::of(it), it));
    let known: BTreeMap<BindingKey, _> = keys.filter(|it| old.contains_key(&it.0)).collect();
    let name = |key: &BindingKey| {
        let binding = known.get(key);
        binding.map_or_else(|| key.to_string(), |it| title(it))
    };
    old_copies::by_cluster(old, name, clusters, silent)
}

/// Joins what could not be read for the same reason.
fn together(unread: Vec<String>) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for it in unread {
        let (step, why) = it.split_once(": ").unwrap_or(("", &it));
        match by_reason.iter_mut().find(|it| it.0 == why) {
            Some((_, steps)) => steps.push(step.to_owned()),
            None => by_reason.push((why.to_owned(), vec![step.to_owned()])),
        }
    }
    let reported = by_reason.into_iter().map(|(why, steps)| {
        let steps: Vec<String> = steps.into_iter().filter(|it| !it.is_empty()).collect();
        match &steps[..] {
            [] => why,
            steps => format!("{}: {why}", steps.join(", ")),
        }
    });
    reported.collect()
}

/// Returns for each cluster whether it is ready and not silent.
fn are_ready(clusters: &[Cluster], report: &Report) -> BTreeMap<String, bool> {
    let down: BTreeSet<&str> = report.down().map(|it| it.name.as_str()).collect();
    let names = clusters.iter().map(kube::ResourceExt::name_any);
    names
        .map(|it| (it.clone(), !down.contains(it.as_str())))
        .collect()
}

fn regions(clusters: &[Cluster]) -> BTreeMap<String, usize> {
    let mut regions = BTreeMap::new();
    for region in clusters.iter().filter_map(|it| it.spec.region.clone()) {
        *regions.entry(region).or_default() += 1;
    }
    regions
}

/// Returns whether a workload has a cluster in which its policy suspends what is to be created or
/// changed.
pub(super) fn is_suspended(binding: &AnyBinding) -> bool {
    let spec = &binding.spec;
    let mut targets = spec.clusters.iter();
    !runs_nothing(spec) && targets.any(|it| spec.dispatching_suspended_in(&it.name))
}

/// Takes note of one workload. `silent` are clusters that nobody judges.
fn take(report: &mut Report, binding: &AnyBinding, silent: &BTreeSet<String>) {
    let (spec, status) = (&binding.spec, binding.status());
    let workload = title(binding);
    let holds = |kind: &str, wanted: &str| {
        conditions::get(&status.conditions, kind).filter(|it| it.status == wanted)
    };
    let waiting = |condition: &Condition| Waiting::of(workload.clone(), condition);
    let pending = holds(explain::CONDITION, conditions::TRUE);
    if let Some(pending) = pending {
        let pending = Waiting {
            why: Some(verbs(&pending.reason).0),
            clusters: clusters_of(&pending.message),
            ..waiting(pending)
        };
        if is_waiting(&pending.reason) {
            report.waiting.push(pending);
        } else {
            report.stranded.push(pending);
        }
    }
    if let Some(unplaced) = holds(condition::SCHEDULED, conditions::FALSE) {
        report.unplaced.push(waiting(unplaced));
    }
    if let Some(fails) = holds(APPLICATION, conditions::TRUE) {
        report.applications.push(waiting(fails));
    }
    let held_back =
        held_back(&status.conditions).filter(|it| it.reason != condition::WAITING_FOR_ROLE);
    report.held_back.extend(held_back.map(waiting));
    if let Some(lacks) = holds(references::CONDITION, conditions::TRUE) {
        report.without_dependencies.push(waiting(lacks));
    }
    match holds(condition::HOSTNAME_PUBLISHED, conditions::FALSE) {
        Some(said) if UNPUBLISHED.contains(&said.reason.as_str()) => {
            report.unpublished.push(waiting(said));
        }
        Some(_) => report.hostnames.add(binding),
        None => {}
    }
    if is_suspended(binding) {
        report.suspended.add(binding);
    }
    let is_placed = holds(condition::SCHEDULED, conditions::TRUE).is_some();
    if pending.is_none() && is_placed && waits_to_move(status) && !runs_nothing(spec) {
        report.held_moves.add(binding);
    }
    let unheard = unknown::of_silent(binding, silent);
    if let Some(unheard) = unheard.filter(|_| !runs_nothing(spec) && !service::is_over(binding)) {
        report.unknown += 1;
        if pending.is_none() && spec.graceful_eviction_tasks.is_empty() {
            report.unheard.push(unheard);
        }
    }
    for task in &spec.graceful_eviction_tasks {
        let from = &task.from_cluster;
        let (list, why) = if task.is_kept() {
            let stays = format!("its old copy in {from} {UNTIL_RELEASED}");
            (&mut report.kept, stays)
        } else {
            let leaves = format!("leaves {from} when the new copy is healthy");
            (&mut report.moving, leaves)
        };
        list.push(Moving {
            workload: workload.clone(),
            from: from.clone(),
            why,
            to: spec.clusters.iter().map(|it| it.name.clone()).collect(),
            since: task.creation_timestamp.as_ref().map(|time| time.0),
        });
    }
}

/// Returns whether a workload that has to leave a cluster waits for a reason; with any other one it
/// is stranded. An eviction that could not be written is tried again, and strands nothing.
fn is_waiting(reason: &str) -> bool {
    WAITING.contains(&reason) || reason == explain::FAILED
}

/// Returns the cluster that the condition of an eviction reports.
pub(super) fn cluster_of(message: &str) -> Option<&str> {
    match message.strip_prefix("has to leave ") {
        Some(rest) => rest.split(' ').next(),
        None => message.split_once(" has ").map(|it| it.0),
    }
}

/// Returns all clusters that the condition of an eviction reports, each once, the one of
/// [`cluster_of`] first.
fn clusters_of(message: &str) -> Vec<String> {
    let each = message.split("; ").filter_map(cluster_of);
    let mut clusters: Vec<String> = Vec::new();
    for cluster in each.filter(|it| is_cluster_name(it)) {
        if !clusters.iter().any(|it| it == cluster) {
            clusters.push(cluster.to_owned());
        }
    }
    clusters
}

/// Returns the seconds until a time, none if it has passed. Both are taken as whole seconds, the
/// end rounded up, so that the time of day printed for it is the same at each refresh.
fn seconds_until(time: Timestamp, now: Timestamp) -> u64 {
    let end = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    u64::try_from(end - now.as_second()).unwrap_or(0)
}

/// Names a workload.
fn title(binding: &AnyBinding) -> String {
    Workload::of(&binding.spec).to_string()
}

#[cfg(test)]
mod tests;
