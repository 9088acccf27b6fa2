//! Time since when the conditions of a policy match a cluster, or do not match.
//!
//! In the proposal, conditions must match *without interruption* for a time before a taint is
//! added, and not match without interruption before it is removed. The time is counted from when
//! this control plane saw the change: the transition time of a condition may be that of the
//! member's clock, and says only whether there was an interruption that the control plane did not
//! see.

use jiff::Timestamp;
use muster_shared::k8s::ObjectMeta;
use serde::{Deserialize, Serialize};

/// The present verdict of one policy on one cluster. It is kept only while a taint waits for its
/// time to come or to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Generation of the policy that gave the verdict: an edited policy starts anew.
    pub generation: i64,
    /// Uid of that policy: one that replaces it at once, under its name, starts anew as well.
    /// `None`: a version before noted the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether the conditions match.
    pub matched: bool,
    /// Since when, without a break, by the clock of the control plane.
    pub since: Timestamp,
    /// The latest transition time of the conditions when the window was last computed, by whatever
    /// clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transition: Option<Timestamp>,
    /// The statuses of the conditions at that moment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statuses: String,
}

/// A verdict as it can be read from the cluster alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the conditions match.
    pub matched: bool,
    /// The statuses of the conditions that the cluster has, in the policy's order.
    pub statuses: String,
    /// The latest transition time among these conditions; `None` if the cluster has none of them.
    pub transition: Option<Timestamp>,
}

impl Window {
    /// Returns the window of a policy after a decision about the cluster. `is_first`: this process
    /// has not decided about it before, so that changes may have been missed.
    pub fn next(
        before: Option<&Self>,
        verdict: Verdict,
        policy: &ObjectMeta,
        is_first: bool,
        now: Timestamp,
    ) -> Self {
        let generation = policy.generation.unwrap_or_default();
        let since = match before {
            Some(window)
                if window.generation == generation
                    && (window.uid.is_none() || window.uid == policy.uid)
                    && window.matched == verdict.matched
                    && !window.is_broken_by(&verdict, is_first) =>
            {
                // A time to come is the clock of another leader.
                window.since.min(now)
            }
            _ => now,
        };
        Self {
            generation,
            uid: policy.uid.clone(),
            matched: verdict.matched,
            since,
            transition: verdict.transition,
            statuses: verdict.statuses,
        }
    }

    /// Returns whether the verdict may have been another one between the last decision and this
    /// one.
    ///
    /// A condition that has the same status and another transition time was different in between.
    /// One that changed its status (False to Unknown, for instance) was seen to do so, unless
    /// nobody decided.
    fn is_broken_by(&self, verdict: &Verdict, is_first: bool) -> bool {
        let moved = self.transition != verdict.transition;
        let same_statuses = self.statuses == verdict.statuses;
        moved && (is_first || same_statuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::at;

    fn window(matched: bool, since: i64, transition: Option<i64>) -> Window {
        Window {
            generation: 1,
            uid: Some("u".into()),
            matched,
            since: at(since),
            transition: transition.map(at),
            statuses: "False".into(),
        }
    }

    fn policy(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        }
    }

    fn verdict(matched: bool, status: &str, transition: Option<i64>) -> Verdict {
        Verdict {
            matched,
            statuses: status.into(),
            transition: transition.map(at),
        }
    }

    #[test]
    fn a_window_begins_when_this_control_plane_sees_the_verdict_change() {
        let before = |matched, since, transition| Some(window(matched, since, transition));
        let old = &before(true, 50, Some(50));
        let unmatched = &before(false, 50, Some(50));
        let (undated, ahead) = (&before(true, 50, None), &before(true, 500, Some(50)));
        let ill = |transition| verdict(true, "False", Some(transition));
        let silent = || verdict(true, "Unknown", Some(80));
        let well = |transition| verdict(true, "True", Some(transition));
        let again = verdict(true, "False", None);
        let over = verdict(false, "True", Some(50));
        for (n, (before, verdict, is_first, since)) in [
            // Whatever the conditions say of themselves, be their clock behind or ahead.
            (&None, ill(50), true, 100),
            (&None, ill(50), false, 100),
            (&None, ill(500), true, 100),
            (&None, verdict(false, "", None), false, 100),
            // A verdict that is given again changes nothing.
            (old, ill(50), false, 50),
            (old, ill(50), true, 50),
            (undated, again, false, 50),
            // False became Unknown, and both match: no break.
            (old, silent(), false, 50),
            // The same status since another time: it was different between two decisions.
            (old, ill(80), false, 100),
            (old, ill(10), false, 100),
            // Something happened between two decisions.
            (old, ill(80), true, 100),
            (old, silent(), true, 100),
            // Another verdict.
            (old, over, false, 100),
            (unmatched, well(99), false, 100),
            (unmatched, well(10), false, 100),
            (unmatched, well(90), true, 100),
            // Noted by a leader whose clock was ahead.
            (ahead, ill(50), true, 100),
        ]
        .into_iter()
        .enumerate()
        {
            let matched = verdict.matched;
            let policy = policy("u", 1);
            let next = Window::next(before.as_ref(), verdict, &policy, is_first, at(100));
            assert_eq!((next.matched, next.since), (matched, at(since)), "case {n}");
        }
    }

    #[test]
    fn a_policy_that_was_edited_or_replaced_is_judged_anew() {
        let known = window(true, 70, Some(70));
        let of_a_version_before = Window {
            uid: None,
            ..known.clone()
        };
        for (before, uid, generation, since) in [
            (&known, "u", 1, 70),
            (&known, "u", 2, 100),
            (&known, "another", 1, 100),
            (&of_a_version_before, "u", 1, 70),
        ] {
            let again = verdict(true, "False", Some(70));
            let policy = policy(uid, generation);
            let next = Window::next(Some(before), again, &policy, false, at(100));
            assert_eq!(next.since, at(since), "{uid} {generation}");
            assert_eq!(next.uid.as_deref(), Some(uid));
        }
    }

    #[test]
    fn a_second_decision_about_the_same_conditions_changes_nothing() {
        for verdict in [
            verdict(true, "False", Some(5)),
            verdict(false, "", None),
            verdict(false, "True", Some(500)),
        ] {
            let policy = policy("u", 1);
            let first = Window::next(None, verdict.clone(), &policy, true, at(100));
            let second = Window::next(Some(&first), verdict, &policy, false, at(200));
            assert_eq!(first, second);
        }
    }
}
