//! Decides when the fenced objects are checked again while the lease is not renewed. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::objects::Round;

/// Pause while something had to be stopped a moment ago: a write that was under way may have
/// started it after it was stopped.
const AGAIN: Duration = Duration::from_secs(2);
/// Time for which the pause is short after something had to be stopped. Longer than the deadline of
/// a write.
const ACTIVE: Duration = Duration::from_secs(20);
/// Pause afterwards: somebody in the member, such as an autoscaler, may start it again.
const CALM: Duration = Duration::from_secs(5);
/// Pause while nothing is due, unless something becomes due earlier.
const NOT_DUE: Duration = Duration::from_secs(10);

/// Times of the rounds over the fenced objects.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Time of the next round.
    next: Option<Instant>,
    /// Time of the last round that stopped something, or could not.
    active: Option<Instant>,
    /// Whether objects were due since the lease was last renewed.
    is_stopping: bool,
}

impl Rounds {
    /// Returns whether the objects are checked now.
    pub fn is_time(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Takes in the result of a round; `lasts` is the time since the last renewal.
    pub fn over(&mut self, round: &Round, lasts: Duration, now: Instant) {
        let is_due = round.stopped + round.failed > 0;
        self.is_stopping |= is_due;
        if round.changed + round.failed > 0 || round.trouble.is_some() {
            self.active = Some(now);
        }
        let is_active = self.active.is_some_and(|active| now < active + ACTIVE);
        let pause = match () {
            () if is_active => AGAIN,
            () if is_due => CALM,
            () => NOT_DUE,
        };
        let until_due = round.next.map(|after| after.saturating_sub(lasts));
        self.next = Some(now + until_due.map_or(pause, |rest| rest.min(pause)));
    }

    /// Ends the rounds, because the lease is renewed. Returns whether something was stopped.
    pub fn end(&mut self) -> bool {
        std::mem::take(self).is_stopping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Rounds in a time that begins 40 s after the last renewal, where objects are stopped after
    /// `after`, and `starts` says whether somebody starts one again in every round.
    fn rounds(time: Duration, after: Duration, starts: bool) -> (usize, Option<Duration>) {
        let (mut rounds, begun) = (Rounds::default(), Instant::now());
        let (mut count, mut stopped) = (0, None);
        let mut at = Duration::ZERO;
        while at < time {
            let (now, lasts) = (begun + at, 40 * S + at);
            if rounds.is_time(now) {
                count += 1;
                let mut round = Round::default();
                if lasts >= after {
                    round.stopped = 1;
                    round.changed = usize::from(starts || stopped.is_none());
                    stopped.get_or_insert(lasts);
                } else {
                    round.next = Some(after);
                }
                rounds.over(&round, lasts, now);
            }
            at += S;
        }
        (count, stopped)
    }

    #[test]
    fn objects_are_stopped_at_their_time_and_seldom_checked_before_and_afterwards() {
        let (count, stopped) = rounds(600 * S, 40 * S, false);
        assert_eq!(stopped, Some(40 * S));
        // 10 within the first 20 s, one each 5 s in the other 580 s: every 2 s it would be 300.
        assert_eq!(count, 126);
        let (count, stopped) = rounds(600 * S, 633 * S, false);
        assert_eq!(stopped, Some(633 * S));
        assert_eq!(count, 64);
    }

    #[test]
    fn what_somebody_starts_again_is_stopped_again_soon() {
        assert_eq!(rounds(60 * S, 40 * S, true).0, 30);
    }

    #[test]
    fn an_answer_that_is_missing_is_asked_for_again_soon() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let partial = Round {
            trouble: Some(String::new()),
            ..Round::default()
        };
        rounds.over(&partial, 40 * S, now);
        assert!(!rounds.is_time(now + S) && rounds.is_time(now + 2 * S));
        assert!(!rounds.end(), "nothing was stopped");
    }
}
