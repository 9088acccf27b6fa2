//! The rules for all kinds, asked in the order in which they count.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use muster_interpreter::{Dependency, Engine, Error as ScriptError, Operation, Rules, thirdparty};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::Instant;

use super::kind::unsupported;
use super::{
    Error, MemberStatus, Replicas, aggregate_status, dependencies, health, hook_enabled,
    interpret_replica, retain, revise_replica, status,
};
use crate::api::binding::{AggregatedStatusItem, ReplicaRequirements};

/// Time for which the failure of a script is not told again to the listeners of failures.
const TOLD_AGAIN: Duration = Duration::from_mins(5);

/// Kinds whose scripts have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed(Vec<(String, String)>);

impl Changed {
    /// Returns whether a kind is among them.
    pub fn has(&self, api_version: &str, kind: &str) -> bool {
        let mut kinds = self.0.iter();
        kinds.any(|(of, name)| of == api_version && name == kind)
    }

    /// Returns API version and name of each kind, in order.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let kinds = self.0.iter();
        kinds.map(|(of, name)| (of.as_str(), name.as_str()))
    }
}

type OnChange = Box<dyn Fn(&Changed) + Send + Sync>;
type OnFailure = Box<dyn Fn(&ScriptError) + Send + Sync>;

/// The one place where agent and control plane ask for the meaning of a resource.
///
/// Scripts of customizations are asked first, then the built-in scripts for kinds of other
/// projects, then the native functions of this module. The first that has a rule for kind and
/// operation answers; where it fails, its error is the answer.
///
/// Until [`known`](Self::known) it is not known which customizations there are. Whoever acts on
/// answers waits for it, because the other rules may say something else about the kind.
///
/// Scripts of customizations may run as long as the limits of the [`Engine`] allow. On a runtime
/// with several threads, other tasks go on meanwhile.
pub struct Interpreters {
    engine: Engine,
    /// Scripts of the customizations; `None` until it is known which there are.
    customized: watch::Sender<Option<Arc<Rules>>>,
    on_change: RwLock<Vec<OnChange>>,
    on_failure: RwLock<Vec<OnFailure>>,
    /// When the failure of a script was told last, by customization, kind and operation.
    told: Mutex<HashMap<muster_interpreter::Source, Instant>>,
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
        Self {
            engine: Engine::default(),
            customized: watch::Sender::new(None),
            on_change: RwLock::default(),
            on_failure: RwLock::default(),
            told: Mutex::default(),
        }
    }
}

impl Interpreters {
    /// Makes the interpreters for certain customizations, which do not change.
    pub fn of(customizations: &[muster_interpreter::Customization]) -> Self {
        let interpreters = Self::default();
        interpreters.set(Rules::new(customizations));
        interpreters
    }

    /// Adds a listener for changes of customizations. It is called after the new scripts count, and
    /// must return quickly. The first scripts are no change.
    pub fn on_change(&self, listener: impl Fn(&Changed) + Send + Sync + 'static) {
        let mut listeners = self.on_change.write();
        let listeners = listeners.as_mut().unwrap_or_else(|poison| poison.get_mut());
        listeners.push(Box::new(listener));
    }

    /// Adds a listener for failures of scripts: told once in five minutes for each script. It is
    /// called on the task that asked, and must return quickly.
    pub fn on_failure(&self, listener: impl Fn(&ScriptError) + Send + Sync + 'static) {
        let mut listeners = self.on_failure.write();
        let listeners = listeners.as_mut().unwrap_or_else(|poison| poison.get_mut());
        listeners.push(Box::new(listener));
    }

    /// Returns the scripts of the customizations; none before they are known.
    pub fn customized(&self) -> Arc<Rules> {
        self.customized.borrow().clone().unwrap_or_default()
    }

    /// Returns a receiver of the scripts of the customizations, for a task that ends before the
    /// process does. Its value is `None` until it is known which there are.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Rules>>> {
        self.customized.subscribe()
    }

    /// Has these scripts of customizations count from now on. From the first call on it is known
    /// which customizations there are.
    pub fn set(&self, rules: Rules) {
        let rules = Arc::new(rules);
        let was_known = self.is_known();
        let changed = Changed(rules.differences(&self.customized()));
        if was_known && changed.0.is_empty() {
            return;
        }
        self.customized.send_replace(Some(rules));
        // A script that somebody mended, or broke again, is told of anew.
        let is_other = |at: &muster_interpreter::Source| changed.has(&at.api_version, &at.kind);
        self.told().retain(|at, _| !is_other(at));
        if was_known {
            let listeners = self.on_change.read();
            let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            listeners.iter().for_each(|listener| listener(&changed));
        }
    }

    /// Waits until it is known which customizations there are.
    pub async fn known(&self) {
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = self.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns whether it is known which customizations there are.
    pub fn is_known(&self) -> bool {
        self.customized.borrow().is_some()
    }

    /// Returns whether a kind has a rule for an operation. Every kind has its status reflected.
    pub fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.customized().has(api_version, kind, operation)
            || thirdparty::rules().has(api_version, kind, operation)
            || hook_enabled(api_version, kind, operation)
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
        let operation = Operation::InterpretReplica;
        let found = self.scripted(object, operation, |engine, rules| {
            engine.interpret_replica(rules, object)
        })?;
        match found {
            Some(found) => Ok(Some(Replicas {
                replicas: found.replicas,
                requirements: found.requirements.as_ref().map(requirements),
            })),
            None => interpret_replica(object),
        }
    }

    /// Returns the object with the number of replicas of one cluster.
    ///
    /// # Errors
    /// A field cannot be read, a script failed, or the kind has no rule.
    pub fn revise_replica(&self, object: Value, replicas: i64) -> Result<Value, Error> {
        let operation = Operation::ReviseReplica;
        let revised = self.scripted(&object, operation, |engine, rules| {
            engine.revise_replica(rules, &object, replicas)
        })?;
        match revised {
            Some(revised) => Ok(revised),
            None => revise_replica(object, replicas),
        }
    }

    /// Returns the desired object with the fields from `observed` that the member decides.
    ///
    /// # Errors
    /// A field cannot be read, a script failed, or the kind has no rule.
    pub fn retain(&self, desired: Value, observed: &Value) -> Result<Value, Error> {
        let retained = self.scripted(&desired, Operation::Retain, |engine, rules| {
            engine.retain(rules, &desired, observed)
        })?;
        match retained {
            Some(retained) => Ok(retained),
            None => retain(desired, observed),
        }
    }

    /// Returns the status to report for an object in a member; `None` if there is nothing to
    /// report.
    ///
    /// # Errors
    /// A field cannot be read, or a script failed.
    pub fn status(&self, object: &Value) -> Result<Option<Value>, Error> {
        let operation = Operation::InterpretStatus;
        let reported = self.scripted(object, operation, |engine, rules| {
            engine.interpret_status(rules, object)
        })?;
        match reported {
            Some(reported) => Ok(Some(reported)),
            None => status(object),
        }
    }

    /// Returns whether the object in a member is healthy; `None` for kinds without a rule.
    ///
    /// # Errors
    /// A field cannot be read, or a script failed: the health is unknown.
    pub fn health(&self, object: &Value) -> Result<Option<bool>, Error> {
        let operation = Operation::InterpretHealth;
        let found = self.scripted(object, operation, |engine, rules| {
            engine.interpret_health(rules, object)
        })?;
        match found {
            Some(found) => Ok(Some(found)),
            None => health(object),
        }
    }

    /// Returns the dependencies of an object; `None` for kinds without a rule.
    ///
    /// # Errors
    /// A field cannot be read, or a script failed.
    pub fn dependencies(&self, object: &Value) -> Result<Option<Vec<Dependency>>, Error> {
        let operation = Operation::InterpretDependency;
        let found = self.scripted(object, operation, |engine, rules| {
            engine.interpret_dependency(rules, object)
        })?;
        match found {
            Some(found) => Ok(Some(found)),
            None => dependencies(object),
        }
    }

    /// Returns the status of the template, or `None` if it should stay as it is. `now` is the time
    /// of the conditions that the native rules add.
    ///
    /// # Errors
    /// The status of a member cannot be read, a script failed, or the kind has no rule.
    pub fn aggregate_status(
        &self,
        template: &Value,
        items: &[AggregatedStatusItem],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let operation = Operation::AggregateStatus;
        let aggregated = self.scripted(template, operation, |engine, rules| {
            let json = |item: &AggregatedStatusItem| serde_json::to_value(item).unwrap_or_default();
            let items: Vec<Value> = items.iter().map(json).collect();
            engine.aggregate_status(rules, template, &items)
        })?;
        if let Some(mut aggregated) = aggregated {
            return Ok(match aggregated["status"].take() {
                Value::Null => None,
                status => Some(status),
            });
        }
        if !self.has_for(template, operation) {
            return Err(unsupported(operation, template));
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

    /// Asks the scripts: those of customizations, then the built-in ones.
    fn scripted<T>(
        &self,
        object: &Value,
        operation: Operation,
        ask: impl Fn(&Engine, &Rules) -> Result<Option<T>, ScriptError>,
    ) -> Result<Option<T>, Error> {
        let (api_version, kind) = kind_of(object);
        let customized = self.customized();
        let answer = if customized.has(api_version, kind, operation) {
            without_blocking_others(|| ask(&self.engine, &customized))
        } else if thirdparty::rules().has(api_version, kind, operation) {
            without_blocking_others(|| ask(&self.engine, thirdparty::rules()))
        } else {
            return Ok(None);
        };
        answer.map_err(|error| {
            self.tell(&error);
            Error::Script(error)
        })
    }

    /// Tells a failure of a customization, unless it was told a short time ago.
    fn tell(&self, error: &ScriptError) {
        let at = error.source_of_script();
        if at.customization.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_recent = |told: &Instant| now.saturating_duration_since(*told) < TOLD_AGAIN;
        if self.told().get(at).is_some_and(is_recent) {
            return;
        }
        self.told().insert(at.clone(), now);
        let listeners = self.on_failure.read();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(error));
    }

    fn told(&self) -> MutexGuard<'_, HashMap<muster_interpreter::Source, Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// API version and kind of an object.
fn kind_of(object: &Value) -> (&str, &str) {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// The type of the API has the same fields as that of the engine, which has been checked.
fn requirements(found: &muster_interpreter::Requirements) -> ReplicaRequirements {
    let json = serde_json::to_value(found).unwrap_or_default();
    serde_json::from_value(json).unwrap_or_default()
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
