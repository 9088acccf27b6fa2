//! Keeps the index of who refers to what, and the bindings of what is referred to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::{Patch, PostParams};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::events::EventType;
use muster_shared::interpreter::{Dependency, dependencies};
use muster_shared::names::{annotation, finalizer};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::{Value, json};

use super::attach::{Attached, Referrer, Write};
use super::index::Index;
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::detector::controller::{Error, SOON};
use crate::detector::scope::Scope;
use crate::detector::templates::{Lookup, TemplateEvent};
use crate::detector::{Kind, TemplateKey};
use crate::fleet::Fleet;

struct Distributor {
    referrers: Queue<BindingKey>,
    templates: Queue<TemplateKey>,
    index: Mutex<Index>,
    /// The content that each template had when its binding was last written. May be lost.
    written: Mutex<HashMap<TemplateKey, u64>>,
    scope: Scope,
}

/// Starts distributing dependencies.
pub(in crate::detector) fn start(fleet: &Arc<Fleet>, scope: Scope, tasks: &mut Tasks) {
    let distributor = Arc::new(Distributor {
        referrers: Queue::new("referrers"),
        templates: Queue::new("dependencies"),
        index: Mutex::default(),
        written: Mutex::default(),
        scope,
    });
    let to = Arc::clone(&distributor);
    fleet.bindings.on_change(move |change| to.hear(change));
    let to = Arc::clone(&distributor);
    fleet.templates.on_change(move |news| {
        if news.event == TemplateEvent::Gone {
            to.written().remove(&news.key);
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

    fn written(&self) -> MutexGuard<'_, HashMap<TemplateKey, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Snapshots of referrers that went while nobody was looking are found on what they referred to.
        if old.is_none() && !gone && !new.spec.required_by.is_empty() {
            self.templates.add(TemplateKey::of(&new.spec.resource));
        }
    }

    /// Finds out what a binding refers to.
    async fn survey(&self, fleet: &Fleet, key: BindingKey) -> Result<Next, Error> {
        let binding = fleet.bindings.get(key.namespace.as_deref(), &key.name);
        let Some(binding) = binding.clone().filter(|binding| refers(binding)) else {
            for template in self.index().forget(&key) {
                self.templates.add(template);
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
            Lookup::Unknown => return Ok(Next::After(SOON)),
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
                return Err(Error::Build(error.into()));
            }
        };
        record(fleet, &key, &binding, &needs).await?;
        for need in &needs {
            fleet
                .templates
                .want(&Kind::new(&*need.api_version, &*need.kind));
        }
        let chosen: Vec<Kind> = needs
            .iter()
            .filter(|need| need.name.is_none())
            .map(|need| Kind::new(&*need.api_version, &*need.kind))
            .collect();
        for template in self.index().set(&key, needs) {
            self.templates.add(template);
        }
        for kind in chosen {
            for (template, _) in fleet.templates.list(&kind).into_iter().flatten() {
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
            // It may come later, and is heard of then.
            Lookup::Absent => return Ok(Next::Done),
            Lookup::Unknown => return Ok(Next::After(SOON)),
        };
        if template.is_deleting() || !self.scope.admits(&key) || key.namespace.is_none() {
            return Ok(Next::Done);
        }
        let binding_key = BindingKey {
            namespace: key.namespace.clone(),
            name: muster_shared::names::binding(&key.kind.kind, &key.name),
        };
        let held = fleet
            .bindings
            .get(binding_key.namespace.as_deref(), &binding_key.name);
        if held
            .as_ref()
            .is_some_and(|held| held.metadata.deletion_timestamp.is_some())
        {
            return Ok(Next::After(SOON));
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
        let content_changed = self
            .written()
            .get(&key)
            .is_some_and(|content| *content != template.content());
        let attached = Attached {
            key: &key,
            template: &template,
            content_changed,
            referrers: &referrers,
        };
        let undecided = |referrer: &BindingKey| {
            let exists = || {
                fleet
                    .bindings
                    .get(referrer.namespace.as_deref(), &referrer.name)
            };
            !self.index().knows(referrer) && exists().is_some_and(|binding| refers(&binding))
        };
        let write = attached.write(held.as_deref(), undecided);
        let next = match write {
            Some(write) => send(fleet, &binding_key, write).await?,
            None => Next::Done,
        };
        if next == Next::Done {
            self.written().insert(key.clone(), template.content());
        }
        Ok(next)
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
        // The cache lags behind.
        Err(kube::Error::Api(status))
            if status.is_already_exists() || status.is_conflict() || status.is_not_found() =>
        {
            Ok(Next::After(SOON))
        }
        Err(error) => Err(Error::api("attach", key)(error)),
    }
}

/// Shows on the binding what it refers to, for people and for other programs.
async fn record(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &ResourceBinding,
    needs: &[Dependency],
) -> Result<(), Error> {
    let held = binding
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotation::DEPENDENCIES));
    let wanted = (!needs.is_empty()).then(|| json!(needs).to_string());
    if held == wanted.as_ref() {
        return Ok(());
    }
    let patch = json!({ "metadata": { "annotations": { annotation::DEPENDENCIES: wanted.map_or(Value::Null, Value::from) } } });
    match ResourceBinding::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
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
