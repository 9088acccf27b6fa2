//! Virtual time: calendars that move with tokio's paused clock.
//!
//! A simulation runs on one thread, which has one clock. API servers and kubelets read the true
//! calendar; each process of the product reads one of its own, which may be wrong: clocks jump and
//! drift.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_shared::clock::Calendar;
use tokio::time::Instant;

use crate::history::Process;

/// Second since 1970 at which every simulation begins: 2030-01-01T00:00:00Z.
const EPOCH: i64 = 1_893_456_000;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    /// What is wrong with calendars now, by the numbers of the faults.
    static SKEWS: RefCell<BTreeMap<u64, Skew>> = const { RefCell::new(BTreeMap::new()) };
}

/// How a calendar is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Whose calendar; none for those of all processes.
    pub process: Option<Process>,
    /// True time since which it is wrong.
    pub since: Timestamp,
    /// The jump at that time.
    pub jump: SignedDuration,
    /// Thousandths by which it is faster since then.
    pub drift: i64,
}

impl Skew {
    /// Returns how far the calendar is ahead at a true time.
    pub fn at(&self, now: Timestamp) -> SignedDuration {
        let passed = now.duration_since(self.since).as_millis();
        let drifted = passed.saturating_mul(i128::from(self.drift)) / 1_000;
        let drifted = SignedDuration::from_millis(i64::try_from(drifted).unwrap_or_default());
        self.jump.saturating_add(drifted)
    }

    /// Returns whether the error of the calendar concerns a process.
    pub fn concerns(&self, process: &Process) -> bool {
        self.process.as_ref().is_none_or(|it| it == process)
    }
}

/// Begins the virtual time of this thread now.
pub fn begin() {
    START.set(Some(Instant::now()));
    SKEWS.with_borrow_mut(BTreeMap::clear);
    muster_shared::clock::set_calendar_of_thread(now);
}

/// Returns the time of the true calendar.
pub fn now() -> Timestamp {
    let epoch = Timestamp::from_second(EPOCH).unwrap_or_default();
    let passed = START.get().map(|start| start.elapsed()).unwrap_or_default();
    epoch + SignedDuration::try_from(passed).unwrap_or_default()
}

/// Returns what a process reads as its calendar.
pub fn of(process: &Process) -> Timestamp {
    let now = now();
    let ahead = SKEWS.with_borrow(|skews| {
        let skews = skews.values().filter(|skew| skew.concerns(process));
        skews.fold(SignedDuration::ZERO, |sum, skew| {
            sum.saturating_add(skew.at(now))
        })
    });
    now.saturating_add(ahead).unwrap_or(Timestamp::MAX)
}

/// Returns the calendar of a process.
pub fn calendar(process: &Process) -> Calendar {
    let process = process.clone();
    Calendar::new(move || of(&process))
}

/// Makes calendars wrong, until [`set_right`] is called with the same number.
pub fn set_wrong(number: u64, skew: Skew) {
    SKEWS.with_borrow_mut(|skews| skews.insert(number, skew));
}

/// Sets right what a fault made wrong.
pub fn set_right(number: u64) {
    SKEWS.with_borrow_mut(|skews| skews.remove(&number));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_calendar_jumps_and_drifts_by_itself_and_is_set_right() {
        begin();
        let (mine, others) = (Process::ControlPlane(0), Process::ControlPlane(1));
        let skew = |process, seconds, drift| Skew {
            process,
            since: now(),
            jump: SignedDuration::from_secs(seconds),
            drift,
        };
        set_wrong(1, skew(Some(mine.clone()), 60, 100));
        tokio::time::advance(Duration::from_secs(100)).await;
        let ahead = |process: &Process| of(process).duration_since(now()).as_secs();
        assert_eq!((ahead(&mine), ahead(&others)), (70, 0));
        set_wrong(2, skew(None, -20, 0));
        assert_eq!((ahead(&mine), ahead(&others)), (50, -20));
        set_right(1);
        assert_eq!((ahead(&mine), ahead(&others)), (-20, -20));
        let program = async { muster_shared::clock::calendar() };
        let read = muster_shared::clock::with_calendar(calendar(&mine), program).await;
        assert_eq!(read.duration_since(now()).as_secs(), -20);
        set_right(2);
        assert_eq!(muster_shared::clock::calendar(), now());
    }
}
