//! Estimates how many complete sets of a workload with several pod templates fit into a cluster.

use muster_shared::api::binding::Component;

use super::{Amounts, Capacity, Demand, Grades, MAX_REPLICAS, PODS_PER_NODE, find};

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
    let mut requests: Amounts = Vec::new();
    for part in parts.iter().filter(|part| part.replicas > 0) {
        for (name, request) in &part.demand.requests {
            let amount = request.saturating_mul(part.replicas);
            match requests.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(position) => requests[position].1 = requests[position].1.saturating_add(amount),
                Err(position) => requests.insert(position, (name.clone(), amount)),
            }
        }
    }
    requests.into_iter().collect()
}

/// A node of a grade, with what is left of it.
struct Node {
    free: Amounts,
    pods: i64,
}

/// Places sets on nodes, each pod on the first node that has room, until one set does not fit or
/// there are `bound`.
fn place(parts: &[Part], grades: &Grades, bound: i64) -> i64 {
    // More nodes than pods are never touched.
    let pods = bound.saturating_mul(parts.iter().map(|part| part.replicas).sum());
    let mut nodes: Vec<Node> = Vec::new();
    for (grade, &count) in grades.model.grades.iter().zip(&grades.nodes) {
        for _ in 0..count.min(pods) {
            nodes.push(Node {
                free: grade.min.clone(),
                pods: PODS_PER_NODE,
            });
        }
    }
    (0..bound)
        .find(|_| !place_one(parts, &mut nodes))
        .unwrap_or(bound)
}

fn place_one(parts: &[Part], nodes: &mut [Node]) -> bool {
    parts.iter().all(|part| {
        (0..part.replicas).all(|_| {
            let node = nodes
                .iter_mut()
                .find(|node| node.pods > 0 && part.demand.fit_into_node(&node.free) > 0);
            node.map(|node| node.take(&part.demand)).is_some()
        })
    })
}

impl Node {
    fn take(&mut self, demand: &Demand) {
        self.pods -= 1;
        for (name, request) in &demand.of_node {
            if let Ok(position) = find(&self.free, name) {
                self.free[position].1 -= request;
            }
        }
    }
}
