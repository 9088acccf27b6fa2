//! Finds members that are registered twice, sets the condition of the Cluster that came later, and
//! records which was first (the decisions are in [`identity`]).

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::conditions;
use muster_shared::k8s::Namespace;
use muster_shared::names::{cluster_of_execution_namespace, execution_namespace};
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Change, Doubt, Fate, Informer, Presence};
use serde_json::json;

use super::api_call::write_condition;
pub use super::identity::Identities;
use super::identity::{self, Claim};
use crate::fleet::Fleet;
use crate::fleet::write::{Written, merge};

/// Keeps account of who claims which id; a change of one Cluster's puts those on the queue whose
/// case that changes.
pub fn listen(
    clusters: &Informer<Cluster>,
    namespaces: &Informer<Namespace>,
    queue: &Queue<String>,
) -> Arc<Identities> {
    let identities = Arc::new(Identities::default());
    namespaces.on_change({
        let (queue, identities) = (queue.clone(), Arc::clone(&identities));
        let namespaces = namespaces.clone();
        move |change| {
            let name = change.object().name_any();
            let Some(cluster) = cluster_of_execution_namespace(&name) else {
                return;
            };
            let id = match change {
                Change::Applied { new, .. } => identity::recorded(new),
                // What a list lacks may be there, and its record with it.
                Change::Deleted { .. } if !namespaces.presence(None, &name).is_gone() => return,
                Change::Deleted { .. } => None,
            };
            for other in identities.note_record(cluster, id) {
                queue.add(other);
            }
        }
    });
    clusters.on_fate({
        let (queue, identities) = (queue.clone(), Arc::clone(&identities));
        let clusters = clusters.clone();
        move |fate| {
            let others = match fate {
                Fate::Applied(new) => {
                    let is_known = !clusters.is_synced();
                    identities.note(&new.name_any(), new.spec.id.as_deref(), is_known)
                }
                Fate::Gone(name) => identities.note_departure(name),
                // What cannot be read keeps its claim: another must not get the id meanwhile.
                Fate::Lost(_) => return,
            };
            for other in others {
                queue.add(other);
            }
        }
    });
    identities
}

/// Says on the Cluster that came later that its member has one already. Returns when to reconcile
/// the cluster again: soon where somebody else wrote it first.
pub async fn report_duplicate(
    fleet: &Fleet,
    cluster: &Cluster,
    identities: &Identities,
) -> Result<Next, kube::Error> {
    let (name, api) = (cluster.name_any(), Api::all(fleet.client.clone()));
    let mut claims = Vec::new();
    for (name, since) in identities.holders(&name) {
        let namespace = fleet.namespaces.get(None, &execution_namespace(&name));
        let namespace = namespace.as_deref();
        match fleet.clusters.presence(None, &name) {
            Presence::There(other) if other.spec.id == cluster.spec.id => {
                claims.push(identity::claim(&other, namespace, since));
            }
            Presence::There(_) | Presence::Gone => {}
            Presence::Unknown(doubt) => {
                let is_there = matches!(doubt, Doubt::Unreadable { .. })
                    || Head::<Cluster>::get_opt(&api, &name).await?.is_some();
                if is_there {
                    let id = cluster.spec.id.as_deref();
                    claims.push(identity::unread_claim(&name, id, namespace, since));
                } else {
                    identities.note(&name, None, false);
                }
            }
        }
    }
    record(fleet, cluster, &claims).await?;
    let Some(said) = identity::judge(cluster, &claims, fleet.clock.now()) else {
        return Ok(Next::Done);
    };
    let (is_wrong, message) = (said.status == conditions::FALSE, said.message.clone());
    let written = Written::of(write_condition(&fleet.client, cluster, said).await)?;
    match written {
        Written::Done(_) if is_wrong => {
            tracing::warn!(cluster = name, "{message}");
            let reason = "DuplicateRegistration";
            fleet.events.warn(cluster, reason, message);
        }
        Written::Done(_) => tracing::info!(cluster = name, "{message}"),
        Written::Overtaken | Written::Gone => {}
    }
    Ok(written.next())
}

/// Writes down that a Cluster was the first to hold its id, where it was.
async fn record(fleet: &Fleet, cluster: &Cluster, claims: &[Claim]) -> Result<(), kube::Error> {
    let name = execution_namespace(&cluster.name_any());
    let Some(namespace) = fleet.namespaces.get(None, &name) else {
        // Its creation has the cluster reconciled again.
        return Ok(());
    };
    if !identity::is_to_be_recorded(cluster, claims, &namespace) {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "resourceVersion": namespace.metadata.resource_version,
        "annotations": {identity::RECORD: cluster.spec.id},
    }});
    let api = Api::<Namespace>::all(fleet.client.clone());
    Written::of(merge(&api, &name, &patch).await)?;
    Ok(())
}

#[cfg(test)]
mod tests;
