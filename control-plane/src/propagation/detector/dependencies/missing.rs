//! Reports workloads that do not take along what they refer to, and are where that is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::{Dependency, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;

use super::index::Index;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::parked::Parked;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::fleet::write::Written;
use crate::propagation::binding::references::{self, missing};
use crate::settings::PROPAGATE_DEPS;

/// Time after a change of a placement in which the placements that belong to it are changed, too:
/// what is missing no longer than that is not reported.
const SETTLING: Duration = Duration::from_secs(5);
/// Workers: what they report is not urgent, and mostly there is nothing to report.
const WORKERS: usize = 2;

struct Reporter {
    /// What workloads refer to that do not take it along. May be lost.
    index: Mutex<Index>,
    /// Workloads that wait for the kind of their template to be listed.
    parked: Parked<BindingKey>,
}

/// Starts reporting.
pub(in crate::propagation::detector) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let queue = Queue::new("missing dependencies");
    let reporter = Arc::new(Reporter {
        parked: Parked::new(&fleet.templates, &queue),
        index: Mutex::default(),
    });
    let concerned = {
        let reporter = Arc::clone(&reporter);
        move |_: &Fleet, change: &_| reporter.concerned(change)
    };
    Controller::with(fleet, "missing dependencies", &queue)
        .gathers(SETTLING, &fleet.bindings, concerned)
        .watches(&*fleet.interpreters, Fleet::interpreted_anew)
        .run(
            tasks,
            WORKERS,
            reporter,
            |fleet, reporter, key| async move { reporter.check(&fleet, &key).await },
        );
}

impl Reporter {
    /// Returns a binding that changes, and those that refer to its template: all of them may lack
    /// something.
    fn concerned(&self, change: &Change<AnyBinding>) -> Vec<BindingKey> {
        let binding = change.object();
        if !change.differs(|old, new| old.metadata.generation != new.metadata.generation) {
            return Vec::new();
        }
        let template = TemplateKey::of(&binding.spec.resource);
        let index = self.index.lock();
        let referrers = index.naming(&template).cloned();
        referrers.chain([BindingKey::of(binding)]).collect()
    }

    async fn check(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let Some(binding) = fleet.bindings.get(key) else {
            self.forget(key);
            return Ok(Next::Done);
        };
        let needs = if goes_alone(fleet, &binding) {
            let template = TemplateKey::of(&binding.spec.resource);
            let object = match fleet.templates.get(&template) {
                Lookup::Found(found) => found.object(&template.kind),
                Lookup::Absent => return Ok(Next::Done),
                Lookup::Unknown => return Ok(self.parked.wait(&template.kind, key.clone())),
            };
            let interpreters = fleet.interpreters.accepting_late();
            match interpreters.dependencies(&object) {
                Ok(needs) => {
                    if let Some(pending) = interpreters.late() {
                        self.parked.wakes(pending, key);
                    }
                    needs.unwrap_or_default()
                }
                Err(error) if self.parked.waits(&error, key) => return Ok(Next::Done),
                // The report stays until the interpreter has answered.
                Err(error) => return Ok(error.retry_after().map_or(Next::Done, Next::After)),
            }
        } else {
            Vec::new()
        };
        let missing = self.lacking(fleet, key, &binding, &needs);
        report(fleet, key, &binding, &missing).await
    }

    fn forget(&self, key: &BindingKey) {
        self.parked.leave(key);
        self.index.lock().forget(key);
    }

    /// Remembers what a workload refers to, and returns what of that is missing.
    fn lacking(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
        needs: &[Dependency],
    ) -> Vec<references::Missing> {
        if needs.is_empty() {
            self.forget(key);
            return Vec::new();
        }
        // A change of a placement that is not seen below finds the workload in the index.
        self.index.lock().set(key, needs.to_vec());
        let clusters = binding.spec.clusters.iter().map(|it| it.name.as_str());
        missing(needs, clusters, |template| placed(fleet, template))
    }
}

/// Returns the clusters of what a reference names; `None` if it has no binding.
fn placed(fleet: &Fleet, template: &TemplateKey) -> Option<BTreeSet<String>> {
    let key = BindingKey::for_template(template);
    let binding = fleet.bindings.get(&key)?;
    references::placed(&binding.spec, template)
}

/// Returns whether a workload does not take along what it may refer to. One that does is the
/// business of the distributor of dependencies.
fn goes_alone(fleet: &Fleet, binding: &AnyBinding) -> bool {
    let (spec, resource) = (&binding.spec, &binding.spec.resource);
    let operation = Operation::InterpretDependency;
    let goes_along = spec.propagate_deps && fleet.settings.gate(&PROPAGATE_DEPS);
    !goes_along
        && !spec.clusters.is_empty()
        && binding.metadata.deletion_timestamp.is_none()
        && binding.metadata.namespace.is_some()
        && resource.namespace == binding.metadata.namespace
        && fleet
            .interpreters
            .has(&resource.api_version, &resource.kind, operation)
}

/// Writes the condition, if it has changed.
async fn report(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    missing: &[references::Missing],
) -> Result<Next, ApiError> {
    let held = &binding.status().conditions;
    let now = fleet.clock.now();
    let Some(condition) = references::condition(missing, held, now) else {
        return Ok(Next::Done);
    };
    let Some(list) = conditions::merge(held, [condition.clone()]) else {
        return Ok(Next::Done);
    };
    let patch = conditions::patch(&binding.metadata, &list);
    let client = fleet.status_writer.when_idle().await;
    let step = "report missing dependencies of";
    let written = key.merge_status(&client, step, &patch).await?;
    if let Written::Done(_) = written {
        let kind = if condition.status == conditions::TRUE {
            EventType::Warning
        } else {
            EventType::Normal
        };
        fleet.publish(binding, kind, &condition.reason, condition.message);
    }
    // Where it was overtaken, the cache lags behind the write of another controller.
    Ok(written.next())
}
