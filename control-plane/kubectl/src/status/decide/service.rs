//! Which workloads are without service, by what is known of their copies.

use std::collections::{BTreeMap, BTreeSet};

use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::movement::eviction::explain::{COMPLETED, CONDITION, has_completed};
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceHealth};
use muster_shared::conditions;
use muster_shared::names::condition::FENCED;
use serde::Serialize;

use super::estimate::fenced_in;
use super::{PAUSED, STOPPED, Snapshot, WAITING_FOR_FENCE, WAITING_FOR_RATE, cluster_of, title};
use crate::old_copies::{OldCopies, named};

/// Workloads that have no service, or less than they should. What runs nothing is none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Service {
    /// Workloads of which no copy runs.
    pub without: Group,
    /// Workloads of which no copy is known to run, and some may, in clusters that are silent.
    pub perhaps: Group,
    /// Clusters in which the workloads of `perhaps` may run.
    #[serde(skip)]
    pub unseen: BTreeSet<String>,
    /// Workloads of `perhaps` whose copies stop by themselves where they are cut off.
    pub stopping: Group,
    /// Seconds until the first copy of the workloads of `stopping` has stopped at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops_seconds: Option<u64>,
    /// Workloads that run, and not in each cluster that they are placed in.
    pub fewer: Group,
    /// Workloads that were placed or have moved a moment ago, and are not healthy there yet.
    pub starting: Group,
    /// Workloads that no failure concerns, and of which no copy is healthy.
    pub unhealthy: Group,
    /// Those of them that are reported unhealthy and have a policy that moves a failing application
    /// (`spec.failover.application`).
    pub failing: Group,
}

/// Workloads, of which the first few are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct Group {
    pub count: usize,
    pub names: Vec<String>,
}

impl Group {
    pub(super) fn add(&mut self, binding: &AnyBinding) {
        self.count += 1;
        let most = named(self.count);
        if self.names.len() < most {
            self.names.push(title(binding));
        }
        self.names.truncate(most);
    }
}

/// State of one copy, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// The copy runs.
    Runs,
    /// The copy may run: its cluster is silent.
    Unseen,
    /// The copy does not run, or not yet.
    Down,
}

/// Returns the service of all workloads. `ready` says of each cluster whether it is ready and
/// not silent.
pub(super) fn service(
    snapshot: &Snapshot,
    ready: &BTreeMap<String, bool>,
    old: Option<&OldCopies>,
) -> Service {
    let mut service = Service::default();
    let bindings = snapshot.bindings.iter().flatten();
    for binding in bindings.filter(|it| !runs_nothing(&it.spec)) {
        take(&mut service, binding, snapshot, ready, old);
    }
    service
}

/// Returns whether a copy runs, by what its cluster reported: one of which nothing is reported yet
/// only starts.
pub(super) fn runs(report: &AggregatedStatusItem) -> bool {
    let is_up = |it: &ResourceHealth| *it != ResourceHealth::Unhealthy;
    report.applied && report.health.as_ref().is_some_and(is_up)
}

/// Returns whether a workload is a task, such as a Job, that has completed in each cluster that it
/// is in: nothing of it is to run any more.
pub(super) fn is_over(binding: &AnyBinding) -> bool {
    let mut copies = binding.spec.copies().peekable();
    copies.peek().is_some() && copies.all(|it| has_completed(binding, &it.name))
}

fn take(
    service: &mut Service,
    binding: &AnyBinding,
    snapshot: &Snapshot,
    ready: &BTreeMap<String, bool>,
    old: Option<&OldCopies>,
) {
    let (spec, reported) = (&binding.spec, &binding.status().conditions);
    let pending = conditions::get(reported, CONDITION);
    if pending.is_some_and(|it| it.reason == COMPLETED) || is_over(binding) {
        return;
    }
    let pending = pending.filter(|it| it.status == conditions::TRUE);
    let is_fenced = conditions::is_true(reported, FENCED);
    let stops = |cluster: &str| {
        let here = pending.filter(|it| cluster_of(&it.message) == Some(cluster));
        here.and_then(|it| match it.reason.as_str() {
            WAITING_FOR_FENCE => fenced_in(&it.message, cluster, snapshot),
            // These keep a fenced workload only when its copy has stopped.
            STOPPED | PAUSED | WAITING_FOR_RATE if is_fenced => Some(0),
            _ => None,
        })
    };
    let reports = &binding.status().aggregated_status;
    let copy = |cluster: &str| match ready.get(cluster) {
        None => Copy::Down,
        Some(false) if stops(cluster) == Some(0) => Copy::Down,
        Some(false) => Copy::Unseen,
        Some(true) => {
            let mut reports = reports.iter().filter(|it| it.cluster_name == cluster);
            if reports.any(runs) {
                Copy::Runs
            } else {
                Copy::Down
            }
        }
    };
    let placed: Vec<Copy> = spec.copies().map(|it| copy(&it.name)).collect();
    let tasks = spec.graceful_eviction_tasks.iter();
    let left = tasks.map(|it| it.from_cluster.as_str());
    let old = old.and_then(|it| it.get(&BindingKey::of(binding)));
    let left = left.chain(old.into_iter().flatten().map(String::as_str));
    let left_from: Vec<&str> = left.collect();
    let left: Vec<Copy> = left_from.iter().map(|it| copy(it)).collect();
    // Of one that is scaled to zero, or that a person keeps from being placed, nothing is to run.
    let is_meant = spec.is_scaled_to_zero() || spec.scheduling_suspended();
    if is_meant && placed.is_empty() && left.is_empty() {
        return;
    }
    // One of which no health is reported yet only starts.
    let starts = |it: &AggregatedStatusItem| it.applied && it.health.is_none();
    let is_applied = reports.iter().any(starts);
    let is_down = placed.contains(&Copy::Down) && !placed.contains(&Copy::Runs);
    if is_down && pending.is_none() && (is_applied || !left.is_empty()) {
        service.starting.add(binding);
    }
    let all = || placed.iter().chain(&left);
    let is_concerned = pending.is_some()
        || placed.is_empty()
        || !left.is_empty()
        || spec.copies().any(|it| ready.get(&it.name) != Some(&true));
    if all().any(|it| *it == Copy::Runs) {
        if placed.contains(&Copy::Unseen) {
            service.fewer.add(binding);
        }
    } else if !is_concerned {
        if !is_applied {
            service.unhealthy.add(binding);
            let fails = |it: &AggregatedStatusItem| it.health == Some(ResourceHealth::Unhealthy);
            let moves = spec.application_failover().is_some();
            if moves && reports.iter().any(fails) {
                service.failing.add(binding);
            }
        }
    } else if all().any(|it| *it == Copy::Unseen) {
        service.perhaps.add(binding);
        let names = spec.copies().map(|it| it.name.as_str());
        let unseen = names.chain(left_from);
        let unseen = unseen.filter(|it| copy(it) == Copy::Unseen);
        service.unseen.extend(unseen.map(str::to_owned));
        let mut placed = spec.copies();
        // A copy that has stopped already is not among those to be stopped.
        let stops = placed.find_map(|it| stops(&it.name).filter(|seconds| *seconds > 0));
        if stops.is_some() {
            service.stopping.add(binding);
        }
        let stops = service.stops_seconds.into_iter().chain(stops);
        service.stops_seconds = stops.min();
    } else {
        service.without.add(binding);
    }
}
