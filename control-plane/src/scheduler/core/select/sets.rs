//! Finds the best set of groups in polynomial time.
//!
//! Groups are added in their order. A set is complete as soon as it has enough groups and clusters,
//! and is not extended then. The best complete set has the highest total score, then the most
//! clusters, then the earliest groups. This is the result of Karmada's depth-first search over all
//! sets, which takes exponential time. Only the number of groups and of clusters so far matter for
//! the rest, so that each such state is visited once.

use std::cell::Cell;
use std::cmp::Ordering;

use super::Groups;

/// States examined in an exact search, about 20 ms of one core. A hundred groups of thirty-five
/// clusters, of which a thousand clusters are asked for, make three million.
const MOST_STATES: usize = 1 << 22;

/// Score and size of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Score by which the group is preferred.
    pub score: i64,
    /// Number of its clusters.
    pub clusters: usize,
}

/// The sets of some groups, which are given in the order in which they are tried: by the number of
/// their clusters, the least first.
#[derive(Debug)]
pub(super) struct Sets<'g> {
    groups: &'g [Size],
    limits: Groups,
    min_clusters: usize,
    /// States examined.
    steps: Cell<usize>,
}

/// Score and clusters of a set as one number; more is better.
type Worth = i128;

const NONE: Worth = Worth::MIN;

impl<'g> Sets<'g> {
    pub fn new(groups: &'g [Size], limits: Groups, min_clusters: usize) -> Self {
        Self {
            groups,
            limits,
            min_clusters,
            steps: Cell::new(0),
        }
    }

    /// Returns the positions of the best complete set. Where an exact search would take too long,
    /// the set has as few groups as possible, and of those the preferred ones as far as the number
    /// of clusters allows.
    pub fn best(&self, preference: impl Fn(&usize, &usize) -> Ordering) -> Option<Vec<usize>> {
        let largest = self.groups.iter().rev().take(self.limits.max);
        let most: usize = largest.map(|group| group.clusters).sum();
        if self.groups.is_empty() || self.groups.len() < self.limits.min || most < self.min_clusters
        {
            return None;
        }
        let (longest, width) = (self.longest(), self.min_clusters + 1);
        if longest == 0 {
            return None;
        }
        let states = self.groups.len().saturating_mul(longest);
        if states.saturating_mul(width) <= MOST_STATES {
            self.exact(longest, width)
        } else {
            self.fewest(preference)
        }
    }

    /// Returns the largest number of groups that a set takes to be complete.
    fn longest(&self) -> usize {
        let mut clusters = 0;
        let short = self.groups.iter().take_while(|group| {
            clusters += group.clusters;
            clusters < self.min_clusters
        });
        let enough = (short.count() + 1).max(self.limits.min);
        enough.min(self.limits.max).min(self.groups.len())
    }

    /// Finds the best complete set by an exact search: it computes, from the last group back, the
    /// worth of the best completion of each state, which is so many groups taken of those before,
    /// with so many clusters (more than enough are enough).
    fn exact(&self, longest: usize, width: usize) -> Option<Vec<usize>> {
        let mut worth = vec![NONE; longest * width];
        let mut is_taken = vec![false; self.groups.len() * longest * width];
        for (position, group) in self.groups.iter().enumerate().rev() {
            let own = (Worth::from(group.score) << 32) + group.clusters as Worth;
            for length in 0..longest.min(position + 1) {
                for clusters in 0..width {
                    let state = length * width + clusters;
                    let after = (clusters + group.clusters).min(self.min_clusters);
                    let taking = if self.is_complete(length + 1, clusters + group.clusters) {
                        own
                    } else if length + 1 < longest {
                        // A longer set is examined later, so that this is its worth without this
                        // group.
                        match worth[(length + 1) * width + after] {
                            NONE => NONE,
                            rest => rest + own,
                        }
                    } else {
                        NONE
                    };
                    if taking != NONE && taking >= worth[state] {
                        worth[state] = taking;
                        is_taken[position * longest * width + state] = true;
                    }
                }
                self.steps.set(self.steps.get() + width);
            }
        }
        let (mut chosen, mut clusters) = (Vec::new(), 0);
        for (position, group) in self.groups.iter().enumerate() {
            let state = chosen.len() * width + clusters.min(self.min_clusters);
            if is_taken[position * longest * width + state] {
                chosen.push(position);
                clusters += group.clusters;
                if self.is_complete(chosen.len(), clusters) {
                    return Some(chosen);
                }
            }
        }
        None
    }

    /// Finds a complete set of as few groups as possible; it takes each preferred group that leaves
    /// enough clusters to the largest of the others.
    fn fewest(&self, preference: impl Fn(&usize, &usize) -> Ordering) -> Option<Vec<usize>> {
        let all = || (0..self.groups.len()).rev();
        let mut count = 0;
        let mut sum = 0;
        for position in all() {
            if count >= self.limits.min.max(1) && sum >= self.min_clusters {
                break;
            }
            count += 1;
            sum += self.groups[position].clusters;
        }
        if !self.is_complete(count, sum) {
            return None;
        }
        // The largest groups make a complete set; the least preferred of them gives way to a
        // preferred group where that leaves enough.
        let mut chosen: Vec<usize> = all().take(count).collect();
        let mut is_chosen = vec![false; self.groups.len()];
        for &position in &chosen {
            is_chosen[position] = true;
        }
        chosen.sort_by(&preference);
        let mut preferred: Vec<usize> = all().filter(|&position| !is_chosen[position]).collect();
        preferred.sort_by(&preference);
        let mut spare = sum - self.min_clusters;
        let mut last = chosen.len();
        for position in preferred {
            self.steps.set(self.steps.get() + 1);
            while last > 0 {
                let worst = chosen[last - 1];
                if preference(&position, &worst) != Ordering::Less {
                    last = 0;
                    break;
                }
                let (less, more) = (self.groups[worst].clusters, self.groups[position].clusters);
                if less <= more + spare {
                    chosen[last - 1] = position;
                    spare = spare + more - less;
                    last -= 1;
                    break;
                }
                // This group is needed for its clusters.
                last -= 1;
                self.steps.set(self.steps.get() + 1);
            }
            if last == 0 {
                break;
            }
        }
        Some(chosen)
    }

    const fn is_complete(&self, length: usize, clusters: usize) -> bool {
        self.limits.min <= length && length <= self.limits.max && clusters >= self.min_clusters
    }

    /// Returns whether a search that stops at complete sets would have recorded exactly this one:
    /// it is complete, and was not before its last group.
    pub fn is_found(&self, set: &[usize]) -> bool {
        let clusters: usize = set.iter().map(|&it| self.groups[it].clusters).sum();
        let last = set.iter().max().map_or(0, |&it| self.groups[it].clusters);
        self.is_complete(set.len(), clusters) && !self.is_complete(set.len() - 1, clusters - last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(groups: &[(i64, usize)]) -> Vec<Size> {
        let mut sizes: Vec<Size> = groups
            .iter()
            .map(|&(score, clusters)| Size { score, clusters })
            .collect();
        sizes.sort_by_key(|size| size.clusters);
        sizes
    }

    /// Returns the best set by examining all of them, in the order of a depth-first search.
    fn by_trying_all(sets: &Sets<'_>) -> Option<Vec<usize>> {
        fn extend(sets: &Sets<'_>, path: &mut Vec<usize>, best: &mut Option<(Worth, Vec<usize>)>) {
            let start = path.last().map_or(0, |last| last + 1);
            for position in start..sets.groups.len() {
                path.push(position);
                let taken = || path.iter().map(|&it| &sets.groups[it]);
                let clusters: usize = taken().map(|it| it.clusters).sum();
                if sets.is_complete(path.len(), clusters) {
                    let score: i64 = taken().map(|it| it.score).sum();
                    let worth = (Worth::from(score) << 32) + clusters as Worth;
                    if best.as_ref().is_none_or(|(other, _)| worth > *other) {
                        *best = Some((worth, path.clone()));
                    }
                } else if path.len() < sets.limits.max {
                    extend(sets, path, best);
                }
                path.pop();
            }
        }
        let mut best = None;
        extend(sets, &mut Vec::new(), &mut best);
        best.map(|(_, set)| set)
    }

    /// Returns the order of groups by score, then by position.
    fn by_score(groups: &[Size]) -> impl Fn(&usize, &usize) -> Ordering {
        move |a, b| groups[*b].score.cmp(&groups[*a].score).then(a.cmp(b))
    }

    proptest! {
        #[test]
        fn the_best_set_is_the_one_that_trying_all_finds(
            groups in prop::collection::vec((0i64..4, 1usize..6), 1..12),
            min in 0usize..6, more in 0usize..6, min_clusters in 0usize..25,
        ) {
            let groups = sizes(&groups);
            for max in [(min + more).max(1), usize::MAX] {
                let sets = Sets::new(&groups, Groups { min, max }, min_clusters);
                prop_assert_eq!(sets.best(by_score(&groups)), by_trying_all(&sets));
            }
        }

        #[test]
        fn where_trying_all_takes_too_long_a_complete_set_of_the_fewest_groups_is_found_where_there_is_one(
            groups in prop::collection::vec((0i64..50, 1usize..9), 1..400),
            min in 0usize..50, more in 0usize..400, min_clusters in 0usize..1000,
        ) {
            let groups = sizes(&groups);
            let max = (min + more).max(1);
            let sets = Sets::new(&groups, Groups { min, max }, min_clusters);
            let sum = |set: &[usize]| -> usize { set.iter().map(|&it| groups[it].clusters).sum() };
            let largest: Vec<usize> = (0..groups.len()).rev().take(max).collect();
            let possible = groups.len() >= min && sum(&largest) >= min_clusters;
            match sets.fewest(by_score(&groups)) {
                Some(set) => {
                    prop_assert!(sets.is_complete(set.len(), sum(&set)));
                    let mut distinct = set.clone();
                    distinct.sort_unstable();
                    distinct.dedup();
                    prop_assert_eq!(distinct.len(), set.len());
                    let fewer = &largest[..set.len() - 1];
                    prop_assert!(fewer.is_empty() || !sets.is_complete(fewer.len(), sum(fewer)));
                }
                None => prop_assert!(!possible),
            }
            // Both answer the same question.
            prop_assert_eq!(sets.best(by_score(&groups)).is_some(), possible);
        }
    }

    /// Returns the number of states that a search examines.
    fn steps(groups: &[(i64, usize)], min: usize, max: usize, min_clusters: usize) -> usize {
        let groups = sizes(groups);
        let sets = Sets::new(&groups, Groups { min, max }, min_clusters);
        sets.best(by_score(&groups));
        sets.steps.get()
    }

    #[test]
    fn the_effort_grows_with_the_groups_and_not_with_their_sets() {
        let alike = |count: usize| vec![(0, 1); count];
        let mixed = |count: usize| -> Vec<(i64, usize)> {
            (0..count)
                .map(|it| (i64::try_from(it % 7).unwrap(), 1 + it % 9))
                .collect()
        };
        let any = (1, usize::MAX);
        for (what, groups, (min, max), min_clusters, most) in [
            ("fewer clusters than asked for", alike(40), any, 41, 0),
            ("every cluster is needed", alike(40), any, 40, 70_000),
            ("25 groups", mixed(25), any, 60, 40_000),
            ("30 groups", mixed(30), any, 70, 60_000),
            ("33 groups", mixed(33), any, 80, 90_000),
            ("5 of 100", mixed(100), (5, 5), 30, 20_000),
            ("20 of 100", mixed(100), (20, 20), 120, 250_000),
            ("50 of 100", mixed(100), (50, 50), 300, 1_500_000),
            // As many groups as there are clusters.
            ("half of them", alike(3_500), any, 1_750, MOST_STATES),
            // Zones of all sizes.
            ("zones", mixed(700), (100, 300), 2_000, MOST_STATES),
        ] {
            let steps = steps(&groups, min, max, min_clusters);
            assert!(steps <= most, "{what}: {steps} steps");
        }
    }
}
