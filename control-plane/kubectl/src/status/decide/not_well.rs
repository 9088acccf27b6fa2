//! Clusters that need attention, and those that a person has drained or cordoned.

use std::collections::BTreeMap;
use std::ops::Deref;

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_control_plane::fleet::attribution::{Attribution, order, plain};
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::movement::eviction::drain;
use muster_control_plane::movement::eviction::judge::Switches;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Lease};
use muster_shared::names::condition::SEEN_BY_PEERS;
use muster_shared::names::taint::{CORDON, DRAIN};
use muster_shared::taints::{describe, is_drain, is_of_command};
use serde::Serialize;

use super::{Fates, Next, Report, Snapshot};
use crate::cluster_row::{ClusterRow, Counts};
use crate::leader::Leader;
use crate::view::{Member, State, faults};

/// A cluster that needs attention.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct NotWell {
    /// The cluster as tables report it. Its reason is the condition by which it needs attention,
    /// if it is ready.
    #[serde(flatten)]
    member: Member,
    /// Seconds until the first toleration of a workload there has run out, and it may leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_leaves_seconds: Option<u64>,
    /// Seconds until the first taint by which workloads leave, if it has none yet and stays as it
    /// is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_taint_seconds: Option<u64>,
    /// Seconds until policies have taken the last taint off, if it is ready and stays so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untainted_seconds: Option<u64>,
    /// Whether agents of other clusters reach it, if it is not ready and they know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_by_peers: Option<bool>,
    pub region: Option<String>,
    /// Next event in the cluster.
    pub next: Next,
    /// Fates of the workloads that were there.
    pub workloads: Fates,
    /// The same in words; empty without any.
    pub became: String,
}

impl Deref for NotWell {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

/// A cluster that a person has drained or cordoned.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Ordered {
    pub name: String,
    /// `Drained`, `Cordoned`, both, or `DrainIncomplete`.
    pub order: &'static str,
    /// Order in words, such as `drained and cordoned`.
    pub words: &'static str,
    pub since: Option<Timestamp>,
    /// User or program that gave the order; `null` if nobody knows.
    pub by: Option<String>,
    /// Reason, in their words.
    pub reason: Option<String>,
    /// Evictions per second out of it at most, by its own rate; `null` if only that of the fleet
    /// holds.
    pub per_second: Option<f64>,
    /// Copies that are placed there, or that have not left it yet.
    pub copies: usize,
    /// Next event in the cluster.
    pub next: Next,
    /// Fault of its own rate, by which nothing leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Ordered {
    /// Returns whether workloads have to leave the cluster.
    pub fn is_drained(&self) -> bool {
        self.order.starts_with(DRAINED)
    }

    /// Returns whether the command that was to drain it ended before it did.
    pub fn is_incomplete(&self) -> bool {
        self.order == INCOMPLETE
    }
}

const DRAINED: &str = "Drained";
/// A drain of several clusters that was not completed.
const INCOMPLETE: &str = "DrainIncomplete";

/// Returns the orders of a person that hold for a cluster.
pub(super) fn ordered(cluster: &Cluster, switches: &Switches) -> Option<Ordered> {
    let taints = &cluster.spec.taints;
    let has = |key: &str| taints.iter().any(|it| it.key == key);
    let (order, words) = match (taints.iter().any(is_drain), has(CORDON)) {
        (true, false) => (DRAINED, "drained"),
        (true, true) => ("Drained,Cordoned", "drained and cordoned"),
        (false, true) => ("Cordoned", "cordoned"),
        // The first step of a drain of several, of which somebody ended the command.
        (false, false) if has(DRAIN) => (INCOMPLETE, "kept free by a drain that was not completed"),
        (false, false) => return None,
    };
    let added = taints.iter().filter(|it| is_of_command(it));
    let rate = drain::rate(cluster, switches);
    let author = Attribution::of_command(cluster)
        .or_else(|| Attribution::by_program(&cluster.metadata, order::DRAIN, &["spec", "taints"]));
    Some(Ordered {
        name: cluster.name_any(),
        order,
        words,
        since: added
            .filter_map(|it| it.time_added.as_ref())
            .map(|it| it.0)
            .min(),
        by: author.as_ref().map(|it| it.author().to_owned()),
        reason: author.map(|it| it.reason).filter(|it| !it.is_empty()),
        copies: 0,
        next: Next::default(),
        per_second: rate.as_ref().ok().copied().flatten(),
        fault: rate.err().map(|it| it.to_string()),
    })
}

/// Returns the conditions that say more of a cluster than `Ready`: of one that is ready its faults,
/// of another one whether its peers reach it. What the agent of a cluster that is silent said last
/// is old.
fn observed(cluster: &Cluster, is_ready: bool) -> Vec<&Condition> {
    if is_ready {
        return faults(cluster).collect();
    }
    let seen = cluster.condition(SEEN_BY_PEERS);
    let seen = seen.filter(|it| it.status != conditions::UNKNOWN);
    seen.into_iter().collect()
}

/// Returns what is not well with a cluster: it is not ready, it has a taint of no command, it is
/// silent and nobody says so, or something else is wrong with it.
pub(super) fn not_well(
    cluster: &Cluster,
    lease: Option<&Lease>,
    is_silent: bool,
) -> Option<NotWell> {
    let mut member = Member::of(cluster, lease, is_silent);
    if member.state == State::Ready {
        return None;
    }
    let is_ready = member.ready == conditions::TRUE;
    let mut why: Vec<String> = member.why.take().into_iter().collect();
    let mut seen_by_peers = None;
    // While nobody judges, what the control plane said last is old.
    if !is_silent {
        let observed = observed(cluster, is_ready);
        let seen = observed.iter().find(|it| it.type_ == SEEN_BY_PEERS);
        seen_by_peers = seen.map(|it| it.status == conditions::TRUE);
        // The message of the one by which it needs attention is there already.
        let others = observed.iter().filter_map(|it| {
            let name = format!("{}={}", it.type_, it.status);
            let is_known = member.concern.as_ref() == Some(&name);
            (!is_known).then(|| format!("{name}: {}", plain(&it.message)))
        });
        why.extend(others);
    }
    if let Some(concern) = &member.concern {
        member.reason.clone_from(concern);
    } else if is_ready {
        // The cluster needs attention because of its taints.
        let taints = cluster.spec.taints.iter().filter(|it| !is_of_command(it));
        let tainted = taints.clone();
        let tainted = tainted.filter_map(|it| Some(it.time_added.as_ref()?.0));
        member.since = tainted.min();
        member.begun = member.since;
        let ordered = taints.filter_map(|it| {
            let order = Attribution::of_taint(&cluster.metadata, it)?;
            Some(format!("tainted {} {order}", describe(it)))
        });
        why.extend(ordered);
    }
    why.retain(|it| !it.is_empty());
    member.why = (!why.is_empty()).then(|| why.join("; "));
    Some(NotWell {
        member,
        first_leaves_seconds: None,
        next_taint_seconds: None,
        untainted_seconds: None,
        seen_by_peers,
        region: cluster.spec.region.clone(),
        next: Next::default(),
        workloads: Fates::default(),
        became: String::new(),
    })
}

impl Report {
    /// Returns the clusters that are not ready.
    pub fn down(&self) -> impl Iterator<Item = &NotWell> {
        let not_well = self.not_well.iter();
        not_well.filter(|it| it.ready != conditions::TRUE)
    }

    /// Returns the clusters that are drained.
    pub fn drained(&self) -> impl Iterator<Item = &Ordered> {
        self.ordered.iter().filter(|it| it.is_drained())
    }
}

impl Snapshot {
    /// Returns a row for each cluster.
    pub fn cluster_rows(&self) -> Option<Vec<ClusterRow>> {
        let clusters = self.clusters.as_ref().ok()?;
        let leader = Leader::of(&self.leader, self.now);
        let bindings = self.bindings.as_deref().ok();
        let counts = Counts::of(bindings, self.works.as_deref().ok());
        let pause = self.pause.as_ref().ok().and_then(Option::as_ref);
        let is_paused = pause.is_some_and(|it| Pause::of_fleet(it).holds(self.now));
        let none = BTreeMap::new();
        let leases = self.leases.as_ref().unwrap_or(&none);
        let members = (leases, &leader);
        Some(ClusterRow::all(
            clusters, members, is_paused, &counts, self.now,
        ))
    }
}
