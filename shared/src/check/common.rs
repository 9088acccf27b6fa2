//! Checks that concern every API: whether it answers, its version, its clock, and credentials.

use jiff::Timestamp;

use super::{Answer, Category, Clocks};
use crate::client::Life;
use crate::k8s::VersionInfo;

/// Seconds of difference between clocks that are reported: certificates and tokens are judged by
/// the clocks of both sides, and new ones are often dated back by minutes.
pub const TOLERATED: i64 = 5;
/// Seconds of difference between clocks that break things: new tokens and certificates count as
/// not valid yet.
const BREAKING: i64 = 5 * 60;
/// Seconds before the end of credentials from which the check warns: 14 days.
const SOON: f64 = 14.0 * 86_400.0;
/// Share of their life that is left to credentials which nothing renews: agents renew theirs with
/// a fifth left.
const LATE: f64 = 0.15;

/// Checks that an API answers, and with which version. Returns whether it answers.
pub fn reach(
    category: &mut Category,
    server: &str,
    version: &Answer<VersionInfo>,
    minimum: (u32, u32),
) -> bool {
    match version {
        Ok(info) => {
            category.ok("answers", format!("{server} answers"));
            let words = format!("Kubernetes {}", info.git_version);
            let (major, minor) = minimum;
            match numbers(&info.git_version) {
                Some(found) if found < minimum => category.error(
                    "version",
                    format!("{words}, which is older than {major}.{minor}"),
                    format!("Upgrade it to Kubernetes {major}.{minor} or later."),
                ),
                _ => category.ok("version", words),
            }
            true
        }
        Err(refusal) => {
            let hint = "Look at the address and the credentials of the kubeconfig, at firewalls, and at HTTPS_PROXY and NO_PROXY.";
            category.error("answers", format!("{server}: {refusal}"), hint);
            false
        }
    }
}

/// Returns major and minor version.
pub fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Compares the clock of an API with that of this machine.
pub fn clock(category: &mut Category, whose: &str, clocks: &Answer<Clocks>) {
    match clocks {
        Ok(clocks) => skew(category, "clock", whose, "this machine", clocks.ahead()),
        Err(refusal) => category.unknown("clock", &format!("the clock of {whose}"), refusal),
    }
}

/// Judges a difference of clocks, in seconds.
pub fn skew(category: &mut Category, name: &'static str, whose: &str, than: &str, ahead: i64) {
    let seconds = ahead.abs();
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let message = format!("the clock of {whose} is {seconds} s {side} that of {than}");
    let hint =
        "Run NTP on both: certificates, tokens and times in the status are judged by these clocks.";
    if seconds <= TOLERATED {
        let message = format!("the clock of {whose} agrees with that of {than}");
        category.ok(name, message);
    } else if seconds < BREAKING {
        category.warning(name, message, hint);
    } else {
        category.error(name, message, hint);
    }
}

/// Judges when credentials end. `whose` begins the sentence, as in "your certificate".
pub fn life(
    category: &mut Category,
    name: &'static str,
    whose: &str,
    life: Option<Life>,
    now: Timestamp,
    hint: &str,
) {
    let Some(life) = life else {
        return category.ok(name, format!("{whose}: no end"));
    };
    let left = life.end.duration_since(now);
    let words = format!("{whose}: {}", remaining(left.as_secs()));
    if left.as_secs() <= 0 {
        category.error(name, words, hint);
    } else if ends_soon(life, now) {
        category.warning(name, words, hint);
    } else {
        category.ok(name, words);
    }
}

/// Returns whether credentials end in days, and would have been renewed if anything renewed them.
pub fn ends_soon(life: Life, now: Timestamp) -> bool {
    let left = life.end.duration_since(now).as_secs_f64();
    let is_late = life.begin.is_none_or(|begin| {
        let whole = life.end.duration_since(begin).as_secs_f64();
        left < whole * LATE
    });
    left < SOON && is_late
}

/// Returns the time that is left, in words.
pub fn remaining(seconds: i64) -> String {
    match seconds {
        ..=0 => format!("expired {} ago", span(-seconds)),
        _ => format!("{} left", span(seconds)),
    }
}

fn span(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Refusal, Status, Verdict};
    use super::*;

    fn one(check: impl FnOnce(&mut Category)) -> Verdict {
        let mut category = Category::new("x");
        check(&mut category);
        category.into_verdicts().pop().unwrap()
    }

    #[test]
    fn an_api_that_is_too_old_is_an_error_and_one_of_a_provider_is_read() {
        for (version, expected) in [
            ("v1.29.9", Status::Error),
            ("v1.30.0", Status::Ok),
            ("v1.31.2-eks-1a2b", Status::Ok),
            ("v1.30+", Status::Ok),
            ("v2.0.0", Status::Ok),
            ("unreadable", Status::Ok),
        ] {
            let info = VersionInfo {
                git_version: version.to_owned(),
                ..VersionInfo::default()
            };
            let verdict = one(|it| _ = reach(it, "https://a", &Ok(info), (1, 30)));
            assert_eq!(verdict.status, expected, "{version}");
        }
        let refusal = Err(Refusal::Failed("connection refused".to_owned()));
        let verdict = one(|it| assert!(!reach(it, "https://a", &refusal, (1, 30))));
        assert_eq!(verdict.message, "https://a: connection refused");
    }

    #[test]
    fn small_differences_of_clocks_are_none_and_large_ones_break_tokens() {
        for (ahead, expected, words) in [
            (0, Status::Ok, "agrees"),
            (-5, Status::Ok, "agrees"),
            (6, Status::Warning, "6 s ahead of that of b"),
            (-60, Status::Warning, "60 s behind that of b"),
            (300, Status::Error, "300 s ahead"),
            (-4000, Status::Error, "4000 s behind"),
        ] {
            let verdict = one(|it| skew(it, "clock", "a", "b", ahead));
            assert_eq!(verdict.status, expected, "{ahead}");
            assert!(verdict.message.contains(words), "{}", verdict.message);
        }
    }

    #[test]
    fn credentials_that_something_renews_in_time_may_be_short_lived() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let now = at("2030-01-01T00:00:00Z");
        for (begin, end, expected, words) in [
            (None, "2031-01-01T00:00:00Z", Status::Ok, "365 days left"),
            (None, "2030-01-05T00:00:00Z", Status::Warning, "4 days left"),
            (
                None,
                "2029-12-31T00:00:00Z",
                Status::Error,
                "expired 24 h ago",
            ),
            (
                Some("2029-12-31T23:30:00Z"),
                "2030-01-01T00:30:00Z",
                Status::Ok,
                "30 min left",
            ),
            (
                Some("2029-01-01T00:00:00Z"),
                "2030-01-01T01:00:00Z",
                Status::Warning,
                "60 min left",
            ),
        ] {
            let credentials = Life {
                begin: begin.map(at),
                end: at(end),
            };
            let verdict = one(|it| life(it, "c", "yours", Some(credentials), now, "renew it"));
            assert_eq!(verdict.status, expected, "{credentials:?}");
            assert!(verdict.message.contains(words), "{}", verdict.message);
        }
        let endless = one(|it| life(it, "c", "yours", None, now, "renew it"));
        assert_eq!(endless.message, "yours: no end");
    }
}
