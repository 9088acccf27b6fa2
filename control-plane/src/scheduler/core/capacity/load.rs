//! Room that workloads take of a cluster before it reports that.

use super::{Amounts, Capacity, Demand, PODS, amount_of, find};

/// Resources of a cluster that some pods take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    pub(super) amounts: Amounts,
    pods: i64,
}

impl Load {
    /// Returns what so many replicas take. Without a demand they only take pod slots.
    pub fn of(demand: Option<&Demand>, replicas: i64) -> Self {
        let requests = demand.map_or(&[][..], |it| &it.requests);
        let amounts = requests.iter().map(|(name, request)| {
            let amount = request.saturating_mul(replicas);
            (name.clone(), amount)
        });
        Self {
            amounts: amounts.collect(),
            pods: replicas,
        }
    }

    /// Adds what other pods take.
    pub fn add(&mut self, other: &Self) {
        self.pods = self.pods.saturating_add(other.pods);
        for (name, amount) in &other.amounts {
            match find(&self.amounts, name) {
                Ok(place) => {
                    let sum = &mut self.amounts[place].1;
                    *sum = sum.saturating_add(*amount);
                }
                Err(place) => self.amounts.insert(place, (name.clone(), *amount)),
            }
        }
    }
}

impl Capacity {
    /// Takes the room of some pods.
    pub fn take(&mut self, load: &Load) {
        self.pods = self.pods.saturating_sub(load.pods);
        if self.taken.is_empty() {
            self.taken = vec![0; self.names.len()].into();
        }
        let amounts = self.free.iter_mut().zip(&mut self.taken);
        for (name, (free, taken)) in self.names.iter().zip(amounts) {
            let is_pods = &**name == PODS;
            let asked = amount_of(&load.amounts, name).unwrap_or_default();
            let more = if is_pods { load.pods } else { asked };
            *free = free.saturating_sub(more);
            *taken = taken.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::grade_rule::GradeRule;

    fn demand(cpu: &str) -> Demand {
        Demand::new(&serde_json::from_value(json!({ "cpu": cpu })).unwrap())
    }

    /// Returns clusters of eight cores in four nodes: one that counts no nodes, and one that does.
    fn clusters() -> [Capacity; 2] {
        let summary = json!({"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "20"}});
        let mut graded = summary.clone();
        graded["allocatableModelings"] =
            json!([{"grade": 0, "count": 0}, {"grade": 1, "count": 4}]);
        let range =
            |name: &str, min: &str, max: &str| json!({"name": name, "min": min, "max": max});
        let models = json!([
            {"grade": 0, "ranges": [range("cpu", "0", "2"), range("memory", "0", "16Gi")]},
            {"grade": 1, "ranges": [range("cpu", "2", "1000"), range("memory", "16Gi", "1Ti")]},
        ]);
        [(json!([]), summary), (models, graded)].map(|(models, summary)| {
            let cluster = json!({
                "metadata": {"name": "m1"}, "spec": {"resourceModels": models},
                "status": {"resourceSummary": summary},
            });
            Capacity::of(&serde_json::from_value(cluster).unwrap()).unwrap()
        })
    }

    #[test]
    fn what_is_taken_is_room_for_nobody_else_whether_nodes_are_counted_or_not() {
        // (cores of each of two replicas that are taken, cores that are asked for, room)
        for (taken, asked, room) in [
            ("1", "1", 6),
            ("2", "1", 4),
            ("500m", "2", 3),
            ("4", "1", 0),
        ] {
            for mut capacity in clusters() {
                capacity.take(&Load::of(Some(&demand(taken)), 2));
                let got = capacity.replicas(Some(&demand(asked)), GradeRule::Minimums);
                let kind = if capacity.grades.is_some() {
                    "nodes"
                } else {
                    "sums"
                };
                assert_eq!(got, room, "{kind}: {taken}, {asked}");
            }
        }
    }

    #[test]
    fn pods_without_requests_take_slots() {
        for mut capacity in clusters() {
            capacity.take(&Load::of(None, 15));
            let got = capacity.replicas(Some(&demand("1m")), GradeRule::Ignored);
            assert_eq!(got, 5);
        }
    }

    #[test]
    fn loads_add_up() {
        let mut sum = Load::of(Some(&demand("1")), 2);
        sum.add(&Load::of(None, 3));
        sum.add(&Load::of(Some(&demand("500m")), 2));
        let expected = Load {
            amounts: vec![("cpu".into(), 3_000)],
            pods: 7,
        };
        assert_eq!(sum, expected);
    }

    #[test]
    fn a_resource_of_which_little_is_asked_does_not_close_a_cluster_that_has_plenty_of_it() {
        let demand = |cpu: &str, memory: &str| {
            Demand::new(&serde_json::from_value(json!({"cpu": cpu, "memory": memory})).unwrap())
        };
        for mut capacity in clusters() {
            let kind = capacity.grades.is_some();
            // One core of eight, and one GiB of 64.
            capacity.take(&Load::of(Some(&demand("1", "1Gi")), 1));
            let got = capacity.replicas(Some(&demand("1", "16Mi")), GradeRule::Minimums);
            assert_eq!(got, 7, "nodes are counted: {kind}");
        }
    }
}
