//! How many more replicas fit into a cluster, judged by what its agent reported: the sums of its resources, or the
//! grades of its nodes.

use std::collections::BTreeMap;

use muster_shared::api::cluster::{Cluster, ResourceSummary};
use muster_shared::k8s::Quantity;

use super::amount;

/// An estimate is at most this: counts of replicas have 31 bits in the API.
pub const MAX_REPLICAS: i64 = i32::MAX as i64;

/// Pods that a node is taken to have room for where only its grade is known (kubelet's default).
const PODS_PER_NODE: i64 = 110;

const PODS: &str = "pods";

/// What a node of a grade is taken to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GradeRule {
    /// As many replicas as fit into the lower ends of its ranges (Karmada behaviour): never too many.
    #[default]
    Minimums,
    /// At least one, if that fits below the upper ends: the rule of the worked examples in the documentation of
    /// cluster resource models.
    UpperBounds,
}

/// Amounts by resource, sorted by name: thousandths of a core for CPU, whole units for all else.
type Amounts = Vec<(Box<str>, i64)>;

/// What a cluster has room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Free pod slots.
    pods: i64,
    /// Free amounts of what the cluster has at all.
    free: Amounts,
    /// The nodes by grade; `None` when the cluster counts no grades, or counts them wrongly.
    grades: Option<Vec<Grade>>,
}

/// The nodes of one grade.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grade {
    nodes: i64,
    /// Lower ends of the ranges.
    min: Amounts,
    /// Upper ends of the ranges.
    max: Amounts,
}

impl Capacity {
    /// The capacity that a cluster has reported, or `None` when it has not.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let summary = cluster.status.as_ref()?.resource_summary.as_ref()?;
        let mut free: Amounts = summary
            .allocatable
            .keys()
            .map(|name| (name.as_str().into(), amount::free(summary, name)))
            .collect();
        free.sort_unstable();
        let pods = find(&free, PODS).unwrap_or(0);
        Some(Self {
            pods,
            free,
            grades: grades(cluster, summary),
        })
    }

    /// How many replicas fit, at most [`MAX_REPLICAS`]. Without a demand only pod slots count.
    pub fn replicas(&self, demand: Option<&Demand>, rule: GradeRule) -> i64 {
        if self.pods <= 0 {
            return 0;
        }
        let Some(demand) = demand else {
            return self.pods.min(MAX_REPLICAS);
        };
        let room = match &self.grades {
            Some(grades) => grades
                .iter()
                .map(|grade| grade.replicas(demand, rule))
                .fold(0, i64::saturating_add),
            None => demand.fit_into(&self.free),
        };
        room.min(self.pods).min(MAX_REPLICAS)
    }
}

impl Grade {
    fn replicas(&self, demand: &Demand, rule: GradeRule) -> i64 {
        let certain = demand.fit_into(&self.min).min(PODS_PER_NODE);
        let each = match rule {
            GradeRule::Minimums => certain,
            GradeRule::UpperBounds => certain.max(i64::from(demand.is_below(&self.max))),
        };
        self.nodes.saturating_mul(each)
    }
}

/// The nodes by grade, lowest grade first.
fn grades(cluster: &Cluster, summary: &ResourceSummary) -> Option<Vec<Grade>> {
    let counts: BTreeMap<u64, i64> = summary
        .allocatable_modelings
        .iter()
        .map(|modeling| (modeling.grade, modeling.count))
        .collect();
    let models = &cluster.spec.resource_models;
    if counts.is_empty() || models.is_empty() || counts.values().any(|&count| count < 0) {
        return None;
    }
    let mut grades: Vec<(u64, Grade)> = models
        .iter()
        .filter_map(|model| {
            let nodes = *counts.get(&model.grade)?;
            let ends = |end: fn(&muster_shared::api::cluster::ResourceModelRange) -> &Quantity| {
                let mut ends: Amounts = model
                    .ranges
                    .iter()
                    .map(|range| {
                        (
                            range.name.as_str().into(),
                            amount::of(&range.name, end(range)),
                        )
                    })
                    .collect();
                ends.sort_unstable();
                ends
            };
            let (min, max) = (ends(|range| &range.min), ends(|range| &range.max));
            Some((model.grade, Grade { nodes, min, max }))
        })
        .collect();
    grades.sort_unstable_by_key(|(grade, _)| *grade);
    Some(grades.into_iter().map(|(_, grade)| grade).collect())
}

/// What one replica asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Requests above zero; what is asked in fractions of a unit is rounded up.
    requests: Amounts,
}

impl Demand {
    /// The demand of these requests.
    pub fn new(requests: &BTreeMap<String, Quantity>) -> Self {
        let mut requests: Amounts = requests
            .iter()
            .map(|(name, quantity)| (name.as_str().into(), amount::of(name, quantity)))
            .filter(|&(_, amount)| amount > 0)
            .collect();
        requests.sort_unstable();
        Self { requests }
    }

    /// How often the demand fits into these amounts; without requests, without end.
    fn fit_into(&self, amounts: &Amounts) -> i64 {
        self.requests
            .iter()
            .map(|(name, request)| find(amounts, name).unwrap_or(0).max(0) / request)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Whether each request is below the amount of that name.
    fn is_below(&self, amounts: &Amounts) -> bool {
        self.requests
            .iter()
            .all(|(name, request)| find(amounts, name).is_some_and(|amount| *request < amount))
    }
}

fn find(amounts: &Amounts, name: &str) -> Option<i64> {
    amounts
        .binary_search_by(|(candidate, _)| (**candidate).cmp(name))
        .ok()
        .map(|position| amounts[position].1)
}
