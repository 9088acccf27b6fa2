//! Interpreter webhooks: questions about objects that a server of the user answers.
//!
//! The rest of the interpreter answers at once. A question to a webhook is a request that may take
//! seconds, so that nothing waits for it: [`Webhooks::ask`] returns the answer if it is known, and
//! otherwise has the question sent and returns [`Asked::Pending`]. Whoever asked keeps what it knew
//! before, and asks again when [`Pending::answered`] returns.
//!
//! * Answers are remembered by the content of the question ([`answers`]), for ten minutes.
//! * The requests are made by one task per process, [`Webhooks::run`]; each has the deadline of its
//!   webhook, and an answer has a largest size ([`client`]).
//! * Questions of a webhook about different kinds wait in different lanes ([`lane`]). A webhook
//!   that fails for several objects in a row is not asked about that kind for a while.
//! * A webhook that is removed or changed answers nothing any more: whoever waits for it asks anew.

mod answers;
mod client;
mod context;
mod error;
mod hook;
mod lane;
mod patch;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use muster_interpreter::Operation;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::answers::{Answers, Known};
pub use self::client::check_authorities;
pub use self::context::Question;
use self::context::{Answer, Key};
pub use self::error::{At, Failure, Fault, Pending};
pub use self::hook::{CONTEXT_VERSION, Hook, Hooks, TIMEOUTS, url_address};
use self::lane::Lane;

/// Result of a question.
#[derive(Debug)]
pub(super) enum Asked {
    /// The answer.
    Answered(Reply),
    /// The question is on the way.
    Pending(Pending),
    /// There is no answer.
    Failed(Failure),
}

/// Answer that has been checked and applied to the object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Replicas(i32, Option<muster_interpreter::Requirements>),
    Components(Vec<muster_interpreter::Component>),
    Object(Value),
    Dependencies(Vec<muster_interpreter::Dependency>),
    Status(Value),
    Health(bool),
}

impl Reply {
    /// The object of an operation that changes it.
    pub(super) fn object(self) -> Option<Value> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// Questions to the webhooks of one process.
#[derive(Default)]
pub(super) struct Webhooks {
    state: Mutex<State>,
    /// Notified when a question waits.
    added: Notify,
}

#[derive(Default)]
struct State {
    answers: Answers,
    lanes: HashMap<LaneKey, Lane<Request>>,
    sent: u64,
}

/// Webhook, API version and kind.
type LaneKey = (u64, String, String);

/// A question that waits, or is on the way.
struct Request {
    key: Key,
    hook: Arc<Hook>,
    operation: Operation,
    /// Digest of the object's name.
    object: u64,
    uid: String,
    body: Bytes,
}

/// A question that was sent, with what came of it.
struct Ended {
    lane: LaneKey,
    key: Key,
    object: u64,
    /// Length of the answer.
    bytes: usize,
    outcome: Result<Answer, Fault>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhooks")
    }
}

impl Webhooks {
    /// Returns the answer of a webhook, or has the question sent.
    pub(super) fn ask(&self, hook: &Arc<Hook>, question: &Question<'_>) -> Asked {
        let text = |path: &str| question.object.pointer(path).and_then(Value::as_str);
        let api_version = text("/apiVersion").unwrap_or_default();
        let kind = text("/kind").unwrap_or_default();
        let at = Arc::new(At {
            configuration: hook.configuration.clone(),
            webhook: hook.name.clone(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            operation: question.operation,
        });
        let failed = |fault, retry_after| {
            Asked::Failed(Failure {
                at: Arc::clone(&at),
                fault,
                retry_after,
            })
        };
        if let Err(reason) = &hook.client {
            return failed(Fault::Configuration(reason.clone()), None);
        }
        let key = question.digest(hook.id);
        let now = Instant::now();
        let mut state = self.lock();
        let pending = |answered| {
            Asked::Pending(Pending {
                at: Arc::clone(&at),
                answered,
            })
        };
        match state.answers.get(&key, now) {
            Some(Known::Asked(answered)) => return pending(Some(answered)),
            Some(Known::Failed(fault, left)) => return failed(fault, Some(left)),
            Some(Known::Answered(answer)) => match reply(&answer, question.object) {
                Ok(reply) => return Asked::Answered(reply),
                Err(text) => {
                    let fault = Fault::Malformed(text);
                    state.answers.end(key, Err(fault.clone()), 0, now);
                    let left = match state.answers.get(&key, now) {
                        Some(Known::Failed(_, left)) => Some(left),
                        _ => None,
                    };
                    return failed(fault, left);
                }
            },
            None => {}
        }
        state.sent += 1;
        let uid = key.uid(state.sent);
        let lane = (hook.id, api_version.to_owned(), kind.to_owned());
        let lane = state.lanes.entry(lane).or_default();
        if let Some((fault, left)) = lane.suspended(now) {
            return failed(Fault::Suspended(Box::new(fault.clone())), Some(left));
        }
        let body: Bytes = question.body(&uid).into();
        if !lane.has_room(body.len()) {
            return pending(None);
        }
        let mut object = DefaultHasher::new();
        (text("/metadata/namespace"), text("/metadata/name")).hash(&mut object);
        let bytes = body.len();
        let request = Request {
            key,
            hook: Arc::clone(hook),
            operation: question.operation,
            object: object.finish(),
            uid,
            body,
        };
        lane.add(request, bytes);
        let answered = state.answers.ask(key, hook.id);
        drop(state);
        self.added.notify_one();
        pending(Some(answered))
    }

    /// Forgets the questions to webhooks that are gone. Whoever waits for them wakes up.
    pub(super) fn retain(&self, hooks: &Hooks) {
        let mut state = self.lock();
        state.lanes.retain(|(id, ..), _| hooks.knows(*id));
        state.answers.retain(|id| hooks.knows(id));
    }

    /// Sends questions until shutdown, and then wakes up whoever waits.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        let mut running: JoinSet<Ended> = JoinSet::new();
        loop {
            for (lane, request) in self.due() {
                running.spawn(async move {
                    let (outcome, bytes) = send(&request).await;
                    Ended {
                        lane,
                        key: request.key,
                        object: request.object,
                        bytes,
                        outcome,
                    }
                });
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.added.notified() => {}
                Some(ended) = running.join_next() => match ended {
                    Ok(ended) => self.end(ended),
                    // The task panicked; its lane stays one question narrower.
                    Err(error) => tracing::error!(%error, "a question to a webhook ended"),
                },
            }
        }
        self.retain(&Hooks::default());
    }

    /// The questions to send now.
    fn due(&self) -> Vec<(LaneKey, Request)> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (key, lane) in &mut self.lock().lanes {
            while let Some(request) = lane.next(now) {
                due.push((key.clone(), request));
            }
        }
        due
    }

    fn end(&self, ended: Ended) {
        let Ended {
            lane,
            key,
            object,
            bytes,
            outcome,
        } = ended;
        let now = Instant::now();
        let mut state = self.lock();
        let state = &mut *state;
        let fault = outcome.as_ref().err().cloned();
        // A webhook that is gone has no lane any more.
        if let Entry::Occupied(mut entry) = state.lanes.entry(lane) {
            for unsent in entry.get_mut().ended(object, fault.as_ref(), now) {
                state.answers.forget(&unsent.key);
            }
            if entry.get().is_idle() {
                entry.remove();
            }
        }
        state.answers.end(key, outcome, bytes, now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one question. Returns the answer and the bytes that it took.
async fn send(request: &Request) -> (Result<Answer, Fault>, usize) {
    let client = match &request.hook.client {
        Ok(client) => client,
        Err(reason) => return (Err(Fault::Configuration(reason.clone())), 0),
    };
    let begun = Instant::now();
    let limits = (
        request.hook.timeout,
        client::longest_answer(request.operation),
    );
    let answer = client.post(request.body.clone(), limits).await;
    let bytes = answer.as_ref().map_or(0, Bytes::len);
    let outcome = answer.and_then(|body| context::read(request.operation, &request.uid, &body));
    let result = if outcome.is_ok() { "success" } else { "error" };
    let operation = request.operation.to_string();
    metrics::histogram!("muster_interpreter_webhook_duration_seconds",
        "operation" => operation, "result" => result)
    .record(begun.elapsed());
    (outcome, bytes)
}

/// The answer, applied to the object.
fn reply(answer: &Answer, object: &Value) -> Result<Reply, String> {
    Ok(match answer {
        Answer::Replicas(count, needs) => Reply::Replicas(*count, needs.clone()),
        Answer::Components(list) => Reply::Components(list.clone()),
        Answer::Object(patch) => Reply::Object(patch::apply(object, patch)?),
        Answer::Dependencies(list) => Reply::Dependencies(list.clone()),
        Answer::Status(status) => Reply::Status(status.clone()),
        Answer::Health(healthy) => Reply::Health(*healthy),
    })
}
