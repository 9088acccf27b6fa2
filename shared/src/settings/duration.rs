//! Durations in Go's syntax.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

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

/// The units of Go's durations with their length in nanoseconds; longer spellings first where one
/// begins another.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || format!("{text:?} is not a duration: write for example 40s, 5m, 1h30m or 250ms");
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut nanoseconds = 0.0;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(refused)?;
            let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
            rest = &rest[digits..];
            // Longest match: "ms" is not "m" followed by "s".
            let (unit, length) = UNITS
                .iter()
                .filter(|(unit, _)| rest.starts_with(unit))
                .max_by_key(|(unit, _)| unit.len())
                .ok_or_else(refused)?;
            nanoseconds += number * length;
            rest = &rest[unit.len()..];
        }
        if text.is_empty() {
            return Err(refused());
        }
        std::time::Duration::try_from_secs_f64(nanoseconds / 1e9)
            .map(Self)
            .map_err(|_| refused())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
        if whole == 0 && millis > 0 {
            return write!(f, "{millis}ms");
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if millis > 0 {
            write!(f, "{seconds}.{millis:03}s")
        } else {
            write!(f, "{seconds}s")
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
