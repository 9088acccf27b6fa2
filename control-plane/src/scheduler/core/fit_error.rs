//! Reasons why a workload got no clusters, in the words of Karmada and kube-scheduler.

use std::collections::BTreeMap;

use muster_shared::api::binding::TargetCluster;
use muster_shared::check::listed;

use super::divide::DivideError;
use super::filter::Rejection;
use super::select::SelectError;

/// Reason why a schedule failed; only the reason is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// No cluster passes the filters.
    #[error("{0}")]
    NoClusterFit(String),
    /// Clusters pass the filters, and cannot meet the spread constraints.
    #[error("failed to select clusters: {0}")]
    Select(#[from] SelectError),
    /// Clusters are selected, and the replicas do not fit.
    #[error("failed to assign replicas: {0}")]
    Divide(#[from] DivideError),
    /// Clusters of the binding are unknown, and the others cannot be chosen without them.
    #[error(
        "cluster {0} cannot be read and was not seen leaving: what is placed stays; \
         make it readable, or exclude it by name in the placement"
    )]
    Unknown(String),
    /// The binding has no placement.
    #[error("no placement is set")]
    NoPlacement,
}

/// Effect of a failure on the binding; Karmada's reasons of the condition `Scheduled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No cluster passes the filters: the binding has no clusters until one does.
    NoClusterFit,
    /// There is not enough capacity: placed replicas stay.
    Unschedulable,
    /// The constraints cannot be met, or the request is invalid: placed replicas stay.
    SchedulerError,
}

impl Kind {
    /// Returns the reason written into the condition.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoClusterFit => "NoClusterFit",
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

/// Reasons that a message gives. Each cluster may have a taint of its own, and what conditions hold
/// is bounded.
const MOST_REASONS: usize = 20;
/// Names that a message gives.
const MOST_NAMED: usize = 5;

impl FitError {
    /// Returns the failure about targets whose clusters nobody knows.
    pub(in crate::scheduler) fn unknown(targets: &[&TargetCluster]) -> Self {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        Self::Unknown(listed(&names, MOST_NAMED))
    }

    /// Returns whether more room would help.
    pub const fn is_shortage(&self) -> bool {
        match self {
            Self::Select(error) => matches!(error, SelectError::NotEnoughCapacity(_)),
            Self::Divide(error) => error.is_shortage(),
            Self::NoClusterFit(_) | Self::Unknown(_) | Self::NoPlacement => false,
        }
    }

    /// Returns what the failure means for the binding.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NoClusterFit(_) => Kind::NoClusterFit,
            Self::Divide(error) if error.is_shortage() => Kind::Unschedulable,
            Self::Select(_) | Self::Divide(_) | Self::Unknown(_) | Self::NoPlacement => {
                Kind::SchedulerError
            }
        }
    }
}

/// Returns how many clusters were refused for which reason, of each cluster the first. `clusters`
/// is the number of all of them, those that are being deleted included.
pub(in crate::scheduler) fn refusals<'a>(
    clusters: usize,
    refused: impl IntoIterator<Item = Rejection<'a>>,
) -> String {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for refusal in refused {
        *reasons.entry(refusal.to_string()).or_default() += 1;
    }
    // kube-scheduler sorts the printed "count reason" texts, not the reasons.
    let mut parts: Vec<String> = reasons
        .iter()
        .take(MOST_REASONS)
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort_unstable();
    if let Some(more) = reasons.len().checked_sub(MOST_REASONS + 1) {
        parts.push(format!("and {} other reasons", more + 1));
    }
    if parts.is_empty() {
        parts.push("no cluster exists".to_owned());
    }
    format!("0/{clusters} clusters are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::Taint;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::taint;
    use crate::scheduler::tests::fixtures::{aggregated, cluster, decide, deployment};

    #[test]
    fn only_where_more_room_would_help_a_workload_is_called_unschedulable() {
        let meaningless = json!({ "replicaScheduling": { "replicaSchedulingType": "Divided" } });
        let nowhere = json!({ "clusterAffinity": { "clusterNames": ["none"] } });
        for (placement, expected) in [
            (aggregated(), "Unschedulable"),
            (meaningless, "SchedulerError"),
            (nowhere, "NoClusterFit"),
        ] {
            let refused = decide(&deployment(30, &placement), &[cluster("m", 10)]).unwrap_err();
            assert_eq!(refused.kind().reason(), expected, "{refused}");
        }
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let counted = refusals(
            5,
            [
                Rejection::Affinity,
                Rejection::Affinity,
                Rejection::NoRegion,
                Rejection::Evicting,
            ],
        );
        assert_eq!(
            counted,
            "0/5 clusters are available: \
             1 cluster(s) did not have region property, \
             1 cluster(s) is in the process of eviction, \
             2 cluster(s) did not match the placement cluster affinity constraint."
        );
        let taints: Vec<Taint> = (0..3_500)
            .map(|number| taint(&number.to_string(), "NoSchedule"))
            .collect();
        let text = refusals(3_500, taints.iter().map(Rejection::Taint));
        assert!(text.ends_with("and 3480 other reasons."), "{text}");
        assert!(text.len() < 1_500, "{}", text.len());
        assert_eq!(
            refusals(0, []),
            "0/0 clusters are available: no cluster exists."
        );
    }
}
