//! Decides when a lasting problem is reported: not at once, not at every attempt, and repeatedly.

use std::time::Duration;

use tokio::time::Instant;

/// Schedule by which one lasting problem is reported.
#[derive(Clone, Copy, Debug)]
pub struct Reminder {
    patience: Duration,
    since: Option<Instant>,
    reported: Option<Instant>,
}

impl Reminder {
    /// Pause between reports of a problem that has been reported before.
    pub const PERIOD: Duration = Duration::from_mins(1);

    /// Reports a problem once it has lasted for `patience`, and then every
    /// [`PERIOD`](Self::PERIOD).
    pub const fn after(patience: Duration) -> Self {
        Self {
            patience,
            since: None,
            reported: None,
        }
    }

    /// Reports a problem at once, and then every [`PERIOD`](Self::PERIOD).
    pub const fn at_once() -> Self {
        Self::after(Duration::ZERO)
    }

    /// Sets for how long the trouble has to last before it is reported.
    pub const fn patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Notes that the problem exists. Returns its duration if it is to be reported now.
    pub fn trouble(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let lasted = now.duration_since(since);
        let due = match self.reported {
            None => lasted >= self.patience,
            Some(reported) => now.duration_since(reported) >= Self::PERIOD,
        };
        due.then(|| {
            self.reported = Some(now);
            lasted
        })
    }

    /// Notes that the problem is over. Returns its duration if it was reported.
    pub fn over(&mut self, now: Instant) -> Option<Duration> {
        let since = self.since.take();
        let reported = self.reported.take();
        reported.and(since).map(|since| now.duration_since(since))
    }

    /// Returns when the problem is to be reported next, if it goes on.
    pub fn next(&self) -> Option<Instant> {
        let since = self.since?;
        Some(
            self.reported
                .map_or(since + self.patience, |reported| reported + Self::PERIOD),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_reported_after_its_patience_and_then_once_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let reported = |reminder: &mut Reminder, seconds: &[u64]| -> Vec<u64> {
            let seconds = seconds.iter().copied();
            seconds
                .filter(|it| reminder.trouble(at(*it)).is_some())
                .collect()
        };
        let mut patient = Reminder::after(Duration::from_secs(5));
        assert_eq!(
            reported(&mut patient, &[0, 1, 4, 6, 7, 65, 66, 67, 130]),
            [6, 66, 130]
        );
        assert_eq!(patient.over(at(140)), Some(Duration::from_secs(140)));
        assert_eq!(
            reported(&mut patient, &[150, 151]),
            [0; 0],
            "another trouble"
        );
        assert_eq!(patient.next(), Some(at(155)));
        assert_eq!(patient.over(at(152)), None, "it was never reported");
        assert_eq!(patient.next(), None);
        assert_eq!(reported(&mut Reminder::at_once(), &[0, 1, 2, 60]), [0, 60]);
    }
}
