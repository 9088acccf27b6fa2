//! Schedules workloads: chooses clusters, and the number of replicas of each.
//!
//! [`schedule`] is a function of a binding and a [`Snapshot`] of the clusters: filter, rank,
//! select, divide. Every controller that places a workload calls it, including eviction, so that
//! the decision does not depend on the caller. `need` says when a binding has to be scheduled,
//! `outcome` what is written.

pub(crate) mod affinity;
pub mod around;
pub(crate) mod bounds;
pub mod candidate;
pub mod capacity;
pub mod cycle;
mod data;
pub mod deselected;
pub mod divide;
pub mod explain;
pub mod filter;
pub mod fit_error;
pub mod need;
pub mod outcome;
pub(in crate::scheduler) mod plugin;
pub mod record;
pub(in crate::scheduler) mod released;
pub mod replacement;
pub mod report;
pub mod return_request;
pub mod select;
pub(in crate::scheduler) mod snapshot;
pub mod step_timer;
pub(in crate::scheduler) mod unknown;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::settings::{Error, Words};

use crate::settings::{
    CUSTOMIZED_CLUSTER_RESOURCE_MODELING, MULTIPLE_POD_TEMPLATES_SCHEDULING, Settings,
};

pub use super::core::cycle::{Attempt, Cycle};
pub use super::core::fit_error::{FitError, Kind};
use crate::settings::grade_rule::GradeRule;
pub use data::DataPlaces;
pub use plugin::{Plugin, Plugins};
pub use snapshot::{ClusterInfo, Snapshot};

/// What may be configured about decisions. The default is what Muster does; [`Options::karmada`] is
/// what Karmada does where the two differ by choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Which rules are in force.
    pub plugins: Plugins,
    /// Rule by which a cluster may take back a workload that is being moved away from it.
    pub return_rule: filter::ReturnRule,
    /// Rule for the resources of a node of a grade.
    pub grade_rule: GradeRule,
    /// Rule for the clusters in which a workload may grow.
    pub growth: Growth,
    /// Whether a workload without replicas keeps its selected clusters
    /// (`--enable-empty-workload-propagation`).
    pub keep_empty: bool,
    /// Whether a workload with components goes where all of them have room (gate
    /// MultiplePodTemplatesScheduling).
    pub components: bool,
    /// Behaviour where Muster and Karmada differ by choice and no other option decides.
    pub behaviour: Behaviour,
}

impl Options {
    /// Returns the options that the settings ask for; [`Settings::check`] has accepted these.
    pub fn of(settings: &Settings) -> Self {
        let grades = settings.gate(&CUSTOMIZED_CLUSTER_RESOURCE_MODELING);
        let options = Self {
            grade_rule: if grades {
                settings.node_grades
            } else {
                GradeRule::Ignored
            },
            keep_empty: settings.enable_empty_workload_propagation,
            components: settings.gate(&MULTIPLE_POD_TEMPLATES_SCHEDULING),
            ..Self::default()
        };
        options.with_plugins(&settings.plugins).unwrap_or(options)
    }

    /// Returns these options with the rules of `--plugins`.
    ///
    /// # Errors
    /// When the list names an unknown rule.
    pub fn with_plugins(self, words: &Words) -> Result<Self, Error> {
        let plugins = Plugins::parse(words)?;
        Ok(Self {
            plugins,
            return_rule: plugins.return_rule(words),
            ..self
        })
    }

    /// Returns the options for moving a workload off a failing cluster: another failing one is no
    /// refuge. Those of [`elsewhere`](Self::elsewhere) are for that already.
    #[must_use]
    pub fn for_departure(self) -> Self {
        let growth = match self.growth {
            Growth::Elsewhere => Growth::Elsewhere,
            _ => Growth::AdmittingOnly,
        };
        Self { growth, ..self }
    }

    /// Returns the options for moving a workload off a failing cluster where those that have it
    /// take no more of it.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        Self {
            growth: Growth::Elsewhere,
            ..self
        }
    }

    /// Returns the options with Karmada's behaviour.
    pub fn karmada() -> Self {
        Self {
            plugins: Plugins::default(),
            return_rule: filter::ReturnRule::TaskDone,
            grade_rule: GradeRule::Minimums,
            growth: Growth::Anywhere,
            keep_empty: false,
            components: false,
            behaviour: Behaviour::Karmada,
        }
    }
}

/// Behaviour of decisions where Muster and Karmada differ by choice. Tests compare that of Karmada
/// with decisions recorded from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// Behaviour of Muster:
    /// - a toleration for a limited time admits nothing new: the workload would be evicted at the
    ///   end of that time, and come back without end;
    /// - affinity groups before the one in use are tried last: a workload has to have a place;
    /// - nothing is moved to a cluster to which dispatching is suspended;
    /// - a result meets each spread constraint, and an absent maximum is none;
    /// - a result keeps the order of the present one if clusters and replicas are the same, so that
    ///   there is nothing to write;
    /// - unknown clusters stay: an object that cannot be read, or that is missing in a short list,
    ///   is not deleted;
    /// - a new placement that was requested prefers no cluster for having the workload;
    /// - what an old copy uses in a cluster that keeps it is room for the workload there;
    /// - a cluster with a taint of effect `PreferNoSchedule` is chosen after others.
    #[default]
    Muster,
    /// Behaviour of Karmada, which does nothing of what Muster adds: only constraints by cluster
    /// and by region are met, the others require the field; the best cluster comes first, so that
    /// a change of capacity changes the result; unknown clusters count as deleted.
    Karmada,
}

/// Clusters with the workload that may get more of its replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// Clusters that would admit the workload anew, as long as they suffice: a tainted cluster has
    /// failed, or is to be left alone.
    #[default]
    PreferAdmitting,
    /// Only clusters that would admit the workload anew. An eviction must not rely on another
    /// failing cluster.
    AdmittingOnly,
    /// None. Clusters that get it anew are as for [`AdmittingOnly`](Self::AdmittingOnly).
    Elsewhere,
    /// All clusters (Karmada behaviour).
    Anywhere,
}

/// Placement of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// The result, complete: it replaces `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// The affinity group in use from now on, for placements that have groups.
    pub affinity_name: Option<String>,
}

/// Decides where the workload of a binding goes.
///
/// The binding is read only for its wish and its history: the result does not depend on the time,
/// nor on the order of clusters.
///
/// # Errors
/// When no allowed set of clusters takes the whole workload; for ordered affinity groups that of
/// the first group, as the most wanted one.
pub fn schedule(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    snapshot: &Snapshot,
    options: &Options,
) -> Result<Decision, FitError> {
    Cycle::run(spec, status, snapshot, options).result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Setting, and what it changes.
    type Case = (fn(&mut Settings), fn(&mut Options));

    #[test]
    fn the_options_follow_the_flags_and_the_gates() {
        fn gate(settings: &mut Settings, gates: &str) {
            settings.feature_gates = gates.parse().unwrap();
        }
        let plain = Options::of(&Settings::default());
        assert_eq!(plain.grade_rule, Settings::default().node_grades);
        assert!(!plain.keep_empty && !plain.components);
        let ungraded: fn(&mut Settings) = |it| gate(it, "CustomizedClusterResourceModeling=false");
        let by_parts: fn(&mut Settings) = |it| gate(it, "MultiplePodTemplatesScheduling=true");
        let averages: fn(&mut Settings) = |it| it.node_grades = GradeRule::Averages;
        let empty: fn(&mut Settings) = |it| it.enable_empty_workload_propagation = true;
        let cases: [Case; 4] = [
            (ungraded, |it| it.grade_rule = GradeRule::Ignored),
            (averages, |it| it.grade_rule = GradeRule::Averages),
            (empty, |it| it.keep_empty = true),
            (by_parts, |it| it.components = true),
        ];
        for (set, change) in cases {
            let (mut settings, mut expected) = (Settings::default(), plain);
            set(&mut settings);
            change(&mut expected);
            assert_eq!(Options::of(&settings), expected);
        }
    }
}
