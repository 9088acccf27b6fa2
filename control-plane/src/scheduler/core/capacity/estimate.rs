//! Estimates for one demand in many clusters.

use std::sync::Arc;

use super::{Capacity, Demand, Ends, Grades, MAX_REPLICAS, Model, Names, PODS_PER_NODE, amount_of};
use crate::settings::grade_rule::GradeRule;

/// Requests by their places among the names of a cluster's resources; `None` when a name is not
/// among them.
type Requests = Vec<(usize, i64)>;

/// Number of times that one demand fits, cluster by cluster.
///
/// The clusters of a fleet are much alike. What depends only on the names of their resources, or
/// only on how their nodes are graded, is found out once for all clusters that share these, and an
/// answer is then a few divisions.
#[derive(Debug)]
pub struct Estimate<'a> {
    demand: Option<&'a Demand>,
    rule: GradeRule,
    requests: Option<(&'a Names, Option<Requests>)>,
    /// Number of times that the demand fits into a node of each grade.
    by_grade: Option<(&'a Arc<Model>, Vec<i64>)>,
}

impl<'a> Estimate<'a> {
    /// Returns the estimate for a demand. Without one only pod slots count.
    pub const fn new(demand: Option<&'a Demand>, rule: GradeRule) -> Self {
        Self {
            demand,
            rule,
            requests: None,
            by_grade: None,
        }
    }

    /// Returns how many replicas fit into the cluster, at most [`MAX_REPLICAS`].
    pub fn replicas(&mut self, capacity: &'a Capacity) -> i64 {
        if capacity.pods <= 0 {
            return 0;
        }
        let Some(demand) = self.demand else {
            return capacity.pods.min(MAX_REPLICAS);
        };
        let room = match &capacity.grades {
            Some(grades) if self.rule == GradeRule::Averages => {
                left(averages(demand, capacity, grades), demand, capacity)
            }
            Some(grades) if self.rule != GradeRule::Ignored => {
                let room = self
                    .per_node(demand, &grades.model)
                    .iter()
                    .zip(&grades.nodes)
                    .fold(0, |room: i64, (each, nodes)| {
                        room.saturating_add(each.saturating_mul(*nodes))
                    });
                left(room, demand, capacity)
            }
            _ => self.within_sums(demand, capacity),
        };
        room.max(0).min(capacity.pods).min(MAX_REPLICAS)
    }

    fn within_sums(&mut self, demand: &Demand, capacity: &'a Capacity) -> i64 {
        let names = &capacity.names;
        let is_known = |(known, _): &(&Names, _)| Arc::ptr_eq(known, names);
        if !self.requests.as_ref().is_some_and(is_known) {
            let places = demand.requests.iter().map(|(name, request)| {
                let place = names.binary_search(name).ok()?;
                Some((place, *request))
            });
            self.requests = Some((names, places.collect()));
        }
        let requests = self.requests.iter().find_map(|(_, it)| it.as_ref());
        requests.map_or(0, |requests| {
            requests
                .iter()
                .map(|&(place, request)| capacity.free[place].max(0) / request)
                .min()
                .unwrap_or(i64::MAX)
        })
    }

    fn per_node(&mut self, demand: &Demand, model: &'a Arc<Model>) -> &[i64] {
        let is_known = |(known, _): &(&Arc<Model>, _)| Arc::ptr_eq(known, model);
        if !self.by_grade.as_ref().is_some_and(is_known) {
            let grades = model.grades.iter();
            let grades = grades.map(|grade| grade.room(demand, self.rule));
            self.by_grade = Some((model, grades.collect()));
        }
        self.by_grade.as_ref().map_or(&[], |(_, by_grade)| by_grade)
    }
}

/// Returns what is left of the room on nodes, which was counted before something was taken of the
/// cluster: as much of it as is left of the scarcest resource that is asked for.
fn left(room: i64, demand: &Demand, capacity: &Capacity) -> i64 {
    if capacity.taken.is_empty() {
        return room;
    }
    let amounts = capacity.names.iter().zip(&capacity.free);
    let amounts = amounts.zip(&capacity.taken);
    let left = amounts.filter_map(|((name, free), taken)| {
        amount_of(&demand.requests, name)?;
        let (free, taken) = (i128::from((*free).max(0)), i128::from((*taken).max(0)));
        let before = (free + taken).max(1);
        i64::try_from(i128::from(room) * free / before).ok()
    });
    left.min().unwrap_or(room)
}

impl Ends {
    /// Returns how often a demand fits into a node of the grade.
    pub fn room(&self, demand: &Demand, rule: GradeRule) -> i64 {
        let certain = demand.fit_into_node(&self.min).min(PODS_PER_NODE);
        match rule {
            GradeRule::Minimums | GradeRule::Averages | GradeRule::Ignored => certain,
            GradeRule::UpperBounds => certain.max(i64::from(demand.is_below(&self.max))),
        }
    }
}

/// Returns how often the demand fits when each node has the lower ends of its grade and an equal
/// share of the rest.
fn averages(demand: &Demand, capacity: &Capacity, grades: &Grades) -> i64 {
    let by_grade = || grades.model.grades.iter().zip(&grades.nodes);
    let all: i64 = grades
        .nodes
        .iter()
        .fold(0, |all, nodes| all.saturating_add(*nodes));
    let (mut modelled, mut by_sum) = (Vec::new(), i64::MAX);
    for (name, request) in &demand.of_node {
        let place = capacity.names.binary_search(name);
        let free = place.map_or(0, |place| capacity.free[place].max(0));
        let minimum = |grade: &Ends| amount_of(&grade.min, name);
        if grades
            .model
            .grades
            .iter()
            .all(|grade| minimum(grade).is_none())
        {
            by_sum = by_sum.min(free / request);
            continue;
        }
        let promised = by_grade().fold(0i64, |sum, (grade, nodes)| {
            sum.saturating_add(minimum(grade).unwrap_or(0).saturating_mul(*nodes))
        });
        let share = free.saturating_sub(promised).max(0) / all.max(1);
        modelled.push((name, *request, share));
    }
    let by_node = by_grade().fold(0i64, |room, (grade, nodes)| {
        let each = modelled.iter().map(|(name, request, share)| {
            amount_of(&grade.min, name)
                .unwrap_or(0)
                .saturating_add(*share)
                / request
        });
        let each = each.min().unwrap_or(i64::MAX).min(PODS_PER_NODE);
        room.saturating_add(each.saturating_mul(*nodes))
    });
    by_node.min(by_sum)
}
