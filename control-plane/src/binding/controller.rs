//! Gathers a binding, its template and its Works, and writes the Works that are missing, different or too many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PostParams, Preconditions};
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::api::work::Work;
use muster_shared::client::{self, Rank};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::interpreter;
use muster_shared::k8s::Condition;
use muster_shared::names;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use serde_json::{Value, json};

use super::compare;
use super::kept::{BindingKey, Kept, patch_params};
use super::purge;
use super::render::{Origin, Rendered, Scope, render};
use super::works::{CachedWork, binding_of, fingerprint};
use crate::availability;
use crate::detector::{Claim, Lookup, Parked, TemplateEvent, TemplateKey, binding_name};
use crate::fleet::Fleet;
use crate::settings::STATEFUL_FAILOVER_INJECTION;

/// How long to wait for the claim of a template; its arrival is heard of earlier.
const UNCLAIMED: Duration = Duration::from_secs(2);
/// How long to wait for the execution namespace of a cluster that is just joining.
const JOINING: Duration = Duration::from_secs(1);
/// How long to wait for a Work that is going away; its disappearance is heard of earlier.
const LEAVING: Duration = Duration::from_secs(5);

/// Why the Works of a binding are not as they should be.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("render the works: {0}")]
    Render(#[from] interpreter::Error),
    #[error("{step} {subject}: {source}")]
    Api {
        step: &'static str,
        subject: String,
        source: Box<kube::Error>,
    },
    #[error("{failed} of {of} works failed; the first: {first}")]
    Some {
        failed: usize,
        of: usize,
        first: Box<Self>,
    },
}

impl Error {
    fn api(step: &'static str, subject: &impl ToString) -> impl FnOnce(kube::Error) -> Self {
        let subject = subject.to_string();
        move |source| Self::Api {
            step,
            subject,
            source: Box::new(source),
        }
    }
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let queue = Queue::new("binding");
    let parked = Arc::new(Parked::new(&fleet.templates, &queue));
    follow(&fleet.bindings, &queue);
    follow(&fleet.cluster_bindings, &queue);
    let claimed = queue.clone();
    fleet.templates.on_change(move |news| {
        // The manifest follows the template itself. The binding names its version, and need not change before the template does: the
        // detector may be another program, or see two changes as one.
        if matches!(news.event, TemplateEvent::Changed | TemplateEvent::Marked) {
            claimed.add(BindingKey {
                namespace: news.key.namespace.clone(),
                name: binding_name(&news.key),
            });
        }
    });
    let works = queue.clone();
    fleet.works.on_change(move |change| {
        let concerns_us = match change {
            // Somebody changed the spec, or gave the permanent id that the manifest carries too.
            Change::Applied {
                old: Some(old),
                new,
            } => old.metadata.generation != new.metadata.generation || old.labels != new.labels,
            Change::Applied { old: None, .. } => false,
            Change::Deleted { .. } => true,
        };
        if let Some(key) = binding_of(change.object()).filter(|_| concerns_us) {
            works.add(key);
        }
    });
    let written = Arc::new(Written::default());
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    fleet.work(
        tasks,
        "binding",
        queue,
        workers,
        move |fleet, key: BindingKey| {
            let (written, parked) = (Arc::clone(&written), Arc::clone(&parked));
            async move {
                if key.namespace.is_some() {
                    sync::<ResourceBinding>(&fleet, &written, &parked, &key).await
                } else {
                    sync::<ClusterResourceBinding>(&fleet, &written, &parked, &key).await
                }
            }
        },
    );
}

/// A change of the status alone does not concern us.
fn follow<B: Binding>(bindings: &Informer<B>, queue: &Queue<BindingKey>) {
    let queue = queue.clone();
    bindings.on_change(move |change| {
        if let Change::Applied { old, new } = change {
            let same = |old: &Arc<B>| {
                let (old, new) = (old.meta(), new.meta());
                old.generation == new.generation
                    && old.labels == new.labels
                    && old.deletion_timestamp.is_some() == new.deletion_timestamp.is_some()
            };
            if !old.as_ref().is_some_and(same) {
                queue.add(BindingKey::of(new.as_ref()));
            }
        }
    });
}

async fn sync<B: Kept>(
    fleet: &Fleet,
    written: &Written,
    parked: &Parked<BindingKey>,
    key: &BindingKey,
) -> Result<Next, Error> {
    fleet.traffic.lull(Rank::Order).await;
    let Some(binding) = B::cache(fleet).get(key.namespace.as_deref(), &key.name) else {
        return Ok(Next::Done);
    };
    if binding.meta().deletion_timestamp.is_some() {
        return finish(fleet, key, binding.as_ref()).await;
    }
    let Some(id) = binding.permanent_id() else {
        return identify(fleet, key, binding.as_ref()).await;
    };
    let spec = binding.spec();
    let works = fleet.work_index.of(id);
    let scope = Scope::of(spec);

    let elsewhere = |work: &&Arc<CachedWork>| {
        cluster_of(work).is_none_or(|cluster| !scope.expected.contains(cluster))
    };
    remove(fleet, works.iter().filter(elsewhere)).await?;
    let is_there = |cluster: &str| {
        scope.purged_first.contains(cluster)
            && is_heard(fleet, cluster)
            && works.iter().any(|work| cluster_of(work) == Some(cluster))
    };
    let now = Timestamp::now();
    let held = purge::hold(&spec.graceful_eviction_tasks, &is_there, now);
    tell_of_hold(fleet, key, binding.as_ref(), held.as_ref(), now).await;
    if let Some(held) = held {
        return Ok(Next::After(held.pause(now, LEAVING)));
    }
    if scope.targets.is_empty() {
        return Ok(Next::Done);
    }

    let template_key = TemplateKey::of(&spec.resource);
    let template = match fleet.templates.get(&template_key) {
        Lookup::Found(template) => template,
        // The binding follows it: garbage collection takes both.
        Lookup::Absent => return Ok(Next::Done),
        Lookup::Unknown => return Ok(parked.wait(&template_key.kind, key.clone())),
    };
    let origin = Origin {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        id: id.to_owned(),
    };
    // The claim goes into the manifest, and makes a new generation of the template, which does as well. The detector is about to write
    // it; a Work made before would be written twice.
    if Claim::on(binding.meta()).is_some() && Claim::on(template.metadata()).is_none() {
        return Ok(Next::After(UNCLAIMED));
    }
    let template = template.object(&template_key.kind);
    let inject = fleet.settings.gate(&STATEFUL_FAILOVER_INJECTION);
    let rendered = match render(&origin, spec, &template, inject) {
        Ok(rendered) => rendered,
        Err(error) => {
            fleet.events.publish(
                binding.as_ref(),
                EventType::Warning,
                "SyncWorkFailed",
                error.to_string(),
            );
            return Err(error.into());
        }
    };
    let outcomes = join_all(rendered.iter().map(|work| ensure(fleet, written, work))).await;
    let wait = outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Ensured::Leaving) => Some(LEAVING),
        Ok(Ensured::Joining) => Some(JOINING),
        Ok(Ensured::AsRendered) | Err(_) => None,
    });
    let wait = wait.min();
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    if let Some(Err(first)) = outcomes.into_iter().find(Result::is_err) {
        let error = Error::Some {
            failed,
            of: rendered.len(),
            first: Box::new(first),
        };
        fleet.events.publish(
            binding.as_ref(),
            EventType::Warning,
            "SyncWorkFailed",
            error.to_string(),
        );
        return Err(error);
    }
    Ok(wait.map_or(Next::Done, Next::After))
}

/// Writes what holds the new copies back, or that nothing does any more. Where that fails it is tried again at the next look.
async fn tell_of_hold<B: Kept>(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &B,
    held: Option<&purge::Hold<'_>>,
    now: Timestamp,
) {
    let before = &binding.status().conditions;
    let Some(condition) = purge::condition(held, before, now) else {
        return;
    };
    let Some(list) = conditions::merge(before, [condition.clone()]) else {
        return;
    };
    let patch = json!({
        "metadata": {"resourceVersion": binding.resource_version()},
        "status": {"conditions": list},
    });
    let written = B::api(&fleet.report_client, key)
        .patch_status(&key.name, &patch_params(), &Patch::Merge(patch))
        .await;
    match written {
        Ok(_) => {
            let Condition {
                reason, message, ..
            } = condition;
            tracing::info!(binding = %key, reason, "{message}");
            let kind = if held.is_some() {
                EventType::Warning
            } else {
                EventType::Normal
            };
            fleet.events.publish(binding, kind, &reason, message);
        }
        Err(error) => {
            let error = client::brief(&error);
            tracing::debug!(binding = %key, error, "cannot tell what holds the new copies back");
        }
    }
}

/// The last patch of each Work (its fingerprint, by the Work's uid), and the version that it was for. Until the cache shows the
/// result, the same difference is found again; it need not be written again. May be lost.
#[derive(Default)]
struct Written(Mutex<HashMap<String, (Option<String>, u64)>>);

impl Written {
    fn holds(&self, work: &CachedWork, patch: &Value) -> bool {
        let last = self
            .lock()
            .get(work.metadata.uid.as_deref().unwrap_or_default())
            .cloned();
        last == Some((work.metadata.resource_version.clone(), fingerprint(patch)))
    }

    fn note(&self, work: &CachedWork, patch: &Value) {
        if let Some(uid) = work.metadata.uid.clone() {
            self.lock().insert(
                uid,
                (work.metadata.resource_version.clone(), fingerprint(patch)),
            );
        }
    }

    fn forget(&self, work: &CachedWork) {
        self.lock()
            .remove(work.metadata.uid.as_deref().unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Option<String>, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Ensured {
    AsRendered,
    /// The old one has to go first.
    Leaving,
    /// The cluster has no execution namespace yet.
    Joining,
}

async fn ensure(fleet: &Fleet, written: &Written, rendered: &Rendered) -> Result<Ensured, Error> {
    let api: Api<Work> = Api::namespaced(fleet.order_client.clone(), &rendered.namespace);
    let subject = || format!("work {}/{}", rendered.namespace, rendered.name);
    let Some(work) = fleet.works.get(Some(&rendered.namespace), &rendered.name) else {
        if is_leaving(fleet, &rendered.namespace) {
            return Ok(Ensured::AsRendered);
        }
        return match create(&api, rendered).await {
            Ok(()) => Ok(Ensured::AsRendered),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Ensured::Joining),
            Err(error) => Err(Error::api("create", &subject())(error)),
        };
    };
    if work.metadata.deletion_timestamp.is_some() {
        return Ok(Ensured::Leaving);
    }
    let Some(patch) = compare::patch(&work, rendered) else {
        written.forget(&work);
        return Ok(Ensured::AsRendered);
    };
    if !written.holds(&work, &patch) {
        api.patch(&rendered.name, &patch_params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::api("update", &subject()))?;
        written.note(&work, &patch);
        tracing::debug!(work = %subject(), "updated");
    }
    Ok(Ensured::AsRendered)
}

/// Whether the cluster of an execution namespace leaves the fleet: its Works go, and none are made any more.
fn is_leaving(fleet: &Fleet, namespace: &str) -> bool {
    names::cluster_of_execution_namespace(namespace)
        .and_then(|cluster| fleet.clusters.get(None, cluster))
        .is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
}

async fn create(api: &Api<Work>, rendered: &Rendered) -> Result<(), kube::Error> {
    let work: Work =
        serde_json::from_value(compare::create(rendered)).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &work).await {
        Ok(_) => Ok(()),
        // Made by us a moment ago and not in the cache yet; or by somebody else, and then its event brings us back.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes Works; the agents then remove the objects from the members.
async fn remove(fleet: &Fleet, works: impl Iterator<Item = &Arc<CachedWork>>) -> Result<(), Error> {
    let removals = works
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .map(|work| async move {
            let api: Api<Work> = Api::namespaced(
                fleet.order_client.clone(),
                &work.namespace().unwrap_or_default(),
            );
            let this_one = Preconditions {
                uid: work.uid(),
                resource_version: None,
            };
            let parameters = DeleteParams {
                preconditions: Some(this_one),
                ..DeleteParams::default()
            };
            tracing::info!(
                namespace = work.namespace(),
                work = work.name_any(),
                "removing a work that is not wanted any more"
            );
            match api.delete(&work.name_any(), &parameters).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                    Ok(())
                }
                Err(error) => Err(Error::api("remove work", &work.name_any())(error)),
            }
        });
    join_all(removals).await.into_iter().collect()
}

/// Removes the Works of a binding that is going away, then lets go of it. The Works' own finalizers take care of the members.
async fn finish<B: Kept>(fleet: &Fleet, key: &BindingKey, binding: &B) -> Result<Next, Error> {
    let ours = if B::NAMESPACED {
        names::finalizer::RESOURCE_BINDING
    } else {
        names::finalizer::CLUSTER_RESOURCE_BINDING
    };
    if !binding
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == ours)
    {
        return Ok(Next::Done);
    }
    if let Some(id) = binding.permanent_id() {
        remove(fleet, fleet.work_index.of(id).iter()).await?;
    }
    let others: Vec<_> = binding
        .finalizers()
        .iter()
        .filter(|finalizer| *finalizer != ours)
        .collect();
    let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": binding.resource_version() } });
    match B::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Next::Done),
        Err(error) => Err(Error::api("release", key)(error)),
    }
}

/// Gives a binding that somebody else made its permanent id: its uid, unless admission gave one.
async fn identify<B: Kept>(fleet: &Fleet, key: &BindingKey, binding: &B) -> Result<Next, Error> {
    let patch = json!({ "metadata": { "labels": { B::ID_LABEL: binding.uid() }, "resourceVersion": binding.resource_version() } });
    B::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
        .map_err(Error::api("identify", key))?;
    Ok(Next::Done)
}

/// Whether a cluster is ready as far as the control plane hears, so that it can remove what it has.
fn is_heard(fleet: &Fleet, cluster: &str) -> bool {
    let cluster = fleet.clusters.get(None, cluster);
    cluster.is_some_and(|cluster| availability::readiness(&cluster) == conditions::TRUE)
}

/// The cluster that a Work is for.
fn cluster_of(work: &CachedWork) -> Option<&str> {
    names::cluster_of_execution_namespace(work.metadata.namespace.as_deref()?)
}
