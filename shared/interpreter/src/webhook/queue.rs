//! Questions that wait or are on the way, and what is known of their answers. Pure: time comes in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answers::{Answers, Known};
use super::breaker::{Breaker, Circuit};
use super::error::{At, Fault};
use super::hook::{Hook, Hooks};
use super::objects::{InFlight, Object, Overdue, Place, Room, overdue};
use super::request::Key;
use crate::Question;

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

/// Values that the questions about one kind and operation share.
struct About {
    /// The same for all objects, of which there may be many.
    at: Arc<At>,
    breaker: Breaker,
    /// KiB that are left for them.
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

impl About {
    fn new(at: Arc<At>) -> Self {
        Self {
            at,
            breaker: Breaker::default(),
            room: Arc::new(Semaphore::new(MOST_KIB_ABOUT_A_KIND)),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS_ABOUT_A_KIND)),
        }
    }
}

/// Where a question takes its place: the room of its kind and operation, and that of the webhook.
/// They are taken in this order, so that nobody waits for the first who has the second.
pub(super) type Rooms = [Arc<Semaphore>; 2];

/// Takes a place at once, if there is room and nobody waits for it.
fn try_place(kib: u32, [about_the_kind, of_the_webhook]: &Rooms) -> Option<Place> {
    let try_part = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(kib).ok();
    Some([try_part(about_the_kind)?, try_part(of_the_webhook)?])
}

/// A question for which there is no room yet. It is not kept: whoever asked waits, in order.
#[derive(Clone)]
pub(super) struct ForRoom {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) rooms: Rooms,
    pub(super) asking: Asking,
}

impl ForRoom {
    /// Waits for room and has it kept for a while, or until the webhook is removed.
    pub(super) async fn arrives(self) {
        let [about_the_kind, of_the_webhook] = self.rooms;
        let part = |room: Arc<Semaphore>| room.acquire_many_owned(self.asking.kib);
        if let Ok(about_the_kind) = part(about_the_kind).await
            && let Ok(of_the_webhook) = part(of_the_webhook).await
        {
            let place = [about_the_kind, of_the_webhook];
            self.state.lock().keep_room(&self.asking, place);
        }
    }
}

/// Queue of the questions to one webhook.
struct Queue {
    /// KiB that are left for questions.
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Cancelled when the webhook is removed.
    removed: CancellationToken,
    /// Values that the questions about each kind and operation share.
    topics: HashMap<Arc<At>, About>,
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

/// A question with what distinguishes it from others.
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
    pub(super) permits: [Arc<Semaphore>; 2],
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

/// State of a question.
pub(super) enum Found {
    Answered(Known),
    /// The question failed, and is not sent again before this time.
    Failed(Fault, Duration),
    /// It waits, or is on the way; with the answer about an earlier version, and what is to be
    /// sent.
    Waits(watch::Receiver<()>, Option<Known>, Option<Box<Queued>>),
    /// There is no room for it yet; with the answer about an earlier version.
    Full(Rooms, Option<Known>),
    /// The webhook is gone.
    Gone,
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
        let about = queue.topics.entry(Arc::clone(&asking.at));
        let about = about.or_insert_with(new);
        let new = || Object::new(Arc::clone(&about.at), question.name(), now);
        let object = queue.objects.entry(*identity).or_insert_with(new);
        object.asked_at = now;
        let late = object.late(now);
        let late = late.and_then(|key| self.answers.get(&key, now).cloned());
        if let Some(asked) = &mut object.asked {
            asked.is_outdated |= asked.key != *key;
            return Found::Waits(asked.ended.subscribe(), late, None);
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
            Circuit::Probing(ended) => return Found::Waits(ended, late, None),
        }
        let rooms = [Arc::clone(&about.room), Arc::clone(&queue.room)];
        let place = match std::mem::replace(&mut object.room, Room::Awaited) {
            Room::Kept(place, _) => Some(place),
            Room::None | Room::Awaited => try_place(asking.kib, &rooms),
        };
        let Some(place) = place else {
            return Found::Full(rooms, late);
        };
        object.room = Room::None;
        let (sender, receiver) = watch::channel(());
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
            permits: [Arc::clone(&about.requests), Arc::clone(&queue.requests)],
            removed: queue.removed.clone(),
        };
        Found::Waits(receiver, late, Some(Box::new(queued)))
    }

    /// Returns whether the question is not to be sent any more, because the webhook failed for
    /// others while it waited in the queue.
    pub(super) fn is_suspended(&self, asking: &Asking, now: Instant) -> bool {
        let queue = self.queues.get(&asking.webhook);
        let topic = queue.and_then(|queue| queue.topics.get(&asking.at));
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
        if let Some(about) = queue.topics.get_mut(&asking.at) {
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

    /// Keeps room for an object that waits for it.
    fn keep_room(&mut self, asking: &Asking, place: Place) {
        let queue = self.queues.get_mut(&asking.webhook);
        let object = queue.and_then(|queue| queue.objects.get_mut(&asking.identity));
        if let Some(object) = object.filter(|it| matches!(it.room, Room::Awaited)) {
            object.room = Room::Kept(place, Instant::now());
        }
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

    /// Returns what waits for too long, and forgets what nobody asks about, or comes for.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        for queue in self.queues.values_mut() {
            queue.objects.retain(|_, object| {
                object.release_room(now);
                object.is_needed(now)
            });
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
