//! Reconciles Clusters: execution namespace, finalizer and condition taints; on deletion, cleanup
//! in Karmada's order.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Api, PostParams};
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client;
use muster_shared::controller::Controller;
use muster_shared::names::{cluster_of_execution_namespace, execution_namespace, label};
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;

use super::api_call::{failed, write};
use super::departure::see_off;
use super::lifecycle::{Changes, missing_changes};
use super::monitored::{self, Monitoring};
use super::ordered;
use super::waiting::DeletionWaits;
use super::{fleet_id, lease_monitor, measure};
use crate::clusters::cluster::duplicates;
use crate::clusters::taint::condition_taints;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::namespace;

/// Starts the controller and the monitor.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let queue = Queue::<String>::new("cluster");
    // Listens first: whoever reconciles a cluster knows what it claims.
    let identities = duplicates::listen(&fleet.clusters, &fleet.namespaces, &queue);
    let workers = fleet.settings.concurrent_cluster_syncs;
    let memory = (identities, Arc::<DeletionWaits>::default());
    Controller::with(fleet, "cluster", &queue)
        .watches(&fleet.clusters, |_, change| [change.object().name_any()])
        .watches(&fleet.pauses, |fleet, ()| fleet.cluster_names())
        .watches(&fleet.namespaces, |_, change| {
            let namespace = change.object().name_any();
            cluster_of_execution_namespace(&namespace).map(str::to_owned)
        })
        .run(
            tasks,
            workers,
            memory,
            |fleet, (identities, reported), name: String| async move {
                let Some(cluster) = fleet.clusters.get(None, &name) else {
                    reported.forget(&name);
                    return Ok(Next::Done);
                };
                if cluster.metadata.deletion_timestamp.is_some() {
                    see_off(&fleet, &cluster, &reported).await
                } else {
                    attend(&fleet, &cluster, &identities).await
                }
            },
        );
    lease_monitor::start(fleet, tasks);
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
) -> Result<Next, ApiError> {
    let kept = keep(fleet, cluster).await;
    let housed = ensure_namespace(fleet, cluster).await;
    let reported = duplicates::report_duplicate(fleet, cluster, identities)
        .await
        .map_err(failed("report a second registration of", cluster));
    let noted = match monitoring(
        &cluster.spec.sync_mode,
        fleet.settings.connects_to_members(),
    ) {
        Some(monitoring) => monitored::note(fleet, cluster, monitoring).await,
        None => Ok(Next::Done),
    };
    let ordered = ordered::note(fleet, cluster)
        .await
        .map_err(failed("report the orders about", cluster));
    let next = kept?;
    housed?;
    Ok(next.sooner(reported?).sooner(noted?).sooner(ordered?))
}

/// Returns how a cluster is monitored; `None` if the controller of push clusters reports that.
fn monitoring(mode: &ClusterSyncMode, connects: bool) -> Option<Monitoring<'static>> {
    if *mode == ClusterSyncMode::Pull {
        Some(Monitoring::Lease)
    } else if connects {
        None
    } else {
        Some(Monitoring::Off)
    }
}

async fn keep(fleet: &Fleet, cluster: &Cluster) -> Result<Next, ApiError> {
    let now = fleet.clock.now();
    let Changes {
        patch,
        taints,
        again,
    } = missing_changes(cluster, &fleet.settings, now);
    if let Some(patch) = patch {
        match write(fleet, cluster, &patch).await {
            Ok(()) => {}
            Err(error) if client::is_conflict(&error) => return Ok(Next::Again),
            Err(error) => {
                fleet
                    .events
                    .warn(cluster, "TaintClusterFailed", client::brief(&error));
                return Err(failed("write finalizer and taints of", cluster)(error));
            }
        }
        if let Some(taints) = taints {
            let text = condition_taints::describe(&taints);
            tracing::info!(cluster = cluster.name_any(), "condition taints: {text}");
            fleet.events.inform(cluster, "TaintClusterSucceed", text);
        }
    }
    Ok(again.map_or(Next::Done, |due| Next::After(until(due, now))))
}

async fn ensure_namespace(fleet: &Fleet, cluster: &Cluster) -> Result<(), ApiError> {
    let name = execution_namespace(&cluster.name_any());
    if fleet.namespaces.get(None, &name).is_some() {
        return Ok(());
    }
    let mut namespace = namespace(&name);
    namespace.metadata.labels = Some([(label::SYSTEM.to_owned(), "true".to_owned())].into());
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
            fleet
                .events
                .inform(cluster, "CreateExecutionSpaceSucceed", note);
            Ok(())
        }
        Err(error) if client::is_conflict(&error) => Ok(()),
        Err(error) => {
            fleet
                .events
                .warn(cluster, "CreateExecutionSpaceFailed", client::brief(&error));
            Err(failed("create the execution namespace of", cluster)(error))
        }
    }
}

#[cfg(test)]
mod tests;
