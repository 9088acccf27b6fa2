//! How many more replicas fit into a cluster, judged by what its agent reported: the sums of its resources, or the
//! grades of its nodes.

mod amount;
mod sets;

use std::collections::BTreeMap;

use muster_shared::api::cluster::{Cluster, ResourceSummary};
use muster_shared::k8s::Quantity;

pub use sets::Part;

/// An estimate is at most this: counts of replicas have 31 bits in the API.
pub const MAX_REPLICAS: i64 = i32::MAX as i64;

/// Pods that a node is taken to have room for where only its grade is known (kubelet's default).
const PODS_PER_NODE: i64 = 110;

const CPU: &str = "cpu";
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
    /// Grades are not looked at; only the sums of the cluster count (gate `CustomizedClusterResourceModeling` off).
    Ignored,
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
        let pods = amount_of(&free, PODS).unwrap_or(0);
        Some(Self {
            pods,
            free,
            grades: grades(cluster, summary),
        })
    }

    /// Whether something may fit that did not fit into `earlier`.
    pub fn exceeds(&self, earlier: &Self) -> bool {
        self.grades != earlier.grades
            || self.free.iter().any(|(name, free)| {
                amount_of(&earlier.free, name).is_none_or(|earlier| *free > earlier)
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
            Some(grades) if rule != GradeRule::Ignored => grades
                .iter()
                .map(|grade| grade.replicas(demand, rule))
                .fold(0, i64::saturating_add),
            _ => demand.fit_into(&self.free),
        };
        room.min(self.pods).min(MAX_REPLICAS)
    }
}

impl Grade {
    fn replicas(&self, demand: &Demand, rule: GradeRule) -> i64 {
        let certain = demand.fit_into_node(&self.min).min(PODS_PER_NODE);
        let each = match rule {
            GradeRule::Minimums | GradeRule::Ignored => certain,
            GradeRule::UpperBounds => certain.max(i64::from(demand.is_below(&self.max))),
        };
        self.nodes.saturating_mul(each)
    }
}

/// The nodes by grade, lowest grade first.
fn grades(cluster: &Cluster, summary: &ResourceSummary) -> Option<Vec<Grade>> {
    let modelings = &summary.allocatable_modelings;
    let models = &cluster.spec.resource_models;
    if modelings.is_empty() || models.is_empty() || modelings.iter().any(|grade| grade.count < 0) {
        return None;
    }
    let mut counts: BTreeMap<u64, i64> = BTreeMap::new();
    for modeling in modelings {
        let count = counts.entry(modeling.grade).or_default();
        *count = count.saturating_add(modeling.count);
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
                            amount::of(&range.name, end(range)).unwrap_or(0),
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
            .map(|(name, quantity)| {
                // A request that cannot be read is granted by nobody.
                (
                    name.as_str().into(),
                    amount::of(name, quantity).unwrap_or(i64::MAX),
                )
            })
            .filter(|&(_, amount)| amount > 0)
            .collect();
        requests.sort_unstable();
        Self { requests }
    }

    /// How often the demand fits into these amounts; without requests, without end.
    fn fit_into(&self, amounts: &Amounts) -> i64 {
        fit(self.requests.iter(), amounts)
    }

    /// How often the demand fits into a node.
    fn fit_into_node(&self, amounts: &Amounts) -> i64 {
        fit(self.node_requests(), amounts)
    }

    /// Whether each request to a node is below the amount of that name.
    fn is_below(&self, amounts: &Amounts) -> bool {
        self.node_requests()
            .all(|(name, request)| amount_of(amounts, name).is_some_and(|amount| *request < amount))
    }

    /// The requests that a node is asked for; other names mean nothing to it.
    fn node_requests(&self) -> impl Iterator<Item = &(Box<str>, i64)> {
        self.requests
            .iter()
            .filter(|(name, _)| is_node_resource(name))
    }
}

/// How often the requests fit into the amounts at once.
fn fit<'a>(requests: impl Iterator<Item = &'a (Box<str>, i64)>, amounts: &Amounts) -> i64 {
    requests
        .map(|(name, request)| amount_of(amounts, name).unwrap_or(0).max(0) / request)
        .min()
        .unwrap_or(i64::MAX)
}

/// Whether the Kubernetes scheduler counts the resource on nodes: the built-in ones and extended ones, pod slots
/// aside.
fn is_node_resource(name: &str) -> bool {
    matches!(name, CPU | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || (name.contains('/') && !name.starts_with("requests."))
}

fn amount_of(amounts: &Amounts, name: &str) -> Option<i64> {
    find(amounts, name).ok().map(|position| amounts[position].1)
}

fn find(amounts: &Amounts, name: &str) -> Result<usize, usize> {
    amounts.binary_search_by(|(candidate, _)| (**candidate).cmp(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn capacity(cluster: Value) -> Capacity {
        Capacity::of(&serde_json::from_value(cluster).unwrap()).unwrap()
    }

    fn demand(cpu: &str, memory: &str) -> Demand {
        Demand::new(&serde_json::from_value(json!({ "cpu": cpu, "memory": memory })).unwrap())
    }

    /// The three clusters of "Scheduling based on the general cluster resource model".
    #[test]
    fn the_sums_of_a_cluster_hold_what_is_neither_used_nor_short_of_pod_slots() {
        let member = |used_cpu: &str, used_pods: &str| {
            capacity(json!({ "status": { "resourceSummary": {
                "allocatable": {
                    "cpu": "4", "ephemeral-storage": "206291924Ki", "hugepages-1Gi": "0",
                    "hugepages-2Mi": "0", "memory": "16265856Ki", "pods": "110",
                },
                "allocated": { "cpu": used_cpu, "memory": "290Mi", "pods": used_pods },
            } } }))
        };
        for (used_cpu, used_pods, replicas) in [("950m", "11", 6), ("2", "11", 4), ("2", "110", 0)]
        {
            let room = member(used_cpu, used_pods)
                .replicas(Some(&demand("500m", "0")), GradeRule::Minimums);
            assert_eq!(room, replicas, "{used_cpu} {used_pods}");
        }
    }

    /// The three clusters of "Scheduling based on customized cluster resource models", with the default grades.
    fn graded(counts: &[(u64, i64)]) -> Capacity {
        let ranges = [
            ("0", "1", "0", "4Gi"),
            ("1", "2", "4Gi", "16Gi"),
            ("2", "4", "16Gi", "32Gi"),
            ("4", "8", "32Gi", "64Gi"),
            ("8", "16", "64Gi", "128Gi"),
            ("16", "32", "128Gi", "256Gi"),
            ("32", "64", "256Gi", "512Gi"),
        ];
        let models: Vec<Value> = ranges
            .iter()
            .enumerate()
            .map(|(grade, (min_cpu, max_cpu, min_memory, max_memory))| {
                json!({ "grade": grade, "ranges": [
                    { "name": "cpu", "min": min_cpu, "max": max_cpu },
                    { "name": "memory", "min": min_memory, "max": max_memory },
                ] })
            })
            .collect();
        let counts: Vec<Value> = counts
            .iter()
            .map(|(grade, count)| json!({ "grade": grade, "count": count }))
            .collect();
        capacity(json!({
            "spec": { "resourceModels": models },
            "status": { "resourceSummary": {
                "allocatable": { "cpu": "1k", "memory": "10Ti", "pods": "10k" },
                "allocatableModelings": counts,
            } },
        }))
    }

    #[test]
    fn a_grade_holds_what_its_ranges_allow_or_only_what_they_promise() {
        let members = [
            graded(&[(2, 1), (3, 6)]),
            graded(&[(2, 4), (3, 4)]),
            graded(&[(6, 1)]),
        ];
        for (memory, rule, expected) in [
            // The worked examples: a node may have anything below its upper ends.
            ("20Gi", GradeRule::UpperBounds, [7, 8, 10]),
            ("60Gi", GradeRule::UpperBounds, [6, 4, 4]),
            // Karmada: a node has its lower ends for certain, and no more.
            ("20Gi", GradeRule::Minimums, [6, 4, 10]),
            ("60Gi", GradeRule::Minimums, [0, 0, 4]),
        ] {
            let demand = demand("3", memory);
            let rooms = members
                .each_ref()
                .map(|member| member.replicas(Some(&demand), rule));
            assert_eq!(rooms, expected, "{memory} {rule:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_free() {
        let broken = capacity(json!({ "status": { "resourceSummary": {
            "allocatable": { "cpu": "lots", "memory": "8Gi", "pods": "10" },
        } } }));
        assert_eq!(
            broken.replicas(Some(&demand("1", "0")), GradeRule::Minimums),
            0
        );
        assert_eq!(
            broken.replicas(Some(&demand("0", "1Gi")), GradeRule::Minimums),
            8
        );
        assert_eq!(
            broken.replicas(Some(&demand("0", "lots")), GradeRule::Minimums),
            0
        );
    }
}
