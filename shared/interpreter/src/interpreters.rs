//! The rules for all kinds, asked in the order in which they count.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::Dependency;
use crate::Operation;
use crate::lua::{Engine, Error as ScriptError, Limits, Rules, thirdparty};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::layers::{Changed, Layers};
use super::webhook::{Asked, Hooks, Overdue, Pending, VALID, Webhooks};
use super::{
    Error, MemberStatus, Replicas, aggregate_status, dependencies, general_health, health,
    hook_enabled, interpret_replica, retain, revise_replica, status,
};
use crate::native::unsupported;
use crate::{Answer, Question};
use muster_shared::api::binding::{AggregatedStatusItem, Component};
use muster_shared::clock::calendar;

/// Time for which the failure of a script is not told to the listeners of failures after another.
const NEXT_FAILURE: Duration = Duration::from_mins(5);
/// Time for which the same failure of a script is not told again. An API server forgets events
/// after an hour.
const SAME_FAILURE: Duration = Duration::from_mins(55);

/// Failure of an interpreter of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The interpreter, which is an object of the fleet API.
    pub by: Source,
    /// What failed, and why.
    pub note: String,
}

/// Object that holds an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `ResourceInterpreterCustomization` of this name.
    Customization(String),
    /// `ResourceInterpreterWebhookConfiguration` of this name.
    Webhook(String),
}

type OnChange = Box<dyn Fn(&Changed) + Send + Sync>;
type OnFailure = Box<dyn Fn(&Failed) + Send + Sync>;

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
    on_failure: RwLock<Vec<OnFailure>>,
    /// When a failure was told last, by the interpreter, kind and operation.
    told: Mutex<HashMap<About, (Instant, String)>>,
}

/// What a failure is about: interpreter, API version, kind, and operation.
type About = (Source, String, String, Operation);

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

impl Interpreters {
    /// Makes interpreters of which it is not known yet which customizations there are.
    pub(crate) fn with_webhooks(webhooks: Webhooks) -> Self {
        let shared = Arc::new(Shared {
            engine: Engine::with_clock(Limits::default(), Arc::new(|| calendar().as_second())),
            layers: watch::Sender::new(Layers::default()),
            webhooks,
            on_change: RwLock::default(),
            on_failure: RwLock::default(),
            told: Mutex::default(),
        });
        Self { shared, late: None }
    }

    /// Makes the interpreters for certain customizations, which do not change, without webhooks.
    pub fn of(customizations: &[crate::lua::Customization]) -> Self {
        let interpreters = Self::default();
        interpreters.set(Rules::new(customizations));
        interpreters.set_hooks(Hooks::default());
        interpreters
    }

    /// Returns the same interpreters for one look at an object. Where a webhook has not answered
    /// about an object that changes faster than its answers come, its answer about an earlier
    /// version counts, and [`late`](Self::late) says what to wait for.
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
    /// object: whoever used it looks again when that is answered.
    pub fn late(&self) -> Option<Pending> {
        let late = self.late.as_ref()?.lock();
        late.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a listener for changes of customizations and webhooks. It is called after the new ones
    /// count, and must return quickly. The first ones are no change.
    pub fn on_change(&self, listener: impl Fn(&Changed) + Send + Sync + 'static) {
        let mut listeners = self.shared.on_change.write();
        let listeners = listeners.as_mut().unwrap_or_else(|poison| poison.get_mut());
        listeners.push(Box::new(listener));
    }

    /// Adds a listener for failures of scripts and webhooks: told once in five minutes for each of
    /// them, kind and operation. It is called on the task that asked, and must return quickly.
    pub fn on_failure(&self, listener: impl Fn(&Failed) + Send + Sync + 'static) {
        let mut listeners = self.shared.on_failure.write();
        let listeners = listeners.as_mut().unwrap_or_else(|poison| poison.get_mut());
        listeners.push(Box::new(listener));
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
        self.change(|layers| layers.set_scripts(Arc::new(rules)));
    }

    /// Has these webhooks count from now on. From the first call on it is known which there are.
    pub fn set_hooks(&self, hooks: Hooks) {
        let hooks = Arc::new(hooks);
        self.shared.webhooks.admit(&hooks);
        self.change(|layers| layers.set_hooks(Arc::clone(&hooks)));
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
        // An interpreter that somebody mended, or broke again, is told of anew.
        self.told()
            .retain(|(_, api_version, kind, _), _| !changed.has(api_version, kind));
        if was_known {
            self.announce(&changed);
        }
    }

    fn announce(&self, changed: &Changed) {
        let listeners = self.shared.on_change.read();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(changed));
    }

    /// Sends the questions to webhooks until shutdown. The listeners for changes hear of the kinds
    /// of webhooks again when answers have lost their validity, because a webhook may say
    /// something else about an object that has not changed.
    pub async fn run(&self, shutdown: CancellationToken) {
        let tell = |overdue: &Overdue| self.tell_overdue(overdue);
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
            () = self.shared.webhooks.run(shutdown, tell) => {}
            () = asks_again => {}
        }
    }

    /// Tells that a webhook has not answered about objects for a long time.
    fn tell_overdue(&self, overdue: &Overdue) {
        let Overdue {
            at,
            objects,
            longest,
        } = overdue;
        let by = Source::Webhook(at.configuration.clone());
        let about = (&*at.api_version, &*at.kind, at.operation);
        self.tell(by, about, || {
            format!(
                "{at}: it has given no answer that fits about {objects} objects for more than a \
                 minute, {longest:?} is the one for longest: what was known of them before counts"
            )
        });
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
        self.shared
            .layers
            .borrow()
            .has(api_version, kind, operation)
            || thirdparty::rules().has(api_version, kind, operation)
            || hook_enabled(api_version, kind, operation)
    }

    /// Returns whether nobody but the native function of a kind answers for an operation.
    pub fn is_native(&self, kind: (&str, &str), operation: Operation) -> bool {
        let (api_version, kind) = kind;
        let layers = self.shared.layers.borrow();
        hook_enabled(api_version, kind, operation)
            && !layers.has(api_version, kind, operation)
            && !thirdparty::rules().has(api_version, kind, operation)
    }

    /// Returns whether the kind of an object has a rule for an operation.
    pub fn has_for(&self, object: &Value, operation: Operation) -> bool {
        let (api_version, kind) = kind_of(object);
        self.has(api_version, kind, operation)
    }

    /// Returns the replicas of a workload and the requirements of each. `None` for kinds without a
    /// rule: they are not workloads, and are placed without counting.
    ///
    /// # Errors
    /// A field cannot be read, or a script failed.
    pub fn replicas(&self, object: &Value) -> Result<Option<Replicas>, Error> {
        let question = Question::new(Operation::InterpretReplica, object);
        let found = self.asked(
            &question,
            |engine, rules| engine.interpret_replica(rules, object),
            |reply| match reply {
                Answer::Replicas(replicas) => Some(replicas),
                _ => None,
            },
        )?;
        match found {
            Some(found) => Ok(Some(found)),
            None => interpret_replica(object),
        }
    }

    /// Returns the components of a workload with several pod templates; `None` for kinds without a
    /// rule. No kind of Kubernetes has one.
    ///
    /// # Errors
    /// The interpreter gave no answer.
    pub fn components(&self, object: &Value) -> Result<Option<Vec<Component>>, Error> {
        let question = Question::new(Operation::InterpretComponent, object);
        self.asked(
            &question,
            |engine, rules| engine.interpret_component(rules, object),
            |reply| match reply {
                Answer::Components(list) => Some(list),
                _ => None,
            },
        )
    }

    /// Returns the object with the number of replicas of one cluster.
    ///
    /// # Errors
    /// A field cannot be read, the interpreter gave no answer, or the kind has no rule.
    pub fn revise_replica(&self, object: Value, replicas: i32) -> Result<Value, Error> {
        let question = Question {
            replicas,
            ..Question::new(Operation::ReviseReplica, &object)
        };
        let revised = self.asked(
            &question,
            |engine, rules| engine.revise_replica(rules, &object, replicas.into()),
            Answer::object,
        )?;
        match revised {
            Some(revised) => Ok(revised),
            None => revise_replica(object, replicas.into()),
        }
    }

    /// Returns the desired object with the fields from `observed` that the member decides.
    ///
    /// # Errors
    /// A field cannot be read, the interpreter gave no answer, or the kind has no rule.
    pub fn retain(&self, desired: Value, observed: &Value) -> Result<Value, Error> {
        let question = Question {
            observed: Some(observed),
            ..Question::new(Operation::Retain, &desired)
        };
        let retained = self.asked(
            &question,
            |engine, rules| engine.retain(rules, &desired, observed),
            Answer::object,
        )?;
        match retained {
            Some(retained) => Ok(retained),
            None => retain(desired, observed),
        }
    }

    /// Returns the status to report for an object in a member; `None` if there is nothing to
    /// report.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer.
    pub fn status(&self, object: &Value) -> Result<Option<Value>, Error> {
        let question = Question::new(Operation::InterpretStatus, object);
        let reported = self.asked(
            &question,
            |engine, rules| engine.interpret_status(rules, object),
            |reply| match reply {
                Answer::Status(status) => Some(status),
                _ => None,
            },
        )?;
        match reported {
            Some(reported) => Ok(Some(reported)),
            None => status(object),
        }
    }

    /// Returns whether the object in a member is healthy; `None` for kinds without a rule.
    ///
    /// # Errors
    /// A field cannot be read, or the interpreter gave no answer: the health is unknown.
    pub fn health(&self, object: &Value) -> Result<Option<bool>, Error> {
        let question = Question::new(Operation::InterpretHealth, object);
        let found = self.asked(
            &question,
            |engine, rules| engine.interpret_health(rules, object),
            |reply| match reply {
                Answer::Health(healthy) => Some(healthy),
                _ => None,
            },
        )?;
        match found {
            Some(found) => Ok(Some(found)),
            None => health(object),
        }
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
        let question = Question::new(Operation::InterpretDependency, object);
        let found = self.asked(
            &question,
            |engine, rules| engine.interpret_dependency(rules, object),
            |reply| match reply {
                Answer::Dependencies(list) => Some(list),
                _ => None,
            },
        )?;
        match found {
            Some(found) => Ok(Some(found)),
            None => dependencies(object),
        }
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
            ..Question::new(Operation::AggregateStatus, template)
        };
        let aggregated = self.asked(
            &question,
            |engine, rules| {
                let json =
                    |item: &AggregatedStatusItem| serde_json::to_value(item).unwrap_or_default();
                let items: Vec<Value> = items.iter().map(json).collect();
                engine.aggregate_status(rules, template, &items)
            },
            Answer::object,
        )?;
        if let Some(mut aggregated) = aggregated {
            return Ok(match aggregated["status"].take() {
                Value::Null => None,
                status => Some(status),
            });
        }
        if !self.has_for(template, Operation::AggregateStatus) {
            return Err(unsupported(Operation::AggregateStatus, template));
        }
        let members: Vec<_> = items
            .iter()
            .map(|item| MemberStatus {
                cluster: &item.cluster_name,
                status: item.status.as_ref().map(|status| &status.0),
            })
            .collect();
        aggregate_status(template, &members, now)
    }

    /// Asks the scripts of customizations, or a webhook, or the built-in scripts: the first that
    /// there is. `None` where there is none.
    fn asked<T>(
        &self,
        question: &Question<'_>,
        script: impl Fn(&Engine, &Rules) -> Result<Option<T>, ScriptError>,
        reply: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let (api_version, kind) = kind_of(question.object);
        let operation = question.operation;
        let layers = self.shared.layers.borrow().clone();
        let (customized, hooks) = (layers.scripts(), layers.hooks());
        let answer = if customized.has(api_version, kind, operation) {
            without_blocking_others(|| script(&self.shared.engine, &customized))
        } else if let Some(hook) = hooks.find(api_version, kind, operation) {
            let asked = self
                .shared
                .webhooks
                .ask(hook, question, self.late.is_some());
            return match asked {
                // A reply is always one to the operation of its question.
                Asked::Answered(answer) => Ok(reply(answer)),
                Asked::Late(answer, pending) => {
                    if let Some(late) = &self.late {
                        *late.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
                    }
                    Ok(reply(answer))
                }
                Asked::Pending(pending) => Err(Error::Pending(pending)),
                Asked::Failed(failure) => {
                    let at = &failure.at;
                    let by = Source::Webhook(at.configuration.clone());
                    self.tell(by, (api_version, kind, operation), || failure.to_string());
                    Err(Error::Webhook(failure))
                }
            };
        } else if thirdparty::rules().has(api_version, kind, operation) {
            without_blocking_others(|| script(&self.shared.engine, thirdparty::rules()))
        } else {
            return Ok(None);
        };
        answer.map_err(|error| {
            let name = error.source_of_script().customization.clone();
            let error = Error::Script(error);
            if !name.is_empty() {
                let by = Source::Customization(name);
                self.tell(by, (api_version, kind, operation), || error.to_string());
            }
            error
        })
    }

    /// Tells a failure, unless it was told a short time ago.
    fn tell(
        &self,
        by: Source,
        (api_version, kind, operation): (&str, &str, Operation),
        note: impl FnOnce() -> String,
    ) {
        let about = (by, api_version.to_owned(), kind.to_owned(), operation);
        let now = Instant::now();
        let before = self.told().get(&about).cloned();
        let age = before
            .as_ref()
            .map(|(at, _)| now.saturating_duration_since(*at));
        if age.is_some_and(|age| age < NEXT_FAILURE) {
            return;
        }
        let note = note();
        let is_same = before.is_some_and(|(_, told)| told == note);
        if is_same && age.is_some_and(|age| age < SAME_FAILURE) {
            return;
        }
        let by = about.0.clone();
        self.told().insert(about, (now, note.clone()));
        let failed = Failed { by, note };
        let listeners = self.shared.on_failure.read();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(&failed));
    }

    fn told(&self) -> MutexGuard<'_, HashMap<About, (Instant, String)>> {
        self.shared
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the API version and kind of an object.
fn kind_of(object: &Value) -> (&str, &str) {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Runs a call that may take long. On a runtime with several threads, other tasks go on meanwhile.
pub fn without_blocking_others<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests;
