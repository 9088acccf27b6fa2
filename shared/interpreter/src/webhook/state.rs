//! Questions that wait or are on the way, and what is known of their answers. Pure: time comes in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use crate::Operation;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answers::{Answers, Known};
use super::context::{Answer, Key};
use super::error::{At, Fault};
use super::hook::{Hook, Hooks};
use super::lane::Lane;
use super::room::{MOST_RUNNING_OF_ONE, Room};
use super::subject::{Overdue, Subjects};

/// Webhook, operation, API version and kind.
pub(super) type LaneKey = (u64, Operation, String, String);

/// A question that is asked.
pub(super) struct Asking {
    pub(super) lane: LaneKey,
    pub(super) key: Key,
    /// Number of object and operation.
    pub(super) number: u64,
    /// About the size of its body.
    pub(super) bytes: usize,
}

/// A question that waits, or is on the way.
pub(crate) struct Request {
    pub(super) hook: Arc<Hook>,
    pub(super) operation: Operation,
    pub(super) uid: String,
    pub(super) body: Bytes,
    /// Whether the body leaves something out.
    pub(super) hides: bool,
    pub(super) key: Key,
    /// Number of object and operation.
    pub(super) number: u64,
    /// Digest of the object's name.
    pub(super) object: u64,
}

/// A question that was sent.
pub(super) struct Sent {
    lane: LaneKey,
    key: Key,
    number: u64,
    object: u64,
    body: Bytes,
    hides: bool,
}

impl Sent {
    pub(super) fn new(lane: LaneKey, request: &Request) -> Self {
        Self {
            lane,
            key: request.key,
            number: request.number,
            object: request.object,
            body: request.body.clone(),
            hides: request.hides,
        }
    }
}

/// What is known of a question.
pub(super) enum Found {
    Answered(Arc<Answer>),
    /// It failed, and is not sent before this time.
    Failed(Fault, Duration),
    /// It waits, is on the way, or has no room; with the answer about an earlier version. `None` if
    /// its webhook is gone.
    Waits {
        answered: Option<watch::Receiver<()>>,
        late: Option<Arc<Answer>>,
    },
    /// There is room for it, which has been taken.
    Room {
        uid: String,
        late: Option<Arc<Answer>>,
    },
}

#[derive(Default)]
pub(super) struct State {
    answers: Answers,
    subjects: Subjects,
    lanes: HashMap<LaneKey, Lane<Request>>,
    room: Room,
    /// The webhooks that there are, with what ends the questions to them.
    present: HashMap<u64, CancellationToken>,
    /// Number of questions that were added or waited in line.
    tickets: u64,
}

impl State {
    /// Returns what is known of a question. `about` says what it is about.
    pub(super) fn find(
        &mut self,
        asking: &Asking,
        now: Instant,
        about: impl FnOnce() -> (Arc<At>, String),
    ) -> Found {
        let Asking {
            key, number, bytes, ..
        } = asking;
        match self.answers.get(key, now) {
            Some(Known::Answered(answer)) => {
                self.subjects.settle(*number, now);
                return Found::Answered(answer);
            }
            Some(Known::Failed(fault, left)) => return Found::Failed(fault, left),
            Some(Known::Asked(_)) | None => {}
        }
        let webhook = asking.lane.0;
        if !self.present.contains_key(&webhook) {
            return Found::Waits {
                answered: None,
                late: None,
            };
        }
        self.subjects.touch(*number, webhook, now, about);
        let earlier = self.subjects.late(*number, now);
        let earlier = earlier.and_then(|key| match self.answers.get(&key, now) {
            Some(Known::Answered(answer)) => Some(answer),
            _ => None,
        });
        let waits = |answered| Found::Waits {
            answered: Some(answered),
            late: earlier.clone(),
        };
        let other = self.subjects.on_the_way(*number, key);
        for known in [Some(*key), other].into_iter().flatten() {
            if let Some(Known::Asked(answered)) = self.answers.get(&known, now) {
                return waits(answered);
            }
        }
        if let Some((fault, left)) = self.subjects.failed(*number, now) {
            return Found::Failed(fault.clone(), left);
        }
        let lane = self.lanes.entry(asking.lane.clone()).or_default();
        if let Some((fault, left)) = lane.suspended(now) {
            self.subjects.unsent(*number);
            return Found::Failed(Fault::Suspended(Box::new(fault.clone())), left);
        }
        self.tickets += 1;
        if let Some(kept) = lane.line.enter(*number) {
            self.room.give(kept);
        } else if !lane.line.is_empty()
            || !lane.has_room(*bytes)
            || !self.room.fits(*bytes, lane.is_empty())
        {
            return waits(lane.line.join(*number, *bytes, self.tickets));
        }
        self.room.take(*bytes);
        Found::Room {
            uid: key.uid(self.tickets),
            late: earlier,
        }
    }

    /// Adds a question for which room was taken. Returns what closes when it ends.
    pub(super) fn add(&mut self, asking: &Asking, request: Request) -> watch::Receiver<()> {
        self.room.give(asking.bytes);
        let now = Instant::now();
        // Another thread may have asked meanwhile, or the webhook be gone.
        let other = self.subjects.on_the_way(asking.number, &asking.key);
        for known in [Some(asking.key), other].into_iter().flatten() {
            if let Some(Known::Asked(answered)) = self.answers.get(&known, now) {
                return answered;
            }
        }
        if !self.present.contains_key(&asking.lane.0) {
            return watch::channel(()).1;
        }
        let bytes = request.body.len();
        self.room.take(bytes);
        let lane = self.lanes.entry(asking.lane.clone()).or_default();
        lane.add(request, bytes, self.tickets);
        self.subjects.asked(asking.number, asking.key);
        self.answers.ask(asking.key, asking.lane.0)
    }

    /// Records that an answer cannot be applied. Returns the time for which it is not asked again.
    pub(super) fn spoil(
        &mut self,
        asking: &Asking,
        fault: &Fault,
        now: Instant,
    ) -> Option<Duration> {
        self.answers.end(asking.key, Err(fault.clone()), 0, now);
        match self.answers.get(&asking.key, now) {
            Some(Known::Failed(_, left)) => Some(left),
            _ => None,
        }
    }

    /// Permits questions to these webhooks.
    pub(super) fn admit(&mut self, hooks: &Hooks) {
        for id in hooks.ids() {
            self.present.entry(id).or_default();
        }
    }

    /// Forgets the questions to webhooks that are gone, and ends those on the way.
    pub(super) fn retain(&mut self, hooks: &Hooks) {
        self.admit(hooks);
        self.present.retain(|id, ends| {
            let is_there = hooks.knows(*id);
            if !is_there {
                ends.cancel();
            }
            is_there
        });
        let room = &mut self.room;
        self.lanes.retain(|(id, ..), lane| {
            let is_there = hooks.knows(*id);
            if !is_there {
                room.give(lane.bytes() + lane.line.dissolve());
            }
            is_there
        });
        self.subjects.retain(|id| hooks.knows(id));
        self.answers.retain(|id| hooks.knows(id));
        self.call(Instant::now());
    }

    /// Returns the questions to send now: of those that may be sent the one that waits for longest
    /// is first.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(LaneKey, Request, CancellationToken)> {
        let mut running: HashMap<u64, usize> = HashMap::new();
        for ((id, ..), lane) in &self.lanes {
            *running.entry(*id).or_default() += lane.running();
        }
        let mut due = Vec::new();
        while self.room.may_send() {
            let first = self
                .lanes
                .iter_mut()
                .filter(|((id, ..), _)| running.get(id) < Some(&MOST_RUNNING_OF_ONE))
                .filter_map(|(key, lane)| Some((lane.due(now)?, key, lane)))
                .min_by_key(|(ticket, ..)| *ticket);
            let Some((_, key, lane)) = first else { break };
            let Some(request) = lane.next(now) else { break };
            *running.entry(key.0).or_default() += 1;
            self.room.sent();
            let ends = self.present.get(&key.0).cloned().unwrap_or_default();
            due.push((key.clone(), request, ends));
        }
        due
    }

    /// Records the end of a question, with the bytes that the answer takes.
    pub(super) fn end(
        &mut self,
        sent: Sent,
        outcome: Result<Answer, Fault>,
        weight: usize,
        now: Instant,
    ) {
        self.room.ended(sent.body.len());
        let (mut outcome, mut weight) = (outcome, weight);
        let is_outdated = self.subjects.is_outdated(sent.number) && !sent.hides;
        if let Ok(Answer::Object(_, asked)) = &mut outcome
            && is_outdated
        {
            weight += sent.body.len();
            *asked = Some(sent.body);
        }
        let fault = outcome.as_ref().err();
        self.subjects.ended(sent.number, sent.key, fault, now);
        // A webhook that is gone has no lane any more.
        if let Entry::Occupied(mut entry) = self.lanes.entry(sent.lane) {
            let lane = entry.get_mut();
            for unsent in lane.ended(sent.object, fault, now) {
                self.room.give(unsent.body.len());
                self.subjects.unsent(unsent.number);
                self.answers.forget(&unsent.key);
            }
            if lane.suspended(now).is_some() {
                self.room.give(lane.line.dissolve());
            }
            if lane.is_idle() {
                entry.remove();
            }
        }
        self.answers.end(sent.key, outcome, weight, now);
        self.call(now);
    }

    /// Gives room to those who did not come for it, and returns what waits for too long.
    pub(super) fn look(&mut self, now: Instant) -> Vec<Overdue> {
        for lane in self.lanes.values_mut() {
            self.room.give(lane.line.overdue(now));
        }
        self.lanes.retain(|_, lane| !lane.is_idle());
        self.call(now);
        self.subjects.overdue(now)
    }

    /// Calls those in line for whom there is room, the first that came first.
    fn call(&mut self, now: Instant) {
        loop {
            let room = &self.room;
            let fits = |lane: &Lane<Request>| {
                let (ticket, bytes) = lane.line.first()?;
                let fits = lane.has_room(bytes) && room.fits(bytes, lane.is_empty());
                fits.then_some((ticket, bytes))
            };
            let first = self.lanes.values_mut();
            let first = first.filter_map(|lane| Some((fits(lane)?, lane)));
            let Some(((_, bytes), lane)) = first.min_by_key(|((ticket, _), _)| *ticket) else {
                break;
            };
            lane.line.call(now);
            self.room.take(bytes);
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.room.bytes()
    }
}
