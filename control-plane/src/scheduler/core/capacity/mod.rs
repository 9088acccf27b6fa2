//! Estimates how many more replicas fit into a cluster, from its agent's report: the totals of its
//! resources, or the grades of its nodes.

pub(crate) mod amount;
mod demand;
mod estimate;
mod grades;
mod load;
mod sets;

use std::sync::Arc;

use muster_shared::api::cluster::Cluster;

use crate::settings::grade_rule::GradeRule;

pub use demand::Demand;
pub use estimate::Estimate;
use grades::{Ends, Grades, Model};
pub use load::Load;
pub use sets::Part;

/// An estimate is at most this: counts of replicas have 31 bits in the API.
pub const MAX_REPLICAS: i64 = i32::MAX as i64;

/// Pods that a node is taken to have room for where only its grade is known (kubelet's default).
const PODS_PER_NODE: i64 = 110;

const CPU: &str = "cpu";
const PODS: &str = "pods";

/// Amounts by resource, sorted by name: thousandths of a core for CPU, whole units for all else.
type Amounts = Vec<(Box<str>, i64)>;

/// Names of resources, sorted.
type Names = Arc<[Box<str>]>;

/// Free capacity of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Free pod slots.
    pods: i64,
    /// The resources that the cluster has at all.
    names: Names,
    /// Free amount of each resource.
    free: Box<[i64]>,
    /// What was taken of each since the report, which the counts of nodes do not show; empty if
    /// nothing was.
    taken: Box<[i64]>,
    /// The nodes by grade; `None` when the cluster counts no grades, or counts them wrongly.
    grades: Option<Grades>,
}

impl Capacity {
    /// Returns the capacity that a cluster has reported, or `None` when it has not.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let summary = cluster.status.as_ref()?.resource_summary.as_ref()?;
        // The map is sorted, and so are these.
        let names: Names = summary
            .allocatable
            .keys()
            .map(|it| it.as_str().into())
            .collect();
        let free: Box<[i64]> = names
            .iter()
            .map(|name| amount::free(summary, name))
            .collect();
        Some(Self {
            pods: amount::free_pods(summary),
            names,
            free,
            taken: Box::default(),
            grades: Grades::of(cluster, summary),
        })
    }

    /// Shares with others what it has in common with them, so that an [`Estimate`] sees at a glance
    /// that it is the same.
    pub fn share<'a>(&mut self, others: impl Iterator<Item = &'a Self> + Clone) {
        let mut names = others.clone().map(|other| &other.names);
        if let Some(names) = names.find(|names| **names == self.names) {
            self.names = Arc::clone(names);
        }
        if let Some(grades) = &mut self.grades {
            let mut models = others.filter_map(|other| Some(&other.grades.as_ref()?.model));
            if let Some(model) = models.find(|model| **model == grades.model) {
                grades.model = Arc::clone(model);
            }
        }
    }

    /// Returns whether something may fit that did not fit into `earlier`.
    pub fn exceeds(&self, earlier: &Self) -> bool {
        let mut amounts = self.names.iter().zip(&self.free);
        self.grades != earlier.grades
            || amounts.any(|(name, free)| match earlier.names.binary_search(name) {
                Ok(place) => *free > earlier.free[place],
                Err(_) => true,
            })
    }

    /// Returns how many replicas fit, at most [`MAX_REPLICAS`]. Without a demand only pod slots
    /// count.
    pub fn replicas(&self, demand: Option<&Demand>, rule: GradeRule) -> i64 {
        Estimate::new(demand, rule).replicas(self)
    }
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

    #[test]
    fn amounts_of_pods_are_rounded_before_they_are_subtracted() {
        for (allocatable, allocated, allocating, expected) in [
            ("10", "500m", "0", 9),
            ("10", "500m", "500m", 8),
            ("9500m", "1", "0", 9),
            ("10", "3", "2", 5),
            ("1", "500m", "0", 0),
        ] {
            let member = capacity(json!({ "status": { "resourceSummary": {
                "allocatable": { "cpu": "100", "pods": allocatable },
                "allocated": { "pods": allocated }, "allocating": { "pods": allocating },
            } } }));
            let rooms = [None, Some(&demand("1", "0"))]
                .map(|demand| member.replicas(demand, GradeRule::Minimums));
            assert_eq!(
                rooms, [expected; 2],
                "{allocatable} {allocated} {allocating}"
            );
        }
        let unlimited =
            json!({ "status": { "resourceSummary": { "allocatable": { "cpu": "1" } } } });
        assert_eq!(capacity(unlimited).replicas(None, GradeRule::Minimums), 0);
    }

    /// Returns the three clusters of "Scheduling based on customized cluster resource models", with
    /// the default grades.
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
            // The upper end itself belongs to the next grade.
            ("32Gi", GradeRule::UpperBounds, [6, 4, 8]),
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
    fn of_a_grade_or_a_resource_that_stands_twice_the_last_one_counts() {
        let range = |min: &str| json!({ "name": "cpu", "min": min, "max": "64" });
        let member = |grades: &[&[&str]]| {
            let ranges = |mins: &[&str]| -> Value { mins.iter().map(|it| range(it)).collect() };
            let models = grades.iter();
            let models = models.map(|it| json!({ "grade": 1, "ranges": ranges(it) }));
            capacity(json!({
                "spec": { "resourceModels": models.collect::<Vec<_>>() },
                "status": { "resourceSummary": {
                    "allocatable": { "cpu": "100", "pods": "1k" },
                    "allocatableModelings": [{ "grade": 1, "count": 2 }],
                } },
            }))
        };
        // Each list makes a grade 1 with a range of cores from each of these amounts.
        for (what, grades, expected) in [
            ("a grade", &[&["2"][..], &["8"]][..], 16),
            ("a smaller grade after a larger one", &[&["8"], &["2"]], 4),
            ("a resource", &[&["8", "2"]], 4),
            ("a resource, three times", &[&["2", "4", "8"]], 16),
        ] {
            let room = member(grades).replicas(Some(&demand("1", "0")), GradeRule::Minimums);
            assert_eq!(room, expected, "{what}");
        }
    }

    /// Checks four nodes of 12 cores and 16 GiB, which memory puts into the grade of 2 to 4 cores.
    #[test]
    fn averages_give_nodes_back_what_their_weakest_resource_hides() {
        let mut cluster = json!({
            "spec": { "resourceModels": [{ "grade": 2, "ranges": [
                { "name": "cpu", "min": "2", "max": "4" },
                { "name": "memory", "min": "16Gi", "max": "32Gi" },
            ] }] },
            "status": { "resourceSummary": {
                "allocatable": { "cpu": "48", "memory": "64Gi", "pods": "440", "a.example/gpu": "6" },
                "allocatableModelings": [{ "grade": 2, "count": 4 }],
            } },
        });
        let room = |cluster: &Value, requests: Value| {
            let demand = Demand::new(&serde_json::from_value(requests).unwrap());
            [GradeRule::Minimums, GradeRule::Averages, GradeRule::Ignored]
                .map(|rule| capacity(cluster.clone()).replicas(Some(&demand), rule))
        };
        // Eleven cores fit on each node, five on each twice; sums would cut replicas in pieces.
        assert_eq!(room(&cluster, json!({ "cpu": "11" })), [0, 4, 4]);
        assert_eq!(room(&cluster, json!({ "cpu": "5" })), [0, 8, 9]);
        assert_eq!(room(&cluster, json!({ "cpu": "2" })), [4, 24, 24]);
        // What grades do not know is counted by its sum.
        assert_eq!(
            room(&cluster, json!({ "cpu": "1", "a.example/gpu": "2" })),
            [0, 3, 3]
        );
        // Sums that contradict the grades give nothing beyond them.
        cluster["status"]["resourceSummary"]["allocated"] = json!({ "cpu": "45" });
        assert_eq!(room(&cluster, json!({ "cpu": "2" })), [4, 4, 1]);
    }

    #[test]
    fn a_node_is_asked_for_what_is_counted_on_nodes_and_for_nothing_else() {
        let member = graded(&[(6, 1)]);
        for (name, expected) in [
            ("cpu", 32),
            ("ephemeral-storage", 0),
            ("hugepages-2Mi", 0),
            ("attachable-volumes-csi", 0),
            ("a.example/gpu", 0),
            ("requests.kubernetes.io/gpu", 0),
            // The names of quotas are no names of resources, and pods are counted by themselves.
            ("requests.a.example/gpu", PODS_PER_NODE),
            ("count", PODS_PER_NODE),
            ("pods", PODS_PER_NODE),
        ] {
            let demand = Demand::new(&serde_json::from_value(json!({ name: "1" })).unwrap());
            let room = member.replicas(Some(&demand), GradeRule::Minimums);
            assert_eq!(room, expected, "{name}");
        }
    }

    #[test]
    fn capacities_share_what_is_the_same_and_become_no_others() {
        let member = |min: &str, name: &str| {
            capacity(json!({
                "spec": { "resourceModels": [{ "grade": 0, "ranges": [
                    { "name": "cpu", "min": min, "max": "64" },
                ] }] },
                "status": { "resourceSummary": {
                    "allocatable": { "cpu": "48", "pods": "440", name: "6" },
                    "allocatableModelings": [{ "grade": 0, "count": 4 }],
                } },
            }))
        };
        let model = |it: &Capacity| Arc::clone(&it.grades.as_ref().unwrap().model);
        let known = member("2", "memory");
        for (min, name, same_model, same_names) in [
            ("2", "memory", true, true),
            ("2", "a.example/gpu", true, false),
            ("4", "memory", false, true),
            ("4", "a.example/gpu", false, false),
        ] {
            let alone = member(min, name);
            let mut sharing = alone.clone();
            sharing.share([&known].into_iter());
            assert_eq!(sharing, alone, "{min} {name}");
            let shared = (
                Arc::ptr_eq(&model(&sharing), &model(&known)),
                Arc::ptr_eq(&sharing.names, &known.names),
            );
            assert_eq!(shared, (same_model, same_names), "{min} {name}");
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
