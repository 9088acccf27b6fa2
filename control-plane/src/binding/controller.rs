//! Reconciles a binding: creates, updates and removes its Works.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::api::Patch;
use kube::{Client, ResourceExt};
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::names;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use serde_json::json;
use tokio::sync::OnceCell;

use super::absence::{self, Missing};
use super::error::Error;
use super::fence;
use super::hold;
use super::hold_condition::tell_of_hold;
use super::keeping::{Keeping, sooner};
use super::overriding;
use super::prepare::{Prepared, origin, prepare, replaces};
use super::render::{Origin, Rendered, Scope, expects};
use super::waits::Waits;
use super::write::{Ensured, ensure, lead, listed, remove, remove_named};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};
use crate::fleet::last_patches::LastPatches;
use crate::fleet::parked::Parked;
use crate::fleet::template_event::TemplateEvent;
use crate::fleet::works::{CachedWork, binding_of};

/// How long to wait for a Work that is going away; its disappearance is heard of earlier.
const LEAVING: Duration = Duration::from_secs(5);

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let queue = Queue::new("binding");
    let parked = Parked::new(&fleet.templates, &queue);
    let keeping = Arc::new(Keeping::default());
    follow(&fleet.bindings, &queue, &keeping);
    follow(&fleet.cluster_bindings, &queue, &keeping);
    overriding::follow(fleet, &queue);
    fleet.follow_interpreters(&queue);
    let claimed = queue.clone();
    fleet.templates.on_change(move |news| {
        // The manifest follows the template itself. The binding names its version, and need not
        // change before the template does: the detector may be another program, or see two changes
        // as one. The binding may have been seen first, too.
        if news.event != TemplateEvent::Gone {
            claimed.add(BindingKey::for_template(&news.key));
        }
    });
    let works = queue.clone();
    // `fleet` is not captured: it would keep itself alive.
    let expected = expectation(fleet.bindings.clone(), fleet.cluster_bindings.clone());
    fleet.works.on_change(move |change| {
        let concerns_us = match change {
            // Somebody changed the spec, or gave the permanent id that the manifest carries too.
            Change::Applied {
                old: Some(old),
                new,
            } => old.metadata.generation != new.metadata.generation || old.labels != new.labels,
            // Made while its binding moved on or went: nobody else would ever look at it.
            Change::Applied { old: None, new } => !expected(new),
            Change::Deleted { .. } => true,
        };
        if let Some(key) = binding_of(change.object()).filter(|_| concerns_us) {
            works.add(key);
        }
    });
    let patches = Arc::new(LastPatches::default());
    fleet.works.on_change({
        let patches = Arc::clone(&patches);
        move |change| {
            if let Change::Deleted { old } = change {
                patches.forget(old.metadata.uid.as_deref().unwrap_or_default());
            }
        }
    });
    let memory = Arc::new(Memory {
        patches,
        missing: Missing::default(),
        waits: Waits::default(),
        outdated: Waits::default(),
        parked,
        keeping,
    });
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    let settled = Arc::new(OnceCell::new());
    fleet.work(
        tasks,
        "binding",
        queue,
        workers,
        move |fleet, key: BindingKey| {
            let (memory, settled) = (Arc::clone(&memory), Arc::clone(&settled));
            async move {
                settled.get_or_init(|| overriding::settle(&fleet)).await;
                if key.namespace.is_some() {
                    sync::<ResourceBinding>(&fleet, &memory, &key).await
                } else {
                    sync::<ClusterResourceBinding>(&fleet, &memory, &key).await
                }
            }
        },
    );
}

/// What the controller remembers. May be lost.
pub(super) struct Memory {
    /// The last patch of each Work, by its uid.
    patches: Arc<LastPatches<String>>,
    missing: Missing,
    pub(super) waits: Waits<BindingKey>,
    /// Bindings that are about a former object.
    pub(super) outdated: Waits<BindingKey>,
    pub(super) parked: Parked<BindingKey>,
    /// Bindings some of whose replicas wait for others.
    keeping: Arc<Keeping>,
}

/// Tells whether a Work is where its binding wants one. False too where the binding is not known:
/// its Works are looked at.
fn expectation(
    bindings: Informer<ResourceBinding>,
    cluster_bindings: Informer<ClusterResourceBinding>,
) -> impl Fn(&CachedWork) -> bool {
    fn wants<B: Binding>(binding: Option<Arc<B>>, cluster: &str) -> bool {
        binding.is_some_and(|binding| {
            binding.meta().deletion_timestamp.is_none() && expects(binding.spec(), cluster)
        })
    }
    move |work| {
        let Some((key, cluster)) = binding_of(work).zip(cluster_of(work)) else {
            return true;
        };
        match &key.namespace {
            Some(namespace) => wants(bindings.get(Some(namespace), &key.name), cluster),
            None => wants(cluster_bindings.get(None, &key.name), cluster),
        }
    }
}

/// A change of the status alone does not concern us, but where replicas are kept until others are
/// reported.
fn follow<B: Binding>(bindings: &Informer<B>, queue: &Queue<BindingKey>, keeping: &Arc<Keeping>) {
    let (queue, keeping) = (queue.clone(), Arc::clone(keeping));
    bindings.on_change(move |change| match change {
        Change::Applied { old, new } => {
            let same = |old: &Arc<B>| {
                let (old, new) = (old.meta(), new.meta());
                old.generation == new.generation
                    && old.labels == new.labels
                    && old.deletion_timestamp.is_some() == new.deletion_timestamp.is_some()
            };
            let key = BindingKey::of(new.as_ref());
            if !old.as_ref().is_some_and(same) || keeping.has(&key) {
                queue.add(key);
            }
        }
        // As a rule its Works went before it; without its finalizer they did not.
        Change::Deleted { old } => queue.add(BindingKey::of(old.as_ref())),
    });
}

async fn sync<B: BindingKind>(
    fleet: &Fleet,
    memory: &Memory,
    key: &BindingKey,
) -> Result<Next, Error> {
    let client = fleet.work_writer.turn().await;
    let Some(binding) = B::cache(fleet).get(key.namespace.as_deref(), &key.name) else {
        memory.waits.over(key);
        memory.outdated.over(key);
        memory.parked.leave(key);
        memory.keeping.end(key);
        return absence::sweep(fleet, &client, &memory.missing, key).await;
    };
    memory.missing.forget(key);
    if binding.meta().deletion_timestamp.is_some() {
        memory.keeping.end(key);
        return finish(fleet, &client, key, binding.as_ref()).await;
    }
    let Some(id) = binding.permanent_id() else {
        return identify(fleet, key, binding.as_ref()).await;
    };
    let spec = binding.spec();
    let works = fleet.work_index.of(key);
    let scope = Scope::of(spec);

    let elsewhere = |work: &&Arc<CachedWork>| {
        cluster_of(work).is_some_and(|cluster| !scope.expected.contains(cluster))
    };
    let prepared = if scope.targets.is_empty() {
        Ok(Prepared::Nothing)
    } else {
        prepare(fleet, memory, key, binding.as_ref(), id, &works)
    };
    // A copy goes only for copies that can be made.
    let removed = replaces(&prepared, &scope, &works);
    if removed {
        fleet.deleted_works.add(works.iter().filter(elsewhere));
        remove(fleet, &client, works.iter().filter(elsewhere)).await?;
    }
    let is_fenced = fence::held(
        fleet,
        &client,
        key,
        binding.as_ref(),
        &scope,
        &works,
        removed,
    );
    if let Some(held) = is_fenced.await? {
        let condition = held.condition(fleet.clock.now());
        tell_of_hold(fleet, &client, key, binding.as_ref(), condition).await;
        return Ok(Next::After(held.pause));
    }
    let is_there = |cluster: &str| {
        scope.purged_first.contains(cluster)
            && is_heard(fleet, cluster)
            && works.iter().any(|work| cluster_of(work) == Some(cluster))
    };
    // The clock that tasks are dated by.
    let now = fleet.clock.now();
    let held = hold::hold(&spec.graceful_eviction_tasks, &is_there, now);
    let condition = hold::condition(held.as_ref(), &binding.status().conditions, now);
    let is_told = tell_of_hold(fleet, &client, key, binding.as_ref(), condition).await;
    if let Some(held) = held {
        return Ok(Next::After(held.pause(now, LEAVING)));
    }
    let next = match prepared? {
        Prepared::Nothing => {
            let keeping = &memory.keeping;
            keeping
                .tell(fleet, &client, key, binding.as_ref(), None)
                .await
        }
        Prepared::Later(next) => next,
        Prepared::Works {
            rendered,
            refused,
            keepers,
        } => {
            let keeping = &memory.keeping;
            let due = keeping
                .tell(fleet, &client, key, binding.as_ref(), keepers)
                .await;
            let origin = origin(key, id);
            let written = write(fleet, &client, memory, &origin, binding.as_ref(), &rendered).await;
            let (failed, of) = (refused.len(), rendered.len() + refused.len());
            match refused.into_iter().next() {
                None => sooner(written?, due),
                Some(first) => {
                    written?;
                    let first = Box::new(first);
                    return Err(Error::Some { failed, of, first });
                }
            }
        }
    };
    // Nothing else may lead to another look at the binding.
    Ok(if is_told || next != Next::Done {
        next
    } else {
        Next::Again
    })
}

/// Writes the Works of a binding, and tells what keeps it from that.
async fn write<B: BindingKind>(
    fleet: &Fleet,
    client: &Client,
    memory: &Memory,
    origin: &Origin,
    binding: &B,
    rendered: &[Rendered],
) -> Result<Next, Error> {
    let (key, resource) = (origin.key(), binding.spec().resource.uid.as_deref());
    let works = rendered
        .iter()
        .map(|work| ensure(fleet, client, &memory.patches, origin, resource, work));
    let outcomes = join_all(works).await;
    let is_untold =
        |outcome: &Result<_, Error>| matches!(outcome, Ok(Ensured::Joining | Ensured::Raced));
    let untold = if outcomes.iter().any(is_untold) {
        let wait = memory.waits.next(&key);
        if wait.has_become_long {
            let note = "a cluster has no execution namespace yet, or the cache does not show its work, so that this is tried again";
            let reason = "SyncWorkFailed";
            fleet
                .events
                .publish(binding, EventType::Warning, reason, note);
        }
        Some(wait.time)
    } else {
        memory.waits.over(&key);
        None
    };
    let wait = outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Ensured::Leaving) => Some(LEAVING),
        Ok(Ensured::Joining | Ensured::Raced) => untold,
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
            binding,
            EventType::Warning,
            "SyncWorkFailed",
            error.to_string(),
        );
        return Err(error);
    }
    Ok(wait.map_or(Next::Done, Next::After))
}

/// Removes the Works of a binding that is going away, then lets go of it. The Works' own finalizers
/// take care of the members.
async fn finish<B: BindingKind>(
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    binding: &B,
) -> Result<Next, Error> {
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
        remove_named(fleet, client, listed(fleet, key, B::ID_LABEL, id).await?).await?;
    }
    lead(fleet)?;
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
        Err(error) => Err(ApiError::of("release", key)(error).into()),
    }
}

/// Gives a binding that somebody else made its permanent id: its uid, unless admission gave one.
async fn identify<B: BindingKind>(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &B,
) -> Result<Next, Error> {
    let patch = json!({ "metadata": { "labels": { B::ID_LABEL: binding.uid() }, "resourceVersion": binding.resource_version() } });
    B::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(&patch))
        .await
        .map_err(ApiError::of("identify", key))?;
    Ok(Next::Done)
}

/// Whether a cluster is ready as far as the control plane hears, so that it can remove what it has.
pub(super) fn is_heard(fleet: &Fleet, cluster: &str) -> bool {
    let cluster = fleet.clusters.get(None, cluster);
    cluster.is_some_and(|cluster| availability::readiness(&cluster) == conditions::TRUE)
}

/// The cluster that a Work is for.
pub(super) fn cluster_of(work: &CachedWork) -> Option<&str> {
    names::cluster_of_execution_namespace(work.metadata.namespace.as_deref()?)
}
