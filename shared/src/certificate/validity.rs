//! For how long a certificate is good, and whether that is little. Pure.

use std::time::Duration;

use crate::tls::Certificate;
use jiff::Timestamp;

/// The time in which every certificate of a chain is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The latest beginning.
    pub from: Timestamp,
    /// The earliest end.
    pub until: Timestamp,
}

impl Validity {
    /// Of a chain; `None` when it has no certificates.
    pub fn of(chain: &[Certificate]) -> Option<Self> {
        Some(Self {
            from: chain.iter().map(|it| it.not_before).max()?,
            until: chain.iter().map(|it| it.not_after).min()?,
        })
    }

    /// Its whole length.
    pub fn length(self) -> Duration {
        Duration::try_from(self.until.duration_since(self.from)).unwrap_or_default()
    }

    /// Whether the share of it that is left is at most `threshold`
    /// (`--cert-rotation-remaining-time-threshold`). What has expired has nothing left.
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
