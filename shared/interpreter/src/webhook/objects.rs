//! State of an object about which a webhook is asked. Pure: time comes in.
//!
//! One question about an object and operation waits or is on the way at a time. A version of the
//! object that comes meanwhile is asked about afterwards. An object that changes faster than its
//! answers come would never get one that fits: after [`LATE`] the answer about an earlier version
//! counts, until one fits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::queue::doubled;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::error::{At, Fault};
use super::request::Key;

/// Time without an answer that fits after which one about an earlier version counts. An object that
/// was changed once is not judged by what it was before.
pub(super) const LATE: Duration = Duration::from_secs(5);
/// Time without an answer after which it is reported.
pub(super) const OVERDUE: Duration = Duration::from_mins(1);
/// First and longest time after which a question that failed is sent again. About another version
/// of the object it is the first.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// Time for which room in the queue is kept for the caller.
pub(super) const KEPT: Duration = Duration::from_secs(2);
/// Time after which an object is forgotten about which nobody asks.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// An object about which a question waits, has failed, or has an answer that nobody has fetched.
pub(super) struct Object {
    at: Arc<At>,
    /// Namespace and name.
    pub(super) name: String,
    /// Time of the first question since the last answer that fitted.
    since: Instant,
    /// Time of the last question.
    pub(super) asked_at: Instant,
    /// The question that waits in the queue or is on the way.
    pub(super) asked: Option<InFlight>,
    pub(super) room: Room,
    /// Question about an earlier version, which has an answer.
    late: Option<Key>,
    failed: Option<Box<Failed>>,
}

/// A question that waits in the queue or is on the way.
pub(super) struct InFlight {
    pub(super) key: Key,
    /// Whether another version of the object was asked about meanwhile.
    pub(super) is_outdated: bool,
    /// Closes when it is dropped, at the end of the question.
    pub(super) ended: watch::Sender<()>,
}

/// State of the slot that a question needs in the queue before it is written.
pub(super) enum Room {
    /// The slot was not requested.
    None,
    /// There is none yet, and the caller waits for it.
    Awaited,
    /// It is kept for the caller, since this time.
    Kept(Place, Instant),
}

/// Room of a question: that of its kind and operation, and that of the webhook.
pub(super) type Place = [OwnedSemaphorePermit; 2];

struct Failed {
    key: Key,
    fault: Fault,
    at: Instant,
    /// Failures of the same question in a row before this one.
    earlier: u32,
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

impl Object {
    /// Makes the state of an object that was not asked about before.
    pub(super) fn new(at: Arc<At>, name: String, now: Instant) -> Self {
        Self {
            at,
            name,
            since: now,
            asked_at: now,
            asked: None,
            room: Room::None,
            late: None,
            failed: None,
        }
    }

    /// Records that an answer fits the object as it is. Returns whether its state is to be kept.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        (self.late, self.since) = (None, now);
        self.asked.is_some() || self.failed.is_some()
    }

    /// Records the answer to a question. It may be one that cannot be applied, and which has failed
    /// before: then it is not known yet whether it does again.
    pub(super) fn answered(&mut self, asked: &InFlight) {
        self.failed
            .take_if(|it| it.key != asked.key || !it.fault.is_of_the_object());
        self.late = asked.is_outdated.then_some(asked.key);
    }

    /// Records the failure of a question.
    pub(super) fn fail(&mut self, key: Key, fault: Fault, now: Instant) {
        let before = self.failed.take().filter(|before| before.key == key);
        self.failed = Some(Box::new(Failed {
            key,
            fault,
            at: now,
            earlier: before.map_or(0, |before| before.earlier.saturating_add(1)),
        }));
        self.since = now;
    }

    /// Returns the last failure about the object, and the time for which the question is not asked.
    pub(super) fn failure(&self, key: &Key, now: Instant) -> Option<(&Fault, Duration)> {
        let failed = self.failed.as_ref()?;
        let earlier = if failed.key == *key {
            failed.earlier
        } else {
            0
        };
        let until = failed.at + doubled((FIRST_RETRY, LONGEST_RETRY), earlier);
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((&failed.fault, left))
    }

    /// Returns the question about an earlier version whose answer counts.
    pub(super) fn late(&self, now: Instant) -> Option<Key> {
        let is_late = now.saturating_duration_since(self.since) >= LATE;
        self.late.filter(|_| is_late)
    }

    /// Returns whether a question waits or is on the way.
    fn waits(&self) -> bool {
        self.asked.is_some() || matches!(self.room, Room::Awaited)
    }

    /// Gives back the room that nobody has come for.
    pub(super) fn release_room(&mut self, now: Instant) {
        if matches!(self.room, Room::Kept(_, since) if now.duration_since(since) >= KEPT) {
            self.room = Room::None;
        }
    }

    /// Returns whether the state is still needed.
    pub(super) fn is_needed(&self, now: Instant) -> bool {
        self.asked.is_some() || now.saturating_duration_since(self.asked_at) < FORGOTTEN
    }
}

/// Returns what has waited for too long, by webhook, kind and operation.
pub(super) fn overdue<'a>(objects: impl Iterator<Item = &'a Object>, now: Instant) -> Vec<Overdue> {
    let is_overdue = |it: &&Object| {
        it.waits() && it.failed.is_none() && now.saturating_duration_since(it.since) >= OVERDUE
    };
    let mut found: HashMap<&Arc<At>, (usize, &Object)> = HashMap::new();
    for object in objects.filter(is_overdue) {
        let (count, longest) = found.entry(&object.at).or_insert((0, object));
        *count += 1;
        if (object.since, &object.name) < (longest.since, &longest.name) {
            *longest = object;
        }
    }
    let overdue = |(at, (objects, longest)): (&Arc<At>, (usize, &Object))| Overdue {
        at: Arc::clone(at),
        objects,
        longest: longest.name.clone(),
    };
    found.into_iter().map(overdue).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Operation, Question};

    fn key(version: u32) -> Key {
        let object = json!({ "version": version });
        let question = Question::new(Operation::InterpretHealth, &object);
        question.digest(1, false).0
    }

    fn object(kind: &str, name: &str, now: Instant) -> Object {
        let at = At {
            configuration: "c".to_owned(),
            webhook: "w".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            operation: Operation::InterpretHealth,
        };
        Object::new(Arc::new(at), name.to_owned(), now)
    }

    fn asked(version: u32, is_outdated: bool) -> InFlight {
        InFlight {
            key: key(version),
            is_outdated,
            ended: watch::channel(()).0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_about_an_earlier_version_counts_once_none_has_fitted_for_a_while() {
        let begun = Instant::now();
        let mut one = object("Pod", "a", begun);
        one.answered(&asked(1, true));
        assert!(one.late(begun).is_none(), "it has changed a moment ago");
        assert!(one.late(begun + LATE) == Some(key(1)));
        one.asked = Some(asked(2, false));
        assert!(one.late(begun + LATE) == Some(key(1)), "until one fits");
        assert!(one.settle(begun + LATE), "a question is on the way");
        assert!(one.late(begun + 2 * LATE).is_none());
        one.asked = None;
        one.answered(&asked(2, false));
        assert!(one.late(begun + 3 * LATE).is_none(), "it fits");
        assert!(!one.settle(begun + 3 * LATE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_fails_again_and_again_is_sent_more_and_more_seldom() {
        let mut now = Instant::now();
        let mut one = object("Pod", "a", now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            one.fail(key(1), Fault::Timeout(1), now);
            let (_, left) = one.failure(&key(1), now).unwrap();
            pauses.push(left.as_secs());
            let (_, other) = one.failure(&key(2), now).unwrap();
            assert_eq!(other, FIRST_RETRY, "another version");
            now += left;
            assert_eq!(one.failure(&key(1), now), None);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        one.answered(&asked(1, false));
        one.fail(key(1), Fault::Timeout(1), now);
        let found = one.failure(&key(1), now);
        assert_eq!(found, Some((&Fault::Timeout(1), FIRST_RETRY)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_more_than_a_minute_is_reported_by_webhook_and_kind() {
        let begun = Instant::now();
        let mut all = vec![object("Pod", "a/0", begun)];
        for (kind, name, after) in [
            ("Pod", "a/b", 1),
            ("Pod", "a/a", 0),
            ("Pod", "a/c", 30),
            ("Job", "a/j", 0),
        ] {
            let mut one = object(kind, name, begun + Duration::from_secs(after));
            one.asked = Some(asked(1, false));
            all.push(one);
        }
        all[4].fail(key(1), Fault::Timeout(1), begun);
        assert_eq!(overdue(all.iter(), begun + OVERDUE / 2), []);
        let found = overdue(all.iter(), begun + OVERDUE + Duration::from_secs(1));
        let expected = Overdue {
            at: Arc::clone(&all[0].at),
            objects: 2,
            longest: "a/a".to_owned(),
        };
        assert_eq!(found, [expected]);
        let later = begun + FORGOTTEN + OVERDUE;
        let needed: Vec<bool> = all.iter().map(|it| it.is_needed(later)).collect();
        assert_eq!(needed, [false, true, true, true, true]);
    }
}
