//! Durations in Go's syntax.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// Duration in Go's syntax (`40s`, `1m30s`, `250ms`, `1.5h`), as Karmada's flags take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// Makes a duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }
}

impl Deref for Duration {
    type Target = std::time::Duration;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

/// The units of Go's durations with their length in nanoseconds; of two of which one begins the
/// other, the longer first.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];
/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;
/// Nanoseconds of the longest duration that Go has. Times of the API are far from their end when
/// it is added to them.
const LONGEST: u128 = i64::MAX as u128;
/// Digits behind the point that are read: all that make a difference, of hours too.
const PLACES: usize = 18;

impl FromStr for Duration {
    type Err = String;

    /// Reads what Go's `time.ParseDuration` reads, but for negative durations.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!(
                "{text:?} is not a duration: write for example 40s, 5m, 1h30m or 250ms, at most \
                 292 years"
            )
        })
    }
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::default());
    }
    let mut nanoseconds = 0;
    loop {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, length) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        nanoseconds += amount(number, *length)?;
        if nanoseconds > LONGEST {
            return None;
        }
        rest = &behind[unit.len()..];
        if rest.is_empty() {
            let nanoseconds = u64::try_from(nanoseconds).ok()?;
            return Some(Duration(std::time::Duration::from_nanos(nanoseconds)));
        }
    }
}

/// Returns so many units in nanoseconds; what is less than one nanosecond is left out.
fn amount(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(fraction) {
        return None;
    }
    let value = |digits: &str| match digits.trim_start_matches('0') {
        "" => Some(0),
        digits => digits.parse::<u64>().ok().map(u128::from),
    };
    let kept = &fraction[..fraction.len().min(PLACES)];
    let part = value(kept)? * unit / 10_u128.pow(u32::try_from(kept.len()).ok()?);
    Some(value(whole)? * unit + part)
}

impl fmt::Display for Duration {
    /// Writes what Go's `Duration.String` writes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0.as_secs(), self.0.subsec_nanos());
        let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
        let fraction = |unit: u32| {
            let text = format!(".{:0width$}", part % unit, width = unit.ilog10() as usize);
            text.trim_end_matches(['0', '.']).to_owned()
        };
        if whole == 0 && part > 0 {
            return match part {
                1..1_000 => write!(f, "{part}ns"),
                1_000..1_000_000 => write!(f, "{}{}µs", part / 1_000, fraction(1_000)),
                _ => write!(f, "{}{}ms", part / 1_000_000, fraction(1_000_000)),
            };
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{seconds}{}s", fraction(1_000_000_000))
    }
}

crate::deserialize_parsed!(Duration);
