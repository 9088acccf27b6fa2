//! How long what waits may take at the most.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_control_plane::fleet::budget::rate::Band;
use muster_control_plane::movement::eviction::drain;
use muster_control_plane::movement::eviction::fleet_view::evicts;
use muster_control_plane::movement::eviction::judge::Switches;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::conditions::UNKNOWN;
use muster_shared::k8s::{ResourceExt as _, Taint};
use muster_shared::names::condition;
use muster_shared::taints::{NO_EXECUTE, is_drain, is_of_command};

use super::{
    PAUSED, Report, STOPPED, Snapshot, WAITING_FOR_FENCE, WAITING_FOR_RATE, WAITING_FOR_TOLERATION,
    Waiting, cluster_of, seconds_until, verbs,
};
use crate::forecast::disaster::{due, untainted};
use crate::leader::renewed;

impl Report {
    /// Returns the reason for which nothing leaves a cluster, or any cluster, now; `None` if
    /// something may.
    pub(in super::super) fn held_by(&self, cluster: Option<&str>) -> Option<&'static str> {
        let holds = |it: &Option<String>| it.is_none() || it.as_deref() == cluster;
        match self.pace.band {
            _ if self.paused_clusters.iter().any(holds) => Some(PAUSED),
            Band::Stopped => Some(STOPPED),
            Band::Primary | Band::Secondary => None,
        }
    }
}

/// Notes for each workload that waits how long it does at the most.
pub(super) fn estimate(report: &mut Report, snapshot: &Snapshot) {
    holds(report, snapshot);
    // Nothing leaves while nobody leads, too many clusters have failed, or movement is paused,
    // whatever runs out.
    if report.nobody_leads() || report.pace.per_second <= 0.0 {
        next_taint(report, snapshot);
        return;
    }
    let clusters = snapshot.clusters.as_deref().unwrap_or_default();
    let switches = Switches::of(&snapshot.settings);
    let own: BTreeMap<String, Option<f64>> = clusters
        .iter()
        .filter_map(|it| {
            let rate = drain::rate(it, &switches).transpose()?;
            Some((it.name_any(), rate.ok()))
        })
        .collect();
    let mut in_line: BTreeMap<String, usize> = BTreeMap::new();
    for waiting in report
        .waiting
        .iter()
        .filter(|it| it.reason == WAITING_FOR_RATE)
    {
        let cluster = cluster_of(&waiting.message).unwrap_or_default();
        *in_line.entry(cluster.to_owned()).or_default() += 1;
    }
    let pace = report.pace.per_second;
    let mut all = std::mem::take(&mut report.waiting);
    for waiting in &mut all {
        let cluster = cluster_of(&waiting.message);
        // The condition of a workload that waited when taintmanager was switched off may be left.
        if report.taints_ignored || report.held_by(cluster).is_some() {
            continue;
        }
        waiting.at_most_seconds = match waiting.reason.as_str() {
            WAITING_FOR_RATE => last(&in_line, &own, cluster.unwrap_or_default(), pace),
            WAITING_FOR_TOLERATION => {
                tolerated_until(&waiting.message).map(|it| seconds_until(it, snapshot.now))
            }
            WAITING_FOR_FENCE => waiting.stops_seconds,
            _ => None,
        };
    }
    report.waiting = all;
    for application in &mut report.applications {
        let until = tolerated_until(&application.message);
        application.at_most_seconds = until.map(|it| seconds_until(it, snapshot.now));
    }
    first_leave(report);
    next_taint(report, snapshot);
}

/// Notes for each workload that waits for a time what keeps it even after that, and for each that
/// waits for its fence when its copy has stopped: it does so whether anything moves or not.
fn holds(report: &mut Report, snapshot: &Snapshot) {
    let mut waiting = std::mem::take(&mut report.waiting);
    let silent = report.not_well.iter().filter(|it| it.ready == UNKNOWN);
    let silent: BTreeSet<&str> = silent.map(|it| it.name.as_str()).collect();
    let is_timed = |it: &&mut Waiting| {
        [WAITING_FOR_FENCE, WAITING_FOR_TOLERATION].contains(&it.reason.as_str())
    };
    for waiting in waiting.iter_mut().filter(is_timed) {
        let cluster = cluster_of(&waiting.message);
        // Nothing stops itself in a cluster that is not silent; what is tolerated reports no fence.
        let unheard = cluster.filter(|it| silent.contains(it));
        waiting.stops_seconds = unheard.and_then(|it| fenced_in(&waiting.message, it, snapshot));
        let reported = report.held_by(cluster).map(|reason| verbs(reason).0);
        if let Some((held, own)) = reported.zip(waiting.why.as_mut()) {
            *own = format!("{held}, and {}", own.trim_start_matches("waits "));
        }
    }
    report.waiting = waiting;
}

/// Notes for each cluster that has no taint yet when the first one comes by which workloads leave,
/// and for each that is ready when the last one goes.
fn next_taint(report: &mut Report, snapshot: &Snapshot) {
    let Some(policies) = &snapshot.taint_policies else {
        return;
    };
    let policies: Vec<&ClusterTaintPolicy> = policies.iter().collect();
    let clusters = snapshot.clusters.iter().flatten();
    let clusters: BTreeMap<String, &Cluster> = clusters.map(|it| (it.name_any(), it)).collect();
    let is_off = report.no_execute_off.is_some();
    let is_ignored = |it: &Taint| is_off && it.effect == NO_EXECUTE && !is_drain(it);
    let moves = |it: &Taint| evicts(it) && !is_ignored(it);
    for not_well in &mut report.not_well {
        let cluster = clusters.get(&not_well.name);
        let ready = cluster.filter(|it| it.is_true(condition::READY));
        let tainted = ready.filter(|it| !it.spec.taints.iter().all(is_of_command));
        not_well.untainted_seconds = tainted.and_then(|it| {
            let left = untainted(it, &policies, &snapshot.settings, snapshot.now)?;
            u64::try_from(left.as_secs()).ok()
        });
        let cluster = cluster.filter(|it| !it.spec.taints.iter().any(moves));
        not_well.next_taint_seconds = cluster.and_then(|it| {
            let coming = due(it, &policies, &snapshot.settings, snapshot.now);
            let coming = coming.into_iter().filter(|it| moves(&it.taint));
            let first = coming.map(|it| it.after.as_secs()).min()?;
            u64::try_from(first).ok()
        });
    }
}

/// Seconds until the last of those that wait in a cluster for the pace has moved: all of the fleet
/// share one pace, and a drain may have a slower one of its own. `None` where there is no pace.
fn last(
    in_line: &BTreeMap<String, usize>,
    own: &BTreeMap<String, Option<f64>>,
    cluster: &str,
    pace: f64,
) -> Option<u64> {
    let all: usize = in_line.values().sum();
    let Some(rate) = own.get(cluster) else {
        return seconds(all, pace);
    };
    let here = in_line.get(cluster).copied().unwrap_or_default();
    // In the worst case the others move first.
    Some(seconds(all - here, pace)? + seconds(here, rate.as_ref()?.min(pace))?)
}

/// Notes for each cluster when the first workload that tolerates its state may leave.
fn first_leave(report: &mut Report) {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    let tolerated = report.waiting.iter();
    for waiting in tolerated.filter(|it| it.reason == WAITING_FOR_TOLERATION) {
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

/// Seconds until the copy of a workload in a cluster is stopped by fencing, counted from the last
/// renewal of the cluster's lease that the fleet API has.
pub(super) fn fenced_in(message: &str, cluster: &str, snapshot: &Snapshot) -> Option<u64> {
    let (_, rest) = message.split_once("may run until ")?;
    let seconds: i64 = rest.split_once(" s after")?.0.parse().ok()?;
    let renewed = renewed(snapshot.leases.as_ref().ok()?.get(cluster)?)?;
    let end = renewed.checked_add(SignedDuration::from_secs(seconds));
    Some(seconds_until(end.ok()?, snapshot.now))
}

/// Returns the end of the toleration that a condition reports.
fn tolerated_until(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.split_once(": it stays until ")?;
    let time = rest.split([';', ' ']).next()?;
    time.parse().ok()
}

/// Returns the time in seconds that this many evictions take; `None` if there is none a second.
fn seconds(count: usize, per_second: f64) -> Option<u64> {
    // Exact for any number of workloads that fits into memory; times are printed to the second.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation
    )]
    let seconds = (count as f64 / per_second).ceil() as u64;
    (per_second > 0.0).then_some(seconds)
}
