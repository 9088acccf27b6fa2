//! Decides which questions to one webhook about one kind and operation are sent now. Pure: time
//! comes in.
//!
//! Each webhook, kind and operation has a lane of its own, so that a webhook that does not answer
//! about one delays no other.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::error::Fault;
use super::line::Line;

/// Questions on the way at a time.
const MOST_RUNNING: usize = 4;
/// Questions that wait. Each holds its body.
const MOST_WAITING: usize = 1024;
/// Bytes of the bodies that wait.
const MOST_BYTES: usize = 8 << 20;
/// Objects that fail in a row until the webhook is suspended for the kind and operation. One object
/// alone suspends nothing: its own questions are asked more and more seldom.
const SUSPENDING: usize = 3;
/// First and longest suspension.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Questions of one webhook about one kind and operation. `Q` is a question.
pub(super) struct Lane<Q> {
    running: usize,
    waiting: VecDeque<Waiting<Q>>,
    bytes: usize,
    /// Those for which there is no room.
    pub(super) line: Line,
    /// Objects that failed since the last success, each once; no more than suspend.
    failed: Vec<u64>,
    suspension: Option<Suspension>,
}

/// A question that has room.
struct Waiting<Q> {
    question: Q,
    bytes: usize,
    ticket: u64,
}

struct Suspension {
    until: Instant,
    pause: Duration,
    fault: Fault,
}

impl<Q> Default for Lane<Q> {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: VecDeque::new(),
            bytes: 0,
            line: Line::default(),
            failed: Vec::new(),
            suspension: None,
        }
    }
}

impl<Q> Lane<Q> {
    /// Returns the last fault and the time that is left, while the webhook is suspended.
    pub(super) fn suspended(&self, now: Instant) -> Option<(&Fault, Duration)> {
        let suspension = self.suspension.as_ref()?;
        let left = suspension.until.checked_duration_since(now)?;
        (!left.is_zero()).then_some((&suspension.fault, left))
    }

    /// Returns whether another question of this size may wait, as far as this lane goes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let count = self.waiting.len() + self.line.expected();
        count == 0 || count < MOST_WAITING && self.bytes + bytes <= MOST_BYTES
    }

    /// Returns whether no question waits or is on the way.
    pub(super) fn is_empty(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.line.expected() == 0
    }

    /// Returns the number of questions on the way.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Bytes of the questions that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a question; `ticket` rises with each that is added to any lane.
    pub(super) fn add(&mut self, question: Q, bytes: usize, ticket: u64) {
        self.bytes += bytes;
        self.waiting.push_back(Waiting {
            question,
            bytes,
            ticket,
        });
    }

    /// Returns the ticket of the question to send now, if there is one. After a suspension one at a
    /// time is sent until one succeeds.
    pub(super) fn due(&self, now: Instant) -> Option<u64> {
        let most = match &self.suspension {
            Some(suspension) if suspension.until > now => 0,
            Some(_) => 1,
            None => MOST_RUNNING,
        };
        let first = self.waiting.front().filter(|_| self.running < most)?;
        Some(first.ticket)
    }

    /// Returns a question to send now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Q> {
        self.due(now)?;
        let first = self.waiting.pop_front()?;
        self.bytes -= first.bytes;
        self.running += 1;
        Some(first.question)
    }

    /// Records the end of a question about an object. Returns the questions that are not sent,
    /// because the webhook is suspended from now on.
    pub(super) fn ended(&mut self, object: u64, fault: Option<&Fault>, now: Instant) -> Vec<Q> {
        self.running = self.running.saturating_sub(1);
        let Some(fault) = fault.filter(|fault| !fault.is_of_the_object()) else {
            self.failed.clear();
            self.suspension = None;
            return Vec::new();
        };
        if !self.failed.contains(&object) && self.failed.len() < SUSPENDING {
            self.failed.push(object);
        }
        if self.failed.len() < SUSPENDING {
            return Vec::new();
        }
        let pause = match &self.suspension {
            // Others that were on the way when it began say nothing new.
            Some(suspension) if suspension.until > now => return Vec::new(),
            Some(suspension) => (suspension.pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.suspension = Some(Suspension {
            until: now + pause,
            pause,
            fault: fault.clone(),
        });
        self.bytes = 0;
        self.waiting.drain(..).map(|it| it.question).collect()
    }

    /// Returns whether nothing is on the way or waits, and nothing is to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
            && self.waiting.is_empty()
            && self.line.is_idle()
            && self.failed.is_empty()
            && self.suspension.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> Lane<u32> {
        let mut lane = Lane::default();
        (0..count).for_each(|question| lane.add(question, 10, question.into()));
        lane
    }

    const DOWN: Fault = Fault::Timeout(10);

    #[tokio::test(start_paused = true)]
    async fn so_many_are_on_the_way_at_a_time_in_their_order() {
        let (mut lane, now) = (filled(6), Instant::now());
        let sent: Vec<u32> = std::iter::from_fn(|| lane.next(now)).collect();
        assert_eq!(sent, [0, 1, 2, 3]);
        assert!(lane.ended(1, None, now).is_empty());
        assert_eq!((lane.next(now), lane.next(now)), (Some(4), None));
    }

    #[tokio::test(start_paused = true)]
    async fn several_objects_that_fail_in_a_row_suspend_the_webhook_and_one_object_does_not() {
        let (mut lane, now) = (filled(9), Instant::now());
        for _ in 0..5 {
            lane.next(now);
            assert!(lane.ended(7, Some(&DOWN), now).is_empty());
        }
        assert!(lane.suspended(now).is_none(), "one object");
        let refused = Fault::Refused {
            code: 400,
            message: String::new(),
        };
        lane.next(now);
        lane.ended(8, Some(&refused), now);
        assert!(lane.failed.is_empty(), "it answers");
        lane.add(9, 10, 9);
        lane.next(now);
        lane.next(now);
        lane.ended(1, Some(&DOWN), now);
        lane.ended(2, Some(&DOWN), now);
        lane.next(now);
        lane.ended(3, Some(&DOWN), now);
        assert_eq!(lane.suspended(now), Some((&DOWN, FIRST_PAUSE)));
        assert!(lane.waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_cannot_be_used_suspend_nothing_however_many_objects_get_them() {
        let status = |code| Fault::Status {
            code,
            text: String::new(),
        };
        for (fault, is_suspended) in [
            (Fault::Malformed("no JSON".to_owned()), false),
            (Fault::Large(10), false),
            (status(500), false),
            (status(400), false),
            // Proxies say so where the webhook itself is not there, and servers that have too much.
            (status(429), true),
            (status(502), true),
            (status(503), true),
            (status(504), true),
            (Fault::Connection("reset".to_owned()), true),
            (DOWN, true),
        ] {
            let (mut lane, now) = (filled(9), Instant::now());
            for object in 0..9 {
                lane.next(now);
                lane.ended(object, Some(&fault), now);
            }
            assert_eq!(lane.suspended(now).is_some(), is_suspended, "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_webhook_is_tried_with_one_question_for_longer_pauses_until_it_answers() {
        let (mut lane, mut now) = (Lane::<u32>::default(), Instant::now());
        let mut pauses = Vec::new();
        for object in 0..10 {
            lane.add(0, 10, 0);
            lane.add(1, 10, 1);
            if lane.suspension.is_none() {
                while lane.next(now).is_some() {}
            } else {
                assert!(lane.next(now).is_some());
                assert!(lane.next(now).is_none(), "one at a time");
            }
            lane.running = 1;
            lane.ended(object, Some(&DOWN), now);
            if let Some((_, left)) = lane.suspended(now) {
                pauses.push(left.as_secs());
                assert!(lane.waiting.is_empty(), "what waited is given back");
                lane.add(2, 10, 2);
                assert!(lane.next(now).is_none());
                lane.waiting.clear();
                now += left;
            }
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        lane.add(0, 10, 0);
        assert!(lane.next(now).is_some());
        lane.ended(0, None, now);
        assert!(lane.is_idle());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut lane = filled(1024);
        assert!(!lane.has_room(1));
        lane = Lane::default();
        assert!(lane.has_room(MOST_BYTES + 1), "one is always taken");
        lane.add(1, MOST_BYTES, 1);
        assert!(!lane.has_room(1));
    }
}
