//! Proportional division by Webster's method (highest averages with the divisors 1, 3, 5, …), by
//! which replicas follow weights.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use muster_shared::names::fnv32a;

/// Order of names if two clusters have the same claim to a replica.
///
/// Karmada behaviour: the parity of the FNV-1a hash of the template's UID decides, so that over
/// many workloads no cluster is favoured by its name, and one workload is always divided in the
/// same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TieBreak {
    /// The smaller name first: no UID, or an even hash.
    Ascending,
    /// The larger name first: an odd hash.
    Descending,
}

impl TieBreak {
    /// Returns the order for the template with this UID; an unknown template has an empty one.
    pub fn for_uid(uid: &str) -> Self {
        if uid.is_empty() || fnv32a(uid).is_multiple_of(2) {
            Self::Ascending
        } else {
            Self::Descending
        }
    }
}

/// One claimant of seats.
#[derive(Debug, Clone, Copy)]
pub struct Party<'a> {
    /// Breaks ties; unique among the parties.
    pub name: &'a str,
    /// The claim; a party without votes gets nothing.
    pub votes: u64,
}

/// Returns the seats of each party, in the order of `parties`. All are zero when nobody has votes,
/// or `seats` is zero.
///
/// The sequence of grants is a total order over the pairs (party, how many seats it has already):
/// the larger `votes / (2·seats + 1)` first, then fewer seats, then the name. The result is the
/// first `seats` pairs, so it is found by rounding every quota and then adding or taking back the
/// few seats by which the sum is off, instead of granting thousands of seats one by one.
pub fn webster(parties: &[Party<'_>], seats: u64, tie_break: TieBreak) -> Vec<u64> {
    let total: u128 = parties.iter().map(|party| u128::from(party.votes)).sum();
    if total == 0 || seats == 0 {
        return vec![0; parties.len()];
    }
    let mut result = rounded_quotas(parties, seats, total);
    let mut given: u64 = result.iter().sum();
    if given == seats {
        return result;
    }
    let ranks = ranks(parties, tie_break);
    let bid = |index: usize, held: u64| Bid {
        votes: parties[index].votes,
        held,
        rank: ranks[index],
        index,
    };
    if given < seats {
        let mut next: BinaryHeap<Reverse<Bid>> = result
            .iter()
            .enumerate()
            .map(|(index, &held)| Reverse(bid(index, held)))
            .collect();
        while given < seats
            && let Some(mut first) = next.peek_mut()
        {
            let Bid { index, held, .. } = first.0;
            result[index] += 1;
            given += 1;
            *first = Reverse(bid(index, held + 1));
        }
    } else {
        let granted = |index: usize, held: u64| Some(bid(index, held.checked_sub(1)?));
        let mut last: BinaryHeap<Bid> = result
            .iter()
            .enumerate()
            .filter_map(|(index, &held)| granted(index, held))
            .collect();
        while given > seats
            && let Some(Bid { index, held, .. }) = last.pop()
        {
            result[index] = held;
            given -= 1;
            last.extend(granted(index, held));
        }
    }
    result
}

/// Returns the exact share of each party, rounded to the next whole seat.
fn rounded_quotas(parties: &[Party<'_>], seats: u64, total: u128) -> Vec<u64> {
    let votes = parties.iter().map(|party| party.votes);
    let largest = total.saturating_mul(2 * u128::from(seats) + 1);
    // The sums of any real fleet have 64 bits, in which division is many times faster than in 128.
    if let (Ok(total), Ok(_)) = (u64::try_from(total), u64::try_from(largest)) {
        let quota = |votes| (2 * votes * seats + total) / (2 * total);
        return votes.map(quota).collect();
    }
    votes
        .map(|votes| {
            let quota = (2 * u128::from(votes) * u128::from(seats) + total) / (2 * total);
            u64::try_from(quota).unwrap_or(u64::MAX)
        })
        .collect()
}

/// Returns the place of each party's name in the order in which ties are broken.
fn ranks(parties: &[Party<'_>], tie_break: TieBreak) -> Vec<usize> {
    let place = |rank| match tie_break {
        TieBreak::Ascending => rank,
        TieBreak::Descending => parties.len() - rank,
    };
    // As the scheduler gives them.
    if parties.is_sorted_by_key(|party| party.name) {
        return (0..parties.len()).map(place).collect();
    }
    let mut by_name: Vec<usize> = (0..parties.len()).collect();
    by_name.sort_by_key(|&index| parties[index].name);
    let mut ranks = vec![0; parties.len()];
    for (rank, index) in by_name.into_iter().enumerate() {
        ranks[index] = place(rank);
    }
    ranks
}

/// A party's claim to one more seat; the smaller bid gets its seat first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bid {
    votes: u64,
    /// Seats it has.
    held: u64,
    rank: usize,
    index: usize,
}

impl Ord for Bid {
    fn cmp(&self, other: &Self) -> Ordering {
        // Cross-multiplied, so that no rounding turns unequal claims into ties.
        let mine = u128::from(self.votes) * (2 * u128::from(other.held) + 1);
        let theirs = u128::from(other.votes) * (2 * u128::from(self.held) + 1);
        theirs
            .cmp(&mine)
            .then_with(|| self.held.cmp(&other.held))
            .then_with(|| self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_votes_and_very_many_are_divided_as_others_are() {
        let pair = |votes: u64| [("a", votes), ("b", votes)];
        // Votes, seats to give, seats of each.
        for (votes, seats, expected) in [
            (&pair(0)[..], 3, &[0, 0][..]),
            (&pair(0x4000_0000_0000_0000), 0, &[0, 0]),
            (&pair(0x4000_0000_0000_0001), 0, &[0, 0]),
            (&pair(0x7fff_ffff_ffff_ffff), 3, &[2, 1]),
            (&[], 3, &[]),
        ] {
            let parties = votes.iter();
            let parties: Vec<_> = parties
                .map(|&(name, votes)| Party { name, votes })
                .collect();
            let divided = webster(&parties, seats, TieBreak::for_uid(""));
            assert_eq!(divided, expected, "{votes:?} {seats}");
        }
    }

    /// Returns the seats by the definition, given out one by one.
    fn one_by_one(parties: &[Party<'_>], seats: u64, tie_break: TieBreak) -> Vec<u64> {
        let mut held = vec![0; parties.len()];
        if parties.iter().any(|party| party.votes > 0) {
            for _ in 0..seats {
                let average = |index: usize| {
                    (
                        u128::from(parties[index].votes),
                        2 * u128::from(held[index]) + 1,
                    )
                };
                let next = (0..parties.len())
                    .min_by(|&a, &b| {
                        let ((votes_a, divisor_a), (votes_b, divisor_b)) = (average(a), average(b));
                        let by_name = parties[a].name.cmp(parties[b].name);
                        (votes_b * divisor_a)
                            .cmp(&(votes_a * divisor_b))
                            .then(held[a].cmp(&held[b]))
                            .then(match tie_break {
                                TieBreak::Ascending => by_name,
                                TieBreak::Descending => by_name.reverse(),
                            })
                    })
                    .unwrap();
                held[next] += 1;
            }
        }
        held
    }

    proptest! {
        #[test]
        fn rounding_first_gives_what_granting_one_by_one_gives(
            votes in proptest::collection::vec(prop_oneof![0u64..6, 0u64..2000], 1..12),
            seats in 0u64..300,
            descending: bool,
        ) {
            let names: Vec<String> = (0..votes.len()).map(|index| format!("m{index}")).collect();
            let parties: Vec<_> = names
                .iter()
                .zip(&votes)
                .map(|(name, &votes)| Party { name, votes })
                .collect();
            let tie_break = if descending { TieBreak::Descending } else { TieBreak::Ascending };
            prop_assert_eq!(
                webster(&parties, seats, tie_break),
                one_by_one(&parties, seats, tie_break)
            );
        }
    }
}
