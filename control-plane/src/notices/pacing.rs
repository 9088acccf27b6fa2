//! Decides whether a receiver may be sent something now: its rest after failures, its notices a
//! minute, and for how long a notice is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::queue::{doubled, jittered};
use tokio::time::Instant;

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(10));
/// Longest pause that a receiver may ask for by `Retry-After`.
const LONGEST_WISH: Duration = Duration::from_hours(1);
/// Time for which a notice is tried: people who come back to work are still notified.
pub const GIVE_UP: Duration = Duration::from_hours(8);
/// Time in which notices are counted.
const WINDOW: Duration = Duration::from_mins(1);

/// Decision about a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The notice is sent now.
    Send,
    /// The notice waits for this time.
    Wait(Duration),
    /// Too many came at a time: after this time all that were left out are sent in one.
    LeaveOut(Duration),
    /// The notice is given up, because it was tried for long enough.
    GiveUp,
    /// The receiver wants no notices any more.
    Stop,
}

/// A notice that was not delivered yet.
#[derive(Clone, Debug)]
struct Waiting {
    id: String,
    since: Instant,
    at: Timestamp,
}

/// State of a receiver. It is lost with the process: another one tries anew at once.
#[derive(Debug, Default)]
pub struct Pacing {
    failures: u32,
    rests_until: Option<Instant>,
    is_stopped: bool,
    window: Option<(Instant, u32)>,
    /// Waiting notices of each record, by name.
    waiting: BTreeMap<String, Waiting>,
    /// Records of which something was left out, by name.
    left_out: BTreeSet<String>,
}

impl Pacing {
    /// Returns when a notice of a record was first due.
    pub fn due(&mut self, record: &str, id: &str, tick: Instant, now: Timestamp) -> Timestamp {
        let new = || Waiting {
            id: id.to_owned(),
            since: tick,
            at: now,
        };
        let waiting = self.waiting.entry(record.to_owned()).or_insert_with(new);
        if waiting.id != id {
            *waiting = new();
        }
        waiting.at
    }

    /// Returns what is to be done about the notice of a record that was sent to
    /// [`due`](Self::due); one that is to be sent is counted.
    pub fn decide(&mut self, record: &str, per_minute: u32, tick: Instant) -> Decision {
        if self.is_stopped {
            return Decision::Stop;
        }
        let since = self.waiting.get(record).map(|it| it.since);
        let age = since.map_or(Duration::ZERO, |since| tick.duration_since(since));
        if self.failures > 0 && age >= GIVE_UP {
            return Decision::GiveUp;
        }
        if let Some(until) = self.rests_until.filter(|it| *it > tick) {
            return Decision::Wait(until.duration_since(tick));
        }
        let (begun, count) = match self.window {
            Some((begun, count)) if tick.duration_since(begun) < WINDOW => (begun, count),
            _ => (tick, 0),
        };
        let is_left_out = self.left_out.contains(record);
        if is_left_out || count >= per_minute {
            self.left_out.insert(record.to_owned());
            return Decision::LeaveOut(WINDOW.saturating_sub(tick.duration_since(begun)));
        }
        self.window = Some((begun, count + 1));
        Decision::Send
    }

    /// Notes that a notice was delivered, or is not tried any more.
    pub fn done(&mut self, record: &str) {
        self.waiting.remove(record);
    }

    /// Notes that the receiver took something. Returns whether it had failed before.
    pub fn taken(&mut self) -> bool {
        self.rests_until = None;
        std::mem::take(&mut self.failures) > 0
    }

    /// Notes a failure, and the time that the receiver asked for. Returns the pause, and whether
    /// this is the first failure in a row.
    pub fn failed(&mut self, wish: Option<Duration>, tick: Instant) -> (Duration, bool) {
        self.failures = self.failures.saturating_add(1);
        let pause = doubled(PAUSE, self.failures - 1);
        let wish = wish.unwrap_or_default().min(LONGEST_WISH);
        let pause = jittered(pause).max(wish);
        self.rests_until = Some(tick + pause);
        (pause, self.failures == 1)
    }

    /// Notes that the receiver wants nothing any more.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns the records of which something was left out.
    pub fn left_out(&self) -> Vec<String> {
        self.left_out.iter().cloned().collect()
    }

    /// Forgets that something of a record was left out, since that was reported.
    pub fn reported(&mut self, record: &str) {
        self.left_out.remove(record);
        self.done(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(pacing: &mut Pacing, record: &str, limit: u32) -> Decision {
        let tick = Instant::now();
        pacing.due(record, "id", tick, Timestamp::UNIX_EPOCH);
        pacing.decide(record, limit, tick)
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_fails_is_asked_ever_less_often_and_for_hours() {
        let mut pacing = Pacing::default();
        let (mut tries, begin) = (0, Instant::now());
        loop {
            match decide(&mut pacing, "a", 20) {
                Decision::Send => {
                    tries += 1;
                    let (_, is_first) = pacing.failed(None, Instant::now());
                    assert_eq!(is_first, tries == 1);
                }
                Decision::Wait(wait) => tokio::time::advance(wait).await,
                other => break assert_eq!(other, Decision::GiveUp),
            }
        }
        assert!((40..90).contains(&tries), "{tries}");
        let lasted = begin.elapsed();
        assert!(
            (GIVE_UP..GIVE_UP + 2 * PAUSE.1).contains(&lasted),
            "{lasted:?}"
        );
        pacing.done("a");
        assert!(
            matches!(
                decide(&mut pacing, "a", 20),
                Decision::Wait(_) | Decision::Send
            ),
            "the next"
        );
        assert!(pacing.taken() && !pacing.taken());
        assert_eq!(decide(&mut pacing, "b", 20), Decision::Send);
        pacing.stop();
        assert_eq!(decide(&mut pacing, "b", 20), Decision::Stop);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_receiver_asks_for_is_kept_within_reason() {
        for (wish, least, most) in [(30, 30, 30), (1, 4, 6), (86_400, 3600, 3600)] {
            let mut pacing = Pacing::default();
            let wish = Some(Duration::from_secs(wish));
            let (pause, _) = pacing.failed(wish, Instant::now());
            assert!(
                (least..=most).contains(&pause.as_secs()),
                "{wish:?}: {pause:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_limit_of_a_minute_notices_are_left_out_until_that_is_reported() {
        let mut pacing = Pacing::default();
        assert_eq!(decide(&mut pacing, "a", 2), Decision::Send);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(decide(&mut pacing, "b", 2), Decision::Send);
        let rest = Decision::LeaveOut(Duration::from_secs(40));
        assert_eq!(decide(&mut pacing, "c", 2), rest);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(decide(&mut pacing, "d", 2), Decision::Send, "a new minute");
        assert!(
            matches!(decide(&mut pacing, "c", 2), Decision::LeaveOut(_)),
            "not reported"
        );
        assert_eq!(pacing.left_out(), ["c"]);
        pacing.reported("c");
        assert_eq!(decide(&mut pacing, "c", 2), Decision::Send);
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_that_is_tried_again_keeps_the_time_at_which_it_was_due() {
        let mut pacing = Pacing::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for (id, second, expected) in [("x", 1, 1), ("x", 5, 1), ("y", 7, 7), ("y", 8, 7)] {
            let found = pacing.due("a", id, Instant::now(), at(second));
            assert_eq!(found, at(expected), "{id} {second}");
        }
    }
}
