//! Interpreters of each sort behind one trait.

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::lua::{Engine, Rules};
use crate::native::{self, unsupported};
use crate::webhook::{Asked, Hooks, Pending, Webhooks};
use crate::{Answer, Error, Operation, Question};

/// Interpreter of resources.
pub trait Interpreter {
    /// Returns whether it has a rule for an operation on a kind.
    fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool;

    /// Answers a question that it has a rule for.
    ///
    /// # Errors
    /// A field cannot be read, a script or a webhook failed or has not answered yet, or there is no
    /// rule.
    fn answer(&self, question: Question<'_>) -> Result<Answer, Error>;
}

/// Native rules for the kinds of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct Native;

impl Interpreter for Native {
    fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        native::hook_enabled(api_version, kind, operation)
    }

    fn answer(&self, question: Question<'_>) -> Result<Answer, Error> {
        let object = &*question.object;
        let found = match question.operation {
            Operation::InterpretReplica => native::interpret_replica(object)?.map(Answer::Replicas),
            Operation::InterpretComponent => None,
            Operation::ReviseReplica => {
                let (object, replicas) = (question.object.into_owned(), question.replicas);
                let revised = native::revise_replica(object, replicas.into())?;
                return Ok(Answer::Object(revised));
            }
            Operation::Retain => {
                let observed = question.observed.unwrap_or(&Value::Null);
                let retained = native::retain(question.object.into_owned(), observed)?;
                return Ok(Answer::Object(retained));
            }
            Operation::AggregateStatus => {
                let status = native::aggregate_status(object, question.items, question.now)?;
                Some(Answer::Status(status))
            }
            Operation::InterpretDependency => {
                native::dependencies(object)?.map(Answer::Dependencies)
            }
            Operation::InterpretStatus => Some(Answer::Status(native::status(object)?)),
            Operation::InterpretHealth => native::health(object)?.map(Answer::Health),
        };
        found.ok_or_else(|| unsupported(question.operation, object))
    }
}

/// Scripts in Lua. On a runtime with several threads, other tasks go on while one runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scripts<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) rules: &'a Rules,
}

impl Interpreter for Scripts<'_> {
    fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.rules.has(api_version, kind, operation)
    }

    fn answer(&self, question: Question<'_>) -> Result<Answer, Error> {
        let answer = without_blocking_others(|| self.engine.answer(self.rules, &question));
        let found = answer.map_err(Error::Script)?;
        found.ok_or_else(|| unsupported(question.operation, &question.object))
    }
}

/// Webhooks of the users. Nothing waits for them: [`Error::Pending`] says that one was asked.
pub(crate) struct ByWebhook<'a> {
    pub(crate) webhooks: &'a Webhooks,
    pub(crate) hooks: &'a Hooks,
    /// Takes the question to wait for where an answer was used about an earlier version of the
    /// object; `None` where none may be used.
    pub(crate) late: Option<&'a Mutex<Option<Pending>>>,
}

impl Interpreter for ByWebhook<'_> {
    fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.hooks.has(api_version, kind, operation)
    }

    fn answer(&self, question: Question<'_>) -> Result<Answer, Error> {
        let (api_version, kind) = question.kind();
        let Some(hook) = self.hooks.find(api_version, kind, question.operation) else {
            return Err(unsupported(question.operation, &question.object));
        };
        match self.webhooks.ask(hook, &question, self.late.is_some()) {
            Asked::Answered(answer) => Ok(answer),
            Asked::Late(answer, pending) => {
                if let Some(late) = self.late {
                    *late.lock() = Some(pending);
                }
                Ok(answer)
            }
            Asked::Pending(pending) => Err(Error::Pending(pending)),
            Asked::Failed(failure) => Err(Error::Webhook(failure)),
        }
    }
}

/// Runs a call that may take long. On a runtime with several threads, other tasks go on meanwhile.
pub fn without_blocking_others<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
