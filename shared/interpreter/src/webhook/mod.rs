//! Interpreter webhooks: questions about objects that a server of the user answers.
//!
//! The rest of the interpreter answers at once. A question to a webhook is a request that may take
//! seconds, so that nothing waits for it: [`Webhooks::ask`] returns the answer if it is known, and
//! otherwise has the question sent and returns [`Asked::Pending`]. Whoever asked keeps what it knew
//! before, and asks again when [`Pending::answered`] returns.
//!
//! * Answers are remembered by the content of the question ([`answers`]), for ten minutes.
//! * About an object and operation one question waits or is on the way at a time ([`subject`]).
//!   Where the object changes faster than that, the answer about an earlier version counts.
//! * The requests are made by one task per process, [`Webhooks::run`]; each has the deadline of its
//!   webhook, and an answer has a largest size ([`client`]).
//! * Questions of a webhook about different kinds and operations wait in different lanes
//!   ([`lane`]). A webhook that fails for several objects in a row is not asked about that kind and
//!   operation for a while.
//! * All lanes share what they may take ([`room`]). A question without room waits in a line
//!   ([`mod@line`]) as a number, and whoever asks is called when its turn comes: nothing is lost.
//! * A webhook that is removed or changed answers nothing any more: whoever waits for it asks anew.
//! * A webhook gets the content of Secrets only where a rule names the kind: Karmada sends it for a
//!   rule for all kinds as well.

mod answers;
mod client;
mod context;
mod error;
mod hook;
mod lane;
mod line;
mod patch;
mod room;
mod state;
mod subject;
#[cfg(test)]
mod tests;
mod weight;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Operation;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use self::client::check_authorities;
pub use self::context::Question;
use self::context::{Answer, Objects, differs_in_status_alone, malformed};
pub use self::error::{At, Failure, Fault, Pending};
pub use self::hook::{CONTEXT_VERSION, Hook, Hooks, TIMEOUTS, url_address};
pub(super) use self::state::Request;
use self::state::{Asking, Found, Sent, State};
pub(super) use self::subject::Overdue;

/// Time for which an answer counts. What was asked about is asked about again afterwards.
pub const VALID: Duration = answers::VALID;
/// Interval at which is looked for questions that wait for too long.
const LOOK: Duration = Duration::from_secs(2);
/// Bytes of the largest answer, as it is in memory.
const LARGEST_TREE: usize = 16 << 20;

/// What came of a question that was sent, with the bytes that the answer takes in memory.
pub(super) type Outcome = (Result<Answer, Fault>, usize);

/// Result of a question.
#[derive(Debug)]
pub(super) enum Asked {
    /// The answer.
    Answered(Reply),
    /// The answer about an earlier version of an object that changes faster than answers come. The
    /// question about this version waits or is on the way.
    Late(Reply, Pending),
    /// The question waits or is on the way.
    Pending(Pending),
    /// There is no answer.
    Failed(Failure),
}

/// Answer that has been checked and applied to the object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Replicas(i32, Option<crate::lua::Requirements>),
    Components(Vec<crate::lua::Component>),
    Object(Value),
    Dependencies(Vec<crate::lua::Dependency>),
    Status(Value),
    Health(bool),
}

impl Reply {
    /// Returns the object of an operation that changes it.
    pub(super) fn object(self) -> Option<Value> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// Questions to the webhooks of one process.
pub(super) struct Webhooks {
    state: Mutex<State>,
    /// Notified when a question waits.
    added: Notify,
    /// What long answers may take together.
    large: Arc<Semaphore>,
}

impl Default for Webhooks {
    fn default() -> Self {
        let permits = usize::try_from(client::LARGE_PERMITS).unwrap_or(usize::MAX);
        Self {
            state: Mutex::default(),
            added: Notify::new(),
            large: Arc::new(Semaphore::new(permits)),
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhooks")
    }
}

impl Webhooks {
    /// Returns the answer of a webhook, or has the question sent. `accepts_late` says that the
    /// answer about an earlier version may be used.
    pub(super) fn ask(
        &self,
        hook: &Arc<Hook>,
        question: &Question<'_>,
        accepts_late: bool,
    ) -> Asked {
        let text = |key: &str| question.object[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let at = || {
            Arc::new(At {
                configuration: hook.configuration.clone(),
                webhook: hook.name.clone(),
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                operation: question.operation,
            })
        };
        let failed = |fault, retry_after| {
            let at = at();
            Asked::Failed(Failure {
                at,
                fault,
                retry_after,
            })
        };
        if let Err(reason) = &hook.client {
            return failed(Fault::Configuration(reason.clone()), None);
        }
        let hides = hook.hides(api_version, kind);
        let (key, bytes) = question.digest(hook.id, hides);
        let asking = Asking {
            lane: (
                hook.id,
                question.operation,
                api_version.to_owned(),
                kind.to_owned(),
            ),
            key,
            number: question.subject(hook.id),
            bytes,
        };
        let now = Instant::now();
        let found = self.lock().find(&asking, now, || (at(), question.name()));
        let (answered, late) = match found {
            // Applied without the lock: it may take a while.
            Found::Answered(answer) => match reply(&answer, question.object) {
                Ok(reply) => return Asked::Answered(reply),
                Err(text) => {
                    let fault = malformed(text);
                    let left = self.lock().spoil(&asking, &fault, now);
                    return failed(fault, left);
                }
            },
            Found::Failed(fault, left) => return failed(fault, Some(left)),
            Found::Waits { answered, late } => (answered, late),
            Found::Room { uid, late } => {
                let request = Request {
                    hook: Arc::clone(hook),
                    operation: question.operation,
                    uid,
                    body: Bytes::new(),
                    hides,
                    key,
                    number: asking.number,
                    object: question.object_number(),
                };
                // Written without the lock.
                let body: Bytes = question.body(&request.uid, hides).into();
                let answered = self.lock().add(&asking, Request { body, ..request });
                self.added.notify_one();
                (Some(answered), late)
            }
        };
        let pending = Pending { at: at(), answered };
        let late = late.filter(|_| accepts_late);
        match late.and_then(|answer| late_reply(&answer, question)) {
            Some(reply) => Asked::Late(reply, pending),
            None => Asked::Pending(pending),
        }
    }

    /// Permits questions to these webhooks.
    pub(super) fn admit(&self, hooks: &Hooks) {
        self.lock().admit(hooks);
    }

    /// Forgets the questions to webhooks that are gone. Whoever waits for them wakes up.
    pub(super) fn retain(&self, hooks: &Hooks) {
        self.lock().retain(hooks);
    }

    /// Sends questions until shutdown, and then wakes up whoever waits. `tell` gets what waits for
    /// too long, again and again.
    pub(super) async fn run(&self, shutdown: CancellationToken, tell: impl Fn(&Overdue)) {
        let large = Arc::clone(&self.large);
        let send = move |request| send(request, Arc::clone(&large));
        self.run_with(shutdown, tell, send).await;
    }

    pub(super) async fn run_with<F>(
        &self,
        shutdown: CancellationToken,
        tell: impl Fn(&Overdue),
        send: impl Fn(Request) -> F,
    ) where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut running: JoinSet<Outcome> = JoinSet::new();
        let mut on_the_way: HashMap<Id, Sent> = HashMap::new();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for (lane, request, gone) in self.lock().due(Instant::now()) {
                let of = Sent::new(lane, &request);
                let sending = send(request);
                let task = running.spawn(muster_shared::clock::inherited(async move {
                    tokio::select! {
                        () = gone.cancelled() => {
                            (Err(Fault::Connection("it is gone".to_owned())), 0)
                        }
                        outcome = sending => outcome,
                    }
                }));
                on_the_way.insert(task.id(), of);
            }
            let (id, outcome, weight) = tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.added.notified() => continue,
                _ = look.tick() => {
                    let overdue = self.lock().look(Instant::now());
                    overdue.iter().for_each(&tell);
                    continue;
                }
                Some(ended) = running.join_next_with_id() => match ended {
                    Ok((id, (outcome, weight))) => (id, outcome, weight),
                    Err(error) => {
                        tracing::error!(%error, "a question to a webhook ended");
                        let fault = malformed("reading it failed".to_owned());
                        (error.id(), Err(fault), 0)
                    }
                },
            };
            if let Some(of) = on_the_way.remove(&id) {
                self.lock().end(of, outcome, weight, Instant::now());
            }
        }
        self.retain(&Hooks::default());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one question. Returns the answer and the bytes that it takes.
async fn send(request: Request, large: Arc<Semaphore>) -> Outcome {
    let client = match &request.hook.client {
        Ok(client) => client,
        Err(reason) => return (Err(Fault::Configuration(reason.clone())), 0),
    };
    let begun = Instant::now();
    let operation = request.operation;
    let limits = (request.hook.timeout, client::longest_answer(operation));
    let outcome = match client.post(request.body, limits, &large).await {
        Ok((body, _permit)) => read(operation, &request.uid, &body),
        Err(fault) => Err(fault),
    };
    let result = if outcome.is_ok() { "success" } else { "error" };
    let operation = operation.to_string();
    metrics::histogram!("muster_interpreter_webhook_duration_seconds",
        "operation" => operation, "result" => result)
    .record(begun.elapsed());
    match outcome {
        Ok((answer, weight)) => (Ok(answer), weight),
        Err(fault) => (Err(fault), 0),
    }
}

/// Reads an answer. Returns it with the bytes that it takes.
fn read(operation: Operation, uid: &str, body: &Bytes) -> Result<(Answer, usize), Fault> {
    let answer = context::read(operation, uid, body)?;
    match weight::of(&answer, body.len()) {
        weight if weight > LARGEST_TREE => Err(malformed(format!(
            "it takes {weight} bytes of memory, more than the {LARGEST_TREE} that one may take"
        ))),
        weight => Ok((answer, weight)),
    }
}

/// Returns the answer, applied to the object.
fn reply(answer: &Answer, object: &Value) -> Result<Reply, String> {
    Ok(match answer {
        Answer::Replicas(count, needs) => Reply::Replicas(*count, needs.clone()),
        Answer::Components(list) => Reply::Components(list.clone()),
        Answer::Object(patch, _) => Reply::Object(patch::apply(object, patch)?),
        Answer::Dependencies(list) => Reply::Dependencies(list.clone()),
        Answer::Status(status) => Reply::Status(status.clone()),
        Answer::Health(healthy) => Reply::Health(*healthy),
    })
}

/// Returns the answer about an earlier version. A patch is applied to that version; what a member
/// keeps is taken from an earlier version only where nothing but the status has changed.
fn late_reply(answer: &Answer, question: &Question<'_>) -> Option<Reply> {
    let Answer::Object(patch, asked) = answer else {
        return reply(answer, question.object).ok();
    };
    let asked = Objects::of(asked.as_ref()?)?;
    if question.operation != Operation::Retain {
        return patch::apply(&asked.object, patch).ok().map(Reply::Object);
    }
    let (observed, before) = (question.observed?, asked.observed_object?);
    let is_same = differs_in_status_alone(question.object, &asked.object)
        && differs_in_status_alone(observed, &before);
    let retained = is_same.then(|| patch::apply(question.object, patch))?;
    retained.ok().map(Reply::Object)
}
