//! The rules for all kinds, asked in the order in which they count.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::{AggregatedStatusItem, Component};
use muster_shared::controller::Watched;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::failures::{Failed, Failures};
use crate::interpreter::{ByWebhook, Interpreter, Native, Scripts};
use crate::layers::{Changed, Layers};
use crate::lua::{Customization, Engine, Rules, thirdparty};
use crate::native::{general_health, retain_labelled, unsupported};
use crate::webhook::{Hooks, Overdue, Pending, VALID, Webhooks};
use crate::{Answer, Dependency, Error, Operation, Question, Replicas};

/// Returns the content of an answer of a kind; `None` for another one, or for none.
macro_rules! content {
    ($answer:expr, $kind:ident) => {
        match $answer {
            Some(Answer::$kind(content)) => Some(content),
            _ => None,
        }
    };
}

type OnChange = Box<dyn Fn(&Changed) + Send + Sync>;

/// The one place where agent and control plane ask for the meaning of a resource.
///
/// Scripts of customizations are asked first, then webhooks, then the built-in scripts for kinds of
/// other projects, then the native functions of this module. The first that has a rule for kind and
/// operation answers; where it fails, its error is the answer.
///
/// A webhook is a remote server, and nothing waits for it here: [`Error::Pending`] says that it was
/// asked. [`run`](Self::run) sends the questions.
///
/// Until [`known`](Self::known) it is not known which customizations and webhooks there are.
/// Whoever acts on answers waits for it, because the other rules may say something else about the
/// kind.
///
/// Scripts of customizations may run as long as the limits of the [`Engine`] allow. On a runtime
/// with several threads, other tasks go on meanwhile.
pub struct Interpreters {
    shared: Arc<Shared>,
    /// What waits for a newer answer than the late one that was used; `None` where none is used.
    late: Option<Mutex<Option<Pending>>>,
}

struct Shared {
    engine: Engine,
    layers: watch::Sender<Layers>,
    webhooks: Webhooks,
    on_change: RwLock<Vec<OnChange>>,
    failures: Failures,
}

impl fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreters")
            .field("known", &self.is_known())
            .finish_non_exhaustive()
    }
}

impl Default for Interpreters {
    /// Interpreters of which it is not known yet which customizations there are.
    fn default() -> Self {
        Self::with_webhooks(Webhooks::default())
    }
}

impl Watched for Interpreters {
    type Change = Changed;

    /// Adds a listener for changes of customizations and webhooks. It is called after the new ones
    /// count, and must return quickly. The first ones are no change.
    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        let mut listeners = self.shared.on_change.write();
        listeners.push(Box::new(listener));
    }
}

impl Interpreters {
    /// Makes interpreters of which it is not known yet which customizations there are.
    pub(crate) fn with_webhooks(webhooks: Webhooks) -> Self {
        let shared = Arc::new(Shared {
            engine: Engine::default(),
            layers: watch::Sender::new(Layers::default()),
            webhooks,
            on_change: RwLock::default(),
            failures: Failures::default(),
        });
        Self { shared, late: None }
    }

    /// Makes the interpreters for certain customizations, which do not change, without webhooks.
    pub fn of(customizations: &[Customization]) -> Self {
        let interpreters = Self::default();
        interpreters.set(Rules::new(customizations));
        interpreters.set_hooks(Hooks::default());
        interpreters
    }

    /// Returns the same interpreters for one interpretation of an object. Where a webhook has not
    /// answered about an object that changes faster than its answers come, its answer about an
    /// earlier version counts, and [`late`](Self::late) says what to wait for.
    #[must_use]
    pub fn accepting_late(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            late: Some(Mutex::default()),
        }
    }

    /// Returns the same interpreters as [`accepting_late`](Self::accepting_late) does, but for an
    /// answer that must fit the object as it is.
    #[must_use]
    pub fn exact(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            late: None,
        }
    }

    /// Returns the question to wait for, where an answer was one about an earlier version of the
    /// object: whoever used it tries again when that is answered.
    pub fn late(&self) -> Option<Pending> {
        self.late.as_ref()?.lock().clone()
    }

    /// Adds a listener for failures of scripts and webhooks: called once in five minutes for each
    /// of them, kind and operation. It is called on the task that asked, and must return quickly.
    pub fn on_failure(&self, listener: impl Fn(&Failed) + Send + Sync + 'static) {
        self.shared.failures.listen(listener);
    }

    /// Returns the scripts of the customizations; none before they are known.
    pub fn customized(&self) -> Arc<Rules> {
        self.shared.layers.borrow().scripts()
    }

    /// Returns the webhooks; none before they are known.
    pub fn hooks(&self) -> Arc<Hooks> {
        self.shared.layers.borrow().hooks()
    }

    /// Returns a receiver of the interpreters of the users, for a task that ends before the process
    /// does.
    pub fn subscribe(&self) -> watch::Receiver<Layers> {
        self.shared.layers.subscribe()
    }

    /// Has these scripts of customizations count from now on. From the first call on it is known
    /// which customizations there are.
    pub fn set(&self, rules: Rules) {
        self.change(|layers| layers.scripts = Some(Arc::new(rules)));
    }

    /// Has these webhooks count from now on. From the first call on it is known which there are.
    pub fn set_hooks(&self, hooks: Hooks) {
        let hooks = Arc::new(hooks);
        self.shared.webhooks.admit(&hooks);
        self.change(|layers| layers.hooks = Some(Arc::clone(&hooks)));
        self.shared.webhooks.retain(&hooks);
    }

    fn change(&self, change: impl FnOnce(&mut Layers)) {
        let (mut changed, mut was_known) = (Changed::default(), false);
        // Scripts and webhooks come from two tasks.
        let is_other = self.shared.layers.send_if_modified(|layers| {
            let before = layers.clone();
            change(layers);
            changed = Changed::between(&before, layers);
            was_known = before.are_known();
            !was_known || !changed.is_empty()
        });
        if !is_other {
            return;
        }
        // An interpreter that somebody mended, or broke again, is reported anew.
        self.shared.failures.forget(&changed);
        if was_known {
            self.announce(&changed);
        }
    }

    fn announce(&self, changed: &Changed) {
        let listeners = self.shared.on_change.read();
        listeners.iter().for_each(|listener| listener(changed));
    }

    /// Sends the questions to webhooks until shutdown. The listeners for changes get the kinds
    /// of webhooks again when answers have lost their validity, because a webhook may say
    /// something else about an object that has not changed.
    pub async fn run(&self, shutdown: CancellationToken) {
        let report = |overdue: &Overdue| self.shared.failures.report_overdue(overdue);
        let asks_again = async {
            loop {
                tokio::time::sleep(VALID).await;
                let changed = Changed::by_hooks(&self.hooks());
                if !changed.is_empty() {
                    self.announce(&changed);
                }
            }
        };
        tokio::select! {
            () = self.shared.webhooks.run(shutdown, report) => {}
            () = asks_again => {}
        }
    }

    /// Waits until it is known which customizations and webhooks there are.
    pub async fn known(&self) {
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = self.subscribe().wait_for(Layers::are_known).await;
    }

    /// Returns whether it is known which customizations and webhooks there are.
    pub fn is_known(&self) -> bool {
        self.shared.layers.borrow().are_known()
    }

    /// Returns whether a kind has a rule for an operation. Every kind has its status reflected.
    pub fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.in_order(|all| all.iter().any(|it| it.has(api_version, kind, operation)))
    }

    /// Returns whether nobody but the native function of a kind answers for an operation.
    pub fn is_native(&self, kind: (&str, &str), operation: Operation) -> bool {
        let (api_version, kind) = kind;
        self.in_order(|[users @ .., native]| {
            let has = |it: &&dyn Interpreter| it.has(api_version, kind, operation);
            has(&native) && !users.iter().any(has)
        })
    }

    /// Returns whether the kind of an object has a rule for an operation.
    pub fn has_for(&self, object: &Value, operation: Operation) -> bool {
        let question = Question::new(operation, object);
        let (api_version, kind) = question.kind();
        self.has(api_version, kind, operation)
    }

    /// Returns the replicas of a workload and the requirements of each. `None` for kinds without a
    /// rule: they are not workloads, and are placed without counting.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer.
    pub fn replicas(&self, object: &Value) -> Result<Option<Replicas>, Error> {
        let answer = self.ask(Question::new(Operation::InterpretReplica, object))?;
        Ok(content!(answer, Replicas))
    }

    /// Returns the components of a workload with several pod templates; `None` for kinds without a
    /// rule. No kind of Kubernetes has one.
    ///
    /// # Errors
    /// The interpreter gave no answer.
    pub fn components(&self, object: &Value) -> Result<Option<Vec<Component>>, Error> {
        let answer = self.ask(Question::new(Operation::InterpretComponent, object))?;
        Ok(content!(answer, Components))
    }

    /// Returns the object with the number of replicas of one cluster.
    ///
    /// # Errors
    /// A field cannot be read, the interpreter gave no answer, or the kind has no rule.
    pub fn revise_replica(&self, object: Value, replicas: i32) -> Result<Value, Error> {
        let question = Question {
            replicas,
            ..Question::of(Operation::ReviseReplica, Cow::Owned(object))
        };
        self.changed(question)
    }

    /// Returns the desired object with the fields from `observed` that the member decides: those of
    /// the rule, and the replicas of a Deployment that its label leaves to the member.
    ///
    /// # Errors
    /// A field cannot be read, the interpreter gave no answer, or the kind has no rule.
    pub fn retain(&self, desired: Value, observed: &Value) -> Result<Value, Error> {
        let desired = retain_labelled(desired, observed)?;
        let question = Question {
            observed: Some(observed),
            ..Question::of(Operation::Retain, Cow::Owned(desired))
        };
        self.changed(question)
    }

    fn changed(&self, question: Question<'_>) -> Result<Value, Error> {
        let operation = question.operation;
        match self.ask(question)? {
            Some(Answer::Object(object)) => Ok(object),
            _ => Err(Error::Unsupported {
                operation,
                kind: "this object".to_owned(),
            }),
        }
    }

    /// Returns the status to report for an object in a member; `None` if there is nothing to
    /// report.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer.
    pub fn status(&self, object: &Value) -> Result<Option<Value>, Error> {
        let answer = self.ask(Question::new(Operation::InterpretStatus, object))?;
        Ok(content!(answer, Status).flatten())
    }

    /// Returns whether the object in a member is healthy; `None` for kinds without a rule.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer: the health is unknown.
    pub fn health(&self, object: &Value) -> Result<Option<bool>, Error> {
        let answer = self.ask(Question::new(Operation::InterpretHealth, object))?;
        Ok(content!(answer, Health))
    }

    /// Returns whether an object in a member counts as healthy: by its rule, where its kind has
    /// none by its conditions ([`general_health()`]), and healthy where they say nothing. One that
    /// is being deleted is not, whatever its status says.
    ///
    /// # Errors
    /// As for [`health`](Self::health).
    pub fn is_healthy(&self, object: &Value) -> Result<bool, Error> {
        let deleted = object.pointer("/metadata/deletionTimestamp");
        if deleted.is_some_and(|time| !time.is_null()) {
            return Ok(false);
        }
        let ruled = self.health(object)?;
        Ok(ruled.or_else(|| general_health(object)).unwrap_or(true))
    }

    /// Returns the dependencies of an object; `None` for kinds without a rule.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer.
    pub fn dependencies(&self, object: &Value) -> Result<Option<Vec<Dependency>>, Error> {
        let answer = self.ask(Question::new(Operation::InterpretDependency, object))?;
        Ok(content!(answer, Dependencies))
    }

    /// Returns the status of the template, or `None` if it should stay as it is. `now` is the time
    /// of the conditions that the native rules add.
    ///
    /// # Errors
    /// The status of a member cannot be read, the interpreter gave no answer, or the kind has no
    /// rule.
    pub fn aggregate_status(
        &self,
        template: &Value,
        items: &[AggregatedStatusItem],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let question = Question {
            items,
            now,
            ..Question::new(Operation::AggregateStatus, template)
        };
        Ok(match self.ask(question)? {
            // Interpreters of the users return the whole object.
            Some(Answer::Object(mut object)) => {
                Some(object["status"].take()).filter(|status| !status.is_null())
            }
            Some(Answer::Status(status)) => status,
            _ => None,
        })
    }

    /// Asks the first interpreter that has a rule. `None` where there is none, and nothing that
    /// depends on it.
    fn ask(&self, question: Question<'_>) -> Result<Option<Answer>, Error> {
        let operation = question.operation;
        let answer = self.in_order(|all| {
            let (api_version, kind) = question.kind();
            let mut all = all.into_iter();
            match all.find(|it| it.has(api_version, kind, operation)) {
                Some(interpreter) => interpreter.answer(question).map(Some),
                None if operation.changes_object() => Err(unsupported(operation, &question.object)),
                None => Ok(None),
            }
        });
        if let Err(error) = &answer {
            self.shared.failures.report(error);
        }
        answer
    }

    /// Does something with the interpreters, in the order in which they are asked.
    fn in_order<T>(&self, work: impl FnOnce([&dyn Interpreter; 4]) -> T) -> T {
        let layers = self.shared.layers.borrow().clone();
        let Shared {
            engine, webhooks, ..
        } = &*self.shared;
        let scripts = Scripts {
            engine,
            rules: &layers.scripts(),
        };
        let by_webhook = ByWebhook {
            webhooks,
            hooks: &layers.hooks(),
            late: self.late.as_ref(),
        };
        let built_in = Scripts {
            engine,
            rules: thirdparty::rules(),
        };
        work([&scripts, &by_webhook, &built_in, &Native])
    }
}

#[cfg(test)]
mod tests;
