//! Counts of durations, in bounded space, with their median and 95th percentile.

use muster_shared::api::failover_record::{SecondsCount, TimeToHealthy};

/// Returns seconds rounded up to two digits: at most 90 values for each power of ten.
fn rounded(seconds: u64) -> u64 {
    let mut unit = 1;
    while seconds / unit >= 100 {
        unit *= 10;
    }
    seconds.div_ceil(unit) * unit
}

/// Adds a duration.
pub fn add(known: &mut Option<TimeToHealthy>, seconds: u64) {
    let times = known.get_or_insert_default();
    let seconds = rounded(seconds);
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
    fn durations_have_two_digits_so_that_few_values_hold_them_all() {
        for (seconds, expected) in [
            (0, 0),
            (1, 1),
            (99, 99),
            (100, 100),
            (101, 110),
            (991, 1_000),
            (3_599, 3_600),
            (86_400, 87_000),
        ] {
            assert_eq!(rounded(seconds), expected, "{seconds}");
        }
        let mut all: Vec<u64> = (0..10_000_000).step_by(7).map(rounded).collect();
        all.dedup();
        assert!(all.len() < 1_000, "{}", all.len());
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
