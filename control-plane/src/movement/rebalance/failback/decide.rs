//! Decides whether a workload returns to a cluster that it left. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::failback::{Failback, FailbackWindow};
use muster_shared::clock::later;
use muster_shared::conditions;
use muster_shared::names::annotation::HEALTHY_SINCE;
use muster_shared::names::condition::READY;
use muster_shared::names::taint::{CORDON, DUPLICATE, NOT_READY, UNREACHABLE};
use muster_shared::taints::describe;
use serde_json::{Value, json};

use super::window::{Opening, opening};
use crate::movement::eviction::fleet_view::evicts;
use crate::movement::eviction::homes::{LONGEST_AWAY, returns};
use crate::scheduler::core::Decision;
use crate::settings::Settings;

/// Rule by which a workload returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Time for which the cluster has to be healthy.
    pub after: SignedDuration,
    /// Times at which the return may begin; `None`: any.
    pub window: Option<FailbackWindow>,
}

impl Rule {
    /// Returns the rule of the policy, with what it leaves out taken from the settings; `None` if
    /// the workload stays where it is.
    pub fn of(spec: &ResourceBindingSpec, settings: &Settings) -> Option<Self> {
        if !returns(spec, settings) {
            return None;
        }
        let cluster = spec.cluster_failover();
        let own: Option<&Failback> = cluster.and_then(|it| it.failback.as_ref());
        let seconds = own.and_then(|it| it.after_seconds).map(i64::from);
        let usual = SignedDuration::try_from(*settings.failback_after);
        let after = seconds.map(|it| SignedDuration::from_secs(it.max(0)));
        let window = own.and_then(|it| it.window.clone());
        Some(Self {
            after: after.unwrap_or_else(|| usual.unwrap_or(SignedDuration::MAX)),
            window: window.or_else(|| settings.failback_window.0.clone()),
        })
    }
}

/// Returns the clusters that a workload left because of a taint, with the time of each.
pub fn homes(binding: &AnyBinding) -> BTreeMap<String, Timestamp> {
    crate::movement::eviction::homes::homes(&binding.metadata)
}

/// Decision about a return to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The workload returns, if a new placement brings it there.
    Due {
        /// Time since which the cluster is healthy.
        since: Timestamp,
    },
    /// The workload does not return before this time, or before the cluster changes, for this
    /// reason.
    NotBefore(Option<Timestamp>, String),
    /// The workload is there again, the cluster has left the fleet, or it was left so long ago that
    /// the workload stays where it is.
    Over,
}

/// A cluster that a workload left.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// Name of the cluster.
    pub name: &'a str,
    /// Time at which the workload left it.
    pub left: Timestamp,
    /// The cluster, if it can be read.
    pub cluster: Option<&'a Cluster>,
    /// Whether the cluster was seen leaving the fleet.
    pub is_gone: bool,
}

/// Judges the return of a workload to one cluster.
pub fn is_due(spec: &ResourceBindingSpec, rule: &Rule, home: &Home<'_>, now: Timestamp) -> Verdict {
    let asked = spec.reschedule_triggered_at.as_ref();
    let was_placed_anew = asked.is_some_and(|asked| asked.0 >= home.left);
    // Whoever asks for a longer time of health gets it.
    let longest = LONGEST_AWAY.max(rule.after.saturating_add(LONGEST_AWAY));
    let is_forgotten = home.left.saturating_add(longest).is_ok_and(|end| end < now);
    if is_forgotten || home.is_gone || was_placed_anew && spec.has_copy(home.name) {
        return Verdict::Over;
    }
    let ill = |why: &str| Verdict::NotBefore(None, format!("the cluster is not healthy: {why}"));
    let Some(cluster) = home.cluster else {
        return ill("it cannot be read");
    };
    if let Some(why) = unhealthy(cluster) {
        return ill(&why);
    }
    let Some(since) = healthy_since(cluster, now) else {
        let why = "the cluster is healthy for a moment only";
        return Verdict::NotBefore(None, why.to_owned());
    };
    // A departure in the future was dated by a clock that was wrong.
    let left = Some(home.left).filter(|left| *left <= now);
    let since = left.map_or(since, |left| since.max(left));
    let after = rule.after;
    let due = later(since, after);
    if now < due {
        let after = after.as_secs();
        let why = format!("the cluster is healthy since {since}, and has to be so for {after} s");
        return Verdict::NotBefore(Some(due), why);
    }
    match rule.window.as_ref().map(|window| opening(window, now)) {
        None | Some(Opening::Open) => Verdict::Due { since },
        Some(Opening::At(time)) => {
            Verdict::NotBefore(Some(time), "the window is closed".to_owned())
        }
        Some(Opening::Never) => Verdict::NotBefore(None, "its window never opens".to_owned()),
    }
}

/// Effect of a new placement on a workload that may return.
#[derive(Debug, PartialEq, Eq)]
pub enum Course<'a> {
    /// The placement brings something to these clusters.
    Returns(Vec<&'a str>),
    /// The workload has in these clusters what a new placement would give them.
    IsHome(Vec<String>),
    /// The placement brings nothing home.
    Stays,
}

/// Judges a new placement; `decision` is `None` if it changes nothing. `due` are the clusters that
/// the workload may return to, and `waits` those that it left and may not return to yet.
pub fn course<'a>(
    spec: &ResourceBindingSpec,
    decision: Option<&Decision>,
    due: &'a BTreeMap<String, Timestamp>,
    waits: &[String],
) -> Course<'a> {
    let Some(decision) = decision else {
        let there = due.keys().filter(|it| spec.has_copy(it));
        let there: Vec<String> = there.cloned().collect();
        return if there.is_empty() {
            Course::Stays
        } else {
            Course::IsHome(there)
        };
    };
    let gains =
        |name: &str| share(spec, &decision.clusters, name) > share(spec, &spec.clusters, name);
    let brought: Vec<&str> = due
        .keys()
        .map(String::as_str)
        .filter(|it| gains(it))
        .collect();
    // A new placement may use each cluster: one that has just come back gets nothing by the way.
    if brought.is_empty() || waits.iter().any(|it| gains(it)) {
        return Course::Stays;
    }
    Course::Returns(brought)
}

/// Returns the replicas that a cluster has of a workload; `None` if it has none of it, as where its
/// share is zero (`--enable-empty-workload-propagation`). What is not counted has 0 wherever it is.
fn share(spec: &ResourceBindingSpec, clusters: &[TargetCluster], name: &str) -> Option<i32> {
    let target = clusters.iter().find(|it| it.name == name)?;
    spec.is_copy(target).then_some(target.replicas)
}

/// Returns why workloads do not return to a cluster now; `None` if it is healthy.
pub fn unhealthy(cluster: &Cluster) -> Option<String> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some("it is being removed".to_owned());
    }
    let ready = cluster.condition(READY);
    let Some(ready) = ready else {
        return Some("it has not reported yet".to_owned());
    };
    if ready.status != conditions::TRUE {
        return Some(format!("Ready is {} ({})", ready.status, ready.reason));
    }
    let mut taints = cluster.spec.taints.iter();
    let keeps_away = taints.find(|it| {
        let key = it.key.as_str();
        evicts(it) || [CORDON, DUPLICATE, NOT_READY, UNREACHABLE].contains(&key)
    });
    keeps_away.map(|taint| format!("it has taint {}", describe(taint)))
}

/// Returns the time since which a cluster is healthy; `None` if that is not recorded. The time that
/// the member gives reports a failure that nobody here saw. It does not count while it has not
/// come yet: the member's clock may be ahead by any time, and nothing would return until then.
fn healthy_since(cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
    let recorded: Timestamp = cluster.annotations().get(HEALTHY_SINCE)?.parse().ok()?;
    let reported = cluster.condition(READY)?.last_transition_time.0;
    Some(if reported <= now {
        recorded.max(reported)
    } else {
        recorded
    })
}

/// Returns the value that the record of a cluster, since when it is healthy, has to get: null
/// removes it. `is_home` says whether a workload may return to the cluster.
pub fn record(cluster: &Cluster, is_home: bool, now: Timestamp) -> Option<Value> {
    let recorded = cluster.annotations().get(HEALTHY_SINCE);
    let is_read = recorded.is_some_and(|it| it.parse::<Timestamp>().is_ok_and(|it| it <= now));
    match (unhealthy(cluster), recorded) {
        (Some(_), Some(_)) => Some(Value::Null),
        (None, _) if is_home && !is_read => Some(json!(now.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
