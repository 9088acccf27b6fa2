//! Conditions of a Work, with Karmada's reasons and messages.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{APPLIED, CONTENDED, DISPATCHING, OBJECTS_MISSING};
use muster_shared::text;

use crate::work::cached::{TERMINATING, Unreadable};
use crate::work::object;
use crate::work::waits::Contended;

/// Returns the condition that says whether dispatching is allowed or suspended.
pub fn dispatching(suspended: bool, now: Timestamp) -> Condition {
    let (reason, message) = if suspended {
        (
            "SuspendDispatching",
            "Work dispatching is in a suspended state.",
        )
    } else {
        (
            "Dispatching",
            "Work is being dispatched to member clusters.",
        )
    };
    conditions::new(
        DISPATCHING,
        if suspended { FALSE } else { TRUE },
        reason,
        message,
        now,
    )
}

/// Bytes of a message about one object. A server may quote the object in its refusal.
const LONGEST_FAILURE: usize = 1024;
/// Bytes of a message about all of them. Kubernetes takes 32 KiB, and an event 1 KiB.
const LONGEST_MESSAGE: usize = 4096;

/// Shortest and longest pause between two checks of objects that are being deleted.
const FIRST_CHECK: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Failures of a Work.
#[derive(Debug, Default)]
pub struct Failures {
    /// Messages about manifests that were not applied.
    pub unapplied: Vec<String>,
    /// Messages about objects that were not removed, of a deleted Work or of an earlier version of
    /// it.
    pub unremoved: Vec<String>,
    /// Messages about objects that are being deleted or wait for others, and are not gone yet.
    pub terminating: Vec<String>,
    /// Time since which the first of them is.
    pub since: Option<Timestamp>,
    /// Messages about objects that are applied without fields that the member does not know.
    pub left_out: Vec<String>,
}

impl Failures {
    /// Returns whether there is no failure.
    pub fn is_empty(&self) -> bool {
        self.unapplied.is_empty() && self.unremoved.is_empty()
    }

    /// Returns one message about all failures.
    pub fn message(&self) -> String {
        aggregate(self.unapplied.iter().chain(&self.unremoved))
    }

    /// Adds an object that will be gone, or released, without any help.
    pub fn add_waiting(&mut self, error: &object::Error, since: Timestamp) {
        self.terminating.push(error.to_string());
        self.since = Some(self.since.map_or(since, |known| known.min(since)));
    }

    /// Adds an object that was not removed.
    pub fn add_unremoved(&mut self, error: &object::Error) {
        if let Some(since) = error.terminates_since() {
            self.add_waiting(error, since);
        } else {
            self.unremoved.push(error.to_string());
        }
    }

    /// Returns the time after which objects that are being deleted are checked again, where no
    /// watch reports their end: each time as long as it has taken so far. `None` if there are
    /// none.
    pub fn check_again(&self, now: Timestamp) -> Option<Duration> {
        let lasts = Duration::try_from(now.duration_since(self.since?)).unwrap_or_default();
        Some(lasts.clamp(FIRST_CHECK, LONGEST_PAUSE))
    }
}

/// Returns the condition that says whether all of the `total` objects were applied, and all dropped
/// objects removed.
pub fn applied(total: usize, failures: &Failures, now: Timestamp) -> Condition {
    let Failures {
        unapplied,
        unremoved,
        terminating,
        left_out,
        ..
    } = failures;
    let message = match (unapplied.is_empty(), unremoved.is_empty()) {
        (true, true) if !terminating.is_empty() => {
            let message = aggregate(terminating);
            return conditions::new(APPLIED, FALSE, TERMINATING, &message, now);
        }
        (true, true) => {
            let message = "Manifest has been successfully applied";
            let message = if left_out.is_empty() {
                message.to_owned()
            } else {
                let fields = aggregate(left_out);
                format!("{message}, but for fields that the member does not know: {fields}")
            };
            return conditions::new(APPLIED, TRUE, "AppliedSuccessful", &message, now);
        }
        (false, true) => not_applied(total, unapplied),
        (true, false) => not_removed(unremoved),
        (false, false) => format!(
            "{}; {}",
            not_applied(total, unapplied),
            not_removed(unremoved)
        ),
    };
    conditions::new(APPLIED, FALSE, "AppliedFailed", &message, now)
}

fn not_applied(total: usize, messages: &[String]) -> String {
    let succeeded = total.saturating_sub(messages.len());
    let messages = aggregate(messages);
    format!("Failed to apply all manifests ({succeeded}/{total}): {messages}")
}

fn not_removed(messages: &[String]) -> String {
    format!(
        "Failed to remove {} objects: {}",
        messages.len(),
        aggregate(messages)
    )
}

/// Returns the condition that says which objects of a suspended Work are gone.
pub fn missing(objects: &[String], now: Timestamp) -> Condition {
    let message = format!(
        "The member does not have {} any more, or it belongs to somebody else there. It is not made again while dispatching is suspended",
        aggregate(objects)
    );
    conditions::new(APPLIED, FALSE, OBJECTS_MISSING, &message, now)
}

/// Returns the condition of a Work that cannot be read.
pub fn unreadable(why: &Unreadable, now: Timestamp) -> Condition {
    conditions::new(APPLIED, FALSE, "AppliedFailed", &why.to_string(), now)
}

/// Returns the condition that names other writers of the Work's objects; `None` when there are none
/// and the Work has no such condition that is true.
pub fn contended(
    known: &[Condition],
    contended: &[Contended],
    now: Timestamp,
) -> Option<Condition> {
    if contended.is_empty() {
        let was = conditions::status(known, CONTENDED) == Some(TRUE);
        let message = "Nobody else changes the objects of the work";
        return was.then(|| conditions::new(CONTENDED, FALSE, "Calm", message, now));
    }
    let objects = contended.iter().map(|contended| {
        let object = &contended.object;
        match &contended.rival {
            Some(rival) => {
                format!("{object} is changed again and again by field manager {rival:?}")
            }
            None => format!("{object} is changed or deleted again and again"),
        }
    });
    let message = format!(
        "{}. It is repaired with growing pauses of up to five minutes. Take the fields out of the resource template, or stop the other writer.",
        aggregate(&objects.collect::<Vec<_>>())
    );
    let condition = conditions::new(CONTENDED, TRUE, "ChangedByOthers", &message, now);
    Some(condition)
}

/// Joins messages as Kubernetes writes aggregates: one as it is, several in brackets, each once.
/// Messages beyond the limit are counted.
fn aggregate<'a>(messages: impl IntoIterator<Item = &'a String>) -> String {
    let mut known = HashSet::new();
    let messages = messages.into_iter();
    let messages = messages.map(|message| text::cut(message, LONGEST_FAILURE, "..."));
    let unique: Vec<_> = messages
        .filter(|message| known.insert(message.clone()))
        .collect();
    let mut reported = 0;
    let mut length = 0;
    for message in &unique {
        length += message.len() + 2;
        if reported > 0 && length > LONGEST_MESSAGE {
            break;
        }
        reported += 1;
    }
    match (&unique[..reported], unique.len() - reported) {
        ([one], 0) => one.clone(),
        (several, 0) => format!("[{}]", several.join(", ")),
        (several, more) => format!("[{}, and {more} more]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_applied_condition_counts_and_quotes_the_failures() {
        let one = "Failed to apply all manifests (1/2): a";
        let two = "Failed to apply all manifests (1/3): [a, b]";
        let same = "Failed to apply all manifests (1/3): a";
        for (total, failures, status, message) in [
            (2, vec![], "True", "Manifest has been successfully applied"),
            (2, vec!["a"], "False", one),
            (3, vec!["a", "b"], "False", two),
            (3, vec!["a", "a"], "False", same),
        ] {
            let failures = Failures {
                unapplied: failures.into_iter().map(str::to_owned).collect(),
                ..Failures::default()
            };
            let condition = applied(total, &failures, Timestamp::UNIX_EPOCH);
            assert_eq!(condition.status, status);
            assert_eq!(condition.message, message);
        }
    }

    #[test]
    fn fields_that_the_member_has_left_out_are_named_where_all_else_is_applied() {
        let failures = |unapplied: &[&str]| Failures {
            unapplied: unapplied.iter().map(|text| (*text).to_owned()).collect(),
            left_out: vec!["Service a: .spec.x".to_owned()],
            ..Failures::default()
        };
        let named = "Manifest has been successfully applied, but for fields that the member does not know: Service a: .spec.x";
        let failed = "Failed to apply all manifests (1/2): b";
        for (unapplied, status, message) in [(&[][..], TRUE, named), (&["b"], FALSE, failed)] {
            let condition = applied(2, &failures(unapplied), Timestamp::UNIX_EPOCH);
            assert_eq!((&*condition.status, &*condition.message), (status, message));
        }
    }

    #[test]
    fn suspension_is_reported() {
        let suspended = dispatching(true, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (suspended.status.as_str(), suspended.reason.as_str()),
            ("False", "SuspendDispatching")
        );
        let dispatched = dispatching(false, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (dispatched.status.as_str(), dispatched.reason.as_str()),
            ("True", "Dispatching")
        );
    }

    #[test]
    fn what_was_not_removed_is_reported_beside_what_was_not_applied() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let both = "Failed to apply all manifests (1/2): a; Failed to remove 1 objects: x";
        for (unapplied, unremoved, message) in [
            (&[][..], &["x"][..], "Failed to remove 1 objects: x"),
            (&["a"], &["x"], both),
        ] {
            let failures = Failures {
                unapplied: texts(unapplied),
                unremoved: texts(unremoved),
                ..Failures::default()
            };
            let condition = applied(2, &failures, Timestamp::UNIX_EPOCH);
            assert_eq!(condition.status, "False");
            assert_eq!(condition.message, message);
        }
    }

    #[test]
    fn ten_thousand_failures_and_long_ones_are_reported_in_a_message_that_kubernetes_takes() {
        let many = |text: &str| (0..10_000).map(|n| format!("object {n}: {text}")).collect();
        for (unapplied, end) in [
            (many("refused"), " more]"),
            (many(&"\u{e9}".repeat(1000)), " more]"),
            (vec!["\u{e9}".repeat(1_000_000)], "..."),
        ] {
            let failures = Failures {
                unapplied,
                ..Failures::default()
            };
            let message = applied(10_000, &failures, Timestamp::UNIX_EPOCH).message;
            assert!(message.len() < 6000, "{} bytes", message.len());
            assert!(message.ends_with(end), "{message}");
        }
    }

    #[test]
    fn a_contest_names_the_other_field_manager_and_its_end_is_reported_where_it_was_reported() {
        let manifest =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let object = crate::work::desired::ObjectKey::of(&manifest, 0).unwrap();
        let rival = Some("cainjector".to_owned());
        let contest = [Contended { object, rival }];
        let begun = contended(&[], &contest, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(begun.status, "True");
        assert!(begun.message.contains("ConfigMap a"), "{}", begun.message);
        assert!(
            begun.message.contains("\"cainjector\""),
            "{}",
            begun.message
        );
        let ended = contended(&[begun], &[], Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(ended.status, "False");
        assert_eq!(contended(&[ended], &[], Timestamp::UNIX_EPOCH), None);
        assert_eq!(contended(&[], &[], Timestamp::UNIX_EPOCH), None);
    }
}
