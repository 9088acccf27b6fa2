//! Decides whether an object in the member has to be applied.
//!
//! [`Drift`] is asked by [`apply`](super::apply), and learns from the answers to applies and by the
//! events of [`watch`](super::watch). Each of its parts may find that nothing has to be applied:
//!
//! | part | an object is as desired if | remembers |
//! |---|---|---|
//! | [`mod@settled`] | its `managedFields` and values are as an apply leaves them | nothing |
//! | [`normalized`] | it is as the server answered this same apply | digests of such objects |
//! | [`lists`] | the first list of its kind showed it so | digests, for the first minute |
//!
//! An answer that lacks fields because the member does not know them counts for some minutes only.
//!
//! Two other memories of the agent do not take part. [`waits`](super::waits) has the times of
//! repairs: it decides when a difference is repaired, not whether there is one.
//! [`ObjectStatuses`](super::observed::ObjectStatuses) has the last seen statuses: it decides what
//! is reported.

mod difference;
mod grown;
mod lists;
mod normalized;
mod pods;
mod queued;
mod rival;
mod scaled;
mod settled;

use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::{Interpreters, Operation};
use muster_shared::k8s::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

pub use self::difference::Difference;
use self::difference::difference;
use self::lists::FirstLists;
use self::normalized::{Normalized, Pair};
pub use self::rival::rival;
pub use self::scaled::{LEFT_TO, left_to, scaled_field, was_left, with_note, without_reset};
pub use self::settled::Identity;
use self::settled::settled;
use super::desired::ObjectKey;

/// Pause after which an object is applied again of which the member has left fields out. Nothing
/// shows when an upgrade of the member, or of a definition there, has made them known.
const LEFT_OUT_PAUSE: Duration = Duration::from_mins(10);

/// The memory of one agent by which it knows that an object need not be applied.
#[derive(Debug)]
pub struct Drift {
    interpreters: Arc<Interpreters>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    normalized: Normalized,
    lists: FirstLists,
}

impl Drift {
    /// Makes an empty memory. `lists_come` says whether watches will list the kinds of the Works.
    pub fn new(lists_come: bool, interpreters: Arc<Interpreters>) -> Self {
        let state = State {
            normalized: Normalized::default(),
            lists: FirstLists::new(lists_come),
        };
        Self {
            interpreters,
            state: Mutex::new(state),
        }
    }

    /// Returns whether the kind of an object has a rule for replicas, so that it runs pods.
    pub fn has_replicas(&self, object: &Value) -> bool {
        let has = |operation| self.interpreters.has_for(object, operation);
        has(Operation::InterpretReplica) || has(Operation::InterpretComponent)
    }

    /// Returns why an object has to be applied; `None` if it is as desired.
    ///
    /// A wrong difference costs one request that changes nothing.
    ///
    /// # Errors
    /// When the interpreter cannot determine the fields that the member decides.
    pub fn needs_apply(
        &self,
        key: &ObjectKey,
        desired: &Value,
        observed: &Value,
    ) -> Result<Option<Difference>, muster_interpreter::Error> {
        let last = self.state.lock().normalized.get(key);
        let due = last.and_then(Pair::due);
        let is_due = due.is_some_and(|due| due <= Instant::now());
        let outcome = self.differs(desired, observed, last.filter(|_| !is_due));
        if is_due && matches!(outcome, Ok(None)) {
            self.state.lock().normalized.set(key, None);
        }
        outcome
    }

    /// Returns why an object has to be applied; `last` is the last apply of it that counts.
    fn differs(
        &self,
        desired: &Value,
        observed: &Value,
        last: Option<Pair>,
    ) -> Result<Option<Difference>, muster_interpreter::Error> {
        difference(
            desired,
            observed,
            &self.interpreters,
            |desired, observed| {
                settled(desired, observed)
                    || last.is_some_and(|last| last.is_unchanged(desired, observed))
            },
        )
    }

    /// Returns whether an object has to be read before [`needs_apply`](Self::needs_apply) can be
    /// asked; `false`, at most once, if the first list of its kind showed it as desired.
    pub fn needs_read(&self, key: &ObjectKey, desired: &Value) -> bool {
        !self
            .state
            .lock()
            .lists
            .confirms(key, desired, Instant::now())
    }

    /// Records the server's answer to an apply.
    pub fn applied(&self, key: &ObjectKey, desired: &Value, answer: &Value) {
        let normalized = !settled(desired, answer);
        let pair = normalized.then(|| Pair::of(desired, answer));
        self.state.lock().normalized.set(key, pair);
    }

    /// Records the server's answer to a write of which it left fields out, and its words about
    /// them. Returns whether they are new.
    pub fn left_out(&self, key: &ObjectKey, desired: &Value, answer: &Value, words: &str) -> bool {
        let due = Instant::now() + LEFT_OUT_PAUSE;
        let pair = Pair::of(desired, answer).leaving_out(words, due);
        let normalized = &mut self.state.lock().normalized;
        let before = normalized.set_partial(key, pair, words);
        before.is_none_or(|before| !before.leaves_out(words))
    }

    /// Returns the words of the member about the fields of an object that it does not know and has
    /// left out; `None` if it has left out none.
    pub fn words(&self, key: &ObjectKey) -> Option<String> {
        let state = self.state.lock();
        state.normalized.words(key).map(str::to_owned)
    }

    /// Returns whether an object is as the member answered the same write, of which it left the
    /// same fields out: another one would change nothing.
    pub fn is_left_out(
        &self,
        key: &ObjectKey,
        desired: &Value,
        observed: &Value,
        words: &str,
    ) -> bool {
        let last = self.state.lock().normalized.get(key);
        last.is_some_and(|last| last.leaves_out(words) && last.is_unchanged(desired, observed))
    }

    /// Returns the time after which an object is applied again although it is as the member
    /// answered; `None` if the member has left no field of it out.
    pub fn tries_again(&self, key: &ObjectKey) -> Option<Duration> {
        let due = self.state.lock().normalized.get(key)?.due()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Records an object that a watch showed, and returns why it has to be applied, as
    /// [`needs_apply`](Self::needs_apply). That it is to be applied again after a pause is no
    /// change of it.
    pub fn seen(
        &self,
        key: &ObjectKey,
        desired: &Value,
        observed: &Value,
    ) -> Result<Option<Difference>, muster_interpreter::Error> {
        let last = self.state.lock().normalized.get(key);
        let outcome = self.differs(desired, observed, last);
        if !matches!(outcome, Ok(None)) {
            self.doubt(key);
        }
        outcome
    }

    /// Records that an object changed, and cannot be compared.
    pub fn doubt(&self, key: &ObjectKey) {
        self.state.lock().lists.doubt(key);
    }

    /// Records that any object of a kind may have changed.
    pub fn doubt_all(&self, kind: &GroupVersionKind) {
        self.state.lock().lists.doubt_all(kind);
    }

    /// Forgets an object that is gone.
    pub fn gone(&self, key: &ObjectKey) {
        let mut state = self.state.lock();
        state.normalized.set(key, None);
        state.lists.doubt(key);
    }

    /// Returns the longest time for which a Work with objects of these kinds waits for the first
    /// lists; `None` if it need not.
    pub fn wait<'a>(&self, kinds: impl Iterator<Item = &'a GroupVersionKind>) -> Option<Duration> {
        self.state.lock().lists.wait(kinds, Instant::now())
    }

    /// Records a complete list of a kind, or that there will be none: objects that are as desired,
    /// with the digests of their desired states. Returns whether it is the first of its kind.
    pub fn listed(
        &self,
        kind: &GroupVersionKind,
        as_desired: impl IntoIterator<Item = (ObjectKey, u64)>,
    ) -> bool {
        let lists = &mut self.state.lock().lists;
        lists.complete(kind, as_desired, Instant::now())
    }

    /// Returns the number of objects whose normalised form is remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.state.lock().normalized.len()
    }
}

#[cfg(test)]
mod tests;
