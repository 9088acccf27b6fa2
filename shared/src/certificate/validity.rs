//! Lifetime of a certificate chain, and whether it has to be renewed. Pure.

use std::time::Duration;

use crate::tls::Certificate;
use jiff::Timestamp;

/// Time in which every certificate of a chain is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Latest start of validity.
    pub from: Timestamp,
    /// Earliest end of validity.
    pub until: Timestamp,
}

impl Validity {
    /// Returns the validity of a chain; `None` for an empty chain.
    pub fn of(chain: &[Certificate]) -> Option<Self> {
        Some(Self {
            from: chain.iter().map(|it| it.not_before).max()?,
            until: chain.iter().map(|it| it.not_after).min()?,
        })
    }

    /// Returns the whole lifetime.
    pub fn length(self) -> Duration {
        Duration::try_from(self.until.duration_since(self.from)).unwrap_or_default()
    }

    /// Returns whether the remaining share of the lifetime is at most `threshold`
    /// (`--cert-rotation-remaining-time-threshold`). An expired chain has no remaining share.
    pub fn is_short(self, threshold: f64, now: Timestamp) -> bool {
        let left = Duration::try_from(self.until.duration_since(now)).unwrap_or_default();
        left.as_secs_f64() <= self.length().as_secs_f64() * threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_certificate_is_renewed_when_a_fifth_of_its_life_is_left() {
        let validity = Validity {
            from: at(1000),
            until: at(2000),
        };
        for (now, threshold, short) in [
            (1000, 0.2, false),
            (1799, 0.2, false),
            (1800, 0.2, true),
            (2000, 0.2, true),
            (5000, 0.2, true),
            (1999, 0.0, false),
            (2000, 0.0, true),
            (1000, 1.0, true),
            (900, 1.0, false),
        ] {
            let found = validity.is_short(threshold, at(now));
            assert_eq!(found, short, "{threshold} at {now}");
        }
    }

    #[test]
    fn a_chain_is_as_good_as_its_worst_part() {
        let part = |from, until| Certificate {
            not_before: at(from),
            not_after: at(until),
            subject: Vec::new(),
            key: Vec::new(),
        };
        let chain = [part(10, 100), part(20, 90), part(15, 200)];
        let expected = Validity {
            from: at(20),
            until: at(90),
        };
        assert_eq!(Validity::of(&chain), Some(expected));
        assert_eq!(Validity::of(&[]), None);
    }
}
