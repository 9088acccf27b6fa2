//! The clock of an API server, as its answers show it.

use std::time::Duration;

use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::later;

/// What `Date` leaves out: it has no fractions of a second.
const FRACTION: SignedDuration = SignedDuration::from_secs(1);
/// An answer that differs by more contradicts what is known; what differs by less corrects it.
const MUCH: SignedDuration = SignedDuration::from_secs(2);
/// For how long all answers have to contradict what is known until they are believed.
const CONFIRMED: Duration = Duration::from_secs(10);

/// The clock of an API server.
///
/// Every answer has a `Date` (RFC 9110, section 6.6.1). The server wrote it between the request and
/// the end of the answer's head, and cut off the fractions. Between answers the monotonic clock
/// goes on from there.
///
/// Several servers may answer under one address, and their clocks may differ. What contradicts the
/// clock is believed when no other has answered for a while, so that the one that answered first
/// is followed and not each after the other.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    reading: Option<Reading>,
    /// Since when all answers contradict that.
    doubted_since: Option<Instant>,
}

/// Time of the server's clock at a moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall: Timestamp,
    tick: Instant,
}

impl Reading {
    /// Returns what the clock says later.
    fn at(self, tick: Instant) -> Timestamp {
        let passed = tick.saturating_duration_since(self.tick);
        later(self.wall, passed)
    }
}

impl ServerClock {
    /// Takes note of the `Date` of an answer to a request that was sent at `asked`. What is known
    /// is changed by no more than the answer proves wrong, so that a slow answer changes little.
    pub fn observe(&self, date: Timestamp, asked: Instant, answered: Instant) {
        let mut known = self.0.lock();
        let took = answered.saturating_duration_since(asked);
        let latest = later(later(date, FRACTION), took);
        let expected = known.reading.map(|reading| reading.at(answered));
        let wall = expected.map_or(date, |expected| expected.clamp(date, latest));
        let is_far = expected.is_some_and(|it| it.duration_since(wall).abs() > MUCH);
        if is_far {
            let since = *known.doubted_since.get_or_insert(answered);
            if answered.saturating_duration_since(since) < CONFIRMED {
                return;
            }
        }
        known.doubted_since = None;
        known.reading = Some(Reading {
            wall,
            tick: answered,
        });
    }

    /// Returns what the clock says at a moment; `None` before the first answer.
    pub fn at(&self, tick: Instant) -> Option<Timestamp> {
        let known = self.0.lock();
        known.reading.map(|reading| reading.at(tick))
    }
}

/// Returns the `Date` of an answer that its server gave just now: one that a cache kept has an
/// `Age`.
pub fn date(headers: &HeaderMap) -> Option<Timestamp> {
    if headers.contains_key(header::AGE) {
        return None;
    }
    let text = headers.get(header::DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(date.timestamp())
}

/// Reads `Retry-After` in seconds, as Kubernetes' priority and fairness writes it.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn answers_correct_what_they_prove_wrong() {
        let start = Instant::now();
        let tick = |millis| start + Duration::from_millis(millis);
        // When the request was sent and answered, the second of the answer, and what the clock says
        // when it has come; milliseconds.
        let clock = ServerClock::default();
        assert_eq!(clock.at(start), None);
        for (asked, answered, date, expected) in [
            (0, 100, 1_000, 1_000_000),         // the first
            (100, 500, 1_000, 1_000_400),       // agrees
            (500, 600, 1_001, 1_001_000),       // the server's second had begun
            (600, 1_900, 1_001, 1_002_300),     // slow, and agrees
            (1_900, 32_000, 1_003, 1_032_400),  // half a minute on the way: proves nothing
            (32_000, 32_100, 4_600, 1_032_500), // set ahead by an hour, or another server
            (32_200, 32_300, 1_031, 1_032_100), // that one again
            (33_000, 33_100, 4_601, 1_032_900),
            (43_000, 43_100, 4_611, 4_611_000), // no other has answered for ten seconds
            (43_100, 43_200, 4_611, 4_611_100),
            (43_300, 43_200, 4_611, 4_611_100), // moments out of order
        ] {
            clock.observe(at(date * 1_000), tick(asked), tick(answered));
            assert_eq!(clock.at(tick(answered)), Some(at(expected)), "{answered}");
        }
        assert_eq!(clock.at(tick(44_200)), Some(at(4_612_100)), "goes on");
        assert_eq!(
            clock.at(start),
            Some(at(4_611_100)),
            "not before it was read"
        );
    }

    #[test]
    fn of_servers_that_differ_the_first_is_followed_as_long_as_it_answers() {
        let start = Instant::now();
        let clock = ServerClock::default();
        for second in 0..120 {
            let tick = start + Duration::from_secs(second);
            let other = if second % 3 == 0 { 0 } else { 60_000 };
            let millis = i64::try_from(second).unwrap() * 1_000;
            clock.observe(at(millis + other), tick, tick);
            assert_eq!(clock.at(tick), Some(at(millis)), "{second}");
        }
    }

    #[test]
    fn the_date_of_an_answer_is_read_unless_a_cache_kept_it() {
        for (name, value, expected) in [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("date", "Tue, 06 Nov 1994 08:49:37 GMT", None), // it was a Sunday
            ("date", "yesterday", None),
            ("date", "", None),
            ("warning", "none", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let read = date(&headers);
            assert_eq!(read.map(Timestamp::as_second), expected, "{value}");
            headers.insert("age", "3".parse().unwrap());
            assert_eq!(date(&headers), None);
        }
    }
}
