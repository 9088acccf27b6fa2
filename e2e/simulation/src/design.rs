//! Which features and faults a seed draws, so that few seeds meet all pairs.
//!
//! Seeds come in blocks. In a block each seed prefers what the seeds before it met least, as far as
//! that follows from the choice alone; which pairs a seed really meets is read off its history.

use std::collections::BTreeMap;

use crate::fault_kind::FaultKind;
use crate::feature::Feature;
use crate::people::Dice as _;
use crate::random::Random;

/// Seeds of a block.
const BLOCK: u64 = 64;

/// What a seed draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// Features, without order.
    pub features: Vec<Feature>,
    /// Kinds of faults by their numbers in [`FaultKind::NAMES`].
    pub faults: Vec<usize>,
}

/// Chooses so many features and kinds of faults for a seed.
pub fn of(seed: u64, features: usize, faults: usize) -> Design {
    let first = seed - seed % BLOCK;
    let mut block = Block::default();
    let mut design = block.next(first, features, faults);
    for seed in first + 1..=seed {
        design = block.next(seed, features, faults);
    }
    design
}

/// What the seeds of a block chose so far.
#[derive(Default)]
struct Block {
    /// How often two features were chosen together.
    pairs: BTreeMap<(usize, usize), u64>,
    /// How often two features were chosen together with a kind of fault.
    triples: BTreeMap<(usize, usize, usize), u64>,
}

impl Block {
    fn next(&mut self, seed: u64, features: usize, faults: usize) -> Design {
        let mut random = Random::new(seed, "design");
        let mut chosen = Vec::new();
        while chosen.len() < features.min(Feature::ALL.len()) {
            let cost = |at: usize| {
                let pairs = chosen.iter().map(|it| self.pair(*it, at));
                pairs.sum::<u64>()
            };
            let best = cheapest(&mut random, Feature::ALL.len(), &chosen, cost);
            chosen.push(best);
        }
        let pairs: Vec<(usize, usize)> = pairs_of(&chosen);
        let mut kinds = Vec::new();
        while kinds.len() < faults.min(FaultKind::NAMES.len()) {
            let cost = |at: usize| {
                let triples = pairs.iter().map(|(one, other)| {
                    let met = self.triples.get(&(*one, *other, at));
                    met.copied().unwrap_or_default()
                });
                triples.sum::<u64>()
            };
            let best = cheapest(&mut random, FaultKind::NAMES.len(), &kinds, cost);
            kinds.push(best);
        }
        for (one, other) in pairs {
            *self.pairs.entry((one, other)).or_default() += 1;
            for kind in &kinds {
                *self.triples.entry((one, other, *kind)).or_default() += 1;
            }
        }
        let features = chosen.into_iter().map(|at| Feature::ALL[at]);
        Design {
            features: features.collect(),
            faults: kinds,
        }
    }

    fn pair(&self, one: usize, other: usize) -> u64 {
        let pair = (one.min(other), one.max(other));
        self.pairs.get(&pair).copied().unwrap_or_default()
    }
}

/// Returns one of the cheapest of so many choices that are not chosen yet.
fn cheapest(
    random: &mut Random,
    of: usize,
    chosen: &[usize],
    cost: impl Fn(usize) -> u64,
) -> usize {
    let left: Vec<(u64, usize)> = (0..of)
        .filter(|at| !chosen.contains(at))
        .map(|at| (cost(at), at))
        .collect();
    let least = left.iter().map(|(cost, _)| *cost).min().unwrap_or_default();
    let cheap: Vec<usize> = left
        .into_iter()
        .filter(|(cost, _)| *cost == least)
        .map(|(_, at)| at)
        .collect();
    *random.one(&cheap)
}

fn pairs_of(chosen: &[usize]) -> Vec<(usize, usize)> {
    let mut sorted = chosen.to_vec();
    sorted.sort_unstable();
    let first = sorted.iter().enumerate();
    let pairs = first.flat_map(|(at, one)| sorted[at + 1..].iter().map(|other| (*one, *other)));
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_design_follows_from_the_seed_and_names_each_thing_once() {
        for seed in [0, 1, 63, 64, 1_000_000_007] {
            let design = of(seed, 12, 6);
            assert_eq!(design, of(seed, 12, 6));
            let features: BTreeSet<_> = design.features.iter().collect();
            let faults: BTreeSet<_> = design.faults.iter().collect();
            assert_eq!((features.len(), faults.len()), (12, 6));
        }
        assert_ne!(of(1, 12, 6), of(2, 12, 6));
    }

    #[test]
    fn a_block_chooses_each_pair_of_features_about_as_often_as_any_other() {
        let mut block = Block::default();
        for seed in 0..BLOCK {
            block.next(seed, 16, 6);
        }
        let all = Feature::ALL.len();
        let counts = pairs_of(&(0..all).collect::<Vec<_>>());
        let counts = counts.iter().map(|(one, other)| block.pair(*one, *other));
        let (least, most) = counts.fold((u64::MAX, 0), |(least, most), count| {
            (least.min(count), most.max(count))
        });
        assert!(least >= 8 && most <= 2 * least, "{least} to {most}");
    }
}
