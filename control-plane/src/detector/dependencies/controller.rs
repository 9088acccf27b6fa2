//! Keeps the index of who refers to what, and the bindings of what is referred to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Patch, PostParams};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::events::EventType;
use muster_shared::interpreter::{Dependency, dependencies};
use muster_shared::names::{annotation, finalizer};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Doubt, Presence};
use serde_json::{Value, json};

use super::attach::{Attached, MOST_REFERRERS, Referrer, Write};
use super::index::{Index, Touched, kinds_of};
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::detector::build;
use crate::detector::controller::{Error, SOON};
use crate::detector::scope::Scope;
use crate::detector::templates::{Lookup, TemplateEvent};
use crate::detector::{Kind, Parked, Template, TemplateKey};
use crate::fleet::Fleet;

struct Distributor {
    referrers: Queue<BindingKey>,
    templates: Queue<TemplateKey>,
    index: Mutex<Index>,
    /// Referrers that wait for the kind of their template to be listed.
    parked: Parked<BindingKey>,
    /// What was told of a template last, so that it is told once. May be lost.
    told: Mutex<HashMap<TemplateKey, String>>,
    scope: Scope,
}

/// How long to wait for a binding that is going away or another object's; its disappearance is heard of earlier.
const LEAVING: Duration = Duration::from_secs(5);

/// Starts distributing dependencies.
pub(in crate::detector) fn start(fleet: &Arc<Fleet>, scope: Scope, tasks: &mut Tasks) {
    let referrers = Queue::new("referrers");
    let distributor = Arc::new(Distributor {
        parked: Parked::new(&fleet.templates, &referrers),
        referrers,
        templates: Queue::new("dependencies"),
        index: Mutex::default(),
        told: Mutex::default(),
        scope,
    });
    let to = Arc::clone(&distributor);
    fleet.bindings.on_change(move |change| to.hear(change));
    let to = Arc::clone(&distributor);
    fleet.templates.on_change(move |news| {
        if news.event == TemplateEvent::Gone {
            to.told().remove(&news.key);
        }
        if to.index().concerns(&news.key) {
            to.templates.add(news.key.clone());
        }
    });
    let workers = fleet.settings.concurrent_resource_template_syncs;
    let (work, queue) = (Arc::clone(&distributor), distributor.referrers.clone());
    fleet.work(tasks, "referrers", queue, workers, move |fleet, key| {
        let distributor = Arc::clone(&work);
        async move { distributor.survey(&fleet, key).await }
    });
    let (work, queue) = (Arc::clone(&distributor), distributor.templates.clone());
    fleet.work(tasks, "dependencies", queue, workers, move |fleet, key| {
        let distributor = Arc::clone(&work);
        async move { distributor.attach(&fleet, key).await }
    });
}

impl Distributor {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<TemplateKey, String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, change: &Change<ResourceBinding>) {
        let new = change.object();
        let (old, gone) = match change {
            Change::Applied { old, .. } => (old.as_ref(), false),
            Change::Deleted { .. } => (None, true),
        };
        let same = old.is_some_and(|old| old.metadata.generation == new.metadata.generation);
        let leaving = new.metadata.deletion_timestamp.is_some();
        if same && !leaving {
            return;
        }
        let did = old.is_some_and(|old| old.spec.propagate_deps);
        if gone || leaving || new.spec.propagate_deps || did {
            self.referrers.add(BindingKey::of(new.as_ref()));
        }
        // Snapshots of referrers that went while nobody was looking are found on what they referred to, and a binding that somebody
        // deleted is made again.
        if gone || (old.is_none() && !new.spec.required_by.is_empty()) {
            self.templates.add(TemplateKey::of(&new.spec.resource));
        }
    }

    /// Finds out what a binding refers to.
    async fn survey(&self, fleet: &Fleet, key: BindingKey) -> Result<Next, Error> {
        let binding = fleet.bindings.get(key.namespace.as_deref(), &key.name);
        let Some(binding) = binding.clone().filter(|binding| refers(binding)) else {
            let Touched { templates, kinds } = self.index().forget(&key);
            for template in templates {
                self.templates.add(template);
            }
            for kind in kinds {
                fleet.templates.unname(&kind);
            }
            return match binding {
                Some(binding) => release(fleet, &key, &binding).await,
                None => Ok(Next::Done),
            };
        };
        let template_key = TemplateKey::of(&binding.spec.resource);
        let template = match fleet.templates.get(&template_key) {
            Lookup::Found(template) => template.object(&template_key.kind),
            Lookup::Absent => return Ok(Next::Done),
            Lookup::Unknown => return Ok(self.parked.wait(&template_key.kind, key)),
        };
        let needs = match dependencies(&template) {
            Ok(needs) => needs.unwrap_or_default(),
            Err(error) => {
                fleet.events.publish(
                    binding.as_ref(),
                    EventType::Warning,
                    "GetDependenciesFailed",
                    error.to_string(),
                );
                // Another try finds the same; a change of the template is heard of.
                return Ok(Next::Done);
            }
        };
        if !record(fleet, &key, &binding, &needs).await? {
            return Ok(Next::After(SOON));
        }
        for kind in kinds_of(&needs) {
            fleet.templates.name(&kind);
        }
        let chosen: Vec<Kind> = needs
            .iter()
            .filter(|need| need.name.is_none())
            .map(|need| Kind::new(&*need.api_version, &*need.kind))
            .collect();
        let Touched { templates, kinds } = self.index().set(&key, needs);
        for template in templates {
            self.templates.add(template);
        }
        for kind in kinds {
            fleet.templates.unname(&kind);
        }
        for kind in chosen {
            let near = fleet.templates.list(&kind, key.namespace.as_deref());
            for (template, _) in near.into_iter().flatten() {
                if self.index().concerns(&template) {
                    self.templates.add(template);
                }
            }
        }
        Ok(Next::Done)
    }

    /// Brings the binding of a template in line with its referrers.
    async fn attach(&self, fleet: &Fleet, key: TemplateKey) -> Result<Next, Error> {
        let template = match fleet.templates.get(&key) {
            Lookup::Found(template) => template,
            // It may come later, and so may its kind: either is heard of then.
            Lookup::Absent | Lookup::Unknown => return Ok(Next::Done),
        };
        if template.is_deleting() || !self.scope.admits(&key) || key.namespace.is_none() {
            return Ok(Next::Done);
        }
        let binding_key = BindingKey {
            namespace: key.namespace.clone(),
            name: muster_shared::names::binding(&key.kind.kind, &key.name),
        };
        let namespace = binding_key.namespace.as_deref();
        let held = match fleet.bindings.presence(namespace, &binding_key.name) {
            Presence::There(held) => Some(held),
            Presence::Unknown(Doubt::Unreadable { .. }) => {
                let binding = binding_key;
                let note = Error::Unreadable { binding }.to_string();
                self.tell(fleet, &key, &template, "AttachFailed", note);
                return Ok(Next::After(LEAVING));
            }
            Presence::Gone | Presence::Unknown(_) => None,
        };
        if held
            .as_ref()
            .is_some_and(|held| held.metadata.deletion_timestamp.is_some())
        {
            return Ok(Next::After(LEAVING));
        }
        let bindings: Vec<_> = self
            .index()
            .referrers(&key, &template)
            .into_iter()
            .filter_map(|referrer| {
                Some((
                    fleet
                        .bindings
                        .get(referrer.namespace.as_deref(), &referrer.name)?,
                    referrer,
                ))
            })
            .collect();
        let referrers: Vec<_> = bindings
            .iter()
            .filter(|(binding, _)| {
                !binding.spec.clusters.is_empty()
                    || !binding.spec.graceful_eviction_tasks.is_empty()
            })
            .filter_map(|(binding, key)| {
                Some(Referrer {
                    key,
                    id: binding.permanent_id()?,
                    spec: &binding.spec,
                })
            })
            .collect();
        let undecided = |referrer: &BindingKey| {
            let exists = || {
                fleet
                    .bindings
                    .get(referrer.namespace.as_deref(), &referrer.name)
            };
            !self.index().knows(referrer) && exists().is_some_and(|binding| refers(&binding))
        };
        let write = Attached::new(&key, &template, &referrers).and_then(|attached| {
            if attached.left_out() > 0 {
                let note = format!(
                    "more than {MOST_REFERRERS} bindings refer to it: some are not named on its own binding, to keep that small; it \
                     goes wherever they are"
                );
                self.tell(fleet, &key, &template, "ManyReferrers", note);
            }
            attached.write(held.as_deref(), undecided)
        });
        match write {
            Ok(Some(write)) => send(fleet, &binding_key, write).await,
            Ok(None) => Ok(Next::Done),
            Err(error) => {
                self.tell(fleet, &key, &template, "AttachFailed", error.to_string());
                let is_heard_of = matches!(error, build::Error::Name { .. });
                Ok(if is_heard_of {
                    Next::Done
                } else {
                    Next::After(LEAVING)
                })
            }
        }
    }

    /// Tells the owner of a template: once, until there is something else to tell.
    fn tell(
        &self,
        fleet: &Fleet,
        key: &TemplateKey,
        template: &Template,
        reason: &str,
        note: String,
    ) {
        let known = self.told().insert(key.clone(), note.clone());
        if known.as_ref() == Some(&note) {
            return;
        }
        tracing::warn!(template = %key, reason, note, "a template that others refer to");
        let about = template.reference(key);
        fleet
            .events
            .publish_about(about, EventType::Warning, reason, note);
    }
}

/// Whether a binding takes along what it refers to. One that is going away does not any more.
fn refers(binding: &ResourceBinding) -> bool {
    binding.spec.propagate_deps && binding.metadata.deletion_timestamp.is_none()
}

async fn send(fleet: &Fleet, key: &BindingKey, write: Write) -> Result<Next, Error> {
    let api = ResourceBinding::api(&fleet.client, key);
    let outcome = match write {
        Write::Create(object) => {
            let binding = serde_json::from_value(object)
                .map_err(|error| Error::api("compose", key)(kube::Error::SerdeError(error)))?;
            api.create(&PostParams::default(), &binding).await
        }
        Write::Patch(patch) => {
            api.patch(&key.name, &patch_params(), &Patch::Merge(&patch))
                .await
        }
    };
    match outcome {
        Ok(_) => Ok(Next::Done),
        // The cache lags behind. What is there already is heard of when it arrives.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Next::After(LEAVING)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
            Ok(Next::After(SOON))
        }
        Err(error) => Err(Error::api("attach", key)(error)),
    }
}

/// Shows on the binding what it refers to, for people and for other programs; `false` when the binding is not as it was known.
async fn record(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &ResourceBinding,
    needs: &[Dependency],
) -> Result<bool, Error> {
    let held = binding
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotation::DEPENDENCIES));
    let wanted = (!needs.is_empty()).then(|| json!(needs).to_string());
    if held == wanted.as_ref() {
        return Ok(true);
    }
    let patch = json!({ "metadata": {
        "annotations": { annotation::DEPENDENCIES: wanted.map_or(Value::Null, Value::from) },
        "resourceVersion": binding.metadata.resource_version,
    } });
    match ResourceBinding::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(error) => Err(Error::api("record the dependencies of", key)(error)),
    }
}

/// Takes off the finalizer that Karmada's distributor leaves on referrers. We need none: what a vanished referrer was attached to is
/// found from the other side.
async fn release(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &ResourceBinding,
) -> Result<Next, Error> {
    let all = binding.metadata.finalizers.as_deref().unwrap_or_default();
    if !all.iter().any(|held| held == finalizer::DEPENDENCIES) {
        return Ok(Next::Done);
    }
    let others: Vec<_> = all
        .iter()
        .filter(|held| *held != finalizer::DEPENDENCIES)
        .collect();
    let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": binding.metadata.resource_version } });
    match ResourceBinding::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Next::After(SOON)),
        Err(error) => Err(Error::api("release", key)(error)),
    }
}
