//! Pauses between two tries of the same work.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// First and longest pause after a failure. client-go starts at 5 ms, which helps only against
/// conflicts with one's own writes; Muster's writes have preconditions, so the first retry waits
/// longer.
const FAILURE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));
/// First and longest pause after another client wrote first, or while a cache is behind. A watch
/// shows a write within the first as a rule. Where it does not, the cache is behind, and more
/// writes would not help.
const CONFLICT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(6_400));

/// Returns the pause after a number of consecutive failures: 100 ms, doubled up to a minute.
pub fn backoff(failures: u32) -> Duration {
    doubled(FAILURE, failures.saturating_sub(1))
}

/// Returns the pause after a conflict, by the number of consecutive conflicts before it: 50 ms,
/// doubled up to 6.4 s.
pub fn again(before: u32) -> Duration {
    doubled(CONFLICT, before)
}

/// Returns the first pause, doubled a number of times, but not above the longest.
pub fn doubled((first, longest): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}

/// Returns a duration changed by up to a fifth in either direction, so that many clients do not act
/// in step.
pub fn jittered(wait: Duration) -> Duration {
    // RandomState is seeded by the operating system: enough to spread clients, and no crate more.
    let spread = RandomState::new().hash_one(0u8) % 401;
    let permille = u32::try_from(800 + spread).unwrap_or(1000);
    wait * permille / 1000
}

/// Returns the time until a moment plus one millisecond, so that work does not begin before the
/// moment. One millisecond if the moment has passed.
pub fn until(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default() + Duration::from_millis(1)
}

/// Waits until a moment, or for ever if there is none.
pub async fn wait_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limits() {
        let failed = [1, 2, 5, 40].map(|failures| backoff(failures).as_millis());
        assert_eq!(failed, [100, 200, 1600, 60_000]);
        let overtaken = [0, 1, 2, 7, 99].map(|before| again(before).as_millis());
        assert_eq!(overtaken, [50, 100, 200, 6_400, 6_400]);
    }
}
