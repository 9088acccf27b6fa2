//! From a snapshot of the fleet to the report: what is not well, what moves, what waits and for
//! what, what is stranded. Pure.

mod leader;
mod not_well;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_shared::api::cluster::Cluster;
use muster_shared::check::common::ends_soon;
use muster_shared::client::Life;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ConfigMap, Lease};
use muster_shared::names::condition;
use muster_shared::self_report::{AgentReport, LeaderReport};
use serde::Serialize;

pub(in crate::kubectl) use self::leader::{Leader, SILENT};
use self::not_well::{NotWell, not_well};
use super::UNREAD;
use crate::eviction::any_binding::AnyBinding;
use crate::eviction::explain;
use crate::eviction::fleet_view::{has_failed, is_counted};
use crate::eviction::rate::{Band, FleetHealth, Rates};
use crate::kubectl::running::Source;
use crate::pause::Pause;
use crate::registration::token::Entry;

/// Reasons of a pending eviction that are no fault of the workload's own; with any other it is
/// stranded.
const WAITS: [&str; 6] = [
    FOR_TOLERATION,
    FOR_RATE,
    "StoppedByThreshold",
    "Paused",
    "WaitingForFence",
    "WaitingForTemplate",
];
/// The one of them that time alone ends.
const FOR_TOLERATION: &str = "WaitingForToleration";
/// The one of them that the pace alone ends.
const FOR_RATE: &str = "WaitingForRate";

/// What was read of a fleet. A part that could not be read is an error of its own.
pub(super) struct Snapshot {
    /// Time of this machine.
    pub now: Timestamp,
    /// Lease of the control plane's leader; `None` if there is none.
    pub leader: Result<Option<Lease>, String>,
    /// Leases of members, by name of the cluster.
    pub leases: Result<BTreeMap<String, Lease>, String>,
    pub clusters: Result<Vec<Cluster>, String>,
    pub bindings: Result<Vec<AnyBinding>, String>,
    /// The rates by the flags that the command was given, or the defaults.
    pub rates: Rates,
    /// Whether the gate is open; `None` if that is not known.
    pub failover: Option<bool>,
    /// Where rates and gate come from.
    pub source: Source,
    /// Flags that the leader publishes and this version does not know.
    pub unknown: Vec<String>,
    /// Record of a pause of the fleet.
    pub pause: Result<Option<ConfigMap>, String>,
    /// Bootstrap tokens.
    pub tokens: Result<Vec<Entry>, String>,
}

/// The state of the fleet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub leader: Leader,
    /// Whether failover is on; `null` if that is not known. The pace is that of the default flags
    /// then.
    pub failover: Option<bool>,
    /// Where the gate and the pace come from.
    pub settings_from: Source,
    /// The pauses in force.
    pub paused: Vec<String>,
    pub pace: Pace,
    pub clusters: usize,
    pub not_well: Vec<NotWell>,
    pub workloads: usize,
    /// Workloads with copies on silent clusters: their state is unknown.
    pub unknown: usize,
    pub moving: Vec<Moving>,
    pub waiting: Vec<Waiting>,
    pub stranded: Vec<Waiting>,
    pub unplaced: Vec<Waiting>,
    /// Credentials and tokens that have ended, or end in days and were not renewed.
    pub expires: Vec<Expiry>,
    /// What could not be read.
    pub unread: Vec<String>,
    /// Whether the clusters or the workloads are among that.
    #[serde(skip)]
    pub is_blind: bool,
    /// Whether the record of a pause is among that.
    #[serde(skip)]
    pub may_be_paused: bool,
}

/// How fast workloads may move, and why.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pace {
    pub per_second: f64,
    pub failed: usize,
    pub counted: usize,
    /// `primary`, `secondary` or `stopped`.
    pub band: &'static str,
}

/// A workload that is leaving a cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Moving {
    pub workload: String,
    pub from: String,
    pub to: Vec<String>,
    pub since: Option<Timestamp>,
}

/// A workload that waits.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting {
    pub workload: String,
    pub reason: String,
    pub message: String,
    pub since: Timestamp,
    /// Seconds until the last of those that wait for the pace has moved, or until the toleration
    /// has run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_seconds: Option<u64>,
}

/// Something that ends.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Expiry {
    pub what: String,
    pub end: Timestamp,
}

impl Report {
    /// Whether somebody should look: 2 if clusters or workloads could not be read, 1 if something
    /// is not well or a pause of the fleet could not be read, else 0.
    pub(super) fn code(&self) -> u8 {
        let is_well = self.leader.acts
            && self.not_well.is_empty()
            && self.unknown == 0
            && self.paused.is_empty()
            && !self.may_be_paused
            && self.expires.is_empty()
            && self.waiting.is_empty()
            && self.stranded.is_empty()
            && self.unplaced.is_empty();
        match (self.is_blind, is_well) {
            (true, _) => UNREAD,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
}

/// The report on a snapshot.
pub(super) fn decide(snapshot: &Snapshot) -> Report {
    let mut unread = Vec::new();
    let mut note = |error: Option<&String>| unread.extend(error.cloned());
    note(snapshot.leader.as_ref().err());
    note(snapshot.leases.as_ref().err());
    note(snapshot.clusters.as_ref().err());
    note(snapshot.bindings.as_ref().err());
    note(snapshot.pause.as_ref().err());
    note(snapshot.tokens.as_ref().err());
    let unknown = snapshot.unknown.iter();
    unread.extend(unknown.map(|it| format!("flag {it} of the control plane: use its version")));
    let clusters = snapshot.clusters.as_deref().unwrap_or_default();
    let bindings = snapshot.bindings.as_deref().unwrap_or_default();
    let pace = pace(clusters, &snapshot.rates);
    let lease = |name: &str| snapshot.leases.as_ref().ok()?.get(name);
    let leader = Leader::of(&snapshot.leader, snapshot.now);
    let pauses = Pauses::of(snapshot, clusters);
    let not_well = clusters.iter().filter_map(|it| {
        let lease = lease(&it.name_any());
        not_well(it, lease, leader.leaves_silent(lease, snapshot.now))
    });
    let not_well: Vec<NotWell> = not_well.collect();
    let mut report = Report {
        leader,
        failover: snapshot.failover,
        settings_from: snapshot.source,
        paused: pauses.told(),
        clusters: clusters.len(),
        not_well,
        workloads: bindings.len(),
        unknown: 0,
        moving: Vec::new(),
        waiting: Vec::new(),
        stranded: Vec::new(),
        unplaced: Vec::new(),
        expires: expires(snapshot),
        is_blind: snapshot.clusters.is_err() || snapshot.bindings.is_err(),
        may_be_paused: snapshot.pause.is_err(),
        unread,
        pace,
    };
    for binding in bindings {
        take(&mut report, binding);
    }
    let in_line = report.waiting.iter().filter(|it| it.reason == FOR_RATE);
    let last = seconds(in_line.count(), report.pace.per_second);
    for waiting in report.waiting.iter_mut().filter(|it| it.reason == FOR_RATE) {
        waiting.at_most_seconds = last;
    }
    let tolerated = report.waiting.iter_mut();
    for waiting in tolerated.filter(|it| it.reason == FOR_TOLERATION) {
        // Nothing leaves while movement is paused, whatever runs out.
        let leaves = tolerated_until(&waiting.message)
            .filter(|_| !cluster_of(&waiting.message).is_some_and(|it| pauses.holds(it)));
        let left = leaves.map(|it| it.duration_since(snapshot.now));
        waiting.at_most_seconds = left.map(|it| u64::try_from(it.as_secs()).unwrap_or(0));
    }
    first_leave(&mut report);
    report
}

/// Notes for each cluster when the first workload that tolerates its state may leave.
fn first_leave(report: &mut Report) {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    let tolerated = report.waiting.iter();
    for waiting in tolerated.filter(|it| it.reason == FOR_TOLERATION) {
        let cluster = cluster_of(&waiting.message);
        if let Some((cluster, seconds)) = cluster.zip(waiting.at_most_seconds) {
            let first = first.entry(cluster).or_insert(seconds);
            *first = seconds.min(*first);
        }
    }
    for cluster in &mut report.not_well {
        cluster.first_leaves_seconds = first.get(cluster.name.as_str()).copied();
    }
}

/// The cluster that has the taint a condition tells of.
fn cluster_of(message: &str) -> Option<&str> {
    message.split_once(" has ").map(|it| it.0)
}

/// The end of the toleration that a condition tells of.
fn tolerated_until(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.split_once(": it stays until ")?;
    let time = rest.split([';', ' ']).next()?;
    time.parse().ok()
}

/// The pauses in force.
struct Pauses<'a> {
    fleet: Option<Pause>,
    own: Vec<(&'a str, Pause)>,
}

impl<'a> Pauses<'a> {
    fn of(snapshot: &Snapshot, clusters: &'a [Cluster]) -> Self {
        let record = snapshot.pause.as_ref().ok().and_then(Option::as_ref);
        let holds = |it: &Pause| it.holds(snapshot.now);
        let own = clusters.iter().filter_map(|it| {
            let name = it.metadata.name.as_deref()?;
            Some((name, Pause::of_cluster(it).filter(holds)?))
        });
        Self {
            fleet: record.map(Pause::of_fleet).filter(holds),
            own: own.collect(),
        }
    }

    /// Whether nothing may leave a cluster.
    fn holds(&self, cluster: &str) -> bool {
        self.fleet.is_some() || self.own.iter().any(|(name, _)| *name == cluster)
    }

    /// The pauses in words.
    fn told(&self) -> Vec<String> {
        let own = self.own.iter().map(|(_, pause)| pause);
        let all = self.fleet.iter().chain(own);
        all.map(ToString::to_string).collect()
    }
}

/// What has ended, or ends soon and should have been renewed. The first to end comes first.
fn expires(snapshot: &Snapshot) -> Vec<Expiry> {
    let now = snapshot.now;
    let mut expires = Vec::new();
    let mut add = |what: String, life: Option<Life>| {
        if let Some(life) = life.filter(|it| it.end <= now || ends_soon(*it, now)) {
            expires.push(Expiry {
                what,
                end: life.end,
            });
        }
    };
    let leader = snapshot.leader.as_ref().ok().and_then(Option::as_ref);
    if let Some(report) = leader.and_then(LeaderReport::of) {
        let what = format!("credentials of the control plane ({})", report.identity);
        add(what, report.credentials);
    }
    for (cluster, lease) in snapshot.leases.iter().flatten() {
        let report = AgentReport::of(lease);
        let what = format!("credentials of the agent of {cluster}");
        add(what, report.and_then(|it| it.credentials));
    }
    for entry in snapshot.tokens.iter().flatten() {
        // A token that has ended is of no use to anybody, and is removed by the fleet API.
        let end = entry
            .expiration
            .filter(|it| *it > now && is_today(*it, now));
        if let Some(end) = end {
            let what = format!("bootstrap token {}", entry.token.id);
            expires.push(Expiry { what, end });
        }
    }
    expires.sort_by_key(|it| it.end);
    expires
}

fn is_today(end: Timestamp, now: Timestamp) -> bool {
    end.duration_since(now) < SignedDuration::from_hours(1)
}

/// Time that this many evictions take; `None` if there is none a second.
fn seconds(count: usize, per_second: f64) -> Option<u64> {
    // Exact for any number of workloads that fits into memory; times are told to the second.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation
    )]
    let seconds = (count as f64 / per_second).ceil() as u64;
    (per_second > 0.0).then_some(seconds)
}

fn pace(clusters: &[Cluster], rates: &Rates) -> Pace {
    let counted: Vec<&Cluster> = clusters.iter().filter(|it| is_counted(it)).collect();
    let health = FleetHealth {
        total: counted.len(),
        failed: counted.iter().filter(|it| has_failed(it)).count(),
    };
    let band = rates.band(health);
    Pace {
        per_second: rates.per_second(band),
        failed: health.failed,
        counted: health.total,
        band: match band {
            Band::Primary => "primary",
            Band::Secondary => "secondary",
            Band::Stopped => "stopped",
        },
    }
}

/// Takes note of one workload.
fn take(report: &mut Report, binding: &AnyBinding) {
    let (spec, status) = (binding.spec(), binding.status());
    let resource = &spec.resource;
    let workload = match resource.namespace.as_deref().filter(|it| !it.is_empty()) {
        Some(namespace) => format!("{} {namespace}/{}", resource.kind, resource.name),
        None => format!("{} {}", resource.kind, resource.name),
    };
    let holds = |kind: &str, wanted: &str| {
        conditions::get(&status.conditions, kind).filter(|it| it.status == wanted)
    };
    let waiting = |condition: &Condition| Waiting {
        workload: workload.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
        at_most_seconds: None,
    };
    let is_unknown = holds(condition::FULLY_APPLIED, conditions::UNKNOWN).is_some();
    report.unknown += usize::from(is_unknown);
    if let Some(pending) = holds(explain::CONDITION, conditions::TRUE) {
        let pending = waiting(pending);
        if WAITS.contains(&pending.reason.as_str()) {
            report.waiting.push(pending);
        } else {
            report.stranded.push(pending);
        }
    }
    if let Some(unplaced) = holds(condition::SCHEDULED, conditions::FALSE) {
        report.unplaced.push(waiting(unplaced));
    }
    for task in &spec.graceful_eviction_tasks {
        report.moving.push(Moving {
            workload: workload.clone(),
            from: task.from_cluster.clone(),
            to: spec.clusters.iter().map(|it| it.name.clone()).collect(),
            since: task.creation_timestamp.as_ref().map(|time| time.0),
        });
    }
}

#[cfg(test)]
mod tests;
