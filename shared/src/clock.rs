//! Time of day: the only place that reads the machine's clock.
//!
//! [`Clock`] is the clock of decisions: calendar time without steps. [`calendar`] is the calendar
//! as it is, for times that only people read, and for times that other machines compare with their
//! own calendars, such as the validity of certificates.
//!
//! Windows, tolerations and pauses are stored as calendar times, so that a restart does not lose
//! them. A step of the machine's clock (NTP, an operator) would end all of them at once. The
//! monotonic clock says how much time has passed; the calendar is followed by at most a tenth of
//! that.
//!
//! A program that decides for a fleet follows the calendar of the [fleet API's server](ServerClock)
//! ([`Clock::of_server`]), which dates what it is asked to create and delete. Replicas on machines
//! whose clocks differ agree with it and with each other, and what they date does not depend on a
//! machine whose clock is not set yet when the program starts.
//!
//! A simulation runs several programs in one process and gives each a calendar of its own
//! ([`with_calendar`]). Tasks read the calendar of the task that starts them by [`spawn`] or
//! [`inherited`].

mod server;

use std::cell::Cell;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, TimestampArithmetic};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use self::server::{ServerClock, date, retry_after};

/// The calendar is approached by one part of so many of the time that passes.
const SHARE: i32 = 10;
/// How far ahead of our clock a date may be: other processes write theirs at the same moment, by
/// clocks that differ by a second or two.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// A difference from the calendar that is reported.
const WORTH_REPORTING: SignedDuration = SignedDuration::from_secs(10);

/// Returns the time so much later, or the end of the calendar where that lies beyond it.
pub fn later(time: Timestamp, by: impl Into<TimestampArithmetic>) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns a time without its fraction of a second, as objects have it.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns whether a date is so far in the future that a clock wrote it which was wrong.
pub fn is_far_ahead(date: Timestamp, now: Timestamp) -> bool {
    date.duration_since(now) > AHEAD
}

thread_local! {
    /// Calendar of the programs that run on this thread; `None` for that of the machine.
    static CALENDAR: Cell<Option<fn() -> Timestamp>> = const { Cell::new(None) };
}

tokio::task_local! {
    /// Calendar of the program that the running task belongs to; `None` for that of the thread.
    static PROGRAM: Option<Calendar>;
}

/// The calendar of one program, in place of the machine's.
#[derive(Clone)]
pub struct Calendar(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Calendar {
    /// Makes a calendar that a function reads.
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the calendar of the program that the running task belongs to, if it has one of its
    /// own.
    fn of_program() -> Option<Self> {
        PROGRAM.try_with(Clone::clone).ok().flatten()
    }
}

impl Debug for Calendar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Calendar").field(&(self.0)()).finish()
    }
}

/// Returns the calendar of this machine as it is. It may leap at any time: what is decided by times
/// asks a [`Clock`].
pub fn calendar() -> Timestamp {
    let of_program = PROGRAM.try_with(|own| own.as_ref().map(|own| (own.0)()));
    of_program.ok().flatten().unwrap_or_else(of_thread)
}

#[allow(clippy::disallowed_methods)] // the one place
fn of_thread() -> Timestamp {
    CALENDAR
        .get()
        .map_or_else(Timestamp::now, |calendar| calendar())
}

/// Returns the time since the boot of the machine. Unlike the clock of [`Instant`] it goes on while
/// the machine is suspended. `None` on other systems than Linux, and for programs that have a
/// calendar of their own, whose time is not the machine's.
pub fn uptime() -> Option<Duration> {
    let is_simulated = CALENDAR.get().is_some() || Calendar::of_program().is_some();
    if is_simulated { None } else { since_boot() }
}

/// Returns the time of the kernel's clock `CLOCK_BOOTTIME`. It is read before each act of a leader,
/// so that opening a file for it would cost too much.
#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::Boottime).try_into().ok()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<Duration> {
    None
}

/// Runs a program that has a calendar of its own, as have the tasks that it starts.
pub fn with_calendar<F: Future>(
    calendar: Calendar,
    program: F,
) -> impl Future<Output = F::Output> + use<F> {
    PROGRAM.scope(Some(calendar), program)
}

/// Returns a task that reads the calendar of the task which calls this.
pub fn inherited<F: Future>(task: F) -> impl Future<Output = F::Output> + use<F> {
    PROGRAM.scope(Calendar::of_program(), task)
}

/// Starts a task of the program that the running task belongs to. In place of `tokio::spawn`, so
/// that the task reads the program's calendar.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(inherited(task))
}

/// Gives all programs that run on this thread another calendar, until the thread ends. A simulation
/// runs them on one thread, in time of its own.
pub fn set_calendar_of_thread(calendar: fn() -> Timestamp) {
    CALENDAR.set(Some(calendar));
}

/// The clock. It follows the calendar of the program that makes it, or that of a server.
#[derive(Debug)]
pub struct Clock {
    program: Option<Calendar>,
    /// The server whose calendar is followed once it is known; `None` for the program's own.
    server: Option<Arc<ServerClock>>,
    last: Mutex<Reading>,
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    wall: Timestamp,
    tick: Instant,
    /// Whether the calendar was far from `wall`.
    is_off: bool,
    /// Whether the calendar was that of the server.
    is_servers: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            program: Calendar::of_program(),
            server: None,
            last: Mutex::new(Reading::begin(calendar(), Instant::now(), false)),
        }
    }
}

impl Clock {
    /// Returns a clock that follows the calendar of a server. Until the server has answered for the
    /// first time, it is the program's.
    pub fn of_server(server: Arc<ServerClock>) -> Self {
        Self {
            server: Some(server),
            ..Self::default()
        }
    }

    /// Returns this moment.
    pub fn now(&self) -> Timestamp {
        let mut last = self.last.lock();
        let tick = Instant::now();
        let of_server = self.server.as_ref().and_then(|server| server.at(tick));
        let next = match of_server {
            Some(wall) if !last.is_servers => {
                self.report_difference(wall);
                Reading::begin(wall, tick, true)
            }
            Some(wall) => last.next(wall, tick),
            None => last.next(self.calendar(), tick),
        };
        if next.is_off && !last.is_off {
            let whose = if next.is_servers {
                "the fleet API"
            } else {
                "this machine"
            };
            tracing::warn!(
                decided_by = %next.wall,
                "the clock of {whose} was set, or another server answers: decisions go on by the time that really passed, and approach it \
                slowly"
            );
        }
        *last = next;
        next.wall
    }

    /// Returns the calendar of the program.
    fn calendar(&self) -> Timestamp {
        let own = self.program.as_ref();
        own.map_or_else(of_thread, |own| (own.0)())
    }

    fn report_difference(&self, of_server: Timestamp) {
        let own = self.calendar();
        let ahead = own.duration_since(of_server);
        if ahead.abs() > WORTH_REPORTING {
            let direction = if ahead.is_negative() {
                "behind"
            } else {
                "ahead of"
            };
            tracing::warn!(
                "the clock of this machine is {:.0?} {direction} that of the fleet API ({of_server:.0}), by which decisions are \
                dated; certificates, tokens and log lines go by this machine's: look whether NTP runs on both",
                ahead.unsigned_abs()
            );
        }
    }
}

impl Reading {
    /// Returns the first reading of a calendar.
    const fn begin(wall: Timestamp, tick: Instant, is_servers: bool) -> Self {
        Self {
            wall,
            tick,
            is_off: false,
            is_servers,
        }
    }

    /// Returns the reading when the calendar says `wall` and the monotonic clock `tick`.
    fn next(self, wall: Timestamp, tick: Instant) -> Self {
        let passed = tick.saturating_duration_since(self.tick);
        let passed = SignedDuration::try_from(passed.min(Duration::from_hours(24)))
            .unwrap_or(SignedDuration::ZERO);
        let expected = later(self.wall, passed);
        let limit = passed / SHARE;
        let error = wall.duration_since(expected);
        let correction = error.clamp(-limit, limit);
        Self {
            wall: later(expected, correction),
            tick: tick.max(self.tick),
            is_off: error.abs() > WORTH_REPORTING,
            is_servers: self.is_servers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_step_of_the_calendar_ends_no_wait_before_its_time() {
        let tick = Instant::now();
        let start = Reading::begin(at(1_000), tick, false);
        // Seconds that passed, what the calendar says then, and what is decided by.
        for (passed, calendar, expected) in [
            (0, 1_000, 1_000),
            (60, 1_060, 1_060),
            (60, 1_062, 1_062),  // a clock that runs a little fast is followed
            (60, 4_660, 1_066),  // an hour ahead: a tenth of the time
            (60, -2_540, 1_054), // an hour behind
            (0, 4_600, 1_000),
            (0, 0, 1_000),
        ] {
            let now = tick + Duration::from_secs(passed);
            let next = start.next(at(calendar), now);
            assert_eq!(next.wall, at(expected), "{passed} s later: {calendar}");
        }
    }

    #[test]
    fn a_thread_can_have_a_calendar_of_its_own() {
        let reported = std::thread::spawn(|| {
            set_calendar_of_thread(|| at(1_000));
            (calendar(), uptime())
        });
        assert_eq!(reported.join().unwrap(), (at(1_000), None));
        assert!(calendar() > at(1_000) && uptime() > Some(Duration::ZERO));
    }

    #[tokio::test]
    async fn tasks_and_clocks_of_a_program_read_its_calendar() {
        let program = async {
            let clock = Clock::default();
            let task = spawn(async { (calendar(), spawn(async { calendar() }).await) });
            let (outer, inner) = task.await.unwrap();
            [calendar(), outer, inner.unwrap(), clock.now()].map(jiff::Timestamp::as_second)
        };
        let own = Calendar::new(|| at(1_000));
        assert_eq!(with_calendar(own, program).await, [1_000; 4]);
        let plain = spawn(async { calendar() }).await.unwrap();
        assert!(plain > at(1_000), "others read the machine's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_follows_paused_time() {
        set_calendar_of_thread(|| at(1_000));
        let clock = Clock::default();
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(
            clock.now(),
            at(1_090),
            "a tenth behind, as its calendar stands still"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_whose_machine_is_wrong_decides_by_the_clock_of_the_server() {
        let of_server = |second: i64| at(2_000 + second);
        let server = Arc::new(ServerClock::default());
        let program = Calendar::new(|| at(1_000));
        let clock = with_calendar(program, async { Clock::of_server(Arc::clone(&server)) }).await;
        assert_eq!(clock.now(), at(1_000), "the machine's, as nothing is known");
        let observe = |second| server.observe(of_server(second), Instant::now(), Instant::now());
        observe(0);
        assert_eq!(clock.now(), of_server(0), "at once");
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        pass(60).await;
        assert_eq!(clock.now(), of_server(60), "without an answer");
        observe(3_660);
        pass(10).await;
        observe(3_670);
        assert_eq!(clock.now(), of_server(71), "a step is no time that passed");
        pass(60).await;
        assert_eq!(clock.now(), of_server(137), "and is approached");
    }

    #[test]
    fn many_readings_are_no_faster_than_one() {
        let tick = Instant::now();
        let mut reading = Reading::begin(at(1_000), tick, false);
        for millisecond in 1..=60_000 {
            reading = reading.next(at(9_999_999), tick + Duration::from_millis(millisecond));
        }
        assert_eq!(reading.wall, at(1_066));
        assert!(reading.is_off);
    }
}
