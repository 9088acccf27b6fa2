//! What is known of an object about which a webhook is asked. Pure: time comes in.
//!
//! One question about an object and operation waits or is on the way at a time. A version of the
//! object that comes meanwhile is asked about afterwards. An object that changes faster than its
//! answers come would never get one that fits: after [`LATE`] the answer about an earlier version
//! counts, until one fits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::context::Key;
use super::error::{At, Fault};

/// Time without an answer that fits after which one about an earlier version counts. An object that
/// was changed once is not judged by what it was before.
pub(super) const LATE: Duration = Duration::from_secs(5);
/// Time without an answer after which it is told.
pub(super) const OVERDUE: Duration = Duration::from_mins(1);
/// Shortest time between a failure and the next question about the object, in whatever version.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// Time after which an object is forgotten about which nobody asks.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// An object about which a question waits, or has an answer that nobody has fetched.
struct Subject {
    webhook: u64,
    at: Arc<At>,
    /// Namespace and name.
    name: String,
    /// Time of the first question since the last answer that fitted.
    since: Instant,
    touched: Instant,
    /// The question that waits or is on the way, and whether another version was asked meanwhile.
    asked: Option<(Key, bool)>,
    /// Question about an earlier version, which has an answer.
    late: Option<Key>,
    failed: Option<(Instant, Fault)>,
    /// Whether nothing waits since it was asked last.
    is_over: bool,
}

/// Number of questions without an answer for longer than [`OVERDUE`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// Webhook, kind and operation.
    pub(crate) at: Arc<At>,
    /// Number of objects.
    pub(crate) objects: usize,
    /// Name of the one that waits for longest.
    pub(crate) longest: String,
}

/// Objects by the number of object, operation and webhook.
#[derive(Default)]
pub(super) struct Subjects {
    all: HashMap<u64, Subject>,
}

impl Subjects {
    /// Notes that an object is asked about, and has no answer that fits.
    pub(super) fn touch(
        &mut self,
        number: u64,
        webhook: u64,
        now: Instant,
        about: impl FnOnce() -> (Arc<At>, String),
    ) {
        let subject = self.all.entry(number).or_insert_with(|| {
            let (at, name) = about();
            Subject {
                webhook,
                at,
                name,
                since: now,
                touched: now,
                asked: None,
                late: None,
                failed: None,
                is_over: false,
            }
        });
        (subject.touched, subject.is_over) = (now, false);
    }

    /// Returns the question about the object that waits or is on the way. `key` is the one that is
    /// asked now: where it is another, the one on the way is about an earlier version.
    pub(super) fn on_the_way(&mut self, number: u64, key: &Key) -> Option<Key> {
        let (asked, is_outdated) = self.all.get_mut(&number)?.asked.as_mut()?;
        *is_outdated |= asked != key;
        Some(*asked)
    }

    /// Notes that a question about the object waits from now on.
    pub(super) fn asked(&mut self, number: u64, key: Key) {
        if let Some(subject) = self.all.get_mut(&number) {
            subject.asked = Some((key, false));
        }
    }

    /// Returns whether another version of the object was asked while its question was on the way.
    pub(super) fn is_outdated(&self, number: u64) -> bool {
        let asked = self.all.get(&number).and_then(|it| it.asked.as_ref());
        asked.is_some_and(|(_, is_outdated)| *is_outdated)
    }

    /// Notes the end of the question that was on the way.
    pub(super) fn ended(&mut self, number: u64, key: Key, fault: Option<&Fault>, now: Instant) {
        let Some(subject) = self.all.get_mut(&number) else {
            return;
        };
        let Some((_, is_outdated)) = subject.asked.take_if(|(asked, _)| *asked == key) else {
            return;
        };
        subject.is_over = true;
        if let Some(fault) = fault {
            subject.failed = Some((now, fault.clone()));
            subject.since = now;
        } else {
            subject.failed = None;
            subject.late = is_outdated.then_some(key);
        }
    }

    /// Notes that a question is not sent after all.
    pub(super) fn unsent(&mut self, number: u64) {
        if let Some(subject) = self.all.get_mut(&number) {
            (subject.asked, subject.is_over) = (None, true);
        }
    }

    /// Notes that an answer fits the object as it is.
    pub(super) fn settle(&mut self, number: u64, now: Instant) {
        let Some(subject) = self.all.get_mut(&number) else {
            return;
        };
        if subject.asked.is_none() {
            self.all.remove(&number);
        } else {
            (subject.late, subject.since) = (None, now);
        }
    }

    /// Returns the question about an earlier version whose answer counts.
    pub(super) fn late(&self, number: u64, now: Instant) -> Option<Key> {
        let subject = self.all.get(&number)?;
        let is_late = now.saturating_duration_since(subject.since) >= LATE;
        subject.late.filter(|_| is_late)
    }

    /// Returns the last failure about the object, in whatever version, and the time for which it is
    /// not asked about.
    pub(super) fn failed(&self, number: u64, now: Instant) -> Option<(&Fault, Duration)> {
        let (at, fault) = self.all.get(&number)?.failed.as_ref()?;
        let left = (*at + AFTER_A_FAILURE).checked_duration_since(now)?;
        (!left.is_zero()).then_some((fault, left))
    }

    /// Returns what waits for too long, and forgets what nobody asks about.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        self.all.retain(|_, subject| {
            subject.asked.is_some() || now.saturating_duration_since(subject.touched) < FORGOTTEN
        });
        let mut found: HashMap<&Arc<At>, (usize, &Subject)> = HashMap::new();
        let waits = |it: &&Subject| {
            !it.is_over && it.failed.is_none() && now.saturating_duration_since(it.since) >= OVERDUE
        };
        for subject in self.all.values().filter(waits) {
            let (count, longest) = found.entry(&subject.at).or_insert((0, subject));
            *count += 1;
            if (subject.since, &subject.name) < (longest.since, &longest.name) {
                *longest = subject;
            }
        }
        let overdue = |(at, (objects, subject)): (&Arc<At>, (usize, &Subject))| Overdue {
            at: Arc::clone(at),
            objects,
            longest: subject.name.clone(),
        };
        found.into_iter().map(overdue).collect()
    }

    /// Forgets the objects about which webhooks were asked that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.all.retain(|_, subject| is_there(subject.webhook));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::Operation;
    use serde_json::json;

    use super::super::context::Question;
    use super::*;

    fn key(version: u32) -> Key {
        let object = json!({ "version": version });
        Question::new(Operation::InterpretHealth, &object)
            .digest(1, false)
            .0
    }

    fn about(kind: &str, name: &str) -> (Arc<At>, String) {
        let at = At {
            configuration: "c".to_owned(),
            webhook: "w".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            operation: Operation::InterpretHealth,
        };
        (Arc::new(at), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_about_an_earlier_version_counts_once_none_has_fitted_for_a_while() {
        let (mut all, begun) = (Subjects::default(), Instant::now());
        all.touch(7, 1, begun, || about("Pod", "a"));
        assert!(all.on_the_way(7, &key(1)).is_none());
        all.asked(7, key(1));
        assert!(all.on_the_way(7, &key(2)) == Some(key(1)));
        assert!(all.is_outdated(7));
        all.ended(7, key(1), None, begun);
        assert!(all.late(7, begun).is_none(), "it has changed a moment ago");
        assert!(all.late(7, begun + LATE) == Some(key(1)));
        // It counts until one fits, also while the next is on the way.
        all.asked(7, key(2));
        assert!(all.late(7, begun + LATE) == Some(key(1)));
        all.ended(7, key(2), None, begun + LATE);
        all.settle(7, begun + LATE);
        assert_eq!(all.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_fits_is_none_about_an_earlier_version() {
        let (mut all, begun) = (Subjects::default(), Instant::now());
        all.touch(7, 1, begun, || about("Pod", "a"));
        all.asked(7, key(1));
        all.on_the_way(7, &key(1));
        all.ended(7, key(1), None, begun);
        assert!(all.late(7, begun + LATE).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_failed_is_left_alone_for_a_while_in_whatever_version() {
        let (mut all, begun) = (Subjects::default(), Instant::now());
        all.touch(7, 1, begun, || about("Pod", "a"));
        all.asked(7, key(1));
        all.ended(7, key(1), Some(&Fault::Timeout(1)), begun);
        let found = all.failed(7, begun);
        assert_eq!(found, Some((&Fault::Timeout(1), AFTER_A_FAILURE)));
        assert_eq!(all.failed(7, begun + AFTER_A_FAILURE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_more_than_a_minute_is_told_by_webhook_and_kind() {
        let (mut all, begun) = (Subjects::default(), Instant::now());
        all.touch(5, 1, begun, || about("Pod", "a/0"));
        all.asked(5, key(1));
        all.ended(5, key(1), None, begun);
        for (number, kind, name, after) in [
            (1, "Pod", "a/b", 1),
            (2, "Pod", "a/a", 0),
            (3, "Pod", "a/c", 30),
            (4, "Job", "a/j", 0),
        ] {
            let now = begun + Duration::from_secs(after);
            all.touch(number, 1, now, || about(kind, name));
            all.asked(number, key(1));
        }
        all.ended(4, key(1), Some(&Fault::Timeout(1)), begun);
        assert_eq!(all.overdue(begun + OVERDUE / 2), []);
        let found = all.overdue(begun + OVERDUE + Duration::from_secs(1));
        let expected = Overdue {
            at: about("Pod", "").0,
            objects: 2,
            longest: "a/a".to_owned(),
        };
        assert_eq!(found, [expected]);
        assert_eq!(all.len(), 5);
        all.unsent(1);
        all.overdue(begun + FORGOTTEN + OVERDUE);
        assert_eq!(all.len(), 2, "those on the way are not forgotten");
    }
}
