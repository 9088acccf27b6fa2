//! Times of the week in a flag: `--failback-window`.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use muster_shared::api::failback::{FailbackWindow, Weekday};

/// A window, such as `Saturday,Sunday 22:00-04:00 Europe/Berlin`; days and zone may be left out.
/// Without a window, any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailbackTimes(pub Option<FailbackWindow>);

/// Returns what is wrong with a window, with the name of the field.
pub fn faults(window: &FailbackWindow) -> Vec<(&'static str, String, &'static str)> {
    let mut faults = Vec::new();
    for (field, text) in [("start", &window.start), ("end", &window.end)] {
        if time(text).is_none() {
            let why = "must be a time of day between 00:00 and 23:59";
            faults.push((field, text.clone(), why));
        }
    }
    for day in &window.days {
        if let Weekday::Other(text) = day {
            faults.push(("days", text.clone(), "must be a day, such as Monday"));
        }
    }
    if let Some(zone) = window.time_zone.as_ref().filter(|it| zone(it).is_none()) {
        let why = "must be the name of a time zone, such as Europe/Berlin";
        faults.push(("timeZone", zone.clone(), why));
    }
    faults
}

/// Returns the time of `HH:MM`.
pub fn time(text: &str) -> Option<Time> {
    let (hours, minutes) = text.split_once(':')?;
    let is_number = |it: &str| it.len() == 2 && it.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    Time::new(hours.parse().ok()?, minutes.parse().ok()?, 0, 0).ok()
}

/// Returns the time zone of a name; `None` if there is no such zone.
pub fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    }
}

impl fmt::Display for FailbackTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(window) = &self.0 else { return Ok(()) };
        if !window.days.is_empty() {
            let days: Vec<&str> = window.days.iter().map(Weekday::as_str).collect();
            write!(f, "{} ", days.join(","))?;
        }
        write!(f, "{}-{}", window.start, window.end)?;
        match &window.time_zone {
            Some(zone) => write!(f, " {zone}"),
            None => Ok(()),
        }
    }
}

impl FromStr for FailbackTimes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Ok(Self(None));
        }
        let example = "write for example `Saturday,Sunday 22:00-04:00 Europe/Berlin`";
        let days = words.next_if(|it| !it.contains(':')).unwrap_or_default();
        let days = days.split(',').filter(|it| !it.is_empty());
        let times = words.next().and_then(|it| it.split_once('-'));
        let (start, end) = times.ok_or_else(|| format!("{text:?} has no times: {example}"))?;
        let window = FailbackWindow {
            days: days.map(|it| Weekday::from(it.to_owned())).collect(),
            start: start.to_owned(),
            end: end.to_owned(),
            time_zone: words.next().map(str::to_owned),
        };
        if let Some(more) = words.next() {
            return Err(format!("{more:?} is too much: {example}"));
        }
        match faults(&window).first() {
            Some((_, what, why)) => Err(format!("{what:?} {why}: {example}")),
            None => Ok(Self(Some(window))),
        }
    }
}

muster_shared::deserialize_parsed!(FailbackTimes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_and_written_in_one_form() {
        for text in [
            "",
            "22:00-04:00",
            "Saturday,Sunday 22:00-04:00",
            "09:30-17:00 Europe/Berlin",
            "Monday 00:00-00:00 UTC",
        ] {
            let times: FailbackTimes = text.parse().unwrap();
            assert_eq!(times.to_string(), text);
        }
        for (text, expected) in [
            ("Monday", "has no times"),
            ("Mon 22:00-04:00", "must be a day"),
            ("24:00-04:00", "must be a time of day"),
            ("9:00-17:00", "must be a time of day"),
            ("22:00-04:00 Mars/Base", "must be the name of a time zone"),
            ("22:00-04:00 UTC daily", "is too much"),
        ] {
            let why = text.parse::<FailbackTimes>().unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
