//! Meeting several constraints at once, where the choice by the leading field breaks another one or gives up clusters that hold
//! the workload.

use super::{Axis, Candidate, Groups};

/// Candidates tried at most. Constraints of real policies ask for a few groups of a few fields, which takes a few dozen; the
/// bound is for those that contradict each other over a large fleet.
const TRIES: usize = 1_000;

/// Where a choice that meets all lower bounds goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// Wherever no upper bound is broken.
    Anywhere,
    /// Only in those groups of the leading field that it is in already, as a choice by that field does; but in others as well, one by
    /// one, as long as there are fewer than so many.
    InItsGroups(usize),
}

/// Chooses from the ranked candidates: those at the positions `kept`, the best with which all lower bounds are met, and then, as
/// many as `more` and `growth` allow, the best that break no upper bound. The first constraint leads. `None` when no choice does all that, or none was found in
/// reasonable time.
pub(super) fn select<'a>(
    candidates: &[Candidate<'a>],
    constraints: &[(Axis<'_>, Groups)],
    kept: &[usize],
    more: usize,
    growth: Growth,
) -> Option<Vec<Candidate<'a>>> {
    let mut search = Search {
        candidates,
        constraints,
        chosen: Vec::new(),
        groups: vec![Vec::new(); constraints.len()],
        tries: TRIES,
    };
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

struct Search<'s, 'a> {
    candidates: &'s [Candidate<'a>],
    constraints: &'s [(Axis<'s>, Groups)],
    chosen: Vec<usize>,
    /// The groups that are taken, by constraint.
    groups: Vec<Vec<&'a str>>,
    tries: usize,
}

impl<'a> Search<'_, 'a> {
    /// Chooses until every lower bound is met, going back where that leads nowhere.
    fn complete(&mut self) -> bool {
        let lacking = (0..self.constraints.len())
            .find(|&which| self.groups[which].len() < self.constraints[which].1.min);
        let Some(lacking) = lacking else { return true };
        for index in 0..self.candidates.len() {
            if !self.adds_to(lacking, index) || !self.is_allowed(index) {
                continue;
            }
            let Some(left) = self.tries.checked_sub(1) else {
                return false;
            };
            self.tries = left;
            let before: Vec<usize> = self.groups.iter().map(Vec::len).collect();
            self.choose(index);
            if self.complete() {
                return true;
            }
            self.chosen.pop();
            for (groups, length) in self.groups.iter_mut().zip(before) {
                groups.truncate(length);
            }
        }
        false
    }

    /// Adds the best candidates that are allowed, until there are `most`, opening other groups of the leading field or not; says whether
    /// it added any.
    fn fill(&mut self, most: usize, opening: bool) -> bool {
        let before = self.chosen.len();
        for index in 0..self.candidates.len() {
            if self.chosen.len() >= most {
                break;
            }
            if !self.chosen.contains(&index)
                && self.is_allowed(index)
                && (opening || !self.adds_to(0, index))
            {
                self.choose(index);
            }
        }
        self.chosen.len() > before
    }

    fn names(&self, which: usize, index: usize) -> impl Iterator<Item = &'a str> {
        let names = self.constraints[which].0.groups(&self.candidates[index]);
        names.iter().map(String::as_str)
    }

    fn adds_to(&self, which: usize, index: usize) -> bool {
        let mut names = self.names(which, index);
        names.any(|name| !self.groups[which].contains(&name))
    }

    /// Whether the candidate can be added without breaking an upper bound.
    fn is_allowed(&self, index: usize) -> bool {
        (0..self.constraints.len()).all(|which| {
            let known = &self.groups[which];
            let new = self
                .names(which, index)
                .filter(|name| !known.contains(name));
            known.len() + new.count() <= self.constraints[which].1.max
        })
    }

    fn choose(&mut self, index: usize) {
        self.chosen.push(index);
        for which in 0..self.constraints.len() {
            for name in self.names(which, index).collect::<Vec<_>>() {
                if !self.groups[which].contains(&name) {
                    self.groups[which].push(name);
                }
            }
        }
    }
}
