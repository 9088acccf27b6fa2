//! Latency and errors of the last probes of the member's API server.

use std::time::Duration;

use jiff::Timestamp;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::RESPONSIVE;

/// Probes that are remembered: two minutes of them, if the update frequency is the usual one.
const REMEMBERED: usize = 12;
/// Probes that have to be known before the condition is reported.
const LEAST: usize = 3;

/// Limits of `--cluster-api-latency-threshold` and `--cluster-api-errors-threshold`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Time within which an answer has to come.
    pub latency: Duration,
    /// Share of the probes, from 0 to 1, from which on the condition is False if they were answered
    /// late, with an error or not at all.
    pub share: f64,
}

/// The last probes: for each the time that a good answer took, `None` without a good answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    answers: [Option<Duration>; REMEMBERED],
    count: usize,
}

impl Recent {
    /// Takes note of a probe.
    pub fn note(&mut self, answer: Option<Duration>) {
        self.answers.rotate_right(1);
        self.answers[0] = answer;
        self.count = (self.count + 1).min(REMEMBERED);
    }

    /// Returns the condition; `None` while too few probes are known. The message has the limits and
    /// no measured times, which always differ.
    pub fn condition(&self, limits: Limits, now: Timestamp) -> Option<Condition> {
        let known = &self.answers[..self.count];
        if known.len() < LEAST {
            return None;
        }
        let is_bad = |it: &&Option<Duration>| it.is_none_or(|took| took > limits.latency);
        let bad = known.iter().filter(is_bad).count();
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let is_responsive = (bad as f64) < limits.share * known.len() as f64;
        let (status, reason, part) = if is_responsive {
            (TRUE, "Responsive", "less than")
        } else {
            (FALSE, "SlowOrFailing", "at least")
        };
        let message = format!(
            "{part} {}% of the last probes were answered with an error, not at all, or after more than {:?}",
            limits.share * 100.0,
            limits.latency
        );
        Some(conditions::new(RESPONSIVE, status, reason, &message, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        latency: Duration::from_secs(1),
        share: 0.5,
    };

    fn status(recent: &Recent) -> Option<String> {
        let reported = recent.condition(LIMITS, Timestamp::UNIX_EPOCH);
        reported.map(|it| it.status)
    }

    #[test]
    fn an_api_server_is_responsive_unless_a_share_of_its_answers_is_late_or_missing() {
        let good = Some(Duration::from_millis(900));
        let late = Some(Duration::from_millis(1_100));
        for (answers, expected) in [
            (&[][..], None),
            (&[None, None], None),
            (&[good, good, good], Some(TRUE)),
            (&[late, late, late], Some(FALSE)),
            (&[None, None, good], Some(FALSE)),
            (&[late, None, good, good], Some(FALSE)),
            (&[late, good, good, good], Some(TRUE)),
        ] {
            let mut recent = Recent::default();
            for answer in answers {
                recent.note(*answer);
            }
            assert_eq!(status(&recent).as_deref(), expected, "{answers:?}");
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut recent = Recent::default();
        for _ in 0..REMEMBERED {
            recent.note(None);
        }
        let good = Some(Duration::ZERO);
        for _ in 0..REMEMBERED / 2 {
            assert_eq!(status(&recent).as_deref(), Some(FALSE));
            recent.note(good);
        }
        recent.note(good);
        assert_eq!(status(&recent).as_deref(), Some(TRUE));
    }
}
