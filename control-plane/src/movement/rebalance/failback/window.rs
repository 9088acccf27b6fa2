//! Decides whether a time lies in a window of the week. Pure.

use jiff::civil::Weekday as Day;
use jiff::{Timestamp, ToSpan as _};
use muster_shared::api::failback::{FailbackWindow, Weekday};

use crate::settings::failback_times::{time, zone};

/// State of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The window is open.
    Open,
    /// The window opens at this time.
    At(Timestamp),
    /// The window cannot be read, or never opens.
    Never,
}

/// Returns whether a window is open at `now`, or when it opens.
///
/// Its times are those of clocks in its zone: a window is an hour longer or shorter in the night in
/// which they change.
pub fn opening(window: &FailbackWindow, now: Timestamp) -> Opening {
    let zone = zone(window.time_zone.as_deref().unwrap_or_default());
    let (Some(zone), Some(start), Some(end)) = (zone, time(&window.start), time(&window.end))
    else {
        return Opening::Never;
    };
    let today = now.to_zoned(zone.clone()).date();
    // A window that began yesterday may be open; the next is a week away at the most.
    let begins = (-1..=7).filter_map(|days: i64| {
        let day = today.checked_add(days.days()).ok()?;
        let is_meant = window.days.is_empty() || window.days.iter().any(|it| is(it, day.weekday()));
        if !is_meant {
            return None;
        }
        let last = if end > start {
            day
        } else {
            day.tomorrow().ok()?
        };
        let at = |date: jiff::civil::Date, time| {
            let zoned = date.to_datetime(time).to_zoned(zone.clone());
            zoned.ok().map(|it| it.timestamp())
        };
        Some((at(day, start)?, at(last, end)?))
    });
    let mut next = None;
    for (from, to) in begins {
        if from <= now && now < to {
            return Opening::Open;
        }
        if from > now {
            next = Some(next.map_or(from, |next: Timestamp| next.min(from)));
        }
    }
    next.map_or(Opening::Never, Opening::At)
}

fn is(day: &Weekday, of: Day) -> bool {
    let day = match day {
        Weekday::Monday => Day::Monday,
        Weekday::Tuesday => Day::Tuesday,
        Weekday::Wednesday => Day::Wednesday,
        Weekday::Thursday => Day::Thursday,
        Weekday::Friday => Day::Friday,
        Weekday::Saturday => Day::Saturday,
        Weekday::Sunday => Day::Sunday,
        Weekday::Other(_) => return false,
    };
    day == of
}

#[cfg(test)]
mod tests {
    use crate::settings::failback_times::FailbackTimes;

    use super::*;

    #[test]
    fn a_window_is_open_from_its_start_to_its_end_on_its_days_in_its_zone() {
        let at = |text: &str| -> Timestamp { format!("2026-{text}Z").parse().unwrap() };
        let open = "";
        // 2026-01-05 is a Monday.
        for (window, now, expected) in [
            ("22:00-04:00", "01-05T22:00:00", open),
            ("22:00-04:00", "01-06T03:59:59", open),
            ("22:00-04:00", "01-06T04:00:00", "01-06T22:00:00"),
            ("09:00-17:00", "01-05T08:59:59", "01-05T09:00:00"),
            ("09:00-17:00", "01-05T17:00:00", "01-06T09:00:00"),
            ("00:00-00:00", "01-05T13:00:00", open),
            // The night of Sunday ends on Monday.
            ("Sunday 22:00-04:00", "01-05T03:00:00", open),
            ("Sunday 22:00-04:00", "01-05T05:00:00", "01-11T22:00:00"),
            ("Monday 22:00-04:00", "01-05T03:00:00", "01-05T22:00:00"),
            ("Monday 01:00-02:00", "01-05T02:00:00", "01-12T01:00:00"),
            // In winter an hour ahead of UTC, in summer two.
            ("22:00-23:00 Europe/Berlin", "01-05T21:00:00", open),
            (
                "22:00-23:00 Europe/Berlin",
                "07-06T19:00:00",
                "07-06T20:00:00",
            ),
            // A night without 02:30: the window begins an hour later by the clock.
            (
                "02:30-04:00 Europe/Berlin",
                "03-29T01:29:00",
                "03-29T01:30:00",
            ),
        ] {
            let times: FailbackTimes = window.parse().unwrap();
            let found = opening(&times.0.unwrap(), at(now));
            let expected = match expected {
                "" => Opening::Open,
                later => Opening::At(at(later)),
            };
            assert_eq!(found, expected, "{window} at {now}");
        }
    }

    #[test]
    fn a_window_that_cannot_be_read_never_opens() {
        let window = |start: &str, zone: Option<&str>| FailbackWindow {
            start: start.to_owned(),
            end: "04:00".to_owned(),
            time_zone: zone.map(str::to_owned),
            ..FailbackWindow::default()
        };
        for window in [window("25:00", None), window("22:00", Some("Mars/Base"))] {
            assert_eq!(opening(&window, Timestamp::UNIX_EPOCH), Opening::Never);
        }
        let nights = FailbackWindow {
            days: vec![Weekday::from("Someday".to_owned())],
            ..window("22:00", None)
        };
        assert_eq!(opening(&nights, Timestamp::UNIX_EPOCH), Opening::Never);
    }
}
