//! Workloads that left a cluster because of a taint, and whether they go back there.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_control_plane::movement::eviction::record::Record;
use muster_control_plane::movement::rebalance::failback::decide::{
    Home, Rule, Verdict, homes, is_due,
};
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_shared::api::cluster::Cluster;
use serde::Serialize;

use super::{Snapshot, seconds_until, service};

/// Time for which workloads that stay where they are count as having left a cluster.
const RECENT: SignedDuration = SignedDuration::from_hours(24);

/// Workloads that left a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Left {
    /// The cluster.
    pub cluster: String,
    /// Workloads that return there, by the rule of their policies.
    pub returning: usize,
    /// Seconds after which the first of them does at the earliest; absent where only the state of
    /// the cluster decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seconds: Option<u64>,
    /// Seconds for which the cluster has to be healthy before, by the shortest of the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<u64>,
    /// Workloads that left within the last day, and stay where they are now.
    pub staying: usize,
    /// Reason why workloads stay whose policies ask for their return, if there are any.
    #[serde(skip)]
    pub barred: Option<&'static str>,
}

/// Returns what left each cluster, in the order of the names.
pub(super) fn left(snapshot: &Snapshot) -> Vec<Left> {
    let clusters = snapshot.clusters.iter().flatten();
    let clusters: BTreeMap<String, &Cluster> = clusters.map(|it| (it.name_any(), it)).collect();
    let mut left: BTreeMap<String, Left> = BTreeMap::new();
    let bindings = snapshot.bindings.iter().flatten();
    // Workloads return as their policies say where it is not known whether failover is on.
    let failover = snapshot.failover != Some(false);
    // A task that has completed runs nowhere again.
    for binding in bindings.filter(|it| !runs_nothing(&it.spec) && !service::is_over(it)) {
        let spec = &binding.spec;
        let is_recent = |at: Timestamp| snapshot.now.duration_since(at) < RECENT;
        // A cluster that has left the fleet takes no workload back.
        let is_away = |name: &str, left: Timestamp| {
            clusters.contains_key(name) && !spec.has_copy(name) && is_recent(left)
        };
        let Some(rule) = Rule::of(spec, &snapshot.settings) else {
            let record = Record::read(binding.metadata.annotations.as_ref());
            if let Some(record) = record.filter(|it| is_away(&it.from, it.at)) {
                left.entry(record.from).or_default().staying += 1;
            }
            continue;
        };
        let scheduler = spec.scheduler_name.as_deref();
        let barred = snapshot.settings.no_return(scheduler, failover);
        for (name, time) in homes(binding) {
            if barred.is_some() {
                if is_away(&name, time) {
                    let left = left.entry(name).or_default();
                    left.staying += 1;
                    left.barred = barred;
                }
                continue;
            }
            let cluster = clusters.get(&name).copied();
            let home = Home {
                name: &name,
                left: time,
                cluster,
                is_gone: cluster.is_none(),
            };
            let due: Option<Timestamp> = match is_due(spec, &rule, &home, snapshot.now) {
                Verdict::Over => continue,
                Verdict::Due { .. } => Some(snapshot.now),
                Verdict::NotBefore(time, _) => time,
            };
            let left = left.entry(name).or_default();
            left.returning += 1;
            let after = u64::try_from(rule.after.as_secs()).ok();
            left.after_seconds = left.after_seconds.into_iter().chain(after).min();
            let due = due.map(|it| seconds_until(it, snapshot.now));
            left.first_seconds = left.first_seconds.into_iter().chain(due).min();
        }
    }
    let named = |(cluster, it)| Left { cluster, ..it };
    left.into_iter().map(named).collect()
}
