//! Since when a policy's conditions match a cluster, or do not.
//!
//! The proposal asks that conditions match *continuously* for a time before a taint comes, and do not match
//! continuously for a time before it goes. While we run we see every change ourselves. Over a restart the persisted
//! window and the conditions' own transition times together say whether there was a break that we missed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The present verdict of one policy on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Generation of the policy that gave the verdict: an edited policy starts anew.
    pub generation: i64,
    /// Whether the conditions match.
    pub matched: bool,
    /// Since when, without a break.
    pub since: Timestamp,
    /// What the conditions' transition times said when the window was last looked at.
    pub transition: Timestamp,
}

/// A verdict as it can be read from the cluster alone.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Whether the conditions match.
    pub matched: bool,
    /// Since when they have done so at least, by their transition times.
    pub since: Timestamp,
}

impl Window {
    /// The window after a look at the cluster. `first_look`: this process has not looked at it before, so that
    /// changes may have been missed.
    pub fn next(
        before: Option<&Self>,
        verdict: Verdict,
        generation: i64,
        first_look: bool,
        now: Timestamp,
    ) -> Self {
        let told = verdict.since.min(now);
        let since = match before {
            Some(window) if window.generation == generation => {
                let missed = first_look && told > window.transition;
                match (window.matched == verdict.matched, missed || first_look) {
                    (true, _) if !missed => window.since,
                    (_, true) => told.max(window.since.min(now)),
                    // Seen as it happened: our clock counts, not the member's.
                    (_, false) => now,
                }
            }
            _ => told,
        };
        Self {
            generation,
            matched: verdict.matched,
            since,
            transition: told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn window(matched: bool, since: i64, transition: i64) -> Window {
        Window {
            generation: 1,
            matched,
            since: at(since),
            transition: at(transition),
        }
    }

    #[test]
    fn a_window_begins_when_the_verdict_changes() {
        let cases = [
            // before, verdict now, told by conditions, first look, now → since
            (None, true, 50, true, 100, 50),
            (None, true, 50, false, 100, 50),
            (None, true, 500, true, 100, 100), // a clock ahead of ours
            (Some(window(true, 50, 50)), true, 50, false, 100, 50), // nothing happened
            (Some(window(true, 50, 50)), true, 80, false, 100, 50), // False became Unknown: no break
            (Some(window(true, 50, 50)), true, 50, true, 100, 50), // nothing happened while we were away
            (Some(window(true, 50, 50)), true, 80, true, 100, 80), // something did: it may have been a break
            (Some(window(false, 50, 50)), true, 99, false, 100, 100), // seen as it happened
            (Some(window(false, 50, 50)), true, 10, false, 100, 100), // a clock behind ours
            (Some(window(false, 50, 50)), true, 90, true, 100, 90), // it happened while we were away
            (Some(window(false, 50, 50)), true, 10, true, 100, 50), // not before the last change that we saw
        ];
        for (n, (before, matched, told, first_look, now, since)) in cases.into_iter().enumerate() {
            let verdict = Verdict {
                matched,
                since: at(told),
            };
            let next = Window::next(before.as_ref(), verdict, 1, first_look, at(now));
            assert_eq!((next.matched, next.since), (matched, at(since)), "case {n}");
        }
    }

    #[test]
    fn an_edited_policy_is_judged_anew() {
        let verdict = Verdict {
            matched: true,
            since: at(20),
        };
        let next = Window::next(Some(&window(true, 70, 70)), verdict, 2, false, at(100));
        assert_eq!(next.since, at(20));
    }
}
