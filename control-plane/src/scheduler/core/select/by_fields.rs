//! Selects clusters under several constraints, if the selection by the first one violates another
//! one, or drops clusters that have the workload.

use std::collections::HashMap;

use super::{Axis, Candidate, Groups};

/// Candidates tried at most. Constraints of real policies ask for a few groups of a few fields,
/// which takes a few dozen; the bound is for those that contradict each other over a large fleet.
const TRIES: usize = 1_000;

/// Extension of a selection that meets all minimums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// Every cluster that exceeds no maximum.
    Anywhere,
    /// Only clusters in the groups of the first field that are selected already, as in a selection
    /// by that field; and further groups, one by one, as long as there are fewer than this number.
    InItsGroups(usize),
}

/// Selects from the ranked candidates: those at the positions `kept`, then the best with which all
/// minimums are met, and then, as far as `more` and `growth` permit, the best that exceed no
/// maximum. The first constraint decides ties. Returns `None` if no selection satisfies all
/// constraints, or none was found in reasonable time.
pub(super) fn select<'a>(
    candidates: &[Candidate<'a>],
    constraints: &[(Axis<'_>, Groups)],
    kept: &[usize],
    more: usize,
    growth: Growth,
) -> Option<Vec<Candidate<'a>>> {
    let mut search = Search::new(candidates, constraints);
    for &index in kept {
        if !search.is_allowed(index) {
            return None;
        }
        search.choose(index);
    }
    if !search.complete() {
        return None;
    }
    let least = match growth {
        Growth::Anywhere => more,
        Growth::InItsGroups(least) => least.min(more),
    };
    // A group that is opened is filled before another one is.
    search.fill(more, growth == Growth::Anywhere);
    while search.chosen.len() < least && search.fill(search.chosen.len() + 1, true) {
        search.fill(more, false);
    }
    // Candidates are ranked, so positions are.
    search.chosen.sort_unstable();
    Some(
        search
            .chosen
            .into_iter()
            .map(|index| candidates[index])
            .collect(),
    )
}

/// The groups of one field.
struct Groupings {
    limits: Groups,
    /// The numbers of the groups that each candidate belongs to.
    of: Vec<Vec<usize>>,
    /// Number of chosen clusters in each group.
    chosen: Vec<usize>,
    /// Groups that one of the chosen belongs to.
    taken: usize,
}

impl Groupings {
    fn new(candidates: &[Candidate<'_>], axis: Axis<'_>, limits: Groups) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let of = candidates
            .iter()
            .map(|candidate| {
                let names = axis.groups(candidate).iter();
                let mut groups: Vec<usize> = names
                    .map(|name| {
                        let next = numbers.len();
                        *numbers.entry(name).or_insert(next)
                    })
                    .collect();
                groups.sort_unstable();
                groups.dedup();
                groups
            })
            .collect();
        Self {
            limits,
            of,
            chosen: vec![0; numbers.len()],
            taken: 0,
        }
    }

    /// Groups that the candidate would add.
    fn new_groups(&self, index: usize) -> usize {
        let groups = self.of[index].iter();
        groups.filter(|&&group| self.chosen[group] == 0).count()
    }

    fn choose(&mut self, index: usize) {
        for &group in &self.of[index] {
            self.taken += usize::from(self.chosen[group] == 0);
            self.chosen[group] += 1;
        }
    }

    fn give_up(&mut self, index: usize) {
        for &group in &self.of[index] {
            self.chosen[group] -= 1;
            self.taken -= usize::from(self.chosen[group] == 0);
        }
    }
}

/// The cost of a try is that of examining each candidate once.
struct Search {
    by_field: Vec<Groupings>,
    chosen: Vec<usize>,
    is_chosen: Vec<bool>,
    tries: usize,
}

impl Search {
    fn new(candidates: &[Candidate<'_>], constraints: &[(Axis<'_>, Groups)]) -> Self {
        let by_field = constraints
            .iter()
            .map(|(axis, limits)| Groupings::new(candidates, *axis, *limits));
        Self {
            by_field: by_field.collect(),
            chosen: Vec::new(),
            is_chosen: vec![false; candidates.len()],
            tries: TRIES,
        }
    }

    /// Chooses until every lower bound is met, going back where that leads nowhere.
    fn complete(&mut self) -> bool {
        let mut fields = self.by_field.iter();
        let Some(lacking) = fields.position(|field| field.taken < field.limits.min) else {
            return true;
        };
        for index in 0..self.is_chosen.len() {
            if self.by_field[lacking].new_groups(index) == 0 || !self.is_allowed(index) {
                continue;
            }
            let Some(left) = self.tries.checked_sub(1) else {
                return false;
            };
            self.tries = left;
            self.choose(index);
            if self.complete() {
                return true;
            }
            self.give_up(index);
        }
        false
    }

    /// Adds the best candidates that are allowed, until there are `most`, opening other groups of
    /// the leading field or not; says whether it added any.
    fn fill(&mut self, most: usize, opening: bool) -> bool {
        let before = self.chosen.len();
        for index in 0..self.is_chosen.len() {
            if self.chosen.len() >= most {
                break;
            }
            if !self.is_chosen[index]
                && self.is_allowed(index)
                && (opening || self.by_field[0].new_groups(index) == 0)
            {
                self.choose(index);
            }
        }
        self.chosen.len() > before
    }

    /// Returns whether the candidate can be added without breaking an upper bound.
    fn is_allowed(&self, index: usize) -> bool {
        let mut fields = self.by_field.iter();
        fields.all(|field| field.taken + field.new_groups(index) <= field.limits.max)
    }

    fn choose(&mut self, index: usize) {
        self.chosen.push(index);
        self.is_chosen[index] = true;
        self.by_field
            .iter_mut()
            .for_each(|field| field.choose(index));
    }

    fn give_up(&mut self, index: usize) {
        self.chosen.pop();
        self.is_chosen[index] = false;
        self.by_field
            .iter_mut()
            .for_each(|field| field.give_up(index));
    }
}
