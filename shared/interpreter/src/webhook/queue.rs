//! Questions that wait or are on the way, and what is known of their answers. Pure: time comes in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answers::{Answers, Known};
use super::breaker::{Breaker, Circuit};
use super::error::{At, Fault};
use super::hook::{Hook, Hooks};
use super::objects::{InFlight, Object, Overdue, Place, Room, overdue};
use super::request::Key;
use crate::{Operation, Question};

/// KiB that the questions to one webhook may take together which wait or are on the way.
const MOST_KIB: usize = 8 << 10;
/// KiB among them about one kind and operation, so that one with many objects leaves room for all
/// others.
const MOST_KIB_ABOUT_A_KIND: usize = MOST_KIB / 4;
/// KiB that a question takes at least, so that their number is limited, too.
const LEAST_KIB: usize = 8;
/// Requests to one webhook on the way at a time.
const MOST_REQUESTS: usize = 32;
/// Requests among them about one kind and operation, so that a webhook that hangs about one delays
/// no other.
const MOST_REQUESTS_ABOUT_A_KIND: usize = 4;

/// Kind that a webhook is asked about: operation, API version and kind.
type Topic = (Operation, String, String);

/// What the questions about one kind and operation have together.
struct About {
    /// The same for all objects, of which there may be many.
    at: Arc<At>,
    breaker: Breaker,
    /// KiB that are left for them.
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Those that wait for room behind the one for which a task waits; `None` if there is none.
    row: Option<VecDeque<Waiting>>,
}

impl About {
    fn new(at: Arc<At>) -> Self {
        Self {
            at,
            breaker: Breaker::default(),
            room: Arc::new(Semaphore::new(MOST_KIB_ABOUT_A_KIND)),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS_ABOUT_A_KIND)),
            row: None,
        }
    }
}

/// A question that waits for room.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// Number of the object and operation.
    pub(super) identity: u64,
    /// KiB that it takes in the queue.
    kib: u32,
}

impl Waiting {
    /// Takes a place at once, if there is room and nobody waits for it.
    fn try_place(self, [about_the_kind, of_the_webhook]: &Rooms) -> Option<Place> {
        let try_part =
            |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(self.kib).ok();
        Some([try_part(about_the_kind)?, try_part(of_the_webhook)?])
    }

    /// Waits for a place. Returns `None` if the webhook is removed meanwhile.
    pub(super) async fn place(self, [about_the_kind, of_the_webhook]: &Rooms) -> Option<Place> {
        let part = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(self.kib);
        let about_the_kind = part(about_the_kind).await.ok()?;
        let of_the_webhook = part(of_the_webhook).await.ok()?;
        Some([about_the_kind, of_the_webhook])
    }
}

/// Where a question takes its place: the room of its kind and operation, and that of the webhook.
/// They are taken in this order, so that nobody waits for the first who has the second.
pub(super) type Rooms = [Arc<Semaphore>; 2];

/// Queue of the questions to one webhook.
struct Queue {
    /// KiB that are left for questions.
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Cancelled when the webhook is removed.
    removed: CancellationToken,
    topics: HashMap<Topic, About>,
    /// Objects by [`Question::identity`].
    objects: HashMap<u64, Object>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MOST_KIB)),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            removed: CancellationToken::new(),
            topics: HashMap::new(),
            objects: HashMap::new(),
        }
    }
}

/// A question with what tells it from others.
#[derive(Clone)]
pub(super) struct Asking {
    pub(super) webhook: u64,
    pub(super) at: Arc<At>,
    /// Digest of the question.
    pub(super) key: Key,
    /// Number of the object and operation.
    pub(super) identity: u64,
    /// KiB that it takes in the queue.
    pub(super) kib: u32,
}

impl Asking {
    /// Makes the identification of a question to a webhook.
    pub(super) fn new(hook: &Hook, question: &Question<'_>) -> Self {
        let (api_version, kind) = question.kind();
        let (key, bytes) = question.digest(hook.id, hook.hides(api_version, kind));
        let kib = bytes.div_ceil(1024).clamp(LEAST_KIB, MOST_KIB_ABOUT_A_KIND);
        let at = At {
            configuration: hook.configuration.clone(),
            webhook: hook.name.clone(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            operation: question.operation,
        };
        Self {
            webhook: hook.id,
            at: Arc::new(at),
            key,
            identity: question.identity(hook.id),
            kib: u32::try_from(kib).unwrap_or(u32::MAX),
        }
    }

    /// Returns what is to be known of it while it waits for room.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            identity: self.identity,
            kib: self.kib,
        }
    }

    fn topic(&self) -> Topic {
        let At {
            operation,
            api_version,
            kind,
            ..
        } = &*self.at;
        (*operation, api_version.clone(), kind.clone())
    }
}

/// A question to send.
pub(crate) struct Request {
    pub(super) hook: Arc<Hook>,
    pub(super) at: Arc<At>,
    pub(super) uid: String,
    pub(super) body: Bytes,
}

/// A question in the queue, with what it waits for.
pub(super) struct Queued {
    pub(super) request: Request,
    /// Body of the request, where the answer is a patch of what it holds.
    pub(super) question: Option<Bytes>,
    /// Leaves out the content of a Secret.
    hides: bool,
    pub(super) asking: Asking,
    /// Room that it takes until it ends.
    pub(super) place: Place,
    /// Semaphores from which it takes a permit each before it is sent.
    pub(super) turns: [Arc<Semaphore>; 2],
    pub(super) removed: CancellationToken,
}

impl Queued {
    /// Writes the body. It may be long, so that this is not done with the state locked.
    pub(super) fn write(&mut self, question: &Question<'_>) {
        self.request.body = question.body(&self.request.uid, self.hides).into();
        let keeps = question.operation.changes_object() && !self.hides;
        self.question = keeps.then(|| self.request.body.clone());
    }
}

/// What is known of a question.
pub(super) enum Found {
    Answered(Known),
    /// It failed, and is not sent before this time.
    Failed(Fault, Duration),
    /// It waits, or is on the way; with the answer about an earlier version.
    Waits(watch::Receiver<()>, Option<Known>, Next),
    /// The webhook is gone.
    Gone,
}

/// What is to be done for a question that waits.
pub(super) enum Next {
    Nothing,
    /// The room of the queue is to be awaited, for this question and then for those behind it.
    AwaitRoom(Rooms),
    Send(Box<Queued>),
}

/// State of all webhooks.
#[derive(Default)]
pub(super) struct State {
    answers: Answers,
    queues: HashMap<u64, Queue>,
    /// Number of questions that were sent.
    sent: u64,
}

impl State {
    /// Returns what is known of a question. Queues it if it is to be sent; its body is to be
    /// [written](Queued::write) then.
    pub(super) fn ask(
        &mut self,
        asking: &Asking,
        hook: &Arc<Hook>,
        question: &Question<'_>,
        now: Instant,
    ) -> Found {
        let Some(queue) = self.queues.get_mut(&asking.webhook) else {
            return Found::Gone;
        };
        let Asking { key, identity, .. } = asking;
        if let Some(known) = self.answers.get(key, now) {
            if let Some(object) = queue.objects.get_mut(identity)
                && !object.settle(now)
            {
                queue.objects.remove(identity);
            }
            return Found::Answered(known.clone());
        }
        let new = || About::new(Arc::clone(&asking.at));
        let about = queue.topics.entry(asking.topic()).or_insert_with(new);
        let new = || Object::new(Arc::clone(&about.at), question.name(), now);
        let object = queue.objects.entry(*identity).or_insert_with(new);
        object.asked_at = now;
        let late = object.late(now);
        let late = late.and_then(|key| self.answers.get(&key, now).cloned());
        if let Some(asked) = &mut object.asked {
            asked.is_outdated |= asked.key != *key;
            return Found::Waits(asked.ended.subscribe(), late, Next::Nothing);
        }
        if let Some((fault, left)) = object.failure(key, now) {
            return Found::Failed(fault.clone(), left);
        }
        match about.breaker.circuit(now) {
            Circuit::Closed => {}
            Circuit::Open(fault, left) => {
                object.room = Room::None;
                return Found::Failed(Fault::Suspended(Box::new(fault)), left);
            }
            Circuit::Probing(ended) => return Found::Waits(ended, late, Next::Nothing),
        }
        let rooms = [Arc::clone(&about.room), Arc::clone(&queue.room)];
        let place = match std::mem::replace(&mut object.room, Room::None) {
            Room::Kept(place) => Some(place),
            Room::Awaited(arrives) => {
                let receiver = arrives.subscribe();
                object.room = Room::Awaited(arrives);
                return Found::Waits(receiver, late, Next::Nothing);
            }
            // Nobody goes before those who wait.
            Room::None if about.row.is_some() => None,
            Room::None => asking.waiting().try_place(&rooms),
        };
        let (sender, receiver) = watch::channel(());
        let Some(place) = place else {
            object.room = Room::Awaited(sender);
            let next = if let Some(row) = &mut about.row {
                row.push_back(asking.waiting());
                Next::Nothing
            } else {
                about.row = Some(VecDeque::new());
                Next::AwaitRoom(rooms)
            };
            return Found::Waits(receiver, late, next);
        };
        object.asked = Some(InFlight {
            key: *key,
            is_outdated: false,
            ended: sender,
        });
        about.breaker.sent(&receiver);
        self.sent += 1;
        let uid = key.uid(self.sent);
        let queued = Queued {
            question: None,
            hides: hook.hides(&asking.at.api_version, &asking.at.kind),
            request: Request {
                hook: Arc::clone(hook),
                at: Arc::clone(&asking.at),
                uid,
                body: Bytes::new(),
            },
            asking: asking.clone(),
            place,
            turns: [Arc::clone(&about.requests), Arc::clone(&queue.requests)],
            removed: queue.removed.clone(),
        };
        Found::Waits(receiver, late, Next::Send(Box::new(queued)))
    }

    /// Returns whether the question is not to be sent any more, because the webhook failed for
    /// others while it waited for its turn.
    pub(super) fn is_suspended(&self, asking: &Asking, now: Instant) -> bool {
        let queue = self.queues.get(&asking.webhook);
        let topic = queue.and_then(|queue| queue.topics.get(&asking.topic()));
        topic.is_some_and(|about| matches!(about.breaker.circuit(now), Circuit::Open(..)))
    }

    /// Records the end of a question; the outcome is `None` where it was not sent.
    pub(super) fn end(
        &mut self,
        asking: &Asking,
        outcome: Option<Result<Bytes, Fault>>,
        question: Option<Bytes>,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(&asking.webhook) else {
            return;
        };
        let Some(object) = queue.objects.get_mut(&asking.identity) else {
            return;
        };
        // Whoever waits wakes up when this is dropped, and finds the new state.
        let Some(asked) = object.asked.take() else {
            return;
        };
        let Some(outcome) = outcome else {
            return;
        };
        if let Some(about) = queue.topics.get_mut(&asking.topic()) {
            let fault = outcome.as_ref().err();
            about.breaker.ended(&object.name, fault, now);
        }
        match outcome {
            Ok(answer) => {
                object.answered(&asked);
                let question = question.filter(|_| asked.is_outdated);
                let known = Known { answer, question };
                self.answers.put(asking.key, asking.webhook, known, now);
            }
            Err(fault) => object.fail(asking.key, fault, now),
        }
    }

    /// Records that an answer cannot be applied. Returns the time for which it is not asked again.
    pub(super) fn spoil(
        &mut self,
        asking: &Asking,
        name: String,
        fault: &Fault,
        now: Instant,
    ) -> Option<Duration> {
        let is_first = self.answers.forget(&asking.key);
        let queue = self.queues.get_mut(&asking.webhook)?;
        let new = || Object::new(Arc::clone(&asking.at), name, now);
        let object = queue.objects.entry(asking.identity).or_insert_with(new);
        // Others that got the same answer at the same time do not make it fail once more.
        if is_first || object.failure(&asking.key, now).is_none() {
            object.fail(asking.key, fault.clone(), now);
        }
        Some(object.failure(&asking.key, now)?.1)
    }

    /// Keeps room for an object that waits for it, and wakes up whoever asks. Returns whether
    /// somebody waits.
    pub(super) fn keep_room(&mut self, webhook: u64, identity: u64, place: Place) -> bool {
        let object = self.object(webhook, identity);
        let waiting = object.filter(|it| matches!(it.room, Room::Awaited(_)));
        let is_awaited = waiting.is_some();
        if let Some(object) = waiting {
            object.room = Room::Kept(place);
        }
        is_awaited
    }

    /// Returns the next question about the same kind and operation for which room is to be awaited.
    pub(super) fn next_in_row(&mut self, first: &Asking) -> Option<Waiting> {
        let queue = self.queues.get_mut(&first.webhook)?;
        let about = queue.topics.get_mut(&first.topic())?;
        let row = about.row.as_mut()?;
        while let Some(next) = row.pop_front() {
            let object = queue.objects.get(&next.identity);
            if object.is_some_and(|it| matches!(it.room, Room::Awaited(_))) {
                return Some(next);
            }
        }
        about.row = None;
        None
    }

    /// Gives back the room of an object that did not come for it.
    pub(super) fn release_room(&mut self, webhook: u64, identity: u64) {
        if let Some(object) = self.object(webhook, identity)
            && matches!(object.room, Room::Kept(_))
        {
            object.room = Room::None;
        }
    }

    fn object(&mut self, webhook: u64, identity: u64) -> Option<&mut Object> {
        let queue = self.queues.get_mut(&webhook)?;
        queue.objects.get_mut(&identity)
    }

    /// Permits questions to these webhooks.
    pub(super) fn admit(&mut self, hooks: &Hooks) {
        for id in hooks.ids() {
            self.queues.entry(id).or_default();
        }
    }

    /// Forgets the webhooks that are gone, and ends the questions to them.
    pub(super) fn retain(&mut self, hooks: &Hooks) {
        self.admit(hooks);
        self.queues.retain(|id, queue| {
            let is_there = hooks.knows(*id);
            if !is_there {
                queue.removed.cancel();
                queue.room.close();
                queue.topics.values().for_each(|it| it.room.close());
            }
            is_there
        });
        self.answers.retain(|id| hooks.knows(id));
    }

    /// Returns what waits for too long, and forgets what nobody asks about.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        for queue in self.queues.values_mut() {
            queue.objects.retain(|_, object| object.is_needed(now));
        }
        let objects = self.queues.values().flat_map(|it| it.objects.values());
        overdue(objects, now)
    }

    #[cfg(test)]
    pub(super) fn taken_kib(&self) -> usize {
        let taken = |queue: &Queue| MOST_KIB - queue.room.available_permits();
        self.queues.values().map(taken).sum()
    }
}
