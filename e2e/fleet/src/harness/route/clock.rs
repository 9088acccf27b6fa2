//! A wrong clock, as the other side sees it: the times in what passes are moved.
//!
//! Whoever writes times by a clock that is wrong by `d` and reads those of a right one cannot be
//! told from somebody with a right clock all of whose times are moved by `d` on the way out and by
//! `-d` on the way in. So nobody's clock has to be touched, and no binary needs a hook for it. What
//! stays right is what no API carries: the validity of certificates and tokens.

use std::borrow::Cow;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::{Captures, Regex};

/// A JSON string that is a time as Kubernetes writes them: whole seconds or a fraction, always in
/// UTC.
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#""(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d{1,9}))?Z)""#)
        .expect("a literal pattern: invariant of this file")
});

/// Moves every time in a JSON text. The length stays the same.
pub fn moved(text: &str, by: SignedDuration) -> Cow<'_, str> {
    if by.is_zero() {
        return Cow::Borrowed(text);
    }
    TIME.replace_all(text, |found: &Captures<'_>| {
        let digits = found.get(2).map_or(0, |fraction| fraction.len());
        let time: Option<Timestamp> = found[1].parse().ok();
        match time.and_then(|time| time.checked_add(by).ok()) {
            Some(time) => format!("\"{time:.digits$}\""),
            None => found[0].to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_moved_and_nothing_else() {
        let minutes = SignedDuration::from_mins(10);
        let cases = [
            (
                r#"{"renewTime":"2026-01-01T00:00:00.000001Z"}"#,
                r#"{"renewTime":"2026-01-01T00:10:00.000001Z"}"#,
            ),
            (r#"["2026-12-31T23:55:00Z"]"#, r#"["2027-01-01T00:05:00Z"]"#),
            (
                r#"{"name":"at 2026-01-01T00:00:00Z"}"#,
                r#"{"name":"at 2026-01-01T00:00:00Z"}"#,
            ),
            (r#"{"day":"2026-01-01"}"#, r#"{"day":"2026-01-01"}"#),
            (
                r#"{"no":"2026-13-01T00:00:00Z"}"#,
                r#"{"no":"2026-13-01T00:00:00Z"}"#,
            ),
        ];
        for (before, after) in cases {
            assert_eq!(moved(before, minutes), after);
        }
    }
}
