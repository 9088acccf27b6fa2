//! Reconciles Clusters: execution namespace, finalizer and condition taints; on deletion, cleanup
//! in Karmada's order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::api::work::Work;
use muster_shared::client;
use muster_shared::events::EventType;
use muster_shared::k8s::{Namespace, ObjectMeta};
use muster_shared::names::{cluster_of_execution_namespace, execution_namespace, finalizer, label};
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use serde_json::{Value, json};

use super::lifecycle::{Changes, DeletionState, DeletionStep, missing_changes};
use super::monitored::{self, Monitoring};
use super::paused;
use super::{fleet_id, measure, rollcall};
use crate::cluster::duplicates;
use crate::fleet::Fleet;
use crate::fleet::works::{CachedWork, is_of_namespace};
use crate::taint::condition_taints;

/// How often a leaving cluster is looked at again where nobody tells us of a change.
const DELETION_RETRY: Duration = Duration::from_secs(2);

/// What can go wrong with one cluster.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot {step} of cluster {cluster:?}: {}", client::brief(error))]
    Call {
        step: &'static str,
        cluster: String,
        error: Box<kube::Error>,
    },
}

/// Starts the controller and the monitor.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let queue = Queue::<String>::new("cluster");
    // Listens first: whoever looks at a cluster knows what it claims.
    let identities = duplicates::listen(&fleet.clusters, &fleet.namespaces, &queue);
    fleet.clusters.on_change({
        let queue = queue.clone();
        move |change| queue.add(change.object().name_any())
    });
    fleet.pauses.on_change({
        let (clusters, queue) = (fleet.clusters.clone(), queue.clone());
        move || {
            for cluster in clusters.list() {
                queue.add(cluster.name_any());
            }
        }
    });
    fleet.namespaces.on_change({
        let queue = queue.clone();
        move |change| {
            if let Some(cluster) = cluster_of_execution_namespace(&change.object().name_any()) {
                queue.add(cluster.to_owned());
            }
        }
    });
    fleet.work(
        tasks,
        "cluster",
        queue,
        fleet.settings.concurrent_cluster_syncs,
        move |fleet, name| {
            let identities = Arc::clone(&identities);
            async move {
                let Some(cluster) = fleet.clusters.get(None, &name) else {
                    return Ok(Next::Done);
                };
                if cluster.metadata.deletion_timestamp.is_some() {
                    see_off(&fleet, &cluster).await
                } else {
                    attend(&fleet, &cluster, &identities).await
                }
            }
        },
    );
    rollcall::start(fleet, tasks);
    fleet_id::start(fleet, tasks);
    measure::start(fleet, tasks);
}

/// Gives a cluster what it lacks. Taints come first, and nothing else keeps them from being
/// written: new workloads stay away from a cluster that is silent even where its namespace cannot
/// be created.
async fn attend(
    fleet: &Fleet,
    cluster: &Cluster,
    identities: &duplicates::Identities,
) -> Result<Next, Error> {
    let kept = keep(fleet, cluster).await;
    let housed = ensure_namespace(fleet, cluster).await;
    let told = duplicates::tell_apart(fleet, cluster, identities)
        .await
        .map_err(failed("tell of a second registration", cluster));
    let noted = match monitoring(
        &cluster.spec.sync_mode,
        fleet.settings.connects_to_members(),
    ) {
        Some(monitoring) => monitored::note(fleet, cluster, monitoring)
            .await
            .map_err(failed("tell of the missing monitoring", cluster)),
        None => Ok(()),
    };
    let paused = paused::note(fleet, cluster)
        .await
        .map_err(failed("tell of a pause of", cluster));
    let next = kept?;
    housed.and(told).and(noted).and(paused)?;
    Ok(next)
}

/// Returns how a cluster is monitored; `None` if the controller of push clusters tells that.
fn monitoring(mode: &ClusterSyncMode, connects: bool) -> Option<Monitoring<'static>> {
    if *mode == ClusterSyncMode::Pull {
        Some(Monitoring::Lease)
    } else if connects {
        None
    } else {
        Some(Monitoring::Off)
    }
}

async fn keep(fleet: &Fleet, cluster: &Cluster) -> Result<Next, Error> {
    let now = fleet.clock.now();
    let Changes {
        patch,
        taints,
        again,
    } = missing_changes(
        cluster,
        fleet.settings.failover_eviction_timeout.map(Into::into),
        now,
    );
    if let Some(patch) = patch {
        match write(fleet, cluster, &patch).await {
            Ok(()) => {}
            Err(error) if client::is_conflict(&error) => return Ok(Next::Again),
            Err(error) => {
                fleet.events.publish(
                    cluster,
                    EventType::Warning,
                    "TaintClusterFailed",
                    client::brief(&error),
                );
                return Err(failed("write finalizer and taints", cluster)(error));
            }
        }
        if let Some(taints) = taints {
            let text = condition_taints::describe(&taints);
            tracing::info!(cluster = cluster.name_any(), "condition taints: {text}");
            fleet.events.publish(
                cluster,
                EventType::Normal,
                "TaintClusterSucceed",
                format!("Taint cluster succeed: {text}."),
            );
        }
    }
    Ok(again.map_or(Next::Done, |due| Next::After(until(due, now))))
}

async fn ensure_namespace(fleet: &Fleet, cluster: &Cluster) -> Result<(), Error> {
    let name = execution_namespace(&cluster.name_any());
    if fleet.namespaces.get(None, &name).is_some() {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(BTreeMap::from([(
                label::SYSTEM.to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match Api::all(fleet.client.clone())
        .create(&PostParams::default(), &namespace)
        .await
    {
        Ok(_) => {
            let note = format!(
                "Created execution space({name}) for cluster({}).",
                cluster.name_any()
            );
            tracing::info!(
                cluster = cluster.name_any(),
                namespace = name,
                "created the execution namespace"
            );
            fleet.events.publish(
                cluster,
                EventType::Normal,
                "CreateExecutionSpaceSucceed",
                note,
            );
            Ok(())
        }
        Err(error) if client::is_conflict(&error) => Ok(()),
        Err(error) => {
            fleet.events.publish(
                cluster,
                EventType::Warning,
                "CreateExecutionSpaceFailed",
                client::brief(&error),
            );
            Err(failed("create the execution namespace", cluster)(error))
        }
    }
}

async fn see_off(fleet: &Fleet, cluster: &Cluster) -> Result<Next, Error> {
    let name = cluster.name_any();
    let namespace = execution_namespace(&name);
    let works = within(fleet.works.list(), &namespace);
    let held = works.iter().filter(|work| is_held(&work.metadata));
    let held: Vec<_> = held.cloned().collect();
    let deletion = DeletionState {
        cluster,
        namespace: fleet
            .namespaces
            .get(None, &namespace)
            .map(|it| it.metadata.deletion_timestamp.is_some()),
        has_works: !works.is_empty(),
        has_held_works: !held.is_empty(),
        is_named: {
            let (bindings, wide) = (fleet.bindings.list(), fleet.cluster_bindings.list());
            let specs = bindings.iter().map(|it| &it.spec);
            is_named(specs.chain(wide.iter().map(|it| &it.spec)), &name)
        },
    };
    let next = deletion.next(fleet.settings.connects_to_members());
    tracing::debug!(cluster = name, ?next, "leaving");
    match next {
        DeletionStep::ReleaseWorks => {
            release_works(fleet, cluster, &held).await?;
            Ok(Next::Again)
        }
        DeletionStep::DeleteWorks => {
            delete_works(fleet, cluster, &works).await?;
            Ok(Next::After(DELETION_RETRY))
        }
        DeletionStep::DeleteNamespace => {
            let api = Api::<Namespace>::all(fleet.client.clone());
            match tolerate(
                api.delete(&namespace, &DeleteParams::default())
                    .await
                    .map(drop),
            ) {
                Ok(()) => {
                    let note = format!("Removed execution space for cluster({name}).");
                    fleet.events.publish(
                        cluster,
                        EventType::Normal,
                        "RemoveExecutionSpaceSucceed",
                        note,
                    );
                    Ok(Next::After(DELETION_RETRY))
                }
                Err(error) => {
                    fleet.events.publish(
                        cluster,
                        EventType::Warning,
                        "RemoveExecutionSpaceFailed",
                        client::brief(&error),
                    );
                    Err(failed("remove the execution namespace", cluster)(error))
                }
            }
        }
        DeletionStep::AwaitNamespace | DeletionStep::AwaitBindings => {
            Ok(Next::After(DELETION_RETRY))
        }
        DeletionStep::Release => {
            let patch = release(&cluster.metadata, finalizer::CLUSTER);
            match write(fleet, cluster, &patch).await {
                Err(error) if client::is_conflict(&error) => Ok(Next::Again),
                other => {
                    tolerate(other).map_err(failed("take the finalizer off", cluster))?;
                    tracing::info!(cluster = name, "the cluster has left the fleet");
                    Ok(Next::Done)
                }
            }
        }
        DeletionStep::Nothing => Ok(Next::Done),
    }
}

/// Whether an agent has yet to remove what a Work placed.
fn is_held(work: &ObjectMeta) -> bool {
    let mut finalizers = work.finalizers.iter().flatten();
    finalizers.any(|it| it == finalizer::WORK)
}

/// The patch that takes a finalizer off an object and leaves those of others.
fn release(object: &ObjectMeta, finalizer: &str) -> Value {
    let finalizers = object.finalizers.iter().flatten();
    let kept: Vec<_> = finalizers.filter(|it| *it != finalizer).collect();
    json!({"metadata": {
        "resourceVersion": object.resource_version,
        "finalizers": (!kept.is_empty()).then_some(kept),
    }})
}

/// Lets go of Works that no agent will see to any more.
async fn release_works(
    fleet: &Fleet,
    cluster: &Cluster,
    held: &[Arc<CachedWork>],
) -> Result<(), Error> {
    for work in held {
        let patch = release(&work.metadata, finalizer::WORK);
        let (name, params) = (work.name_any(), PatchParams::default());
        let patched = works_of(fleet, cluster)
            .patch(&name, &params, &Patch::Merge(patch))
            .await;
        tolerate(patched.map(drop)).map_err(failed("let go of the Works", cluster))?;
    }
    Ok(())
}

/// Deletes Works, for the agent to see to. Namespaces that came to the member by themselves stay
/// there: they may hold objects that the fleet did not place, such as volume claims of workloads
/// that moved away.
async fn delete_works(
    fleet: &Fleet,
    cluster: &Cluster,
    works: &[Arc<CachedWork>],
) -> Result<(), Error> {
    for work in works.iter().filter(|work| stays(work)) {
        let (name, params) = (work.name_any(), DeleteParams::default());
        if has_to_preserve(work) {
            let patch = Patch::Merge(json!({"spec": {"preserveResourcesOnDeletion": true}}));
            let patched = works_of(fleet, cluster)
                .patch(&name, &PatchParams::default(), &patch)
                .await;
            tolerate(patched.map(drop)).map_err(failed("preserve the namespaces", cluster))?;
        }
        let deleted = works_of(fleet, cluster).delete(&name, &params).await;
        tolerate(deleted.map(drop)).map_err(failed("delete the Works", cluster))?;
    }
    Ok(())
}

fn works_of(fleet: &Fleet, cluster: &Cluster) -> Api<Work> {
    Api::namespaced(
        fleet.client.clone(),
        &execution_namespace(&cluster.name_any()),
    )
}

/// The Works of a namespace.
fn within(works: Vec<Arc<CachedWork>>, namespace: &str) -> Vec<Arc<CachedWork>> {
    let here = |work: &Arc<CachedWork>| work.metadata.namespace.as_deref() == Some(namespace);
    works.into_iter().filter(here).collect()
}

/// Whether what a Work placed has still to be preserved before the Work is deleted.
fn has_to_preserve(work: &CachedWork) -> bool {
    is_of_namespace(&work.metadata) && work.preserve_resources_on_deletion != Some(true)
}

/// Whether a Work is still to be deleted.
fn stays(work: &CachedWork) -> bool {
    work.metadata.deletion_timestamp.is_none()
}

/// Whether a binding names a cluster as its target.
fn is_named<'a>(mut specs: impl Iterator<Item = &'a ResourceBindingSpec>, cluster: &str) -> bool {
    specs.any(|spec| spec.target(cluster).is_some())
}

async fn write(fleet: &Fleet, cluster: &Cluster, patch: &Value) -> Result<(), kube::Error> {
    let api = Api::<Cluster>::all(fleet.client.clone());
    api.patch(
        &cluster.name_any(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
    .map(drop)
}

/// Gone already, or changed meanwhile: the next look tells.
fn tolerate(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    result.or_else(|error| {
        if client::is_not_found(&error) || client::is_conflict(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

fn failed(step: &'static str, cluster: &Cluster) -> impl Fn(kube::Error) -> Error {
    let cluster = cluster.name_any();
    move |error| Error::Call {
        step,
        cluster: cluster.clone(),
        error: Box::new(error),
    }
}

#[cfg(test)]
mod tests;
