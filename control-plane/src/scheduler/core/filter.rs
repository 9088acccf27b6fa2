//! Filters: which clusters may take a workload. Each filter is one function with one rule.

use std::cell::Cell;
use std::fmt;
use std::ptr;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::data_replication::DataReference;
use muster_shared::api::policy::Placement;
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::names::eviction::REASON_NO_CLUSTER_FIT;
use muster_shared::taints::{NO_EXECUTE, describe, tolerates};

use super::affinity::Affinity;
use super::data::Needed;
use super::plugin::Plugin;
use super::select::Spread;
use super::snapshot::{ClusterInfo, Kinds};
use super::{Behaviour, Growth, Options};
use crate::fleet::availability;

/// The tier of clusters that the affinity in use does not allow, where that is no reason to refuse
/// them (Karmada's number).
const OUTSIDE: u32 = 1000;

/// Reason why a filter rejects a cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rejection<'a> {
    /// The cluster does not serve the kind.
    ApiMissing,
    /// The cluster has a taint that the placement does not tolerate.
    Taint(&'a Taint),
    /// The cluster is not ready, and the schedule is for an eviction.
    NotReady,
    /// The agent of the cluster cannot read its Works, and would not learn of the workload.
    WorksUnread,
    /// The policy suspends dispatching to the cluster: what is placed there waits.
    DispatchingSuspended,
    /// The placement does not select the cluster.
    Affinity,
    /// The cluster has no provider, and a constraint is by provider.
    NoProvider,
    /// The cluster has no region, and a constraint is by region.
    NoRegion,
    /// The cluster has no zone, and a constraint is by zone.
    NoZones,
    /// The cluster does not have the label of a constraint.
    NoLabel,
    /// The policy of an object that is data of the workload does not place it in the cluster.
    NoData(&'a DataReference),
    /// The workload is being evicted from the cluster.
    Evicting,
}

impl Rejection<'_> {
    /// Returns the filter that rejects.
    pub const fn filter(&self) -> Plugin {
        match self {
            Self::ApiMissing => Plugin::ApiEnablement,
            // The taint that a cluster gets which is not ready may come a moment later. A member
            // that cannot read its Works is ready, and is left alone like one with a taint.
            Self::Taint(_) | Self::NotReady | Self::WorksUnread | Self::DispatchingSuspended => {
                Plugin::TaintToleration
            }
            Self::Affinity | Self::NoData(_) => Plugin::ClusterAffinity,
            Self::NoProvider | Self::NoRegion | Self::NoZones | Self::NoLabel => {
                Plugin::SpreadConstraint
            }
            Self::Evicting => Plugin::ClusterEviction,
        }
    }
}

/// The texts of Karmada, which operators search for.
impl fmt::Display for Rejection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiMissing => f.write_str("cluster(s) did not have the API resource"),
            Self::Taint(taint) => {
                write!(
                    f,
                    "cluster(s) had untolerated taint {{{}}}",
                    describe(taint)
                )
            }
            // Ours: Karmada asks for taints only.
            Self::NotReady => f.write_str("cluster(s) were not ready"),
            Self::WorksUnread => {
                f.write_str("cluster(s) could not read their Works (WorksUpToDate=False)")
            }
            // Ours: Karmada moves workloads there, and does not send them.
            Self::DispatchingSuspended => {
                f.write_str("cluster(s) would not get it: its dispatching is suspended")
            }
            Self::Affinity => {
                f.write_str("cluster(s) did not match the placement cluster affinity constraint")
            }
            Self::NoProvider => f.write_str("cluster(s) did not have provider property"),
            Self::NoRegion => f.write_str("cluster(s) did not have region property"),
            Self::NoZones => f.write_str("cluster(s) did not have zones property"),
            // Ours: Karmada does not spread by labels.
            Self::NoLabel => f.write_str("cluster(s) did not have the label to spread by"),
            // Ours: Karmada knows of no data.
            Self::NoData(object) => write!(
                f,
                "cluster(s) did not have {object}, which is data of the workload"
            ),
            Self::Evicting => f.write_str("cluster(s) is in the process of eviction"),
        }
    }
}

/// Rule for when a cluster from which the workload is being evicted can be chosen again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnRule {
    /// As soon as the cause of the eviction is gone: the task is then removed, and nothing has
    /// moved.
    #[default]
    Recovered,
    /// Return is allowed when the task is complete (Karmada behaviour).
    TaskDone,
    /// At any time.
    Always,
}

/// One binding as the filters see it.
#[derive(Debug)]
pub struct Filters<'a> {
    spec: &'a ResourceBindingSpec,
    status: &'a ResourceBindingStatus,
    placement: &'a Placement,
    options: &'a Options,
    affinity: &'a Affinity<'a>,
    spread: Spread<'a>,
    data: Needed<'a>,
    last_served: Cell<Option<(&'a Kinds, bool)>>,
}

impl<'a> Filters<'a> {
    /// Returns the filters for a binding with this placement, of which `affinity` is in use, and
    /// which needs this data.
    pub fn new(
        (spec, status): (&'a ResourceBindingSpec, &'a ResourceBindingStatus),
        placement: &'a Placement,
        affinity: &'a Affinity<'a>,
        data: Needed<'a>,
        options: &'a Options,
    ) -> Self {
        Self {
            spec,
            status,
            placement,
            options,
            affinity,
            spread: Spread::of(&placement.spread_constraints, options.behaviour),
            data,
            last_served: Cell::new(None),
        }
    }

    /// Returns the tier of the cluster under the affinity in use, or the first rejection. `placed`
    /// says whether the cluster has the workload already.
    pub fn admit(&self, cluster: &'a ClusterInfo, placed: bool) -> Result<u32, Rejection<'a>> {
        let first = self
            .api_enablement(cluster, placed)
            .or_else(|| self.taints(cluster, placed))
            .or_else(|| self.readiness(cluster, placed))
            .or_else(|| Self::works(cluster, placed))
            .or_else(|| self.dispatching(cluster, placed))
            .or_else(|| self.data(cluster, placed));
        if let Some(rejection) = first {
            return Err(rejection);
        }
        let tier = self.tier(cluster).ok_or(Rejection::Affinity)?;
        match self
            .spread_fields(cluster)
            .or_else(|| self.eviction(cluster, placed))
        {
            Some(rejection) => Err(rejection),
            None => Ok(tier),
        }
    }

    /// Returns all rejections, at most one of each filter.
    pub fn all(&self, cluster: &'a ClusterInfo, placed: bool) -> Vec<Rejection<'a>> {
        [
            self.api_enablement(cluster, placed),
            self.taints(cluster, placed),
            self.readiness(cluster, placed),
            Self::works(cluster, placed),
            self.dispatching(cluster, placed),
            self.data(cluster, placed),
            self.tier(cluster).is_none().then_some(Rejection::Affinity),
            self.spread_fields(cluster),
            self.eviction(cluster, placed),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the rejection of a cluster that does not serve the kind; an incomplete list of kinds
    /// counts as complete. What is placed stays.
    fn api_enablement(&self, cluster: &'a ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        let refused =
            self.has(Plugin::ApiEnablement) && !placed && !self.is_served(cluster.kinds());
        refused.then_some(Rejection::ApiMissing)
    }

    /// Returns whether these kinds contain that of the workload. Equal clusters share their kinds,
    /// so that most often the answer for the last one is the answer.
    fn is_served(&self, kinds: &'a Kinds) -> bool {
        if let Some((known, served)) = self.last_served.get()
            && ptr::eq(known, kinds)
        {
            return served;
        }
        let resource = &self.spec.resource;
        let served = kinds.contains(&resource.api_version, &resource.kind);
        self.last_served.set(Some((kinds, served)));
        served
    }

    /// Taints that keep new work away must be tolerated. What is placed stays: driving it out is
    /// for eviction to decide.
    fn taints(&self, cluster: &'a ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        if placed || !cluster.repels() || !self.has(Plugin::TaintToleration) {
            return None;
        }
        let taints = &cluster.cluster().spec.taints;
        taints
            .iter()
            .find(|taint| self.is_refused_by(taint))
            .map(Rejection::Taint)
    }

    /// Returns whether the cluster, having the workload, would not take it if it came anew, or is
    /// silent: the taint that says so comes later.
    pub fn is_closed(&self, cluster: &'a ClusterInfo) -> bool {
        let refused = self.taints(cluster, false);
        let refused = refused.or_else(|| self.readiness(cluster, false));
        let refused = refused.or_else(|| Self::works(cluster, false));
        let refused = refused.or_else(|| self.dispatching(cluster, false));
        refused.is_some() || cluster.has_fallen_silent()
    }

    /// Returns the rejection of a cluster that is not ready, where only ready ones count: who moves
    /// a workload off a failing cluster must not count on one that is silent. That it is
    /// silent is known before the taint is there that says so.
    fn readiness(&self, cluster: &'a ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        let ready_only = matches!(
            self.options.growth,
            Growth::AdmittingOnly | Growth::Elsewhere
        );
        let refused =
            ready_only && !placed && availability::readiness(cluster.cluster()) != conditions::TRUE;
        refused.then_some(Rejection::NotReady)
    }

    /// Returns the rejection of a member that cannot read its Works: it gets no new ones. What is
    /// placed stays, and runs on.
    fn works(cluster: &'a ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        (!placed && !cluster.reads_works()).then_some(Rejection::WorksUnread)
    }

    /// Returns the rejection of a cluster in which dispatching is suspended: no copy is moved to
    /// where none would be made. What is placed stays, and what is kept there because no cluster
    /// fitted is placed there again.
    fn dispatching(&self, cluster: &'a ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        let spec = self.spec;
        // The first placement of a suspended workload is made, and waits (Karmada behaviour).
        let may_move = !spec.clusters.is_empty() || !spec.graceful_eviction_tasks.is_empty();
        if placed || !may_move || self.options.behaviour == Behaviour::Karmada {
            return None;
        }
        let name = cluster.name();
        let task = spec.eviction_task(name);
        let is_kept = task.is_some_and(|it| it.reason == REASON_NO_CLUSTER_FIT);
        (spec.dispatching_suspended_in(name) && !is_kept).then_some(Rejection::DispatchingSuspended)
    }

    /// Returns the rejection of a cluster in which a copy would wait for its data without end. What
    /// is placed stays.
    fn data(&self, cluster: &ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        let lacking = self.data.lacking(cluster.name()).filter(|_| !placed);
        lacking.map(Rejection::NoData)
    }

    fn is_refused_by(&self, taint: &Taint) -> bool {
        let tolerations = &self.placement.cluster_tolerations;
        if taint.effect == NO_EXECUTE && self.options.behaviour == Behaviour::Karmada {
            return !tolerations.iter().any(|it| tolerates(it, taint));
        }
        availability::keeps_out(taint, tolerations)
    }

    /// Returns the tier of the cluster, which must match the affinity in use. This holds for what
    /// is placed, too: a narrowed policy takes workloads back.
    fn tier(&self, cluster: &ClusterInfo) -> Option<u32> {
        let tier = self.affinity.tier(cluster);
        let lenient = !self.has(Plugin::ClusterAffinity);
        tier.or_else(|| lenient.then_some(OUTSIDE))
    }

    /// Returns the rejection of a cluster without the field of a constraint: it cannot be counted
    /// for that constraint.
    fn spread_fields(&self, cluster: &ClusterInfo) -> Option<Rejection<'a>> {
        if !self.spread.any || !self.has(Plugin::SpreadConstraint) {
            return None;
        }
        // The first constraint of the list that cannot be met is the one that is named.
        let mut constraints = self.placement.spread_constraints.iter();
        constraints.find_map(|constraint| {
            let field = constraint.spread_by_field.as_ref();
            let label = constraint.spread_by_label.as_deref();
            let (groups, rejection) = match field.map_or("", |field| field.as_str()) {
                "provider" => (cluster.provider(), Rejection::NoProvider),
                "region" => (cluster.region(), Rejection::NoRegion),
                "zone" => (cluster.zones(), Rejection::NoZones),
                "" if self.spread.label.is_some_and(|(key, _)| label == Some(key)) => {
                    (cluster.label(label.unwrap_or_default()), Rejection::NoLabel)
                }
                _ => return None,
            };
            groups.is_empty().then_some(rejection)
        })
    }

    /// Returns the rejection of a cluster from which the workload is just being driven out: it must
    /// not go back there.
    fn eviction(&self, cluster: &ClusterInfo, placed: bool) -> Option<Rejection<'a>> {
        let task = self.spec.eviction_task(cluster.name())?;
        let refused = match self.options.return_rule {
            ReturnRule::Always => false,
            ReturnRule::TaskDone => true,
            ReturnRule::Recovered => {
                // The cluster shows no sign of what went wrong with the application there, so only
                // the end of the task, or the health of the copy that it keeps, says that it may be
                // tried there again. So it is with one that could not apply the workload. Where it
                // was placed again while the task lasts, which may be for ever (purge mode Never),
                // it stays.
                let keeps_healthy =
                    !task.purges_directly() && self.status.is_healthy_in(cluster.name());
                let is_over = keeps_healthy || !task.is_about_the_copy();
                !(is_over || placed) || self.is_driven_out(cluster)
            }
        };
        refused.then_some(Rejection::Evicting)
    }

    /// Returns whether a taint still drives the workload out.
    fn is_driven_out(&self, cluster: &ClusterInfo) -> bool {
        let mut taints = cluster.cluster().spec.taints.iter();
        taints.any(|it| availability::drives_out(it, &self.placement.cluster_tolerations))
    }

    fn has(&self, plugin: Plugin) -> bool {
        self.options.plugins.has(plugin)
    }
}
