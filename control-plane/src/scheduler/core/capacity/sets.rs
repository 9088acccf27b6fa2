//! Estimates how many complete sets of a workload with several pod templates fit into a cluster.

use muster_shared::api::binding::Component;

use super::{Amounts, Capacity, Demand, Grades, Load, MAX_REPLICAS, PODS_PER_NODE, find};

/// One pod template of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    replicas: i64,
    demand: Demand,
}

impl Part {
    /// Returns the part that a component of a binding asks for.
    pub fn of(component: &Component) -> Self {
        Self {
            replicas: i64::from(component.replicas.max(0)),
            demand: component
                .replica_requirements
                .as_ref()
                .map(|requirements| Demand::new(&requirements.resource_request))
                .unwrap_or_default(),
        }
    }

    /// Returns what the pods of the part take together.
    pub fn load(&self) -> Load {
        Load::of(Some(&self.demand), self.replicas)
    }
}

impl Capacity {
    /// Returns how many complete sets fit, at most [`MAX_REPLICAS`]. A set without pods fits once
    /// per free pod slot.
    pub fn sets(&self, parts: &[Part]) -> i64 {
        if self.pods <= 0 {
            return 0;
        }
        let pods: i64 = parts.iter().map(|part| part.replicas).sum();
        if pods == 0 {
            return self.pods.min(MAX_REPLICAS);
        }
        let free = self.names.iter().cloned().zip(self.free.iter().copied());
        let bound = whole_set(parts)
            .fit_into(&free.collect())
            .min(self.pods / pods)
            .min(MAX_REPLICAS);
        match &self.grades {
            Some(grades) => place(parts, grades, bound),
            None => bound,
        }
    }
}

/// Returns what one set asks for in all.
fn whole_set(parts: &[Part]) -> Demand {
    let mut set = Load::default();
    for part in parts.iter().filter(|part| part.replicas > 0) {
        set.add(&part.load());
    }
    set.amounts.into_iter().collect()
}

/// Pods that are placed at most to count sets: more than any cluster runs, whatever it reports.
const MOST_PODS: i64 = 1_000_000;

/// Nodes of one grade: those that have pods, and the number of those that have none.
struct Stock<'a> {
    used: Vec<Node>,
    unused: i64,
    /// Amounts of a node that has no pods yet.
    fresh: &'a Amounts,
}

/// A node with what is left of it.
struct Node {
    free: Amounts,
    pods: i64,
}

/// The first node on which a pod of a part may still fit: its grade, and its place there. Nodes
/// lose room and never gain any, so that those before it are not tried again.
#[derive(Clone, Copy, Default)]
struct First {
    grade: usize,
    node: usize,
}

/// Places sets on nodes, each pod on the first node that has room, until one set does not fit or
/// there are `bound`.
fn place(parts: &[Part], grades: &Grades, bound: i64) -> i64 {
    let pods: i64 = parts.iter().map(|part| part.replicas).sum();
    let bound = bound.min(MOST_PODS / pods.max(1));
    let nodes = grades.model.grades.iter().zip(&grades.nodes);
    let mut stocks: Vec<Stock<'_>> = nodes
        .map(|(ends, &unused)| Stock {
            used: Vec::new(),
            unused,
            fresh: &ends.min,
        })
        .collect();
    let mut firsts = vec![First::default(); parts.len()];
    (0..bound)
        .find(|_| !place_one(parts, &mut firsts, &mut stocks))
        .unwrap_or(bound)
}

fn place_one(parts: &[Part], firsts: &mut [First], stocks: &mut [Stock<'_>]) -> bool {
    parts
        .iter()
        .zip(firsts)
        .all(|(part, first)| (0..part.replicas).all(|_| first.takes(&part.demand, stocks)))
}

impl First {
    /// Places a pod on the first node that has room, if there is one.
    fn takes(&mut self, demand: &Demand, stocks: &mut [Stock<'_>]) -> bool {
        while let Some(stock) = stocks.get_mut(self.grade) {
            if let Some(node) = stock.used.get_mut(self.node) {
                if node.takes(demand) {
                    return true;
                }
                self.node += 1;
            } else if !stock.opens(demand) {
                self.grade += 1;
                self.node = 0;
            }
        }
        false
    }
}

impl Stock<'_> {
    /// Begins to use one more node, if there is one and it has room for a pod.
    fn opens(&mut self, demand: &Demand) -> bool {
        if self.unused <= 0 || demand.fit_into_node(self.fresh) == 0 {
            return false;
        }
        self.unused -= 1;
        self.used.push(Node {
            free: self.fresh.clone(),
            pods: PODS_PER_NODE,
        });
        true
    }
}

impl Node {
    /// Places a pod here if there is room.
    fn takes(&mut self, demand: &Demand) -> bool {
        if self.pods <= 0 || demand.fit_into_node(&self.free) == 0 {
            return false;
        }
        self.pods -= 1;
        for (name, request) in &demand.of_node {
            if let Ok(position) = find(&self.free, name) {
                self.free[position].1 -= request;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{CPU, Ends, Model};
    use super::*;

    fn part(&(replicas, cpu): &(i64, i64)) -> Part {
        let requests = [(Box::from(CPU), cpu)].into_iter();
        Part {
            replicas,
            demand: requests.filter(|(_, cpu)| *cpu > 0).collect(),
        }
    }

    /// Returns so many nodes with at least so much CPU, for each grade.
    fn graded(nodes: &[(i64, i64)]) -> Grades {
        let ends = |&(_, cpu): &(i64, i64)| Ends {
            min: vec![(CPU.into(), cpu)],
            max: Amounts::new(),
        };
        Grades {
            model: Arc::new(Model {
                grades: nodes.iter().map(ends).collect(),
            }),
            nodes: nodes.iter().map(|(count, _)| *count).collect(),
        }
    }

    /// Places sets as [`place`] does, and tries every node for every pod.
    fn by_looking_at_all_nodes(parts: &[Part], grades: &Grades, bound: i64) -> i64 {
        let of_grade = |(ends, &count): (&Ends, &i64)| {
            let node = |_| Node {
                free: ends.min.clone(),
                pods: PODS_PER_NODE,
            };
            (0..count).map(node).collect::<Vec<_>>()
        };
        let nodes = grades.model.grades.iter().zip(&grades.nodes);
        let mut nodes: Vec<Node> = nodes.flat_map(of_grade).collect();
        let mut one = |part: &Part| nodes.iter_mut().any(|node| node.takes(&part.demand));
        let mut set = || {
            let mut parts = parts.iter();
            parts.all(|part| (0..part.replicas).all(|_| one(part)))
        };
        (0..bound).find(|_| !set()).unwrap_or(bound)
    }

    proptest! {
        #[test]
        fn as_many_sets_fit_as_where_every_node_is_looked_at_for_every_pod(
            parts in prop::collection::vec((0i64..4, 0i64..9), 1..5),
            nodes in prop::collection::vec((0i64..5, 0i64..20), 0..5),
            bound in 0i64..40,
        ) {
            let (parts, grades) = (parts.iter().map(part).collect::<Vec<_>>(), graded(&nodes));
            let expected = by_looking_at_all_nodes(&parts, &grades, bound);
            prop_assert_eq!(place(&parts, &grades, bound), expected);
        }
    }

    #[test]
    fn no_report_of_a_cluster_keeps_the_scheduler_busy() {
        let parts = [part(&(1, 1)), part(&(3, 2))];
        let grades = graded(&[(i64::MAX, 0), (i64::MAX, 1), (i64::MAX, 8)]);
        assert_eq!(place(&parts, &grades, MAX_REPLICAS), MOST_PODS / 4);
    }
}
