//! In which order, and how many at a time, bindings are woken.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::choices::ChoiceId;
use super::group::GroupKey;

/// A group of waiting bindings.
pub type GroupId = (GroupKey, ChoiceId);

/// Of so many rounds one goes to the group that waits longest, whatever its priority.
const AGED: usize = 4;
/// Bindings that are woken at a time as long as nobody knows whether it helps them, or it does not.
const FEWEST: usize = 64;
/// Bindings that are woken at a time at most.
const MOST: usize = 1_024;

/// Place of a group: its priority, whether it is not known what each of its bindings asks for, and
/// its number.
type Place = (Reverse<i32>, bool, u64, GroupId);

/// Returns the place of a group with this number.
const fn place(number: u64, group: GroupId) -> Place {
    let (GroupKey { priority, demand }, _) = group;
    (priority, demand.is_none(), number, group)
}

/// The groups with bindings that are to be woken.
#[derive(Debug, Default)]
pub struct WakeOrder {
    next: u64,
    given: usize,
    by_priority: BTreeSet<Place>,
    by_age: BTreeMap<u64, GroupId>,
}

impl WakeOrder {
    /// Adds a group, which comes after the others of its priority, but before those of which it is
    /// not known what each binding asks for.
    pub fn add(&mut self, group: GroupId) {
        let number = self.next;
        self.next += 1;
        self.by_priority.insert(place(number, group));
        self.by_age.insert(number, group);
    }

    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Returns the group that comes next.
    pub fn take(&mut self) -> Option<GroupId> {
        self.given = (self.given + 1) % AGED;
        let (number, group) = if self.given == 0 {
            self.by_age.pop_first()?
        } else {
            let (_, _, number, group) = self.by_priority.pop_first()?;
            (number, group)
        };
        self.by_age.remove(&number);
        self.by_priority.remove(&place(number, group));
        Some(group)
    }
}

/// How many bindings are woken at a time: ever more while most of them are helped, and few while
/// most are not, so that decisions in vain leave time for those about other bindings.
#[derive(Debug)]
pub struct RoundSize {
    size: usize,
    helped: usize,
    in_vain: usize,
}

impl Default for RoundSize {
    fn default() -> Self {
        Self {
            size: FEWEST,
            helped: 0,
            in_vain: 0,
        }
    }
}

impl RoundSize {
    /// Records that a binding that was woken has been decided.
    pub fn decided(&mut self, in_vain: bool) {
        if in_vain {
            self.in_vain += 1;
        } else {
            self.helped += 1;
        }
    }

    /// Returns how many bindings to wake now.
    pub fn step(&mut self) -> usize {
        if self.in_vain > self.helped {
            self.size = FEWEST;
        } else if self.helped > 0 {
            self.size = (self.size * 2).min(MOST);
        }
        (self.helped, self.in_vain) = (0, 0);
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(priority: i32, demand: u32) -> GroupId {
        let (priority, demand) = (Reverse(priority), Some(demand));
        (GroupKey { priority, demand }, 0)
    }

    #[test]
    fn higher_priorities_come_first_and_keep_nobody_waiting_for_ever() {
        let mut wake_order = WakeOrder::default();
        wake_order.add(group(0, 1));
        wake_order.add(group(5, 2));
        wake_order.add(group(5, 3));
        let mut order = Vec::new();
        for _ in 0..8 {
            let next = wake_order.take().unwrap();
            order.extend(next.0.demand);
            wake_order.add(next);
        }
        assert_eq!(order, [2, 3, 2, 1, 3, 2, 3, 1]);
    }

    #[test]
    fn of_one_priority_those_come_first_of_which_it_is_known_what_they_ask_for() {
        let unknown = |choice, priority| {
            let (priority, demand) = (Reverse(priority), None);
            (GroupKey { priority, demand }, choice)
        };
        let mut wake_order = WakeOrder::default();
        for group in [unknown(1, 0), unknown(2, 0), unknown(3, 5), group(0, 7)] {
            wake_order.add(group);
        }
        let order = std::iter::from_fn(|| wake_order.take());
        let order: Vec<_> = order.map(|(key, choice)| (choice, key.demand)).collect();
        assert_eq!(order, [(3, None), (0, Some(7)), (1, None), (2, None)]);
    }

    #[test]
    fn the_more_are_helped_the_more_are_woken() {
        let mut round_size = RoundSize::default();
        let mut step = |helped: usize, in_vain: usize| {
            (0..helped).for_each(|_| round_size.decided(false));
            (0..in_vain).for_each(|_| round_size.decided(true));
            round_size.step()
        };
        let steps = [
            step(0, 0),
            step(60, 4),
            step(1, 0),
            step(0, 0),
            step(100, 100),
            step(900, 0),
            step(900, 0),
            step(3, 4),
        ];
        assert_eq!(steps, [64, 128, 256, 256, 512, 1_024, 1_024, 64]);
    }
}
