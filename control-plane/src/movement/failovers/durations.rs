//! Counts of durations, in bounded space, with their median and 95th percentile.

use muster_shared::api::failover_record::{SecondsCount, TimeToHealthy};

/// Number of different durations up to which each is kept as it was.
const MOST: usize = 400;

/// Returns seconds rounded up to so many digits.
fn rounded(seconds: u64, digits: u32) -> u64 {
    let mut unit = 1;
    while seconds / unit >= 10_u64.pow(digits) {
        unit *= 10;
    }
    seconds.div_ceil(unit) * unit
}

/// Rounds durations where there are too many different ones, as little as is needed. With two
/// digits there are at most 90 for each power of ten.
fn bound(counts: &mut Vec<SecondsCount>) {
    for digits in [3, 2] {
        if counts.len() <= MOST {
            return;
        }
        for it in counts.iter_mut() {
            it.seconds = rounded(it.seconds, digits);
        }
        counts.dedup_by(|next, kept| {
            let is_same = next.seconds == kept.seconds;
            if is_same {
                kept.workloads = kept.workloads.saturating_add(next.workloads);
            }
            is_same
        });
    }
}

/// Adds a duration.
pub fn add(known: &mut Option<TimeToHealthy>, seconds: u64) {
    let times = known.get_or_insert_default();
    match times.counts.binary_search_by_key(&seconds, |it| it.seconds) {
        Ok(at) => times.counts[at].workloads = times.counts[at].workloads.saturating_add(1),
        Err(at) => times.counts.insert(
            at,
            SecondsCount {
                seconds,
                workloads: 1,
            },
        ),
    }
    bound(&mut times.counts);
    times.median_seconds = within(&times.counts, 50);
    times.p95_seconds = within(&times.counts, 95);
}

/// Returns the least duration that so many of a hundred did not exceed.
fn within(counts: &[SecondsCount], percent: u64) -> u64 {
    let all: u64 = counts.iter().map(|it| u64::from(it.workloads)).sum();
    let wanted = (all * percent).div_ceil(100);
    let mut seen = 0;
    for count in counts {
        seen += u64::from(count.workloads);
        if seen >= wanted {
            return count.seconds;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_reported_as_it_was_and_rounded_only_where_there_are_too_many() {
        for (durations, expected) in [
            (1, [101, 101]),
            (MOST as u64, [101 + 7 * 199, 101 + 7 * 379]),
            // With three digits they are still too many.
            (10_000, [36_000, 66_600]),
        ] {
            let mut times = None;
            (0..durations).for_each(|it| add(&mut times, 101 + 7 * it));
            let times = times.unwrap();
            let found = [times.median_seconds, times.p95_seconds];
            assert_eq!(found, expected, "{durations}");
            let all: u64 = times.counts.iter().map(|it| u64::from(it.workloads)).sum();
            assert_eq!(all, durations);
        }
        for (seconds, digits, expected) in [
            (0, 2, 0),
            (99, 2, 99),
            (101, 2, 110),
            (991, 2, 1_000),
            (999, 3, 999),
            (3_599, 3, 3_600),
            (86_401, 3, 86_500),
        ] {
            assert_eq!(rounded(seconds, digits), expected, "{seconds}");
        }
    }

    #[test]
    fn durations_of_any_length_are_few_values() {
        let mut times = None;
        for power in 0..9 {
            (1..200).for_each(|it| add(&mut times, it * 10_u64.pow(power)));
        }
        let counts = times.unwrap().counts;
        assert!(counts.len() < 1_000, "{}", counts.len());
        assert!(counts.is_sorted_by_key(|it| it.seconds));
    }

    #[test]
    fn median_and_95th_percentile_are_those_that_so_many_did_not_exceed() {
        for (durations, median, p95) in [
            (&[7][..], 7, 7),
            (&[3, 1], 1, 3),
            (&[3, 2, 1], 2, 3),
            (&[5, 5, 5, 60], 5, 60),
        ] {
            let mut times = None;
            for it in durations {
                add(&mut times, *it);
            }
            let times = times.unwrap();
            assert_eq!((times.median_seconds, times.p95_seconds), (median, p95));
        }
        let mut times = None;
        (1..=100).for_each(|it| add(&mut times, it));
        let times = times.unwrap();
        assert_eq!((times.median_seconds, times.p95_seconds), (50, 95));
    }
}
