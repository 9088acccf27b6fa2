//! Number of a cluster's nodes by grade.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_shared::api::cluster::{Cluster, ResourceModel, ResourceModelRange, ResourceSummary};
use muster_shared::k8s::Quantity;

use super::{Amounts, amount};

/// The nodes of a cluster by grade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grades {
    pub model: Arc<Model>,
    /// Number of nodes of each grade.
    pub nodes: Box<[i64]>,
}

/// Resources of the nodes of each grade, lowest grade first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Model {
    pub grades: Box<[Ends]>,
}

/// The ranges of one grade.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// Lower ends.
    pub min: Amounts,
    /// Upper ends.
    pub max: Amounts,
}

impl Grades {
    /// Returns the grades that a cluster counts; `None` when it counts none, or counts them
    /// wrongly.
    pub fn of(cluster: &Cluster, summary: &ResourceSummary) -> Option<Self> {
        let modelings = &summary.allocatable_modelings;
        let models = &cluster.spec.resource_models;
        if modelings.is_empty()
            || models.is_empty()
            || modelings.iter().any(|grade| grade.count < 0)
        {
            return None;
        }
        let mut counts: BTreeMap<u64, i64> = BTreeMap::new();
        for modeling in modelings {
            let count = counts.entry(modeling.grade).or_default();
            *count = count.saturating_add(modeling.count);
        }
        // Of two models for one grade the last one counts (Karmada behaviour).
        let models: BTreeMap<u64, &ResourceModel> =
            models.iter().map(|model| (model.grade, model)).collect();
        let nodes = |grade: &u64| counts.get(grade).copied().unwrap_or(0);
        Some(Self {
            nodes: models.keys().map(nodes).collect(),
            model: Arc::new(Model {
                grades: models.into_values().map(Ends::of).collect(),
            }),
        })
    }
}

impl Ends {
    fn of(model: &ResourceModel) -> Self {
        let ends = |end: fn(&ResourceModelRange) -> &Quantity| -> Amounts {
            let end = |range: &ResourceModelRange| {
                let amount = amount::of(&range.name, end(range)).unwrap_or(0);
                (range.name.as_str().into(), amount)
            };
            // Of two ranges of one resource the last one counts (Karmada behaviour).
            let ends: BTreeMap<Box<str>, i64> = model.ranges.iter().map(end).collect();
            ends.into_iter().collect()
        };
        Self {
            min: ends(|range| &range.min),
            max: ends(|range| &range.max),
        }
    }
}
