//! The demands of what waits: the first different ones each by itself, all further ones together.

use std::collections::HashMap;

use crate::scheduler::core::capacity::{Capacity, Demand};
use crate::settings::grade_rule::GradeRule;

/// Number of a demand; it is not used again. `None` stands for all demands that have none.
pub type DemandId = Option<u32>;

/// The demands. Only so many different ones have a number.
#[derive(Debug)]
pub struct Demands {
    most: usize,
    next: u32,
    numbers: HashMap<Option<Demand>, u32>,
    known: HashMap<u32, Known>,
}

#[derive(Debug)]
struct Known {
    demand: Option<Demand>,
    members: usize,
}

impl Demands {
    /// Returns an empty collection in which `most` different demands have a number.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            next: 0,
            numbers: HashMap::new(),
            known: HashMap::new(),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Adds a demand, and returns its number.
    pub fn insert(&mut self, demand: Option<Demand>) -> DemandId {
        if let Some(&id) = self.numbers.get(&demand)
            && let Some(known) = self.known.get_mut(&id)
        {
            known.members += 1;
            return Some(id);
        }
        if self.numbers.len() >= self.most {
            return None;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(demand.clone(), id);
        let known = Known { demand, members: 1 };
        self.known.insert(id, known);
        Some(id)
    }

    /// Takes a demand out.
    pub fn remove(&mut self, id: DemandId) {
        let Some(id) = id else {
            return;
        };
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        known.members -= 1;
        if known.members == 0
            && let Some(known) = self.known.remove(&id)
        {
            self.numbers.remove(&known.demand);
        }
    }

    /// Returns how many more replicas of a demand fit `now` than `before`: one where that is not
    /// known of each.
    pub fn growth(
        &self,
        id: DemandId,
        before: Option<&Capacity>,
        now: &Capacity,
        rule: GradeRule,
    ) -> i64 {
        let Some(id) = id else {
            return 1;
        };
        let Some(known) = self.known.get(&id) else {
            return 0;
        };
        let room = |capacity: &Capacity| capacity.replicas(known.demand.as_ref(), rule);
        (room(now) - before.map_or(0, room)).max(0)
    }
}
