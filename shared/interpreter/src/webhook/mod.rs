//! Interpreter webhooks: questions about objects that a server of the user answers.
//!
//! The rest of the interpreters answers at once. A question to a webhook is a request that may take
//! seconds, so that nothing waits for it: [`Webhooks::ask`] returns the answer if it is known, and
//! otherwise has the question sent and returns [`Asked::Pending`]. Whoever asked keeps what it knew
//! before, and asks again when [`Pending::answered`] returns.
//!
//! * Answers are remembered by the content of the question ([`answers`]), for ten minutes.
//! * About an object and operation one question waits or is on the way at a time ([`objects`]).
//!   Where the object changes faster than that, the answer about an earlier version counts.
//! * Each webhook has a queue of its own ([`mod@queue`]), limited in memory and in requests at a
//!   time; among them those about one kind and operation, so that none leaves nothing for others. A
//!   question for which the queue has no room is not kept: the caller is woken up when there is
//!   room, and nothing is lost.
//! * A webhook that fails for several objects in a row is not asked about that kind and operation
//!   for a while ([`breaker`]).
//! * Each request has the deadline of its webhook, and an answer has a largest size ([`client`]).
//! * A webhook that is removed or changed answers nothing any more: whoever waits for it asks anew.
//! * A webhook gets the content of Secrets only where a rule names the kind: Karmada sends it for a
//!   rule for all kinds as well.

mod answers;
mod breaker;
mod client;
mod error;
mod hook;
mod objects;
mod patch;
mod queue;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::answers::Known;
pub use self::answers::VALID;
pub use self::client::check_authorities;
pub use self::error::{At, Failure, Fault, Pending};
use self::error::{Until, malformed};
pub use self::hook::{CONTEXT_VERSION, Hook, Hooks, TIMEOUTS, url_address};
pub(crate) use self::objects::Overdue;
use self::queue::{Asking, ForRoom, Found, Queued, Request, State};
use self::request::{Objects, differs_in_status_alone};
use self::response::Said;
use crate::{Answer, Operation, Question};

/// Interval of the search for questions that have waited for too long.
const SEARCH: Duration = Duration::from_secs(2);

/// Result of a question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The answer.
    Answered(Answer),
    /// The answer about an earlier version of an object that changes faster than answers come. The
    /// question about this version waits or is on the way.
    Late(Answer, Pending),
    /// The question waits or is on the way.
    Pending(Pending),
    /// The webhook gave no answer.
    Failed(Failure),
}

/// Sends a question. Returns an answer that can be read.
type Sending = dyn Fn(Request) -> BoxFuture<'static, Result<Bytes, Fault>> + Send + Sync;

/// Channel for tasks that are to be run.
type Tasks = UnboundedSender<BoxFuture<'static, ()>>;

/// Questions to the webhooks of one process.
pub(crate) struct Webhooks {
    state: Arc<Mutex<State>>,
    send: Arc<Sending>,
    tasks: Tasks,
    /// The tasks that were not begun yet; `None` once [`run`](Self::run) has them.
    waiting: Mutex<Option<UnboundedReceiver<BoxFuture<'static, ()>>>>,
}

impl Default for Webhooks {
    /// Makes webhooks that are asked by HTTPS.
    fn default() -> Self {
        let large = Arc::new(Semaphore::new(client::LARGE_KIB));
        Self::sending(move |request| send(request, Arc::clone(&large)))
    }
}

impl Webhooks {
    /// Makes webhooks that are asked by a certain function.
    pub(crate) fn sending<F>(send: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Bytes, Fault>> + Send + 'static,
    {
        let (tasks, waiting) = unbounded_channel();
        Self {
            state: Arc::default(),
            send: Arc::new(move |request| Box::pin(send(request))),
            tasks,
            waiting: Mutex::new(Some(waiting)),
        }
    }

    /// Returns the answer of a webhook, or has the question sent. `accepts_late` says that the
    /// answer about an earlier version may be used.
    pub(crate) fn ask(
        &self,
        hook: &Arc<Hook>,
        question: &Question<'_>,
        accepts_late: bool,
    ) -> Asked {
        let asking = Asking::new(hook, question);
        let at = || Arc::clone(&asking.at);
        let failed = |fault, retry_after| {
            Asked::Failed(Failure {
                at: at(),
                fault,
                retry_after,
            })
        };
        if let Err(reason) = &hook.client {
            return failed(Fault::Configuration(reason.clone()), None);
        }
        let now = Instant::now();
        let found = self.state.lock().ask(&asking, hook, question, now);
        let (until, late) = match found {
            // Applied without the lock: it may take a while.
            Found::Answered(known) => {
                return match answer(&known, question) {
                    Ok(answer) => Asked::Answered(answer),
                    Err(fault) => {
                        let mut state = self.state.lock();
                        let left = state.spoil(&asking, question.name(), &fault, now);
                        failed(fault, left)
                    }
                };
            }
            Found::Failed(fault, left) => return failed(fault, Some(left)),
            Found::Gone => (Until::Removed, None),
            Found::Full(rooms, late) => {
                let (state, asking) = (Arc::clone(&self.state), asking.clone());
                let room = ForRoom {
                    state,
                    rooms,
                    asking,
                };
                (Until::Room(Box::new(room)), late)
            }
            Found::Waits(ended, late, queued) => {
                if let Some(mut queued) = queued {
                    queued.write(question);
                    let task = exchange(Arc::clone(&self.state), *queued, Arc::clone(&self.send));
                    // After shutdown nothing is sent, and whoever waits has been woken up.
                    _ = self.tasks.send(Box::pin(task));
                }
                (Until::Ended(ended), late)
            }
        };
        let pending = Pending { at: at(), until };
        let late = late.filter(|_| accepts_late);
        match late.and_then(|known| late_answer(&known, question)) {
            Some(answer) => Asked::Late(answer, pending),
            None => Asked::Pending(pending),
        }
    }

    /// Permits questions to these webhooks.
    pub(crate) fn admit(&self, hooks: &Hooks) {
        self.state.lock().admit(hooks);
    }

    /// Forgets the questions to webhooks that are gone. Whoever waits for them wakes up.
    pub(crate) fn retain(&self, hooks: &Hooks) {
        self.state.lock().retain(hooks);
    }

    /// Sends questions until shutdown, and then wakes up whoever waits. `report` gets what waits
    /// for too long, again and again. Runs once.
    pub(crate) async fn run(&self, shutdown: CancellationToken, report: impl Fn(&Overdue)) {
        let waiting = self.waiting.lock().take();
        let Some(mut waiting) = waiting else {
            return;
        };
        let mut running = JoinSet::new();
        let mut search = tokio::time::interval(SEARCH);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(task) = waiting.recv() => {
                    running.spawn(muster_shared::clock::inherited(task));
                }
                Some(_) = running.join_next() => {}
                _ = search.tick() => {
                    let overdue = self.state.lock().overdue(Instant::now());
                    overdue.iter().for_each(&report);
                }
            }
        }
        self.retain(&Hooks::default());
    }
}

/// Sends a question when it may be sent, and records its end.
async fn exchange(state: Arc<Mutex<State>>, queued: Queued, send: Arc<Sending>) {
    let Queued {
        request,
        question,
        asking,
        place,
        permits: [about_the_kind, of_the_webhook],
        removed,
        ..
    } = queued;
    let exchange = async {
        let _one_about_the_kind = about_the_kind.acquire().await;
        let _one_of_the_webhook = of_the_webhook.acquire().await;
        if state.lock().is_suspended(&asking, Instant::now()) {
            return None;
        }
        let sending = AssertUnwindSafe(async { send(request).await });
        Some(sending.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(at = %asking.at, "a question to a webhook ended by a panic");
            Err(malformed("reading it failed"))
        }))
    };
    let outcome = tokio::select! {
        () = removed.cancelled() => return,
        outcome = exchange => outcome,
    };
    drop(place);
    state.lock().end(&asking, outcome, question, Instant::now());
}

/// Sends one question. Returns the answer, which can be read.
async fn send(request: Request, large: Arc<Semaphore>) -> Result<Bytes, Fault> {
    let client = match &request.hook.client {
        Ok(client) => client,
        Err(reason) => return Err(Fault::Configuration(reason.clone())),
    };
    let begun = Instant::now();
    let operation = request.at.operation;
    let limits = (request.hook.timeout, client::longest_answer(operation));
    let received = client.post(request.body, limits, &large);
    let outcome = received.await.and_then(|(body, _permit)| {
        response::read(operation, Some(&request.uid), &body)?;
        // Without what the buffer has beyond its end.
        Ok(Bytes::copy_from_slice(&body))
    });
    let result = if outcome.is_ok() { "success" } else { "error" };
    let operation = operation.to_string();
    metrics::histogram!("muster_interpreter_webhook_duration_seconds",
        "operation" => operation, "result" => result)
    .record(begun.elapsed());
    outcome
}

/// Returns the answer to a question, applied to the object.
fn answer(known: &Known, question: &Question<'_>) -> Result<Answer, Fault> {
    match response::read(question.operation, None, &known.answer)? {
        Said::Answer(answer) => Ok(answer),
        Said::Patch(patch) => patch::apply(&question.object, &patch)
            .map(Answer::Object)
            .map_err(|text| malformed(&text)),
    }
}

/// Returns the answer about an earlier version. A patch is applied to that version; what a member
/// keeps is taken from an earlier version only where nothing but the status has changed.
fn late_answer(known: &Known, question: &Question<'_>) -> Option<Answer> {
    let patch = match response::read(question.operation, None, &known.answer).ok()? {
        Said::Answer(answer) => return Some(answer),
        Said::Patch(patch) => patch,
    };
    let asked = Objects::of(known.question.as_ref()?)?;
    let patched = |object: &Value| patch::apply(object, &patch).ok().map(Answer::Object);
    if question.operation != Operation::Retain {
        return patched(&asked.object);
    }
    let (observed, before) = (question.observed?, asked.observed_object?);
    let is_same = differs_in_status_alone(&question.object, &asked.object)
        && differs_in_status_alone(observed, &before);
    is_same.then(|| patched(&question.object)).flatten()
}
