//! The demands of what waits, put together where there are too many different ones.

use std::collections::HashMap;

use crate::scheduler::core::capacity::{Demand, Likeness, Range};

/// Number of a range; it is not used again.
pub type RangeId = u32;

/// The ranges that the demands are put into. So many different demands have one each; further ones
/// share one with those that are near them.
#[derive(Debug)]
pub struct Ranges {
    most: usize,
    next: RangeId,
    numbers: HashMap<Likeness, RangeId>,
    known: HashMap<RangeId, Known>,
}

#[derive(Debug)]
struct Known {
    likeness: Likeness,
    range: Range,
    members: usize,
}

impl Ranges {
    /// Returns ranges without demands; `most` demands are distinguished.
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

    pub fn get(&self, id: RangeId) -> Option<&Range> {
        self.known.get(&id).map(|known| &known.range)
    }

    /// Puts a demand into the range of those that are like it.
    pub fn insert(&mut self, demand: Option<&Demand>) -> RangeId {
        let same = Likeness::same(demand);
        let is_told_apart = self.numbers.len() < self.most || self.numbers.contains_key(&same);
        let likeness = if is_told_apart {
            same
        } else {
            Likeness::near(demand)
        };
        if let Some(&id) = self.numbers.get(&likeness)
            && let Some(known) = self.known.get_mut(&id)
        {
            known.range.include(demand);
            known.members += 1;
            return id;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(likeness.clone(), id);
        let known = Known {
            likeness,
            range: Range::of(demand),
            members: 1,
        };
        self.known.insert(id, known);
        id
    }

    /// Takes a demand out. Its range stays as wide as it is until it has no members any more: too
    /// wide a range only wakes too many.
    pub fn remove(&mut self, id: RangeId) {
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        known.members -= 1;
        if known.members == 0
            && let Some(known) = self.known.remove(&id)
        {
            self.numbers.remove(&known.likeness);
        }
    }
}
