//! State of an application that survives a restart: since when it is unhealthy, and how often it
//! was moved.
//!
//! It is stored in an annotation of the binding. Karmada keeps it in memory, so that a restart or a
//! change of leader restarts every clock (K54), and an application that is unhealthy everywhere is
//! moved without end (K56).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_shared::clock::{is_far_ahead, later};
use muster_shared::k8s::Condition;
use muster_shared::queue::doubled;
use serde::{Deserialize, Serialize};

use super::decide::Since;
use super::explain::FailoverState;

/// Annotation with the history, as JSON.
pub const ANNOTATION: &str = "failover.muster.io/record";

/// Pause after a move before the next one; doubled by each further move, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct History {
    /// Clusters in which the application is unhealthy, and since when.
    #[serde(skip_serializing_if = "Since::is_empty")]
    #[serde(rename = "unhealthySince")]
    pub since: Since,
    /// Moves of the application without a long rest between.
    #[serde(skip_serializing_if = "is_zero")]
    pub moves: u32,
    /// Time of the last move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_move: Option<Timestamp>,
    /// Last move, with what is reported of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Move>,
}

/// A move, as it is reported. Condition and event are written after it, so that a process
/// may end in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The cluster that was left.
    pub from: String,
    /// Since when the application was unhealthy there.
    pub since: Timestamp,
    /// The clusters that it was placed on.
    pub to: String,
    /// Purge mode.
    pub mode: String,
    /// Whether its policy has rules of state preservation that a feature gate keeps from working.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_state: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(moves: &u32) -> bool {
    *moves == 0
}

impl History {
    /// Reads the annotation. What is not ours to understand counts as nothing: the clocks start
    /// anew.
    pub fn read(annotation: Option<&str>) -> Self {
        annotation
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Returns the history that a binding records.
    pub fn of(binding: &impl ResourceExt) -> Self {
        Self::read(binding.annotations().get(ANNOTATION).map(String::as_str))
    }

    /// Returns the value of the annotation; `None` if there is nothing to remember.
    pub fn write(&self) -> Option<String> {
        let is_something = *self != Self::default();
        is_something.then(|| serde_json::json!(self).to_string())
    }

    /// Returns the history in which a cluster counts as unhealthy at the earliest since it was
    /// reporting again: while it was silent, nothing was known of the health.
    #[must_use]
    pub fn reporting_since(
        mut self,
        reporting: impl Fn(&str) -> Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        for (cluster, since) in &mut self.since {
            if let Some(reporting) = reporting(cluster) {
                *since = (*since).max(reporting.min(now));
            }
        }
        self
    }

    /// Returns the pause that follows the last move; `None` if there was none.
    fn pause(&self) -> Option<SignedDuration> {
        let pause = doubled((FIRST_PAUSE, LONGEST_PAUSE), self.moves.checked_sub(1)?);
        SignedDuration::try_from(pause).ok()
    }

    /// Returns the first moment at which the application may be moved again; `None` if it may be
    /// moved at once.
    pub fn rested_at(&self, now: Timestamp) -> Option<Timestamp> {
        let pause = self.pause()?;
        // A move in the future was noted by another clock.
        Some(later(self.last_move?.min(now), pause))
    }

    /// Returns whether the last move has a date that is too far in the future to be right. Such a
    /// move counts as one of now, and that has to be written down: otherwise it would count as one
    /// of now each time that the application is reconciled.
    pub fn is_ahead(&self, now: Timestamp) -> bool {
        self.last_move.is_some_and(|last| is_far_ahead(last, now))
    }

    /// Returns the history with what is known of the application's health now. Moves are forgotten
    /// after the longest pause without another, and not before one could have followed.
    #[must_use]
    pub fn with_health(&self, since: Since, now: Timestamp) -> Self {
        let rest = SignedDuration::try_from(LONGEST_PAUSE).unwrap_or(SignedDuration::MAX);
        let rest = self.pause().map_or(rest, |pause| rest.max(pause + pause));
        // While it is unhealthy it does not rest, whatever keeps it from being moved.
        let until = since.values().copied().min().map_or(now, |it| it.min(now));
        let recent = |last: &Timestamp| until.duration_since(*last) < rest;
        let last_move = if self.is_ahead(now) {
            Some(now)
        } else {
            self.last_move.filter(recent)
        };
        Self {
            since,
            moves: if last_move.is_some() { self.moves } else { 0 },
            last: last_move.and_then(|_| self.last.clone()),
            last_move,
        }
    }

    /// Returns the history after the application left a cluster.
    #[must_use]
    pub fn after_move(mut self, cluster: &str, now: Timestamp) -> Self {
        self.since.remove(cluster);
        self.moves = self.moves.saturating_add(1);
        self.last_move = Some(now);
        self.last = None;
        self
    }

    /// Returns the history with the moves that the binding records, where the binding knows of a
    /// later one: the answer to its write was lost, or another process wrote it.
    #[must_use]
    pub fn with_moves_of(mut self, written: &Self) -> Self {
        if written.last_move > self.last_move {
            self.moves = written.moves;
            self.last_move = written.last_move;
            self.last.clone_from(&written.last);
        }
        self
    }

    /// Returns the last move if the condition is older than it, so that the move was not reported
    /// yet. Of two moves without anything between them, the condition keeps the time of the first,
    /// and its message says which one it is about.
    pub fn to_publish(&self, reported: Option<&Condition>) -> Option<&Move> {
        let (at, last) = (self.last_move?, self.last.as_ref()?);
        let is_before = |reported: &Condition| {
            reported.last_transition_time.0.as_second() < at.as_second()
                && reported.message != FailoverState::Left(last.clone()).message()
        };
        reported.is_none_or(is_before).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::any_binding::AnyBinding;
    use muster_shared::conditions;

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).unwrap()
    }

    #[test]
    fn the_pause_doubles_with_each_move_up_to_an_hour() {
        let mut history = History::default();
        assert_eq!(history.rested_at(at(0)), None);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            history = history.after_move("m1", at(0));
            assert_eq!(history.rested_at(at(0)), Some(at(pause)));
        }
    }

    #[test]
    fn a_move_that_another_clock_dates_in_the_future_holds_no_longer_than_one_of_now() {
        let moved = History::default().after_move("m1", at(1_000));
        assert_eq!(moved.rested_at(at(5)), Some(at(6)));
    }

    #[test]
    fn a_move_that_was_dated_far_ahead_is_one_of_the_moment_in_which_that_was_seen() {
        let moved = History::default().after_move("m1", at(1_000));
        assert!(moved.is_ahead(at(5)));
        let seen = moved.with_health(Since::new(), at(5));
        assert!(!seen.is_ahead(at(5)));
        assert_eq!(seen.rested_at(at(5)), Some(at(6)));
        let later = seen.with_health(Since::new(), at(6));
        assert_eq!(later.rested_at(at(6)), Some(at(6)), "it is not put off");
        // Another process wrote it at the same moment.
        assert!(!History::default().after_move("m1", at(6)).is_ahead(at(5)));
    }

    #[test]
    fn time_in_which_a_cluster_was_silent_is_no_time_of_bad_health() {
        let history = History::default().with_health(
            Since::from([("m1".to_owned(), at(0)), ("m2".to_owned(), at(0))]),
            at(0),
        );
        for (reporting, expected) in [
            (None, at(0)),
            (Some(at(-5)), at(0)),
            (Some(at(7)), at(7)),
            (Some(at(70)), at(10)), // a clock ahead
        ] {
            let counted = history.clone().reporting_since(
                |cluster| {
                    if cluster == "m1" {
                        reporting
                    } else {
                        Some(at(0))
                    }
                },
                at(10),
            );
            assert_eq!(counted.since["m1"], expected, "{reporting:?}");
            assert_eq!(counted.since["m2"], at(0));
        }
    }

    #[test]
    fn moves_are_forgotten_after_an_hour_of_rest() {
        let moved = History::default()
            .after_move("m1", at(0))
            .after_move("m2", at(10));
        assert_eq!(moved.with_health(Since::new(), at(69)).moves, 2);
        assert_eq!(moved.with_health(Since::new(), at(70)), History::default());
    }

    #[test]
    fn a_move_whose_answer_was_lost_counts_as_soon_as_the_binding_shows_it() {
        let known = History::default().with_health(Since::from([("m2".to_owned(), at(9))]), at(9));
        let written = History::default()
            .after_move("m0", at(1))
            .after_move("m1", at(8));
        let both = known.clone().with_moves_of(&written);
        assert_eq!((both.moves, both.last_move), (2, Some(at(8))));
        assert_eq!(both.since, known.since);
        // The cache may be behind.
        let later = written.clone().after_move("m2", at(10));
        assert_eq!(later.clone().with_moves_of(&written), later);
        assert_eq!(known.clone().with_moves_of(&History::default()), known);
        // Of two that report the same moment, the one at hand stays.
        let more = written.clone().after_move("m2", at(8));
        assert_eq!(more.clone().with_moves_of(&written), more);
    }

    #[test]
    fn a_move_that_a_process_did_not_report_any_more_is_reported_by_the_next() {
        let last = Move {
            from: "m1".to_owned(),
            since: at(0),
            to: "m2".to_owned(),
            mode: "Directly".to_owned(),
            without_state: false,
        };
        let moved = History {
            last: Some(last.clone()),
            ..History::default().after_move("m1", at(10))
        };
        let moved = History::read(moved.write().as_deref());
        let condition = |status, minute| conditions::new("C", status, "R", "", at(minute));
        for (reported, is_unpublished) in [
            (None, true),
            (Some(condition("True", 9)), true),
            // The story of a former move, whose status was the same.
            (Some(condition("False", 9)), true),
            (
                Some(FailoverState::Left(last.clone()).condition(at(9))),
                false,
            ),
            // That is the story of the move, or a later one.
            (Some(condition("False", 10)), false),
            (Some(condition("True", 10)), false),
            (Some(condition("True", 11)), false),
        ] {
            assert_eq!(
                moved.to_publish(reported.as_ref()).is_some(),
                is_unpublished,
                "{reported:?}"
            );
        }
        assert_eq!(History::default().to_publish(None), None);
        let later = moved.with_health(Since::new(), at(70));
        assert_eq!(later, History::default());
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_is_not_written() {
        let unhealthy = Since::from([("m1".to_owned(), at(0))]);
        let history = History::default()
            .with_health(unhealthy, at(0))
            .after_move("m2", at(1));
        assert_eq!(History::read(history.write().as_deref()), history);
        assert_eq!(History::default().write(), None);
        let binding: AnyBinding = serde_json::from_value(serde_json::json!({
            "metadata": {"annotations": {ANNOTATION: history.write()}},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}},
        }))
        .unwrap();
        assert_eq!(History::of(&binding), history);
        let unmoved = History::default().with_health(history.since.clone(), at(0));
        assert!(!unmoved.write().unwrap().contains("moves"));
        for nothing in [
            None,
            Some(""),
            Some("{"),
            Some("[]"),
            Some("{\"moves\": \"many\"}"),
        ] {
            assert_eq!(History::read(nothing), History::default());
        }
    }

    #[test]
    fn what_moves_again_after_the_longest_pause_has_not_rested() {
        let toleration = SignedDuration::from_secs(30);
        let (mut history, mut now, mut last) = (History::default(), at(0), SignedDuration::ZERO);
        for number in 1..=12 {
            // The application is seen healthy, and then moves.
            history = history.with_health(Since::new(), now).after_move("m1", now);
            let rested = history.rested_at(now).unwrap();
            let pause = rested.duration_since(now);
            assert!(pause >= last, "move {number}: {pause:?} after {last:?}");
            (last, now) = (pause, rested + toleration);
        }
    }

    #[test]
    fn what_could_not_move_for_long_while_it_was_unhealthy_has_not_rested() {
        let mut history = History::default();
        for minute in 0..7 {
            history = history.after_move("m1", at(minute));
        }
        // All movement is paused for a day, and it is unhealthy all the time.
        let since = Since::from([("m2".to_owned(), at(8))]);
        let unhealthy = history.with_health(since, at(24 * 60));
        assert_eq!(unhealthy.moves, 7);
        // The application is unhealthy since this moment: it was healthy for hours before.
        let since = Since::from([("m2".to_owned(), at(24 * 60))]);
        assert_eq!(history.with_health(since, at(24 * 60)).moves, 0);
        assert_eq!(history.with_health(Since::new(), at(24 * 60)).moves, 0);
    }
}
