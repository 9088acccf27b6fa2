//! Decides from the times of renewals whether the member counts as cut off. Pure, apart from the
//! lock.
//!
//! The time counts from the *sending* of the last renewal that was acknowledged. The control plane
//! counts from the moment at which it saw the last renewal, which is that one or a later one whose
//! acknowledgement was lost: its count never begins before the agent's.
//!
//! The clock of [`Instant`] stands still while the machine is suspended, and that of the control
//! plane does not. The uptime of the machine says how long that was.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Shortest suspension of the machine that is noticed. Shorter ones are within the margin of the
/// control plane.
const SUSPENSION: Duration = Duration::from_secs(1);

/// Time of the last renewal, shared between the thread of the leases and the other tasks.
#[derive(Clone, Debug)]
pub struct Silence {
    times: Arc<Mutex<Times>>,
    learning: Duration,
    uptime: fn() -> Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    /// Start of the process.
    begun: Instant,
    /// Sending of the last renewal of this process that was acknowledged.
    own: Option<Instant>,
    /// Time at or before the last renewal of another process, as far as that is known.
    learned: Option<Instant>,
    /// Acknowledgement that ended the last interruption.
    resumed: Option<Instant>,
    /// A time before the uptime was last read, and that uptime.
    checked: Option<(Instant, Duration)>,
    /// Time at which a suspension of the machine was last noticed.
    woken: Option<Instant>,
}

/// Whether a fenced Work may be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The member counts as cut off, or this process has not renewed the lease yet.
    Refused,
    /// The Work has to be read from the fleet API first: it may have been withdrawn during an
    /// interruption.
    Verify,
    /// The Work may be applied.
    Granted,
}

impl Silence {
    /// Begins now. A process that does not know when the lease was renewed last counts as cut off
    /// after `learning`. `uptime` returns the time since the boot of the machine, including that of
    /// its suspensions.
    pub fn begin(learning: Duration, uptime: fn() -> Option<Duration>) -> Self {
        let times = Times {
            begun: Instant::now(),
            own: None,
            learned: None,
            resumed: None,
            checked: None,
            woken: None,
        };
        Self {
            times: Arc::new(Mutex::new(times)),
            learning,
            uptime,
        }
    }

    /// Records a renewal of this process, by the time at which it was sent. `is_consecutive` says
    /// whether the renewal before it succeeded; otherwise an interruption ends now.
    pub fn acknowledged(&self, sent: Instant, is_consecutive: bool) {
        let mut times = self.lock();
        if times.woken.is_some_and(|woken| sent < woken) {
            // The machine may have been suspended between the sending and the answer.
            return;
        }
        times.own = times.own.max(Some(sent));
        if !is_consecutive || times.resumed.is_none() {
            times.resumed = Some(Instant::now());
        }
    }

    /// Records that some process renewed the lease at this time or later.
    pub fn learned(&self, at: Instant) {
        let mut times = self.lock();
        if times.woken.is_some_and(|woken| at < woken) {
            // How long the machine was suspended since then is not known of this time.
            return;
        }
        times.learned = times.learned.max(Some(at));
    }

    /// Returns the sending of the last renewal of this process.
    pub fn own(&self) -> Option<Instant> {
        self.lock().own
    }

    /// Returns when a suspension of the machine was last noticed.
    pub fn woken(&self) -> Option<Instant> {
        self.lock().woken
    }

    /// Returns the time since the last known renewal; `None` if none is known.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let renewed = self.lock().renewed()?;
        Some(now.saturating_duration_since(renewed))
    }

    /// Returns the time since the last known renewal, or since the start of the process.
    pub fn lasts(&self, now: Instant) -> Duration {
        let times = *self.lock();
        now.saturating_duration_since(times.renewed().unwrap_or(times.begun))
    }

    /// Returns whether a workload is stopped that may run for a time without a renewal.
    pub fn is_due(&self, after: Duration, now: Instant) -> bool {
        self.lock().due(after, self.learning) <= now
    }

    /// Returns whether a fenced Work may be applied that was last read from the fleet API by a
    /// request that was sent at `verified`.
    pub fn permission(
        &self,
        after: Duration,
        verified: Option<Instant>,
        now: Instant,
    ) -> Permission {
        let times = *self.lock();
        let Some(resumed) = times.resumed else {
            return Permission::Refused;
        };
        if times.due(after, self.learning) <= now {
            Permission::Refused
        } else if verified.is_some_and(|verified| verified >= resumed) {
            Permission::Granted
        } else {
            Permission::Verify
        }
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        let mut times = self.times.lock();
        let before = Instant::now();
        if let Some(uptime) = (self.uptime)() {
            times.check(before, uptime, Instant::now());
        }
        times
    }
}

impl Times {
    /// Makes everything older by the time for which the machine was suspended since the last check.
    /// The uptime was read between `before` and `after`.
    fn check(&mut self, before: Instant, uptime: Duration, after: Instant) {
        let checked = self.checked.replace((before, uptime));
        let Some((since, then)) = checked else {
            return;
        };
        let suspended = uptime.saturating_sub(then);
        let suspended = suspended.saturating_sub(after.saturating_duration_since(since));
        if suspended < SUSPENSION {
            return;
        }
        for time in [
            Some(&mut self.begun),
            self.own.as_mut(),
            self.learned.as_mut(),
        ] {
            let Some(time) = time else { continue };
            *time = time.checked_sub(suspended).unwrap_or(*time);
        }
        self.resumed = None;
        self.woken = Some(after);
        tracing::warn!(
            ?suspended,
            "the machine was suspended: the lease was not renewed for that time"
        );
    }

    fn renewed(&self) -> Option<Instant> {
        self.own.max(self.learned)
    }

    fn due(&self, after: Duration, learning: Duration) -> Instant {
        match self.renewed() {
            Some(renewed) => renewed + after,
            None => self.begun + learning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const AFTER: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_due_so_long_after_the_last_acknowledged_renewal_was_sent() {
        let silence = Silence::begin(40 * S, || None);
        let start = Instant::now();
        silence.acknowledged(start, true);
        tokio::time::advance(5 * S).await;
        // A renewal whose answer is lost does not count, wherever it got to.
        for (seconds, due) in [(5, false), (59, false), (60, true), (600, true)] {
            assert_eq!(silence.is_due(AFTER, start + seconds * S), due, "{seconds}");
        }
        silence.acknowledged(start + 61 * S, false);
        assert!(!silence.is_due(AFTER, start + 120 * S));
        assert!(silence.is_due(AFTER, start + 121 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_knows_nothing_counts_as_cut_off_after_a_while() {
        let silence = Silence::begin(40 * S, || None);
        let start = Instant::now();
        assert!(!silence.is_due(AFTER, start + 39 * S));
        assert!(silence.is_due(AFTER, start + 40 * S));
        let before = start.checked_sub(50 * S).unwrap();
        silence.learned(before);
        assert!(!silence.is_due(AFTER, start + 9 * S));
        assert!(
            silence.is_due(AFTER, start + 10 * S),
            "its predecessor's renewal counts"
        );
        silence.learned(before.checked_sub(S).unwrap());
        assert!(
            !silence.is_due(AFTER, start + 9 * S),
            "an older one changes nothing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_interruption_a_work_is_applied_only_as_it_was_read_afterwards() {
        let silence = Silence::begin(40 * S, || None);
        let ask = |verified| silence.permission(AFTER, verified, Instant::now());
        assert_eq!(
            ask(None),
            Permission::Refused,
            "the lease was never renewed"
        );
        let start = Instant::now();
        silence.acknowledged(start, false);
        assert_eq!(ask(None), Permission::Verify);
        let read = Instant::now();
        assert_eq!(ask(Some(read)), Permission::Granted);
        tokio::time::advance(10 * S).await;
        silence.acknowledged(Instant::now(), true);
        assert_eq!(
            ask(Some(read)),
            Permission::Granted,
            "nothing was interrupted"
        );
        tokio::time::advance(AFTER).await;
        assert_eq!(ask(Some(read)), Permission::Refused);
        tokio::time::advance(AFTER).await;
        silence.acknowledged(Instant::now(), false);
        assert_eq!(
            ask(Some(read)),
            Permission::Verify,
            "it may have been withdrawn"
        );
        assert_eq!(ask(Some(Instant::now())), Permission::Granted);
    }

    #[tokio::test(start_paused = true)]
    async fn time_for_which_the_machine_was_suspended_counts() {
        let silence = Silence::begin(40 * S, || None);
        let start = Instant::now();
        let check = |uptime: u32, at: Instant| {
            let mut times = silence.lock();
            times.check(at, uptime * S, at);
        };
        check(1_000, start);
        silence.acknowledged(start, true);
        tokio::time::advance(10 * S).await;
        check(1_010, start + 10 * S);
        assert!(!silence.is_due(AFTER, start + 10 * S));
        assert_eq!(
            silence.permission(AFTER, Some(start), start + 10 * S),
            Permission::Granted
        );

        // It slept for 45 s, of which its clock knows nothing.
        tokio::time::advance(S).await;
        let awake = start + 11 * S;
        check(1_056, awake);
        assert!(!silence.is_due(AFTER, start + 14 * S));
        assert!(silence.is_due(AFTER, start + 15 * S), "45 s and 15 s");
        silence.acknowledged(start + 10 * S, true);
        assert!(
            silence.is_due(AFTER, start + 15 * S),
            "a renewal that was sent before it slept may be of any age"
        );
        assert_eq!(
            silence.permission(AFTER, Some(start), awake),
            Permission::Refused
        );
        tokio::time::advance(S).await;
        silence.acknowledged(awake + S, true);
        assert!(!silence.is_due(AFTER, start + 15 * S));
        assert_eq!(
            silence.permission(AFTER, Some(start), awake + S),
            Permission::Verify,
            "it may have been withdrawn meanwhile"
        );
    }

    #[test]
    fn a_slow_reading_of_the_clocks_is_no_suspension() {
        let silence = Silence::begin(40 * S, || None);
        let start = Instant::now();
        let mut times = silence.lock();
        for (before, uptime, after) in [
            (0, 1_000, 0),
            (10, 1_010, 10),
            (20, 1_024, 24),
            (25, 1_025, 25),
        ] {
            times.check(start + before * S, uptime * S, start + after * S);
            assert_eq!(times.woken, None, "{uptime}");
        }
    }
}
