//! Tracks whether the control plane itself can reach the fleet API.
//!
//! While it cannot, every member seems silent. When contact is restored, the lost time is added to
//! all deadlines; and no cluster is reported silent while contact is not recent (safety contract
//! 3).

use std::time::Duration;

use tokio::time::Instant;

/// When the API was last reached, and whether an attempt failed since.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    reached: Instant,
    failed: bool,
    tolerance: Duration,
}

impl Contact {
    /// Starts the contact now. A pause between two successes longer than `tolerance` counts as lost
    /// even if no attempt failed in it: a process that was frozen could not try.
    pub fn new(tolerance: Duration, now: Instant) -> Self {
        Self {
            reached: now,
            failed: false,
            tolerance,
        }
    }

    /// Notes that the API answered or sent something. Returns the time that was lost before, zero
    /// if none.
    pub fn reached(&mut self, now: Instant) -> Duration {
        let pause = now.saturating_duration_since(self.reached);
        let lost = if self.failed || pause > self.tolerance {
            pause
        } else {
            Duration::ZERO
        };
        *self = Self {
            reached: self.reached.max(now),
            failed: false,
            tolerance: self.tolerance,
        };
        lost
    }

    /// Notes that an attempt to reach the API failed.
    pub fn failed(&mut self) {
        self.failed = true;
    }

    /// Returns whether the last attempt succeeded.
    pub fn is_good(&self) -> bool {
        !self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_lost_by_a_failed_attempt_or_by_a_long_pause() {
        let start = Instant::now();
        let s = Duration::from_secs;
        let mut contact = Contact::new(s(10), start);
        assert_eq!(
            contact.reached(start + s(5)),
            Duration::ZERO,
            "an ordinary pause"
        );
        contact.failed();
        assert!(!contact.is_good());
        assert_eq!(contact.reached(start + s(8)), s(3), "a short outage");
        assert!(contact.is_good());
        assert_eq!(
            contact.reached(start + s(18)),
            Duration::ZERO,
            "exactly tolerated"
        );
        assert_eq!(contact.reached(start + s(48)), s(30), "a frozen process");
    }
}
