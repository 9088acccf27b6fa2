//! The source of randomness that a script is drawn from.

/// A generator of numbers. The same numbers give the same script.
pub trait Dice {
    /// Returns a number from 0 to below `end`; 0 if `end` is 0.
    fn below(&mut self, end: u64) -> u64;

    /// Returns a number from `first` to `last`.
    fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Returns whether something happens that happens so often in 100.
    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Returns one of several.
    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T
    where
        Self: Sized,
    {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or_default()]
    }

    /// Returns some of several, in their order, at least one.
    fn some<T: Clone>(&mut self, of: &[T]) -> Vec<T>
    where
        Self: Sized,
    {
        let mut chosen: Vec<T> = of.iter().filter(|_| self.percent(50)).cloned().collect();
        if chosen.is_empty() && !of.is_empty() {
            chosen.push(self.one(of).clone());
        }
        chosen
    }

    /// Returns the index of one of several shares, as often as each says.
    fn share(&mut self, shares: &[u64]) -> usize {
        let mut left = self.below(shares.iter().sum());
        shares
            .iter()
            .position(|share| {
                let hit = left < *share;
                left = left.saturating_sub(*share);
                hit
            })
            .unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::Dice;

    /// SplitMix64.
    pub struct Split(pub u64);

    impl Dice for Split {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)).checked_rem(end).unwrap_or_default()
        }
    }

    #[test]
    fn shares_are_hit_as_often_as_they_say() {
        let mut dice = Split(1);
        let mut hits = [0; 3];
        for _ in 0..10_000 {
            hits[dice.share(&[1, 0, 3])] += 1;
        }
        assert_eq!(hits[1], 0);
        assert!((2_300..2_700).contains(&hits[0]), "{hits:?}");
    }
}
