//! A cluster as a line, with the numbers of its workloads. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_control_plane::propagation::binding::render::Scope;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Lease, ObjectMeta, ResourceExt as _};
use muster_shared::self_report::AgentReport;
use serde::Serialize;

use super::leader::Leader;
use super::old_copies::old_copies;
use super::rows::Named;
use super::view::Member;

/// A cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterRow {
    #[serde(flatten)]
    pub member: Member,
    /// Whether movement out of it is paused, by itself or with the fleet.
    pub paused: bool,
    pub ready_nodes: Option<i32>,
    pub nodes: Option<i32>,
    /// Workloads placed there; `null` if they could not be read. What runs nothing is none.
    pub workloads: Option<usize>,
    /// Copies of workloads that are not placed there any more and that are not confirmed gone;
    /// `null` if that could not be read.
    pub old_copies: Option<usize>,
    pub sync_mode: String,
    pub region: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub kubernetes: Option<String>,
    /// Version of Muster's agent.
    pub agent: Option<String>,
}

impl ClusterRow {
    /// Returns the rows of clusters, by the leases of the members and the leader.
    pub fn all(
        clusters: &[Cluster],
        (leases, leader): (&BTreeMap<String, Lease>, &Leader),
        is_paused: bool,
        counts: &Counts,
        now: Timestamp,
    ) -> Vec<Self> {
        let row = |it: &Cluster| {
            let lease = leases.get(&it.name_any());
            let marks = (leader.leaves_silent(lease, now), is_paused);
            Self::of(it, lease, marks, counts, now)
        };
        clusters.iter().map(row).collect()
    }

    /// Returns the row of a cluster. `is_silent`: it is silent, and no leader acts to say so.
    /// `is_paused`: all movement is paused.
    pub fn of(
        cluster: &Cluster,
        lease: Option<&Lease>,
        (is_silent, is_paused): (bool, bool),
        counts: &Counts,
        now: Timestamp,
    ) -> Self {
        let status = cluster.status.as_ref();
        let nodes = status.and_then(|it| it.node_summary);
        let version = status.and_then(|it| it.kubernetes_version.clone());
        let name = cluster.name_any();
        Self {
            member: Member::of(cluster, lease, is_silent),
            paused: is_paused || Pause::of_cluster(cluster).is_some_and(|it| it.holds(now)),
            ready_nodes: nodes.map(|it| it.ready_num),
            nodes: nodes.map(|it| it.total_num),
            workloads: in_cluster(counts.placed.as_ref(), &name),
            old_copies: in_cluster(counts.old.as_ref(), &name),
            sync_mode: format!("{:?}", cluster.spec.sync_mode),
            region: cluster.spec.region.clone(),
            labels: cluster.labels().clone(),
            kubernetes: version.filter(|it: &String| !it.is_empty()),
            agent: lease.and_then(AgentReport::of).map(|it| it.version),
        }
    }
}

impl Named for ClusterRow {
    fn name(&self) -> String {
        format!("cluster.cluster.karmada.io/{}", self.member.name)
    }
}

/// Numbers by cluster; `None` if they could not be read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Workloads that are placed there.
    pub placed: Option<BTreeMap<String, usize>>,
    /// Copies of other workloads that are not confirmed gone.
    pub old: Option<BTreeMap<String, usize>>,
}

impl Counts {
    /// Counts bindings and Works, as far as they could be read.
    pub fn of(bindings: Option<&[Arc<AnyBinding>]>, works: Option<&[ObjectMeta]>) -> Self {
        let placed = |it: &[Arc<AnyBinding>]| {
            let workloads = it.iter().filter(|it| !runs_nothing(&it.spec));
            let targets = workloads.flat_map(|it| Scope::of(&it.spec).targets);
            count(targets.map(|it| it.name))
        };
        let old = |(bindings, works): (&[Arc<AnyBinding>], &[ObjectMeta])| {
            count(old_copies(works, bindings).into_values().flatten())
        };
        Self {
            placed: bindings.map(placed),
            old: bindings.zip(works).map(old),
        }
    }
}

fn count(clusters: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for cluster in clusters {
        *counts.entry(cluster).or_default() += 1;
    }
    counts
}

fn in_cluster(counts: Option<&BTreeMap<String, usize>>, name: &str) -> Option<usize> {
    counts.map(|it| it.get(name).copied().unwrap_or(0))
}
